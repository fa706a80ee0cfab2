"""The course of a review: fetch both sides, assess them, compose, and leave what is new."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct

from oomlint.review.assess import Assessment, assess
from oomlint.review.compose import compose
from oomlint.review.forge import ChangeRequest, Forge, ForgeError, Misplaced, Update
from oomlint.review.trees import CommitTree, committed, write_tree
from oomlint.review.update import update
from oomlint.session.request import CheckRequest


class Delivery(Struct, frozen=True):
    """What the command line asks for; ``checkout`` is a folder that may have the commits."""

    given: CheckRequest
    checkout: Path
    most_comments: int
    unsafe: bool


@contextmanager
def assessed(forge: Forge, change: ChangeRequest, wanted: Delivery) -> Iterator[Assessment]:
    """What the change does. The files that it speaks of lie in a folder until the end."""
    renamed = {f.old_path: f.path for f in change.files if f.status == "renamed"}
    # What macOS calls /var is /private/var; paths are compared by their names.
    with TemporaryDirectory(prefix="oomlint-") as name:
        folder = Path(name).resolve()
        before = _tree(forge, change.before, wanted.checkout, folder / "before")
        after = _tree(forge, change.head, wanted.checkout, folder / "after")
        yield assess(wanted.given, before, after, renamed, unsafe=wanted.unsafe)


def _tree(forge: Forge, commit: str, checkout: Path, folder: Path) -> CommitTree:
    files = committed(commit, checkout)
    return write_tree(forge.archive(commit) if files is None else files, folder)


def update_for(
    forge: Forge,
    change: ChangeRequest,
    assessment: Assessment,
    wanted: Delivery,
    *,
    use_diff: bool = True,
) -> Update:
    """What is to be posted, changed and resolved."""
    review = compose(
        assessment,
        change,
        forge.style,
        most_comments=wanted.most_comments,
        use_diff=use_diff,
    )
    return update(review, forge.earlier(), change.head)


def publish(forge: Forge, change: ChangeRequest, assessment: Assessment, wanted: Delivery) -> str:
    """Leave the review, and say in a line what was done.

    Where the diff has moved in the meantime it is read again; what then still has no place
    there goes into the summary.

    Raises:
        ReadOnly: the token may not comment.
        ForgeError: the request has moved on to another commit, or the forge failed.
    """
    found = update_for(forge, change, assessment, wanted)
    if found.is_empty:
        return "nothing new to say"
    try:
        return _done(found, forge.publish(found))
    except Misplaced:
        change = _reread(forge, change)
    try:
        found = update_for(forge, change, assessment, wanted)
        return _done(found, forge.publish(found))
    except Misplaced:
        found = update_for(forge, change, assessment, wanted, use_diff=False)
        return _done(found, forge.publish(found))


def _reread(forge: Forge, change: ChangeRequest) -> ChangeRequest:
    now = forge.change()
    if now.head != change.head:
        raise ForgeError(
            "the review",
            f"was not posted: the request has moved on from {change.head[:10]} to {now.head[:10]},"
            " whose own review will follow",
        )
    return now


def _done(found: Update, url: str) -> str:
    new = len(found.comments)
    counts = (
        (new, f"new comment{'' if new == 1 else 's'}"),
        (len(found.edited), "changed"),
        (len(found.done), "resolved"),
    )
    parts = [f"{number} {what}" for number, what in counts if number]
    return f"{url} ({', '.join(parts) or 'summary'})"
