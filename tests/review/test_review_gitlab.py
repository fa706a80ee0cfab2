"""``oomlint review`` of merge requests on a GitLab that enforces its rules."""

from __future__ import annotations

import json

import pytest
from tests.review.conftest import BAD, DEEPSPEED, GOOD, RUN, fixed, oomlint
from tests.review.fake_github import TOKEN, Repository, serving
from tests.review.fake_gitlab import FakeGitLab

pytestmark = pytest.mark.slow


@pytest.fixture
def merge_request(tmp_path, monkeypatch):
    repository = Repository(tmp_path / "repository")
    before = repository.commit({name: text.encode() for name, text in RUN.items()})
    head = repository.commit({"train.yaml": BAD.encode()})
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    with serving(FakeGitLab(repository, before, head)) as fake:
        monkeypatch.setenv("GITLAB_CI", "true")
        monkeypatch.setenv("GITLAB_TOKEN", TOKEN)
        monkeypatch.setenv("CI_API_V4_URL", fake.url)
        monkeypatch.setenv("CI_PROJECT_ID", "g/p")
        monkeypatch.setenv("CI_MERGE_REQUEST_IID", "7")
        monkeypatch.setattr("time.sleep", lambda _seconds: None)
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        yield fake


def push(fake, text):
    fake.head = fake.repository.commit({"train.yaml": text.encode()})


def test_a_review_with_a_suggestion(merge_request, tmp_path):
    result = oomlint("review")
    assert result.exit_code == 1, result.output
    (comment,) = merge_request.comments
    assert "```suggestion:-1+0" in comment["body"]
    assert merge_request.drafts == {}
    assert "❌ does not fit" in merge_request.summary
    head = merge_request.repository.files(merge_request.head)
    assert merge_request.with_suggestions() == fixed(head, tmp_path / "fixed")


def test_nothing_is_said_twice_and_what_is_mended_is_resolved(merge_request):
    oomlint("review")
    assert oomlint("review").stdout == "nothing new to say\n"
    push(merge_request, GOOD)
    assert oomlint("review").exit_code == 0
    (comment,) = merge_request.comments
    assert comment["resolved"]
    assert "No run needs more memory by this change." in merge_request.summary
    assert len(merge_request.notes) == 2


def test_a_comment_that_changes_is_edited(merge_request):
    oomlint("review")
    push(merge_request, BAD.replace("micro_batch_size: 8", "micro_batch_size: 16"))
    for note in merge_request.comments:  # GitLab carries positions over to the new version
        note["position"]["head_sha"] = merge_request.head
    oomlint("review")
    (comment,) = merge_request.comments
    assert "gradient_accumulation_steps: 64" in comment["body"]
    assert not comment["resolved"]


def test_a_comment_on_an_unchanged_line_names_both_numbers(merge_request):
    push(
        merge_request,
        "# new\n# lines\n" + BAD.replace("deepspeed: ds.json\n", "deepspeed: ds.json  # 3\n"),
    )
    oomlint("review")
    assert merge_request.comments  # the fake refuses positions with the wrong numbers


def test_a_place_that_gitlab_refuses_leaves_nothing_behind(merge_request):
    refused = iter([True, True])
    count = iter(range(99))

    def faults(method, path):
        is_second = method == "POST" and path.endswith("draft_notes") and next(count) % 2 == 1
        if is_second and next(refused, False):
            return 400, {}, {"message": {"line_code": ["can't be blank"]}}
        return None

    merge_request.faults = faults
    assert oomlint("review").exit_code == 1
    assert merge_request.drafts == {}
    assert merge_request.comments == []
    assert "micro_batch_size: 1" in merge_request.summary
    assert len(merge_request.notes) == 1


def test_a_fork_s_files_come_from_the_fork(merge_request):
    merge_request.is_fork = True
    assert oomlint("review").exit_code == 1
    assert [p for _, p, _ in merge_request.asked if p.startswith("/projects/2/")]


