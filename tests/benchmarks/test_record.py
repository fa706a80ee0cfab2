"""What became of findings at first sight, by rule and ground."""

from collections import Counter
from pathlib import Path

from benchmarks.strangers.__main__ import FINDINGS
from benchmarks.strangers.record import (
    Read,
    cells,
    counted,
    draw_of,
    findings,
    left_out,
    left_out_table,
    precision,
    table,
)

PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"


def _read(draw: int, verdict: str, *, rule: str = "OOM904", path: str = "a.yaml") -> Read:
    return Read(draw, f"o/{draw}{verdict}{path}", path, 1, rule, "error", verdict, "")


def test_every_row_of_the_draws_is_counted_once() -> None:
    lines = [
        line
        for file in FINDINGS
        if 14 <= draw_of(file) <= 35
        for line in file.read_text("utf-8").splitlines()
    ]
    counts = counted(findings(), cells("place"))
    assert sum(sum(each.values()) for each in counts.values()) == len(lines) > 1_000


def test_files_that_are_no_draw_have_none() -> None:
    assert draw_of(Path("findings-35a.jsonl")) == 35
    assert draw_of(Path("findings-loops.jsonl")) == draw_of(Path("findings.jsonl")) == 0


def test_a_place_is_the_kind_of_file() -> None:
    paths = ("a.py", "b.yml", "c.json", "d.slurm", "Makefile", "README.md", "e.ipynb", "f.toml")
    places = [_read(20, "true", path=path).place for path in paths]
    assert places == ["Python", "YAML", "JSON", "shell", "shell", "guide", "notebook", "TOML"]


def test_a_cell_that_was_false_in_the_other_draws_is_a_remark_in_this_one() -> None:
    bad = [_read(draw, "false") for draw in (20, 21, 22, 23)]
    good = [_read(draw, "true", rule="OOM706") for draw in (20, 21, 22, 23)]
    kept = left_out([*bad, *good], cells(""), 0.5)
    assert kept == good
    assert precision(Counter(each.verdict for each in kept)) == 1


def test_what_one_repository_has_many_times_over_counts_once() -> None:
    many = [_read(20, "false")] * 9
    assert len(left_out([*many, _read(21, "true")], cells(""), 0.5)) == 10


def test_the_table_tells_of_repositories() -> None:
    head, _, row = table([_read(20, "true"), _read(21, "moot")], cells(""), "")
    assert head.count("|") == row.count("|")
    assert row == "| OOM904 | error | 1, 1, 0, 0 | 100% | 2 |"


def test_the_page_says_what_is_printed() -> None:
    section = PAGE.read_text("utf-8").partition("### What severity rests on\n")[2]
    shown = {line for line in section.partition("\n#")[0].splitlines() if line.startswith("|")}
    read = list(findings())
    refused = [each for each in read if each.rule in ("OOM904", "OOM801")]
    assert shown == {*left_out_table(read), *table(refused, cells("reader"), "reader")}
