"""Every command that README and docs show is run, and what they print is what is shown.

``console`` blocks are sessions: a line with ``$ `` is a command, what follows is its output, in which
``…`` stands for anything: alone on a line for any lines, within one for any rest of it.

``sh`` blocks show usage. All of them are parsed by the shell. Of the calls of oomlint in them those run
whose files are there: the examples, and the names that the pages use for a user's own (``train.yaml``,
``configs/``, ``old.yaml``, ``new.yaml``, ``train.log``). A call that names other files, or that talks to an
editor or a forge or waits for the user (``lsp``, ``review``, ``--watch``), is asked for its help behind all
its options, which it refuses where one of them does not exist.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.command import oomlint

from oomlint.config.settings import kebab_keys
from oomlint.plan import leaf_paths

from .conftest import PAGES, ROOT, Block, blocks

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class Ran(NamedTuple):
    """How a command ended, and what it printed."""

    status: int
    stdout: str
    stderr: str


SESSIONS = blocks("console")
USAGES = blocks("sh")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of what a user has after `git clone`, as far as commands look at it."""
    folder = tmp_path_factory.mktemp("docs") / "oomlint"
    shutil.copytree(ROOT / "examples", folder / "examples")
    (folder / ".git").mkdir()
    return folder


@pytest.fixture
def user(monkeypatch, tmp_path):
    """The environment of a user who has no settings, at a terminal of a hundred columns."""
    for name in os.environ:
        if name.startswith(("GITHUB_", "OOMLINT_")):
            monkeypatch.delenv(name)
    for name, value in {"HOME": str(tmp_path), "COLUMNS": "100", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def run(command: str, folder: Path, user: pytest.MonkeyPatch) -> Ran:
    """A line of a session: a call of oomlint alone in this process, anything else by a shell."""
    user.chdir(folder)
    words = shlex.split(command)
    if words[0] == "oomlint" and not re.search(r"[|<>;&$`]", command):
        result = oomlint(*words[1:])
        return Ran(result.exit_code, result.stdout, result.stderr)
    program = Path(os.environ["HOME"], "bin", "oomlint")
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m oomlint "$@"\n')
    program.chmod(0o755)
    sources = os.pathsep.join(str(ROOT / name) for name in ("lint", "rules", "schemas"))
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, "PATH": path, "PYTHONPATH": sources},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def sessions(block: Block) -> list[tuple[str, str]]:
    """The commands of a block with the output shown below each."""
    found: list[tuple[str, list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            assert found, f"{block}: a session starts with a command"
            found[-1][1].append(line)
    return [(command, "".join(f"{line}\n" for line in output)) for command, output in found]


def pattern(shown: str) -> re.Pattern[str]:
    lines = []
    for line in shown.splitlines():
        if line.strip() == "…":
            lines.append(r"(?:[^\n]*\n)*?")
        else:
            lines.append(r"[^\n]*".join(map(re.escape, line.split("…"))) + r"\n")
    return re.compile("".join(lines))


def test_an_ellipsis_stands_for_lines_or_the_rest_of_one():
    assert pattern("a\n…\nz\n").fullmatch("a\nb\nc\nz\n")
    assert pattern("a …\n").fullmatch("a b\n")
    assert not pattern("a …\n").fullmatch("a b\nc\n")
    assert not pattern("a\nz\n").fullmatch("a\nb\nz\n")


@pytest.mark.parametrize("block", SESSIONS, ids=str)
def test_sessions_print_what_is_shown(block, checkout, user):
    for command, shown in sessions(block):
        written = re.findall(r">\s*(\S+)", command)
        needed = [word for word in files_in(shlex.split(command)) if word not in written]
        absent = [word for word in needed if not (checkout / word).exists()]
        assert not absent, f"$ {command}: what a session names is shipped with the examples"
        ran = run(command, checkout, user)
        assert pattern(shown).fullmatch(ran.stdout), f"$ {command}\n{ran.stdout}{ran.stderr}"


def files_in(words: list[str]) -> list[str]:
    """The words of a command that look like files; those of ``oomlint why`` may be fields."""
    fields = leaf_paths()
    return [w for w in words if re.search(r"[./]", w) and w[0] != "-" and w not in fields]


def usages(block: Block) -> list[str]:
    joined = block.text.replace("\\\n", " ")
    return [line for line in joined.splitlines() if line.strip() and not line.startswith("#")]


@pytest.mark.parametrize("block", USAGES, ids=str)
def test_usages_are_shell(block):
    ran = subprocess.run(["bash", "-n", "-c", block.text], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def commands_of(block: Block) -> list[list[str]]:
    """The words of each call of oomlint in a block: those behind `&&`, `;` and `|` too."""
    found = []
    for line in usages(block):
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        part: list[str] = []
        for word in [*lexer, ";"]:
            if word in (";", "&&", "|", "||"):
                if part[:1] == ["oomlint"]:
                    found.append(part[1:])
                part = []
            else:
                part.append(word)
    return found


CALLS = [(block, words) for block in USAGES for words in commands_of(block)]

# They wait for somebody else, or write to them.
_TALKING = frozenset({"lsp", "review", "--watch"})
_ONE = "examples/axolotl-no-checkpointing"


@pytest.fixture
def project(checkout, tmp_path):
    """The checkout with a user's own files under the names that the pages give them."""
    folder = tmp_path / "project"
    shutil.copytree(checkout, folder)
    shutil.copytree(folder / _ONE, folder / "configs")
    for name in ("train.yaml", "old.yaml", "new.yaml"):
        shutil.copy(folder / _ONE / "config.yaml", folder / name)
    shutil.copy(folder / "examples/logs/trainer.log", folder / "train.log")
    return folder


def can_run(words: list[str], folder: Path) -> bool:
    """Whether a call ends by itself and names only files that are there, or that it writes."""
    return not _TALKING & {*words} and all(
        (folder / word).exists() or word == "report.html" for word in files_in(words)
    )


@pytest.mark.slow
@pytest.mark.parametrize("block_and_words", CALLS, ids=lambda c: f"{c[0]} {' '.join(c[1])}")
def test_calls_of_oomlint_do_what_they_say(block_and_words, project, user):
    _, words = block_and_words
    if can_run(words, project):
        ran = run(shlex.join(["oomlint", *words]), project, user)
        assert ran.status in (0, 1), ran.stdout + ran.stderr
    else:
        ran = run(shlex.join(["oomlint", *words, "--help"]), project, user)
        assert ran.status == 0, ran.stdout + ran.stderr


def test_the_readme_is_run_and_not_only_asked_for_help(project):
    own = [words for block, words in CALLS if block.page == "README.md"]
    assert ["examples/"] in own
    assert sum(can_run(words, project) for words in own) >= 12


# -- other blocks: what a page shows of files and of Python ---------------------------------------


def loaded(block: Block) -> object:
    if block.language == "toml":
        return tomllib.loads(block.text)
    if block.language == "json":
        return json.loads(block.text)
    return list(pytest.importorskip("yaml").safe_load_all(block.text))


@pytest.mark.parametrize("block", blocks("toml", "json", "yaml", "yml"), ids=str)
def test_files_that_pages_show_can_be_read(block):
    if "…" in block.text:
        pytest.skip("an excerpt")
    loaded(block)


@pytest.mark.parametrize("block", blocks("toml"), ids=str)
def test_settings_that_pages_show_are_settings(block, tmp_path, user):
    if set(loaded(block)) <= set(kebab_keys()):
        (tmp_path / "oomlint.toml").write_text(block.text)
        ran = run("oomlint config", tmp_path, user)
        assert ran.status == 0, ran.stderr


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python_that_pages_show_compiles(block):
    compile(block.text, str(block), "exec")


def test_no_kind_of_block_goes_untried():
    """``text`` is what others print; editors' settings are tried in the editors (editors/vscode/try)."""
    known = {"console", "sh", "toml", "json", "yaml", "python", "text", "diff", ""}
    known |= {"lua", "jsonc", "lisp", "elisp", "ini", "markdown", "html", "js", "groovy"}
    text = "".join(page.read_text("utf-8") for page in PAGES)
    assert set(re.findall(r"(?m)^ *```+(\w+)", text)) <= known
