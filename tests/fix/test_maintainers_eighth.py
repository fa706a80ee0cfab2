"""What an eighth reading of diffs in public repositories found, and its causes; the projects here are written anew."""

from __future__ import annotations

from tests.fixing import repaired

_AXOLOTL = """\
base_model: meta-llama/Meta-Llama-3-8B
datasets: [{path: tatsu-lab/alpaca, type: alpaca}]
sequence_len: 4096
micro_batch_size: 8
gradient_accumulation_steps: 4
pad_to_sequence_len: true
optimizer: adamw_torch
bf16: true
deepspeed: %s
"""
_NO_STAGE = '{"zero_optimization": {"stage": 4}, "bf16": {"enabled": true}}\n'


def test_an_error_in_a_file_that_several_runs_use_stops_each_of_them() -> None:
    files = dict.fromkeys(("a.yaml", "b.yaml"), _AXOLOTL % "ds.json")
    result = repaired({**files, "ds.json": _NO_STAGE}, hardware="8xA100-40GB")
    assert "OOM904" in {d.rule.code for d in result.report.diagnoses}
    assert not result.texts
