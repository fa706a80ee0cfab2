"""Statements of which nobody knows whether they run, or which of them: what the script is after them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from oomlint.documents.shell.bindings import retold
from oomlint.documents.shell.commands import PYTHON
from oomlint.documents.shell.perhaps import may_hold
from oomlint.documents.shell.syntax import ShellTree, assigned_names
from oomlint.documents.shell.words import Container, Expansion, Variable, held_text

if TYPE_CHECKING:
    from tree_sitter import Node as Syntax

    from oomlint.documents.shell.reader import Reader

_STATEMENT_PARTS = frozenset({"do_group", "elif_clause", "else_clause", "case_item"})
_WORD_TYPES = frozenset(
    {
        "word", "number", "string", "raw_string", "concatenation", "variable_name", "expansion",
        "simple_expansion", "command_substitution", "comment",
    }
)  # fmt: skip
# An id of the hub: no folder whose name says that it holds models or data.
_ID = re.compile(
    r"(?!(?:\w+_)?(?:models?|checkpoints?|ckpts?|weights|pretrained|cache|data|outputs?)/)[A-Za-z0-9][\w.-]*/[\w.-]+"
)


def any_of(
    reader: Reader,
    script: ShellTree,
    node: Syntax,
    groups: list[list[Syntax]],
    *,
    one_runs: bool = False,
) -> None:
    """Read groups of statements of which nobody knows whether they run; with ``one_runs``, one of
    them does. A variable that holds the same whichever it is stays known."""
    outcomes: list[Mapping[str, Variable]] = [] if one_runs else [dict(reader.variables.held)]
    for group in groups:
        before = dict(reader.variables.held)
        with reader.folders.kept():
            for child in group:
                if child.type in _STATEMENT_PARTS or child.type not in _WORD_TYPES:
                    reader.statement(script, child)
        outcomes.append(reader.variables.held)
        reader.variables.held = before
    names = assigned_names(script, node)
    reader.variables.forget(names)
    reader.variables.held.update(may_hold(names, outcomes))
    reader.variables.held.update(_alike(names, outcomes))


def any_part(reader: Reader, script: ShellTree, node: Syntax) -> None:
    """Read each part of a statement as one that may run or not."""
    any_of(reader, script, node, [[child] for child in node.named_children])


def perhaps(reader: Reader, script: ShellTree, nodes: list[Syntax]) -> None:
    """Read statements of which none may run: a variable that they change is known no more."""
    before = dict(reader.variables.held)
    names: set[str] = set()
    for node in nodes:
        names |= assigned_names(script, node)
        with reader.folders.kept():
            reader.statement(script, node)
    outcomes = (before, reader.variables.held)
    reader.variables.held = dict(before)
    reader.variables.forget(names)
    reader.variables.held.update(may_hold(names, outcomes))
    reader.variables.held.update(_alike(names, outcomes))


def _alike(
    names: set[str], outcomes: Sequence[Mapping[str, Variable]]
) -> Iterator[tuple[str, Variable]]:
    """Variables that hold the same text in all outcomes of a branch, or Python wherever that lies: what it
    runs is the same; so is a model that lies in a folder, or else on the hub. No single place says it, so that none is
    edited."""
    for name in names:
        found = [each.get(name) for each in outcomes]
        last = found[-1] if found else None
        texts = {None if each is None else held_text(each) for each in found}
        is_python = all(PYTHON.match(text or "") for text in texts)
        if last is None or None in texts:
            continue
        on_hub = _on_hub({text for text in texts if text})
        last = next((each for each in found if each and held_text(each) == on_hub), last)
        if len(texts) == 1 or is_python or on_hub:
            step = Expansion(Container("value", last.span, shared=True), last.span, last.span)
            yield name, replace(last, chunks=retold(last.chunks, step))


def _on_hub(texts: set[str]) -> str | None:
    """The id among the spellings of one model: ``org/name`` beside folders that are called ``name``."""
    ids = [text for text in texts if _ID.fullmatch(text)]
    names = {text.rstrip("/").rpartition("/")[2] for text in texts}
    are_paths = all("/" in text for text in texts)
    return ids[0] if len(ids) == len(names) == 1 < len(texts) and are_paths else None
