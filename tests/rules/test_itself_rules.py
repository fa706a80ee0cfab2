"""Findings about oomlint itself that an example of one rule cannot show."""

from pathlib import Path

from oomlint.files.workspace import Workspace
from oomlint.fix.apply import fix_all
from oomlint.linting.engine import Options, lint

RUN = "base_model: meta-llama/Llama-3.2-1B\ndatasets:\n  - path: tatsu-lab/alpaca\n"


def workspace(**files):
    return Workspace(Path("/project"), {f"{n}.{e}": t.encode() for n, (e, t) in files.items()})


def named(report, name):
    return [d.finding for d in report.diagnoses if d.rule.name == name]


def test_comment_is_used_where_its_rule_speaks():
    text = f"{RUN}sequence_length: 1024  # oomlint: ignore[unknown-key-ignored] ours\n"
    report = lint(workspace(train=("yaml", text)), ["train.yaml"], Options())
    assert not named(report, "unknown-key-ignored")
    assert not named(report, "unused-suppression")


def test_comment_is_unused_once_the_finding_is_gone():
    text = f"{RUN}sequence_len: 1024  # oomlint: ignore[unknown-key-ignored] ours\n"
    report = lint(workspace(train=("yaml", text)), ["train.yaml"], Options())
    [finding] = named(report, "unused-suppression")
    assert finding.message.startswith("this comment ignores nothing")


def test_bare_comment_is_judged_when_every_rule_ran():
    text = f"{RUN}# oomlint: ignore\r\nsequence_len: 1024\r\n"
    result = fix_all(workspace(train=("yaml", text)), ["train.yaml"], Options())
    assert result.texts["train.yaml"] == f"{RUN}sequence_len: 1024\r\n".encode()


def test_a_misspelt_name_gets_a_suggestion_and_stays():
    text = f"{RUN}# oomlint: ignore-file[no-gradient-checkpointin]\nsequence_len: 1024\n"
    files = workspace(train=("yaml", text))
    [finding] = named(lint(files, ["train.yaml"], Options()), "unused-suppression")
    assert finding.details == ("did you mean no-gradient-checkpointing?",)
    assert "train.yaml" not in fix_all(files, ["train.yaml"], Options()).texts


def test_comment_on_the_last_line_without_a_line_break():
    text = f"{RUN}sequence_len: 1024\n# oomlint: ignore-file[nothing-of-ours]"
    result = fix_all(workspace(train=("yaml", text)), ["train.yaml"], Options())
    assert result.texts["train.yaml"] == f"{RUN}sequence_len: 1024\n".encode()


def test_referenced_file_that_cannot_be_parsed_is_an_error():
    files = workspace(
        train=("yaml", f"{RUN}deepspeed: ours.json\n"),
        ours=("json", '{"zero_optimization": {"stage": 3}'),
    )
    report = lint(files, ["train.yaml"], Options())
    [finding] = named(report, "referenced-file-missing")
    assert finding.severity.label == "error"
    assert "ours.json cannot be used" in finding.message
    # It may be made anew before the training starts.
    assert finding.details[-1].startswith("with the file as it lies here")
    assert finding.location.path == "train.yaml"
    assert not report.errors


def test_missing_file_is_reported_once_for_all_runs_that_name_it():
    files = workspace(
        one=("yaml", f"{RUN}deepspeed: ours.json\n"), two=("yaml", f"{RUN}deepspeed: ours.json\n")
    )
    report = lint(files, ["one.yaml", "two.yaml"], Options())
    assert {f.location.path for f in named(report, "referenced-file-missing")} == {
        "one.yaml",
        "two.yaml",
    }


def test_long_refused_value_is_cut():
    text = f"{RUN}micro_batch_size: {'many ' * 40}\n"
    report = lint(workspace(train=("yaml", text)), ["train.yaml"], Options())
    [finding] = named(report, "invalid-value")
    assert len(finding.message) <= 80
    assert finding.message.startswith("micro_batch_size cannot be many many")


def test_zero3_that_only_the_command_line_names_has_nothing_to_write_the_gather_in():
    text = (
        "stage: sft\nmodel_name_or_path: meta-llama/Llama-3.2-1B\nfinetuning_type: full\n"
        "template: llama3\ndataset: identity\noutput_dir: out\ndo_train: true\n"
    )
    told = {"parallel.backend": "zero", "parallel.zero.stage": 3, "host.ram_gib": 1024.0}
    report = lint(workspace(train=("yaml", text)), ["train.yaml"], Options(values=told))
    assert not report.errors
    [finding] = named(report, "zero3-gather-off-empty-model")
    assert "stage3_gather_16bit_weights_on_model_save is not set" in finding.text
    assert not finding.proposals
