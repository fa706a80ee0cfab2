"""Texts of a project that lies on no disk, linked into runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oomlint.dialects import registry
from oomlint.linking import Linked, Linker, LinkOptions
from oomlint.run import Run
from oomlint.workspace import Workspace


def link(files: Mapping[str, str], *names: str, **options: Any) -> Linked:
    """What the files ``names`` make, by default all, among ``files`` (name → text); no errors."""
    workspace = Workspace(Path("/x"), {name: text.encode() for name, text in files.items()})
    linked = Linker(workspace, registry(), LinkOptions(**options)).link(names or tuple(files))
    assert not linked.errors
    return linked


def run_of(files: Mapping[str, str], *names: str, **options: Any) -> Run:
    """The one run that they make."""
    (run,) = link(files, *names, **options).runs
    return run


PROGRAM = """\
from transformers import HfArgumentParser, TrainingArguments
from ours import Arguments, train
train(*HfArgumentParser((Arguments, TrainingArguments)).parse_args_into_dataclasses())
"""
"""A program that leaves the model and its adapter to a module that is not here, with options of transformers' own."""
