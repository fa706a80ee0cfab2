"""Where the comments of a file stand.

A ``#`` inside a string, a block of text or a here-document starts none.
"""

from __future__ import annotations

import io
import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING

from oomlint.documents.base import Document, HeldCode, Mapping, Node, Scalar, Sequence
from oomlint.documents.suffixes import (
    PYTHON_SUFFIXES,
    SHELL_SUFFIXES,
    TOML_SUFFIXES,
    YAML_SUFFIXES,
    kind_of,
)
from oomlint.documents.text import Source, Span

if TYPE_CHECKING:
    from tree_sitter import Node as Syntax

_WHOLE_LINE = re.compile(r"^[ \t]*(#[^\r\n]*)", re.MULTILINE)


def comments(source: Source, document: Document | None) -> list[Span]:
    """The comments of a parsed file, each from its ``#`` to the end of its line, in file order."""
    if isinstance(document, HeldCode):
        found = document.comments()
        if kind_of(source.path) in (".mk", ".dockerfile"):  # and those between the commands
            found += (Span(*match.span(1)) for match in _WHOLE_LINE.finditer(source.text))
        return sorted(set(found))
    path = source.path.lower()
    if path.endswith(YAML_SUFFIXES):
        return list(_yaml(source, document))
    if path.endswith(TOML_SUFFIXES):
        return list(_toml(source, document))
    return comments_in(source, path)


def comments_in(source: Source, name: str) -> list[Span]:
    """The comments of code, whose language the ending of ``name`` tells."""
    if name.endswith(SHELL_SUFFIXES):
        return list(_shell(source))
    if name.endswith(PYTHON_SUFFIXES):
        return list(_python(source))
    return []


def _yaml(source: Source, document: Document | None) -> Iterator[Span]:
    texts = _texts(source, () if document is None else document.roots)
    return _outside(source, texts, after_blank=True)


def _toml(source: Source, document: Document | None) -> Iterator[Span]:
    texts = _scalar_spans(() if document is None else document.roots)
    return _outside(source, texts, after_blank=False)


def _outside(source: Source, texts: Iterator[Span], *, after_blank: bool) -> Iterator[Span]:
    """From the first ``#`` of a line that stands in none of ``texts`` to the line's end.

    ``after_blank``: it begins a comment only at the start of a line or after a blank (YAML).
    """
    inner = sorted(texts)
    starts = [span.start for span in inner]
    for line in range(1, len(source.line_starts) + 1):
        span = source.line_span(line)
        at = source.text.find("#", span.start, span.end)
        while at >= 0:
            index = bisect_right(starts, at) - 1
            inside = index >= 0 and at in inner[index]
            apart = not after_blank or at == span.start or source.text[at - 1] in " \t"
            if not inside and apart:
                yield Span(at, span.end)
                break
            at = source.text.find("#", at + 1, span.end)


def _texts(source: Source, roots: tuple[Node, ...]) -> Iterator[Span]:
    for span in _scalar_spans(roots):
        if source.text[span.start : span.start + 1] in ("|", ">"):
            # The head of a block of text may carry a comment of its own.
            head = source.line_span(source.position(span.start)[0])
            yield Span(min(head.end, span.end), span.end)
        else:
            yield span


def _scalar_spans(roots: tuple[Node, ...]) -> Iterator[Span]:
    """Spans of keys and of values; an aliased value is met once for each of its uses."""
    todo, seen = list(roots), set()
    while todo:
        node = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Scalar):
            yield node.span
        elif isinstance(node, Sequence):
            todo += node.items
        elif isinstance(node, Mapping):
            entries = (*node.entries.values(), *node.duplicates)
            yield from (entry.key_span for entry in entries)
            todo += [entry.value for entry in entries]


def _shell(source: Source) -> Iterator[Span]:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    data = source.text.encode("utf-8", "surrogatepass")
    tree = Parser(Language(tree_sitter_bash.language())).parse(data)
    for node in _comment_nodes(tree.root_node):
        start = len(data[: node.start_byte].decode("utf-8", "surrogatepass"))
        end = start + len(data[node.start_byte : node.end_byte].decode("utf-8", "surrogatepass"))
        yield Span(start, end)


def _comment_nodes(root: Syntax) -> Iterator[Syntax]:
    stack = [root]
    while stack:
        node = stack.pop()
        if node.type == "comment":
            yield node
        stack += reversed(node.children)


def _python(source: Source) -> Iterator[Span]:
    import tokenize

    # tokenize counts lines as str.splitlines(keepends) of universal newlines: \n, \r\n, \r.
    try:
        for token in tokenize.generate_tokens(io.StringIO(source.text, newline=None).readline):
            if token.type == tokenize.COMMENT:
                line, column = token.start
                start = source.line_starts[line - 1] + column
                yield Span(start, start + len(token.string))
    except (tokenize.TokenError, SyntaxError):
        return
