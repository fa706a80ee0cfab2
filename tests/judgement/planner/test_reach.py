"""The planner finds what worked for others: in threads about failures, and in published tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.planning import __main__ as threads, siblings, speeds

pytestmark = pytest.mark.slow

TRUTH = Path(__file__).parents[3] / "../shared/truth"


def test_what_worked_is_among_the_first_ways(capsys: pytest.CaptureFixture[str]) -> None:
    assert threads.main([]) == 0, capsys.readouterr().out
    assert "MISSED" not in capsys.readouterr().out


def test_no_way_is_more_severe_than_a_sibling_that_fits(capsys: pytest.CaptureFixture[str]) -> None:
    if not (TRUTH / "fits.jsonl").is_file():
        pytest.skip("the published tables are not here")
    assert siblings.main(["--truth", str(TRUTH)]) == 0, capsys.readouterr().out
    assert "as mild" in capsys.readouterr().out


def test_ratios_of_published_step_times_are_met() -> None:
    if not (TRUTH / "published.jsonl").is_file():
        pytest.skip("the published tables are not here")
    errors = speeds.errors_of(speeds.groups(TRUTH))
    assert len(errors) >= 40
    assert speeds.median_factor(errors) < 1.25
