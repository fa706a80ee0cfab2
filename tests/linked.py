"""Texts of a project that lies on no disk, linked into runs or linted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from oomlint.dialects import registry
from oomlint.files.workspace import Workspace
from oomlint.hardware import Hardware, parse_hardware
from oomlint.linting.engine import Options, Report, lint
from oomlint.linting.rule import Rule
from oomlint.runs.linked import Linked, LinkOptions
from oomlint.runs.linking import Linker
from oomlint.runs.run import Run

Files = Mapping[str, str | bytes]
"""Name → what is in it."""


def workspace_of(files: Files) -> Workspace:
    texts = {name: t if isinstance(t, bytes) else t.encode() for name, t in files.items()}
    return Workspace(Path("/project"), texts)


def hardware_of(name: str | None) -> Hardware | None:
    """The hardware of this name, where there is one."""
    return parse_hardware(name) if name else None


def link(files: Files, *names: str, hardware: str | None = None, **options: Any) -> Linked:
    """What the files ``names`` make, by default all; no errors."""
    told = LinkOptions(hardware=hardware_of(hardware), **options)
    linked = Linker(workspace_of(files), registry(), told).link(names or tuple(files))
    assert not linked.errors
    return linked


def run_of(files: Files, *names: str, hardware: str | None = None, **options: Any) -> Run:
    """The one run that they make."""
    (run,) = link(files, *names, hardware=hardware, **options).runs
    return run


def report_of(
    files: Files,
    *names: str,
    hardware: str | None = None,
    explicit: Iterable[str] = (),
    rules: Sequence[type[Rule]] | None = None,
    **options: Any,
) -> Report:
    """What a lint of the files ``names`` says, by default of all."""
    told = Options(hardware=hardware_of(hardware), **options)
    return lint(
        workspace_of(files), names or tuple(files), told, explicit=frozenset(explicit), rules=rules
    )


PROGRAM = """\
from transformers import HfArgumentParser, TrainingArguments
from ours import Arguments, train
train(*HfArgumentParser((Arguments, TrainingArguments)).parse_args_into_dataclasses())
"""
"""A program that leaves the model and its adapter to a module that is not here, with options of transformers' own."""
