"""The client against GitHub's own description of its REST API, served by Prism.

Prism checks every request against the description and answers with its examples. It needs two
packages of npm, and where they are:

    npm install @octokit/openapi @stoplight/prism-cli
    OOMLINT_PRISM=node_modules pytest tests/review/test_review_openapi.py
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.ports import connected, free_port

from oomlint.review.forge import Comment, Misplaced, Summary, Thread, Update
from oomlint.review.github import GitHub
from oomlint.review.http import Token

MODULES = os.environ.get("OOMLINT_PRISM")
pytestmark = pytest.mark.skipif(not MODULES, reason="OOMLINT_PRISM names no node_modules")

COMMENT = Comment("a.yaml", "a.yaml", 3, 5, None, "text", ("0123456789abcdef",), "0" * 16)


@pytest.fixture(scope="module")
def api():
    """The address of Prism with GitHub's description."""
    modules = Path(str(MODULES)).absolute()
    port = free_port()
    description = modules / "@octokit/openapi/generated/api.github.com.json"
    arguments = ["mock", "--port", str(port), str(description)]
    server = subprocess.Popen(
        [str(modules / ".bin/prism"), *arguments],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    address = f"http://127.0.0.1:{port}"
    try:
        connected(server, port).close()
        yield address
    finally:
        server.terminate()
        server.wait()


@pytest.fixture
def hub(api, monkeypatch):
    monkeypatch.setattr("oomlint.review.github._PAUSE", 0)
    # The example of a Link header announces one more page for ever.
    monkeypatch.setattr("oomlint.review.http._MOST_PAGES", 1)
    return GitHub("octocat/Hello-World", 1347, Token("a-token-that-prism-ignores"), api=api)


def test_the_example_of_a_pull_request_is_read(hub):
    change = hub.change()
    assert len(change.head) == len(change.before) == 40
    (file,) = change.files
    assert (file.path, file.status) == ("file1.txt", "added")
    assert file.patch is not None


def test_a_review_is_taken_and_its_address_read(hub):
    many = Comment("a.yaml", "a.yaml", 7, 7, 6, "text", ("0123456789abcdef/2",), "0" * 16)
    url = hub.publish(Update("a" * 40, "summary", None, (COMMENT, many)))
    assert url.startswith("https://github.com/octocat/Hello-World/pull/")


def test_changes_of_earlier_texts_are_taken(hub):
    thread = Thread("T", "1", ("0123456789abcdef",), "0" * 16, "a.yaml", 3, 5, "open")
    earlier = Summary("80", "old", "https://github.com/x")
    assert hub.publish(Update("a" * 40, "new", earlier, (), ((thread, COMMENT),)))


def test_the_mock_refuses_what_the_description_does_not_allow(hub):
    with pytest.raises(Misplaced):
        hub.publish(Update("a" * 40, "summary", None, (replace(COMMENT, path=5),)))


def test_a_review_whose_answer_got_lost_is_looked_for(hub):
    example = "Here is the body for the review."
    assert hub._is_posted(example)
    assert not hub._is_posted("<!-- oomlint:more 0 -->")
