"""Readings of publishers that nobody had brought the memory model to (``benchmarks/accuracy/fresh*.jsonl``)."""

from __future__ import annotations

import re
import statistics
from pathlib import Path
from typing import Any

import pytest
from benchmarks.accuracy.__main__ import FRESH, HERE, SHARED, by_publisher, is_held_back, rows
from benchmarks.accuracy.counters import kind_of
from benchmarks.accuracy.facts import known_of
from benchmarks.accuracy.published import plan_of

_SETS: dict[str, list[dict[str, Any]]] = {name: list(rows(HERE, name)) for name in FRESH}
_ROWS = [row for found in _SETS.values() for row in found]
_PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"
_GIB = {"GiB": 2**30, "MiB": 2**20, "bytes": 1, "GB (10**9)": 10**9, "1000 MiB": 1000 * 2**20}
"""Units that say how many bytes they are; a GB or a G may be either."""
_COMMA = "GiB, with a decimal comma"
_CUT_OFF = "whole GiB, cut off"
"""The unit of a counter that is printed without what is behind its point: the middle is taken."""


@pytest.mark.parametrize("name", FRESH)
def test_there_are_enough_readings_of_enough_publishers(name: str) -> None:
    assert len(_SETS[name]) >= 40
    assert len({row["family"] for row in _SETS[name]}) >= 10


def test_no_publisher_is_in_two_sets() -> None:
    assert len({row["id"] for row in _ROWS}) == len(_ROWS)
    names = [{row["family"] for row in found} for found in _SETS.values()]
    assert sum(map(len, names)) == len(set().union(*names))


@pytest.mark.parametrize("name", FRESH)
def test_both_halves_have_publishers(name: str) -> None:
    assert {is_held_back(row["family"]) for row in _SETS[name]} == {True, False}


@pytest.mark.parametrize("row", _ROWS, ids=lambda row: row["id"])
def test_a_row_says_where_when_and_what_was_read(row: dict[str, Any]) -> None:
    # Some were read in an index of public files that tells no address: what was read is described.
    assert re.match(r"https://|arXiv |(?:the head of )?a? ?public [\w -]{20}", row["source"])
    assert re.fullmatch(r"20\d\d(-\d\d){0,2}", row["date"])
    assert row["quality"] in "AB"
    assert (row["micro_batch"], row["seq_len"], row["gpus"]) >= (1, 1, 1)
    assert known_of(row).language
    assert kind_of(row) in {"allocated", "reserved", "device"}
    printed = re.search(r"\d[\d,]*(?:\.\d+)?", row["peak_printed"].replace("{", ""))
    assert printed is not None
    assert printed[0] in row["quote"]
    size = _GIB.get(row["unit"], 2**30)
    lost = 0.5 if row["unit"] == _CUT_OFF else 0.0
    number = printed[0].replace(",", "." if row["unit"] == _COMMA else "")
    assert row["peak_gib_per_gpu"] == pytest.approx(float(number) * size / 2**30 + lost, abs=6e-4)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the measured sets are not here")
def test_no_publisher_was_known_before() -> None:
    known = {row["family"] for row in rows(SHARED, "published")}
    assert not known & {row["family"] for row in _ROWS}


@pytest.mark.slow
def test_every_row_goes_the_way_of_a_users_file() -> None:
    for row in _ROWS:
        plan = plan_of(row)
        assert plan is not None, row["id"]
        assert plan.batch.micro == row["micro_batch"], row["id"]
        assert plan.seq.max_len == row.get("seq_read", row["seq_len"]), row["id"]
        assert plan.parallel.world == row["gpus"], row["id"]


@pytest.mark.slow
@pytest.mark.parametrize(("words", "is_back"), [("held back", True), ("not held back", False)])
@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("fresh", "fresh"),
        ("fresh-2", "second fresh set"),
        ("fresh-3", "third fresh set"),
        ("fresh-4", "fourth fresh set"),
        ("fresh-5", "fifth fresh set"),
        ("fresh-6", "sixth fresh set"),
        ("fresh-7", "seventh fresh set"),
    ],
)
def test_the_page_says_how_near_the_estimates_come(
    name: str, title: str, words: str, is_back: bool
) -> None:
    found = by_publisher(name, is_back=is_back)
    mean = statistics.mean(statistics.median(e for e, _, _ in each) for each in found.values())
    said = re.search(
        rf"^\| {title}, {words} \|.*mean over publishers of the median error ([\d.]+)%",
        _PAGE.read_text("utf-8"),
        re.MULTILINE,
    )
    assert said is not None
    assert round(100 * mean, 1) <= float(said[1])
