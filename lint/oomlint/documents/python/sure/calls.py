"""Calls that a script is sure to make and that Python refuses: of a function or a class of the project's own, without an argument
that it requires, with one that it does not take, or with more than it has places for (CPython 3.13 ``ceval.c``: *missing 1
required positional argument*, *got an unexpected keyword argument*)."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from msgspec import Struct

from oomlint.documents.python.scopes import FunctionNode, dotted
from oomlint.documents.python.sure.lookups import Home, SureLookups
from oomlint.documents.python.sure.straight_line import Evaluated

# Python's data model: what else may decide on the arguments of a class.
_OTHER_MAKERS = frozenset({"__new__", "__call__"})


class Signature(Struct, frozen=True):
    """What a call may give: ``places`` in their order, arguments by ``names``, those without a default as ``required``; with
    ``takes_more`` any number of places, with ``takes_any`` any name."""

    places: tuple[str, ...]
    names: frozenset[str]
    required: tuple[str, ...]
    takes_more: bool
    takes_any: bool


class SureCall(Struct, frozen=True, eq=False):
    """A call that fails, and why in words; ``is_of_other``: another file than the script tells."""

    node: ast.Call
    why: str
    is_of_other: bool


def failing_calls(
    path: str, evaluated: Sequence[Evaluated], lookups: SureLookups
) -> Iterator[SureCall]:
    """The first call that fails: what comes behind it is not reached."""
    for each in evaluated:
        call = each.node
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            continue
        home = lookups.home(call.func.id, each.scope)
        signature = _signature_at(home) if home is not None else None
        why = "" if signature is None else misfit(call, signature)
        if home is not None and why:
            yield SureCall(call, why, home.path != path)
            return


def _signature_at(home: Home) -> Signature | None:
    scopes = home.tree.scopes
    if home.scope is not scopes.module or home.binding.kind != "definition":
        return None
    return signature_of(scopes.functions.get(home.name) or scopes.classes.get(home.name))


def signature_of(called: FunctionNode | ast.ClassDef | None) -> Signature | None:
    """The arguments that a call of a function or a class gives; ``None`` where a decorator, a metaclass or a base may
    decide on them."""
    if called is None or called.decorator_list:
        return None
    if not isinstance(called, ast.ClassDef):
        return _taken(called, bound=0)
    methods = {
        each.name: each
        for each in called.body
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    init = methods.get("__init__")
    if called.keywords or init is None or init.decorator_list or _OTHER_MAKERS & methods.keys():
        return None
    return _taken(init, bound=1)


def _taken(function: FunctionNode, bound: int) -> Signature:
    """``bound``: how many places Python fills itself."""
    given = function.args
    every = [each.arg for each in (*given.posonlyargs, *given.args)]
    places, optional = every[bound:], len(given.defaults)
    by_name = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    required = places[: max(0, len(places) - optional)]
    required += [each.arg for each, default in by_name if default is None]
    names = {each.arg for each in (*given.args, *given.kwonlyargs)} & {
        *places,
        *(each.arg for each in given.kwonlyargs),
    }
    return Signature(
        tuple(places),
        frozenset(names),
        tuple(required),
        given.vararg is not None,
        given.kwarg is not None,
    )


def misfit(call: ast.Call, signature: Signature) -> str:
    """Why Python refuses a call, in words; empty where it takes it, or where only running tells what it gives."""
    is_open = any(isinstance(each, ast.Starred) for each in call.args)
    if is_open or any(keyword.arg is None for keyword in call.keywords):
        return ""
    name = dotted(call.func) or ""
    given = [keyword.arg for keyword in call.keywords if keyword.arg]
    filled = {*given, *signature.places[: len(call.args)]}
    for each in signature.required:
        if each not in filled:
            return f"{name}() is called without {each}, which it requires"
    for each in given:
        if each not in signature.names and not signature.takes_any:
            return f"{name}() is called with {each}, which it does not take"
        if each in signature.places[: len(call.args)] and each in signature.names:
            return f"{name}() is given {each} twice"
    if len(call.args) > len(signature.places) and not signature.takes_more:
        return (
            f"{name}() is called with {len(call.args)} arguments and takes {len(signature.places)}"
        )
    return ""
