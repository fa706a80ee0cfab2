"""What a rule asks of a run before anything else, read from the code of its ``check``.

Most rules begin with guards such as ``if run.plan.parallel.backend != "zero": return``. Put into
one expression over the run they tell, without the rule's module, that it would find nothing. What
is not understood counts as something to look at, and everything after it too, so that the
expression asks what ``check`` asks, in that order, and never more.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

Names = dict[str, ast.expr | None]
"""Local name → the expression that it stands for; ``None`` where that is not understood."""

_ALWAYS = ast.Constant(True)
_NEVER = ast.Constant(False)

# What of a run is at hand, or cheap to make: no estimate, no text.
_CHEAP = frozenset(
    {
        "plan", "settings", "framework", "dialect", "limits", "hardware", "is_fragment", "stray",
        "wrong", "missing", "unreadable", "model", "is_explicit", "fact_kinds",
    }
)  # fmt: skip
_METHODS = frozenset({"is_explicit", "get", "startswith", "endswith"})
_FUNCTIONS = frozenset({"str", "len", "bool"})
_LISTS = ("stray", "wrong", "missing")


def concern(check: ast.FunctionDef, constants: Mapping[Any, Any]) -> str:
    """The expression, in terms of ``run``; ``constants`` are the names of the rule's module."""
    return ast.unparse(_Guards(constants).of(check.body, {}))


class _Guards:
    def __init__(self, constants: Mapping[Any, Any]) -> None:
        self.constants = constants

    def of(self, body: Sequence[ast.stmt], names: Names) -> ast.expr:
        """When statements may yield anything."""
        if not body:
            return _NEVER
        first, rest = body[0], body[1:]
        match first:
            case ast.Return() | ast.Continue():
                return _NEVER
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                return self.of(rest, names)
            case ast.Assign(targets=[target], value=value):
                return self.of(rest, {**names, **self._bound(target, value, names)})
            case ast.If(test=test, body=[ast.Return(value=None)], orelse=[]):
                return self._behind(test, rest, names)
            case ast.If():
                behind = self.of(rest, {**names, **_assigned(first)})
                return _either(self._branches(first, names), behind)
            case ast.For(target=ast.Name(id=item), iter=ast.Attribute(ast.Name("run"), attr)):
                behind = self.of(rest, {**names, **_assigned(first)})
                return _either(self._loop(item, attr, first.body), behind)
        return _ALWAYS

    def _bound(self, target: ast.expr, value: ast.expr, names: Names) -> Names:
        if isinstance(target, ast.Name):
            return {target.id: self._read(value, names)}
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = zip(target.elts, value.elts, strict=True)
            return {n: v for t, e in pairs for n, v in self._bound(t, e, names).items()}
        return _assigned(target)

    def _behind(self, test: ast.expr, rest: Sequence[ast.stmt], names: Names) -> ast.expr:
        """``if test: return`` and then ``rest``: none of the test's alternatives may hold."""
        parts = test.values if _is(test, ast.Or) else [test]  # type: ignore[attr-defined]
        asked: list[ast.expr] = []
        for part in parts:
            read = self._read(part, names)
            if read is None:
                return _all([*asked, _ALWAYS])
            asked.append(_not(read))
        return _all([*asked, self.of(rest, names)])

    def _branches(self, branch: ast.If, names: Names) -> ast.expr:
        test = self._read(branch.test, names)
        if test is None:
            return _ALWAYS
        then = _all([test, self.of(branch.body, names)])
        return _either(then, self.of(branch.orelse, names))

    def _loop(self, item: str, attribute: str, body: Sequence[ast.stmt]) -> ast.expr:
        if attribute in _LISTS:
            return ast.Attribute(ast.Name("run"), attribute)
        kinds = self._kinds(item, body) if attribute == "facts" else None
        if not kinds:
            return _ALWAYS
        known = ast.Attribute(ast.Name("run"), "fact_kinds")
        parts: list[ast.expr] = [
            ast.Compare(ast.Constant(kind), [ast.In()], [known]) for kind in sorted(kinds)
        ]
        return parts[0] if len(parts) == 1 else ast.BoolOp(ast.Or(), parts)

    def _kinds(self, item: str, body: Sequence[ast.stmt]) -> set[str] | None:
        """The kinds of facts that a loop over them looks at."""
        match body:
            case [ast.If(test=ast.Compare(left, [ast.NotEq()], [kind]), body=[ast.Continue()]), *_]:
                return self._kind(item, left, kind)
            case [ast.If(test=test, body=_, orelse=orelse)]:
                tests = test.values if _is(test, ast.And) else [test]  # type: ignore[attr-defined]
                match tests[0]:
                    case ast.Compare(left, [ast.Eq() | ast.In()], [kind]):
                        own = self._kind(item, left, kind)
                        others = self._kinds(item, orelse) if orelse else set()
                        return None if own is None or others is None else own | others
        return None

    def _kind(self, item: str, left: ast.expr, kind: ast.expr) -> set[str] | None:
        match left:
            case ast.Attribute(ast.Name(name), "kind") if name == item:
                value = self._read(kind, {})
                said = ast.literal_eval(value) if value is not None else None
                return {said} if isinstance(said, str) else set(said) if said else None
        return None

    def _read(self, node: ast.expr, names: Names) -> ast.expr | None:
        """The expression with names filled in; ``None`` if it is not understood."""
        match node:
            case ast.Constant():
                return node
            case ast.Name("run"):
                return node
            case ast.Name(name):
                return names[name] if name in names else self._constant(name)
            case ast.Attribute(ast.Name("run"), attr) if attr not in _CHEAP:
                return None
            case ast.Call(ast.Attribute(_, name), keywords=[]) if name not in _METHODS:
                return None
            case ast.Call(ast.Name(name)) if name not in _FUNCTIONS:
                return None
            case ast.Call(ast.Name() as function, args, []):
                read = [self._read(argument, names) for argument in args]
                return ast.Call(function, _known(read), []) if _known(read) else None
            case (
                ast.Attribute() | ast.Call() | ast.Compare() | ast.BoolOp() | ast.UnaryOp()
                | ast.IfExp() | ast.Tuple() | ast.List() | ast.Set() | ast.BinOp()
            ):  # fmt: skip
                return self._rebuilt(node, names)
        return None

    def _rebuilt(self, node: ast.expr, names: Names) -> ast.expr | None:
        fields: dict[Any, Any] = {}
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                fields[name] = self._read(value, names)
                if fields[name] is None:
                    return None
            elif isinstance(value, list) and value and isinstance(value[0], ast.expr):
                fields[name] = [self._read(item, names) for item in value]
                if None in fields[name]:
                    return None
            else:
                fields[name] = value
        return type(node)(**fields)

    def _constant(self, name: str) -> ast.expr | None:
        value = self.constants.get(name)
        if isinstance(value, (set, frozenset)):
            value = tuple(sorted(value, key=repr))
        try:
            return ast.parse(repr(value), mode="eval").body if _is_plain(value) else None
        except SyntaxError:
            return None


