"""What GitHub and GitLab send, as far as a review reads it; the rest is passed over.

What may be missing or null is so by the forge's description: GitHub's REST API 2022-11-28, GraphQL
schema and webhook payloads (docs.github.com), GitLab's REST API v4 (docs.gitlab.com).
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from oomlint.validation.received import Received

T = TypeVar("T")


class Payload(Received):
    """Of forges we read some fields among many, and they add new ones as they like."""

    model_config = ConfigDict(extra="ignore")


# -- GitHub: REST ------------------------------------------------------------------------


class Account(Payload):
    login: str


class Repository(Payload):
    full_name: str


class Commit(Payload):
    sha: str


class Base(Payload):
    sha: str
    repo: Repository


class Head(Payload):
    """The fork that it comes from may be gone."""

    sha: str
    repo: Repository | None = None


class PullRequest(Payload):
    base: Base
    head: Head
    html_url: str = ""
    changed_files: int = 0


class ListedPullRequest(Payload):
    number: int
    head: Commit


class Comparison(Payload):
    merge_base_commit: Commit


class PullRequestFile(Payload):
    filename: str
    status: str
    previous_filename: str | None = None
    patch: str | None = None


class PullRequestReview(Payload):
    body: str | None = None
    html_url: str | None = None


# -- GitHub: the event that set a workflow off -------------------------------------------


class Numbered(Payload):
    number: int


class Issue(Numbered):
    """What a comment is on: also a pull request, which then has its addresses beside it."""

    pull_request: dict[str, Any] | None = None


class HeadRepository(Payload):
    owner: Account | None = None


class WorkflowRun(Payload):
    """The run that a ``workflow_run`` event follows. Of a fork's it names no pull request."""

    pull_requests: list[Numbered | None] | None = None
    head_branch: str | None = None
    head_sha: str | None = None
    head_repository: HeadRepository | None = None


class Event(Payload):
    pull_request: Numbered | None = None
    issue: Issue | None = None
    workflow_run: WorkflowRun | None = None


# -- GitHub: GraphQL ---------------------------------------------------------------------


class Node(Payload):
    """GraphQL's names are camel case."""

    model_config = ConfigDict(alias_generator=to_camel)


class Failures(Payload):
    """Errors come with status 200, and without the data."""

    errors: list[dict[str, Any]] | None = None


class ThreadComment(Node):
    database_id: int | None
    body: str
    viewer_did_author: bool


class ThreadComments(Node):
    nodes: list[ThreadComment]


class ReviewThread(Node):
    id: str
    is_resolved: bool
    is_outdated: bool
    path: str
    line: int | None
    start_line: int | None
    resolved_by: Account | None
    comments: ThreadComments


class Review(Node):
    database_id: int | None
    body: str
    url: str
    viewer_did_author: bool


class PageInfo(Node):
    has_next_page: bool
    end_cursor: str | None


class Connection(Node, Generic[T]):
    page_info: PageInfo
    nodes: list[T]


class WithThreads(Node):
    review_threads: Connection[ReviewThread]


class WithReviews(Node):
    reviews: Connection[Review]


class Holder(Node, Generic[T]):
    pull_request: T


class Data(Payload, Generic[T]):
    viewer: Account | None = None
    repository: Holder[T]


class Queried(Payload, Generic[T]):
    data: Data[T]


# -- GitLab ------------------------------------------------------------------------------


class Identified(Payload):
    id: int


class DiffRefs(Payload):
    base_sha: str | None = None
    start_sha: str | None = None
    head_sha: str | None = None


class MergeRequest(Payload):
    """``diff_refs`` are missing until GitLab has prepared the diff; ``changes_count`` is a text
    such as ``1000+``; the project that it comes from may be gone."""

    target_project_id: int
    source_project_id: int | None = None
    web_url: str = ""
    changes_count: str | None = None
    diff_refs: DiffRefs | None = None


class MergeRequestFile(Payload):
    new_path: str
    old_path: str
    new_file: bool
    deleted_file: bool
    renamed_file: bool
    diff: str | None = None


class Position(Payload):
    new_path: str | None = None
    new_line: int | None = None
    head_sha: str | None = None


class Note(Payload):
    id: int
    body: str
    author: Identified | None = None
    position: Position | None = None
    resolved: bool | None = None
    resolved_by: Identified | None = None


class Discussion(Payload):
    id: str
    notes: list[Note]
