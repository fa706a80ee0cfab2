"""What goes wrong with a forge: a clear message, no token in it, and never half a review."""

from __future__ import annotations

import http.server
import json
import threading
import time

import pytest
from tests.review.conftest import BAD, GOOD, RUN, oomlint
from tests.review.fake_github import TOKEN

from oomlint.review.http import Token

pytestmark = pytest.mark.slow

AFTER = {**RUN, "train.yaml": BAD}
REVIEWS = "/repos/o/r/pulls/7/reviews"


@pytest.fixture
def naps(monkeypatch):
    """How long was waited, each time."""
    found: list[float] = []
    monkeypatch.setattr("time.sleep", found.append)
    return found


def answering(fake, answers, *, method="POST", path=REVIEWS):
    """Let the fake give ``answers`` in turn to one kind of request, and then its own."""
    waiting = iter(answers)
    fake.faults = lambda m, p: (
        next(waiting, None) if (m, p.split("?")[0]) == (method, path) else None
    )


def review(*arguments):
    """``oomlint review``, which never shows the token or a traceback."""
    result = oomlint("review", *arguments)
    assert TOKEN not in result.output
    assert "Traceback" not in result.output
    assert "internal error" not in result.output
    return result


# -- the token ----------------------------------------------------------------------------------


def test_a_token_is_never_shown():
    token = Token("sesame")
    assert "sesame" not in f"{token} {token!r} {[token]} {token.scrub('open sesame')}"
    assert token.reveal() == "sesame"


def test_without_a_token_nothing_is_asked(pull_request, monkeypatch):
    fake = pull_request(RUN, AFTER)
    monkeypatch.delenv("GITHUB_TOKEN")
    result = review()
    assert result.exit_code == 2
    assert "GITHUB_TOKEN or GH_TOKEN" in result.stderr
    assert fake.asked == []


@pytest.mark.parametrize("token", ["two\nlines", "snöwman", "x\x00y"])
def test_what_is_no_token_is_refused_unseen(pull_request, monkeypatch, token):
    pull_request(RUN, AFTER)
    environ = {"GITHUB_TOKEN": token, "GITHUB_REPOSITORY": "o/r", "GITHUB_REF": "refs/pull/7/merge"}
    monkeypatch.setattr("os.environ", environ)
    result = oomlint("review")
    assert result.exit_code == 2
    assert token not in result.output


def test_a_token_that_fails_is_said_without_repeating_it(pull_request):
    fake = pull_request(RUN, AFTER)
    fake.token = "another"  # and the fake repeats in its answer what it was given
    result = review("--verbose")
    assert result.exit_code == 3
    assert "the token is not valid" in result.stderr
    assert "***" in result.stderr


def test_a_request_that_is_not_there(pull_request):
    pull_request(RUN, AFTER)
    result = review("--pull-request", "8")
    assert result.exit_code == 3
    assert "no such pull request, or the token may not see it" in result.stderr


def test_a_token_goes_over_https_only(pull_request, monkeypatch):
    pull_request(RUN, AFTER)
    monkeypatch.setenv("GITHUB_API_URL", "http://github.example/api/v3")
    result = review()
    assert result.exit_code == 3
    assert "is not https" in result.stderr


