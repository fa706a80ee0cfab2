"""Under which tests the statements of a scope give its names their values."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import TypeAlias

Tests: TypeAlias = tuple[tuple[ast.expr, bool], ...]
"""The tests around a statement, the outermost first, and whether each must hold."""


def tests_of_values(owner: ast.AST) -> Mapping[int, Tests]:
    """Of each value that the statements of a module or function assign, by ``id``, the tests around it; those in
    loops are left out, whose turns come after one another."""
    return dict(_within(getattr(owner, "body", []), ()))


def _within(body: object, tests: Tests) -> Iterator[tuple[int, Tests]]:
    for statement in body if isinstance(body, list) else ():
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
            yield id(statement.value), tests
        elif isinstance(statement, ast.If):
            yield from _within(statement.body, (*tests, (statement.test, True)))
            yield from _within(statement.orelse, (*tests, (statement.test, False)))
        elif isinstance(statement, (ast.With, ast.AsyncWith)):
            yield from _within(statement.body, tests)
