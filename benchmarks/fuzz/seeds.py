"""Where fuzzing starts: small projects that are read without trouble, and the words they use."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

from oomlint.dialects import registry
from oomlint.dialects.table import Table
from oomlint.documents import kind_of
from oomlint.linting.engine import all_rules

ROOT = Path(__file__).parents[2]
# Only files of a size that people write: mutating large ones costs time and finds no more.
_LARGEST = 16_384


@dataclass(frozen=True, slots=True)
class Seed:
    """A small project: bytes by file name, and the hardware that it is checked for."""

    name: str
    files: Mapping[str, bytes]
    hardware: str | None = None


@cache
def seeds(folders: tuple[Path, ...] = ()) -> list[Seed]:
    """The examples of every rule, a project for each dialect that these leave out, the examples
    shipped, and each config below ``folders``."""
    found = [*_examples(), *_projects()]
    for folder in (ROOT / "examples", *folders):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and kind_of(path.name) and path.stat().st_size <= _LARGEST:
                found.append(Seed(str(path), {path.name: path.read_bytes()}))
    return found


def _examples() -> Iterator[Seed]:
    for rule in all_rules():
        for number, example in enumerate((*rule.bad, *rule.good)):
            files = {name: text.encode() for name, text in example.files.items()}
            yield Seed(f"{rule.name}/{number}", files, example.hardware)
            for name, text in example.files.items():
                if kind_of(name) == ".sh":  # the same lines in the files that hold shell
                    yield from _hosted(f"{rule.name}/{number}", text, example.hardware)


def _projects() -> Iterator[Seed]:
    for folder in sorted((Path(__file__).parent / "sound").iterdir()):
        files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
        yield Seed(folder.name, files, "8xA100-80GB")


def _hosted(name: str, script: str, hardware: str | None) -> Iterator[Seed]:
    lines = script.splitlines(keepends=True)
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "source": ["%%bash\n", *lines]}
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    texts = {
        "train.ipynb": json.dumps(notebook, indent=1),
        "Makefile": "train:\n" + "".join(f"\t{line}" for line in lines),
        "Dockerfile": "FROM pytorch/pytorch:2.6.0\nRUN " + script.replace("\n\n", "\n"),
    }
    for file, text in texts.items():
        yield Seed(f"{name} as {file}", {file: text.encode()}, hardware)


@cache
def words(dialect: str | None = None) -> tuple[str, ...]:
    """Every key of a dialect's tables, or of all of them."""
    keys: set[str] = set()
    for entry in registry().entries:
        if dialect in (None, entry.name):
            module = type(entry.load()).__module__
            for value in vars(import_module(module)).values():
                keys.update(value.names if isinstance(value, Table) else ())
    return tuple(sorted(key for key in keys if key)) or words()
