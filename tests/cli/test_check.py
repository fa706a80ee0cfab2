"""``oomlint check``: options, exit statuses, fixing, standard input."""

import errno
import json
import os
import subprocess
import sys
from typing import get_args

import pytest

from oomlint.cli import checking
from oomlint.config.settings import OutputFormat
from oomlint.documents import write
from oomlint.errors import ReadError
from oomlint.fix import planned

H100 = ("--hardware", "H100-80GB")
# On which recomputing activations is enough.
H200 = ("--hardware", "H200-141GB")


def findings(result):
    return json.loads(result.stdout)["findings"]


def test_check_is_the_default_command(oomlint, axolotl):
    plain = oomlint("axolotl.yaml", *H100)
    named = oomlint("check", "axolotl.yaml", *H100)
    first = oomlint(*H100, "axolotl.yaml")
    assert plain.stdout == named.stdout == first.stdout
    assert plain.exit_code == 1
    assert "OOM101 no-gradient-checkpointing" in plain.stdout


def test_no_path_means_the_working_directory(oomlint, axolotl):
    assert "axolotl.yaml:7:1" in oomlint(*H100).stdout


def test_a_clean_folder_exits_with_0(oomlint, project):
    (project / "notes.yaml").write_text("a: 1\n")
    result = oomlint()
    assert result.exit_code == 0
    assert "no training run found" in result.stdout
    assert "Looked for: configs of Axolotl" in result.stdout
    assert "oomlint estimate" in result.stdout


def test_a_record_of_hydra_is_no_run_unless_it_is_named(oomlint, axolotl, project):
    record = project / "outputs" / "2025-07-17" / "15-30-34" / ".hydra"
    record.mkdir(parents=True)
    for name in ("hydra.yaml", "overrides.yaml"):
        (record / name).write_text("")
    config = axolotl.rename(record / "config.yaml")
    assert "no training run found" in oomlint(*H100).stdout
    assert "config.yaml:7:1" in oomlint(str(config.relative_to(project)), *H100).stdout


