"""Tables of the pages that are written by hand say what the code does."""

from __future__ import annotations

import re
from typing import Any, Literal

import click
import pytest

from oomlint.cli.check import check
from oomlint.cli.review import review
from oomlint.plan.evidence import Level
from oomlint.report.why import LEVEL_WORDS
from oomlint.review.forge import Comment, Earlier, Review, Summary, Thread, Update
from oomlint.review.update import update

from .conftest import ROOT


def rows(page: str, heading: str) -> dict[str, str]:
    """The first table behind a heading: first cell → the rest."""
    text = (ROOT / "docs" / page).read_text("utf-8").partition(f"# {heading}\n")[2]
    table = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert table is not None, heading
    cells = (re.split(r"(?<!\\) ?\| ?", line)[1:-1] for line in table[0].splitlines()[2:])
    return {first: " | ".join(rest) for first, *rest in cells}


def test_the_levels_of_evidence_are_those_that_why_prints() -> None:
    worst_last = [LEVEL_WORDS[level] for level in sorted(Level) if level is not Level.MEASURED]
    assert list(rows("evidence.md", "How a value is known")) == worst_last


# -- oomlint review ----------------------------------------------------------------------


def options(command: Any) -> dict[str, click.Option]:
    return {
        name: option
        for option in command.params
        if isinstance(option, click.Option)
        for name in (*option.opts, *option.secondary_opts)
        if name.startswith("--")
    }


def test_the_options_of_a_review_are_those_of_the_command() -> None:
    known, shared = options(review), options(check)
    table = rows("review.md", "Options")
    named = {name for cell in table for name in re.findall(r"--[a-z-]+", cell)}
    assert named <= known.keys()
    own = {name for name, option in known.items() if option.opts[0] not in shared}
    assert own <= named
    (like_check,) = (cell for cell, says in table.items() if says == "as for `oomlint check`")
    assert set(re.findall(r"--[a-z-]+", like_check)) <= shared.keys()


def test_the_most_comments_are_those_that_the_page_says() -> None:
    most = options(review)["--max-comments"].default
    page = (ROOT / "docs" / "review.md").read_text("utf-8")
    assert f"There are at most {most} comments (`--max-comments`)" in page


def comment(digest: str) -> Comment:
    return Comment("a.yaml", "a.yaml", 3, 3, None, "says", ("key",), digest)


def thread(state: Literal["open", "resolved", "dismissed"]) -> Thread:
    return Thread("1", "2", ("key",), "before", "a.yaml", 3, 3, state)


def said(comments: tuple[Comment, ...], *threads: Thread) -> Update:
    earlier = Earlier(Summary("7", "earlier"), threads)
    return update(Review("now", comments), earlier, "head")


@pytest.mark.parametrize(
    ("row", "says", "holds"),
    [
        (
            "the summary",
            "is edited where it stands",
            lambda: (said(()).summary, said(()).earlier) == ("now", Summary("7", "earlier")),
        ),
        (
            "a finding that is still there",
            "is not said again; its comment is edited if its numbers change",
            lambda: (
                not said((comment("before"),), thread("open")).edited
                and not said((comment("now"),), thread("open")).comments
                and len(said((comment("now"),), thread("open")).edited) == 1
            ),
        ),
        (
            "a finding that is gone",
            "its thread is resolved;",
            lambda: said((), thread("open")).done == (thread("open"),),
        ),
        (
            "a thread that a person has resolved",
            "is not opened again",
            lambda: not said((comment("now"),), thread("dismissed")).comments,
        ),
    ],
)
def test_what_is_said_from_push_to_push(row: str, says: str, holds: Any) -> None:
    table = rows("review.md", "From push to push")
    assert len(table) == 4
    assert table[row].startswith(says)
    assert holds()
