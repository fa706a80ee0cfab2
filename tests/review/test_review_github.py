"""``oomlint review`` of pull requests on a GitHub that enforces its rules."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from ruamel.yaml import YAML
from tests.review.conftest import BAD, DEEPSPEED, GOOD, RUN, SETTINGS, fixed, oomlint

from oomlint.review import assess
from oomlint.review.github import GitHub

COMMENT = "# a comment, as people write them\n"


def run(**files):
    """The usual project with some of its files otherwise."""
    return {**RUN, **{name.replace("_", "."): text for name, text in files.items()}}


def posts(fake):
    """The requests that changed something."""
    changing = [(m, p) for m, p, _ in fake.asked if m != "GET"]
    return [(m, p) for m, p in changing if p != "/graphql"]


# -- what is said ---------------------------------------------------------------------------


def test_a_change_that_breaks_a_run_is_reviewed_once_with_a_suggestion(pull_request, tmp_path):
    fake = pull_request(RUN, run(train_yaml=BAD))
    result = oomlint("review")
    assert result.exit_code == 1, result.output
    assert posts(fake) == [("POST", "/repos/o/r/pulls/7/reviews")]
    (thread,) = fake.threads
    assert (thread.path, thread.first, thread.last) == ("train.yaml", 6, 7)
    assert "`micro_batch_size` 1 → 8 and `gradient_checkpointing` true → false make" in thread.body
    assert "micro-batch-too-large" in thread.body
    row = next(line for line in fake.summary.splitlines() if line.startswith("| `train.yaml`"))
    assert re.search(r"26\.\d GiB → \*\*\d+ GiB\*\*", row)
    assert "fits → **❌ does not fit**" in row
    head = fake.repository.files(fake.head)
    assert fake.with_suggestions() == fixed(head, tmp_path / "fixed")


def test_the_checkout_s_objects_serve_as_well_as_the_archive(pull_request, monkeypatch):
    fake = pull_request(RUN, run(train_yaml=BAD))
    monkeypatch.chdir(fake.repository.folder)
    assert oomlint("review").exit_code == 1
    assert len(fake.threads) == 1
    assert not [path for _, path, _ in fake.asked if "tarball" in path]


def test_a_change_that_concerns_no_run_is_passed_over(pull_request):
    fake = pull_request({**RUN, "README.md": "x"}, {**RUN, "README.md": "y"})
    result = oomlint("review")
    assert (result.exit_code, result.stdout) == (0, "nothing new to say\n")
    assert posts(fake) == []


def test_findings_that_were_there_before_are_counted_and_not_repeated(pull_request):
    fake = pull_request(
        run(train_yaml=BAD), run(train_yaml=BAD.replace("num_epochs: 1", "num_epochs: 2"))
    )
    result = oomlint("review")
    assert result.exit_code == 0
    assert fake.threads == []
    assert fake.reviews == []


def test_a_finding_that_gets_worse_is_the_change_s(pull_request):
    worse = BAD.replace("micro_batch_size: 8", "micro_batch_size: 12")
    fake = pull_request(run(train_yaml=BAD), run(train_yaml=worse))
    assert oomlint("review").exit_code == 1
    assert any("`micro_batch_size` 8 → 12 makes" in thread.body for thread in fake.threads)


def test_what_a_change_mends_is_said_in_a_line(pull_request):
    fake = pull_request(run(train_yaml=BAD), RUN)
    assert oomlint("review").exit_code == 0
    said = re.sub(r"<!--.*?-->", "", fake.summary).strip()
    assert said == "✅ `train.yaml` fits now: 26.7 GiB per GPU instead of 284 GiB."


def test_a_shared_deepspeed_file_concerns_every_run_that_uses_it(pull_request):
    files = {**RUN, "other.yaml": GOOD.replace("output_dir: out", "output_dir: other")}
    files["alone.yaml"] = GOOD.replace("deepspeed: ds.json\n", "")
    fake = pull_request(files, {**files, "ds.json": DEEPSPEED % 0})
    assert oomlint("review").exit_code == 1
    assert "`train.yaml`" in fake.summary
    assert "`other.yaml`" in fake.summary
    assert "`alone.yaml`" not in fake.summary
    assert any(thread.path == "ds.json" for thread in fake.threads) or "ds.json" in fake.summary


def test_a_change_of_the_settings_concerns_the_runs_that_they_govern(pull_request):
    smaller = SETTINGS.replace("8xA100-80GB", "8xRTX-3090-24GB")
    fake = pull_request(RUN, run(oomlint_toml=smaller))
    assert oomlint("review").exit_code == 1
    assert "8xA100-80GB → **8xRTX-3090-24GB**" in fake.summary


def test_a_renamed_file_is_the_same_run(pull_request):
    after = {name: text for name, text in RUN.items() if name != "train.yaml"}
    fake = pull_request(
        RUN, {**after, "configs/train.yaml": GOOD.replace("num_epochs: 1", "num_epochs: 2")}
    )
    assert oomlint("review").exit_code == 0
    assert fake.reviews == []  # nothing about its memory has changed


def test_a_deleted_deepspeed_file_is_noticed_by_the_run_that_names_it(pull_request):
    after = {name: text for name, text in RUN.items() if name != "ds.json"}
    fake = pull_request(RUN, after)
    oomlint("review")
    assert "`train.yaml`" in fake.summary
    assert "referenced-file-missing" in fake.summary + "".join(t.body for t in fake.threads)


def test_a_run_that_is_no_more_is_listed_beside_others_and_no_news_alone(pull_request):
    files = run(other_yaml=GOOD.replace("output_dir: out", "output_dir: other"))
    after = {name: text for name, text in files.items() if name != "train.yaml"}
    assert pull_request(files, {**after, "other.yaml": BAD}).reviews == []
    assert oomlint("review").exit_code == 1


def test_names_from_files_mention_nobody(pull_request):
    name = "'@someone/model-with-a-stranger-s-name-8b'"
    fake = pull_request(RUN, run(train_yaml=BAD.replace("meta-llama/Meta-Llama-3-8B", name)))
    oomlint("review")
    said = fake.summary + "".join(thread.body for thread in fake.threads)
    outside = re.sub(r"```.*?```|`[^`]*`", "", said, flags=re.S)
    assert "someone" in said
    assert "@someone" not in outside


# -- where it is said -------------------------------------------------------------------------


def spread(lines: int) -> str:
    """The bad config with a long comment between micro batch and checkpointing."""
    head, tail = BAD.split("gradient_accumulation_steps")
    return f"{head}{COMMENT * lines}gradient_accumulation_steps{tail}"


def test_a_fix_beyond_the_hunks_becomes_a_diff_in_the_summary(pull_request, tmp_path):
    # The change shows the micro batch's lines only; the fix needs another far below as well.
    before = (
        spread(30)
        .replace("micro_batch_size: 8", "micro_batch_size: 1")
        .replace("gradient_checkpointing: false", "gradient_checkpointing: true")
    )
    after = before.replace("micro_batch_size: 1", "micro_batch_size: 64")
    fake = pull_request(run(train_yaml=before), run(train_yaml=after))
    assert oomlint("review").exit_code == 1
    assert all("```suggestion" not in thread.body for thread in fake.threads)
    assert "Beyond the lines of the diff: micro batch 4 x 64" in fake.summary
    head = fake.repository.files(fake.head)
    assert fake.with_everything(tmp_path / "taken") == fixed(head, tmp_path / "fixed")


def test_parts_of_one_fix_name_one_another(pull_request, tmp_path):
    fake = pull_request({"README.md": "x"}, run(train_yaml=spread(30)))
    oomlint("review")
    bodies = [t.body for t in fake.threads if "gradient_accumulation_steps: 32" in t.body]
    assert len(bodies) == 1
    assert (
        "It goes with the suggestion for `train.yaml` line 6: add them to one batch." in bodies[0]
    )
    head = fake.repository.files(fake.head)
    assert fake.with_suggestions() == fixed(head, tmp_path / "fixed")


def test_a_cause_is_told_on_the_line_that_turned_also_where_its_fix_is_elsewhere(pull_request):
    # Checkpointing, which mends it, stands beyond the hunk; the micro batch, which did it, is in it.
    worse = BAD.replace("micro_batch_size: 8", "micro_batch_size: 12")
    fake = pull_request(run(train_yaml=BAD), run(train_yaml=worse))
    oomlint("review")
    (thread,) = fake.threads
    assert (thread.first, thread.last) == (6, 6)
    assert "no-gradient-checkpointing" in thread.body
    assert "Or put `micro_batch_size` back to `8`" in thread.body
    assert "The summary of this review has it as a diff" in thread.body


def test_a_finding_on_a_line_that_the_diff_hides_stands_in_the_summary(pull_request):
    # The JSON brings the run down; the lines of the YAML that are to blame are not in the diff.
    far = spread(30).replace("micro_batch_size: 8", "micro_batch_size: 1")
    far = far.replace("gradient_checkpointing: false", "gradient_checkpointing: true")
    fake = pull_request(run(train_yaml=far), run(train_yaml=far, ds_json=DEEPSPEED % 0))
    assert oomlint("review").exit_code == 1
    assert {thread.path for thread in fake.threads} <= {"ds.json"}


def test_a_file_whose_diff_github_does_not_show_is_spoken_of_in_the_summary(pull_request):
    fake = pull_request(RUN, run(train_yaml=BAD))
    fake.without_patch = frozenset({"train.yaml"})
    assert oomlint("review").exit_code == 1
    assert fake.threads == []
    assert "make `train.yaml` need 284 of 79.1 GiB per GPU" in fake.summary
    assert "+micro_batch_size: 1" in fake.summary


def test_more_files_than_github_lists_are_reviewed_all_the_same(pull_request):
    many = {f"notes/{n:03}.md": str(n) for n in range(330)}
    fake = pull_request(RUN, {**run(train_yaml=BAD), **many})
    fake.most_files = 310  # train.yaml stands behind the notes and is cut off
    assert oomlint("review").exit_code == 1
    assert len([p for _, p, _ in fake.asked if "/files" in p]) == 4
    assert "The forge lists only 310 of the changed files" in fake.summary
    assert "make `train.yaml` need 284 of 79.1 GiB per GPU" in fake.summary


def test_each_side_is_linked_once_where_all_of_it_is_concerned(pull_request, monkeypatch):
    links = []

    def counting(workspace, names, *given, **more):
        links.append(workspace.overlay)
        return link(workspace, names, *given, **more)

    link = assess.link
    monkeypatch.setattr(assess, "link", counting)
    pull_request(RUN, run(train_yaml=GOOD.replace("micro_batch_size: 1", "micro_batch_size: 2")))
    assert oomlint("review").exit_code == 0
    assert len(links) == 2


def several(number, micro=8):
    """Runs that differ in what is wrong with them."""
    return {
        f"run{n}.yaml": BAD.replace("micro_batch_size: 8", f"micro_batch_size: {micro + n}")
        if n % 2
        else BAD.replace("sequence_len: 4096", f"sequence_len: {8192 * (n + 1)}")
        for n in range(number)
    }


def test_comments_beyond_the_limit_stand_in_the_summary(pull_request, tmp_path):
    fake = pull_request(RUN, {**RUN, **several(3)})
    oomlint("review", "--max-comments", "1")
    assert len(fake.threads) == 1
    for n in range(3):
        assert f"run{n}.yaml" in fake.summary
    head = fake.repository.files(fake.head)
    assert fake.with_everything(tmp_path / "taken") == fixed(head, tmp_path / "fixed")


@pytest.mark.parametrize(
    ("most", "has_diffs", "has_table"),
    [(20000, True, True), (2600, False, True), (600, False, False)],
)
def test_a_summary_that_would_be_too_long_loses_its_diffs_first(
    pull_request, monkeypatch, most, has_diffs, has_table
):
    short = replace(GitHub.style, most_characters=most)
    monkeypatch.setattr(GitHub, "style", short)
    fake = pull_request(RUN, {**RUN, **several(5)})
    assert oomlint("review", "--max-comments", "0").exit_code == 1
    assert len(fake.summary) < most
    assert "of 79.1 GiB per GPU" in fake.summary
    assert ("```diff" in fake.summary) is has_diffs
    assert ("Memory of 5 runs, before and after" in fake.summary) is has_table


# -- from one review to the next ----------------------------------------------------------------


def push(fake, **files):
    """A further commit on the branch."""
    named = {name.replace("_", "."): text.encode() for name, text in files.items()}
    fake.head = fake.repository.commit(named)


def test_nothing_is_said_twice(pull_request):
    fake = pull_request(RUN, run(train_yaml=BAD))
    oomlint("review")
    said = posts(fake)
    assert oomlint("review").stdout == "nothing new to say\n"
    assert posts(fake) == said


def test_what_is_mended_is_resolved_and_the_summary_follows(pull_request):
    fake = pull_request(RUN, run(train_yaml=BAD))
    oomlint("review")
    push(fake, train_yaml=GOOD + COMMENT)
    result = oomlint("review")
    assert result.exit_code == 0
    assert fake.open_threads == []
    assert len(fake.reviews) == 1
    assert "No run needs more memory by this change." in fake.summary


def test_a_token_that_may_not_resolve_says_so_in_the_comment(pull_request):
    fake = pull_request(RUN, run(train_yaml=BAD))
    oomlint("review")
    fake.can_resolve = False
    push(fake, train_yaml=GOOD)
    assert oomlint("review").exit_code == 0
    assert fake.threads[0].body.startswith("✅ No longer so as of")
    assert "suggestion" not in fake.threads[0].body


def test_a_comment_whose_numbers_change_is_edited_in_its_place(pull_request):
    fake = pull_request(RUN, run(train_yaml=BAD))
    oomlint("review")
    (thread,) = fake.threads
    before = thread.body
    push(fake, train_yaml=BAD.replace("micro_batch_size: 8", "micro_batch_size: 16"))
    oomlint("review")
    assert fake.threads == [thread]
    assert thread.body != before
    assert "gradient_accumulation_steps: 64" in thread.body


def test_a_comment_whose_line_is_gone_makes_room_for_a_new_one(pull_request):
    fake = pull_request(RUN, run(train_yaml=BAD))
    oomlint("review")
    fake.threads[0].outdated = True
    push(fake, train_yaml=COMMENT * 5 + BAD)
    oomlint("review")
    old, new = fake.threads
    assert old.resolved_by == "bot"
    assert (new.first, new.last) == (11, 12)
    assert len(fake.reviews) == 2
    assert "[first review](" in fake.reviews[1]["body"]


def test_what_a_person_has_resolved_is_not_brought_up_again(pull_request):
    fake = pull_request(RUN, run(train_yaml=BAD))
    oomlint("review")
    fake.threads[0].resolved_by = "alice"
    push(fake, train_yaml=BAD.replace("micro_batch_size: 8", "micro_batch_size: 16"))
    oomlint("review")
    assert len(fake.threads) == 1


def test_what_was_mended_and_comes_back_is_said_again(pull_request):
    fake = pull_request(RUN, run(train_yaml=BAD))
    oomlint("review")
    push(fake, train_yaml=GOOD)
    oomlint("review")
    push(fake, train_yaml=BAD)
    oomlint("review")
    assert [t.resolved_by for t in fake.threads] == ["bot", None]


def test_marks_that_others_wrote_count_for_nothing(pull_request):
    fake = pull_request(RUN, run(train_yaml=BAD))
    oomlint("review")
    fake.threads[0].author = fake.reviews[0]["author"] = "mallory"
    text = fake.threads[0].body
    push(fake, train_yaml=GOOD)
    oomlint("review")
    assert fake.threads[0].resolved_by is None
    assert fake.threads[0].body == text


def test_long_lists_are_read_to_their_end(pull_request):
    fake = pull_request(RUN, run(train_yaml=BAD))
    fake.page = 2
    for number in range(5):
        fake.post({"body": f"unrelated {number}", "event": "COMMENT", "comments": [
            {"path": "train.yaml", "line": 6, "side": "RIGHT", "body": "hm"}]})  # fmt: skip
    oomlint("review")
    count = len(fake.threads)
    assert oomlint("review").stdout == "nothing new to say\n"
    assert len(fake.threads) == count == 6


# -- how it ends --------------------------------------------------------------------------------


def test_a_dry_run_prints_the_very_requests_and_posts_nothing(pull_request):
    fake = pull_request(RUN, run(train_yaml=BAD))
    result = oomlint("review", "--dry-run")
    assert result.exit_code == 1
    assert posts(fake) == []
    (wanted,) = json.loads(result.stdout)["requests"]
    oomlint("review")
    (sent,) = [(m, p, b) for m, p, b in fake.asked if (m, p) in posts(fake)]
    assert (wanted["method"], wanted["path"], wanted["body"]) == sent


@pytest.mark.parametrize(
    ("options", "status"),
    [((), 1), (("--exit-zero",), 0), (("--fail-level", "error"), 1), (("--ignore", "OOM"), 0)],
)
def test_the_exit_status_is_that_of_the_findings(pull_request, options, status):
    pull_request(RUN, run(train_yaml=BAD))
    assert oomlint("review", *options).exit_code == status


def test_a_file_that_cannot_be_read_any_more_is_named(pull_request):
    fake = pull_request(RUN, run(ds_json=(DEEPSPEED % 3)[:-4]))
    assert oomlint("review").exit_code == 3
    assert "`ds.json" in fake.summary
    assert "cannot be read" in fake.summary


def test_the_project_s_baseline_counts(pull_request, monkeypatch):
    settings = SETTINGS + 'baseline = "known.json"\n'
    nothing = '{"version": 1, "findings": []}'
    before = {**RUN, "oomlint.toml": settings, "known.json": nothing}
    fake = pull_request(before, {**before, "train.yaml": BAD})
    with monkeypatch.context() as patch:
        patch.chdir(fake.repository.folder)
        oomlint("check", "--baseline", "write")
    known = (fake.repository.folder / "known.json").read_text()
    assert "no-gradient-checkpointing" in known
    push(fake, known_json=known)
    assert oomlint("review").exit_code == 0
    assert fake.threads == []


def test_broken_settings_are_an_error_of_usage(pull_request):
    pull_request(RUN, run(oomlint_toml="hardware = 5\n"))
    result = oomlint("review")
    assert result.exit_code == 2
    assert "oomlint.toml:1" in result.stderr
    assert "/tmp" not in result.stderr


def test_settings_that_a_change_mends_do_not_stop_the_review(pull_request):
    fake = pull_request(run(oomlint_toml="hardware = 5\n"), RUN)
    assert oomlint("review").exit_code == 0
    assert "`train.yaml` fits now" in fake.summary


def test_the_action_s_step_is_a_command_that_exists(pull_request):
    action = YAML(typ="safe").load((Path(__file__).parents[2] / "action.yml").read_text("utf-8"))
    (script,) = [s["run"] for s in action["runs"]["steps"] if s["name"] == "Review"]
    line = script.strip().splitlines()[-1]
    words = line.replace('"${arguments[@]}"', "--hardware 8xH100-80GB").split()
    fake = pull_request(RUN, run(train_yaml=BAD))
    assert words[:2] == ["oomlint", "review"]
    assert oomlint(*words[1:]).exit_code == 1
    assert "8xH100-80GB" in fake.summary
    assert "make `train.yaml` need" in Path("oomlint-review.md").read_text("utf-8")


def test_a_check_does_not_load_what_only_a_review_needs(tmp_path):
    program = (
        "import sys; from oomlint.cli import main; main(['check', '--no-cache', '.'])\n"
        "print(sorted(m for m in sys.modules if m.startswith(('oomlint.review', 'urllib.request'))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
