"""Variables of a launcher that a script sets for itself, being the only process that there is."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Final

from oomlint.documents.python.calls import ReachedCall
from oomlint.documents.python.scopes import FunctionNode, Scope, dotted
from oomlint.documents.python.tree import Tree

_ENVIRONMENT: Final = frozenset({"os.environ", "environ"})
_SETTERS: Final = frozenset({"os.environ.setdefault", "environ.setdefault", "os.putenv"})


def variable_set(
    name: str, tree: Tree, steps: Sequence[ReachedCall]
) -> Iterator[tuple[ast.expr, Scope]]:
    """What the script gives an environment variable whenever it is started by hand, with the scope that it is
    written in: at module level and in functions that are called from there, in no branch but one that asks
    whether a launcher has set such variables."""
    for body, scope in _bodies(tree, steps):
        for statement in _reached(body):
            for value in _given(name, statement):
                yield value, scope


def _bodies(tree: Tree, steps: Sequence[ReachedCall]) -> Iterator[tuple[list[ast.stmt], Scope]]:
    yield tree.root.body, tree.scopes.module
    called: dict[int, FunctionNode] = {}
    for step in steps:
        if step.reached and not step.arms and isinstance(step.node.func, ast.Name):
            function = tree.scopes.functions.get(step.node.func.id)
            if function is not None:
                called[id(function)] = function
    for function in called.values():
        yield function.body, tree.scopes.of_node[id(function)]


def _reached(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        match statement:
            case ast.If(test=test, body=inner) if _asks_who_started(test):
                yield from _reached(inner)
            case ast.With(body=inner) | ast.Try(body=inner):
                yield from _reached(inner)
            case _:
                yield statement


def _asks_who_started(test: ast.expr) -> bool:
    """``__name__ == "__main__"``, ``"RANK" not in os.environ``, ``os.environ.get("RANK") is None`` and
    ``not os.environ.get("RANK")``: true of a script that nothing but a shell started."""
    match test:
        case ast.Compare(left=ast.Name(id="__name__"), ops=[ast.Eq()]):
            return True
        case ast.Compare(ops=[ast.NotIn()], comparators=[holder]):
            return dotted(holder) in _ENVIRONMENT
        case ast.Compare(left=asked, ops=[ast.Is()], comparators=[ast.Constant(value=None)]):
            return _reads_environment(asked)
        case ast.UnaryOp(op=ast.Not(), operand=asked):
            return _reads_environment(asked)
    return False


def _reads_environment(value: ast.expr) -> bool:
    if not isinstance(value, ast.Call) or len(value.args) > 1:
        return False
    name = dotted(value.func) or ""
    return name.endswith("getenv") or name.rpartition(".")[0] in _ENVIRONMENT


def _given(name: str, statement: ast.stmt) -> Iterator[ast.expr]:
    match statement:
        case ast.Assign(targets=[ast.Subscript(value=holder, slice=key)], value=value):
            if dotted(holder) in _ENVIRONMENT and _is_text(key, name):
                yield value
        case ast.Expr(value=ast.Call(func=function, args=[key, value])):
            if dotted(function) in _SETTERS and _is_text(key, name):
                yield value
        case ast.Expr(value=ast.Call(func=function, args=[ast.Dict(keys=keys, values=values)])):
            changed, _, method = (dotted(function) or "").rpartition(".")
            if changed in _ENVIRONMENT and method == "update":
                yield from (v for k, v in zip(keys, values, strict=True) if _is_text(k, name))


def _is_text(key: ast.expr | None, text: str) -> bool:
    return isinstance(key, ast.Constant) and key.value == text
