"""What the docs say of strangers' runs on which oomlint is silent is what was read."""

from pathlib import Path

import pytest
from benchmarks.strangers.silence import NO_RUN, OUTCOMES, SETS, WORDS, read, table

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("file", SETS.values(), ids=list(SETS))
def test_the_docs_count_what_was_read(file: Path) -> None:
    rows = read(file)
    assert len({row.repo for row in rows}) == len(rows) >= 20
    assert "\n".join(table(rows)) in (ROOT / "docs" / "accuracy.md").read_text("utf-8")


@pytest.mark.parametrize("file", SETS.values(), ids=list(SETS))
def test_a_row_says_why_where_nothing_was_said(file: Path) -> None:
    for row in read(file):
        assert row.would in OUTCOMES
        assert row.said in WORDS
        assert bool(row.named) == (row.said != NO_RUN)
        assert row.silent or row.said not in ("unknown", NO_RUN)
