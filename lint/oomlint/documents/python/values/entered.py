"""What the parameters of a function are while a call of it is followed that stands in another file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace

from oomlint.documents.base import UNKNOWN, Call, Node, Scalar
from oomlint.documents.python.configs.paths import argument_of, default_of
from oomlint.documents.python.plain_values import plain_value
from oomlint.documents.python.scopes import FunctionNode, Scope, dotted
from oomlint.documents.python.values.limits import DEEPEST
from oomlint.documents.python.values.parameters import parameters_of
from oomlint.documents.python.values.seen_nodes import from_elsewhere, unknown_at
from oomlint.documents.text import Span

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


def by_caller(
    home: Evaluator, expression: ast.expr, scope: Scope, depth: int, at: Span | None = None
) -> Node | None:
    """What a parameter, or an attribute or item of one, is by the call that is followed, or of the program of another
    file that calls the function; ``None`` of all else."""
    if depth > DEEPEST or not (home.entered_by or home.by_programs):
        return None
    root = expression
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        if isinstance(root, ast.Subscript) and not isinstance(root.slice, ast.Constant):
            return None  # a name of this file, which stands for something else in another
        root = root.value
    if not isinstance(root, ast.Name):
        return None
    if root.id == "self" and home.by_programs:
        kept = _kept_by_object(home, expression, scope)
        span = home.places.span(expression) if at is None else at
        return None if kept is None else by_caller(home, *kept, depth + 1, span)
    found = scope.find(root.id)
    if found is None:
        return None
    owner, bindings = found
    key = (id(owner.node), root.id)
    given = [home.entered_by[key]] if key in home.entered_by else home.by_programs.get(key, [])
    is_given_alone = len(bindings) == 1 and bindings[0].kind == "parameter"
    if not given or not is_given_alone:
        return None
    span = home.places.span(expression) if at is None else at
    nodes = [_given(home, expression, each, span, depth) for each in given]
    values = [plain_value(each) for each in nodes]
    is_alike = UNKNOWN not in values and len(set(map(repr, values))) == 1
    return nodes[0] if is_alike or len(nodes) == 1 else unknown_at(span)


def _given(
    home: Evaluator,
    expression: ast.expr,
    given: tuple[ast.expr, Scope, Evaluator],
    span: Span,
    depth: int,
) -> Node:
    value, around, caller = given
    node = caller.node(_upon(value, expression), around, depth + 1)
    if isinstance(node, Scalar) and isinstance(node.value, Call):
        return replace(node, span=span, via=None)
    return from_elsewhere(node, span, caller.places.source.path) if caller is not home else node


def _kept_by_object(
    home: Evaluator, expression: ast.expr, scope: Scope
) -> tuple[ast.expr, Scope] | None:
    """``config.rank`` of ``self.config.rank``, where objects keep what they are made of under that name; where that may be
    left out, the parameter counts as given."""
    holder = expression
    while isinstance(holder, (ast.Attribute, ast.Subscript)):
        if isinstance(holder.value, ast.Name):
            break
        holder = holder.value
    name = dotted(expression)
    if not isinstance(holder, ast.Attribute) or name is None:
        return None
    is_changed = {name, f"{name.rpartition('.')[0]}.*"} & home.scopes.changed
    own = home.own(holder.attr, scope)
    if own is None or (is_changed and holder is not expression):
        return None
    value, around = own
    if isinstance(value, ast.BoolOp) and isinstance(value.op, ast.Or):
        value = value.values[0]
    return (_upon(value, expression, holder), around) if isinstance(value, ast.Name) else None


def _upon(value: ast.expr, expression: ast.expr, root: ast.expr | None = None) -> ast.expr:
    """The attributes and items of an expression, of another value: ``args.rank`` of what ``args`` is given; those beyond
    a ``root``."""
    if expression is root:
        return value
    match expression:
        case ast.Attribute(value=holder, attr=name):
            made: ast.expr = ast.Attribute(_upon(value, holder, root), name, ast.Load())
        case ast.Subscript(value=holder, slice=ast.Constant(value=key)):
            place = ast.copy_location(ast.Constant(key), value)
            made = ast.Subscript(_upon(value, holder, root), place, ast.Load())
        case _:
            return value
    return ast.copy_location(made, value)
