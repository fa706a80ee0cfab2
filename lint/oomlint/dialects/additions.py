"""How a block comes to say what it does not: lists that grow, and keys that it lacks, each beside its kin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from oomlint.documents.base import Mapping, Node, Sequence
from oomlint.documents.text import Edit

if TYPE_CHECKING:
    from oomlint.dialects.block import Block
    from oomlint.dialects.table import Row


class _Addition(Struct, frozen=True):
    """A key and its value, which may be a mapping, and the entry of its parent that it goes behind."""

    parent: Mapping
    key: str
    literal: Any
    after: str | None


class Additions:
    """Keys that a block lacks: those that need the same new parent are added together, as one mapping."""

    def __init__(self, block: Block) -> None:
        self._block = block
        self._planned: dict[tuple[int, str], _Addition] = {}

    def edits(self) -> list[Edit]:
        add_entry = self._block.document.add_entry
        return [
            edit
            for each in self._planned.values()
            for edit in add_entry(each.parent, each.key, each.literal, after=each.after)
        ]

    def add(self, row: Row, literal: Any) -> None:
        """Plan to add a row's key."""
        block = self._block
        parent, key = block.mapping, row.key
        while "." in key:
            head, _, tail = key.partition(".")
            written = block.as_written(head) if parent is block.mapping else head
            entry = parent.entries.get(written)
            if entry is None or not isinstance(entry.value, Mapping):
                break
            parent, key = entry.value, tail
        # Command lines have dotted keys as they are.
        path = [key] if block.document.dotted_keys else key.split(".")
        key, *inner = path
        prefix = block.table.strip_prefix
        if prefix and any(each.startswith(prefix) for each in parent.entries):
            key = prefix + key
        slot = (id(parent), key)
        if not inner:
            self._planned[slot] = _Addition(parent, key, literal, _sibling(block, row, parent))
            return
        addition = self._planned.setdefault(
            slot, _Addition(parent, key, {}, _sibling(block, row, parent))
        )
        target = addition.literal
        for part in inner[:-1]:
            target = target.setdefault(part, {})
        target[inner[-1]] = literal


def _sibling(block: Block, row: Row, parent: Mapping) -> str | None:
    """The nearest earlier row of the table that stands in ``parent``: a key goes beside its kin, and what is
    about training not among what is about evaluation."""
    for key in row.near:
        if key in parent.entries:
            return key
    rows = block.table.rows
    is_eval = any(word in row.key for word in ("eval", "predict", "metric"))
    for other in reversed(rows[: rows.index(row)]):
        if "eval" in other.key and not is_eval:
            continue
        for name in (other.key, *other.aliases):
            entry = block.find(name)
            if entry is not None and parent.entries.get(entry.key) is entry:
                return entry.key
    return None


def rewritten(block: Block, node: Node, literal: Any) -> list[Edit]:
    """Edits that make a node another value. A list that only grows keeps its items, comments and layout, one of
    words, too."""
    if isinstance(node, Sequence) and isinstance(literal, (list, str)):
        literal = literal.split() if isinstance(literal, str) else literal
        present = block.value(node)
        if literal[: len(present)] == present:
            new = literal[len(present) :]
            return [e for item in new for e in block.document.append_item(node, item)]
    return block.document.set_value(node, literal)
