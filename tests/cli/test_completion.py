"""What shells are told when somebody presses the tab key."""

import os
import shutil
import subprocess
import sys

import pytest
from click.shell_completion import ShellComplete

from oomlint.cli.group import app

COMPLETE = "_OOMLINT_COMPLETE"


def completions(*words):
    """What completes the last word."""
    *before, last = words
    shell = ShellComplete(app, {}, "oomlint", COMPLETE)
    return [(item.value, item.type) for item in shell.get_completions(list(before), last)]


def names(*words):
    return [value for value, _ in completions(*words)]


def test_the_first_word_is_a_command_or_a_file():
    found = completions("co")
    assert {value for value, kind in found if kind == "plain"} == {
        "compare",
        "config",
        "completion",
    }
    # Bash forgets what stands before a request for files.
    assert found[0] == ("co", "file")


def test_the_first_word_may_be_an_option_of_check():
    assert "--fix" in names("--fi")
    assert names("--unsafe") == ["--unsafe-fixes"]


def test_after_options_files_of_check_are_completed():
    assert completions("--fix", "conf") == [("conf", "file")]


def test_rules_are_completed_by_name_by_code_and_after_commas():
    assert names("--select", "zero-stage") == ["zero-stage-too-low"]
    assert names("check", "--ignore", "OOM30")[0] == "OOM301"
    assert names("--select", "no-mixed-precision,zero-stage") == [
        "no-mixed-precision,zero-stage-too-low"
    ]
    assert names("explain", "zero-stage") == ["zero-stage-too-low"]


def test_hardware_is_completed_after_its_counts():
    assert "8xA100-80GB" in names("--hardware", "8xA100")
    assert "2x8xH100-80GB" in names("estimate", "--hardware", "2x8xh100")
    assert "p4d.24xlarge" in names("--hardware", "p4d")
    assert "p4d.24xlarge" not in names("--hardware", "8xp4d")
    assert "auto" in names("--hardware", "au")
    assert "auto" not in names("hardware", "au")


def test_models_frameworks_and_choices_are_completed():
    assert "meta-llama/Llama-3.2-1B" in names("models", "meta-llama/Llama-3.2-1")
    assert "Llama-3.1-8B" in names("estimate", "llama-3.1-8b")
    assert "Qwen3-8B" in names("new", "qwen3-8")
    assert names("--framework", "axo") == ["axolotl"]
    assert names("--output-format", "js") == ["json", "jsonl"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_call_oomlint_for_completions(oomlint, shell):
    result = oomlint("completion", shell)
    assert result.exit_code == 0
    assert f"{COMPLETE}={shell}_complete" in result.stdout


def test_an_unknown_shell_is_a_usage_error(oomlint):
    assert oomlint("completion", "tcsh").exit_code == 2


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_with_the_script(project):
    """The real thing: bash sources the script, calls its function, and prints what it found."""
    run = f'"{sys.executable}" -m oomlint'
    script = (
        "shopt -s expand_aliases\n"
        f'oomlint() {{ {run} "$@"; }}; export -f oomlint\n'
        f'eval "$({run} completion bash)"\n'
        "compopt() { :; }\n"
        "COMP_WORDS=(oomlint explain zero-stage) COMP_CWORD=2\n"
        "_oomlint_completion oomlint\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    # The script runs the program by the name that it was called by.
    script = script.replace('"$1"', '"$1"')
    result = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, text=True, cwd=project, timeout=120
    )
    assert result.stdout.split() == ["zero-stage-too-low"], result.stderr


def test_a_check_that_was_kept_is_not_taken_for_a_completion(project):
    """An answer from the cache would be said to the shell instead of what it asked for."""
    (project / "notes.yaml").write_text("a: 1\n")
    environ = {**os.environ, "OOMLINT_CACHE_DIR": str(project / "cache")}
    command = [sys.executable, "-m", "oomlint"]
    for _ in range(2):
        subprocess.run(command, env=environ, cwd=project, capture_output=True, check=True)
    asked = {**environ, COMPLETE: "bash_complete", "COMP_WORDS": "oomlint exp", "COMP_CWORD": "1"}
    result = subprocess.run(command, env=asked, cwd=project, capture_output=True, text=True)
    assert "plain,explain" in result.stdout
