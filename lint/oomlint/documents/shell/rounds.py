"""Loops of a script: their rounds, as far as it is known how many there are and over what."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from oomlint.documents.shell.bindings import UNSET
from oomlint.documents.shell.branches import reads_arguments
from oomlint.documents.shell.outcomes import any_of, any_part
from oomlint.documents.shell.syntax import ShellTree, assigned_names
from oomlint.documents.shell.words import (
    Chunk,
    Container,
    Expansion,
    Field,
    Variable,
    field_text,
    held_text,
)
from oomlint.documents.text import Span

if TYPE_CHECKING:
    from tree_sitter import Node as Syntax

    from oomlint.documents.shell.reader import Reader

# Rounds that are followed, of all loops of a script.
_MOST_ROUNDS = 48
# Layers of the deepest models whose scripts count them are some hundred.
_MOST_COUNTED = 256
_COMPARES = re.compile(r"[<>]|-(?:l[te]|g[te]|ne)\b")
_COUNTED = re.compile(
    r"for\s*\(\(\s*(?P<name>\w+)\s*=(?P<first>[^;]+);\s*(?P=name)\s*(?P<sign><=?)(?P<last>[^;]+);"
    r"\s*(?:(?P=name)\s*\+\+|\+\+\s*(?P=name)|(?P=name)\s*\+=\s*1)\s*\)\)"
)
_GETOPTS = re.compile(
    r"""getopts\s+(?P<quote>["']?)(?P<letters>[:\w]+)(?P=quote)\s+(?P<name>\w+)"""
)


def run_for(reader: Reader, script: ShellTree, node: Syntax) -> None:
    """A ``for`` over known words runs once for each; of others one round is read."""
    names = assigned_names(script, node)
    variable = node.child_by_field_name("variable")
    body = node.child_by_field_name("body")
    values = words_of_loop(reader, script, node, variable)
    if body is None:
        reader.variables.forget(names)
        return
    if variable is None or not values or reader.rounds + len(values) > _MOST_ROUNDS:
        reader.variables.forget(names)
        any_of(reader, script, node, [[body]])
        return
    name, key = script.text.of(variable), script.text.span(variable)
    for value in values:
        reader.rounds += 1
        reader.variables.held[name] = Variable(name, key, value[0].path[-1].word, value)
        reader.statement(script, body)
    if len(values) > 1:
        reader.variables.forget(names)


def words_of_loop(
    reader: Reader, script: ShellTree, node: Syntax, variable: Syntax | None
) -> list[Field] | None:
    """The words that a loop goes over; ``None`` where one of them is not known."""
    found: list[Field] = []
    expander = reader.variables.expander(script)
    if variable is None:
        return None
    for value in node.children_by_field_name("value"):
        box = reader.variables.box(script, script.text.span(value), script.text.of(variable))
        words = expander.words(value, box)
        if any(field_text(word) is None for word in words):
            return None
        found += words
    return found


def run_counted(reader: Reader, script: ShellTree, node: Syntax) -> None:
    """``for ((…; …; …))``."""
    if not _counts(reader, script, node):
        _unknown_rounds(reader, script, node)


def _counts(reader: Reader, script: ShellTree, node: Syntax) -> bool:
    """Run ``for ((i=0; i<N; i++))`` where it does nothing but set variables; whether it could."""
    header, body = _COUNTED.match(script.text.of(node)), node.child_by_field_name("body")
    if header is None or body is None or _holds_command(body):
        return False
    expander = reader.variables.expander(script)
    first, last = expander.number(header["first"]), expander.number(header["last"])
    if first is None or last is None or last - first > _MOST_COUNTED:
        return False
    name, span = header["name"], script.text.span(node)
    step = Expansion(Container("value", span, shared=True), span, span)
    for number in range(first, last + (header["sign"] == "<=")):
        chunks = (Chunk(str(number), (step,)),)
        reader.variables.held[name] = Variable(name, span, span, chunks)
        reader.statement(script, body)
    return True


def _holds_command(node: Syntax) -> bool:
    return node.type == "command" or any(map(_holds_command, node.named_children))


def run_while(reader: Reader, script: ShellTree, node: Syntax) -> None:
    """``while``, ``until`` and ``select``."""
    is_while = node.type == "while_statement"
    if is_while and reads_arguments(script, node.child_by_field_name("condition")):
        if _take_arguments(reader, script, node):
            return
        # Arguments that have no default must be given: nobody knows them.
        names, held = assigned_names(script, node), reader.variables.held
        is_started = "@" in held  # whoever starts it may choose any of them
        reader.variables.forget(
            {n for n in names if is_started or held_text(held.get(n, UNSET)) == ""}
        )
    elif not _first_round(reader, script, node):
        _unknown_rounds(reader, script, node)


def _first_round(reader: Reader, script: ShellTree, node: Syntax) -> bool:
    """Read what a ``while`` that counts runs at first, as things stand before it; whether it is known to
    run. What later rounds make of its variables nobody knows; of a loop without a count (``while true``) a
    later round may be the one that is meant: it tries again with less."""
    condition, body = node.child_by_field_name("condition"), node.child_by_field_name("body")
    is_while = script.text.of(node).startswith("while")
    if not is_while or condition is None or body is None:
        return False
    if not _COMPARES.search(script.text.of(condition)):
        return False
    if not reader.conditions(script, ()).holds(condition):
        return False
    reader.statements(script, body)
    reader.is_left = False
    reader.variables.forget(assigned_names(script, node))
    return True


def _take_arguments(reader: Reader, script: ShellTree, node: Syntax) -> bool:
    """Run a loop that takes the script's arguments apart, as long as each round uses some up;
    whether it can be told what comes of that."""
    condition, body = node.child_by_field_name("condition"), node.child_by_field_name("body")
    before, left = dict(reader.variables.held), reader.variables.arguments
    asked = None if condition is None else _GETOPTS.fullmatch(script.text.of(condition).strip())
    if asked is not None and left is not None and body is not None:
        if _take_options(reader, script, asked["letters"], asked["name"], left, body):
            return True
        reader.variables.held = before
        return False
    while left is not None and condition is not None and body is not None:
        goes_on = reader.conditions(script, ()).holds(condition)
        if goes_on is False:
            return True
        reader.is_left = False
        if goes_on:
            reader.statements(script, body)
        if reader.is_left:
            return True
        rest = reader.variables.arguments
        if rest is None or len(rest) >= len(left):
            break
        left = rest
    reader.variables.held = before
    return False


def _take_options(
    reader: Reader, script: ShellTree, letters: str, name: str, left: Sequence[Field], body: Syntax
) -> bool:
    """Run the loop of a ``getopts`` for each option among the arguments (POSIX.1-2017, "getopts");
    whether all of them are told apart."""
    at = 0
    while at < len(left):
        option = field_text(left[at])
        if option is None:
            return False
        if not option.startswith("-") or option in ("-", "--"):
            break
        letter, path = option[1:], left[at][0].path
        value: Field = ()
        if len(letter) != 1 or letter not in letters.replace(":", ""):
            return False
        if f"{letter}:" in letters:
            at += 1
            if at >= len(left):
                return False
            value = left[at]
        _hold(reader, name, (Chunk(letter, path),))
        _hold(reader, "OPTARG", value)
        reader.statements(script, body)
        at += 1
    place = script.text.span(body)
    step = Expansion(Container("value", place, shared=True), place, place)
    _hold(reader, "OPTIND", (Chunk(str(at + 1), (step,)),))
    return True


def _hold(reader: Reader, name: str, value: Field) -> None:
    place = value[0].path[0].word if value else Span(0, 0)
    reader.variables.held[name] = Variable(name, place, place, value)


def _unknown_rounds(reader: Reader, script: ShellTree, node: Syntax) -> None:
    """Read a loop of which nobody knows how often it runs, if at all."""
    reader.variables.forget(assigned_names(script, node))
    any_part(reader, script, node)
