"""Real failures from issue threads: the rule that names the confirmed cause speaks.

Each folder of ``real_failures`` holds the files of one run, rebuilt from its thread, and a
``case.toml``: where it was reported, on which hardware, what must be found, and what the
thread left open (``assumed``). ``not_found`` are causes that a config cannot show, each with
the reason.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from oomlint.files.workspace import Workspace
from oomlint.linting.engine import Report, all_rules, lint
from oomlint.linting.rule import Example
from oomlint.linting.testing import example_options

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).with_name("real_failures")
CASES = sorted(path.parent for path in FOLDER.glob("*/case.toml"))


@dataclass(frozen=True)
class Case:
    """One ``case.toml``. ``values`` are plan fields, as of ``--set``."""

    source: str
    must_fire: list[str]
    hardware: str | None = None
    host_memory: str | None = None
    values: dict[str, Any] = field(default_factory=dict)
    assumed: str = ""
    fixed_by: str = ""
    not_found: dict[str, str] = field(default_factory=dict)


def _case(folder: Path) -> Case:
    return Case(**tomllib.loads((folder / "case.toml").read_text("utf-8")))


def _report(folder: Path, case: Case) -> Report:
    names = sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "case.toml"
    )
    told = Example({}, hardware=case.hardware, host_memory=case.host_memory, values=case.values)
    return lint(Workspace(folder), names, example_options(told))


@pytest.mark.parametrize("folder", CASES, ids=lambda folder: folder.name)
def test_the_cause_of_a_real_failure_is_named(folder: Path) -> None:
    case = _case(folder)
    report = _report(folder, case)
    assert not report.errors
    found = {diagnosis.rule.name for diagnosis in report.diagnoses}
    assert not set(case.must_fire) - found
    surprising = found & case.not_found.keys()
    assert not surprising, "found after all: move it to must_fire"


def test_nearly_every_confirmed_cause_is_found() -> None:
    cases = [_case(folder) for folder in CASES]
    found = sum(len(case.must_fire) for case in cases)
    missed = sum(len(case.not_found) for case in cases)
    assert found >= 0.9 * (found + missed)


def test_cases_name_rules_that_exist() -> None:
    names = {rule.name for rule in all_rules()}
    for folder in CASES:
        case = _case(folder)
        assert {*case.must_fire, *case.not_found} <= names