def test_a_token_that_only_reads(merge_request):
    scope = (403, {}, {"error": "insufficient_scope"})
    merge_request.faults = lambda m, _p: scope if m == "POST" else None
    result = oomlint("review")
    assert result.exit_code == 1
    assert "make `train.yaml` need 284 of 79.1 GiB per GPU" in result.stdout
    assert "insufficient_scope" in result.stderr
    assert merge_request.notes == []


def test_a_dry_run_prints_the_requests(merge_request):
    result = oomlint("review", "--dry-run")
    requests = json.loads(result.stdout)["requests"]
    assert [r["method"] for r in requests] == ["POST", "POST"]
    assert requests[1]["body"]["position"]["new_path"] == "train.yaml"
    assert merge_request.notes == []
    assert merge_request.drafts == {}


@pytest.mark.parametrize(
    ("name", "value", "status", "words"),
    [
        ("GITLAB_TOKEN", "", 2, "GITLAB_TOKEN should hold a token"),
        ("GITLAB_TOKEN", "wrong", 3, "the token is not valid"),
        ("CI_MERGE_REQUEST_IID", "", 2, "no merge request is named"),
        ("CI_MERGE_REQUEST_IID", "8", 3, "no such merge request"),
        ("CI_PROJECT_ID", "", 2, "no project is named"),
    ],
)
def test_what_may_be_missing(merge_request, monkeypatch, name, value, status, words):
    monkeypatch.setenv(name, value)
    result = oomlint("review")
    assert result.exit_code == status
    assert words in result.stderr
    assert TOKEN not in result.output


@pytest.mark.parametrize("answer", [{}, [], {"diff_refs": None}, {"diff_refs": {"head_sha": "x"}}])
def test_an_answer_of_another_kind(merge_request, answer):
    merge_request.faults = lambda _m, p: (200, {}, answer) if p.endswith("/7") else None
    result = oomlint("review")
    assert result.exit_code == 3
    assert "another shape" in result.stderr or "has not prepared the diff" in result.stderr


def test_a_note_of_another_kind_is_told_with_its_place(merge_request):
    notes = [{"id": "x", "notes": [{"id": 1, "body": None}]}]
    merge_request.faults = lambda _m, p: (200, {}, notes) if "/discussions" in p else None
    result = oomlint("review")
    assert result.exit_code == 3
    assert "/merge_requests/7/discussions in another shape than its API has" in result.stderr
    assert "0.notes.0.body: should be a text, not null" in result.stderr
    assert merge_request.drafts == {}


def test_notes_of_others_may_lack_what_ours_have(merge_request):
    position = {"position_type": "image", "width": 8}
    others = [
        {"id": "a", "notes": []},
        {"id": "b", "individual_note": True, "notes": [{"id": 1, "body": "x", "author": None}]},
        {"id": "c", "notes": [{"id": 2, "body": "y", "author": {"id": 1}, "position": position}]},
    ]
    merge_request.discussions[:] = others
    merge_request.faults = lambda _m, p: (200, {}, others) if "/discussions" in p else None
    assert oomlint("review").exit_code == 1


def test_a_json_that_runs_share(merge_request):
    merge_request.head = merge_request.repository.commit(
        {"train.yaml": GOOD.encode(), "ds.json": (DEEPSPEED % 0).encode()}
    )
    assert oomlint("review").exit_code == 1
    assert "`train.yaml`" in merge_request.summary


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False])
def test_suggestions_and_diffs_together_make_the_files_of_fix(
    merge_request, tmp_path, ending, last
):
    text = BAD.replace("\n", ending)
    push(merge_request, text if last else text.rstrip())
    assert oomlint("review").exit_code == 1
    head = merge_request.repository.files(merge_request.head)
    taken = merge_request.with_everything(tmp_path / "taken")
    assert taken == fixed(head, tmp_path / "fixed") != head
