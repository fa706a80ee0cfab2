"""Texts on which a careless reader never ends: an answer comes all the same, or an error."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.command import oomlint as here

from oomlint.documents.text import Source
from oomlint.errors import ParseError, UsageError

pytestmark = pytest.mark.slow

LONG = 300_000
Oomlint = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(autouse=True)
def ends() -> Iterator[None]:
    """A minute of processor time: what is quadratic in these texts takes hours."""
    if sys.platform == "win32":
        pytest.skip("needs timers of POSIX")

    def stop(*_: object) -> None:
        raise AssertionError("a minute of processor time was not enough")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, 60)
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, before)


PINS = {
    "requirements.txt": ("torch @ " + "@" * LONG, "torch @ " + "/a-" * LONG, "torch" + "[" * LONG, "torch<" + "9" * LONG),
    "Dockerfile": ("\n" * LONG, "FROM " + "x" * LONG, "RUN pip install " + "'" * LONG, " \t" * LONG),
    "environment.yml": ("\n" * LONG, "- torch" + " " * LONG, "-" * LONG, "- " + "a" * LONG),
    "setup.py": ('"' * LONG, '"a' * LONG, '"torch' + " " * LONG),
    "pyproject.toml": (".".join("a" * LONG) + " = 1\n", "[" + ".".join("a" * LONG) + "]\n", "a = " + "[" * LONG),
    "uv.lock": ("[[package]]\n" * (LONG // 10),),
    "Pipfile.lock": ("[" * LONG, '{"default": ' * 2000),
}  # fmt: skip


@pytest.mark.parametrize("name", PINS)
def test_pins(name: str) -> None:
    from oomlint.files.requirements import floors, installed, pins

    for text in PINS[name]:
        assert not pins(name, text), text[:20]
        assert not floors(name, text), text[:20]
        assert not installed(text), text[:20]


def test_a_version_of_any_length_is_none() -> None:
    from oomlint.files.requirements import floors, pins

    for text in ("transformers<" + "9" * 5000, "trl~=1." + "0" * 5000, "torch^" + "8" * 5000):
        assert not pins("requirements.txt", text)
        floors("requirements.txt", text)
    assert pins("requirements.txt", "torch @ git+ssh://git@h/x@v2.6.0") == {"torch": "2.6.0"}


FLAGS = " --f 1" * (LONG // 6)
CELLS = '{"cells": [{"cell_type": "code", "outputs": [], "source": ["import trl\\n"%s]}], "metadata": {}}'
TOO_MUCH = {
    "flags.sh": ("torchrun train.py" + FLAGS + "\n", "too many words"),
    "variables.sh": ("A=$B\n" * (LONG // 5), "too many words"),
    "Makefile": ("train:\n\ttorchrun train.py" + FLAGS + "\n", "too many words"),
    "Dockerfile": ("FROM x\nCMD torchrun train.py" + FLAGS + "\n", "too many words"),
    "x.mk": ("t:\n\ttorchrun x" + " \\\n" * LONG * 2, "over a million characters"),
    "x.dockerfile": ("FROM x\nCMD a" + " \\\n" * LONG * 2, "over a million characters"),
    "train.py": ("from trl import SFTConfig\n" + "x = 1\n" * LONG, "over a million characters"),
    "code.ipynb": (CELLS % (', "x = 1\\n"' * LONG), "over a million characters"),
    "word.ipynb": (CELLS % (", \"x = '" + "a" * 4 * LONG + "'\""), "over a million characters"),
    "shell.ipynb": (CELLS % (', "!torchrun train.py --f 1\\n"' * (LONG // 25)), "too many"),
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_what_is_far_too_much_for_a_script_is_named(name: str) -> None:
    """Each piece of it would be read in no time, and kept: hundreds of megabytes in all."""
    from oomlint.documents import parse

    text, words = TOO_MUCH[name]
    with pytest.raises(ParseError, match=words):
        parse(Source(name, text))


def test_a_script_that_takes_in_a_large_one() -> None:
    from oomlint.documents import parse

    taken_in = Source("train.env", "A=1\n" * LONG)
    with pytest.raises(ParseError, match="too many characters"):
        parse(Source("x.sh", "source train.env\ntorchrun x\n"), lambda _: taken_in)


def test_a_notebook_of_many_shell_lines() -> None:
    """As many as a script may have: each is taken over from its own place in the JSON."""
    from oomlint.documents import parse
    from oomlint.documents.excerpt import ExcerptShell

    document = parse(Source("x.ipynb", CELLS % (', "!torchrun train.py --f 1\\n"' * 4000)))
    assert isinstance(document, ExcerptShell)
    assert len(document.commands) == 4000


CELL = '{"cells": [{"cell_type": "code", "outputs": [], "source": "%s"}], "metadata": {}}'
LINES_OF_IPYTHON = {
    "a word": "!ls\\n" + "a" * LONG,
    "words": "!ls\\n" + "a, " * (LONG // 3),
    "blanks": "!ls\\n" + " " * LONG + "x y",
    "a question": "!ls\\nx?" + " " * LONG + "y",
    "an assignment": "!ls\\nx = " + " " * LONG + "y z",
    "options of a magic": "%%script" + " --a" * (LONG // 4) + " python",
    "values in braces": "!ls {a" + "[1]" * 3000,
}


@pytest.mark.parametrize("name", LINES_OF_IPYTHON)
def test_a_line_that_might_be_ipythons(name: str) -> None:
    from oomlint.documents import parse
    from oomlint.documents.excerpt import ExcerptShell

    document = parse(Source("x.ipynb", CELL % LINES_OF_IPYTHON[name]))
    if name == "options of a magic":  # for Python: no shell, and nothing of ours
        assert document is None
    else:
        assert isinstance(document, ExcerptShell)
        assert [str(command.words[0].value) for command in document.commands] == ["ls"]


def test_a_figure_behind_blanks_without_end(tmp_path: Path) -> None:
    from oomlint.diagnose import read_logs

    log = tmp_path / "train.log"
    for key in ("peak_memory_alloc", "memory/max_active (GiB)", "Memory used:", "MaxMemAllocated="):
        log.write_text(f"step 1\n{key}{' ' * LONG}x\n" * 20)
        (found,) = read_logs([str(log)])[0]
        assert not found.peaks, key


SETTINGS = {
    "a key of many parts": ".".join("a" * LONG) + " = 1\n",
    "a table of many parts": "[" + ".".join("a" * LONG) + "]\nb = 1\n",
    "brackets": "select = " + "[" * LONG,
    "a line of spaces": "[profiles]" + " " * LONG + "\nx = 1\n",
    "an open header": "[" + "a" * LONG + "\n",
    "zeros": "margin = 1" + "0" * 5000,
    "a pattern of stars": 'exclude = ["' + "*a" * 2000 + '"]\nhardware = 1\n',
    "a pattern without end": 'exclude = ["' + "*a" * LONG + '"]\n',
    "a pattern of ignores without end": '[per-file-ignores]\n"' + "*a" * LONG + '" = []\n',
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings(name: str, tmp_path: Path) -> None:
    from oomlint.config.settings import load

    file = tmp_path / "oomlint.toml"
    file.write_text(SETTINGS[name])
    with pytest.raises(UsageError, match=r"oomlint\.toml"):
        load(file)


def test_a_toml_document_of_dots() -> None:
    from oomlint.documents.toml import parse_toml

    with pytest.raises(ParseError, match="dots"):
        parse_toml(Source("train.toml", ".".join("a" * LONG) + " = 1\n"))


def test_hunks_of_any_length() -> None:
    from oomlint.review.diff import parse_patch

    assert not parse_patch(f"@@ -{'9' * 5000},1 +1,1 @@\n+a\n").hunks
    assert not parse_patch("@@ -" + "1," * LONG).hunks


@pytest.mark.parametrize("name", ["oomlint.toml", ".oomlint.toml", "pyproject.toml", "base.json"])
@pytest.mark.parametrize("what", ["pipe", "device"])
def test_settings_that_are_no_files(what: str, name: str, project: Path, oomlint: Oomlint) -> None:
    """Settings are looked for in folders that a stranger may have made."""
    if name == "base.json":
        (project / "oomlint.toml").write_text('baseline = "base.json"\n')
    if what == "pipe":
        os.mkfifo(project / name)
    else:
        (project / name).symlink_to("/dev/zero")
    result = oomlint(".")
    assert result.returncode == 2, result.stderr
    assert f"{name} cannot be read: it is not a regular file" in result.stderr


def test_settings_without_end(project: Path, oomlint: Oomlint) -> None:
    with (project / "oomlint.toml").open("wb") as file:
        file.truncate(2**40)  # a hole: it takes no room on the disk
    result = oomlint(".")
    assert result.returncode == 2, result.stderr
    assert "larger than 64 MiB" in result.stderr


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="the system has no such device")
@pytest.mark.parametrize(
    "command", [("estimate", "--plan"), ("diagnose",), ("check", "--isolated")]
)
def test_a_device_without_end_is_refused(command: tuple[str, ...]) -> None:
    result = here(*command, "/dev/zero")
    assert result.exit_code == 3
    assert "/dev/zero: cannot be read" in result.stderr.replace("error: cannot", "cannot")


def test_standard_input_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oomlint.cli.estimate._MOST_PLAN_BYTES", 2**20)
    result = here("estimate", "--plan", "-", stdin=b" " * 2**20 + b"{}")
    assert result.exit_code == 3
    assert "larger than 1 MiB" in result.stderr


def test_a_script_of_a_long_branch() -> None:
    """Whether a library is imported below an ``if`` is seen line by line."""
    from oomlint.dialects.unsloth.dialect import Unsloth
    from oomlint.documents import parse

    branch = "if a:\n" + "        b = 1\n" * 4000
    loads = "model = AutoModelForCausalLM.from_pretrained('gpt2')\n"
    text = f"from transformers import AutoModelForCausalLM\n{branch}try:\n    import unsloth\nfinally:\n    pass\n{loads}"
    document = parse(Source("train.py", text))
    assert document is not None
    assert all(claim.kind == "aside" for claim in Unsloth().recognise(document))
