"""Readings as they were predicted before anybody had looked at their publishers, and the bounds that come of them."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
from benchmarks.accuracy.__main__ import FRESH, HERE, is_held_back, rows
from benchmarks.accuracy.first_sight import (
    CHOOSING,
    LATER,
    Outcome,
    Reading,
    Shares,
    as_said,
    chosen,
    counted,
    left_out,
    readings,
    widened,
)
from benchmarks.accuracy.first_sight.__main__ import (
    IN_FORCE,
    errors_of,
    line,
    of_causes,
    of_later,
    said_causes,
)
from msgspec.structs import replace

PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"
EVERY = readings(are_all=True, of=(*CHOOSING, *LATER))
READ = readings()


@pytest.fixture(scope="module")
def each_by_the_others() -> list[Outcome]:
    return list(left_out(READ))


def test_every_row_of_every_fresh_set_was_predicted_by_one_state() -> None:
    for name in FRESH:
        found = [reading for reading in EVERY if reading.of_set == name]
        assert {reading.id: reading.publisher for reading in found} == {
            row["id"]: row["family"] for row in rows(HERE, name)
        }
        assert len({reading.at for reading in found}) == 1


@pytest.mark.parametrize(
    ("name", "is_back", "error", "inside"),
    [
        ("fresh", True, 24.8, 52), ("fresh", False, 13.2, 46), ("fresh-2", True, 23.7, 43),
        ("fresh-2", False, 20.5, 28), ("fresh-3", True, 46.8, 37), ("fresh-3", False, 13.6, 46),
        ("fresh-4", True, 9.0, 68), ("fresh-4", False, 16.2, 75), ("fresh-5", True, 27.4, 43),
        ("fresh-5", False, 35.2, 33), ("fresh-6", True, 30.0, 30), ("fresh-6", False, 24.5, 43),
        ("fresh-7", True, 18.9, 56), ("fresh-7", False, 16.8, 66),
    ],
)  # fmt: skip
def test_they_are_what_the_page_said_at_first_sight(
    name: str, is_back: bool, error: float, inside: int
) -> None:
    """Means over publishers of the median error, and the share of the rows that were inside; in per cent."""
    half = [r for r in EVERY if r.of_set == name and is_held_back(r.publisher) == is_back]
    publishers: dict[str, list[float]] = {}
    for each in half:
        publishers.setdefault(each.publisher, []).append(abs(each.predicted / each.read - 1))
    mean = statistics.mean(map(statistics.median, publishers.values()))
    assert 100 * mean == pytest.approx(error, abs=0.06)
    found = counted([as_said(each) for each in half])
    assert 100 * found.inside_of_rows == pytest.approx(inside, abs=0.5)


def test_the_shares_in_force_are_those_that_all_sets_choose() -> None:
    best = chosen(READ)
    assert best.less == pytest.approx(IN_FORCE.less, abs=0.05)
    assert best.more == pytest.approx(IN_FORCE.more, abs=0.05)


def test_they_hold_on_a_set_that_did_not_choose_them(each_by_the_others: list[Outcome]) -> None:
    assert len(each_by_the_others) == len(READ)
    assert counted(each_by_the_others).inside >= 0.845
    assert counted([as_said(reading) for reading in READ]).inside < 0.6


def test_the_page_says_what_is_printed(each_by_the_others: list[Outcome]) -> None:
    page = PAGE.read_text("utf-8")
    assert line("as they were said", [as_said(reading) for reading in READ]) in page
    now = [widened(reading, IN_FORCE) for reading in READ]
    assert line("with the shares in force", now) in page
    assert line("each set by what the others choose", each_by_the_others) in page
    assert "\n".join(of_later()) in page
    assert "\n".join(of_causes()) in page


def test_every_publisher_that_is_off_has_one_cause() -> None:
    """The half of the newest set that is held back was not opened."""
    named = [publisher for cause in said_causes() for publisher in cause["publishers"]]
    closed = {r.publisher for r in EVERY if r.of_set == "fresh-7" and is_held_back(r.publisher)}
    off = {publisher for publisher, error in errors_of().items() if error > 0.0995}
    assert sorted(named) == sorted(off - closed)


def _reading(read: float, publisher: str = "one") -> Reading:
    """10 GiB predicted, of which 4 come and go, between 9 and 11."""
    sizes = {
        "predicted": 10.0,
        "low": 9.0,
        "high": 11.0,
        "activations": 2.0,
        "logits": 1.0,
        "moving": 1.0,
    }
    return replace(READ[0], read=read, publisher=publisher, of_set="a", **sizes)


def test_what_may_be_read_otherwise_is_added_as_squares() -> None:
    found = widened(_reading(7.0), Shares(0.75, 1.0))
    assert found.low == pytest.approx(10 - (1 + 9) ** 0.5)
    assert found.high == pytest.approx(10 + (1 + 16) ** 0.5)
    assert not found.is_below
    assert found.width == pytest.approx((10**0.5 + 17**0.5) / 10)
    assert widened(_reading(1.0), Shares(4.0, 0.0)).low == 0.0


def test_either_end_is_chosen_by_what_lies_beyond_it() -> None:
    """Of readings of one publisher that are all 12 or less the upper bound goes to 12, the lower stays where it is."""
    group = [_reading(12.0) for _ in range(20)]
    best = chosen(group)
    assert best.less == 0.0
    assert best.more == pytest.approx(3**0.5 / 4, abs=0.01)


def test_a_publisher_counts_as_one() -> None:
    outcomes = [as_said(_reading(10.0)) for _ in range(9)] + [as_said(_reading(20.0, "other"))]
    found = counted(outcomes)
    assert (found.inside_of_rows, found.inside, found.above) == (0.9, 0.5, 0.5)
