"""Dated facts: runs of which somebody reports in public that they died of memory, or that they ran.

A file of ``cases`` is one fact: where it stands (``source``, ``date``), what happened (``outcome``, and for
one that died ``resource`` and ``phase``), on which ``hardware``, which rules name the cause that the thread
establishes (``causes``, any of them), what was filled in although nobody says it (``assumed``), why no file of the
run could tell the outcome, where that is so (``undecidable``), and the ``files`` of the run, restated by us with what
matters. ``split.json`` divides the repositories in two halves, drawn
before anything was run on them: of *shown* ones the risk is learned and misses are read, *scored*
ones are only ever counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, Literal

import tomllib

HERE = Path(__file__).parent
Lot = Literal[
    "read", "read2", "read3", "read4", "read5", "fresh", "fresh2", "fresh3", "fresh4", "fresh5"
]
Half = Literal["shown", "scored"] | Lot
# Whose misses are read; the others are only ever counted.
READ: tuple[Half, ...] = ("shown", "read", "read2", "read3", "read4", "read5")

# Organisations that have been renamed → as the split has them.
_RENAMED = {"zai-org": "thudm"}


@dataclass(frozen=True)
class Case:
    """One fact. ``values`` and what has no field of its own is as the file says it."""

    name: str
    source: str
    repository: str
    date: date
    outcome: Literal["died", "ran"]
    resource: Literal["gpu", "host"]
    phase: str
    hardware: str
    files: Mapping[str, str]
    causes: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    host_memory: str | None = None
    peak_gib: float | None = None
    peak_kind: str | None = None
    said: str = ""
    worked: str = ""
    assumed: str = ""
    undecidable: str = ""
    """What the outcome came from that no file of a run says, in words that anybody can check at the source; of cases
    that may be read alone."""
    quality: Literal["A", "B"] = "B"
    lot: Lot | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def died(self) -> bool:
        return self.outcome == "died"

    @property
    def half(self) -> Half:
        """The lot that the case names, else the half that its repository fell to."""
        if self.lot is not None:
            return self.lot
        owner, _, name = self.repository.lower().partition("/")
        return "scored" if f"{_RENAMED.get(owner, owner)}/{name}" in _scored() else "shown"


def cases(half: Half | None = None) -> list[Case]:
    """All cases, or those of one half or lot, by name."""
    return [case for case in _read() if half is None or case.half == half]


@cache
def _read() -> tuple[Case, ...]:
    return tuple(_cases())


def _cases() -> Iterator[Case]:
    known = Case.__dataclass_fields__
    for path in sorted((HERE / "cases").glob("*.toml")):
        raw = tomllib.loads(path.read_text("utf-8"))
        fields = {key: value for key, value in raw.items() if key in known}
        more = {key: value for key, value in raw.items() if key not in known}
        fields |= {key: tuple(fields.get(key, ())) for key in ("causes", "kinds")}
        yield Case(name=path.stem, more=more, **fields)


@cache
def _scored() -> frozenset[str]:
    return frozenset(json.loads((HERE / "split.json").read_text("utf-8"))["scored"])
