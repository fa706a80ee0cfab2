"""Selecting rules, suppressing findings, ordering them, and the exit status."""

from pathlib import Path

import pytest

from oomlint.documents.text import Location, Span
from oomlint.errors import UsageError
from oomlint.files.workspace import Workspace
from oomlint.fix.apply import fix_all
from oomlint.judgement import judgement_of
from oomlint.linting import engine
from oomlint.linting.engine import Options, Selection, all_rules, lint
from oomlint.linting.rule import Applicability, Proposal, Rule, Severity

RUN = "base_model: meta-llama/Llama-3.2-1B\nmicro_batch_size: 1\ndatasets:\n  - path: a/b\n"


class Talks(Rule):
    """Speaks about every run, at its micro batch."""

    code = "OOM101"
    name = "talks-a-lot"
    severity = Severity.WARNING

    def check(self, run):
        yield self.finding(run, self.severity, "found it", at="batch.micro")


class Whispers(Talks):
    """Speaks about the length."""

    code = "OOM112"
    name = "whispers"
    severity = Severity.INFO

    def check(self, run):
        yield self.finding(run, self.severity, "found it", at="seq.max_len")


class Fails(Rule):
    """Finds one thing and then breaks."""

    code = "OOM201"
    name = "fails"

    def check(self, run):
        yield self.finding(run, Severity.ERROR, "before the fall", at="model.id")
        raise KeyError("oops")


UNUSED = next(rule for rule in all_rules() if rule.name == "unused-suppression")
ALL = (Talks, Whispers, UNUSED)


class Shouts(Rule, code="OOM113", name="shouts", fixes=Applicability.UNSAFE, cost=7):
    """Says in its head what the others say in their bodies."""

    def check(self, run):
        yield self.warning(run, "found it", at="batch.micro", confidence="low")


def test_what_a_head_says_is_the_rule_s():
    said = (Shouts.code, Shouts.name, Shouts.applicability, Shouts.cost)
    assert said == ("OOM113", "shouts", Applicability.UNSAFE, 7)
    unnamed = type("Unnamed", (Rule,), {"__module__": "acme.no_such_thing"}, code="ACM101")
    assert (unnamed.name, unnamed.applicability, unnamed.cost) == ("no-such-thing", None, 0)
    (diagnosis,) = run_lint({"a.yaml": RUN}, rules=(Shouts,)).diagnoses
    found = diagnosis.finding
    assert (found.severity, found.confidence) == (Severity.WARNING, "low")


def run_lint(files, rules=ALL, **selection):
    texts = {n: t if isinstance(t, bytes) else t.encode() for n, t in files.items()}
    workspace = Workspace(Path("/project"), texts)
    return lint(workspace, list(files), Options(Selection(**selection)), rules=rules)


def said(report):
    return [(d.rule.name, d.finding.location.path) for d in report.diagnoses]


# -- selection --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selection", "taken"),
    [
        ({}, "101 112 201"),
        ({"select": ("OOM1",)}, "101 112"),
        ({"select": ("OOM1",), "ignore": ("OOM11",)}, "101"),
        ({"select": ("OOM112",), "ignore": ("OOM1",)}, "112"),
        ({"select": ("ALL",), "ignore": ("OOM1",)}, "201"),
        ({"ignore": ("ALL",)}, ""),
        ({"ignore": ("OOM",), "extend_select": ("whispers",)}, "112"),
        ({"ignore": ("ALL",), "extend_select": ("OOM2",)}, "201"),
        ({"select": ("fails",), "extend_select": ("OOM11",)}, "112 201"),
        ({"select": ("OOM112",), "ignore": ("whispers",)}, ""),
        ({"select": ("OOM1",), "ignore": ("OOM1",)}, ""),
    ],
)
def test_the_more_specific_word_wins_and_ignoring_wins_a_draw(selection, taken):
    chosen = [r.code[3:] for r in (Talks, Whispers, Fails) if Selection(**selection).takes(r)]
    assert " ".join(chosen) == taken


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("whisper", "did you mean whispers?"),
        ("OOM113", "did you mean OOM112?"),
        ("OOM9", "see `oomlint rules`"),
        ("", "see `oomlint rules`"),
        ("O", "see `oomlint rules`"),
        ("all", "see `oomlint rules`"),
    ],
)
@pytest.mark.parametrize("where", ["select", "extend_select", "ignore", "per_file_ignores"])
def test_words_that_name_no_rule_are_refused(word, hint, where):
    words = {"*": (word,)} if where == "per_file_ignores" else (word,)
    with pytest.raises(UsageError) as caught:
        Selection(**{where: words}).check([Talks, Whispers, Fails])
    assert repr(word) in str(caught.value)
    assert hint in str(caught.value)