def test_a_redirection_to_another_host_does_not_get_the_token(pull_request):
    fake = pull_request(RUN, AFTER)
    seen: list[dict[str, str]] = []

    class Elsewhere(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append(dict(self.headers))
            data = fake.repository.archive(self.path.rpartition("/")[2])
            self.send_response(200)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    fake.faults = lambda _m, p: (302, {"Location": address + p}, {}) if "tarball" in p else None
    try:
        assert review().exit_code == 1
    finally:
        server.shutdown()
        server.server_close()
    assert len(seen) == 2
    assert TOKEN not in json.dumps(seen)
    assert len(fake.threads) == 1


# -- forks ----------------------------------------------------------------------------------------

READ_ONLY = (403, {}, {"message": "Resource not accessible by integration"})


def test_a_fork_s_token_reads_only_and_the_job_gets_the_review(pull_request, monkeypatch, tmp_path):
    fake = pull_request(RUN, AFTER)
    fake.is_fork = True
    answering(fake, [READ_ONLY] * 9)
    page = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    result = review()
    assert result.exit_code == 1
    assert "from a fork" in result.stderr
    assert result.stdout.startswith("::error file=train.yaml,line=")
    assert "does not fit" in page.read_text()
    assert "micro_batch_size: 1" in page.read_text()
    assert fake.reviews == []


def test_outside_of_actions_a_read_only_token_gets_the_review_as_text(pull_request):
    fake = pull_request(RUN, AFTER)
    answering(fake, [READ_ONLY] * 9)
    result = review()
    assert result.exit_code == 1
    assert "make `train.yaml` need 284 of 79.1 GiB per GPU" in result.stdout
    assert fake.reviews == []


def test_a_fork_s_code_in_a_privileged_checkout_is_warned_of(pull_request, monkeypatch):
    fake = pull_request(RUN, AFTER)
    fake.is_fork = True
    monkeypatch.setenv("GITHUB_EVENT_NAME", "pull_request_target")
    assert "warning" not in review().stderr  # nothing is checked out
    monkeypatch.chdir(fake.repository.folder)
    assert "make sure that no other step runs it" in review().stderr


# -- limits and failures ----------------------------------------------------------------------------


def test_a_secondary_rate_limit_is_waited_for(pull_request, naps):
    fake = pull_request(RUN, AFTER)
    limit = {"message": "You have exceeded a secondary rate limit."}
    answering(fake, [(403, {"Retry-After": "7"}, limit), (429, {"Retry-After": "9"}, limit)])
    assert review().exit_code == 1
    assert naps[:2] == [7, 9]
    assert len(fake.reviews) == 1


def test_a_limit_that_lasts_too_long_is_an_error_with_the_time(pull_request, naps):
    fake = pull_request(RUN, AFTER)
    reset = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(time.time()) + 3000)}
    limit = (403, reset, {"message": "API rate limit exceeded"})
    answering(fake, [limit], method="GET", path="/repos/o/r/pulls/7")
    result = review()
    assert result.exit_code == 3
    assert "too many requests; it takes more from" in result.stderr
    assert "UTC" in result.stderr
    assert naps == []


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_limit_on_requests_is_no_matter_of_rights(pull_request, naps, method):
    fake = pull_request(RUN, AFTER)
    reset = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(time.time()) + 3000)}
    limit = (403, reset, {"message": "API rate limit exceeded for installation"})
    if method == "PUT":  # a later push edits the summary
        assert review().exit_code == 1
        fake.head = fake.repository.commit({"train.yaml": GOOD.encode()})
    fake.faults = lambda m, p: limit if m == method and "/reviews" in p else None
    result = review()
    assert result.exit_code == 3
    assert "too many requests; it takes more from" in result.stderr
    assert "nothing was posted" not in result.stderr
    assert "may not do this" not in result.stderr


def test_a_limit_on_requests_while_files_are_fetched_is_named_too(pull_request, naps):
    fake = pull_request(RUN, AFTER)
    limit = (429, {"Retry-After": "3000"}, {"message": "slow down"})
    fake.faults = lambda _m, p: limit if "tarball" in p else None
    assert "too many requests" in review().stderr


def test_a_server_that_stumbles_is_asked_again(pull_request, naps):
    fake = pull_request(RUN, AFTER)
    page = (502, {"Content-Type": "text/html"}, b"<html>Bad gateway</html>")
    answering(fake, [page, page], method="GET", path="/repos/o/r/pulls/7")
    assert review().exit_code == 1
    assert naps == [1, 2]


def test_a_server_that_stays_down_is_an_error(pull_request, naps):
    fake = pull_request(RUN, AFTER)
    answering(fake, [(503, {}, {"message": "down"})] * 9, method="GET", path="/repos/o/r/pulls/7")
    result = review()
    assert result.exit_code == 3
    assert "503: down" in result.stderr
    assert len(naps) == 3


