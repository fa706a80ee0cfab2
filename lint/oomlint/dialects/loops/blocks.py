"""The calls of a loop as blocks."""

from __future__ import annotations

from msgspec.structs import replace

from oomlint.dialects.block import Block
from oomlint.dialects.loops.keys import CLASS
from oomlint.dialects.table import Table
from oomlint.documents.base import Call, Document, Entry, Scalar
from oomlint.documents.text import Span

COMPUTED = "it is what the script calls"


def block_of(document: Document, call: Call, table: Table) -> Block:
    """A call's arguments, and what it calls."""
    start = call.span.start
    anchor = Span(start, start + len(call.callee))
    name = Entry(call.callee, anchor, Scalar(anchor, call.callee, locked=COMPUTED), anchor)
    arguments = call.arguments
    if CLASS in table.names:
        arguments = replace(arguments, entries={**arguments.entries, CLASS: name})
    return Block(document, arguments, table, anchor)
