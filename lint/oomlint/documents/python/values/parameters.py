"""What functions take, and what the calls in their file give them."""

from __future__ import annotations

import ast

from oomlint.documents.python.scopes import Scope
from oomlint.documents.python.tree import Tree


def arguments_given(tree: Tree) -> dict[tuple[int, str], list[tuple[ast.expr, Scope]]]:
    """What the functions of the file get for their parameters, with the scope of each call that
    gives it; by ``id`` of the function and parameter. Of a call that leaves it out it is the default;
    a parameter that has none, or that cannot be told, is left out."""
    given: dict[tuple[int, str], list[tuple[ast.expr, Scope]]] = {}
    made = {
        cls.name: function
        for cls in tree.classes
        for function in cls.body
        if isinstance(function, ast.FunctionDef) and function.name == "__init__"
    }
    for name, function in (*tree.scopes.functions.items(), *made.items()):
        calls = [call for call in tree.calls_to(name) if isinstance(call.func, ast.Name)]
        places = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
        places = places[1:] if name in made else places
        defaults = defaults_of(function)
        for parameter in (*places, *(a.arg for a in function.args.kwonlyargs)):
            found = [
                (value, tree.scope_of[id(call)])
                for call in calls
                if (value := _argument_of(call, parameter, places)) is not None
            ]
            default = None if any(map(is_open, calls)) else defaults.get(parameter)
            if default is not None:
                found += [(default, tree.scopes.module)] * (len(calls) - len(found))
            if found and len(found) == len(calls):
                given[id(function), parameter] = found
    return given


def parameters_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """The names of what a function takes, ``*args`` and ``**kwargs`` left out."""
    given = function.args
    return {each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)}


def defaults_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, ast.expr]:
    """The parameters of a function that have defaults."""
    places = [*function.args.posonlyargs, *function.args.args]
    last = function.args.defaults
    found = {a.arg: value for a, value in zip(places[len(places) - len(last) :], last, strict=True)}
    named = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    return found | {a.arg: value for a, value in named if value is not None}


def is_open(call: ast.Call) -> bool:
    """Whether a call unpacks something of which nobody tells what it gives."""
    return any(isinstance(a, ast.Starred) for a in call.args) or any(
        k.arg is None for k in call.keywords
    )


def _argument_of(call: ast.Call, parameter: str, places: list[str]) -> ast.expr | None:
    if is_open(call):
        return None
    named = next((k.value for k in call.keywords if k.arg == parameter), None)
    if named is not None or parameter not in places:
        return named
    number = places.index(parameter)
    return call.args[number] if number < len(call.args) else None