def test_a_review_whose_answer_got_lost_is_not_posted_twice(pull_request):
    fake = pull_request(RUN, AFTER)
    body = {}

    def faults(method, path):
        if (method, path) != ("POST", REVIEWS) or body:
            return None
        body.update(fake.asked[-1][2])
        fake.post(body)
        return 502, {}, {"message": "Server Error"}

    fake.faults = faults
    assert review().exit_code == 1
    assert len(fake.reviews) == 1
    assert len(fake.threads) == 1


def test_a_review_that_was_not_posted_is_tried_again(pull_request):
    fake = pull_request(RUN, AFTER)
    answering(fake, [(502, {}, {"message": "Server Error"})])
    assert review().exit_code == 1
    assert len(fake.reviews) == 1


def test_nobody_at_the_address(pull_request, monkeypatch):
    pull_request(RUN, AFTER)
    monkeypatch.setenv("GITHUB_API_URL", "http://127.0.0.1:9")
    result = review()
    assert result.exit_code == 3
    assert "could not be reached" in result.stderr


@pytest.mark.parametrize(
    ("path", "answer", "words"),
    [
        ("/repos/o/r/pulls/7", b"<html>", "not JSON"),
        (
            "/repos/o/r/pulls/7",
            {"hello": "world"},
            "answered GET /repos/o/r/pulls/7 in another shape than its API has: lacks base, head",
        ),
        ("/repos/o/r/pulls/7", [1, 2], "another shape"),
        (
            "/repos/o/r/pulls/7/files",
            [{"file": 1}],
            "another shape than its API has: 0: lacks filename",
        ),
        ("/graphql", {"data": None}, "another shape than its API has: data: should be an object"),
        ("/graphql", {"errors": "no"}, "another shape than its API has: errors: should be a list"),
        ("/graphql", {"errors": [{"message": "no such field"}]}, "no such field"),
    ],
)
def test_an_answer_of_another_kind(pull_request, path, answer, words):
    fake = pull_request(RUN, AFTER)
    fake.faults = lambda _m, p: (200, {}, answer) if p.split("?")[0] == path else None
    result = review()
    assert result.exit_code == 3
    assert words in result.stderr
    assert fake.reviews == []


@pytest.mark.parametrize("archive", [b"", b"PK not a tarball", b"\x1f\x8b\x08\x00broken"])
def test_a_damaged_archive(pull_request, archive):
    fake = pull_request(RUN, AFTER)
    fake.faults = lambda _m, p: (200, {}, archive) if "tarball" in p else None
    result = review()
    assert result.exit_code == 3
    assert "archive" in result.stderr
    assert fake.reviews == []


def test_addresses_of_further_pages_are_not_followed_elsewhere(pull_request):
    fake = pull_request(RUN, AFTER)
    link = {"Link": '<https://evil.example/files?page=2>; rel="next"'}
    fake.faults = lambda _m, p: (200, link, []) if "/files" in p and p.endswith("page=1") else None
    assert review().exit_code == 1
    assert [p for _, p, _ in fake.asked if "/files" in p] == [
        f"/repos/o/r/pulls/7/files?per_page=100&page={number}" for number in (1, 2)
    ]


# -- a diff that moves ---------------------------------------------------------------------------------

MOVED = (422, {}, {"message": "Unprocessable Entity", "errors": ["Line could not be resolved"]})


def test_lines_that_github_does_not_take_go_into_the_summary_all_at_once(pull_request):
    fake = pull_request(RUN, AFTER)
    answering(fake, [MOVED, MOVED])
    assert review().exit_code == 1
    assert len(fake.reviews) == 1
    assert fake.threads == []
    assert "micro_batch_size: 1" in fake.summary


def test_a_diff_that_was_read_too_early_is_read_again(pull_request):
    fake = pull_request(RUN, AFTER)
    answering(fake, [MOVED])
    assert review().exit_code == 1
    assert len(fake.reviews) == len(fake.threads) == 1


