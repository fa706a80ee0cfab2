"""What calls and functions of a script are, as whoever follows its configs asks for them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from oomlint.documents.python.configs.holders import by_class
from oomlint.documents.python.configs.paths import At, CallFrame, function_of
from oomlint.documents.python.scopes import FunctionNode, enclosed


def entered(call: ast.Call, at: At) -> tuple[FunctionNode, At] | None:
    """The function of the project that a call enters, and the inside of it; none that is followed already."""
    found = function_of(call, at.scope, at.home)
    method = by_class(call, at) if found is None else None
    if method is not None:
        function, there, call = method[0], method[1].home, method[2]
    elif found is not None:
        function, there = found
    else:
        return None
    if at.called(function) is not None:
        return None
    own, inner = there.scopes.of_node[id(function)], CallFrame(function, call, at)
    return function, At(own, there, inner, at.depth + 1)


def returns(function: FunctionNode) -> list[ast.expr]:
    """What a function returns where it returns something."""
    given = [n.value for n in _enclosed_statements(function) if isinstance(n, ast.Return)]
    return [value for value in given if value is not None and not is_nothing(value)]


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((each.value for each in call.keywords if each.arg == name), None)


def unpacked_alone(call: ast.Call) -> ast.expr | None:
    if len(call.keywords) == 1 and call.keywords[0].arg is None:
        return call.keywords[0].value
    return None


def is_nothing(value: ast.expr | None) -> bool:
    """``{}`` and ``None``, which scripts take where there is no file."""
    if isinstance(value, ast.Dict):
        return not value.keys
    return isinstance(value, ast.Constant) and value.value is None


def _enclosed_statements(function: FunctionNode) -> Iterator[ast.AST]:
    """What stands in a function, and in no function inside it."""
    for statement in function.body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        yield from enclosed(statement)
