"""The page on the memory model says the law of risk and the weights that are in force."""

from __future__ import annotations

import re
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from oomlint.datasets import texts
from oomlint.judgement import Risk, doubts, lengths, peak
from oomlint.judgement.risk_model import LAW, risk_in
from oomlint.judgement.severity import EVEN, LOST, SURE, TIGHT

from .conftest import ROOT

PAGE = (ROOT / "docs" / "memory-model.md").read_text("utf-8")


def test_the_formula_has_the_constants_of_the_code() -> None:
    assert f"width  = hypot({LAW.least_width}, ln(high / low) / 2)\n" in PAGE
    assert f"1 / (1 + exp(-({LAW.level} + {LAW.slope} * ln(need / limit) / width)))\n" in PAGE
    floor, ceiling = f"{LAW.floor:.2f}", f"{LAW.ceiling:.2f}"
    assert f"risk   = {floor} + (1 - {floor} - {ceiling}) * passes    of a GPU\n" in PAGE
    assert f"risk   = (1 - {ceiling}) * passes                  of a host\n" in PAGE
    assert f"a floor of {LAW.floor:.0%}:".replace("%", " %") in PAGE
    assert f"leaves {LAW.ceiling:.0%} to".replace("%", " %") in PAGE


def test_the_table_of_risks_is_worked_out() -> None:
    rows = re.findall(r"^\| (\d\.\d\d)((?: \| \d+ %){4}) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 5
    for share, shown in rows:
        need = round(float(share) * 1000)
        said = [risk(need, by, resource) for resource in ("gpu", "host") for by in (0.1, 0.3)]
        assert [f"{each:.0%}" for each in said] == [f"{n}%" for n in re.findall(r"\d+", shown)]


def risk(need: int, by: float, resource: Literal["gpu", "host"]) -> float | None:
    """Of a need with bounds so far below and above, where there are 1000 bytes."""
    device = {"peak_bytes": need, "low_bytes": (1 - by) * need, "high_bytes": (1 + by) * need}
    device |= {"parts": None, "peak_phase": "forward"}
    needs = {resource: SimpleNamespace(**device)}
    estimate: Any = SimpleNamespace(of=needs.__getitem__)
    return risk_in(estimate, resource, 1000)


def test_the_risk_of_a_run_is_the_larger() -> None:
    assert Risk(gpu=0.3, host=0.4).any == 0.4
    assert Risk(gpu=0.3, host=None).any == 0.3
    assert "GPU and host each have their risk, and the run's is\nthe larger" in PAGE


def test_verdicts_are_the_ranges_in_force() -> None:
    assert f"| below {TIGHT} | `fits` |" in PAGE
    assert f"| {TIGHT} to {EVEN} | `tight` |" in PAGE
    assert f"| {EVEN} to {LOST} | `tight` |" in PAGE
    assert f"| {LOST} to {SURE} | `does_not_fit` | `✗` does not fit | warning" in PAGE
    assert f"| {SURE} and above | `does_not_fit` | `✗` does not fit | error" in PAGE


@pytest.mark.parametrize(
    ("words", "weight"),
    [
        ("sharded over the GPUs", doubts._SHARDED),
        ("of a rollout, without a prompt of more", lengths._SHORT),
        ("with other releases", doubts._OTHER_RELEASE),
        ("with another value", doubts._OTHER_VALUE),
    ],
)
def test_doubts_have_the_weights_in_force(words: str, weight: float) -> None:
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| {words}")]
    assert row.endswith(f" | {weight} |")


@pytest.mark.parametrize("samples", [2, 4, 8, 16, 64])
def test_the_page_has_how_full_batches_of_so_many_samples_are(samples: int) -> None:
    (row,) = [line for line in PAGE.splitlines() if line.strip().startswith(f"| {samples} |")]
    shares = [float(cell) for cell in row.strip(" |").split(" | ")[1:]]
    assert shares == [round(share, 2) for share in lengths.fullest(samples)]
    assert f"Of {len(texts())} whose lengths are known" in PAGE


def test_the_page_has_how_far_a_project_is_believed() -> None:
    assert f"believed with {Fraction(peak._BELIEVED).limit_denominator(100)} against" in PAGE


def test_the_page_has_how_large_evaluation_sets_are() -> None:
    start = ("| where evaluation keeps", "| or of ")
    rows = [line for line in PAGE.splitlines() if line.startswith(start)]
    weights = [float(row.rstrip(" |").rpartition(" ")[2]) for row in rows]
    assert weights == [weight for _, weight in doubts._EVALUATED]


def test_doubts_add_up_to_the_most_that_is_said() -> None:
    assert f"They add up to {doubts._MOST} at most" in PAGE
