"""What comes of values that are plain Python data."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any, Final

from oomlint.documents.base import UNKNOWN, Mapping, Node, Scalar, Sequence
from oomlint.documents.python.paths import joined

_LARGEST_EXPONENT: Final = 64
_LONGEST_TEXT: Final = 10_000
_ARITHMETIC: Final[dict[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_COMPARISONS: Final[dict[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def plain_value(node: Node | None) -> Any:
    """The node as plain Python data; ``UNKNOWN`` if any part of it is."""
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Sequence):
        values = [plain_value(item) for item in node.items]
        return UNKNOWN if any(v is UNKNOWN for v in values) else values
    if isinstance(node, Mapping) and not node.open_ended:
        found = {key: plain_value(entry.value) for key, entry in node.entries.items()}
        return UNKNOWN if any(v is UNKNOWN for v in found.values()) else found
    return UNKNOWN


def comparison_of(sign: ast.cmpop, left: Any, right: Any) -> bool | None:
    """What a comparison of two values comes to; ``None`` where one is not known, or they cannot be compared."""
    if left is UNKNOWN or right is UNKNOWN:
        return None
    try:
        if isinstance(sign, (ast.In, ast.NotIn)):
            return (left in right) is isinstance(sign, ast.In)
        if isinstance(sign, (ast.Is, ast.IsNot)):
            return (left is right) is isinstance(sign, ast.Is)
        comparison = _COMPARISONS.get(type(sign))
        return None if comparison is None else bool(comparison(left, right))
    except TypeError:
        return None


def joined_tests(operation: ast.boolop, parts: list[Any]) -> Any:
    """What ``and`` or ``or`` makes of parts that are true or false; ``UNKNOWN`` where it hangs on another."""
    ends = isinstance(operation, ast.Or)
    if any(part is ends for part in parts):
        return ends
    return (
        (not ends)
        if all(part is not ends and isinstance(part, bool) for part in parts)
        else UNKNOWN
    )


def is_plain(value: object) -> bool:
    """Whether a value is a text, a number, true, false or none."""
    return value is None or isinstance(value, (bool, int, float, str))


def arithmetic(operation: type[ast.operator], left: Any, right: Any) -> Any:
    """What comes of two plain values; ``UNKNOWN`` where one is, or where it is no small number or text."""
    if left is UNKNOWN or right is UNKNOWN:
        return UNKNOWN
    if isinstance(left, str) and isinstance(right, str):
        if len(left) + len(right) > _LONGEST_TEXT:
            return UNKNOWN
        if operation is ast.Div:
            return joined(left, right)
        return left + right if operation is ast.Add else UNKNOWN
    for value in (left, right):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return UNKNOWN
    if operation not in _ARITHMETIC:
        return UNKNOWN
    if operation is ast.Pow and (abs(right) > _LARGEST_EXPONENT or abs(left) > 1e6):
        return UNKNOWN
    try:
        result = _ARITHMETIC[operation](left, right)
    except (ArithmeticError, ValueError):
        return UNKNOWN
    return result if isinstance(result, (int, float)) else UNKNOWN
