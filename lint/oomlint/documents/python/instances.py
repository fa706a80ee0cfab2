"""What attributes of a project's own objects are: of a class that holds settings, of an instance
that the program makes of one, wherever in the project they stand.

``settings = Settings()`` and ``settings.batch_size``: what the call says, else what ``__init__``
assigns, else the default in the class or in one that it is derived from. A class of pydantic's
settings takes each value from the environment where that has one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from oomlint.documents.python.configs.paths import function_of
from oomlint.documents.python.object_changes import (
    Alias,
    Store,
    everywhere,
    marks,
    runs_before,
    stores_in,
)
from oomlint.documents.python.scopes import Scope, dotted
from oomlint.documents.python.tree import Assignment

if TYPE_CHECKING:
    from oomlint.documents.python.values import Evaluator

_DEEPEST: Final = 8
# Classes of libraries that give those derived from them no attribute that is a setting, and take
# what a call names as one (pydantic 2.13 main.py, pydantic-settings 2.14 main.py).
_BASES: Final = frozenset({"object", "ABC", "BaseModel", "BaseSettings", "Generic", "Protocol"})
# Libraries whose classes of arguments keep what they are given under its name.
_LIBRARIES: Final = frozenset({"transformers", "trl", "peft"})
_FROM_ENVIRONMENT: Final = "BaseSettings"
# dataclasses.field, pydantic.Field, attrs.field.
_FIELDS: Final = frozenset({"field", "Field", "ib"})


class AttributeValue(Struct, frozen=True, eq=False):
    """An expression that gives an attribute its value, and where it is to be evaluated."""

    value: ast.expr
    home: Evaluator
    scope: Scope
    may_differ: bool = False
    """Whether a variable of the environment takes its place."""
    unless: AttributeValue | None = None
    """An option that takes its place where the command line says it: ``if args.batch: config.batch = args.batch``."""


class _Object(Struct, frozen=True, eq=False):
    """A class, or what a call makes of it."""

    cls: ast.ClassDef
    home: Evaluator
    call: ast.Call | None
    scope: Scope
    """Where the call stands."""
    caller: Evaluator
    names: tuple[Alias, ...] = ()
    """What it goes by, here and on the way here."""

    def called(self, name: str | None, evaluator: Evaluator) -> _Object:
        if name is None:
            return self
        return replace(self, names=(*self.names, (evaluator, name)))

    def is_same(self, other: _Object | None) -> bool:
        return other is not None and (self.cls, self.call) == (other.cls, other.call)


def attribute(
    expression: ast.Attribute, scope: Scope, evaluator: Evaluator
) -> AttributeValue | None:
    """What ``object.name`` is, if the text tells."""
    return _attribute(expression, scope, evaluator, 0)


def _attribute(
    expression: ast.Attribute, scope: Scope, evaluator: Evaluator, depth: int
) -> AttributeValue | None:
    held = _object(expression.value, scope, evaluator, depth)
    if held is None:
        if marks(dotted(expression.value) or "", expression.attr) & evaluator.scopes.changed:
            return None
        return _of_library(expression, scope, evaluator)
    held = held.called(dotted(expression.value), evaluator)
    stores = stores_in(everywhere(held.names), expression.attr)
    if stores is None:
        return None
    made = _of_call(held, expression.attr) or _of_class(held, held, expression.attr, depth)
    return (
        made
        if not stores
        else _as_stored(made, held, stores, (expression, scope, evaluator), depth)
    )


def _as_stored(
    made: AttributeValue | None,
    held: _Object,
    stores: list[Store],
    asked: tuple[ast.Attribute, Scope, Evaluator],
    depth: int,
) -> AttributeValue | None:
    """What the one statement that assigns to the attribute of this very object makes of it, before somebody asks for it;
    where that hangs on an option, it is what the option says, or else what it was."""
    if len(stores) != 1:
        return None
    (store,) = stores
    changed = _object(store.target.value, store.scope, store.home, depth + 1)
    if not held.is_same(changed) or not runs_before(store, *asked):
        return None
    said = AttributeValue(store.value, store.home, store.scope)
    if not store.tests:
        return said
    if made is None or made.unless is not None or not store.asks_for_itself:
        return None
    return replace(made, unless=said)


# -- which object ----------------------------------------------------------------------------------


def _object(expression: ast.expr, scope: Scope, evaluator: Evaluator, depth: int) -> _Object | None:
    if depth > _DEEPEST:
        return None
    if isinstance(expression, ast.Attribute):
        return _object_held(expression, scope, evaluator, depth)
    if isinstance(expression, ast.Call):
        called = _object(expression.func, scope, evaluator, depth + 1)
        if called is None:
            return _returned(expression, scope, evaluator, depth)
        if called.call is not None:
            return None
        return _Object(called.cls, called.home, expression, scope, evaluator)
    return _named(expression, scope, evaluator, depth) if isinstance(expression, ast.Name) else None


def _object_held(
    expression: ast.Attribute, scope: Scope, evaluator: Evaluator, depth: int
) -> _Object | None:
    """What another object, or a module, has under a name."""
    elsewhere = evaluator.elsewhere(dotted(expression) or "", scope)
    if elsewhere is not None:
        home, there = elsewhere
        found = _object(there, home.scopes.module, home, depth + 1)
        return None if found is None else found.called(dotted(expression), evaluator)
    if isinstance(expression.value, ast.Name) and expression.value.id == "self":
        own = evaluator.own(expression.attr, scope)
        found = None if own is None else _object(*own, evaluator, depth + 1)
        return None if found is None else found.called(dotted(expression), evaluator)
    inner = _attribute(expression, scope, evaluator, depth + 1)
    if inner is None or inner.unless is not None:
        return None
    found = _object(inner.value, inner.scope, inner.home, depth + 1)
    holder = _object(expression.value, scope, evaluator, depth + 1)
    if found is None or holder is None:
        return found
    names = tuple((home, f"{name}.{expression.attr}") for home, name in holder.names)
    return replace(found, names=(*found.names, *names)).called(dotted(expression), evaluator)


def _returned(call: ast.Call, scope: Scope, evaluator: Evaluator, depth: int) -> _Object | None:
    """What a function of the project makes: ``config = get_config()``."""
    found = function_of(call, scope, evaluator)
    if found is None:
        return None
    function, there = found
    own = there.scopes.of_node[id(function)]
    value = there.end_of(function.body, own, depth + 1)
    return None if value is None else _object(value, own, there, depth + 1)


def _named(name: ast.Name, scope: Scope, evaluator: Evaluator, depth: int) -> _Object | None:
    found = _bound(name, scope, evaluator, depth)
    return None if found is None else found.called(name.id, evaluator)


def _bound(name: ast.Name, scope: Scope, evaluator: Evaluator, depth: int) -> _Object | None:
    found = scope.find(name.id)
    if found is None or len(found[1]) != 1:
        return None
    owner, (binding,) = found
    if binding.kind == "parameter":
        handed = _handed(name, scope, evaluator)
        return None if handed is None else _object(*handed, depth + 1)
    if binding.kind == "import":
        elsewhere = evaluator.elsewhere(name.id, scope)
        if elsewhere is None:
            return None
        home, there = elsewhere
        return _object(there, home.scopes.module, home, depth + 1)
    if binding.kind == "definition":
        cls = evaluator.scopes.classes.get(name.id)
        return None if cls is None else _Object(cls, evaluator, None, owner, evaluator)
    is_made = binding.kind == "value" and isinstance(
        binding.value, (ast.Call, ast.Name, ast.Attribute)
    )
    if not is_made or binding.value is None:
        return None
    return _object(binding.value, owner, evaluator, depth + 1)


def _handed(
    name: ast.Name, scope: Scope, evaluator: Evaluator
) -> tuple[ast.expr, Scope, Evaluator] | None:
    """What the one call of a function gives the parameter of that name."""
    found = scope.find(name.id)
    if found is None or len(found[1]) != 1 or found[1][0].kind != "parameter":
        return None
    key = (id(found[0].node), name.id)
    given = [(*each, evaluator) for each in evaluator.given.get(key, [])]
    given += evaluator.by_programs.get(key, [])
    return given[0] if len(given) == 1 else None


def _of_library(
    expression: ast.Attribute, scope: Scope, evaluator: Evaluator
) -> AttributeValue | None:
    """What the call of a library's class, TRL's ``ModelConfig(model_name_or_path="...")``, gives the
    attribute of that name: its defaults are for the tables of dialects to know."""
    value: ast.expr = expression.value
    for _ in range(_DEEPEST):
        if not isinstance(value, ast.Name):
            break
        handed = _handed(value, scope, evaluator)
        if handed is None:
            found = scope.find(value.id)
            if found is None or len(found[1]) != 1 or found[1][0].kind != "value":
                return None
            handed = (found[1][0].value or value, found[0], evaluator)
        value, scope, evaluator = handed
    name = dotted(value.func) if isinstance(value, ast.Call) else None
    qualified = scope.imported(name.partition(".")[0]) if name else None
    if not isinstance(value, ast.Call) or qualified is None:
        return None
    if qualified.partition(".")[0] not in _LIBRARIES:
        return None
    given = next((k.value for k in value.keywords if k.arg == expression.attr), None)
    return None if given is None else AttributeValue(given, evaluator, scope)


# -- what it says of an attribute ------------------------------------------------------------------


def _of_call(held: _Object, name: str) -> AttributeValue | None:
    """What the call that makes an instance gives the attribute of that name."""
    if held.call is None or _method(held.cls, "__init__") is not None:
        return None
    given = next((k.value for k in held.call.keywords if k.arg == name), None)
    return None if given is None else AttributeValue(given, held.caller, held.scope)


def _of_class(held: _Object, first: _Object, name: str, depth: int) -> AttributeValue | None:
    """What a class says of an attribute; ``first`` is what it was asked of. ``None`` as well where
    nobody can tell: a positional argument, a method that assigns it, a base that is not here."""
    if depth > _DEEPEST or (first.call is not None and _is_open(first.call)):
        return None
    stores = [node for node, _ in held.home.tree.stores_of(held.cls).get(name, ())]
    if stores and first.call is not None:
        return _of_init(held, first, stores)
    values = [value for target, value in fields_in(held.cls) if target == name]
    scope = held.home.scopes.of_node[id(held.cls)]
    if values or stores or _method(held.cls, name) is not None:
        default = default_in(values[0]) if len(values) == 1 else None
        if default is None:
            return None
        return AttributeValue(default, held.home, scope, may_differ=_asks_environment(first, 0))
    for base in held.cls.bases:
        parent = _object(base, held.home.scopes.module, held.home, depth + 1)
        if parent is None and (dotted(base) or "").rpartition(".")[2] not in _BASES:
            return None
        found = None if parent is None else _of_class(parent, first, name, depth + 1)
        if found is not None:
            return found
    return None


def _of_init(held: _Object, first: _Object, stores: list[Assignment]) -> AttributeValue | None:
    """What the one statement of ``__init__`` that assigns the attribute gives it."""
    init = _method(held.cls, "__init__")
    if init is None or len(stores) != 1 or stores[0] not in init.body or held.cls is not first.cls:
        return None
    value = stores[0].value
    scope = held.home.scopes.of_node[id(init)]
    if not isinstance(value, ast.Name) or value.id not in scope.bindings:
        return None if value is None else AttributeValue(value, held.home, scope)
    assert first.call is not None
    given = next((k.value for k in first.call.keywords if k.arg == value.id), None)
    if given is not None:
        return AttributeValue(given, first.caller, first.scope)
    binding = scope.bindings[value.id]
    default = binding[0].value if len(binding) == 1 else None
    return None if default is None else AttributeValue(default, held.home, held.home.scopes.module)


def _is_open(call: ast.Call) -> bool:
    return bool(call.args) or any(keyword.arg is None for keyword in call.keywords)


def fields_in(cls: ast.ClassDef) -> Iterator[tuple[str, ast.expr | None]]:
    """What the body of a class assigns; without a value where a field is only declared."""
    for statement in cls.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id, statement.value
        elif isinstance(statement, ast.Assign):
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    yield target.id, statement.value


def default_in(value: ast.expr | None) -> ast.expr | None:
    """The default in ``= value``, ``= field(default=value)``, ``= Field(value)``; of a factory that
    is a class or a lambda, what it makes."""
    if not isinstance(value, ast.Call) or (dotted(value.func) or "").split(".")[-1] not in _FIELDS:
        return value
    keywords = {keyword.arg: keyword.value for keyword in value.keywords}
    if "default" in keywords or value.args:
        default = keywords.get("default") or value.args[0]
        is_required = isinstance(default, ast.Constant) and default.value is Ellipsis
        return None if is_required else default
    factory = keywords.get("default_factory")
    if isinstance(factory, ast.Lambda):
        return factory.body
    made = isinstance(factory, (ast.Name, ast.Attribute))
    return ast.copy_location(ast.Call(factory, [], []), value) if made and factory else None


def _method(cls: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((s for s in cls.body if isinstance(s, ast.FunctionDef) and s.name == name), None)


def _asks_environment(held: _Object, depth: int) -> bool:
    for base in held.cls.bases:
        if (dotted(base) or "").rpartition(".")[2] == _FROM_ENVIRONMENT:
            return True
        parent = _object(base, held.home.scopes.module, held.home, depth + 1)
        if parent is not None and depth < _DEEPEST and _asks_environment(parent, depth + 1):
            return True
    return False
