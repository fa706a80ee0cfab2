"""Values between which a test, an option of the command line or the number of ranks decides."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from oomlint.documents.base import RANKS, UNKNOWN, Node, Scalar
from oomlint.documents.python.nodes import PythonScalar, option_of
from oomlint.documents.python.parsers import are_parsed, argparse_names
from oomlint.documents.python.plain_values import plain_value
from oomlint.documents.python.scopes import Binding, Scope, dotted
from oomlint.documents.python.values.limits import BY_FILE, DEEPEST
from oomlint.documents.python.values.seen_nodes import locked_by, may_differ, unknown_at
from oomlint.documents.python.walking import walk
from oomlint.documents.text import Span

if TYPE_CHECKING:
    from oomlint.documents.python.values.evaluator import Evaluator

_OPERATORS: Final[dict[type[ast.cmpop], str]] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
}
_BY_TEST: Final = "a test decides on it"


def conditional(
    home: Evaluator, expression: ast.IfExp, value: Any, scope: Scope, depth: int
) -> Node | None:
    """``a if test else b`` of which somebody else than the script decides the test; ``None`` where it is but its
    ``value``."""
    expression = _affirmed(expression)
    decided = home.decided(expression.test, scope, depth)
    if decided is not None:
        branch = expression.body if decided else expression.orelse
        return locked_by(home.node(branch, scope, depth + 1), BY_FILE)
    test = home.value(expression.test, scope, depth + 1) if value is UNKNOWN else UNKNOWN
    if isinstance(test, bool):  # of a list or a dict, which are no plain values
        branch = expression.body if test else expression.orelse
        return locked_by(home.node(branch, scope, depth + 1), _BY_TEST)
    chosen = _choice(home, expression, scope, depth)
    is_open = value is UNKNOWN or isinstance(chosen, PythonScalar)
    return replace(chosen, value=value) if is_open else None


def _affirmed(expression: ast.IfExp) -> ast.IfExp:
    """``a if not test else b`` as ``b if test else a``."""
    test, body, other = expression.test, expression.body, expression.orelse
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, body, other = test.operand, other, body
    if test is expression.test:
        return expression
    return ast.copy_location(ast.IfExp(test=test, body=body, orelse=other), expression)


def _choice(home: Evaluator, expression: ast.IfExp, scope: Scope, depth: int) -> Scalar:
    """``torch.bfloat16 if args.bf16 else None``: what the command line says decides."""
    unknown = unknown_at(home.places.span(expression))
    one = _same_option(home, expression, scope, depth)
    if one is not None:
        return one
    if _asks_for_ranks(home, expression.test, scope):
        return by_ranks(home, expression, expression.body, expression.orelse, scope, depth)
    asked = expression.test
    compared: tuple[str, Any] | None = None
    holds = _held_word(asked)
    if holds is not None:
        asked, compared = holds
    elif isinstance(asked, ast.Compare) and len(asked.ops) == 1:
        compared = (
            _OPERATORS.get(type(asked.ops[0]), ""),
            _compared_with(home, asked.comparators[0], scope, depth + 1),
        )
        asked = asked.left
    holder, _, option = (dotted(asked) or "").rpartition(".")
    found = scope.find(holder) if holder else None
    if isinstance(asked, ast.Name) or found is None or not are_parsed(found[1], home.tree):
        is_named = isinstance(asked, (ast.Name, ast.Attribute)) and depth < DEEPEST
        option = option_of(home.node(asked, scope, depth + 1)) if is_named else ""
        if not option:
            return unknown
    if compared is not None and (not compared[0] or compared[1] is UNKNOWN):
        return unknown
    sides = [home.node(e, scope, depth + 1) for e in (expression.body, expression.orelse)]
    return PythonScalar(
        unknown.span,
        UNKNOWN,
        locked=unknown.locked,
        option=option,
        either=(sides[0], sides[1]),
        compared=compared,
        unset=_unset(home, asked, option, scope, depth),
    )


def _held_word(test: ast.expr) -> tuple[ast.expr, tuple[str, str]] | None:
    """``"mpt" in args.model_name``: what is asked, and the word that it holds or lacks."""
    match test:
        case ast.Compare(left=ast.Constant(value=str(word)), ops=[sign], comparators=[held]):
            names = {ast.In: "holds", ast.NotIn: "lacks"}
            found = names.get(type(sign))
            return None if found is None else (held, (found, word))
    return None


def _compared_with(home: Evaluator, expression: ast.expr, scope: Scope, depth: int) -> Any:
    """The value that an option is compared with, or the words that it may be one of."""
    if not isinstance(expression, (ast.Tuple, ast.List, ast.Set)):
        return home.value(expression, scope, depth)
    words = tuple(home.value(each, scope, depth) for each in expression.elts)
    return UNKNOWN if UNKNOWN in words else words


def _unset(home: Evaluator, asked: ast.expr, option: str, scope: Scope, depth: int) -> Any:
    """What an option is where nobody says it: by argparse, or by the dataclass that declares it."""
    default = home.options.get(option)
    if default is not None:
        return home.value(default, home.scope_of_default(default), depth + 1)
    return home.value(asked, scope, depth + 1) if depth < DEEPEST else UNKNOWN


def first_set(
    home: Evaluator, expression: ast.BoolOp, value: Any, scope: Scope, depth: int
) -> Node:
    """``args.model_path or args.model_name``: the first that is set; an option, whatever its default, may be by
    the command line, and a variable by whoever starts the script."""
    span = home.places.span(expression)
    if isinstance(value, bool):  # what is true or false is no choice of settings
        return Scalar(span, value)
    found = [_operand(home, each, scope, depth + 1) for each in expression.values]
    last = found.pop()
    while found:
        last = set_or(found.pop(), last, span)
    return last


def _operand(home: Evaluator, expression: ast.expr, scope: Scope, depth: int) -> Node:
    option = _unset_option(home, expression, scope)
    if option:
        return PythonScalar(home.places.span(expression), None, option=option)
    return home.node(expression, scope, depth)


def set_or(first: Node, other: Node, span: Span) -> Node:
    """``first or other`` of two nodes."""
    plain = plain_value(first)
    if isinstance(first, PythonScalar) and first.option and first.either is None:
        is_open = plain is UNKNOWN
        return PythonScalar(
            span,
            plain if is_open or plain else plain_value(other),
            locked="an option of the command line decides on it",
            may_differ=may_differ(first) or ((is_open or not plain) and may_differ(other)),
            option=first.option,
            either=(first, other),
            unset=plain,
        )
    if plain is UNKNOWN:
        return unknown_at(span)
    return first if plain else other


def _unset_option(home: Evaluator, expression: ast.expr, scope: Scope) -> str:
    """The option that ``args.name`` is, which has no default: ``None`` unless the command line gives one."""
    if not isinstance(expression, ast.Attribute) or expression.attr in home.options:
        return ""
    found = scope.find(dotted(expression.value) or "")
    if found is None or not are_parsed(found[1], home.tree):
        return ""
    if {dotted(expression), f"{dotted(expression.value)}.*"} & home.scopes.changed:
        return ""
    return expression.attr if expression.attr in argparse_names(home.tree).known else ""


def _same_option(home: Evaluator, expression: ast.IfExp, scope: Scope, depth: int) -> Scalar | None:
    """``args.dtype if args.dtype in ("auto", None) else getattr(torch, args.dtype)``: the
    option itself, however it is spelt."""
    if not isinstance(expression.body, ast.Attribute):
        return None
    first, second = (home.node(e, scope, depth + 1) for e in (expression.body, expression.orelse))
    if not isinstance(first, PythonScalar) or not isinstance(second, PythonScalar):
        return None
    if not first.option or first.option != second.option:
        return None
    return first if first.either is None and second.either is None else None


def by_ranks(
    home: Evaluator, place: ast.expr, several: ast.expr, one: ast.expr, scope: Scope, depth: int
) -> Scalar:
    """A value where several processes run, and another one where but one does."""
    span = home.places.span(place)
    sides = [home.node(e, scope, depth + 1) for e in (several, one)]
    return PythonScalar(
        span, UNKNOWN, locked=unknown_at(span).locked, option=RANKS, either=(sides[0], sides[1])
    )


def _asks_for_ranks(home: Evaluator, test: ast.expr, scope: Scope, depth: int = 0) -> bool:
    """``world_size != 1``, or the name of such a comparison, where WORLD_SIZE is what the
    launcher sets."""
    if isinstance(test, ast.Name) and depth < 2:
        found = scope.find(test.id)
        value = found[1][0].value if found is not None and len(found[1]) == 1 else None
        return value is not None and _asks_for_ranks(home, value, scope, depth + 1)
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], (ast.NotEq, ast.Gt)):
        return False
    left = test.left
    if isinstance(left, ast.Name):
        found = scope.find(left.id)
        bound = found[1][0].value if found is not None and len(found[1]) == 1 else None
        left = left if bound is None else bound
    is_one = isinstance(test.comparators[0], ast.Constant) and test.comparators[0].value == 1
    words = (n.value for n in walk(left) if isinstance(n, ast.Constant))
    return is_one and "WORLD_SIZE" in words


def are_of_ranks(home: Evaluator, bindings: list[Binding], scope: Scope) -> bool:
    """Whether the second value of a name is its value where several processes run."""
    first, second = bindings
    if first.value is None or second.value is None:
        return False
    if id(scope.node) not in home.by_ranks_alone:
        home.by_ranks_alone[id(scope.node)] = frozenset(_given_to_ranks(home, scope))
    return id(second.value) in home.by_ranks_alone[id(scope.node)]


def _given_to_ranks(home: Evaluator, scope: Scope) -> Iterator[int]:
    """The values, by ``id``, that a scope assigns where several processes run and nowhere else."""
    for branch in walk(scope.node):
        if not isinstance(branch, ast.If) or branch.orelse:
            continue
        if _asks_for_ranks(home, branch.test, scope):
            yield from (id(each.value) for each in branch.body if isinstance(each, ast.Assign))


def as_choice(test: ast.expr) -> ast.IfExp:
    """``args.dtype == "bf16"`` or ``not args.load_in_4bit`` as one of two values, between which it decides."""
    sides = (ast.copy_location(ast.Constant(each), test) for each in (True, False))
    return ast.copy_location(ast.IfExp(test, *sides), test)


def is_denial(expression: ast.expr) -> bool:
    """``not args.load_in_4bit``."""
    return isinstance(expression, ast.UnaryOp) and isinstance(expression.op, ast.Not)
