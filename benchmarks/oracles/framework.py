"""What a judge is: a framework, which of our tables its loader reads, and one file for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oomlint.dialects.table import Table
from oomlint.runs.run import Run

SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch")


@dataclass(frozen=True)
class Part:
    """A table of ours, and below which key the framework holds its values."""

    table: Table
    under: str = ""
    unsaid: Mapping[str, str] = field(default_factory=dict)
    """Fields that are compared only where the file says them, each with the reason."""
    only_said: bool = False
    """So are all fields of the dialect's own to which the table gives no default: what its
    ``finish`` makes of them is no value of the framework's."""


@dataclass(frozen=True)
class Framework:
    """A framework's loader, and what of ours it judges.

    ``folders`` are those of the corpus that hold its configs, ``suffixes`` which files the
    loader reads, ``options`` what else it is told of a run. ``unjudged`` is a pattern of errors
    that say more about this machine than about the config, ``known`` patterns of disagreements
    that are none, each with the reason, ``given`` what the framework wants of every config and
    examples of rules leave out.
    """

    name: str
    loader: str
    dialects: tuple[str, ...]
    parts: tuple[Part, ...]
    folders: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = (".yaml", ".yml")
    options: Callable[[Run], Mapping[str, Any]] = lambda _run: {}
    unjudged: str = r"\0"
    known: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, Any] = field(default_factory=dict)
    written: Mapping[str, str] = field(default_factory=dict)
    """Small files of our own, for what no shipped config says."""


@dataclass(frozen=True)
class Case:
    """A file in a folder for a loader to judge, and the run that we read in it.

    ``fixed`` is ``""`` for a file as it came, else what it was fixed for: a machine, or the
    rule whose example it is. ``rules`` are those whose fixes changed a file of the run.
    """

    name: str
    root: Path
    main: str
    run: Run
    fixed: str = ""
    rule: str = ""
    rules: frozenset[str] = frozenset()
    given: Mapping[str, Any] = field(default_factory=dict)
