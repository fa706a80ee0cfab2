"""Options whose value the program puts behind a folder of its own: no path from where the command runs."""

from __future__ import annotations

import pytest
from tests.linked import link, report_of, run_of

from oomlint.linting.rule import Severity

_LINE = (
    "deepspeed --num_gpus 8 src/train.py --model_name_or_path meta-llama/Llama-3.1-8B"
    " --output_dir out --deepspeed_config stage-3.json\n"
)
_SCRIPT = """\
import argparse
import os

from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

RESOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "resources")


def get_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model_name_or_path")
    parser.add_argument("--output_dir")
    parser.add_argument("--deepspeed_config")
    return parser.parse_args()


def main():
    args = get_arguments()
    model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path)
    config = {path} if args.deepspeed_config is not None else None
    options = TrainingArguments(output_dir=args.output_dir, deepspeed=config)
    Trainer(model=model, args=options, train_dataset=rows, data_collator=pad).train()


main()
"""
_ZERO3 = '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}\n'
_JOINED = 'os.path.join(RESOURCES, "config", args.deepspeed_config)'


def _files(path: str) -> dict[str, str]:
    return {"run.sh": _LINE, "src/train.py": _SCRIPT.format(path=path)}


def test_the_file_is_looked_for_behind_the_folder() -> None:
    files = _files(_JOINED)
    run = run_of({**files, "src/resources/config/stage-3.json": _ZERO3})
    assert not run.missing
    assert run.plan.parallel.zero.stage == 3
    # Of two such folders only the program knows which.
    two = {"src/resources/config/stage-3.json": _ZERO3, "old/config/stage-3.json": _ZERO3}
    runs = link({**files, **two}).runs
    assert [each.is_elsewhere for run in runs for each in run.missing] == [True]


@pytest.mark.parametrize(
    ("path", "severity"),
    [
        (_JOINED, Severity.INFO),
        ("args.deepspeed_config", Severity.WARNING),
        ("os.path.join(os.getcwd(), args.deepspeed_config)", Severity.WARNING),
    ],
)
def test_what_is_not_there_is_missed_where_its_path_is_known(path: str, severity: Severity) -> None:
    files = _files(path)
    found = report_of({**files, "src/config/other.json": _ZERO3}).diagnoses
    assert [d.severity for d in found if d.rule.code == "OOM902"] == [severity]
