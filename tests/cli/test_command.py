"""The installed command says all that it has to say before its process ends."""

import os
import subprocess
import sys

import pytest

from oomlint.cli import main

COMMAND = (sys.executable, "-I", "-c", "from oomlint.cli import command; command()")


@pytest.mark.parametrize(
    "words",
    [["rules"], ["check", "--no-cache", "a.yaml"], ["check", "no-such.yaml"], ["--no-such"]],
    ids=" ".join,
)
def test_its_output_and_status_are_those_of_main(words, tmp_path, monkeypatch, capfd):
    (tmp_path / "a.yaml").write_text("base_model: meta-llama/Llama-3.2-1B\nmicro_batch_size: 1\n")
    monkeypatch.chdir(tmp_path)
    status = main(words)
    said = capfd.readouterr()
    # Readline, which a test runner may load, tells only children how wide it takes a terminal to be.
    env = dict(os.environ)
    done = subprocess.run([*COMMAND, *words], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (status, said.out, said.err)


def test_a_reader_that_goes_early_is_no_failure():
    with subprocess.Popen(
        [*COMMAND, "rules"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        error = process.stderr.read()
    assert b"Traceback" not in error
    assert b"Exception ignored" not in error


def test_a_word_that_is_nearly_a_command_is_no_path(oomlint, project):
    result = oomlint("chek", "x")
    assert (result.exit_code, "did you mean check?" in result.stderr) == (2, True)
    (project / "fits").mkdir()
    assert oomlint("fits").exit_code == 0
