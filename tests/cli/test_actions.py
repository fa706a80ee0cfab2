"""What the command does in a job of GitHub Actions."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

H100 = ("--hardware", "1xH100-80GB")
ACTION = Path(__file__).parents[2] / "action.yml"


def test_annotations_are_the_usual_format_of_a_job(oomlint, axolotl, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert "::error file=axolotl.yaml,line=" in oomlint("axolotl.yaml", *H100).stdout
    said = oomlint("axolotl.yaml", *H100, "--output-format", "concise").stdout
    assert said.startswith("axolotl.yaml:7:1: ")


def test_settings_choose_the_format_in_a_job_too(oomlint, axolotl, project, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    (project / "oomlint.toml").write_text('output-format = "concise"\n')
    assert oomlint("axolotl.yaml", *H100).stdout.startswith("axolotl.yaml:7:1: ")


def test_the_summary_page_gets_the_table_of_runs(oomlint, axolotl, project, monkeypatch):
    page = project / "summary.md"
    page.write_text("# before\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    oomlint("axolotl.yaml", *H100)
    text = page.read_text("utf-8")
    assert text.startswith("# before\n### Memory of the training runs\n")
    assert "| axolotl.yaml | H100-80GB | " in text
    assert "gpu-memory-at-risk](" in text
    assert re.search(r"^axolotl.yaml  █+[|█]+·*  [\d.]+ of [\d.]+ GiB$", text, re.M)


def test_a_summary_page_that_cannot_be_written_costs_nothing(oomlint, axolotl, monkeypatch):
    plain = oomlint("axolotl.yaml", *H100, "--output-format", "text")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "/nowhere/at/all/summary.md")
    again = oomlint("axolotl.yaml", *H100, "--output-format", "text")
    assert (again.stdout, again.exit_code) == (plain.stdout, plain.exit_code)


def test_markdown_escapes_what_a_file_may_say(oomlint, axolotl, project):
    (project / "a|b_c.yaml").write_bytes(axolotl.read_bytes())
    shown = oomlint("a|b_c.yaml", *H100, "--output-format", "markdown").stdout
    assert "| a\\|b\\_c.yaml | H100-80GB |" in shown


def steps():
    return YAML(typ="safe").load(ACTION.read_text("utf-8"))["runs"]["steps"]


def test_actions_of_others_are_pinned_by_commit():
    used = [step["uses"] for step in steps() if "uses" in step]
    assert used
    assert all(re.fullmatch(r"[\w-]+/[\w/-]+@[0-9a-f]{40}", each) for each in used)


@pytest.mark.parametrize("step", ["Write the report for code scanning", "Check", "Review"])
def test_inputs_of_the_action_are_words_and_nothing_that_runs(project, step):
    (script,) = [s["run"] for s in steps() if s.get("name") == step]
    assert "${{" not in script
    (project / "bin").mkdir()
    (project / "bin/oomlint").write_text('#!/bin/sh\nprintf "%s\\n" "$@" > said.txt\n')
    (project / "bin/oomlint").chmod(0o755)
    said = {
        "PATHS": "a.yaml\n$(touch pwned) *",
        "ARGUMENTS": "--gpus 8 `touch pwned`;x",
        "SARIF": "o s",
    }
    environ = {**said, "PATH": f"{project / 'bin'}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-e", "-c", script], cwd=project, env=environ, check=True)
    words = (project / "said.txt").read_text().splitlines()
    assert not (project / "pwned").exists()
    assert words[1:5] == ["--gpus", "8", "`touch", "pwned`;x"]
    if step != "Review":
        assert words[-4:] == ["a.yaml", "$(touch", "pwned)", "*"]


@pytest.mark.parametrize("step", ["Write the report for code scanning", "Check"])
def test_the_action_calls_the_command_with_options_that_exist(oomlint, axolotl, step):
    (script,) = [s["run"] for s in steps() if s["name"] == step]
    line = script.strip().splitlines()[-1]
    words = line.replace('"${arguments[@]}"', "--hardware 1xH100-80GB")
    words = words.replace('"${paths[@]}"', "axolotl.yaml")
    words = words.replace('"$SARIF"', "out.sarif").split()
    assert words[:2] == ["oomlint", "check"]
    assert oomlint(*words[1:]).exit_code in (0, 1)
