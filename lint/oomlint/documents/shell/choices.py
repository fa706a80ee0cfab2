"""Branches of a script: the one that runs, or any of those that may."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from oomlint.documents.shell.branches import arms, gives_up, matching_item
from oomlint.documents.shell.outcomes import any_of, any_part
from oomlint.documents.shell.syntax import ShellTree

if TYPE_CHECKING:
    from tree_sitter import Node as Syntax

    from oomlint.documents.shell.reader import Reader

_NAME = re.compile(r"\$\{?([A-Za-z_]\w*)", re.ASCII)


def run_if(reader: Reader, script: ShellTree, node: Syntax) -> None:
    """The first arm whose condition holds, or any of those that may run."""
    conditions = reader.conditions(script, [("", node)])
    open_groups: list[list[Syntax]] = []
    held: bool | None = None
    for condition, body in arms(node):
        held = True if condition is None else conditions.holds(condition)
        if held is False:
            continue
        if held and not open_groups:
            if condition is not None:
                reader.statement(script, condition)
            for child in body:
                reader.statement(script, child)
            if condition is not None and gives_up(script, body):
                reader.variables.forget(set(_NAME.findall(script.text.of(condition))))
            return
        open_groups.append(body if condition is None else [condition, *body])
        if held:
            break
    if open_groups:
        any_of(reader, script, node, open_groups, one_runs=held is True)


def run_case(reader: Reader, script: ShellTree, node: Syntax) -> None:
    """The item that fits, or any of them."""
    item = matching_item(script, node, reader.variables.expander(script))
    if item is not None:
        reader.statements(script, item)
    else:
        any_part(reader, script, node)
