"""What the headline of a run in trouble says of when it dies."""

from __future__ import annotations

import json

import pytest
from tests.linked import report_of

_AT_START = "it ends before the first step, where DeepSpeed makes the optimizer's states"


@pytest.mark.parametrize(("stage", "is_at_start"), [(3, True), (2, False)])
def test_stage_3_dies_as_it_starts(stage: int, is_at_start: bool) -> None:
    """6.74e9 parameters over 4 ranks are 3.1 GiB of weights, 6.3 of their fp32 copy and 12.6 of Adam's, and 3.7 of
    gradients of a sub-group: 25.7 GiB of 23.5. Stage 2 makes the states in the first step."""
    config = {"zero_optimization": {"stage": stage}, "bf16": {"enabled": True}}
    text = (
        "base_model: NousResearch/Llama-2-7b-hf\ndatasets:\n  - path: tatsu-lab/alpaca\nsequence_len: 1024\n"
        "micro_batch_size: 1\ngradient_checkpointing: true\nbf16: true\noptimizer: adamw_torch\ndeepspeed: ds.json\n"
    )
    found = report_of(
        {"train.yaml": text, "ds.json": json.dumps(config)},
        "train.yaml",
        hardware="4xRTX-4090-24GB",
    )
    (headline,) = [d for d in found.diagnoses if d.rule.name == "gpu-memory-at-risk"]
    assert (_AT_START in headline.finding.details) is is_at_start
