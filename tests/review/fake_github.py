"""A GitHub of one pull request, strict about where comments may stand.

It is made of a real git repository: diffs and archives are git's own, so that nothing here
shares code, or mistakes, with what is tested.
"""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "ghs_secretSecretSecret0123456789"
_ENV = {
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b.c", "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b.c", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1",
    "PATH": "/usr/bin:/bin:/usr/local/bin", "HOME": "/nonexistent",
}  # fmt: skip


class Repository:
    """A git repository with a folder of files as each of its commits."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.git("init", "-q", "-b", "main")
        self.git("config", "core.autocrlf", "false")

    def git(self, *arguments: str, given: bytes | None = None) -> bytes:
        done = subprocess.run(
            ["git", *arguments], cwd=self.folder, input=given, capture_output=True, env=_ENV, check=True
        )  # fmt: skip
        return done.stdout

    def commit(self, files: Mapping[str, bytes | None]) -> str:
        """Write files, remove those that are ``None``, and commit."""
        for path, data in files.items():
            file = self.folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            if data is None:
                file.unlink()
            else:
                file.write_bytes(data)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "x")
        return self.git("rev-parse", "HEAD").decode().strip()

    def files(self, commit: str) -> dict[str, bytes]:
        names = self.git("ls-tree", "-r", "-z", "--name-only", commit).decode().split("\0")
        return {name: self.git("show", f"{commit}:{name}") for name in names if name}

    def archive(self, commit: str) -> bytes:
        return gzip.compress(self.git("archive", "--format=tar", "--prefix=o-r-abc/", commit), 1)


@dataclass
class Thread:
    id: str
    comment_id: int
    path: str
    first: int
    last: int
    body: str
    author: str = "bot"
    resolved_by: str | None = None
    outdated: bool = False


@dataclass
class FakeGitHub:
    """State and rules. ``faults`` may answer a request first: it gets method and path, and
    returns status, headers and body, or ``None`` to let the request pass."""

    repository: Repository
    before: str
    head: str
    url: str = ""
    is_fork: bool = False
    token: str = TOKEN
    page: int = 100
    most_files: int = 3000
    without_patch: frozenset[str] = frozenset()
    can_resolve: bool = True
    reviews: list[dict[str, Any]] = field(default_factory=list)
    threads: list[Thread] = field(default_factory=list)
    asked: list[tuple[str, str, Any]] = field(default_factory=list)
    faults: Callable[[str, str], tuple[int, dict[str, str], Any] | None] = lambda _m, _p: None
    _next: int = 100
    _files: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)

    # -- the diff ------------------------------------------------------------------------

    def files(self) -> list[dict[str, Any]]:
        key = self.before, self.head
        if key not in self._files:
            self._files[key] = self._read_files()
        return [
            {name: value for name, value in item.items() if name != "patch"}
            if item["filename"] in self.without_patch else item
            for item in self._files[key]
        ]  # fmt: skip

    def _read_files(self) -> list[dict[str, Any]]:
        listing = self.repository.git("diff", "--name-status", "-z", "-M", self.before, self.head)
        words = iter(listing.decode().split("\0"))
        out = []
        for code in words:
            if not code:
                break
            old = next(words)
            new = next(words) if code[0] in "RC" else old
            status = {"A": "added", "D": "removed", "R": "renamed"}.get(code[0], "modified")
            item: dict[str, Any] = {"filename": new, "status": status, "sha": "0" * 40}
            if new != old:
                item["previous_filename"] = old
            patch = self._patch(old, new)
            if patch:
                item["patch"] = patch
            out.append(item)
        return out

    def _patch(self, old: str, new: str) -> str:
        text = self.repository.git(
            "diff", "-M", "--no-color", self.before, self.head, "--", *dict.fromkeys((old, new))
        ).decode()
        start = text.find("\n@@ ")
        return text[start + 1 :].removesuffix("\n") if start >= 0 else ""

    def hunks(self, path: str) -> list[set[int]]:
        """The lines of the new file that each hunk of its diff shows."""
        patch = next((f.get("patch", "") for f in self.files() if f["filename"] == path), "")
        out: list[set[int]] = []
        number = 0
        for line in patch.split("\n"):
            header = re.match(r"@@ -\S+ \+(\d+)", line)
            if header:
                number = int(header[1])
                out.append(set())
            elif line[:1] in ("+", " "):
                out[-1].add(number)
                number += 1
        return out

    # -- the rules -----------------------------------------------------------------------

    def refusal(self, review: Mapping[str, Any]) -> str | None:
        """Why GitHub would answer 422."""
        if review.get("event") != "COMMENT" or not review.get("body"):
            return "body is required"
        if len(review["body"]) > 65536:
            return "body is too long (maximum is 65536 characters)"
        reasons = map(self.refusal_of_comment, review.get("comments", ()))
        return next(filter(None, reasons), None)

    def refusal_of_comment(self, comment: Mapping[str, Any]) -> str | None:
        """Why GitHub would not take a comment on lines."""
        line, start = comment.get("line"), comment.get("start_line")
        hunks = self.hunks(comment["path"])
        if not hunks:
            return "Path could not be resolved"
        if comment.get("side") != "RIGHT":
            return "side must be RIGHT for a suggestion"
        hunk = next((h for h in hunks if line in h), None)
        if line is None or hunk is None:
            return "Line could not be resolved"
        if start is not None and start >= line:
            return "start_line must precede the end line."
        if start is not None and (start not in hunk or comment.get("start_side") != "RIGHT"):
            return "start_line must be part of the same hunk as the line."
        return "comment body is too long" if len(comment["body"]) > 65536 else None

    def post(self, review: Mapping[str, Any]) -> dict[str, Any]:
        self._next += 1
        made = {
            **review,
            "id": self._next,
            "author": "bot",
            "html_url": f"{self.url}/r/{self._next}",
        }
        self.reviews.append(made)
        for comment in review.get("comments", ()):
            self._next += 1
            first = comment.get("start_line", comment["line"])
            place = comment["path"], first, comment["line"], comment["body"]
            self.threads.append(Thread(f"T{self._next}", self._next, *place))
        return made

    # -- what a person sees ----------------------------------------------------------------

    @property
    def summary(self) -> str:
        return str(self.reviews[0]["body"])

    @property
    def open_threads(self) -> list[Thread]:
        return [t for t in self.threads if t.resolved_by is None]

    def with_suggestions(self) -> dict[str, bytes]:
        """The files after every suggestion in an open thread has been taken."""
        files = self.repository.files(self.head)
        for path in {thread.path for thread in self.open_threads}:
            data = files[path]
            newline = b"\r\n" if b"\r\n" in data else b"\n"
            is_ended = data.endswith(newline)
            lines = data.removesuffix(newline).split(newline)
            taken: list[Thread] = []
            for thread in sorted(self.open_threads, key=lambda t: -t.last):
                found = re.search(r"^(`{3,})suggestion\n(.*?)^\1$", thread.body, re.S | re.M)
                if thread.path != path or found is None:
                    continue
                clash = [t for t in taken if thread.first <= t.last and t.first <= thread.last]
                assert not clash, "two suggestions for one line"
                taken.append(thread)
                new = found[2].encode().split(b"\n")[:-1]
                lines[thread.first - 1 : thread.last] = new
            files[path] = newline.join(lines) + (newline if is_ended else b"")
        return files

    def with_everything(self, folder: Path) -> dict[str, bytes]:
        """The files after every suggestion, and every diff in the summary."""
        return with_diffs(self.with_suggestions(), self.summary, folder)

    # -- the API -----------------------------------------------------------------------------

    def answer(self, method: str, target: str, body: Any) -> tuple[int, dict[str, str], Any]:
        url = urlsplit(target)
        path, query = url.path, parse_qs(url.query)
        if path == "/graphql":
            return 200, {}, self._graphql(body)
        if path == "/repos/o/r/pulls/7":
            return 200, {}, {
                "number": 7, "html_url": f"{self.url}/o/r/pull/7", "changed_files": len(self.files()),
                "base": {"sha": self.before, "repo": {"full_name": "o/r"}},
                "head": {"sha": self.head, "repo": {"full_name": "x/r" if self.is_fork else "o/r"}},
            }  # fmt: skip
        if path == f"/repos/o/r/compare/{self.before}...{self.head}":
            return 200, {}, {"merge_base_commit": {"sha": self.before}}
        if path == "/repos/o/r/pulls/7/files":
            return self._paged(path, query, self.files()[: self.most_files])
        if path.startswith("/repos/o/r/tarball/"):
            return 200, {"Content-Type": "application/gzip"}, self.repository.archive(path[19:])
        if path == "/repos/o/r/pulls/7/reviews" and method == "GET":
            return self._paged(path, query, self.reviews)
        return self._written(method, path, body)

    def _written(self, method: str, path: str, body: Any) -> tuple[int, dict[str, str], Any]:
        """What is posted, or changed."""
        if path == "/repos/o/r/pulls/7/reviews":
            problem = self.refusal(body)
            if problem is not None:
                return 422, {}, {"message": "Unprocessable Entity", "errors": [problem]}
            return 200, {}, self.post(body)
        review = re.fullmatch(r"/repos/o/r/pulls/7/reviews/(\d+)", path)
        if review and method == "PUT":
            found = next(r for r in self.reviews if r["id"] == int(review[1]))
            found["body"] = body["body"]
            return 200, {}, found
        comment = re.fullmatch(r"/repos/o/r/pulls/comments/(\d+)", path)
        if comment and method == "PATCH":
            thread = next(t for t in self.threads if t.comment_id == int(comment[1]))
            thread.body = body["body"]
            return 200, {}, {"id": thread.comment_id}
        return 404, {}, {"message": "Not Found"}

    def _paged(
        self, path: str, query: Mapping[str, list[str]], items: list[Any]
    ) -> tuple[int, dict[str, str], Any]:
        number = int(query.get("page", ["1"])[0])
        headers = {}
        if number * self.page < len(items):
            headers["Link"] = f'<{self.url}{path}?per_page=100&page={number + 1}>; rel="next"'
        return 200, headers, items[(number - 1) * self.page : number * self.page]

    def _graphql(self, body: Any) -> Any:
        query = body["query"]
        if "resolveReviewThread" in query:
            if not self.can_resolve:
                return {
                    "data": None,
                    "errors": [{"type": "FORBIDDEN", "message": "not accessible"}],
                }
            thread = next(t for t in self.threads if t.id == body["variables"]["id"])
            thread.resolved_by = "bot"
            return {"data": {"resolveReviewThread": {"thread": {"id": thread.id}}}}
        assert body["variables"]["number"] == 7
        nodes: list[Any]
        if "reviewThreads" in query:
            name, nodes = "reviewThreads", [
                {
                    "id": t.id, "isResolved": t.resolved_by is not None, "isOutdated": t.outdated,
                    "path": t.path, "line": None if t.outdated else t.last,
                    "startLine": t.first if t.first < t.last and not t.outdated else None,
                    "resolvedBy": {"login": t.resolved_by} if t.resolved_by else None,
                    "comments": {"nodes": [
                        {"databaseId": t.comment_id, "body": t.body, "viewerDidAuthor": t.author == "bot"}
                    ]},
                }
                for t in self.threads
            ]  # fmt: skip
        else:
            name, nodes = "reviews", [
                {"databaseId": r["id"], "body": r["body"], "url": r["html_url"],
                 "viewerDidAuthor": r["author"] == "bot"}
                for r in self.reviews
            ]  # fmt: skip
        start = int(body["variables"]["after"] or 0)
        end = start + self.page
        info = {"hasNextPage": end < len(nodes), "endCursor": str(end)}
        connection = {"pageInfo": info, "nodes": nodes[start:end]}
        return {"data": {
            "viewer": {"login": "bot"}, "repository": {"pullRequest": {name: connection}},
        }}  # fmt: skip


def with_diffs(files: Mapping[str, bytes], summary: str, folder: Path) -> dict[str, bytes]:
    """The files after every diff in a summary."""
    for path, data in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    for found in re.finditer(r"^(`{4,})diff\n(.*?)^\1$", summary, re.S | re.M):
        subprocess.run(
            ["git", "apply", "--unidiff-zero", "-"], cwd=folder, input=found[2].encode(), check=True
        )  # fmt: skip
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


@contextmanager
def serving(fake: Any) -> Iterator[Any]:
    """The fake at an address of this machine, ``fake.url``."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            fake.asked.append((self.command, self.path, body))
            status, headers, data = self._answer(body)
            payload = data if isinstance(data, bytes) else json.dumps(data).encode()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(payload)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(payload)

        def _answer(self, body: Any) -> tuple[int, dict[str, str], Any]:
            given = self.headers.get("Authorization") or self.headers.get("PRIVATE-TOKEN") or ""
            if given.removeprefix("Bearer ") != fake.token:
                return 401, {}, {"message": f"Bad credentials: {given}"}
            found = fake.faults(self.command, self.path)
            return found if found is not None else fake.answer(self.command, self.path, body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle  # noqa: N815

        def log_message(self, *_arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
