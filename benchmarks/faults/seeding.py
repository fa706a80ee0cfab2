"""Faults that can be seeded in a module: one operator, comparison, constant, condition or dropped term each.

A fault is a piece of text put in the place of another, so that the copy that gets it keeps every line above it. What no
run depends on is left alone: annotations, decorators, texts, assertions, what is raised.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Lt: ast.Gt,
    ast.Gt: ast.Lt,
    ast.LtE: ast.GtE,
    ast.GtE: ast.LtE,
}
# Of bytes and shares, which are hardly ever equal, no test tells ``<`` from ``<=``; of counts and releases one does.
_EDGES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
# A condition that is neither comparison nor ``not``, ``and``, ``or``, which change by themselves.
_BARE = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)
_TERMS = frozenset({"max", "min", "hypot"})


class Fault(Struct, frozen=True):
    """One change of one module. ``function`` and ``nth`` find it again after other lines of the module have changed."""

    module: str
    line: int
    kind: str
    before: str
    after: str
    function: str
    nth: int
    start: int
    end: int

    @property
    def name(self) -> tuple[str, ...]:
        """What stays of it where other lines of its module change."""
        return (self.module, self.function, self.kind, self.before, self.after, str(self.nth))


def faults_in(root: Path, module: str) -> Iterator[Fault]:
    """All faults of the module, a path below the root, from top to bottom."""
    source = (root / module).read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    seen: Counter[tuple[str, ...]] = Counter()
    for function, kind, node, after in _changes(ast.parse(source), ""):
        end_line, end_column = node.end_lineno, node.end_col_offset
        assert end_line is not None
        assert end_column is not None
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[end_line - 1] + end_column
        before = ast.unparse(node)
        found = (function, kind, before, after)
        seen[found] += 1
        place = (function, seen[found], start, end)
        yield Fault(module, node.lineno, kind, before, after, *place)


def words_beside(source: bytes, fault: Fault) -> list[str]:
    """The texts in quotes on the fault's line."""
    line = source.splitlines()[fault.line - 1].decode()
    return re.findall(r'"([^"]{3,})"', line)


def seeded(source: bytes, fault: Fault) -> bytes:
    """The module with the fault in it."""
    after = fault.after if fault.after == "pass" else f"({fault.after})"
    return source[: fault.start] + after.encode() + source[fault.end :]


_Place = ast.expr | ast.stmt


def _changes(tree: ast.AST, function: str) -> Iterator[tuple[str, str, _Place, str]]:
    """Function, kind, node and what may stand in its place, for each change of a tree."""
    if isinstance(tree, (ast.FunctionDef, ast.ClassDef)):
        function = f"{function}.{tree.name}".removeprefix(".")
    if isinstance(tree, (ast.expr, ast.stmt)):
        for kind, after in _of(tree):
            yield function, kind, tree, ast.unparse(after)
    if isinstance(tree, (ast.If, ast.While)) and isinstance(tree.test, _BARE):
        yield function, "condition", tree.test, ast.unparse(ast.UnaryOp(ast.Not(), tree.test))
    for child in _children(tree):
        yield from _changes(child, function)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """What of a node decides something when the module runs."""
    if isinstance(node, (ast.Assert, ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom)):
        return
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases", "type_comment"):
            continue
        if isinstance(node, ast.ClassDef) and name == "keywords":
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child


def _of(node: _Place) -> Iterator[tuple[str, ast.AST]]:
    """What may stand in the place of a node, with the kind of the change."""
    faults = _FAULTS.get(type(node))
    if faults is not None:
        yield from faults(node)


def _of_arithmetic(node: ast.BinOp) -> Iterator[tuple[str, ast.AST]]:
    if other := _OPERATORS.get(type(node.op)):
        yield "operator", ast.BinOp(node.left, other(), node.right)
    if isinstance(node.op, (ast.Add, ast.Sub, ast.Mult)):
        yield "term", node.left
    if isinstance(node.op, ast.Mult):
        yield "term", node.right


def _of_comparison(node: ast.Compare) -> Iterator[tuple[str, ast.AST]]:
    if len(node.ops) > 1:
        return
    left, (op,), (right,) = node.left, node.ops, node.comparators
    yield "comparison", ast.Compare(left, [_COMPARISONS[type(op)]()], [right])
    counts = any(isinstance(side, (ast.Constant, ast.Tuple)) for side in (left, right))
    if counts and (edge := _EDGES.get(type(op))):
        yield "comparison", ast.Compare(left, [edge()], [right])


def _of_conditions(node: ast.BoolOp) -> Iterator[tuple[str, ast.AST]]:
    other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    yield "condition", ast.BoolOp(other, node.values)
    for index in range(len(node.values)):
        rest = node.values[:index] + node.values[index + 1 :]
        yield "condition", rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)


def _of_negation(node: ast.UnaryOp) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node.op, ast.Not):
        yield "condition", node.operand


def _of_choice(node: ast.IfExp) -> Iterator[tuple[str, ast.AST]]:
    yield "condition", ast.IfExp(node.test, node.orelse, node.body)


def _of_constant(node: ast.Constant) -> Iterator[tuple[str, ast.AST]]:
    match node.value:
        case bool() as value:
            yield "constant", ast.Constant(not value)
        case int() as value:
            yield "constant", ast.Constant(value + 1)
        case float() as value:
            yield "constant", ast.Constant(value * 1.5 if value else 1.0)


def _of_call(node: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    """One term fewer in a sum, say."""
    args = node.args
    is_plain = not (node.keywords or any(isinstance(arg, ast.Starred) for arg in args))
    if not (isinstance(node.func, ast.Name) and node.func.id in _TERMS and is_plain):
        return
    if len(args) > 1:
        for index in range(len(args)):
            rest = args[:index] + args[index + 1 :]
            dropped = ast.Call(ast.Name(node.func.id), rest, [])
            yield "term", rest[0] if len(rest) == 1 else dropped


def _of_statement(node: ast.AugAssign | ast.Expr) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node, ast.AugAssign) or isinstance(node.value, ast.Call):
        yield "term", ast.Pass()


_FAULTS: Mapping[type[ast.AST], Callable[[Any], Iterator[tuple[str, ast.AST]]]] = {
    ast.BinOp: _of_arithmetic,
    ast.Compare: _of_comparison,
    ast.BoolOp: _of_conditions,
    ast.UnaryOp: _of_negation,
    ast.IfExp: _of_choice,
    ast.Constant: _of_constant,
    ast.Call: _of_call,
    ast.AugAssign: _of_statement,
    ast.Expr: _of_statement,
}
