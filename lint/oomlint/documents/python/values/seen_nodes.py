"""Nodes as they are seen from elsewhere: where a name, an option or a choice stands for them."""

from __future__ import annotations

import ast

from msgspec.structs import replace

from oomlint.documents.base import UNKNOWN, Call, Mapping, Node, Scalar, Sequence, last_wins
from oomlint.documents.python.nodes import (
    PythonEntry,
    PythonMapping,
    PythonScalar,
    filed_of,
    is_of_options,
)
from oomlint.documents.python.walking import walk
from oomlint.documents.text import Span


def is_unsettled(node: Scalar) -> bool:
    """Whether an option or a config file has a say in a value."""
    is_decided = isinstance(node, PythonScalar) and node.either is not None
    return is_decided or is_of_options(node) or filed_of(node) is not None


def unknown_at(span: Span) -> Scalar:
    """A value that only running the program tells, at a place."""
    return Scalar(span, UNKNOWN, locked="its value is only known when the program runs")


def left_open(node: Node) -> Node:
    """A value in whose place a variable of the environment may put another."""
    return replace(node, may_differ=True) if isinstance(node, Scalar) else node


def may_differ(node: Node) -> bool:
    """Whether the program may have another value than the one that stands there."""
    return isinstance(node, Scalar) and node.may_differ


def seen_from(node: Node, span: Span) -> Node:
    """A node of elsewhere, with the place where it is asked for."""
    return replace(node, via=span) if isinstance(node, Scalar) else node


def or_none(node: Node) -> Node:
    """An option whose default is an empty text has none."""
    is_empty = isinstance(node, Scalar) and node.value == ""
    return replace(node, value=None) if is_empty else node


def of_option(node: Node, option: str) -> Node:
    """A node as the default of an option of the command line."""
    if not isinstance(node, Scalar) or filed_of(node) is not None:
        return node
    return PythonScalar(node.span, node.value, node.plain, node.via, node.locked, option=option)


def locked_by(node: Node, reason: str) -> Node:
    """A node that nobody may edit, nor what stands in it, with the reason in words."""
    if isinstance(node, Sequence):
        return replace(node, items=tuple(locked_by(i, reason) for i in node.items), locked=reason)
    if isinstance(node, Mapping):
        entries = {
            key: replace(entry, value=locked_by(entry.value, reason))
            for key, entry in node.entries.items()
        }
        return replace(node, entries=entries, locked=reason)
    return replace(node, locked=node.locked or reason)


def name_of(dotted_name: str) -> ast.expr:
    """A name as an expression that stands nowhere: at the head of whatever file it is looked up in."""
    name = ast.parse(dotted_name, mode="eval").body
    for node in walk(name):
        if isinstance(node, ast.expr):
            node.lineno = node.end_lineno = 1
            node.col_offset = node.end_col_offset = 0
    return name


def from_elsewhere(node: Node, span: Span, path: str) -> Node:
    """A value of another file, from where a name stands for it here."""
    reason = f"it is written in {path}"
    if isinstance(node, Sequence):
        items = tuple(from_elsewhere(item, span, path) for item in node.items)
        return Sequence(span, items, reason)
    if isinstance(node, Mapping):
        entries = [
            PythonEntry(key, span, from_elsewhere(entry.value, span, path), span, locked=reason)
            for key, entry in node.entries.items()
        ]
        return replace(mapping_of(entries, span, "dict", node.open_ended), locked=reason)
    if node.value is UNKNOWN or isinstance(node.value, Call):
        return unknown_at(span)
    return replace(node, span=span, via=None, locked=reason)


def mapping_of(
    entries: list[PythonEntry], span: Span, kind: str, open_ended: bool
) -> PythonMapping:
    """A mapping of entries, of which the last of a key counts; ``open_ended``: it may have others."""
    wins, lost = last_wins(entries)
    return PythonMapping(span, wins, lost, None, open_ended, kind=kind)
