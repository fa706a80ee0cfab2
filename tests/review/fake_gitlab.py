"""A GitLab of one merge request, beside the fake GitHub whose git repository it shares."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.review.fake_github import TOKEN, FakeGitHub, Repository, with_diffs

ME = 5


@dataclass
class FakeGitLab:
    """State and rules. A note is a draft until it is published; ``faults`` as in the fake GitHub."""

    repository: Repository
    before: str
    head: str
    url: str = ""
    token: str = TOKEN
    is_fork: bool = False
    drafts: dict[int, dict[str, Any]] = field(default_factory=dict)
    discussions: list[dict[str, Any]] = field(default_factory=list)
    asked: list[tuple[str, str, Any]] = field(default_factory=list)
    faults: Any = lambda _m, _p: None
    _next: int = 10

    @property
    def _git(self) -> FakeGitHub:
        return FakeGitHub(self.repository, self.before, self.head)

    @property
    def notes(self) -> list[dict[str, Any]]:
        return [discussion["notes"][0] for discussion in self.discussions]

    @property
    def summary(self) -> str:
        return next(n["body"] for n in self.notes if n["position"] is None)

    @property
    def comments(self) -> list[dict[str, Any]]:
        return [n for n in self.notes if n["position"] is not None]

    def with_suggestions(self) -> dict[str, bytes]:
        files = self.repository.files(self.head)
        for note in sorted(self.comments, key=lambda n: -n["position"]["new_line"]):
            found = re.search(r"^(`{3,})suggestion:-(\d+)\+0\n(.*?)^\1$", note["body"], re.S | re.M)
            if found is None or note["resolved"]:
                continue
            path, last = note["position"]["new_path"], note["position"]["new_line"]
            lines = re.findall(rb"[^\n]*\n|[^\n]+", files[path])
            # lib/gitlab/diff/suggestion.rb, to_content: the text ends as the last line did that it
            # replaces, and within it there are line feeds.
            ending = re.search(rb"\r\n|\r|\n", lines[last - 1])
            text = found[3].encode().removesuffix(b"\n")
            new = text + (ending[0] if ending else b"") if text.strip() else b""
            lines[last - 1 - int(found[2]) : last] = [new]
            files[path] = b"".join(lines)
        return files

    def with_everything(self, folder: Path) -> dict[str, bytes]:
        """The files after every suggestion, and every diff in the summary."""
        return with_diffs(self.with_suggestions(), self.summary, folder)

    def refusal(self, position: dict[str, Any] | None) -> str | None:
        """Why GitLab would answer 400."""
        if position is None:
            return None
        if (position["base_sha"], position["head_sha"]) != (self.before, self.head):
            return "position is of another version"
        item = next((f for f in self._git.files() if f["filename"] == position["new_path"]), None)
        if item is None or item.get("previous_filename", item["filename"]) != position["old_path"]:
            return "line_code can't be blank"
        old = new = 0
        for line in item["patch"].split("\n"):
            header = re.match(r"@@ -(\d+)(?:,\d+)? \+(\d+)", line)
            if header:
                old, new = int(header[1]), int(header[2])
                continue
            if line[:1] in ("+", " ") and new == position["new_line"]:
                # An unchanged line needs both numbers, an added one must have only the new one.
                wanted = old if line[0] == " " else None
                return None if position.get("old_line") == wanted else "must be a valid line code"
            old += line[:1] in ("-", " ")
            new += line[:1] in ("+", " ")
        return "must be a valid line code"

    def answer(self, method: str, target: str, body: Any) -> tuple[int, dict[str, str], Any]:
        url = urlsplit(target)
        merge = "/projects/g%2Fp/merge_requests/7"
        path, query = url.path, parse_qs(url.query)
        if path == "/user":
            return 200, {}, {"id": ME}
        if path == merge:
            return 200, {}, {
                "iid": 7, "web_url": f"{self.url}/g/p/-/merge_requests/7", "target_project_id": 1,
                "source_project_id": 2 if self.is_fork else 1, "changes_count": str(len(self._git.files())),
                "diff_refs": {"base_sha": self.before, "start_sha": self.before, "head_sha": self.head},
            }  # fmt: skip
        if path == f"{merge}/diffs":
            return 200, {}, [
                {
                    "new_path": item["filename"], "old_path": item.get("previous_filename", item["filename"]),
                    "new_file": item["status"] == "added", "deleted_file": item["status"] == "removed",
                    "renamed_file": item["status"] == "renamed", "diff": item.get("patch", "") + "\n",
                }
                for item in self._git.files()
            ]  # fmt: skip
        if path == "/projects/g%2Fp/repository/archive.tar.gz":
            if self.is_fork and query["sha"][0] == self.head:
                return 404, {}, {"message": "404 Commit Not Found"}
            return 200, {}, self.repository.archive(query["sha"][0])
        if path == "/projects/2/repository/archive.tar.gz":
            return 200, {}, self.repository.archive(query["sha"][0])
        if path == f"{merge}/discussions":
            return 200, {}, self.discussions
        return self._written(method, path, body)

    def _written(self, method: str, path: str, body: Any) -> tuple[int, dict[str, str], Any]:
        """What is posted, published or changed."""
        merge = "/projects/g%2Fp/merge_requests/7"
        if path == f"{merge}/draft_notes" and method == "POST":
            problem = self.refusal(body.get("position"))
            if problem is not None:
                return 400, {}, {"message": {"line_code": [problem]}}
            self._next += 1
            self.drafts[self._next] = body
            return 201, {}, {"id": self._next}
        if found := re.fullmatch(rf"{merge}/draft_notes/(\d+)(/publish)?", path):
            draft = self.drafts.pop(int(found[1]))
            if found[2] and method == "PUT":
                self._publish(draft)
            return 204, {}, b""
        if method == "PUT" and (found := re.fullmatch(rf"{merge}/discussions/(\w+)", path)):
            note = next(d["notes"][0] for d in self.discussions if d["id"] == found[1])
            note.update(resolved=body["resolved"], resolved_by={"id": ME})
            return 200, {}, {}
        if method == "PUT" and (found := re.fullmatch(rf"{merge}/(?:\S*/)?notes/(\d+)", path)):
            note = next(n for n in self.notes if n["id"] == int(found[1]))
            note["body"] = body["body"]
            return 200, {}, note
        return 404, {}, {"message": "404 Not Found"}

    def _publish(self, draft: dict[str, Any]) -> None:
        self._next += 1
        note = {
            "id": self._next, "body": draft["note"], "author": {"id": ME}, "resolved": False,
            "position": draft.get("position"),
        }  # fmt: skip
        self.discussions.append({"id": f"d{self._next}", "notes": [note]})