def _assigned(node: ast.AST) -> Names:
    """Every name that is set inside, as what cannot be told."""
    return {
        inner.id: None
        for inner in ast.walk(node)
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)
    }


def _known(read: Sequence[ast.expr | None]) -> list[ast.expr]:
    found = [node for node in read if node is not None]
    return found if len(found) == len(read) else []


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is not None and isinstance(value, (str, int, float))


def _is(node: ast.expr, operator: type[ast.boolop]) -> bool:
    return isinstance(node, ast.BoolOp) and isinstance(node.op, operator)


_OPPOSITES: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


def _not(node: ast.expr) -> ast.expr:
    match node:
        case ast.UnaryOp(ast.Not(), operand):
            return operand
        case ast.Compare(left, [operator], comparators) if type(operator) in _OPPOSITES:
            return ast.Compare(left, [_OPPOSITES[type(operator)]()], comparators)
    return ast.UnaryOp(ast.Not(), node)


def _all(parts: Sequence[ast.expr]) -> ast.expr:
    flat = [p for part in parts for p in (part.values if _is(part, ast.And) else [part])]  # type: ignore[attr-defined]
    if any(part is _NEVER for part in flat):
        return _NEVER
    kept = [part for part in flat if part is not _ALWAYS]
    return ast.BoolOp(ast.And(), kept) if len(kept) > 1 else kept[0] if kept else _ALWAYS


def _either(first: ast.expr, second: ast.expr) -> ast.expr:
    if first is _ALWAYS or second is _ALWAYS:
        return _ALWAYS
    kept = [part for part in (first, second) if part is not _NEVER]
    flat = [p for part in kept for p in (part.values if _is(part, ast.Or) else [part])]  # type: ignore[attr-defined]
    return ast.BoolOp(ast.Or(), flat) if len(flat) > 1 else flat[0] if flat else _NEVER
