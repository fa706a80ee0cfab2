"""What a review needs of a forge, be it GitHub or GitLab: a change to read, a review to leave."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from oomlint.errors import FileError

FileStatus = Literal["added", "modified", "removed", "renamed"]


class ForgeError(FileError):
    """The forge refused, failed or could not be reached; ``path`` is its host."""


class Misplaced(ForgeError):
    """A comment of the review stands where the forge shows no diff; nothing was posted."""


class ReadOnly(ForgeError):
    """The token may read the change but not comment on it."""


class ChangedFile(Struct, frozen=True):
    """A file of the change. ``patch`` is its unified diff, ``None`` where the forge shows none."""

    path: str
    old_path: str
    status: FileStatus
    patch: str | None


class ChangeRequest(Struct, frozen=True):
    """A pull or merge request. ``before`` is the commit that it starts from (the merge base),
    ``head`` its newest."""

    before: str
    head: str
    is_fork: bool
    files: tuple[ChangedFile, ...]
    is_complete: bool = True
    """Whether ``files`` are all of them: forges list so many and no more."""


class Style(Struct, frozen=True):
    """How comments are written on a forge.

    ``suggestion`` gives the word behind a suggestion's fence from how many lines above the
    comment's own it replaces.
    """

    suggestion: Callable[[int], str]
    most_suggested_lines: int | None
    most_characters: int
    """Of a comment or of the summary."""
    feeds_within: bool = False
    """Whether the lines within a suggestion end in line feeds, whatever those of the file do."""


class Comment(Struct, frozen=True):
    """A comment on the lines from ``first`` to ``last`` of the new file (1-based, inclusive).

    ``keys`` tell from run to run which findings it is about, ``digest`` whether it still says
    the same. ``old_last`` is the line's number in the old file, ``None`` if it was added.
    """

    path: str
    old_path: str
    first: int
    last: int
    old_last: int | None
    body: str
    keys: tuple[str, ...]
    digest: str


class Review(Struct, frozen=True):
    """What there is to say: a summary, and comments on lines."""

    summary: str
    comments: tuple[Comment, ...]
    is_silent: bool = False
    """Whether nobody would miss it: no finding, and no prediction has changed."""


class Thread(Struct, frozen=True):
    """A comment of ours from an earlier review.

    ``id`` is the thread's, ``comment_id`` the comment's own. Lines are where the forge shows it
    now. ``dismissed``: a person has resolved it.
    """

    id: str
    comment_id: str
    keys: tuple[str, ...]
    digest: str
    path: str
    first: int | None
    last: int | None
    state: Literal["open", "resolved", "dismissed"]
    is_outdated: bool = False


class Summary(Struct, frozen=True):
    """The summary that an earlier review of ours left."""

    id: str
    body: str
    url: str = ""


class Earlier(Struct, frozen=True):
    """What is left of earlier reviews."""

    summary: Summary | None = None
    threads: tuple[Thread, ...] = ()


class Update(Struct, frozen=True):
    """From what an earlier review left to what is to be said now."""

    head: str
    summary: str | None
    """Its new text, ``None`` where it stays as it is."""
    earlier: Summary | None
    comments: tuple[Comment, ...] = ()
    edited: tuple[tuple[Thread, Comment], ...] = ()
    done: tuple[Thread, ...] = ()
    """Threads whose findings are gone."""

    @property
    def is_empty(self) -> bool:
        return not (self.summary is not None or self.comments or self.edited or self.done)


class Request(Struct, frozen=True):
    """A request that changes something: what ``--dry-run`` prints instead."""

    method: str
    path: str
    body: Any = None


class Forge(Protocol):
    """A pull or merge request on some forge."""

    @property
    def style(self) -> Style: ...

    def change(self) -> ChangeRequest:
        """The request as it stands now."""

    def archive(self, commit: str) -> Iterator[tuple[str, bytes]]:
        """Path and bytes of the files that a commit holds."""

    def earlier(self) -> Earlier:
        """What earlier reviews of ours have left."""

    def requests(self, update: Update) -> Sequence[Request]:
        """What would be sent."""

    def publish(self, update: Update) -> str:
        """Carry out an update and return where it is to be read.

        Raises:
            Misplaced: a comment stands outside of the diff; nothing was posted.
            ReadOnly: the token may not comment; nothing was posted.
        """
