"""Formulas of a profile: a small part of Python's expressions, over the fields of a run.

``script.source_len + script.target_len``, ``'bf16' if hf.bf16 else 'fp32'``, ``says(batch.micro)``.
A formula reads fields and members of the model's dimensions (``model.dims.hidden``), compares,
decides and does arithmetic; nothing else is allowed. Arithmetic on what is not known is not known
(``None``), and comparing sizes with it is false. Only what a branch needs is read.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from operator import add, eq, floordiv, ge, gt, le, lt, mod, mul, ne, sub, truediv
from typing import TYPE_CHECKING, Any, TypeAlias

from oomlint.dialects.meaning import NOTHING
from oomlint.plan.fields import f
from oomlint.plan.model import ModelDims

if TYPE_CHECKING:
    from oomlint.dialects.cells import Cells

Formula: TypeAlias = "Callable[[Cells], Any]"
FieldOf: TypeAlias = "Callable[[str], Any]"
"""The field of a dotted path, ``None`` where there is none."""


_LONGEST = 1000


class BadFormula(ValueError):
    """The text is no formula; ``str(error)`` says why."""


def formula(text: str, field_of: FieldOf) -> Formula:
    """What a text computes.

    Raises:
        BadFormula: it is no expression, or does what a formula may not.
    """
    if len(text) > _LONGEST:
        raise BadFormula(f"a formula has at most {_LONGEST} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise BadFormula(f"{text!r} is no expression") from None
    return _Compiler(field_of).formula(tree.body)


# -- arithmetic ------------------------------------------------------------------------------------

_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: add,
    ast.Sub: sub,
    ast.Mult: mul,
    ast.Div: truediv,
    ast.FloorDiv: floordiv,
    ast.Mod: mod,
}
_ORDER: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: lt,
    ast.LtE: le,
    ast.Gt: gt,
    ast.GtE: ge,
}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


def _calculated(operator: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    if not (_is_number(left) and _is_number(right)):
        return None
    try:
        return operator(left, right)
    except (ArithmeticError, ValueError):
        return None


def _compared(operator: ast.cmpop, left: Any, right: Any) -> bool:
    if isinstance(operator, (ast.Eq, ast.Is)):
        return bool(eq(left, right))
    if isinstance(operator, (ast.NotEq, ast.IsNot)):
        return bool(ne(left, right))
    if isinstance(operator, (ast.In, ast.NotIn)):
        is_in = isinstance(right, (tuple, str)) and left is not None and left in right
        return is_in is isinstance(operator, ast.In)
    if not (_is_number(left) and _is_number(right)):
        return False
    return bool(_ORDER[type(operator)](left, right))


# -- functions -------------------------------------------------------------------------------------

_NUMBER = re.compile(r"[0-9]{1,15}")


def _known_only(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose result is not known where one of its arguments is not."""
    return lambda *values: None if None in values else function(*values)


def number(text: Any) -> int | None:
    """The whole number that a text is, if it is one."""
    return int(text) if _NUMBER.fullmatch(str(text)) else None


def numbers(words: Any) -> tuple[int, ...]:
    """The whole numbers in a list of words, or in a text between its commas."""
    listed = words.split(",") if isinstance(words, str) else words or ()
    found = (number(word) for word in listed)
    return tuple(each for each in found if each is not None)


def number_after(word: str, text: Any) -> int | None:
    """The whole number with which a text goes on after the word that it begins with."""
    if not isinstance(text, str) or not text.startswith(word):
        return None
    digits = _NUMBER.match(text[len(word) :])
    return int(digits[0]) if digits else None


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "min": _known_only(min),
    "max": _known_only(max),
    "sum": _known_only(sum),
    "len": _known_only(len),
    "number": number,
    "numbers": numbers,
    "number_after": number_after,
}

# -- expressions -----------------------------------------------------------------------------------


