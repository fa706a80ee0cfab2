"""One thing that is wrong in many files is told once, with the files that have it."""

from __future__ import annotations

import json

import pytest
from tests.linked import report_of

from oomlint.linting.engine import Report
from oomlint.report import render, text
from oomlint.report.paint import Paint

_HEAD = "torchrun --nproc_per_node 2 recipes/finetuning/finetuning.py --enable_fsdp \\\r\n"
_FITS = (
    f"{_HEAD}    --model_name meta-llama/Meta-Llama-3-8B \\\r\n    --low_cpu_fsdp --use_peft\r\n"
)
_DOES_NOT = f"{_HEAD}    --model_name meta-llama/Meta-Llama-3-70B \\\r\n    --low_cpu_fsdp\r\n"


def _report(count: int, script: str) -> Report:
    return report_of({f"run{n}.sh": script for n in range(count)}, hardware="2xA100-80GB")


def _said(report: Report, *, verbose: bool = False) -> str:
    return " ".join(text.render(report, verbose=verbose).split())


@pytest.mark.parametrize("script", [_FITS, _DOES_NOT])
def test_the_first_of_many_is_told_in_full_and_the_rest_counted(script: str) -> None:
    report = _report(9, script)
    said = _said(report)
    assert said.count("error OOM703") == 1
    assert (
        "the same in 8 more files: run1.sh, run2.sh, run3.sh and 5 more (--verbose names them)"
        in said
    )
    assert "9 runs: 9 end before their first step; 9 errors" in said
    every = _said(report, verbose=True)
    assert ", ".join(f"run{n}.sh" for n in range(1, 9)) in every
    assert "--verbose names" not in every


def test_runs_that_end_alike_and_do_not_fit_then_share_a_block() -> None:
    said = _said(_report(9, _DOES_NOT))
    assert said.startswith("run0.sh and 8 more runs 2xA100-80GB ✗ end before their first step")
    assert "once that is mended they do not fit" in said


@pytest.mark.parametrize("script", [_FITS, _DOES_NOT])
def test_a_few_are_told_one_by_one(script: str) -> None:
    said = _said(_report(3, script))
    assert said.count("error OOM703") == 3
    assert "the same in" not in said


def test_two_things_in_many_files_stay_two() -> None:
    files = {f"run{n}.sh": _FITS for n in range(5)}
    files |= {f"cut{n}.sh": _FITS.replace("\r", "").replace(" \\\n", "\n", 1) for n in range(5)}
    said = _said(report_of(files, hardware="2xA100-80GB"))
    assert said.count("error OOM703") == 2
    assert "5 end before their first step" in said
    assert "10 errors" in said


def test_programs_are_told_all() -> None:
    report = _report(9, _FITS)
    found = json.loads(render(report, "json", Paint()))["findings"]
    assert sum(each["code"] == "OOM703" for each in found) == 9
    results = json.loads(render(report, "sarif", Paint()))["runs"][0]["results"]
    assert sum(each["ruleId"] == "OOM703" for each in results) == 9
    assert render(report, "concise", Paint()).count("error OOM703") == 9
