"""What the parameters of a function are while a call of it is followed that stands in another file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace

from oomlint.documents.base import Call, Node, Scalar
from oomlint.documents.python.configs.paths import argument_of, default_of
from oomlint.documents.python.scopes import FunctionNode, Scope
from oomlint.documents.python.values.parameters import parameters_of
from oomlint.documents.python.values.seen_nodes import from_elsewhere

if TYPE_CHECKING:
    from oomlint.documents.python.values.evaluator import Evaluator


@contextmanager
def entered(
    function: FunctionNode, there: Evaluator, call: ast.Call, scope: Scope, caller: Evaluator
) -> Iterator[None]:
    """While this lasts, parameters of a function are what the call gives them, or their defaults; of a call that
    unpacks something nobody tells which defaults count."""
    before = dict(there.entered_by)
    is_open = any(isinstance(each, ast.Starred) for each in call.args) or any(
        keyword.arg is None for keyword in call.keywords
    )
    for name in () if is_open else parameters_of(function):
        said = argument_of(call, function, name)
        default = default_of(function, name)
        if said is not None:
            there.entered_by[id(function), name] = (said, scope, caller)
        elif default is not None:
            there.entered_by[id(function), name] = (default, there.scopes.module, there)
    there.files.forget_values()
    try:
        yield
    finally:
        there.entered_by = before
        there.files.forget_values()


def by_caller(home: Evaluator, expression: ast.expr, scope: Scope, depth: int) -> Node | None:
    """What a parameter, or an attribute or item of one, is by the call that is followed; ``None`` of all else."""
    root = expression
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        root = root.value
    found = scope.find(root.id) if isinstance(root, ast.Name) and home.entered_by else None
    if found is None or not isinstance(root, ast.Name):
        return None
    owner, bindings = found
    given = home.entered_by.get((id(owner.node), root.id))
    is_given_alone = len(bindings) == 1 and bindings[0].kind == "parameter"
    if given is None or not is_given_alone:
        return None
    value, around, caller = given
    node = caller.node(_upon(value, expression), around, depth + 1)
    span = home.places.span(expression)
    if isinstance(node, Scalar) and isinstance(node.value, Call):
        return replace(node, span=span, via=None)
    return from_elsewhere(node, span, caller.places.source.path) if caller is not home else node


def _upon(value: ast.expr, expression: ast.expr) -> ast.expr:
    """The attributes and items of an expression, of another value: ``args.rank`` of what ``args`` is given."""
    match expression:
        case ast.Attribute(value=holder, attr=name):
            made: ast.expr = ast.Attribute(_upon(value, holder), name, ast.Load())
        case ast.Subscript(value=holder, slice=key):
            made = ast.Subscript(_upon(value, holder), key, ast.Load())
        case _:
            return value
    return ast.copy_location(made, value)
