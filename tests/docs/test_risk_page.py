"""The page on the memory model says the law of risk and the weights that are in force."""

from __future__ import annotations

import re

import pytest

from oomlint.judgement import doubts, law
from oomlint.judgement.severity import LOST, TIGHT

from .conftest import ROOT

PAGE = (ROOT / "docs" / "memory-model.md").read_text("utf-8")


def test_the_formula_has_the_constants_of_the_code() -> None:
    assert f"width = hypot({law.LEAST_WIDTH}, ln(high / low) / 2)" in PAGE
    formula = f"1 / (1 + exp(-({law.LEVEL} + {law.SLOPE} * ln(need / limit) / width)))"
    assert formula in PAGE


def test_the_table_of_risks_is_worked_out() -> None:
    rows = re.findall(r"^\| (\d\.\d\d) \| (\d+) % \| (\d+) % \|$", PAGE, re.MULTILINE)
    assert len(rows) == 5
    for share, *shown in rows:
        need = float(share)
        said = [law.probability(need, (1 - by) * need, (1 + by) * need, 1.0) for by in (0.1, 0.3)]
        assert [f"{risk:.0%}" for risk in said] == [f"{risk}%" for risk in shown]


def test_verdicts_are_the_ranges_in_force() -> None:
    assert f"| below {TIGHT} | `fits` |" in PAGE
    assert f"| {TIGHT} to {LOST} | `tight` |" in PAGE


@pytest.mark.parametrize(
    ("words", "weight"),
    [
        ("sharded over the GPUs", doubts._SHARDED),
        ("without a sample of more", doubts._SHORT),
        ("instead, where a micro batch joins", doubts._HALF_FULL),
        ("with other releases", doubts._OTHER_RELEASE),
        ("with another value", doubts._OTHER_VALUE),
    ],
)
def test_doubts_have_the_weights_in_force(words: str, weight: float) -> None:
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| {words}")]
    assert row.endswith(f" | {weight} |")


def test_doubts_add_up_to_the_most_that_is_said() -> None:
    assert f"They add up to {doubts._MOST} at most" in PAGE
