"""Names of paths that a script gives another spelling: ``path = Path(path)``, and where no file is found by the path
that it was given, one in a folder of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Final

from oomlint.documents.python.scopes import Binding, Scope, call_name, dotted
from oomlint.documents.python.walking import walk

SAME_PATH: Final = frozenset(
    {"Path", "PurePath", "str", "abspath", "realpath", "expanduser", "normpath", "fspath", "resolve",
     "absolute", "to_absolute_path"}
)  # fmt: skip
"""Functions and methods that give another spelling of one path."""
# What asks whether a file is there, or can be found from any folder (Python 3.14 pathlib, os.path).
_ASKS: Final = frozenset({"exists", "is_file", "isfile", "lexists", "is_absolute", "isabs"})


def as_given(bindings: Sequence[Binding], name: str, scope: Scope) -> list[Binding]:
    """The bindings of a path's name but for those by which it is respelt, or looked for elsewhere where it is not
    there: what the first of them names is the file, if there is one."""
    if len(bindings) < 2:
        return list(bindings)
    looked_for = frozenset(_looked_for(name, scope.node))
    return [
        each
        for each in bindings
        if each.kind != "value" or not (_respells(each.value, name) or id(each.value) in looked_for)
    ]


def _respells(value: ast.expr | None, name: str) -> bool:
    if not isinstance(value, ast.Call):
        return False
    last = call_name(value)
    of = value.func.value if isinstance(value.func, ast.Attribute) and not value.args else None
    given = value.args[0] if len(value.args) == 1 else of
    if last not in SAME_PATH:
        return False
    # ``path = Path(path).expanduser().resolve()``
    return given.id == name if isinstance(given, ast.Name) else _respells(given, name)


def _looked_for(name: str, owner: ast.AST) -> Iterator[int]:
    """The values, by ``id``, that a name is given behind a test that finds no file by it."""
    for node in walk(owner):
        if isinstance(node, ast.If) and _misses(node.test, name):
            for statement in node.body:
                yield from (id(e.value) for e in walk(statement) if isinstance(e, ast.Assign))


def _misses(test: ast.expr, name: str) -> bool:
    """``not path.exists()``, ``not os.path.isfile(path)``, alone or with more that must hold."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    return any(_finds_none(part, name) for part in parts)


def _finds_none(part: ast.expr, name: str) -> bool:
    match part:
        case ast.UnaryOp(op=ast.Not(), operand=ast.Call(func=asked, args=given)):
            holder = asked.value if isinstance(asked, ast.Attribute) and not given else None
            looked_at = given[0] if given else holder
            last = (dotted(asked) or "").rpartition(".")[2]
            return last in _ASKS and isinstance(looked_at, ast.Name) and looked_at.id == name
    return False
