"""What attributes and items of objects of a script are."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from oomlint.documents.base import Node, Scalar
from oomlint.documents.python.environment import is_set_by_launchers, variable_taken
from oomlint.documents.python.instances import AttributeValue, attribute
from oomlint.documents.python.nodes import PythonScalar, option_of
from oomlint.documents.python.object_changes import runs_before, stores_in
from oomlint.documents.python.parsers import PARSES_ARGUMENTS, Switch, are_parsed, field_default
from oomlint.documents.python.scopes import Binding, Scope, dotted
from oomlint.documents.python.values.called import as_set, path_in
from oomlint.documents.python.values.choices import set_or
from oomlint.documents.python.values.dicts import held_dict, looked_up, passed_name
from oomlint.documents.python.values.entered import by_caller
from oomlint.documents.python.values.limits import DEEPEST, GIVEN, SHARED
from oomlint.documents.python.values.named import imported, reached, seen_at
from oomlint.documents.python.values.seen_nodes import (
    from_elsewhere,
    locked_by,
    of_option,
    or_none,
    seen_from,
    unknown_at,
)
from oomlint.documents.python.walking import walk
from oomlint.documents.text import Span

if TYPE_CHECKING:
    from oomlint.documents.python.values.evaluator import Evaluator

# Functions hand on what they are given.
_MOST_FUNCTIONS: Final = 6


def attribute_of(home: Evaluator, expression: ast.Attribute, scope: Scope, depth: int) -> Node:
    """``args.batch``, ``self.size``, ``Path(x).parent``: what the attribute of an object is."""
    span = home.places.span(expression)
    if expression.attr == "parent":
        above = path_in(home, expression, scope, depth)
        if above is not None:
            return above
    name = dotted(expression)
    if name is None:
        made = isinstance(expression.value, ast.Call) and attribute(expression, scope, home)
        return _of_object(home, made, span, "", depth) if made else unknown_at(span)
    root, _, rest = name.partition(".")
    qualified = scope.imported(root)
    if qualified:
        return imported(home, expression, f"{qualified}.{rest}", scope, depth)
    said = by_caller(home, expression, scope, depth)
    if said is not None:
        return said
    found = attribute(expression, scope, home)
    if found is not None:
        return _of_object(home, found, span, name, depth)
    own = home.own(rest, scope) if root == "self" else None
    if own is not None:
        return seen_at(home, home.node(*own, depth + 1), span, name, alone=False)
    return unknown_at(span) if "." in rest else _of_parsed(home, expression, root, scope, depth)


def _of_parsed(home: Evaluator, asked: ast.Attribute, root: str, scope: Scope, depth: int) -> Node:
    """``root.name`` where ``root`` may be what a parser of the command line returned, if nothing changes it unseen."""
    for alias in _names_of(home, root, scope):
        if f"{alias}.*" in home.scopes.changed:
            return unknown_at(home.places.span(asked))
        name = f"{alias}.{asked.attr}"
        if name in home.scopes.changed:
            return _stored(home, name, asked, scope, depth)
    return _option(home, asked, root, scope, depth)


def _names_of(home: Evaluator, name: str, scope: Scope) -> Iterator[str]:
    """What an object is called, here and by those who give it to the function that asks."""
    for _ in range(_MOST_FUNCTIONS):
        yield name
        passed = passed_name(home, name, scope)
        if passed is None:
            return
        name, scope = passed


def _stored(home: Evaluator, name: str, asked: ast.Attribute, scope: Scope, depth: int) -> Node:
    """An option of which one statement makes something, whatever the command line says, or where it says nothing:
    ``if args.model is None: args.model = MODELS[args.size]``. ``name`` is what the option is called there."""
    span = home.places.span(asked)
    stores = stores_in([(home, name.partition(".")[0])], asked.attr) or []
    is_first = len(stores) == 1 and runs_before(stores[0], asked, scope, home)
    if not is_first or not _is_parsed(home, stores[0].target.value, stores[0].scope):
        return unknown_at(span)
    (store,) = stores
    made = home.node(store.value, store.scope, depth + 1)
    if not store.tests:
        return locked_by(seen_from(made, span), SHARED.format(name))
    if not store.asks_if_unset or not _is_unset(home, asked.attr, depth):
        return unknown_at(span)
    return set_or(PythonScalar(span, None, option=asked.attr), made, span)


def _is_unset(home: Evaluator, option: str, depth: int) -> bool:
    """Whether an option has no default, so that it is ``None`` or the like where nobody says it."""
    default = home.options.get(option)
    if default is None:
        return True
    return home.value(default, home.scope_of_default(default), depth + 1) in (None, "", 0)


def _is_parsed(home: Evaluator, holder: ast.expr, scope: Scope) -> bool:
    """Whether a name is what a parser of the command line gives."""
    found = scope.find(dotted(holder) or "")
    return found is not None and are_parsed(found[1], home.tree)


def _option(home: Evaluator, asked: ast.Attribute, root: str, scope: Scope, depth: int) -> Node:
    """``root.rest`` where ``root`` is what a parser of the command line returned."""
    span, rest = home.places.span(asked), asked.attr
    default = _setting(home, root, rest, scope)
    if default is not None:
        name = f"{root}.{rest}"
        written = home.scope_of_default(default)
        node = reached(home, default, written, span, name, depth, setting=True)
        is_switch = isinstance(default, Switch)
        return locked_by(node, f"{name} is a switch of the command line") if is_switch else node
    parsed = _parsed_elsewhere(home, root, scope, 0)
    if parsed is not None and rest in parsed.options:
        default = parsed.options[rest]
        node = parsed.node(default, parsed.scope_of_default(default), depth + 1)
        there = from_elsewhere(node, span, parsed.places.source.path)
        return of_option(or_none(there), rest)
    if home.settings.get(root, root) not in (root, *home.scopes.classes):
        return of_option(unknown_at(span), rest)  # by the default of a library's class
    passed = passed_name(home, root, scope) if depth <= DEEPEST else None
    if passed is None:
        return unknown_at(span)
    node = _option(home, asked, passed[0], passed[1], depth + 1)
    return locked_by(node, SHARED.format(f"{passed[0]}.{rest}"))


def _of_object(home: Evaluator, found: AttributeValue, span: Span, name: str, depth: int) -> Node:
    """What an attribute of an object of the project is, from where it is asked for."""
    node = found.home.node(found.value, found.scope, depth + 1)
    if found.unless is not None:
        node = _unless_said(found.unless, node, span, depth)
    if found.home is not home:
        node = from_elsewhere(node, span, found.home.places.source.path)
    elif found.may_differ:
        node = locked_by(seen_from(node, span), f"{name} may come from the environment")
    else:
        node = seen_at(home, node, span, name, alone=home.scopes.reads[name] <= 1)
    if not found.may_differ or not isinstance(node, Scalar):
        return node
    return PythonScalar(
        node.span,
        node.value,
        node.plain,
        node.via,
        node.locked,
        may_differ=True,
        option=option_of(node),
    )


def _unless_said(said: AttributeValue, node: Node, span: Span, depth: int) -> Node:
    """A value in whose place stands what the command line says for an option, if it says that."""
    told = said.home.node(said.value, said.scope, depth + 1)
    option = option_of(told)
    if not option or not isinstance(told, Scalar) or not isinstance(node, Scalar):
        return unknown_at(span)
    return told if told.value else of_option(node, option)


def item_of(home: Evaluator, expression: ast.Subscript, scope: Scope, depth: int) -> Node:
    """``CONFIG["key"]`` of a dict that nothing changes, ``path.parents[1]``."""
    above = path_in(home, expression, scope, depth) or by_caller(home, expression, scope, depth)
    if above is not None:
        return above
    span = home.places.span(expression)
    variable = variable_taken(expression, scope)
    if variable is not None:
        is_set = not is_set_by_launchers(variable) and home.files.sets(variable)
        return as_set(home, variable, span) if is_set else unknown_at(span)
    asked = home.node(expression.slice, scope, depth + 1)
    chosen = looked_up(home, expression.value, asked, unknown_at(span), (span, scope, depth))
    if chosen is not None:
        return chosen
    key = home.value(expression.slice, scope, depth + 1)
    held = held_dict(home, expression.value, scope, depth) if isinstance(key, str) else None
    node = None if held is None else held.under(key, home)
    if held is None or node is None:
        return unknown_at(span)
    if not held.name:
        return locked_by(node, GIVEN)
    reads, name = home.scopes.reads, held.name
    by_key = reads[name] == reads[f"{name}[]"] and reads[f"{name}[{key!r}]"] == 1
    return seen_at(home, node, span, name, alone=by_key)


def _setting(home: Evaluator, holder: str, attribute: str, scope: Scope) -> ast.expr | None:
    """The default of ``args.x`` or ``script_args.x``."""
    found = scope.find(holder)
    if found is None:
        return None
    is_parsed = are_parsed(found[1], home.tree)
    if len(found[1]) != 1 and not is_parsed:
        return None
    binding = found[1][0]
    cls = _settings_class(home, holder, binding)
    if cls is not None:
        return field_default(home.scopes.classes.get(cls), attribute)
    if is_parsed:
        return home.options.get(attribute)
    return None


def _parsed_elsewhere(home: Evaluator, holder: str, scope: Scope, depth: int) -> Evaluator | None:
    """Who declares the options of ``args``, where a function of another module parses them:
    ``args = get_args()``."""
    found = scope.find(holder)
    if found is None or len(found[1]) != 1 or depth > DEEPEST:
        return None
    binding = found[1][0]
    value, around = binding.value, found[0]
    if binding.kind == "parameter":
        given = home.given.get((id(found[0].node), holder), [])
        value, around = given[0] if len(given) == 1 else (None, scope)
        if isinstance(value, ast.Name):
            return _parsed_elsewhere(home, value.id, around, depth + 1)
    called = dotted(value.func) if isinstance(value, ast.Call) else None
    there = home.elsewhere(called, around) if called else None
    if there is None:
        return None
    other, name = there
    parses = (
        isinstance(call.func, ast.Attribute) and call.func.attr in PARSES_ARGUMENTS
        for function in other.tree.functions
        if function.name == dotted(name)
        for call in walk(function)
        if isinstance(call, ast.Call)
    )
    return other if any(parses) else None


def _settings_class(home: Evaluator, holder: str, binding: Binding) -> str | None:
    annotation = binding.annotation
    if annotation is not None:
        name = dotted(annotation)
        if name in home.scopes.classes:
            return name
    cls = home.settings.get(holder)
    return cls if cls in home.scopes.classes else None
