"""A program that is sure to end before its first step: what it would need is a remark."""

from __future__ import annotations

import pytest
from tests.linked import report_of, run_of

from oomlint.dialects.common.fields import shared
from oomlint.judgement import judgement_of
from oomlint.linting.rule import Severity

_CARD = "1xRTX-4090-24GB"
_LOOP = """\
import torch
from environment import Environment
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B", torch_dtype=torch.bfloat16)
environment = Environment({given})
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for batch in torch.utils.data.DataLoader(samples, batch_size=1):
    model(**batch).loss.backward()
    optimizer.step()
"""
_ENVIRONMENT = "class Environment:\n    def __init__(self, config):\n        pass\n"
_AXOLOTL = """\
base_model: meta-llama/Llama-3.1-8B
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
adapter: qlora
load_in_4bit: true
lora_r: 16
lora_target_linear: true
sequence_len: 4096
sample_packing: true
micro_batch_size: 4
bf16: {bf16}
fp16: false
{attention}: true
"""


def test_what_a_program_would_need_that_stops_is_a_remark() -> None:
    for given, is_sure in (("config", True), ("", False)):
        files = {"train.py": _LOOP.format(given=given), "environment.py": _ENVIRONMENT}
        found = report_of(files, hardware=_CARD).diagnoses
        assert any(each.severity >= Severity.WARNING for each in found) is is_sure
        verdict = judgement_of(run_of(files, hardware=_CARD)).spoken.verdict
        assert verdict == ("does_not_fit" if is_sure else "unknown")
    assert any("without config" in each.finding.text for each in found)


def test_workers_that_ask_for_npus_never_start_on_gpus() -> None:
    line = (
        "python3 -m verl.trainer.main_ppo data.train_files=a actor_rollout_ref.rollout.name=vllm "
        "actor_rollout_ref.model.path=Qwen/Qwen3-32B actor_rollout_ref.rollout.n=4 "
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 trainer.n_gpus_per_node=1"
    )
    for device, stops in (("npu", True), ("cuda", False)):
        files = {"run.sh": f"{line} trainer.device={device}\n"}
        found = report_of(files, hardware=_CARD).diagnoses
        assert found
        assert any(each.severity >= Severity.WARNING for each in found) is not stops


@pytest.mark.parametrize(
    ("bf16", "attention", "stops"),
    [
        ("false", "flash_attention", True),
        ("true", "flash_attention", False),
        ("false", "sdp_attention", False),
    ],
)
def test_flash_attention_has_no_kernel_for_fp32(bf16: str, attention: str, stops: bool) -> None:
    files = {"a.yaml": _AXOLOTL.format(bf16=bf16, attention=attention)}
    run = run_of(files, hardware=_CARD)
    assert (run.settings.get(shared.stops) is not None) is stops
    verdict = judgement_of(run).spoken.verdict
    assert (verdict == "unknown") is stops
    errors = [e.rule.code for e in report_of(files, hardware=_CARD).diagnoses if e.severity > 2]
    assert ("OOM109" in errors) is stops
    assert not stops or errors == ["OOM109"]
