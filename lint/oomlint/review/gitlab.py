"""A merge request on GitLab.

Comments are made as draft notes first: GitLab checks their places then, and nobody sees them
until all are there. Paths, fields and limits: docs.gitlab.com, REST API v4 (merge requests,
discussions, draft notes), GitLab 15.11 or later.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

from oomlint.review.body import is_summary
from oomlint.review.comment import read_mark
from oomlint.review.forge import (
    ChangedFile,
    ChangeRequest,
    Comment,
    Earlier,
    FileStatus,
    ForgeError,
    Misplaced,
    ReadOnly,
    Request,
    Style,
    Summary,
    Thread,
    Update,
)
from oomlint.review.http import Refused, Token, Transport
from oomlint.review.payloads import (
    Discussion,
    Identified,
    MergeRequest,
    MergeRequestFile,
    Note,
)
from oomlint.review.trees import unpacked

# A suggestion reaches at most 100 lines above its comment's (docs.gitlab.com, "Suggest changes");
# a note has at most 1,000,000 characters ("GitLab application limits"). Only the last line of what is
# taken gets the file's line end, and text of nothing but blanks takes the lines away (gitlabhq
# lib/gitlab/diff/suggestion.rb, to_content).
_STYLE = Style(lambda above: f"suggestion:-{above}+0", 100, 900_000, feeds_within=True)
_ABOVE = re.compile(r"^`{3,}suggestion:-(\d+)\+0$", re.MULTILINE)


class GitLab:
    """One merge request.

    Args:
        project: its number, or ``group/name``.
        api: the address of the REST API, up to ``/api/v4``.
    """

    style = _STYLE

    def __init__(
        self,
        project: str,
        number: int,
        token: Token,
        *,
        api: str = "https://gitlab.com/api/v4",
        log: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self._http = Transport(api, token, scheme=("PRIVATE-TOKEN", ""), log=log)
        self._number = number
        self._project = f"/projects/{quote(project, safe='')}"
        self._merge = f"{self._project}/merge_requests/{number}"
        self._refs: dict[str, str] = {}
        self._source: int | None = None
        self._url = ""

    # -- reading -------------------------------------------------------------------------

    def change(self) -> ChangeRequest:
        try:
            merge = self._http.get(self._merge, MergeRequest)
            refs = merge.diff_refs.model_dump() if merge.diff_refs is not None else {}
            if not refs or None in refs.values():
                problem = "has not prepared the diff of this merge request yet"
                raise ForgeError(self._http.host, problem)
            listed = self._http.listed(f"{self._merge}/diffs?per_page=100", MergeRequestFile)
            files = tuple(map(_file, listed))
        except Refused as error:
            raise _explained(error, self._http.host) from None
        self._refs = refs
        self._source = merge.source_project_id
        self._url = merge.web_url
        count = merge.changes_count or "0"
        return ChangeRequest(
            before=refs["base_sha"],
            head=refs["head_sha"],
            is_fork=merge.source_project_id != merge.target_project_id,
            files=files,
            is_complete=count.isdigit() and len(files) >= int(count),
        )

    def archive(self, commit: str) -> Iterator[tuple[str, bytes]]:
        path = f"/repository/archive.tar.gz?sha={commit}"
        try:
            stream = self._http.download(self._project + path)
        except Refused as error:
            if error.status != 404 or self._source is None:
                raise
            stream = self._http.download(f"/projects/{self._source}{path}")
        with stream:
            yield from unpacked(stream, self._http.host)

    def earlier(self) -> Earlier:
        threads: list[Thread] = []
        summary = None
        try:
            me = self._http.get("/user", Identified)
            path = f"{self._merge}/discussions?per_page=100"
            for discussion in self._http.listed(path, Discussion):
                note = next(iter(discussion.notes), None)
                if note is None or note.author != me:
                    continue
                if summary is None and is_summary(note.body):
                    summary = Summary(str(note.id), note.body, f"{self._url}#note_{note.id}")
                thread = self._thread(discussion.id, note, me)
                threads += [] if thread is None else [thread]
        except Refused as error:
            raise _explained(error, self._http.host) from None
        return Earlier(summary, tuple(threads))

    def _thread(self, identity: str, note: Note, me: Identified) -> Thread | None:
        mark, position = read_mark(note.body), note.position
        if mark is None or position is None or position.new_path is None:
            return None
        last, above = position.new_line, _ABOVE.search(note.body)
        first = last - int(above[1]) if last is not None and above is not None else last
        is_ours = note.resolved_by == me
        return Thread(
            id=identity,
            comment_id=str(note.id),
            keys=mark[0],
            digest=mark[1],
            path=position.new_path,
            first=first,
            last=last,
            state=("resolved" if is_ours else "dismissed") if note.resolved else "open",
            # A position that GitLab could carry over to the newest version names its commit.
            is_outdated=position.head_sha != self._refs.get("head_sha"),
        )

    # -- writing -------------------------------------------------------------------------

    def requests(self, update: Update) -> Sequence[Request]:
        """What would be sent; each draft note is published once all are there."""
        return [*self._drafts(update), *self._afterwards(update)]

    def _drafts(self, update: Update) -> list[Request]:
        path = f"{self._merge}/draft_notes"
        drafts = [
            Request("POST", path, {"note": comment.body, "position": self._position(comment)})
            for comment in update.comments
        ]
        if update.earlier is None and update.summary is not None:
            drafts.insert(0, Request("POST", path, {"note": update.summary}))
        return drafts

    def _position(self, comment: Comment) -> dict[str, Any]:
        place: dict[str, Any] = {
            "position_type": "text",
            **self._refs,
            "old_path": comment.old_path,
            "new_path": comment.path,
            "new_line": comment.last,
        }
        # An unchanged line is named by both of its numbers, an added one by its new one alone.
        return place if comment.old_last is None else {**place, "old_line": comment.old_last}

    def _afterwards(self, update: Update) -> Iterator[Request]:
        if update.earlier is not None and update.summary is not None:
            path = f"{self._merge}/notes/{update.earlier.id}"
            yield Request("PUT", path, {"body": update.summary})
        for thread, comment in update.edited:
            path = f"{self._merge}/discussions/{thread.id}/notes/{thread.comment_id}"
            yield Request("PUT", path, {"body": comment.body})
        for thread in update.done:
            path = f"{self._merge}/discussions/{thread.id}"
            yield Request("PUT", path, {"resolved": True})

    def publish(self, update: Update) -> str:
        drafts = self._drafted(update)
        try:
            for draft in drafts:
                self._http.send(Request("PUT", f"{draft}/publish"))
            for request in self._afterwards(update):
                self._http.send(request)
        except Refused as error:
            if error.status == 403:
                raise ReadOnly(error.path, error.message) from None
            raise _explained(error, self._http.host) from None
        return update.earlier.url if update.earlier is not None else self._url

    def _drafted(self, update: Update) -> list[str]:
        """The paths of the new comments, which nobody sees yet: all of them, or none is left."""
        made: list[str] = []
        try:
            for draft in self._drafts(update):
                draft_note = self._http.read(self._http.send(draft), Identified)
                made.append(f"{draft.path}/{draft_note.id}")
        except BaseException as error:
            for path in made:
                with contextlib.suppress(ForgeError):
                    self._http.send(Request("DELETE", path))
            if not isinstance(error, Refused):
                raise
            if error.status in (400, 422) and update.comments:
                raise Misplaced(error.path, error.message) from None
            if error.status == 403:
                raise ReadOnly(error.path, error.message) from None
            raise _explained(error, self._http.host) from None
        return made


def _file(item: MergeRequestFile) -> ChangedFile:
    status: FileStatus = "modified"
    if item.new_file:
        status = "added"
    elif item.deleted_file:
        status = "removed"
    elif item.renamed_file:
        status = "renamed"
    return ChangedFile(item.new_path, item.old_path, status, item.diff or None)


def _explained(error: Refused, host: str) -> ForgeError:
    """The error with what a person can do about it."""
    advice = {
        401: "the token is not valid (GITLAB_TOKEN)",
        403: "the token may not do this; it needs the scope `api` and the role Developer",
        404: "there is no such merge request, or the token may not see it",
    }.get(error.status)
    return ForgeError(host, f"{advice}: {error.message}" if advice else error.message)
