"""The table of a dialect: which key of a file stands for which canonical field, both ways.

A :class:`Row` is used for reading a config and for writing a fix. A :class:`Table` is a
list of rows plus the keys that are known and do not matter for memory. What a file says by one,
and what is written by it, is a :class:`~oomlint.dialects.block.Block`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping as MappingABC
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from oomlint.dialects.key_releases import Past, Refusal, Spans
from oomlint.dialects.kinds import TEXT, Kind
from oomlint.documents.base import Mapping
from oomlint.plan.library_changes import LibraryChange

Loader = Literal["pyyaml", "yaml12", "omegaconf"]


class Row(Struct, frozen=True):
    """One key of a framework.

    ``key`` is a dotted path as the file spells it. ``field`` is a leaf of the canonical plan
    (``f.batch.micro``), or a private one of the dialect, which its derivations turn into those
    of the plan. ``default`` is the canonical value when the key is
    absent, ``None`` where there is none; ``changes`` are those that brought it about.
    ``source`` says where the meaning and the default were read. ``table`` reads a mapping under
    this key with a table of its own. ``near`` are keys, of the table or not, that it stands behind where a file has
    them, rather than behind the row before.
    """

    key: str
    field: Any
    kind: Kind = TEXT
    default: Any = None
    aliases: tuple[str, ...] = ()
    source: str = ""
    table: Table | None = None
    changes: tuple[LibraryChange, ...] = ()
    near: tuple[str, ...] = ()


class Renaming(Struct, frozen=True):
    """What newer versions of a framework made of a key.

    ``new`` is its new spelling, ``None`` where renaming alone does not do. ``since`` names the
    first version without the old one. ``effect`` is what that version does with it. ``advice``
    completes "…; <advice>" where there is no new spelling or more to say.
    """

    old: str
    new: str | None
    since: str
    effect: Literal["refused", "ignored"] = "refused"
    advice: str = ""
    source: str = ""


class Table(Struct, frozen=True, dict=True):
    """The keys of one kind of file or call.

    ``known`` are keys that are legal and without effect on memory. ``ignores_unknown`` says
    that the framework drops unknown keys in silence (a trap worth a finding); where it is
    false the framework itself refuses them, and where it is ``None`` unknown keys are none
    of our business (plug-ins may own them). ``strip_prefix`` is an optional prefix of keys.
    """

    name: str
    rows: tuple[Row, ...]
    known: frozenset[str] = frozenset()
    known_prefixes: tuple[str, ...] = ()
    ignores_unknown: bool | None = None
    loader: Loader = "pyyaml"
    strip_prefix: str = ""
    strict_under: tuple[str, ...] = ()
    """Prefixes below which unknown keys are refused even where they are ignored elsewhere."""
    section: str = ""
    """Which plan fields rows of this table may write when several blocks could."""
    renamed: tuple[Renaming, ...] = ()
    """Spellings of older versions; they are no strangers, whatever the rows make of them."""
    refusal: Refusal | None = None
    past: Past | None = None
    """What the newest release does not know any more; no file is offered it."""
    spans: Spans | None = None
    """Which releases have which of the keys; no file is given one that its release lacks."""
    tuning: str = ""
    """A pattern of the keys that files which do the same job may have differently: sizes of buffers, logging."""

    @cached_property
    def by_field(self) -> MappingABC[str, Row]:
        rows: dict[str, Row] = {}
        for row in self.rows:
            rows.setdefault(row.field, row)
        return rows

    @property
    def reader(self) -> str:
        """What reads such a file, as its name says it."""
        return self.name.removesuffix(" config")

    @cached_property
    def names(self) -> MappingABC[str, Row]:
        """Every spelling (key or alias) and its row."""
        return {name: row for row in self.rows for name in (row.key, *row.aliases)}

    @cached_property
    def by_head(self) -> MappingABC[str, tuple[int, ...]]:
        """Numbers of the rows with a spelling that begins so, up to its first dot."""
        heads: dict[str, dict[int, None]] = {}
        for number, row in enumerate(self.rows):
            for name in (row.key, *row.aliases):
                heads.setdefault(name.partition(".")[0], {})[number] = None
        return {head: tuple(numbers) for head, numbers in heads.items()}

    def rows_in(self, mapping: Mapping, more: Iterable[str] = ()) -> list[Row]:
        """The rows of which a mapping may hold a spelling, in the order of the table; ``more`` are
        keys that it holds in other letters."""
        heads = {key.partition(".")[0] for key in (*mapping.entries, *more)}
        if self.strip_prefix:
            heads |= {
                key.removeprefix(self.strip_prefix).partition(".")[0] for key in mapping.entries
            }
        found = {number for head in heads for number in self.by_head.get(head, ())}
        return [self.rows[number] for number in sorted(found)]

    @cached_property
    def _near(self) -> dict[str, tuple[str, ...]]:
        """Names near to keys that files hold and that the table lacks: the runs of a project share them."""
        return {}

    def nearest(self, path: str) -> tuple[str, ...]:
        """The names of the table that a key that it lacks may be a slip for, the nearest first."""
        if path not in self._near:
            self._near[path] = self._names_near(path)
        return self._near[path]

    def _names_near(self, path: str) -> tuple[str, ...]:
        from difflib import get_close_matches

        level, _, key = path.rpartition(".")
        names = {
            name.rpartition(".")[2]: name
            for name in (*self.names, *self.known, *self.parents)
            if name.rpartition(".")[0] == level
        }
        # num_epochs is nearer to num_ppo_epochs than to num_train_epochs, by its letters.
        words = key.split("_")
        trained = ["_".join((*words[:n], "train", *words[n:])) for n in range(len(words))]
        # datasets_test is test_datasets, of which its letters alone do not tell.
        turned = [name for name in names if sorted(name.split("_")) == sorted(words)]
        close = [*trained, *turned, *get_close_matches(key, names, n=3, cutoff=0.8)]
        return tuple(names[near] for near in dict.fromkeys(close) if near in names)

    @cached_property
    def parents(self) -> frozenset[str]:
        """Keys that hold other keys of this table: ``zero_optimization``."""
        dotted = [key for key in (*self.known, *self.names) if "." in key]
        parts = (key.split(".") for key in dotted)
        return frozenset(".".join(p[:depth]) for p in parts for depth in range(1, len(p)))

    def refuses(self, path: str) -> bool:
        """Whether the framework stops at an unknown key of this path."""
        if self.ignores_unknown is None:
            return False
        return not self.ignores_unknown or path.startswith(self.strict_under or "\0")

    @cached_property
    def legal_keys(self) -> frozenset[str]:
        """Every key that this table knows, keys that hold others included."""
        old = frozenset(renaming.old for renaming in self.renamed)
        return self.known | self.parents | frozenset(self.names) | old


def known_keys(framework: str) -> frozenset[str]:
    """The keys listed in ``keys/<framework>.txt``: legal, and without effect on memory."""
    text = (Path(__file__).parent / "keys" / f"{framework}.txt").read_text("utf-8")
    return frozenset(line for line in text.splitlines() if line and not line.startswith("#"))
