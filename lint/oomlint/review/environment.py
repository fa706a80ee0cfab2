"""What CI says about itself: which forge, which request, and the token, from the environment."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from oomlint.errors import UsageError
from oomlint.review.forge import Forge
from oomlint.review.github import GitHub
from oomlint.review.gitlab import GitLab
from oomlint.review.http import Token, Transport
from oomlint.review.payloads import Event, ListedPullRequest, WorkflowRun
from oomlint.validation.received import Unexpected, read

Platform = Literal["github", "gitlab"]

_PULL_REF = re.compile(r"refs/pull/(\d+)/")
_REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


class ReviewArguments(Struct, frozen=True):
    """What the command line says; ``None`` is left to the environment."""

    platform: Platform | None = None
    repository: str | None = None
    number: int | None = None


def forge_from(
    asked: ReviewArguments, environ: Mapping[str, str], log: Callable[[str], None]
) -> Forge:
    """The request to review.

    Raises:
        UsageError: the environment does not say which, or has no token.
    """
    platform = asked.platform or ("gitlab" if environ.get("GITLAB_CI") else "github")
    return _gitlab(asked, environ, log) if platform == "gitlab" else _github(asked, environ, log)


def _github(
    asked: ReviewArguments, environ: Mapping[str, str], log: Callable[[str], None]
) -> GitHub:
    token = _token(environ, "GITHUB_TOKEN", "GH_TOKEN")
    repository = asked.repository or environ.get("GITHUB_REPOSITORY") or ""
    if not _REPOSITORY.fullmatch(repository):
        problem = f"{repository!r} is no repository" if repository else "no repository is named"
        raise UsageError(f"{problem}: --repository OWNER/NAME, or GITHUB_REPOSITORY")
    api = environ.get("GITHUB_API_URL") or "https://api.github.com"
    number = asked.number
    if number is None:
        event = _event(environ.get("GITHUB_EVENT_PATH"))
        number = _number(event, environ)
        if number is None and event.workflow_run is not None:
            number = _of_run(event.workflow_run, repository, api, token, log)
    if number is None:
        raise UsageError(
            "no pull request is named: --pull-request NUMBER, or a workflow that runs on"
            " pull_request (this event names none)"
        )
    graphql = environ.get("GITHUB_GRAPHQL_URL")
    return GitHub(repository, number, token, api=api, graphql=graphql, log=log)


def _gitlab(
    asked: ReviewArguments, environ: Mapping[str, str], log: Callable[[str], None]
) -> GitLab:
    token = _token(environ, "GITLAB_TOKEN")
    project = asked.repository or environ.get("CI_MERGE_REQUEST_PROJECT_ID")
    project = project or environ.get("CI_PROJECT_ID")
    if not project:
        raise UsageError("no project is named: --repository GROUP/NAME, or CI_PROJECT_ID")
    text = environ.get("CI_MERGE_REQUEST_IID") or ""
    number = asked.number or (int(text) if text.isdigit() else None)
    if number is None:
        raise UsageError(
            "no merge request is named: --pull-request NUMBER, or a pipeline for merge requests"
        )
    api = environ.get("CI_API_V4_URL") or "https://gitlab.com/api/v4"
    return GitLab(project, number, token, api=api, log=log)


def _token(environ: Mapping[str, str], *names: str) -> Token:
    for name in names:
        text = environ.get(name, "").strip()
        if text and text.isascii() and text.isprintable():
            return Token(text)
        if text:
            raise UsageError(f"{name} does not hold a token: it has characters that none has")
    raise UsageError(f"{' or '.join(names)} should hold a token")


def _event(path: str | None) -> Event:
    """What set the workflow off."""
    if not path:
        return Event()
    try:
        found = json.loads(Path(path).read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"GITHUB_EVENT_PATH: {path} cannot be read: {error}") from None
    try:
        return read(Event, found)
    except Unexpected as error:
        raise UsageError(f"GITHUB_EVENT_PATH: {path} is no event of GitHub's: {error}") from None


def _number(event: Event, environ: Mapping[str, str]) -> int | None:
    """The pull request that an event is about."""
    if event.pull_request is not None:
        return event.pull_request.number
    if event.issue is not None and event.issue.pull_request is not None:
        return event.issue.number
    found = _PULL_REF.match(environ.get("GITHUB_REF") or "")
    return int(found[1]) if found is not None else None


def _of_run(
    run: WorkflowRun, repository: str, api: str, token: Token, log: Callable[[str], None]
) -> int | None:
    """The pull request whose workflow a ``workflow_run`` event follows. Of a fork's the event
    does not say it; its branch does."""
    for pull in run.pull_requests or ():
        if pull is not None:
            return pull.number
    owner = run.head_repository.owner if run.head_repository is not None else None
    if owner is None or not run.head_branch:
        return None
    from urllib.parse import urlencode

    query = urlencode({"state": "open", "head": f"{owner.login}:{run.head_branch}"})
    forge = Transport(api, token, log=log)
    pulls = forge.get(f"/repos/{repository}/pulls?{query}", list[ListedPullRequest])
    return next((pull.number for pull in pulls if pull.head.sha == run.head_sha), None)