def test_a_request_that_moves_on_is_left_to_its_next_review(pull_request):
    fake = pull_request(RUN, AFTER)

    def faults(method, path):
        if (method, path) != ("POST", REVIEWS):
            return None
        fake.head = fake.repository.commit({"train.yaml": GOOD.encode()})
        return MOVED

    fake.faults = faults
    result = review()
    assert result.exit_code == 3
    assert "has moved on" in result.stderr
    assert fake.reviews == []


def test_a_review_that_is_refused_for_good_is_an_error(pull_request):
    fake = pull_request(RUN, AFTER)
    answering(fake, [MOVED] * 9)
    result = review()
    assert result.exit_code == 3
    assert "Line could not be resolved" in result.stderr
    assert fake.reviews == []


# -- which request ----------------------------------------------------------------------------------------


def event(tmp_path, monkeypatch, data):
    file = tmp_path / "event.json"
    file.write_text(data if isinstance(data, str) else json.dumps(data))
    monkeypatch.setenv("GITHUB_EVENT_PATH", str(file))
    monkeypatch.setenv("GITHUB_REF", "refs/heads/main")


@pytest.mark.parametrize(
    "data",
    [
        {"pull_request": {"number": 7}},
        {"issue": {"number": 7, "pull_request": {}}, "comment": {}},
        {"workflow_run": {"pull_requests": [{"number": 7}]}},
        {"workflow_run": {"pull_requests": [None, {"number": 7}], "head_repository": None}},
    ],
)
def test_the_event_names_the_request(pull_request, tmp_path, monkeypatch, data):
    fake = pull_request(RUN, AFTER)
    event(tmp_path, monkeypatch, data)
    assert review().exit_code == 1
    assert len(fake.reviews) == 1


def test_a_workflow_behind_a_fork_s_finds_the_request_by_its_branch(
    pull_request, tmp_path, monkeypatch
):
    fake = pull_request(RUN, AFTER)
    run = {"pull_requests": [], "head_branch": "more & more", "head_sha": fake.head}
    event(
        tmp_path,
        monkeypatch,
        {"workflow_run": {**run, "head_repository": {"owner": {"login": "x"}}}},
    )
    path = "/repos/o/r/pulls?state=open&head=x%3Amore+%26+more"
    found = [{"number": 6, "head": {"sha": "old"}}, {"number": 7, "head": {"sha": fake.head}}]
    fake.faults = lambda _m, p: (200, {}, found) if p == path else None
    assert review().exit_code == 1
    assert len(fake.reviews) == 1


@pytest.mark.parametrize("data", ["", "[]", "{", '{"pull_request": 3}', '{"issue": {"number": 7}}'])
def test_an_event_about_no_request(pull_request, tmp_path, monkeypatch, data):
    pull_request(RUN, AFTER)
    event(tmp_path, monkeypatch, data)
    result = review()
    assert result.exit_code == 2
    assert "GITHUB_EVENT_PATH" in result.stderr or "no pull request is named" in result.stderr


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([], "should be an object, not []"),
        ({"pull_request": 3}, "pull_request: should be an object or null, not 3"),
        ({"issue": {"number": "7"}}, 'issue.number: should be a whole number, not "7"'),
        (
            {"workflow_run": {"pull_requests": [{"number": True}]}},
            "workflow_run.pull_requests.0.number: should be a whole number, not true",
        ),
    ],
)
def test_an_event_of_another_shape_is_told_with_its_place(
    pull_request, tmp_path, monkeypatch, data, words
):
    fake = pull_request(RUN, AFTER)
    event(tmp_path, monkeypatch, data)
    result = review()
    assert result.exit_code == 2
    assert f"event.json is no event of GitHub's: {words}" in result.stderr
    assert review("--pull-request", "7").exit_code == 1, "then nobody needs the event"
    assert len(fake.reviews) == 1


@pytest.mark.parametrize("name", ["", "o", "o/r/s", "o/r?x=1", "../r"])
def test_what_is_no_repository(pull_request, monkeypatch, name):
    pull_request(RUN, AFTER)
    monkeypatch.setenv("GITHUB_REPOSITORY", name)
    assert review().exit_code == 2