@pytest.mark.parametrize("word", ["ALL", "OOM", "OOM1", "OOM112", "whispers"])
def test_words_that_name_rules_pass(word):
    Selection(select=(word,)).check([Talks, Whispers])


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("a/b/x.yaml", True),
        ("a/*", True),
        ("a/**/x.yaml", True),
        ("**/x.yaml", True),
        ("a/b/**/x.yaml", True),
        ("**/b/**", True),
        ("*.yaml", True),
        ("b/x.yaml", False),
        ("x.yaml", False),
        ("A/B/X.YAML", False),
        ("a/**/c/x.yaml", False),
        ("a/[", False),
    ],
)
def test_per_file_ignores_are_patterns_of_display_paths(pattern, matches):
    report = run_lint({"a/b/x.yaml": RUN}, [Talks], per_file_ignores={pattern: ("OOM1",)})
    assert (report.diagnoses == ()) is matches


def test_per_file_ignores_concern_their_rules_only():
    report = run_lint({"x.yaml": RUN}, per_file_ignores={"*": ("whispers",)})
    assert said(report) == [("talks-a-lot", "x.yaml")]


# -- the report -------------------------------------------------------------------------


def test_exit_status():
    sound = run_lint({"x.yaml": RUN}, [Whispers])
    assert sound.exit_status(Severity.WARNING) == 0
    assert sound.exit_status(Severity.INFO) == 1
    broken = run_lint({"x.yaml": RUN, "y.yaml": f"{RUN}a: [\n"}, [Talks])
    assert broken.at_least(Severity.WARNING) == 1
    assert broken.exit_status(Severity.ERROR) == 3


def test_rule_that_fails_keeps_what_was_found_and_is_reported_by_name():
    report = run_lint({"x.yaml": RUN}, (Fails, Talks))
    assert {name for name, _ in said(report)} == {"fails", "talks-a-lot"}
    [error] = report.errors
    assert (error.path, error.kind) == ("x.yaml", "internal")
    assert "rule fails failed: there is no 'oops' (KeyError)" in error.message
    assert report.exit_status(Severity.ERROR) == 3


def test_run_that_cannot_be_judged_leaves_the_others(monkeypatch: pytest.MonkeyPatch):
    def judged(run):
        if run.claims[0].path == "x.yaml":
            raise ZeroDivisionError("division by zero")
        return judgement_of(run)

    monkeypatch.setattr(engine, "judgement_of", judged)
    report = run_lint({"x.yaml": RUN, "y.yaml": RUN}, (Talks,))
    assert said(report) == [("talks-a-lot", "y.yaml")]
    assert len(report.runs) == 1
    [error] = report.errors
    assert (error.path, error.kind) == ("x.yaml", "internal")
    assert "predicting what it needs failed: division by zero" in error.message


def test_findings_are_ordered_by_place_and_reported_once():
    text = f"{RUN}deepspeed: ds.json\n"
    zero = '{"zero_optimization": {"stage": 2}}'

    class Stage(Talks):
        def check(self, run):
            yield self.finding(run, Severity.INFO, "same", at="parallel.zero.stage")

    report = run_lint({"b.yaml": text, "a.yaml": text, "ds.json": zero}, [Stage, Talks])
    assert said(report) == [
        ("talks-a-lot", "a.yaml"),
        ("talks-a-lot", "b.yaml"),
        ("talks-a-lot", "ds.json"),
    ]
    assert report.files == ("b.yaml", "ds.json", "a.yaml")
    assert report.files_read == 3


