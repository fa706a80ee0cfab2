"""The page on the frameworks as judges shows the figures that the last runs left."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

if not (Path(__file__).parents[2] / "benchmarks" / "oracles").is_dir():
    pytest.skip("benchmarks/oracles is not part of this source tree", allow_module_level=True)


@pytest.fixture(scope="module")
def page() -> ModuleType:
    return importlib.import_module("benchmarks.oracles.page")


def test_the_page_is_written_from_the_figures(page: ModuleType) -> None:
    text = page.PAGE.read_text("utf-8")
    assert page.written(text) == text, "run `python -m benchmarks.oracles.page`"
    assert page.written(text.replace("Axolotl | ", "Axolotl | 1")) == text


def test_every_framework_has_been_asked_and_agrees(page: ModuleType) -> None:
    frameworks = importlib.import_module("benchmarks.oracles.frameworks").FRAMEWORKS
    figures = page.kept()
    assert set(figures) == {framework.name for framework in frameworks}
    assert sum(each["disagreements"] + each["refused_after"] for each in figures.values()) == 0


def test_no_file_of_other_people_is_refused_only_after_a_fix(page: ModuleType) -> None:
    shown = [each["projects"]["taken"] for each in page.kept().values() if "projects" in each]
    assert shown
    assert sum(tally["only_after"] for taken in shown for tally in taken.values()) == 0


def test_the_page_on_fixes_says_how_many_files_the_judges_were_shown(page: ModuleType) -> None:
    taken = [each["taken"] for each in page.kept().values()]
    safe, all_of_them = (sum(each[kind]["files"] for each in taken) for kind in ("safe", "unsafe"))
    said = f"{safe} files by safe fixes, {all_of_them} by all of them"
    assert said in (page.PAGE.parent / "fixes.md").read_text("utf-8")


def test_a_fix_that_no_loader_sees_has_its_reason(page: ModuleType) -> None:
    reasons = importlib.import_module("benchmarks.oracles.frameworks").NO_JUDGE
    seen = {rule for each in page.kept().values() for rule in each["rules"]}
    every = importlib.import_module("benchmarks.oracles.cases").fixable_rules()
    assert not every - seen - set(reasons), "ask the judges, or say why in NO_JUDGE"
    assert not set(reasons) - (every - seen), (
        "NO_JUDGE: a judge has seen it, or there is no such fix"
    )
