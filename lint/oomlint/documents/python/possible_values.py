"""What names, attributes, items and calls may stand for: each expression that the text gives them, in the file or in
another of the project, where the evaluator (:mod:`.values`) takes one alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from oomlint.documents.python.branches import Tests
from oomlint.documents.python.configs.paths import At, CallFrame, argument_of, function_of
from oomlint.documents.python.flow import returned
from oomlint.documents.python.scopes import Binding, FunctionNode, dotted
from oomlint.documents.python.values import Evaluator

DEEPEST: Final = 16
# Steps of one walk: beyond is a program that chooses among much.
_LONGEST: Final = 1_000
# dataclasses.field, pydantic.Field, attrs.field.
_FIELDS: Final = frozenset({"field", "Field", "ib"})


class Walk:
    """One walk back from a value; what leads back to itself is nothing: ``model = model.module``, three times over,
    would be asked for in more ways than there is time for. A walk ``beside`` another asks something else on its way,
    in the steps that are left to both."""

    def __init__(self, beside: Walk | None = None) -> None:
        self._on_the_way: set[tuple[int, int, str]] = set()
        self._first: Walk = self if beside is None else beside._first
        self._steps = 0

    @contextmanager
    def step(self, expression: ast.expr, at: At, asked: str) -> Iterator[bool]:
        """One step, in which ``asked`` is looked for of an expression; whether there is something to find."""
        key = (id(expression), id(at.frame), asked)
        self._first._steps += 1
        if at.depth > DEEPEST or self._first._steps > _LONGEST or key in self._on_the_way:
            yield False
            return
        self._on_the_way.add(key)
        try:
            yield True
        finally:
            self._on_the_way.discard(key)


class Choice(Struct, frozen=True, eq=False):
    """The key of an item, which something is compared with that is ``asked``."""

    key: ast.expr
    at: At
    asked: ast.expr
    asked_at: At


class Possible(Struct, frozen=True, eq=False):
    """An expression that something may stand for, where it stands, and the tests around it."""

    value: ast.expr
    at: At
    tests: Tests = ()
    choice: Choice | None = None
    """Of an item, or of a part of one: what chooses it, where only running tells which one is taken."""


class _Class(Struct, frozen=True, eq=False):
    """A class of the project, in whose module it stands, and the call that makes an object of it."""

    cls: ast.ClassDef
    home: Evaluator
    call: ast.Call | None = None
    at: At | None = None
    choice: Choice | None = None


def possible_values(expression: ast.expr, at: At, walk: Walk) -> Iterator[Possible]:
    """What a name, an attribute, an item or a call may stand for at first hand; nothing of any other expression."""
    if at.depth > DEEPEST:
        return
    match expression:
        case ast.Name():
            yield from _of_name(expression, at)
        case ast.Attribute():
            yield from _of_attribute(expression, at, walk)
        case ast.Subscript(value=holder, slice=key):
            yield from _items(holder, key, at, walk)
        case ast.Call(func=ast.Attribute(value=holder, attr="get"), args=[key, *defaults]):
            yield from _items(holder, key, at, walk)
            yield from (Possible(each, at.deeper) for each in defaults)
        case ast.Call():
            yield from _returned(expression, at)


# -- names -----------------------------------------------------------------------------------------


def _of_name(name: ast.Name, at: At) -> Iterator[Possible]:
    found = at.scope.find(name.id)
    if found is None:
        return
    owner, bindings = found
    inner = At(owner, at.home, at.frame, at.depth + 1)
    for binding in bindings:
        yield from _bound(name.id, binding, inner)


def _bound(name: str, binding: Binding, at: At) -> Iterator[Possible]:
    if binding.kind == "parameter":
        yield from _passed(name, at)
    elif binding.kind == "import":
        elsewhere = at.imported(name)
        if elsewhere is not None:
            yield Possible(*elsewhere)
    elif binding.kind == "value" and binding.value is not None:
        yield Possible(binding.value, at, _tests_around(binding.value, at))


def _tests_around(value: ast.expr, at: At) -> Tests:
    return at.home.tree.tests_within(at.scope.node).get(id(value), ())


def _passed(name: str, at: At) -> Iterator[Possible]:
    """What the calls of a function, or of a method by its name, give its parameter, or its default."""
    given = [Possible(*each) for each in at.home.files.given(name, at.scope, at)]
    function = at.scope.node
    if not given and isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        given = list(_passed_to_method(name, function, at))
    yield from given


def _passed_to_method(name: str, function: FunctionNode, at: At) -> Iterator[Possible]:
    arguments = function.args
    places = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
    tree = at.home.tree
    called = function.name
    if called == "__init__":
        called = next((c.name for c in tree.classes if function in c.body), "")
    for call in tree.calls_to(called) if places[:1] == ["self"] else ():
        bound = ast.copy_location(
            ast.Call(call.func, [call.func, *call.args], call.keywords), call
        )  # Python itself gives the first, ``self``
        value = argument_of(bound, function, name)
        scope = tree.scope_of.get(id(call))
        if value is not None and scope is not None:
            yield Possible(value, At(scope, at.home, depth=at.depth + 1))
    places_of_defaults = places[len(places) - len(arguments.defaults) :]
    for each, default in zip(places_of_defaults, arguments.defaults, strict=True):
        if each == name:
            yield Possible(default, At(at.home.scopes.module, at.home, depth=at.depth + 1))


# -- attributes ------------------------------------------------------------------------------------


def _of_attribute(expression: ast.Attribute, at: At, walk: Walk) -> Iterator[Possible]:
    """``module.NAME``, ``self.name``, a field of an object, and what statements give an attribute by that dotted name."""
    name = dotted(expression)
    elsewhere = None if name is None else at.imported(name)
    if elsewhere is not None:
        yield Possible(*elsewhere)
        return
    home = at.home
    for assignment in home.tree.assignments:
        if name is not None and any(dotted(each) == name for each in assignment.targets):
            inner = _around(assignment, at)
            yield Possible(assignment.value, inner, _tests_around(assignment.value, inner))
    for made in _objects(expression.value, at, walk):
        for each in _field(made, expression.attr, at):
            yield replace(each, choice=each.choice or made.choice)


def _around(statement: ast.stmt, at: At) -> At:
    """Where a statement stands: in the innermost function whose lines it is among."""
    home, line = at.home, statement.lineno
    inside = (f for f in home.tree.functions if f.lineno <= line <= (f.end_lineno or 0))
    owner = max(inside, key=lambda each: each.lineno, default=home.tree.root)
    scope = home.scopes.of_node.get(id(owner), home.scopes.module)
    return At(scope, home, at.frame, at.depth + 1)


def _objects(holder: ast.expr, at: At, walk: Walk) -> Iterator[_Class]:
    """The classes of the project that an object may be of, and those that are themselves asked."""
    with walk.step(holder, at, "objects") as goes_on:
        if not goes_on:
            return
        if isinstance(holder, ast.Call):
            for cls, home in _classes(holder.func, at):
                yield _Class(cls, home, holder, at)
            return
        yield from (_Class(*each) for each in _classes(holder, at))
        for each in possible_values(holder, at, walk):
            for made in _objects(each.value, each.at, walk):
                yield replace(made, choice=made.choice or each.choice)


def _classes(expression: ast.expr, at: At) -> Iterator[tuple[ast.ClassDef, Evaluator]]:
    name = dotted(expression)
    if name is None:
        return
    own = at.home.scopes.classes.get(name)
    if own is not None:
        yield own, at.home
        return
    elsewhere = at.home.elsewhere(name, at.scope)
    if elsewhere is not None:
        home, there = elsewhere
        cls = home.scopes.classes.get(dotted(there) or "")
        if cls is not None:
            yield cls, home


def _field(made: _Class, attribute: str, at: At) -> Iterator[Possible]:
    """What the call that makes an object gives a field, what its methods assign to it, or the default of its class."""
    call, home = made.call, made.home
    inner = At(home.scopes.of_node[id(made.cls)], home, depth=at.depth + 1)
    named = () if call is None else (k.value for k in call.keywords if k.arg == attribute)
    given = next(iter(named), None)
    if given is not None and made.at is not None:
        yield Possible(given, made.at.deeper)
        return
    for statement, method in home.tree.stores_of(made.cls).get(attribute, ()):
        if statement.value is not None and method is not None:
            scope = home.scopes.of_node[id(method)]
            frame = None
            if call is not None and made.at is not None and method.name == "__init__":
                bound = ast.copy_location(
                    ast.Call(call.func, [call.func, *call.args], call.keywords), call
                )
                frame = CallFrame(method, bound, made.at)
            there = At(scope, home, frame, at.depth + 1)
            yield Possible(statement.value, there, _tests_around(statement.value, there))
    for each in made.cls.body:
        match each:
            case (
                ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                | ast.Assign(targets=[ast.Name(id=name)], value=value)
            ) if name == attribute:
                yield Possible(_default(value), inner)


def _default(value: ast.expr) -> ast.expr:
    """The default in ``= field(default=value)`` and ``= Field(value)``; of a factory, what it makes."""
    if not isinstance(value, ast.Call) or (dotted(value.func) or "").split(".")[-1] not in _FIELDS:
        return value
    keywords = {keyword.arg: keyword.value for keyword in value.keywords}
    factory = keywords.get("default_factory")
    if isinstance(factory, ast.Lambda):
        return factory.body
    if factory is not None:
        return ast.copy_location(ast.Call(factory, [], []), value)
    return keywords.get("default") or (value.args[0] if value.args else value)


# -- items -----------------------------------------------------------------------------------------


def _items(holder: ast.expr, key: ast.expr, at: At, walk: Walk) -> Iterator[Possible]:
    """The item of a dictionary or a list under a key, or each of them with its own where the key is not known."""
    wanted = at.home.value(key, at.scope)
    is_known = isinstance(wanted, (str, int)) and not isinstance(wanted, bool)
    is_constant = isinstance(key, ast.Constant) and is_known
    for each in _collections(holder, at, walk):
        if isinstance(each.value, ast.Dict):
            pairs = zip(each.value.keys, each.value.values, strict=True)
            for name, value in pairs:
                if name is None:
                    continue
                if not is_constant:
                    choice = Choice(name, each.at, key, at)
                    yield Possible(value, each.at, each.tests, choice)
                elif each.at.home.value(name, each.at.scope) == wanted:
                    yield replace(each, value=value)
        elif isinstance(each.value, (ast.List, ast.Tuple)):
            elements = each.value.elts
            chosen = elements[wanted : wanted + 1] if isinstance(wanted, int) else elements
            yield from (replace(each, value=value) for value in chosen)


def _collections(holder: ast.expr, at: At, walk: Walk) -> Iterator[Possible]:
    with walk.step(holder, at, "collections") as goes_on:
        if not goes_on:
            return
        if isinstance(holder, (ast.Dict, ast.List, ast.Tuple)):
            yield Possible(holder, at)
            return
        for each in possible_values(holder, at, walk):
            for inner in _collections(each.value, each.at, walk):
                yield replace(inner, choice=inner.choice or each.choice)


# -- calls -----------------------------------------------------------------------------------------


def _returned(call: ast.Call, at: At) -> Iterator[Possible]:
    """What a function of the project gives back, or a method of the class around the call."""
    found = function_of(call, at.scope, at.home) or _own_method(call, at)
    if found is None:
        return
    function, home = found
    bound = call
    if function.args.args[:1] and function.args.args[0].arg == "self":
        bound = ast.copy_location(ast.Call(call.func, [call.func, *call.args], call.keywords), call)
    there = At(
        home.scopes.of_node[id(function)], home, CallFrame(function, bound, at), at.depth + 1
    )
    for value in returned(function):
        yield Possible(value, there, _tests_of_return(value, function))


def _own_method(call: ast.Call, at: At) -> tuple[FunctionNode, Evaluator] | None:
    name = dotted(call.func) or ""
    if not name.startswith("self."):
        return None
    found = [each for each in at.home.tree.functions if each.name == name[len("self.") :]]
    return (found[0], at.home) if len(found) == 1 else None


def _tests_of_return(value: ast.expr, function: FunctionNode) -> Tests:
    """The tests around the ``return`` of a value."""
    return _around_return(function.body, value, ()) or ()


def _around_return(body: list[ast.stmt], value: ast.expr, tests: Tests) -> Tests | None:
    for statement in body:
        if isinstance(statement, ast.Return) and statement.value is value:
            return tests
        if isinstance(statement, ast.If):
            sides = ((statement.body, True), (statement.orelse, False))
            for side, holds in sides:
                found = _around_return(side, value, (*tests, (statement.test, holds)))
                if found is not None:
                    return found
    return None
