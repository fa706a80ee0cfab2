"""What is said of a file that was named, as pre-commit names those of a commit, where others of its project start it."""

import json

import pytest
from tests.configs import llama_factory

MACHINE = ("--hardware", "4xA100-80GB", "--output-format", "json")


@pytest.fixture
def checkout(project):
    (project / ".git").mkdir()
    configs, scripts = project / "configs", project / "scripts"
    configs.mkdir()
    scripts.mkdir()
    for name in ("one", "other"):
        (configs / f"{name}.yaml").write_text(
            llama_factory(length=4096, output=f"saves/{name}", micro=2)
        )
        (scripts / f"{name}.sh").write_text(
            f"FORCE_TORCHRUN=1 llamafactory-cli train configs/{name}.yaml\n"
        )
    return project


def told(result):
    report = json.loads(result.stdout)
    findings = {(f["path"], f["code"], f["severity"], f["message"]) for f in report["findings"]}
    return findings, {run["name"] for run in report["runs"]}


def test_a_named_config_is_judged_as_the_script_beside_starts_it(oomlint, checkout):
    whole, _ = told(oomlint(*MACHINE))
    named, runs = told(oomlint("configs/one.yaml", *MACHINE))
    assert named == {each for each in whole if each[0] == "configs/one.yaml"}
    assert ("OOM105", "error") in {(code, severity) for _, code, severity, _ in named}
    assert runs == {"configs/one.yaml"}


def test_a_named_folder_is_judged_as_the_scripts_beside_start_it(oomlint, checkout):
    assert told(oomlint("configs", *MACHINE)) == told(oomlint(*MACHINE))


def test_every_command_sees_what_starts_a_named_file(oomlint, checkout):
    result = oomlint("estimate", "configs/one.yaml", "--hardware", "4xA100-80GB")
    assert "verdict: does not fit" in result.stdout
    assert "with scripts/one.sh" in result.stdout


def test_what_is_found_in_files_of_other_runs_is_not_told(oomlint, checkout):
    (checkout / "scripts" / "one.sh").write_text("llamafactory-cli train configs/gone.yaml\n")
    (checkout / "scripts" / "all.sh").write_text(
        "FORCE_TORCHRUN=1 llamafactory-cli train configs/one.yaml\n"
        "FORCE_TORCHRUN=1 llamafactory-cli train configs/gone.yaml\n"
    )
    findings, runs = told(oomlint("configs/one.yaml", *MACHINE))
    assert runs == {"configs/one.yaml"}
    assert not [each for each in findings if "gone" in each[3]]


def test_a_script_that_cannot_be_read_costs_nobody_the_file_that_was_named(oomlint, checkout):
    (checkout / "scripts" / "broken.yaml").write_text("config: one.yaml\n  - [\n")
    result = oomlint("configs/one.yaml", *MACHINE)
    assert result.exit_code == 1
    assert json.loads(result.stdout)["errors"] == []


def test_outside_of_a_checkout_folders_above_are_not_looked_at(oomlint, checkout):
    (checkout / ".git").rmdir()
    findings, _ = told(oomlint("configs/one.yaml", *MACHINE))
    assert {severity for _, _, severity, _ in findings} == {"info"}


def test_ignored_files_start_nothing(oomlint, checkout):
    (checkout / ".gitignore").write_text("scripts/\n")
    findings, _ = told(oomlint("configs/one.yaml", *MACHINE))
    assert {severity for _, _, severity, _ in findings} == {"info"}


def test_a_fix_of_a_named_file_leaves_what_only_starts_it(oomlint, checkout):
    def texts():
        return {p.name: p.read_bytes() for p in checkout.rglob("*") if p.is_file()}

    one = checkout / "configs" / "one.yaml"
    one.write_text(one.read_text() + "deepspeed: configs/ds.json\n")
    (checkout / "configs" / "ds.json").write_text(
        '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}}\n'
    )
    before = texts()
    oomlint("--fix", "--unsafe-fixes", "configs/one.yaml", "--hardware", "4xA100-40GB")
    changed = {name for name, text in texts().items() if before.get(name) != text}
    assert "ds.json" in changed
    assert changed <= {"one.yaml", "ds.json"}


def test_files_of_a_commit_are_found_from_another_folder(oomlint, checkout, monkeypatch):
    monkeypatch.chdir(checkout / "configs")
    findings, _ = told(oomlint("one.yaml", *MACHINE))
    assert "error" in {severity for _, _, severity, _ in findings}
