"""What the docs say of findings on strangers' repositories is what was read."""

from pathlib import Path

from benchmarks.strangers.__main__ import FINDINGS, FIRST_READINGS, first_readings

ROOT = Path(__file__).parents[2]


def test_the_docs_count_what_was_read() -> None:
    assert "\n".join(first_readings()) in (ROOT / "docs" / "accuracy.md").read_text("utf-8")
    assert {file for _, file, _ in FIRST_READINGS} <= {file.name for file in FINDINGS}