def test_a_missing_path_is_a_usage_error_that_names_it(oomlint):
    result = oomlint("nowhere/config.yaml")
    assert result.exit_code == 2
    assert "nowhere/config.yaml does not exist" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--hardware", "8xA100-60GB"], "A100-80GB"),
        (["--hardware", "H10O-80GB"], "nearest"),
        (["--host-memory", "much"], "no amount of memory"),
        (["--gpus", "0"], "--gpus 0"),
        (["--select", "no-such-rule"], "no rule is called"),
        (["--ignore", "zero-stage-to-low"], "did you mean zero-stage-too-low"),
        (["--framework", "axolot"], "did you mean axolotl"),
        (["--set", "seq.maxlen=1"], "did you mean seq.max_len"),
        (["--set", "seq.max_len=long"], "should be a whole number"),
        (["--set", "seq"], "KEY=VALUE"),
        (["--set", "parallel.zero=3"], "group of fields"),
        (["--no-such-option"], "No such option"),
        (["--fail-level", "fatal"], "fatal"),
        (["--config", "missing.toml"], "missing.toml does not exist"),
        (["--stdin-filename", "a.yaml"], "needs the path"),
        (["-"], "--stdin-filename"),
        (["--project-root", "missing"], "missing"),
    ],
)
def test_wrong_usage_exits_with_2_and_says_why(oomlint, axolotl, arguments, message):
    result = oomlint(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_a_named_broken_file_exits_with_3_and_the_rest_is_linted(oomlint, axolotl, project):
    (project / "broken.yaml").write_text("base_model: [\n")
    result = oomlint("broken.yaml", "axolotl.yaml", *H100)
    assert result.exit_code == 3
    assert "broken.yaml" in result.stderr
    assert "OOM101" in result.stdout


def test_another_broken_file_in_a_folder_is_passed_over(oomlint, axolotl, project):
    (project / "other.json").write_text("{ not json")
    result = oomlint(*H100)
    assert result.exit_code == 1
    assert "other.json" not in result.output


def test_an_unexpected_exception_is_one_line_and_status_3(oomlint, axolotl, monkeypatch):
    def explode(*_args, **_kwargs):
        raise ZeroDivisionError("of\nours")

    monkeypatch.setattr("oomlint.cli.checking.lint", explode)
    result = oomlint("axolotl.yaml")
    assert result.exit_code == 3
    assert result.stderr.count("\n") == 1
    assert "internal error" in result.stderr
    assert "of ours (ZeroDivisionError)" in result.stderr


@pytest.mark.parametrize(("level", "status"), [("error", 0), ("warning", 1), ("info", 1)])
def test_fail_level(oomlint, axolotl, level, status):
    # Nobody says which hardware: what would not fit a common card is a warning.
    result = oomlint("axolotl.yaml", "--fail-level", level)
    assert "warning OOM101" in result.stdout
    assert result.exit_code == status


def test_exit_zero_hides_findings_but_not_broken_files(oomlint, axolotl, project):
    assert oomlint("axolotl.yaml", "--exit-zero", *H100).exit_code == 0
    (project / "broken.yaml").write_text("a: [\n")
    assert oomlint("axolotl.yaml", "broken.yaml", "--exit-zero", *H100).exit_code == 3


def test_select_on_the_command_line_replaces_what_the_settings_ignore(oomlint, axolotl, project):
    (project / "oomlint.toml").write_text('ignore = ["OOM101"]\n')
    assert "OOM101" not in oomlint("axolotl.yaml", *H100).stdout
    assert "OOM101" in oomlint("axolotl.yaml", "--select", "OOM1", *H100).stdout


def test_select_extend_select_and_ignore(oomlint, axolotl):
    def codes(*arguments):
        result = oomlint("axolotl.yaml", *H100, "--output-format", "json", *arguments)
        return {finding["code"] for finding in findings(result)}

    everything = codes()
    assert {"OOM101", "OOM102"} <= everything
    assert codes("--select", "OOM101") == {"OOM101"}
    assert codes("--select", "no-gradient-checkpointing,OOM102") == {"OOM101", "OOM102"}
    assert codes("--select", "OOM8", "--extend-select", "OOM102") == {"OOM102"}
    assert codes("--ignore", "OOM1") == {c for c in everything if not c.startswith("OOM1")}


def test_fix_rewrites_in_place_and_reports_what_is_left(oomlint, axolotl):
    before = axolotl.read_text()
    result = oomlint(
        "axolotl.yaml", "--fix", "--select", "OOM101", *H200, "--output-format", "json"
    )
    summary = json.loads(result.stdout)["summary"]
    assert summary["fixed"] == 1
    assert findings(result) == []
    assert result.exit_code == 0
    assert axolotl.read_text().replace("gradient_checkpointing: true\n", "") == before
    again = oomlint("axolotl.yaml", "--fix", "--select", "OOM101", *H200)
    assert again.exit_code == 0
    assert "fixed" not in again.stdout


def test_verbose_lists_the_prediction_of_every_run(oomlint, axolotl):
    small = axolotl.with_name("small.yaml")
    small.write_text(axolotl.read_text() + "adapter: qlora\nload_in_4bit: true\n"
                     "gradient_checkpointing: true\nlora_r: 8\nlora_target_linear: true\n")  # fmt: skip
    usual, told = oomlint(".", *H100), oomlint(".", *H100, "--verbose")
    assert "predicted peak" not in usual.stdout
    lines = [line for line in told.stdout.splitlines() if "predicted peak" in line]
    assert [line.partition(":")[0] for line in lines] == ["axolotl.yaml", "small.yaml"]
    for verdict in ("does not fit H100-80GB", ": fits H100-80GB"):
        assert verdict in " ".join(told.stdout.split())
    assert told.exit_code == usual.exit_code
    # What is for programs stays what it is.
    as_json = ("--output-format", "json")
    assert oomlint(".", *H100, *as_json).stdout == oomlint(".", *H100, *as_json, "-v").stdout


def test_show_fixes_lists_what_was_applied(oomlint, axolotl):
    fixing = ("axolotl.yaml", "--fix", "--select", "OOM101", *H200, "--show-fixes")
    result = oomlint(*fixing)
    [line] = [line for line in result.stdout.splitlines() if line.startswith("fixed ")]
    assert line.startswith("fixed axolotl.yaml: OOM101 no-gradient-checkpointing: ")
    assert len(line.split(": ")[-1]) > 10
    assert result.stdout.splitlines()[-1].endswith("1 fixed in 1 file")
    assert "fixed" not in oomlint(*fixing).stdout


def test_show_fixes_is_heard_though_all_else_is_quiet(oomlint, axolotl):
    result = oomlint("axolotl.yaml", "--fix", "--select", "OOM101", *H200, "--show-fixes", "-q")
    assert result.stdout.startswith("fixed axolotl.yaml: OOM101 ")


def test_show_fixes_of_a_diff_says_what_would_be_done_and_leaves_the_diff_alone(oomlint, axolotl):
    asked = ("axolotl.yaml", "--diff", "--select", "OOM101", *H200)
    plain, shown = oomlint(*asked), oomlint(*asked, "--show-fixes")
    assert plain.stdout == shown.stdout
    assert "would fix axolotl.yaml: OOM101 no-gradient-checkpointing: " in shown.stderr
    assert "would fix" not in plain.stderr


def test_exit_non_zero_on_fix(oomlint, axolotl):
    arguments = ("axolotl.yaml", "--fix", "--select", "OOM101", "--exit-non-zero-on-fix", *H200)
    assert oomlint(*arguments).exit_code == 1
    assert oomlint(*arguments).exit_code == 0


def test_without_fix_nothing_is_written(oomlint, axolotl):
    before = axolotl.read_bytes()
    oomlint("axolotl.yaml", *H100)
    oomlint("axolotl.yaml", "--diff", *H100)
    oomlint("axolotl.yaml", "--diff", "--fix", *H100)
    assert axolotl.read_bytes() == before


def test_diff_is_the_whole_fixpoint_and_has_the_status_of_check(oomlint, axolotl):
    axolotl.write_bytes(axolotl.read_bytes().rstrip(b"\n"))
    before = axolotl.read_bytes()
    shown = oomlint("axolotl.yaml", "--diff", *H100)
    assert shown.exit_code == 1
    assert "+micro_batch_size: " in shown.stdout
    assert "\\ No newline at end of file" in shown.stdout
    (oomlint.folder / "the.diff").write_bytes(shown.stdout_bytes)
    subprocess.run(["patch", "-s", "-p1", "-i", "the.diff"], check=True)
    patched = axolotl.read_bytes()
    axolotl.write_bytes(before)
    oomlint("axolotl.yaml", "--fix", *H100)
    assert axolotl.read_bytes() == patched


def test_diff_of_a_clean_file_is_empty(oomlint, axolotl):
    oomlint("axolotl.yaml", "--fix", "--select", "OOM101", *H200)
    result = oomlint("axolotl.yaml", "--diff", "--select", "OOM101", *H200)
    assert (result.stdout, result.exit_code) == ("", 0)


def test_standard_input_goes_through_a_name(oomlint, axolotl, project):
    text = axolotl.read_bytes()
    axolotl.unlink()
    result = oomlint("-", "--stdin-filename", "configs/x.yaml", *H200, stdin=text)
    assert result.exit_code == 1
    assert "configs/x.yaml:7:1" in result.stdout
    fixed = oomlint(
        "-", "--stdin-filename", "x.yaml", "--fix", "--select", "OOM101", *H200, stdin=text
    )
    assert fixed.exit_code == 0
    assert "gradient_checkpointing: true\n" in fixed.stdout
    assert fixed.stdout.startswith("base_model:")
    assert "1 fixed" in fixed.stderr
    assert not list(project.iterdir())


def test_standard_input_that_needs_no_fix_is_echoed(oomlint, project):
    result = oomlint("-", "--stdin-filename", "x.yaml", "--fix", stdin=b"a: 1\r\n")
    assert result.stdout_bytes == b"a: 1\r\n"


def test_output_file(oomlint, axolotl, project):
    result = oomlint("axolotl.yaml", *H100, "--output-format", "json", "--output-file", "out.json")
    assert result.stdout == ""
    assert json.loads((project / "out.json").read_text())["summary"]["runs"] == 1
    again = oomlint(
        "axolotl.yaml", *H100, "--output-format", "concise", "--output-file", "out.json"
    )
    assert again.exit_code == 1
    assert (project / "out.json").read_text().startswith("axolotl.yaml:")


def test_hardware_options(oomlint, axolotl):
    def run(*arguments):
        result = oomlint("axolotl.yaml", "--output-format", "json", *arguments)
        return json.loads(result.stdout)["runs"][0]

    assert run()["hardware"] is None
    assert run()["verdict"] == "unknown"
    known = run("--hardware", "2x8xH100-80GB", "--host-memory", "1TiB")["hardware"]
    assert (known["nodes"], known["gpus_per_node"], known["gpu"]) == (2, 8, "H100-80GB")
    assert known["host_bytes_per_node"] == 2**40
    assert run("--hardware", "H100-80GB", "--gpus", "2x4")["hardware"]["name"] == "2x4xH100-80GB"
    assert run("--set", "seq.max_len=128")["plan"]["seq"]["max_len"] == 128


def test_statistics(oomlint, axolotl):
    result = oomlint("axolotl.yaml", *H200, "--select", "OOM101", "--statistics")
    assert result.stdout == "1  OOM101  [*] no-gradient-checkpointing\n"
    assert result.exit_code == 1


@pytest.mark.parametrize("options", [(), ("--fix",)])
def test_profile_names_the_rules_that_ran(oomlint, axolotl, options):
    result = oomlint("axolotl.yaml", *H100, "--select", "OOM101", "--profile", *options)
    assert result.stderr.split()[1:] == ["ms", "no-gradient-checkpointing"]


@pytest.mark.parametrize("form", ["concise", "github", "gitlab", "junit"])
def test_where_no_fix_is_shown_nobody_looks_for_a_plan(oomlint, axolotl, monkeypatch, form):
    asked = []

    def planned_report(report, *others):
        asked.append(report)
        return real(report, *others)

    real = planned.planned_report
    monkeypatch.setattr(planned, "planned_report", planned_report)
    words = ("axolotl.yaml", *H100, "--output-format", form)
    said = oomlint(*words)
    assert not asked
    oomlint(*words, "--statistics")
    assert asked
    monkeypatch.setattr(checking, "_WITHOUT_FIXES", ())
    assert oomlint(*words).stdout == said.stdout
    assert len(asked) == 2


def test_show_files(oomlint, axolotl, project):
    (project / "other.yaml").write_text("a: 1\n")
    assert oomlint("--show-files").stdout == "axolotl.yaml\taxolotl\n"


def test_quiet_prints_findings_only(oomlint, axolotl):
    result = oomlint("axolotl.yaml", *H100, "--quiet", "--select", "OOM101")
    assert "OOM101" in result.stdout
    assert "predicted peak" not in result.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "variables", "colored"),
    [
        ((), {}, False),
        (("--color", "always"), {}, True),
        ((), {"FORCE_COLOR": "1"}, True),
        ((), {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        (("--color", "never"), {"FORCE_COLOR": "1"}, False),
        (("--color", "always"), {"NO_COLOR": "1"}, True),
    ],
)
def test_color(oomlint, axolotl, monkeypatch, arguments, variables, colored):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert ("\x1b[" in oomlint("axolotl.yaml", *H100, *arguments).stdout) is colored


def test_writing_is_all_or_nothing(tmp_path, monkeypatch):
    names = ["a.yaml", "b.yaml", "c.yaml"]
    originals = {name: f"{name} old".encode() for name in names}
    for name, data in originals.items():
        (tmp_path / name).write_bytes(data)
    real = os.replace

    def failing(source, target):
        if target.name == "c.yaml":
            raise OSError(errno.ENOSPC, "disk full")
        real(source, target)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(ReadError, match="cannot be written: disk full"):
        write.write_all(dict.fromkeys(names, b"new"), originals, tmp_path, [tmp_path])
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == originals


def test_a_file_that_changed_meanwhile_is_left_alone(oomlint, axolotl, monkeypatch):
    def write_over(*arguments):
        axolotl.write_text("# somebody else's\n")
        write.write_all(*arguments)

    monkeypatch.setattr("oomlint.cli.checking.write_all", write_over)
    result = oomlint("axolotl.yaml", "--fix", "--select", "OOM101", *H200)
    assert result.exit_code == 3
    assert "nothing was written" in result.stderr
    assert "no training run" in result.stdout, "the report is about what stands on disk"
    assert axolotl.read_text() == "# somebody else's\n"


def test_a_link_out_of_the_project_is_not_followed(oomlint, axolotl, project, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "real.yaml"
    before = axolotl.read_text()
    outside.write_text(before)
    (project / "link.yaml").symlink_to(outside)
    result = oomlint(".", "--fix", "--select", "OOM101", *H200)
    assert result.exit_code == 1
    assert "link.yaml lies outside of what is checked" in result.stdout
    assert outside.read_text() == before
    assert "gradient_checkpointing: true" in axolotl.read_text(), "the others are fixed"
    axolotl.write_text(before)
    (project / "link.yaml").unlink()
    (project / "inner.yaml").symlink_to(axolotl)
    assert oomlint("inner.yaml", "--fix", "--select", "OOM101", *H200).exit_code == 0
    assert (project / "inner.yaml").is_symlink()
    assert "gradient_checkpointing: true" in axolotl.read_text()


@pytest.mark.parametrize("path", ["../{}/ds.json", "{}/ds.json", "linked/ds.json"])
def test_what_a_config_names_elsewhere_is_shown_and_not_changed(
    oomlint, project, tmp_path_factory, path
):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    before = '{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": "auto"}\n'
    (elsewhere / "ds.json").write_text(before)
    (project / "linked").symlink_to(elsewhere)
    up = os.path.relpath(elsewhere, project.parent) if path.startswith("..") else elsewhere
    train = "\n".join(
        (
            "model_name_or_path: meta-llama/Llama-2-70b-hf",
            "stage: sft\ndo_train: true\nfinetuning_type: full\ndataset: alpaca_en\ntemplate: llama2",
            "output_dir: out\nper_device_train_batch_size: 8\nbf16: true",
            f"deepspeed: {path.format(up)}\n",
        )
    )
    (project / "llama_factory.yaml").write_text(train)
    result = oomlint("llama_factory.yaml", "--fix", "--unsafe-fixes", *H100)
    assert "ds.json lies outside of what is checked" in " ".join(result.stdout.split())
    assert (elsewhere / "ds.json").read_text() == before
    assert [file.name for file in elsewhere.iterdir()] == ["ds.json"]
    assert oomlint("llama_factory.yaml", str(elsewhere), "--fix", "--unsafe-fixes", *H100)
    assert (elsewhere / "ds.json").read_text() != before, "a folder that is named is checked, too"


@pytest.mark.skipif(sys.platform != "linux", reason="file names are text elsewhere")
@pytest.mark.parametrize("form", get_args(OutputFormat))
def test_a_file_name_that_is_no_text(oomlint, axolotl, project, form):
    axolotl.rename(os.fsdecode(os.fsencode(project) + b"/\xff.yaml"))
    result = oomlint(".", *H100, "--output-format", form)
    assert result.exit_code == 1, result.stderr
    if form in ("json", "gitlab", "sarif", "rdjson", "lsp"):
        assert json.loads(result.stdout_bytes.decode())


def test_the_installed_command(axolotl):
    """One real process: bytes on standard output are UTF-8 whatever the locale."""
    axolotl.write_text(axolotl.read_text() + "# größer 😀\n")
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "oomlint", "axolotl.yaml", *H100, "--output-format", "json"],
        capture_output=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout.decode("utf-8"))["summary"]["runs"] == 1


def test_start_up_imports_no_heavy_module():
    code = (
        "import sys; from oomlint.cli import main; main(['--version']); "
        "heavy = {'libcst', 'jsonschema', 'pydantic', 'rich', 'tree_sitter', 'ruamel'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    version, heavy = done.stdout.splitlines()
    assert version == "oomlint 0.1.0"
    assert heavy == "[]"


def test_a_closed_pipe_is_no_error(project):
    command = [sys.executable, "-m", "oomlint", "models", "--output-format", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.read(1) == b"["
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0
