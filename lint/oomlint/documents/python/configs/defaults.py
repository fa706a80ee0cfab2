"""What an option of a script holds by a file of defaults: ``parser.set_defaults(**yaml.safe_load(file))``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from oomlint.documents.base import Mapping
from oomlint.documents.python.configs.changes import Held
from oomlint.documents.python.configs.composition import unknown_in
from oomlint.documents.python.configs.items import ConfigItems
from oomlint.documents.python.configs.paths import At, CallFrame, function_of
from oomlint.documents.python.configs.syntax import is_nothing
from oomlint.documents.python.nodes import Filed
from oomlint.documents.python.parsers import option_names, unpacked_defaults, unpacked_in
from oomlint.documents.python.scopes import enclosed

if TYPE_CHECKING:
    from oomlint.documents.python.values import Evaluator


def by_default(files: ConfigItems, option: str, holder: ast.expr, at: At) -> Held:
    """What an option holds by a file of defaults, ``parser.set_defaults(**yaml.safe_load(file))``, where the command does
    not say it. ``holder`` is what the parser gave."""
    unpacked = list(_unpacked(files, option, holder, at))
    if not unpacked or any(_is_said(files, option, where.home) for _, where in unpacked):
        return None
    for value, where in reversed(unpacked):
        found = files.held(value, where)
        if not isinstance(found, Filed) or not isinstance(found.node, Mapping):
            if files.passes_by(value, where) or _is_none_named(files, where.home):
                continue
            return unknown_in(at.home.places.source)
        item = files.item(found, option, where.home)
        if item is not None:
            return item
        if files.is_changed(found, option, where.home):
            return unknown_in(at.home.places.source)
    return None


def _unpacked(
    files: ConfigItems, option: str, holder: ast.expr, at: At
) -> Iterator[tuple[ast.expr, At]]:
    """What is unpacked as defaults of the parser of an option: here, or in the function of another file that
    parses."""
    for call, value in unpacked_defaults(option, at.home.tree):
        yield value, At(at.home.tree.scope_of[id(call)], at.home)
    parsing = _parsing(files, holder, at)
    while parsing is not None:
        call, where = parsing
        found = function_of(call, where.scope, where.home)
        if found is None or where.is_too_deep:
            return
        function, there = found
        own, inner = there.scopes.of_node[id(function)], CallFrame(function, call, where)
        inside = At(own, there, inner, where.depth + 1)
        if there is not at.home:
            for set_defaults, value in unpacked_in(function):
                yield value, inside.within(there.tree.scope_of[id(set_defaults)])
        given = [each.value for each in enclosed(function) if isinstance(each, ast.Return)]
        parsing = (given[0], inside) if len(given) == 1 and isinstance(given[0], ast.Call) else None


def _parsing(files: ConfigItems, holder: ast.expr, at: At) -> tuple[ast.Call, At] | None:
    """The call that gave what a parser found, ``args = parse_args()``, be it handed on to a function."""
    while isinstance(holder, ast.Name) and not at.is_too_deep:
        found = at.scope.find(holder.id)
        if found is None or len(found[1]) != 1:
            return None
        owner, (binding,) = found
        if binding.kind == "parameter":
            given = list(files.given(holder.id, owner, at))
            if len(given) != 1:
                return None
            holder, at = given[0]
        elif binding.kind == "value" and binding.value is not None:
            holder, at = binding.value, at.within(owner)
        else:
            return None
    return (holder, at) if isinstance(holder, ast.Call) else None


def _is_none_named(files: ConfigItems, home: Evaluator) -> bool:
    """Whether the options that name config files have no defaults, and the command says none of them."""
    defaults = (home.options.get(each) for each in files.asked)
    is_silent = not any(_is_said(files, each, home) for each in files.asked)
    return bool(files.asked) and is_silent and all(d is None or is_nothing(d) for d in defaults)


def _is_said(files: ConfigItems, option: str, home: Evaluator) -> bool:
    spelled = (*option_names(home.tree).get(option, ()), option)
    return any(each in files.options for each in spelled)
