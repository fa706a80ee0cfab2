"""Paths that a script puts together: ``Path(__file__).parent / "models" / args.name``, ``os.path.join(a, b)``."""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Final

from oomlint.documents.base import Node, Scalar
from oomlint.documents.python.nodes import is_of_options
from oomlint.documents.python.scopes import Scope, dotted
from oomlint.documents.text import Span

Read = Callable[[ast.expr], Node]
Join = Callable[[Node, Node], Node]

_SAME: Final = frozenset({"resolve", "absolute", "expanduser", "as_posix"})
_OF_STRINGS: Final = frozenset({"os.path.abspath", "os.path.realpath", "os.fspath"})
_PATHS: Final = frozenset({"pathlib.Path", "pathlib.PurePosixPath"})


def path_of(expression: ast.expr, scope: Scope, span: Span, read: Read, join: Join) -> Node | None:
    """What an expression of paths comes to; ``None`` where it is none."""
    if isinstance(expression, ast.Call):
        return _called(expression, scope, span, read, join)
    if isinstance(expression, ast.Attribute) and expression.attr == "parent":
        return _above(read(expression.value), span, 1)
    if isinstance(expression, ast.Subscript):
        number = expression.slice
        value = expression.value
        is_parents = isinstance(value, ast.Attribute) and value.attr == "parents"
        if is_parents and isinstance(number, ast.Constant) and isinstance(number.value, int):
            assert isinstance(value, ast.Attribute)
            return _above(read(value.value), span, number.value + 1)
    return None


def _called(call: ast.Call, scope: Scope, span: Span, read: Read, join: Join) -> Node | None:
    given: Sequence[ast.expr] = call.args
    if call.keywords or any(isinstance(each, ast.Starred) for each in given):
        return None
    if isinstance(call.func, ast.Attribute) and call.func.attr in _SAME and not given:
        return _text(read(call.func.value))
    name = qualified(call.func, scope)
    if name == "str" and len(given) == 1:
        return _text(read(given[0]))
    if name == "os.path.dirname" and len(given) == 1:
        return _above(read(given[0]), span, 1)
    if name in _OF_STRINGS and len(given) == 1:
        return _text(read(given[0]))
    if given and (name == "os.path.join" or name in _PATHS):
        return _text(reduce(join, map(read, given)))
    return None


def qualified(function: ast.expr, scope: Scope) -> str:
    """A function by the name under which its module has it, where an import tells."""
    name = dotted(function) or ""
    root, _, rest = name.partition(".")
    imported = scope.imported(root)
    if imported:
        return f"{imported}.{rest}" if rest else imported
    return name if scope.find(root) is None else ""


def joined(left: str, right: str) -> str:
    """``left / right`` of paths."""
    return posixpath.normpath(posixpath.join(left, right))


def _text(node: Node) -> Node | None:
    """The node, if it is a text or what an option gives."""
    is_text = isinstance(node, Scalar) and isinstance(node.value, str)
    return node if is_text or is_of_options(node) else None


def _above(node: Node, span: Span, levels: int) -> Node | None:
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        return None
    path = node.value
    for _ in range(levels):
        path = posixpath.dirname(path) or "."
    return Scalar(span, path)
