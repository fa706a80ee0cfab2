"""Pages and pictures that code writes are up to date, and the README keeps to what it is to be."""

from __future__ import annotations

import re
import runpy

import pytest

from oomlint.cli.reference import page

from .conftest import ROOT

README = (ROOT / "README.md").read_text("utf-8")


def test_the_page_of_commands_is_the_one_that_the_code_makes() -> None:
    written = (ROOT / "docs/cli.md").read_text("utf-8")
    assert written == page(), "run `python -m oomlint.cli.reference docs/cli.md`"


def test_the_readme_names_the_tests_that_run_before_a_change_lands() -> None:
    (tests,) = re.findall(r"(?m)^pytest.*$", (ROOT / ".ci/run").read_text("utf-8"))
    assert f" && {tests}` runs the tests" in README


def test_the_picture_of_the_report_is_what_is_printed() -> None:
    made = runpy.run_path(str(ROOT / "docs/images/report.py"))
    assert made["PICTURE"].read_text("utf-8") == made["picture"](made["printed"]()), (
        "run `python docs/images/report.py`"
    )


def test_a_picture_has_the_colours_of_the_terminal() -> None:
    made = runpy.run_path(str(ROOT / "docs/images/report.py"))
    svg = made["picture"]("\x1b[1;31merror\x1b[0m a < b")
    assert '<tspan textLength="42.0" font-weight="bold" fill="#ff7b72">error</tspan>' in svg
    assert "a &lt; b" in svg


def test_the_readme_says_what_it_is_in_600_words() -> None:
    assert len(README.partition("\n## More\n")[0].split()) <= 600


@pytest.mark.parametrize("name", ["README.md", "docs/comparison.md"])
def test_figures_of_others_are_those_of_the_page_of_accuracy(name: str) -> None:
    accuracy = (ROOT / "docs/accuracy.md").read_text("utf-8")
    table = accuracy.partition("## Beside other estimators\n")[2].partition("\n## ")[0]
    measured = set(re.findall(r"\| (\d+) \| ([\d.]+%) \| ([\d.]+%) \|", table))
    shown = re.findall(r"\| (\d+) \| ([\d.]+%) \| ([\d.]+%) \|", (ROOT / name).read_text("utf-8"))
    assert len(shown) == 4
    assert set(shown) == measured
