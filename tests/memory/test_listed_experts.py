"""Mixtures whose own code has a linear layer for each expert are quantized whole."""

from __future__ import annotations

import pytest
from tests.linked import run_of

_CONFIG = """\
model_name_or_path: {model}
trust_remote_code: true
stage: sft
do_train: true
finetuning_type: lora
lora_target: all
quantization_bit: 4
dataset: a
template: kimi_vl
cutoff_len: 2048
output_dir: out
per_device_train_batch_size: 1
fp16: true
"""


@pytest.mark.parametrize(
    ("model", "is_small"),
    [("moonshotai/Kimi-VL-A3B-Thinking-2506", True), ("Qwen/Qwen3-30B-A3B", False)],
)
def test_experts_of_code_that_comes_with_the_weights(model: str, is_small: bool) -> None:
    """16.4B parameters in 4 bit; those that transformers 5 stacks stay in 16."""
    run = run_of({"train.yaml": _CONFIG.format(model=model)})
    peak = run.estimate.gpu.peak_bytes
    assert peak is not None
    assert (peak < 20 * 2**30) is is_small
