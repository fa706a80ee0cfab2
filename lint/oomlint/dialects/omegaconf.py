"""Values as OmegaConf reads them: ``${key}`` stands for the value of another key."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any

from oomlint.dialects.block import Block, OverrideBlock, RemovingBlock
from oomlint.dialects.entries import plain_value
from oomlint.documents.base import UNKNOWN, Mapping, Node, Scalar

REFERENCE = re.compile(r"\$\{([A-Za-z_][\w.]*)\}")

# References to references can grow without bound; what files really hold is short.
_LONGEST_TEXT = 4096
_MOST_REFERENCES = 100


class OmegaConfBlock(RemovingBlock, frozen=True, eq=False):
    """A block whose values may refer to others of its file: ``${batch_size}``.

    References to plain keys are followed; resolvers (``${oc.env:…}``, ``${eval:…}``) and
    relative references stay unknown.
    """

    def value(self, node: Node) -> Any:
        return self._resolved(node, {})

    def _resolved(self, node: Node, known: dict[str, Any]) -> Any:
        """``known`` holds the values of keys referred to so far; each is worked out once."""
        if not isinstance(node, Scalar) or "${" not in str(node.value):
            return plain_value(node, self.table.loader)
        text = str(node.value)
        whole = REFERENCE.fullmatch(text)
        if whole is not None:
            return self._referred(whole[1], known)
        values = [self._referred(match[1], known) for match in REFERENCE.finditer(text)]
        plain = all(isinstance(value, (str, int, float)) for value in values)
        if not plain or "${" in REFERENCE.sub("", text):
            return UNKNOWN
        parts = iter(values)
        result = REFERENCE.sub(lambda _match: str(next(parts)), text)
        return result if len(result) <= _LONGEST_TEXT else UNKNOWN

    def _referred(self, key: str, known: dict[str, Any]) -> Any:
        if len(known) >= _MOST_REFERENCES:
            return UNKNOWN
        if key not in known:
            known[key] = UNKNOWN  # what a circle of references finds
            entry = self.find(key)
            if entry is not None:
                known[key] = self._resolved(entry.value, known)
        return known[key]

    def following(self, fields: Collection[str]) -> frozenset[str]:
        referring = {
            row.field: set(REFERENCE.findall(str(entry.value.value)))
            for row in self.table.rows
            if (entry := self.find(row.key)) is not None and isinstance(entry.value, Scalar)
        }
        found: set[str] = set()
        while True:
            rows = map(self.table.by_field.get, (*fields, *found))
            keys = {row.key for row in rows if row is not None}
            more = {field for field, names in referring.items() if names & keys} - found
            if not more:
                return frozenset(found)
            found |= more

    def stray_keys(self, mapping: Mapping, prefix: str) -> Any:
        """A key that another value refers to serves a purpose, whatever its name."""
        named = set(REFERENCE.findall(self.document.source.text))
        for stray in super().stray_keys(mapping, prefix):
            if not any(f"{name}.".startswith(f"{stray.path}.") for name in named):
                yield stray


class OmegaConfOverrides(OverrideBlock, OmegaConfBlock, frozen=True, eq=False):
    """The ``key=value`` words of a launch line whose YAML is at hand."""


class HydraOverrides(OmegaConfOverrides, frozen=True, eq=False):
    """The words of a launch line over a config that other runs begin with as well: what is new is
    said on the line, too."""

    def can_write(self, field: str) -> bool:
        return field in self.table.by_field

    def refuses_new(self, field: str, blocks: Iterable[Block]) -> str | None:
        """Hydra takes a key that the config has not for a slip (``Key ... is not in struct``). A config that is
        put together of others (``defaults``) does not tell which it has."""
        row = self.table.by_field[field]
        bases = [b for b in blocks if b.table is self.table and isinstance(b, OmegaConfBlock)]
        known = [base for base in bases if not isinstance(base, OverrideBlock)]
        if not known or self.find(row.key) is not None:
            return None
        if any("defaults" in base.mapping.entries or base.find(row.key) for base in known):
            return None
        return (
            f"the config of this run has no key {row.key}, and Hydra refuses one that is not there"
        )
