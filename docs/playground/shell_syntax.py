"""What oomlint asks of tree-sitter's Python binding, which has no build for browsers, over the one for JavaScript,
which has: the syntax tree of a shell script, handed over whole and in order, a column each for what a node has.

:func:`install` is given the function that parses (``shell_syntax.mjs``).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from types import ModuleType
from typing import NamedTuple


class Point(NamedTuple):
    """As tree-sitter's; nothing asks for the column."""

    row: int


class Node:
    """A node of a tree, which its ``tree`` and its ``at``, the place in the columns, are enough for."""

    __slots__ = ("at", "tree")

    def __init__(self, tree: Tree, at: int) -> None:
        self.tree = tree
        self.at = at

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and (self.tree, self.at) == (other.tree, other.at)

    def __hash__(self) -> int:
        return hash((id(self.tree), self.at))

    @property
    def type(self) -> str:
        return self.tree.types[self.at]

    @property
    def is_named(self) -> bool:
        return bool(self.tree.named[self.at])

    @property
    def has_error(self) -> bool:
        return self.tree.faulty[self.at]

    @property
    def start_byte(self) -> int:
        return self.tree.starts[self.at]

    @property
    def end_byte(self) -> int:
        return self.tree.ends[self.at]

    @property
    def start_point(self) -> Point:
        return Point(self.tree.start_rows[self.at])

    @property
    def end_point(self) -> Point:
        return Point(self.tree.end_rows[self.at])

    @property
    def text(self) -> bytes:
        return self.tree.data[self.start_byte : self.end_byte]

    @property
    def parent(self) -> Node | None:
        above = self.tree.parents[self.at]
        return None if above < 0 else Node(self.tree, above)

    @property
    def children(self) -> list[Node]:
        return [Node(self.tree, at) for at in self.tree.below[self.at]]

    @property
    def named_children(self) -> list[Node]:
        return [node for node in self.children if node.is_named]

    @property
    def child_count(self) -> int:
        return len(self.tree.below[self.at])

    @property
    def named_child_count(self) -> int:
        return len(self.named_children)

    @property
    def prev_named_sibling(self) -> Node | None:
        above = self.parent
        before = () if above is None else [n for n in above.named_children if n.at < self.at]
        return before[-1] if before else None

    @property
    def descendant_count(self) -> int:
        parents, end = self.tree.parents, self.at + 1
        while end < len(parents) and parents[end] >= self.at:
            end += 1
        return end - self.at

    def children_by_field_name(self, name: str) -> list[Node]:
        return [node for node in self.children if self.tree.fields[node.at] == name]

    def child_by_field_name(self, name: str) -> Node | None:
        return next(iter(self.children_by_field_name(name)), None)

    def walk(self) -> Cursor:
        return Cursor(self)


class Cursor:
    """A walk that stays below where it began."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._top = node

    def goto_first_child(self) -> bool:
        return self._goto(next(iter(self.node.children), None))

    def goto_next_sibling(self) -> bool:
        if self.node == self._top or self.node.parent is None:
            return False
        after = (node for node in self.node.parent.children if node.at > self.node.at)
        return self._goto(next(after, None))

    def goto_parent(self) -> bool:
        return self._goto(None if self.node == self._top else self.node.parent)

    def _goto(self, node: Node | None) -> bool:
        if node is not None:
            self.node = node
        return node is not None


class Tree:
    """Columns in the order of the text, a parent before what is below it."""

    def __init__(self, data: bytes, columns: dict[str, Sequence[int | str | None]]) -> None:
        self.data = data
        names = columns["names"]
        self.types = [str(names[int(at or 0)]) for at in columns["types"]]
        self.fields = columns["fields"]
        self.named = columns["named"]
        self.parents = [int(at or 0) for at in columns["parents"]]
        self.start_rows = [int(row or 0) for row in columns["startRows"]]
        self.end_rows = [int(row or 0) for row in columns["endRows"]]
        byte = _bytes_by_unit(data)
        self.starts = [byte[int(at or 0)] for at in columns["starts"]]
        self.ends = [byte[int(at or 0)] for at in columns["ends"]]
        self.below: list[list[int]] = [[] for _ in self.types]
        self.faulty = [bool(fault) for fault in columns["faults"]]
        for at in range(len(self.types) - 1, 0, -1):
            above = self.parents[at]
            self.below[above].insert(0, at)
            self.faulty[above] |= self.faulty[at]

    @property
    def root_node(self) -> Node:
        return Node(self, 0)


def _bytes_by_unit(data: bytes) -> Sequence[int]:
    """For each unit of the text as JavaScript has it, and for its end, the place among its bytes."""
    text = data.decode("utf-8", "surrogatepass")
    if text.isascii():
        return range(len(data) + 1)

    def widths() -> Iterator[int]:
        for letter in text:
            yield len(letter.encode("utf-8", "surrogatepass"))
            if ord(letter) > 0xFFFF:  # two units, of which nothing begins at the second
                yield 0

    return [0, *accumulate(widths())]


def install(parse: Callable[[str], str]) -> None:
    """Let ``import tree_sitter`` and ``import tree_sitter_bash`` find this; ``parse`` answers with columns as JSON."""

    class Language:
        def __init__(self, _language: object) -> None:
            pass

    class Parser:
        def __init__(self, _language: object) -> None:
            pass

        def parse(self, data: bytes) -> Tree:
            return Tree(data, json.loads(parse(data.decode("utf-8", "surrogatepass"))))

    syntax, bash = ModuleType("tree_sitter"), ModuleType("tree_sitter_bash")
    vars(syntax).update(Language=Language, Parser=Parser, Node=Node, Tree=Tree)
    vars(bash).update(language=lambda: None)
    sys.modules.update({"tree_sitter": syntax, "tree_sitter_bash": bash})
