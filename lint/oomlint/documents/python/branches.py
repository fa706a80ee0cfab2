"""Under which tests the statements of a scope give its names their values."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from msgspec import Struct

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


def values_stored(owner: ast.AST, name: str) -> Mapping[str, tuple[tuple[ast.expr, Tests], ...]]:
    """By key, what the statements of a module or function put into a dictionary that they call ``name``, and the tests
    around each; those in loops are left out."""
    found: dict[str, list[tuple[ast.expr, Tests]]] = {}
    for statement, tests in statements(getattr(owner, "body", []), ()):
        for key, value in _stores(statement, name):
            found.setdefault(key, []).append((value, tests))
    return {key: tuple(stores) for key, stores in found.items()}


def statements(body: object, tests: Tests = ()) -> Iterator[tuple[ast.stmt, Tests]]:
    """What runs once if its tests hold, the outermost first; what loops hold is left out, and what is tried."""
    for statement in body if isinstance(body, list) else ():
        yield statement, tests
        if isinstance(statement, ast.If):
            yield from statements(statement.body, (*tests, (statement.test, True)))
            yield from statements(statement.orelse, (*tests, (statement.test, False)))
        elif isinstance(statement, (ast.With, ast.AsyncWith)):
            yield from statements(statement.body, tests)


def _stores(statement: ast.stmt, name: str) -> Iterator[tuple[str, ast.expr]]:
    """``more["bf16"] = True``, ``more.update({"bf16": True})``, ``more.update(bf16=True)``."""
    match statement:
        case ast.Assign(
            targets=[ast.Subscript(value=ast.Name(id=held), slice=ast.Constant(value=str(key)))],
            value=value,
        ) if held == name:
            yield key, value
        case ast.Expr(
            value=ast.Call(func=ast.Attribute(value=ast.Name(id=held), attr="update")) as call
        ) if held == name:
            yield from items_of_update(call)
        case _:
            pass


def items_of_update(call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """The keys that ``settings.update(…)`` sets, with their values, where it writes them out."""
    for given in call.args:
        match given:
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    if isinstance(key, ast.Constant) and isinstance(key.value, str):
                        yield key.value, value
            case ast.Call(func=ast.Name(id="dict"), args=[], keywords=named):
                yield from ((each.arg, each.value) for each in named if each.arg is not None)
            case _:
                pass
    yield from ((each.arg, each.value) for each in call.keywords if each.arg is not None)


class KeptItems(Struct, frozen=True, eq=False):
    """What a comprehension keeps of a dictionary as it is: of ``whole`` the items, as ``key`` and ``value``, that pass all
    ``tests``."""

    whole: ast.expr
    key: str
    value: str
    tests: list[ast.expr]


def kept_items(expression: ast.expr) -> KeptItems | None:
    """``{k: v for k, v in given.items() if k in known}``, taken apart; ``None`` of what makes others of them."""
    match expression:
        case ast.DictComp(
            key=ast.Name(id=key),
            value=ast.Name(id=value),
            generators=[
                ast.comprehension(
                    target=ast.Tuple(elts=[ast.Name(id=first), ast.Name(id=second)]),
                    iter=ast.Call(func=ast.Attribute(value=whole, attr="items"), args=[]),
                    ifs=tests,
                )
            ],
        ) if (key, value) == (first, second):
            return KeptItems(whole, key, value, tests)
    return None
