"""What the docs say of edits that were read is what was read."""

from pathlib import Path

from benchmarks.strangers.diffs import readings

ROOT = Path(__file__).parents[2]


def test_the_docs_count_the_edits_that_were_read() -> None:
    assert "\n".join(readings()) in (ROOT / "docs" / "fixes.md").read_text("utf-8")
