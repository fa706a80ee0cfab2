"""The files, constants and classes that the guide for contributors names are where it says."""

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINT = ROOT / "lint" / "oomlint"
GUIDE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
# What a path may begin in: the text says "`dialects/__init__.py`", and of dialects also "`roll/keys.py`".
_BEGIN = (
    ROOT,
    LINT,
    LINT / "dialects",
    LINT / "dialects" / "profiles",
    ROOT / "benchmarks" / "oracles",
)
_PATHS = sorted(
    set(re.findall(r"[`\s]((?:[\w.-]+/)+[\w-]+\.(?:py|toml|tsv|txt|md|json))\b", GUIDE))
)
_PARTS = sorted(set(re.findall(r"`(\w+)`,?\s+(?:of|in)\s+`((?:\w+/)+\w+\.py)`", GUIDE)))
_NAMES = sorted(set(re.findall(r"`((?:[a-z_]\w*\.){2,}\w+)`", GUIDE)))
_ROWS = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|(.*)\|$", GUIDE, re.MULTILINE)
_MADE = {"FOLDER/tried.jsonl"}


def _file(path):
    return next((start / path for start in _BEGIN if (start / path).exists()), None)


@pytest.mark.parametrize("path", _PATHS)
def test_files_are_there(path):
    assert path in _MADE or _file(path) is not None


@pytest.mark.parametrize(("name", "path"), _PARTS)
def test_files_hold_what_is_said_of_them(name, path):
    file = _file(path)
    assert file is not None
    assert re.search(rf"\b{name}\b", file.read_text("utf-8"))


def _package(name):
    """Where a name with dots begins, if it is one of ours."""
    room = name.partition(".")[0]
    if (LINT / room).is_dir():
        return "oomlint."
    return "oomlint.dialects." if (LINT / "dialects" / room).is_dir() else ""


@pytest.mark.parametrize("name", list(filter(_package, _NAMES)))
def test_names_are_there(name):
    module, _, part = name.rpartition(".")
    assert hasattr(import_module(_package(name) + module), part)


@pytest.mark.parametrize(("rooms", "says"), _ROWS, ids=[rooms for rooms, _ in _ROWS])
def test_rooms_have_the_files_that_the_table_names(rooms, says):
    folders = [LINT / room for room in re.findall(r"\w+", rooms)]
    assert all(folder.is_dir() for folder in folders)
    for file in re.findall(r"`(\w+\.py)`", says):
        assert any(any(folder.rglob(file)) for folder in folders), file
