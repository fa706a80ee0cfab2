"""A pull request on GitHub, or on a GitHub Enterprise server.

REST reads the change and posts the review; which of our threads are resolved, and resolving
them, is known to GraphQL only. Paths, fields and limits: docs.github.com, REST API 2022-11-28.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

from oomlint.review.body import is_summary
from oomlint.review.comment import digest, read_mark
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
from oomlint.review.http import Refused, Token, Transport, Unanswered, said
from oomlint.review.payloads import (
    Comparison,
    Connection,
    Failures,
    PullRequest,
    PullRequestFile,
    PullRequestReview,
    Queried,
    ReviewThread,
    WithReviews,
    WithThreads,
)
from oomlint.review.trees import unpacked

N = TypeVar("N")
P = TypeVar("P")

# The length of a comment's or review's body (docs.github.com names none; the API says "is too
# long (maximum is 65536 characters)"), less room for emoji, which it counts twice.
_MOST_CHARACTERS = 64_000
_STYLE = Style(lambda _above: "suggestion", None, _MOST_CHARACTERS)

_STATUSES: dict[str, FileStatus] = {"added": "added", "removed": "removed", "renamed": "renamed"}

# Between requests that create something ("Best practices for using the REST API").
_PAUSE = 1.0
_TRIES = 3

_THREADS = """
query($owner: String!, $name: String!, $number: Int!, $after: String) {
  viewer { login }
  repository(owner: $owner, name: $name) {
    pullRequest(number: $number) {
      reviewThreads(first: 100, after: $after) {
        pageInfo { hasNextPage endCursor }
        nodes {
          id isResolved isOutdated path line startLine
          resolvedBy { login }
          comments(first: 1) { nodes { databaseId body viewerDidAuthor } }
        }
      }
    }
  }
}
"""
_REVIEWS = """
query($owner: String!, $name: String!, $number: Int!, $after: String) {
  repository(owner: $owner, name: $name) {
    pullRequest(number: $number) {
      reviews(first: 100, after: $after) {
        pageInfo { hasNextPage endCursor }
        nodes { databaseId body url viewerDidAuthor }
      }
    }
  }
}
"""
_RESOLVE = "mutation($id: ID!) { resolveReviewThread(input: {threadId: $id}) { thread { id } } }"


class GitHub:
    """One pull request.

    Args:
        repository: ``owner/name``.
        api: the address of the REST API.
        graphql: that of the GraphQL API; where it is not given it follows from ``api``.
    """

    style = _STYLE

    def __init__(
        self,
        repository: str,
        number: int,
        token: Token,
        *,
        api: str = "https://api.github.com",
        graphql: str | None = None,
        log: Callable[[str], None] = lambda _text: None,
    ) -> None:
        headers = {
            "Accept": "application/vnd.github+json, application/json;q=0.9",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        self._http = Transport(api, token, headers=headers, log=log)
        self._number = number
        self._owner, _, self._name = repository.partition("/")
        self._repo = f"/repos/{quote(self._owner)}/{quote(self._name)}"
        self._pull = f"{self._repo}/pulls/{number}"
        self._graphql = graphql or _graphql_of(api)
        self._url = ""

    # -- reading -------------------------------------------------------------------------

    def change(self) -> ChangeRequest:
        try:
            pull = self._http.get(self._pull, PullRequest)
            before, head = pull.base.sha, pull.head.sha
            compared = f"{self._repo}/compare/{before}...{head}?per_page=1"
            found = self._http.get(compared, Comparison)
            listed = self._http.listed(f"{self._pull}/files?per_page=100", PullRequestFile)
            files = tuple(map(_file, listed))
        except Refused as error:
            raise _explained(error, self._http.host) from None
        self._url = pull.html_url
        return ChangeRequest(
            before=found.merge_base_commit.sha,
            head=head,
            is_fork=pull.head.repo != pull.base.repo,
            files=files,
            is_complete=len(files) >= pull.changed_files,
        )

    def archive(self, commit: str) -> Iterator[tuple[str, bytes]]:
        with self._http.download(f"{self._repo}/tarball/{commit}") as stream:
            yield from unpacked(stream, self._http.host)

    def earlier(self) -> Earlier:
        threads = self._query(_THREADS, Queried[WithThreads], lambda pull: pull.review_threads)
        reviews = self._query(_REVIEWS, Queried[WithReviews], lambda pull: pull.reviews)
        ours = (node for _, node in reviews if node.viewer_did_author and is_summary(node.body))
        summary = next((Summary(str(node.database_id), node.body, node.url) for node in ours), None)
        known = (_thread(node, viewer) for viewer, node in threads)
        return Earlier(summary, tuple(thread for thread in known if thread is not None))

    def _query(
        self, query: str, kind: type[Queried[P]], connection: Callable[[P], Connection[N]]
    ) -> Iterator[tuple[str, N]]:
        """Who is asking, and each node of a connection of the pull request, page by page."""
        after = None
        while True:
            variables = {
                "owner": self._owner,
                "name": self._name,
                "number": self._number,
                "after": after,
            }
            request = Request("POST", self._graphql, {"query": query, "variables": variables})
            answer = self._http.send(request, is_repeatable=True)
            errors = self._http.read(answer, Failures).errors
            if errors:
                raise ForgeError(self._http.host, f"does not list earlier reviews: {said(errors)}")
            data = self._http.read(answer, kind).data
            viewer = data.viewer.login if data.viewer is not None else ""
            page = connection(data.repository.pull_request)
            yield from ((viewer, node) for node in page.nodes)
            if not page.page_info.has_next_page:
                return
            after = page.page_info.end_cursor

    # -- writing -------------------------------------------------------------------------

    def requests(self, update: Update) -> Sequence[Request]:
        review = self._review(update)
        return [
            *([review] if review is not None else []),
            *self._afterwards(update),
            *(self._resolve(thread) for thread in update.done),
        ]

    def _review(self, update: Update) -> Request | None:
        """The one request that may create anything: all of a review, or nothing."""
        if update.earlier is None and update.summary is not None:
            text = update.summary
        elif update.comments:
            where = f"[first review]({update.earlier.url})" if update.earlier else "first review"
            text = f"More about the memory of this change; the {where} has the summary."
            text += f"\n<!-- oomlint:more {_digest_of(update)} -->"
        else:
            return None
        body = {
            "commit_id": update.head,
            "event": "COMMENT",
            "body": text,
            "comments": [_comment(comment) for comment in update.comments],
        }
        return Request("POST", f"{self._pull}/reviews", body)

    def _afterwards(self, update: Update) -> Iterator[Request]:
        if update.earlier is not None and update.summary is not None:
            path = f"{self._pull}/reviews/{update.earlier.id}"
            yield Request("PUT", path, {"body": update.summary})
        for thread, comment in update.edited:
            yield self._edit(thread, comment.body)

    def _edit(self, thread: Thread, text: str) -> Request:
        path = f"{self._repo}/pulls/comments/{thread.comment_id}"
        return Request("PATCH", path, {"body": text})

    def _resolve(self, thread: Thread) -> Request:
        body = {"query": _RESOLVE, "variables": {"id": thread.id}}
        return Request("POST", self._graphql, body)

    def publish(self, update: Update) -> str:
        url = update.earlier.url if update.earlier is not None else self._url
        review = self._review(update)
        try:
            posted = self._post(review) if review is not None else None
            url = (posted and posted.html_url) or url
            for request in self._afterwards(update):
                time.sleep(_PAUSE)
                self._http.send(request)
        except Refused as error:
            if error.status == 422 and review is not None and update.comments:
                raise Misplaced(error.path, error.message) from None
            if error.status == 403:
                raise ReadOnly(error.path, error.message) from None
            raise _explained(error, self._http.host) from None
        for thread in update.done:
            self._finish(thread, update.head)
        return url

    def _post(self, review: Request) -> PullRequestReview | None:
        """Post a review once, also where the answer got lost on its way; then ``None``."""
        for attempt in range(_TRIES):
            try:
                return self._http.read(self._http.send(review), PullRequestReview)
            except Unanswered:
                if attempt == _TRIES - 1:
                    raise
                time.sleep(2.0 * 2**attempt)
                if self._is_posted(review.body["body"]):
                    return None
        raise AssertionError("the last try returns or raises")

    def _is_posted(self, text: str) -> bool:
        mark = text.rstrip().rpartition("\n")[2]
        reviews = self._http.listed(f"{self._pull}/reviews?per_page=100", PullRequestReview)
        return any(mark in (review.body or "") for review in reviews)

    def _finish(self, thread: Thread, head: str) -> None:
        """Resolve a thread, or where the token may not do so, say in it that it is done."""
        time.sleep(_PAUSE)
        answer = self._http.send(self._resolve(thread), is_repeatable=True)
        if self._http.read(answer, Failures).errors:
            text = f"✅ No longer so as of {head[:10]}."
            self._http.send(self._edit(thread, text))


def _graphql_of(api: str) -> str:
    """``https://HOST/api/graphql`` beside an Enterprise server's ``/api/v3``."""
    address = api.rstrip("/")
    if urlsplit(address).path.endswith("/api/v3"):
        return address.removesuffix("/v3") + "/graphql"
    return address + "/graphql"


