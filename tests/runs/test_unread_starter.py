"""Configs that a program of the project starts by a line that is put together as it runs."""

from __future__ import annotations

import pytest
from tests.linked import report_of

from oomlint.linting.rule import Severity

_SFT = """\
model_name_or_path: Qwen/Qwen2.5-7B
dataset_name: trl-lib/Capybara
load_in_4bit: true
use_peft: false
per_device_train_batch_size: 1
max_length: 1024
output_dir: out
"""
_PIPELINE = """\
import subprocess

def command(data):
    return f"accelerate launch {script} {CONFIG} --dataset_name {data}"

def main(stages):
    for stage in stages:
        subprocess.run(stage, shell=True)
"""


@pytest.mark.parametrize(
    ("config", "severity"),
    [("sft.yaml", Severity.INFO), ("other.yaml", Severity.ERROR)],
)
def test_what_a_config_says_hangs_on_a_program_that_puts_its_line_together(
    config: str, severity: Severity
) -> None:
    program = _PIPELINE.replace("{CONFIG}", config)
    found = report_of({"sft.yaml": _SFT, "pipeline.py": program}, "sft.yaml").diagnoses
    assert [d.severity for d in found if d.finding.rule.code == "OOM816"] == [severity]