class _Compiler:
    def __init__(self, field_of: FieldOf) -> None:
        self.field_of = field_of

    def formula(self, node: ast.expr) -> Formula:
        method = getattr(self, f"_{type(node).__name__}", None)
        if method is None:
            raise BadFormula(f"{ast.unparse(node)!r} is not allowed in a formula")
        made: Formula = method(node)
        return made

    def _Constant(self, node: ast.Constant) -> Formula:  # noqa: N802  ast's name, as below
        value = node.value
        if value is not None and not isinstance(value, (str, int, float)):
            raise BadFormula(f"{value!r} is no value of a field")
        return lambda run: value

    def _Tuple(self, node: ast.Tuple) -> Formula:  # noqa: N802
        parts = [self.formula(item) for item in node.elts]
        return lambda run: tuple(part(run) for part in parts)

    def _IfExp(self, node: ast.IfExp) -> Formula:  # noqa: N802
        when, then, otherwise = map(self.formula, (node.test, node.body, node.orelse))
        return lambda run: then(run) if when(run) else otherwise(run)

    def _BoolOp(self, node: ast.BoolOp) -> Formula:  # noqa: N802
        parts = [self.formula(value) for value in node.values]
        stops_at = isinstance(node.op, ast.Or)

        def decided(run: Cells) -> Any:
            value: Any = None
            for part in parts:
                value = part(run)
                if bool(value) is stops_at:
                    break
            return value

        return decided

    def _UnaryOp(self, node: ast.UnaryOp) -> Formula:  # noqa: N802
        value = self.formula(node.operand)
        if isinstance(node.op, ast.Not):
            return lambda run: not value(run)
        if isinstance(node.op, ast.USub):
            return lambda run: _calculated(sub, 0, value(run))
        raise BadFormula(f"{ast.unparse(node)!r} is not allowed in a formula")

    def _BinOp(self, node: ast.BinOp) -> Formula:  # noqa: N802
        operator = _ARITHMETIC.get(type(node.op))
        if operator is None:
            raise BadFormula(f"{ast.unparse(node)!r} is not allowed in a formula")
        left, right = self.formula(node.left), self.formula(node.right)
        return lambda run: _calculated(operator, left(run), right(run))

    def _Compare(self, node: ast.Compare) -> Formula:  # noqa: N802
        values = [self.formula(value) for value in (node.left, *node.comparators)]

        def holds(run: Cells) -> bool:
            found = [value(run) for value in values]
            return all(map(_compared, node.ops, found, found[1:]))

        return holds

    def _Call(self, node: ast.Call) -> Formula:  # noqa: N802
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if node.keywords:
            raise BadFormula(f"{ast.unparse(node)!r}: arguments have no names")
        if name in ("says", "unread"):
            if len(node.args) != 1:
                raise BadFormula(f"{name} takes one field")
            field, members = self._place(node.args[0])
            if members:
                raise BadFormula(f"{name} takes a field, not a part of one")
            return (lambda run: run.says(field)) if name == "says" else _asks_unread(field)
        if name == "otherwise":
            return self._otherwise(node)
        function = _FUNCTIONS.get(name)
        if function is None:
            legal = ", ".join((*_FUNCTIONS, "says", "unread", "otherwise"))
            raise BadFormula(f"{ast.unparse(node.func)!r} is no function; there are {legal}")
        arguments = [self.formula(argument) for argument in node.args]
        return lambda run: function(*(argument(run) for argument in arguments))

    def _otherwise(self, node: ast.Call) -> Formula:
        """``otherwise(FIELD, VALUE)``: what the field is; the value, assumed, where that was not read."""
        if len(node.args) != 2:
            raise BadFormula("otherwise takes a field and a value")
        field, members = self._place(node.args[0])
        if members:
            raise BadFormula("otherwise takes a field, not a part of one")
        value = self.formula(node.args[1])
        return lambda run: run.otherwise(field, value(run))

    def _Name(self, node: ast.Name) -> Formula:  # noqa: N802
        if node.id == "nothing":
            return lambda run: NOTHING
        if node.id in ("true", "false"):
            raise BadFormula(f"write {node.id.title()}")
        return self._read(node)

    def _Attribute(self, node: ast.Attribute) -> Formula:  # noqa: N802
        return self._read(node)

    def _read(self, node: ast.expr) -> Formula:
        field, members = self._place(node)
        if not members:
            return lambda run: run[field]

        def member(run: Cells) -> Any:
            value: Any = run[field]
            for name in members:
                value = getattr(value, name, None)
            return value

        return member

    def _place(self, node: ast.expr) -> tuple[Any, tuple[str, ...]]:
        """A field and the members of its value that a dotted name means."""
        path = ast.unparse(node)
        field = self.field_of(path)
        if field is not None:
            return field, ()
        dims = f"{f.model.dims}."
        if path.startswith(dims):
            members = tuple(path.removeprefix(dims).split("."))
            known = ModelDims.__struct_fields__
            if members[0] in known and not any(name.startswith("_") for name in members):
                return f.model.dims, members
        raise BadFormula(f"there is no field {path}")


def _asks_unread(field: Any) -> Formula:
    return lambda run: run.is_unread(field)