def _file(item: PullRequestFile) -> ChangedFile:
    status = _STATUSES.get(item.status, "modified")
    return ChangedFile(item.filename, item.previous_filename or item.filename, status, item.patch)


def _thread(node: ReviewThread, viewer: str) -> Thread | None:
    """A thread of ours; ``None`` of any other."""
    comment = next(iter(node.comments.nodes), None)
    mark = read_mark(comment.body) if comment is not None and comment.viewer_did_author else None
    if comment is None or mark is None:
        return None
    resolver = node.resolved_by.login if node.resolved_by is not None else ""
    is_ours = resolver.removesuffix("[bot]") == viewer.removesuffix("[bot]")
    return Thread(
        id=node.id,
        comment_id=str(comment.database_id),
        keys=mark[0],
        digest=mark[1],
        path=node.path,
        first=node.start_line or node.line,
        last=node.line,
        state=("resolved" if is_ours else "dismissed") if node.is_resolved else "open",
        is_outdated=node.is_outdated,
    )


def _comment(comment: Comment) -> dict[str, Any]:
    place: dict[str, Any] = {"path": comment.path, "line": comment.last, "side": "RIGHT"}
    if comment.first < comment.last:  # equal lines are refused: "must precede the end line"
        place |= {"start_line": comment.first, "start_side": "RIGHT"}
    return {**place, "body": comment.body}


def _digest_of(update: Update) -> str:
    return digest("".join((update.head, *(comment.body for comment in update.comments))))


def _explained(error: Refused, host: str) -> ForgeError:
    """The error with what a person can do about it."""
    advice = {
        401: "the token is not valid (GITHUB_TOKEN or GH_TOKEN)",
        403: "the token may not do this; it needs `pull-requests: write` and `contents: read`",
        404: "there is no such pull request, or the token may not see it",
        410: "pull requests are switched off there",
    }.get(error.status)
    return ForgeError(host, f"{advice}: {error.message}" if advice else error.message)
