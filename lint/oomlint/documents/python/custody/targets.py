"""Functions and classes of the project that a call enters."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from msgspec import Struct

from oomlint.documents.python.scopes import FunctionNode, Scope, dotted
from oomlint.documents.python.values import Evaluator

# How deep functions are entered, and values followed back: in 482 scripts of public repositories nothing more is said
# where it is twelve.
DEEPEST = 4


class Target(Struct, frozen=True, eq=False):
    """A function of the project's that a call enters; ``bound`` is how many parameters Python gives itself."""

    function: FunctionNode
    home: Evaluator
    bound: int = 0


def target_of(home: Evaluator, call: ast.Call, scope: Scope) -> Target | None:
    """The function of the project that a call enters, or the one that makes an object."""
    name = dotted(call.func)
    if name is None:
        return None
    functions, classes = home.scopes.functions, home.scopes.classes
    if name in functions:
        return Target(functions[name], home)
    if name in classes:
        return _maker(classes[name], home)
    root, _, last = name.rpartition(".")
    if root in ("self", "cls") or root in classes:
        own = [each for each in home.tree.functions if each.name == last]
        return Target(own[0], home, 1) if len(own) == 1 else None
    elsewhere = home.elsewhere(name, scope)
    return None if elsewhere is None else _defined(elsewhere[0], elsewhere[1])


def method_of(
    home: Evaluator, made: ast.expr, scope: Scope, method: str
) -> tuple[Target, ...] | None:
    """The method of an object that a class of the project makes, none where the class has none by that name and no other
    above it; ``None`` of an object that is made otherwise."""
    name = dotted(made.func) if isinstance(made, ast.Call) else None
    if name is None:
        return None
    found = _class_of(home, name, scope)
    if found is None:
        return None
    cls, there = found
    for each in cls.body:
        if isinstance(each, ast.FunctionDef) and each.name == method:
            return (Target(each, there, 1),)
    return None if cls.bases or cls.keywords or cls.decorator_list else ()


def _class_of(home: Evaluator, name: str, scope: Scope) -> tuple[ast.ClassDef, Evaluator] | None:
    """The class of the project that a name is, and the file that defines it."""
    for _ in range(DEEPEST):
        if name in home.scopes.classes:
            return home.scopes.classes[name], home
        elsewhere = home.elsewhere(name, scope)
        written = None if elsewhere is None else dotted(elsewhere[1])
        if elsewhere is None or written is None:
            return None
        home, name, scope = elsewhere[0], written, elsewhere[0].scopes.module
    return None


def _maker(cls: ast.ClassDef, home: Evaluator) -> Target | None:
    for each in cls.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            return Target(each, home, 1)
    return None


def _defined(home: Evaluator, name: ast.expr) -> Target | None:
    """The function, or the maker of objects, that a name is in its own file; packages hand on what their modules define."""
    for _ in range(DEEPEST):
        written = dotted(name) or ""
        if written in home.scopes.functions:
            return Target(home.scopes.functions[written], home)
        if written in home.scopes.classes:
            return _maker(home.scopes.classes[written], home)
        cls, _, method = written.partition(".")
        if cls in home.scopes.classes:
            for each in home.scopes.classes[cls].body:
                if isinstance(each, ast.FunctionDef) and each.name == method:
                    is_static = any(dotted(d) == "staticmethod" for d in each.decorator_list)
                    return Target(each, home, 0 if is_static else 1)
        elsewhere = home.elsewhere(written, home.scopes.module)
        if elsewhere is None:
            return None
        home, name = elsewhere
    return None


def _places(target: Target) -> list[str]:
    arguments = target.function.args
    return [each.arg for each in (*arguments.posonlyargs, *arguments.args)][target.bound :]


def parameters_given(
    call: ast.Call, target: Target, given: Iterable[tuple[int | str | None, ast.expr]]
) -> Iterator[str]:
    """What a function calls the arguments that are the model."""
    places = _places(target)
    for at, _ in given:
        if isinstance(at, str):
            yield at
        elif isinstance(at, int) and at < len(places):
            yield places[at]


def argument_of(call: ast.Call, target: Target, name: str) -> ast.expr | None:
    """What a call gives a parameter of what it enters, by its name or its place."""
    named = next((k.value for k in call.keywords if k.arg == name), None)
    places = _places(target)
    number = places.index(name) if name in places else len(call.args)
    return named if named is not None else call.args[number] if number < len(call.args) else None