def test_fingerprint_does_not_depend_on_the_line():
    before = run_lint({"x.yaml": RUN}, [Talks]).diagnoses[0]
    after = run_lint({"x.yaml": f"# moved\n\n{RUN}"}, [Talks]).diagnoses[0]
    assert before.finding.location != after.finding.location
    assert before.fingerprint == after.fingerprint
    assert before.fingerprint != run_lint({"y.yaml": RUN}, [Talks]).diagnoses[0].fingerprint


def test_timings_are_kept_by_rule():
    timings = {}
    workspace = Workspace(Path("/project"), {"x.yaml": RUN.encode()})
    lint(workspace, ["x.yaml"], Options(), rules=(Talks, Fails), timings=timings)
    assert set(timings) == {"talks-a-lot", "fails"}


# -- suppression ------------------------------------------------------------------------


def quiet(text, name="x.yaml", rules=(Talks, UNUSED)):
    return said(run_lint({name: text}, rules)) == []


@pytest.mark.parametrize(
    "text",
    [
        RUN.replace("size: 1", "size: 1  # oomlint: ignore[talks-a-lot] known"),
        RUN.replace("size: 1", "size: 1 #oomlint:ignore[OOM101]"),
        RUN.replace("size: 1", "size: 1  # why? # oomlint: ignore[whispers, talks-a-lot]"),
        RUN.replace("size: 1", "size: 1  # oomlint: ignore"),
        RUN.replace("micro", "# oomlint: ignore[talks-a-lot]\nmicro"),
        RUN.replace("micro", "# oomlint: ignore[talks-a-lot]\n# and more\nmicro"),
        RUN.replace("\n", "\r\n").replace("micro", "# oomlint: ignore[talks-a-lot]\r\nmicro"),
        f"# oomlint: ignore-file[talks-a-lot]\n{RUN}",
        f"{RUN}# oomlint: ignore-file",
        f"\ufeff# oomlint: ignore-file[OOM101]\n{RUN}",
    ],
)
def test_comments_that_silence(text):
    assert quiet(text)


@pytest.mark.parametrize(
    "text",
    [
        RUN.replace("micro", "# oomlint: ignore[talks-a-lot]\n\nmicro"),
        RUN.replace("size: 1", "size: 1\n# oomlint: ignore[talks-a-lot]"),
        RUN.replace("size: 1", "size: 1  # oomlint: ignored"),
        RUN.replace("micro", "chat: |\n  # oomlint: ignore\nmicro"),
        f"{RUN}chat: |\n  # oomlint: ignore-file\n",
        f'{RUN}chat: "# oomlint: ignore-file"\n',
        f"{RUN}chat: '\n  # oomlint: ignore-file'\n",
    ],
)
def test_comments_and_texts_that_do_not(text):
    assert ("talks-a-lot", "x.yaml") in said(run_lint({"x.yaml": text}))


def test_comment_behind_the_head_of_a_block_of_text_counts():
    assert quiet(f"{RUN}chat: |  # oomlint: ignore-file[talks-a-lot]\n  text\n")


def test_json_has_no_comments():
    text = '// # oomlint: ignore-file\n{"zero_optimization": {"stage": 2}}'
    assert said(run_lint({"ds.json": text}, [Talks])) == [("talks-a-lot", "ds.json")]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{run}sequence_len: 8  # oomlint: ignore[no-such]\n", "{run}sequence_len: 8\n"),
        ("{run}sequence_len: 8 # a # oomlint: ignore[no-such]\n", "{run}sequence_len: 8 # a\n"),
        ("{run}  # oomlint: ignore[no-such] why\nsequence_len: 8\n", "{run}sequence_len: 8\n"),
        ("{run}# oomlint: ignore[no-such-rule]\r\n\r\n", "{run}\r\n"),
        ("{run}# oomlint: ignore-file[no-such-rule]", "{run}"),
        ("\ufeff# oomlint: ignore[no-such]\n{run}", "\ufeff{run}"),
    ],
)
def test_stale_comments_are_removed_whole(before, after):
    before, after = before.format(run=RUN), after.format(run=RUN)
    workspace = Workspace(Path("/project"), {"x.yaml": before.encode()})
    result = fix_all(workspace, ["x.yaml"], Options(), rules=(UNUSED,))
    assert result.texts["x.yaml"] == after.encode()


