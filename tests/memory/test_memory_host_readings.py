"""The RAM of a node against what people read, with where and when they did."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.accuracy.host import kept_row, kept_rows

ROWS = list(kept_rows())


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_a_reading_is_as_near_as_it_was(row: dict[str, Any]) -> None:
    """Within a factor of 1.25; ``apart`` says how far a row is for which no reason was found."""
    assert kept_row(row).factor <= row.get("apart", 1.25)
    assert row["source"]
    assert len(row["date"].split("-")) == 3
