"""A review as annotations of a job, for a token that may not comment: each cause once, where its comment would stand."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from oomlint.report.github import MOST, command
from oomlint.report.markdown import SIGNS
from oomlint.review.forge import Comment, Review

_LEVELS = {SIGNS["error"]: "error", SIGNS["warning"]: "warning", SIGNS["info"]: "notice"}
# What of Markdown the texts of comments have, which annotations show as it is written.
_MARKUP = re.compile(r"\*\*|`|\u200b|\\(?=[^\w\s]|_)")


def render(review: Review) -> str:
    """Workflow commands, at most as many of each level as GitHub keeps; what no line of the diff has is in the
    summary alone."""
    return "".join(line + "\n" for line in _commands(review))


def _commands(review: Review) -> Iterator[str]:
    counts: Counter[str] = Counter()
    for comment in review.comments:
        level, title, text = _said(comment)
        counts[level] += 1
        if level and counts[level] <= MOST:
            at = {"file": comment.path, "line": comment.first, "endLine": comment.last}
            yield command(level, {**at, "title": title}, text)


def _said(comment: Comment) -> tuple[str, str, str]:
    """Level, title and text of a comment; no level of one that only has the rest of another's suggestion."""
    shown, _, _folded = comment.body.partition("<details>")
    head, *others = shown.strip().split("\n\n")
    sign, _, title = head.partition(" ")
    told = (each for each in others if not each.startswith(("```", "<", "It goes with")))
    return _LEVELS.get(sign, ""), _plain(title), _plain(" ".join(told))


def _plain(text: str) -> str:
    return _MARKUP.sub("", text)
