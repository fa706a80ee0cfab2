"""What comes before what in a file, where each statement runs once."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from oomlint.documents.python.scopes import Scope, enclosed
from oomlint.documents.python.walking import walk

_RunOnce: TypeAlias = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef
_RUN_ONCE: Final = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_LOOPS: Final = (ast.For, ast.AsyncFor, ast.While)


def given_later(asked: ast.expr, values: Iterable[ast.expr], owner: Scope) -> Iterator[ast.expr]:
    """Of the values that a name of a scope is given those that stand behind an expression which asks for it: no matter
    to that, unless it stands in a loop, or in another function."""
    line = getattr(asked, "lineno", None)
    if line is None or not isinstance(owner.node, _RUN_ONCE):
        return
    later = [value for value in values if value.lineno > line]
    if later and _runs_once(asked, owner.node):
        yield from later


def _runs_once(asked: ast.expr, owner: _RunOnce) -> bool:
    """Whether it is the scope's own code that asks, and not in a loop."""
    own = (each for each in owner.body if not isinstance(each, _DEFINITIONS))
    if all(asked is not node for statement in own for node in enclosed(statement)):
        return False
    loops = (node for node in walk(owner) if isinstance(node, _LOOPS))
    return all(asked is not node for loop in loops for node in walk(loop))