def test_stale_comments_of_rules_that_ran_are_removed_whole():
    named = next(rule for rule in all_rules() if rule.name == "unknown-key-ignored")
    for text in (
        f"{RUN}sequence_len: 8  # oomlint: ignore[unknown-key-ignored]\n",
        f"{RUN}# oomlint: ignore[unknown-key-ignored]\nsequence_len: 8\n",
    ):
        workspace = Workspace(Path("/project"), {"x.yaml": text.encode()})
        result = fix_all(workspace, ["x.yaml"], Options(), rules=(UNUSED, named))
        assert result.texts["x.yaml"].decode() == f"{RUN}sequence_len: 8\n"


def test_comment_is_kept_where_its_rule_did_not_run_or_failed():
    class Unsound(Rule):
        code, name = "OOM801", "unknown-key-ignored"

        def check(self, run):
            raise KeyError("oops")

    text = f"{RUN}# oomlint: ignore[unknown-key-ignored]\nsequence_len: 8\n"
    assert said(run_lint({"x.yaml": text}, (UNUSED,))) == []
    assert said(run_lint({"x.yaml": text}, (UNUSED, Unsound))) == []


SHELL = (
    "#!/bin/bash\n{above}trl sft \\\n  --model_name_or_path meta-llama/Llama-3.2-1B \\\n"
    "  --dataset_name a/b --per_device_train_batch_size 4{behind}\n"
)


class OnLaunch(Rule):
    """Speaks about the last line of a launch line."""

    code, name = "OOM101", "talks-a-lot"

    def check(self, run):
        for claim in run.claims:
            if claim.path.endswith(".sh"):
                at = claim.document.source.text.index("--per_device")
                place = Location(claim.path, Span(at, at + 5))
                yield self.finding(run, Severity.WARNING, "here", at=place)


@pytest.mark.parametrize(
    ("above", "behind", "found"),
    [
        ("", "", True),
        ("# oomlint: ignore[talks-a-lot]\n", "", False),
        ("# oomlint: ignore[talks-a-lot]\n# more\n", "", False),
        ("", "  # oomlint: ignore[talks-a-lot]", False),
        ("echo '# oomlint: ignore-file'\n", "", True),
        ("cat <<EOF\n# oomlint: ignore-file\nEOF\n", "", True),
    ],
)
def test_shell_comments_speak_of_a_whole_command(above, behind, found):
    text = SHELL.format(above=above, behind=behind)
    report = run_lint({"go.sh": text}, (OnLaunch,))
    assert len(report.runs) == 1
    assert bool(report.diagnoses) is found


def test_python_strings_are_no_comments():
    from oomlint.documents.comments import comments
    from oomlint.documents.text import Source

    text = "a = '# no'\r\nb = 1  # yes é\r\n'''\n# no\n'''\n# oui\n"
    spans = comments(Source("x.py", text), None)
    assert [text[s.start : s.end] for s in spans] == ["# yes é", "# oui"]


def test_first_fix_that_can_be_written_is_offered():
    class Offers(Talks):
        def check(self, run):
            yield self.finding(
                run,
                Severity.WARNING,
                "found it",
                proposals=[
                    Proposal.set("impossible", {"offload.nvme_path": "/x"}),
                    Proposal.set("possible", {"seq.max_len": 256}),
                ],
            )

    [diagnosis] = run_lint({"x.yaml": RUN}, [Offers]).diagnoses
    assert diagnosis.fix.title == "possible"
