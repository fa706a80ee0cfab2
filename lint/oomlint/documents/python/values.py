"""Values of Python expressions that are known without running the program."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping as MappingABC
from contextlib import suppress
from math import isfinite
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from oomlint.documents.base import (
    RANKS,
    UNKNOWN,
    Call,
    Entry,
    Mapping,
    Name,
    Node,
    Scalar,
    Sequence,
)
from oomlint.documents.python.branches import Tests, tests_of_values
from oomlint.documents.python.config_files import MAY_LOAD
from oomlint.documents.python.config_paths import At, function_of
from oomlint.documents.python.configs import ConfigFiles
from oomlint.documents.python.environment import (
    is_set_by_launchers,
    variable_asked,
    variable_taken,
)
from oomlint.documents.python.instances import AttributeValue, attribute
from oomlint.documents.python.modules import Module, Modules
from oomlint.documents.python.nodes import (
    Filed,
    PythonEntry,
    PythonMapping,
    PythonScalar,
    filed_of,
    is_of_options,
    option_of,
)
from oomlint.documents.python.parsers import (
    PARSES_ARGUMENTS,
    Switch,
    are_parsed,
    argparse_defaults,
    argparse_names,
    dataclass_variables,
    field_default,
    fire_functions,
)
from oomlint.documents.python.paths import joined, path_of
from oomlint.documents.python.scopes import Binding, Scope, dotted, enclosed
from oomlint.documents.python.tree import Tree
from oomlint.documents.text import Source, Span

# Values are followed through this many names; more is a program, not a setting.
_DEEPEST: Final = 24
# A choice asks for its test and its sides several times over: of choices within choices, few are followed.
_CHOICE: Final = 8
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
_OPERATORS: Final[dict[type[ast.cmpop], str]] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_COMPARISONS: Final[dict[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_GIVEN: Final = "it is what the function is given"
_NUMBERS: Final[dict[str, type[int] | type[float]]] = {"int": int, "float": float}
_CHOSEN: Final = "it is given only where it is taken"
_RETURNED: Final = "it is what a function returns"
_BY_FILE: Final = "a config file decides on it"
_COPIED: Final = "it is a copy"
_BY_TEST: Final = "a test decides on it"
_BY_CARD: Final = "the card decides on it"
_BY_ENVIRONMENT: Final = "the environment may say otherwise"
# A training that runs out of GPU memory has a GPU. From torch 2.5 on every card "supports" bf16, natively or in
# emulation (torch 2.5.0 torch/cuda/__init__.py is_bf16_supported); an older torch without says fp16, of the same size.
_OF_CARD: Final = frozenset(
    {
        "torch.cuda.is_available", "torch.cuda.is_bf16_supported",
        "transformers.is_torch_cuda_available", "transformers.is_torch_bf16_gpu_available",
        "transformers.utils.is_torch_cuda_available",
        "transformers.utils.is_torch_bf16_gpu_available",
    }
)  # fmt: skip
_SHARED: Final = "{} is used in several places"


class NodeSpans:
    """Spans of syntax nodes: ``ast`` counts lines from 1 and columns in UTF-8 bytes."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._narrow = source.text.isascii()

    def offset(self, line: int, column: int) -> int:
        start = self.source.line_starts[line - 1]
        if self._narrow:
            return start + column
        end = self.source.line_starts[line] if line < len(self.source.line_starts) else None
        head = self.source.text[start:end].encode("utf-8", "surrogatepass")[:column]
        return start + len(head.decode("utf-8", "surrogatepass"))

    def span(self, node: ast.expr | ast.stmt | ast.keyword | ast.ExceptHandler) -> Span:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return Span(
            self.offset(node.lineno, node.col_offset),
            self.offset(node.end_lineno, node.end_col_offset),
        )


class _Given(Struct, frozen=True, eq=False):
    """What the calls of a function give a parameter, as of a ``state``: how many calls of the script were
    read by then, and whether files count. ``filed`` values came from config files."""

    state: tuple[int, bool]
    nodes: list[Node]
    filed: int
    left_open: int = 0


class Evaluator:
    """Evaluates expressions of one file. Every result is a node with its place."""

    def __init__(
        self,
        places: NodeSpans,
        tree: Tree,
        modules: Modules | None = None,
        known: dict[str, Evaluator] | None = None,
        files: ConfigFiles | None = None,
    ) -> None:
        self.places = places
        self.tree = tree
        self.modules = modules or Modules(lambda _path: None)
        self.known = {} if known is None else known
        """Of the other modules that were asked, by path."""
        self.files = files or ConfigFiles(self.modules.find)
        self.may_load = bool(MAY_LOAD.search(places.source.text))
        self.scopes = tree.scopes
        self.calls: dict[int, Call] = {}
        """Calls already read, by ``id`` of their syntax node: values may refer to them."""
        self.options = argparse_defaults(tree)
        self.settings = dataclass_variables(tree)
        self.fire = fire_functions(tree)
        self.given = _arguments_given(tree)
        self.handed_on: dict[int, _Given] = {}
        """By ``id`` of what is in ``given``."""
        self.handed: dict[tuple[int, str], list[tuple[ast.expr, Scope, Evaluator]]] = {}
        """What scripts of other files give the parameters of functions here: see :mod:`.handed`."""
        self._branches: dict[int, dict[int, tuple[ast.If, bool]]] = {}
        """By ``id`` of what opens a scope: see :func:`_assigned_in_branches`."""
        self._tests: dict[int, MappingABC[int, Tests]] = {}
        """By ``id`` of what opens a scope: see :func:`.tests_of_values`."""
        self._chosen_by_files: dict[int, tuple[tuple[int, bool], ast.expr | None, int]] = {}
        """By ``id`` of the bindings of a name: as of which state, which value, and how often a file was asked."""
        self._by_ranks_alone: dict[int, frozenset[int]] = {}
        """By ``id`` of what opens a scope: see :meth:`_given_to_ranks`."""

    # -- nodes ------------------------------------------------------------------------

    def node(self, expression: ast.expr, scope: Scope, depth: int = 0) -> Node:
        """The expression as a scalar, sequence or mapping; ``UNKNOWN`` where it is not plain."""
        before, asked = self.files.count, self.files.left_open
        found = self._from_file(expression, scope) if self.may_load else None
        if found is not None:
            return found
        found = self._node(expression, scope, depth)
        if self.files.left_open != asked:
            found = _open(found)
        if self.files.count == before or not isinstance(found, Scalar) or found.locked:
            return found
        return found if filed_of(found) else replace(found, locked=_BY_FILE)

    def _from_file(self, expression: ast.expr, scope: Scope) -> Node | None:
        """What the script takes there from a config file that it loads."""
        if not isinstance(expression, (ast.Attribute, ast.Subscript, ast.Call, ast.Name)):
            return None
        if id(expression) in self.calls:
            return None
        return self.files.node(expression, At(scope, self), self.places.span(expression))

    def _node(self, expression: ast.expr, scope: Scope, depth: int) -> Node:
        span = self.places.span(expression)
        if depth > _DEEPEST:
            return _unknown(span)
        if isinstance(expression, (ast.List, ast.Tuple, ast.Set)):
            if any(isinstance(element, ast.Starred) for element in expression.elts):
                return _unknown(span)
            items = tuple(self.node(element, scope, depth + 1) for element in expression.elts)
            return Sequence(span, items)
        read = _READERS.get(type(expression))
        if read is not None:
            return read(self, expression, scope, depth)
        if isinstance(expression, ast.Compare):
            expression, depth = _as_choice(expression), depth + _CHOICE
        value = self.value(expression, scope, depth)
        if isinstance(expression, ast.BoolOp) and isinstance(expression.op, ast.Or):
            return self._first_set(expression, value, scope, depth)
        chosen = None
        if isinstance(expression, ast.IfExp):
            chosen = self._conditional(expression, value, scope, depth)
        if chosen is not None:
            return chosen
        if value is UNKNOWN:
            return _unknown(span)
        return Scalar(span, value, locked=_BY_CARD if _asks_card(expression, scope) else None)

    def _conditional(
        self, expression: ast.IfExp, value: Any, scope: Scope, depth: int
    ) -> Node | None:
        """``a if test else b`` of which somebody else than the script decides the test; ``None`` where it is but its
        ``value``."""
        decided = self.decided(expression.test, scope, depth)
        if decided is not None:
            branch = expression.body if decided else expression.orelse
            return _locked(self.node(branch, scope, depth + 1), _BY_FILE)
        test = self.value(expression.test, scope, depth + 1) if value is UNKNOWN else UNKNOWN
        if isinstance(test, bool):  # of a list or a dict, which are no plain values
            branch = expression.body if test else expression.orelse
            return _locked(self.node(branch, scope, depth + 1), _BY_TEST)
        chosen = self._choice(expression, scope, depth)
        is_open = value is UNKNOWN or isinstance(chosen, PythonScalar)
        return replace(chosen, value=value) if is_open else None

    def _arithmetic(self, expression: ast.BinOp, scope: Scope, depth: int) -> Node:
        """``args.devices * args.batch``: another number where the command line gives one of them."""
        left = self.node(expression.left, scope, depth + 1)
        right = self.node(expression.right, scope, depth + 1)
        return self._result(self.places.span(expression), type(expression.op), left, right)

    def _result(self, span: Span, operation: type[ast.operator], left: Node, right: Node) -> Node:
        value = arithmetic(operation, plain_value(left), plain_value(right))
        if not is_of_options(left) and not is_of_options(right):
            return _unknown(span) if value is UNKNOWN else Scalar(span, value)
        reason = "it is computed from options of the command line"
        return PythonScalar(span, value, locked=reason, computed=(operation, left, right))

    def _choice(self, expression: ast.IfExp, scope: Scope, depth: int) -> Scalar:
        """``torch.bfloat16 if args.bf16 else None``: what the command line says decides."""
        unknown = _unknown(self.places.span(expression))
        one = self._same_option(expression, scope, depth)
        if one is not None:
            return one
        if self._asks_for_ranks(expression.test, scope):
            return self._by_ranks(expression, expression.body, expression.orelse, scope, depth)
        asked, compared = expression.test, None
        if isinstance(asked, ast.Compare) and len(asked.ops) == 1:
            compared = (
                _OPERATORS.get(type(asked.ops[0]), ""),
                self.value(asked.comparators[0], scope, depth + 1),
            )
            asked = asked.left
        holder, _, option = (dotted(asked) or "").rpartition(".")
        found = scope.find(holder) if holder else None
        if isinstance(asked, ast.Name) and depth < _DEEPEST:
            option = option_of(self.node(asked, scope, depth + 1))
            if not option:
                return unknown
        elif found is None or not are_parsed(found[1], self.tree):
            return unknown
        if compared is not None and (not compared[0] or compared[1] is UNKNOWN):
            return unknown
        sides = [self.node(e, scope, depth + 1) for e in (expression.body, expression.orelse)]
        default = self.options.get(option)
        return PythonScalar(
            unknown.span,
            UNKNOWN,
            locked=unknown.locked,
            option=option,
            either=(sides[0], sides[1]),
            compared=compared,
            unset=UNKNOWN if default is None else self.value(default, scope, depth + 1),
        )

    def _first_set(self, expression: ast.BoolOp, value: Any, scope: Scope, depth: int) -> Node:
        """``args.model_path or args.model_name``: the first that is set; an option, whatever its default, may be by
        the command line, and a variable by whoever starts the script."""
        span = self.places.span(expression)
        if isinstance(value, bool):  # what is true or false is no choice of settings
            return Scalar(span, value)
        found = [self._operand(each, scope, depth + 1) for each in expression.values]
        last = found.pop()
        while found:
            last = self._set_or(found.pop(), last, span)
        return last

    def _operand(self, expression: ast.expr, scope: Scope, depth: int) -> Node:
        option = self._unset_option(expression, scope)
        if option:
            return PythonScalar(self.places.span(expression), None, option=option)
        return self.node(expression, scope, depth)

    def _set_or(self, first: Node, other: Node, span: Span) -> Node:
        plain = plain_value(first)
        if isinstance(first, PythonScalar) and first.option and first.either is None:
            is_open = plain is UNKNOWN
            return PythonScalar(
                span,
                plain if is_open or plain else plain_value(other),
                locked="an option of the command line decides on it",
                may_differ=_may_differ(first) or ((is_open or not plain) and _may_differ(other)),
                option=first.option,
                either=(first, other),
                unset=plain,
            )
        if plain is UNKNOWN:
            return _unknown(span)
        return first if plain else other

    def _unset_option(self, expression: ast.expr, scope: Scope) -> str:
        """The option that ``args.name`` is, which has no default: ``None`` unless the command line gives one."""
        if not isinstance(expression, ast.Attribute) or expression.attr in self.options:
            return ""
        found = scope.find(dotted(expression.value) or "")
        if found is None or not are_parsed(found[1], self.tree):
            return ""
        if {dotted(expression), f"{dotted(expression.value)}.*"} & self.scopes.changed:
            return ""
        return expression.attr if expression.attr in argparse_names(self.tree).known else ""

    def _same_option(self, expression: ast.IfExp, scope: Scope, depth: int) -> Scalar | None:
        """``args.dtype if args.dtype in ("auto", None) else getattr(torch, args.dtype)``: the
        option itself, however it is spelt."""
        if not isinstance(expression.body, ast.Attribute):
            return None
        first, second = (
            self.node(e, scope, depth + 1) for e in (expression.body, expression.orelse)
        )
        if not isinstance(first, PythonScalar) or not isinstance(second, PythonScalar):
            return None
        if not first.option or first.option != second.option:
            return None
        return first if first.either is None and second.either is None else None

    def _by_ranks(
        self, place: ast.expr, several: ast.expr, one: ast.expr, scope: Scope, depth: int
    ) -> Scalar:
        span = self.places.span(place)
        sides = [self.node(e, scope, depth + 1) for e in (several, one)]
        return PythonScalar(
            span, UNKNOWN, locked=_unknown(span).locked, option=RANKS, either=(sides[0], sides[1])
        )

    def _asks_for_ranks(self, test: ast.expr, scope: Scope, depth: int = 0) -> bool:
        """``world_size != 1``, or the name of such a comparison, where WORLD_SIZE is what the
        launcher sets."""
        if isinstance(test, ast.Name) and depth < 2:
            found = scope.find(test.id)
            value = found[1][0].value if found is not None and len(found[1]) == 1 else None
            return value is not None and self._asks_for_ranks(value, scope, depth + 1)
        if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], (ast.NotEq, ast.Gt)):
            return False
        left = test.left
        if isinstance(left, ast.Name):
            found = scope.find(left.id)
            bound = found[1][0].value if found is not None and len(found[1]) == 1 else None
            left = left if bound is None else bound
        is_one = isinstance(test.comparators[0], ast.Constant) and test.comparators[0].value == 1
        words = (n.value for n in ast.walk(left) if isinstance(n, ast.Constant))
        return is_one and "WORLD_SIZE" in words

    def _of_ranks(self, bindings: list[Binding], scope: Scope) -> bool:
        """Whether the second value of a name is its value where several processes run."""
        first, second = bindings
        if first.value is None or second.value is None:
            return False
        if id(scope.node) not in self._by_ranks_alone:
            self._by_ranks_alone[id(scope.node)] = frozenset(self._given_to_ranks(scope))
        return id(second.value) in self._by_ranks_alone[id(scope.node)]

    def _given_to_ranks(self, scope: Scope) -> Iterator[int]:
        """The values, by ``id``, that a scope assigns where several processes run and nowhere else."""
        for branch in ast.walk(scope.node):
            if not isinstance(branch, ast.If) or branch.orelse:
                continue
            if self._asks_for_ranks(branch.test, scope):
                yield from (id(each.value) for each in branch.body if isinstance(each, ast.Assign))

    def arguments(self, call: ast.Call, scope: Scope) -> PythonMapping:
        """The arguments of a call; positional ones are named ``"0"``, ``"1"`` …"""
        span = self.places.span(call)
        entries: list[PythonEntry] = []
        open_ended = False
        sections: tuple[Filed, ...] = ()
        for number, argument in enumerate(call.args):
            place = self.places.span(argument)
            if isinstance(argument, ast.Starred):
                open_ended = True
                break
            node = self.node(argument, scope)
            entries.append(PythonEntry(str(number), place, node, place, owner=span))
        for keyword in call.keywords:
            place = self.places.span(keyword)
            if keyword.arg is None:
                unpacked = self._unpacked(keyword.value, scope, 0)
                entries += unpacked.entries.values()  # type: ignore[arg-type]
                open_ended = open_ended or unpacked.open_ended
                filed = filed_of(unpacked)
                sections += () if filed is None else (filed,)
                continue
            key = Span(place.start, place.start + len(keyword.arg))
            node = self.node(keyword.value, scope)
            entries.append(PythonEntry(keyword.arg, key, node, place, owner=span))
        return replace(_mapping(entries, span, "call", open_ended), sections=sections)

    # -- values -----------------------------------------------------------------------

    def value(self, expression: ast.expr, scope: Scope, depth: int = 0) -> Any:
        """The plain value of an expression, or ``UNKNOWN``."""
        if depth > _DEEPEST:
            return UNKNOWN
        if isinstance(expression, ast.Constant):
            return expression.value if _is_plain(expression.value) else UNKNOWN
        if isinstance(expression, ast.UnaryOp):
            return self._unary(expression, scope, depth)
        if isinstance(expression, ast.BinOp):
            left = self.value(expression.left, scope, depth + 1)
            right = self.value(expression.right, scope, depth + 1)
            return arithmetic(type(expression.op), left, right)
        if isinstance(expression, ast.JoinedStr):
            return self._format(expression, scope, depth)
        if isinstance(expression, ast.BoolOp):
            parts = [self.value(each, scope, depth + 1) for each in expression.values]
            return _joined(expression.op, parts)
        if isinstance(expression, ast.Compare):
            return self._comparison(expression, scope, depth)
        if isinstance(expression, ast.IfExp):
            test = self.value(expression.test, scope, depth + 1)
            decided = self.decided(expression.test, scope, depth)
            test = test if decided is None else decided
            if isinstance(test, bool):
                branch = expression.body if test else expression.orelse
                return self.value(branch, scope, depth + 1)
            first = self.value(expression.body, scope, depth + 1)
            second = self.value(expression.orelse, scope, depth + 1)
            same = first is not UNKNOWN and type(first) is type(second) and first == second
            return first if same else UNKNOWN
        node = self.node(expression, scope, depth + 1) if _has_node(expression) else None
        return plain_value(node) if node is not None else UNKNOWN

    def decided(self, test: ast.expr, scope: Scope, depth: int = 0) -> bool | None:
        """Whether a test holds by what config files say; ``None`` where it asks none, or more."""
        before = self.files.count
        holds = self._holds(test, scope, depth + 1) if self.may_load else None
        return holds if self.files.count > before else None

    def _holds(self, test: ast.expr, scope: Scope, depth: int) -> bool | None:
        if depth > _DEEPEST:
            return None
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self._holds(test.operand, scope, depth + 1)
            return None if inner is None else not inner
        if isinstance(test, ast.BoolOp):
            parts = [self._holds(each, scope, depth + 1) for each in test.values]
            ends = not isinstance(test.op, ast.And)
            if ends in parts:
                return ends
            return None if None in parts else not ends
        if isinstance(test, ast.Compare):
            if len(test.ops) != 1:
                return None
            left = self.value(test.left, scope, depth + 1)
            right = self.value(test.comparators[0], scope, depth + 1)
            return _compared(test.ops[0], left, right)
        value = self.value(test, scope, depth + 1)
        return None if value is UNKNOWN or isinstance(value, (Name, Call)) else bool(value)

    def _comparison(self, expression: ast.Compare, scope: Scope, depth: int) -> Any:
        """``device == "cuda"``; unknown where the command line has a say in a side of it."""
        if len(expression.ops) != 1:
            return UNKNOWN
        sides = [
            self.node(each, scope, depth + 1)
            for each in (expression.left, *expression.comparators)
            if not isinstance(each, ast.Constant)
        ]
        if any(map(is_of_options, sides)):
            return UNKNOWN
        holds = self._holds(expression, scope, depth)
        return UNKNOWN if holds is None else holds

    def _unary(self, expression: ast.UnaryOp, scope: Scope, depth: int) -> Any:
        operand = self.value(expression.operand, scope, depth + 1)
        if operand is UNKNOWN:
            return UNKNOWN
        if isinstance(expression.op, ast.Not) and isinstance(operand, (bool, int)):
            return not operand
        if isinstance(operand, (int, float)) and not isinstance(operand, bool):
            if isinstance(expression.op, ast.USub):
                return -operand
            if isinstance(expression.op, ast.UAdd):
                return operand
        return UNKNOWN

    def _format(self, expression: ast.JoinedStr, scope: Scope, depth: int) -> Any:
        pieces: list[str] = []
        for part in expression.values:
            if isinstance(part, ast.Constant):
                pieces.append(str(part.value))
            elif isinstance(part, ast.FormattedValue):
                value = self.value(part.value, scope, depth + 1)
                plain = isinstance(value, (str, int)) and part.conversion == -1
                if not plain or part.format_spec is not None:
                    return UNKNOWN
                pieces.append(str(value))
        return "".join(pieces)

    # -- collections and calls --------------------------------------------------------

    def _dict(self, expression: ast.Dict, scope: Scope, depth: int) -> PythonMapping:
        span = self.places.span(expression)
        entries: list[PythonEntry] = []
        open_ended = False
        for key, value in zip(expression.keys, expression.values, strict=True):
            if key is None:
                unpacked = self._unpacked(value, scope, depth + 1)
                entries += unpacked.entries.values()  # type: ignore[arg-type]
                open_ended = open_ended or unpacked.open_ended
                continue
            name = self.value(key, scope, depth + 1)
            if not isinstance(name, str):
                open_ended = True
                continue
            key_span, value_span = self.places.span(key), self.places.span(value)
            node = self.node(value, scope, depth + 1)
            place = Span(key_span.start, value_span.end)
            entries.append(PythonEntry(name, key_span, node, place, owner=span, owner_kind="dict"))
        return _mapping(entries, span, "dict", open_ended)

    def _unpacked(self, expression: ast.expr, scope: Scope, depth: int) -> Mapping:
        """What ``**expression`` brings."""
        node = self._before_stores(expression, scope, depth) or self.node(
            expression, scope, depth + 1
        )
        if not isinstance(node, Mapping):
            return PythonMapping(self.places.span(expression), {}, open_ended=True)
        if node.locked is None:
            return node
        entries = [
            replace(entry, value=_locked(entry.value, node.locked), locked=node.locked)
            for entry in node.entries.values()
            if isinstance(entry, PythonEntry)
        ]
        made = _mapping(entries, node.span, "dict", node.open_ended)
        return replace(made, filed=filed_of(node))

    def _chosen(self, expression: ast.DictComp, scope: Scope, depth: int) -> Node:
        """``{k: v for k, v in settings.items() if k in known}``: what of a dictionary the callee takes, and so all
        that counts there; without those that are ``None`` of ``if v is not None``."""
        span = self.places.span(expression)
        match expression:
            case ast.DictComp(
                key=ast.Name(id=key),
                value=ast.Name(id=value),
                generators=[
                    ast.comprehension(
                        target=ast.Tuple(elts=[ast.Name(id=first), ast.Name(id=second)]),
                        iter=ast.Call(func=ast.Attribute(value=holder, attr="items"), args=[]),
                        ifs=tests,
                    )
                ],
            ) if (key, value) == (first, second):
                whole = self._unpacked(holder, scope, depth + 1)
            case _:
                return _unknown(span)
        if not isinstance(whole, PythonMapping):
            return _unknown(span)
        if any(not _asks_if_taken(test, key) and not _asks_if_set(test, value) for test in tests):
            return _unknown(span)
        drops = any(_asks_if_set(test, value) for test in tests)
        chosen = any(_asks_if_taken(test, key) for test in tests)
        entries = {
            name: replace(
                entry,
                locked=_CHOSEN,
                value=_locked(entry.value, _CHOSEN),
                if_known=chosen or entry.if_known,
            )
            for name, entry in whole.entries.items()
            if isinstance(entry, PythonEntry)
            and not (drops and isinstance(entry.value, Scalar) and entry.value.value is None)
        }
        return replace(whole, entries=entries, filed=None, locked=_CHOSEN)

    def _keywords(self, expression: ast.Name, owner: Scope, depth: int) -> Node:
        """What the one call of a function of the file gives its ``**kwargs``."""
        span = self.places.span(expression)
        function = owner.node
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return _unknown(span)
        name = function.name
        calls = [each for each in self.tree.calls_to(name) if isinstance(each.func, ast.Name)]
        is_plain = self.scopes.functions.get(name) is function and not function.decorator_list
        is_alone = len(calls) == 1 and self.scopes.reads[name] <= 1
        if not is_plain or not is_alone or expression.id in self.scopes.changed:
            return _unknown(span)
        given = self.arguments(calls[0], self.tree.scope_of[id(calls[0])])
        taken = _parameters_of(function)
        entries = {
            key: replace(entry, locked=_GIVEN, value=_locked(entry.value, _GIVEN))
            for key, entry in given.entries.items()
            if not (key.isdigit() or key in taken) and isinstance(entry, PythonEntry)
        }
        return replace(given, entries=entries, locked=_GIVEN)

    def _before_stores(self, expression: ast.expr, scope: Scope, depth: int) -> Node | None:
        """A dictionary of which some keys are assigned to later, these unknown: ``kwargs["beta"] = args.beta``
        behind a test leaves what the others say."""
        found = scope.find(expression.id) if isinstance(expression, ast.Name) else None
        if found is None or not isinstance(expression, ast.Name):
            return None
        keys = self.scopes.stored_keys.get(expression.id, set())
        owner, bindings = found
        value = bindings[0].value if len(bindings) == 1 and bindings[0].kind == "value" else None
        if not keys or value is None or expression.id in self.scopes.rewritten:
            return None
        made = self.node(value, owner, depth + 1)
        if not isinstance(made, PythonMapping):
            return None
        span = self.places.span(expression)
        stored = [PythonEntry(key, span, _unknown(span), span) for key in sorted(keys)]
        kept = [entry for key, entry in made.entries.items() if key not in keys]
        whole = _mapping([*kept, *stored], made.span, made.kind, made.open_ended)  # type: ignore[list-item]
        return _locked(whole, _SHARED.format(expression.id))

    def _call(self, expression: ast.Call, scope: Scope, depth: int) -> Node:
        span = self.places.span(expression)
        known = self.calls.get(id(expression))
        if known is not None:
            return Scalar(span, known)
        name = dotted(expression.func)
        if _is_of_card(expression, scope):
            return Scalar(span, True, locked=_BY_CARD)
        variable = variable_asked(expression, scope)
        if variable is not None:
            return self._of_environment(*variable, span, scope, depth)
        if name == "dict" and not expression.args and scope.find("dict") is None:
            return replace(self.arguments(expression, scope), kind="call")
        copied = _copied(expression, scope)
        if copied is not None:
            whole = self.node(copied, scope, depth + 1)
            if isinstance(whole, Mapping):
                return _locked(whole, _COPIED)
        if name in _NUMBERS and len(expression.args) == 1 and scope.find(name) is None:
            return self._number(_NUMBERS[name], expression, scope, depth)
        return (
            self._gotten(expression, scope, depth)
            or self._path(expression, scope, depth)
            or self._returned(expression, scope, depth)
            or self._made(expression, depth)
            or _unknown(span)
        )

    def _gotten(self, expression: ast.Call, scope: Scope, depth: int) -> Node | None:
        """``getattr(torch, args.dtype)``: what the option names; ``getattr(torch, "bfloat16")``."""
        if dotted(expression.func) != "getattr" or len(expression.args) != 2:
            return None
        owner = dotted(expression.args[0])
        named = self.node(expression.args[1], scope, depth + 1)
        attribute = plain_value(named)
        if option_of(named) and attribute is UNKNOWN and owner == "torch":
            return named
        if owner is None or not isinstance(attribute, str) or not attribute.isidentifier():
            return None
        qualified = scope.imported(owner)
        span = self.places.span(expression)
        return Scalar(span, Name(f"{qualified}.{attribute}")) if qualified else None

    def _of_environment(
        self, name: str, default: ast.expr | None, span: Span, scope: Scope, depth: int
    ) -> Node:
        """``os.environ.get("MODEL", "org/name")``: what the command that starts the script sets, else the default,
        which whoever starts it may replace."""
        if is_set_by_launchers(name):
            return _unknown(span)
        if self.files.sets(name):
            return self._as_set(name, span)
        self.files.left_open += 1
        if default is None:
            return Scalar(span, None, locked=_BY_ENVIRONMENT)
        return _locked(self.node(default, scope, depth + 1), _BY_ENVIRONMENT)

    def _as_set(self, variable: str, span: Span) -> Scalar:
        said = self.files.variable(variable)
        if said is None:
            return _unknown(span)
        return Scalar(span, said, locked=f"the environment says it in {variable}")

    def _path(self, expression: ast.expr, scope: Scope, depth: int) -> Node | None:
        """What a path that the script puts together comes to."""
        if "__file__" not in (text := self.places.source.text) and "ath" not in text:
            return None
        span = self.places.span(expression)

        def join(left: Node, right: Node) -> Node:
            return self._result(span, ast.Div, left, right)

        return path_of(
            expression,
            scope,
            span,
            lambda part: self.node(part, scope, depth + 1),
            join,
        )

    def _number(
        self, kind: type[int] | type[float], expression: ast.Call, scope: Scope, depth: int
    ) -> Node:
        """``int(args.max_length)``: the option, whose words on a command line are numbers."""
        given = self.node(expression.args[0], scope, depth + 1)
        value = plain_value(given)
        is_filed = filed_of(given) is not None and isinstance(value, (int, float))
        if is_of_options(given) or is_filed:
            return given
        if isinstance(value, str):  # of the environment, say
            with suppress(ValueError):
                value = kind(value)
        if isinstance(value, (int, float)) and isfinite(value):
            return Scalar(self.places.span(expression), kind(value))
        return _unknown(self.places.span(expression))

    # -- names ------------------------------------------------------------------------

    def _name(self, expression: ast.Name, scope: Scope, depth: int) -> Node:
        span = self.places.span(expression)
        if expression.id == "__file__":
            return Scalar(span, self.places.source.path)
        owner, bindings = scope.find(expression.id) or (scope, [])
        if len(bindings) != 1:
            chosen = self._of_several(expression, owner, bindings, depth)
            return _unknown(span) if chosen is None else chosen
        (binding,) = bindings
        if binding.kind == "import":
            return self._imported(expression, binding.qualified, scope, depth)
        if binding.kind == "definition":
            return Scalar(span, Name(expression.id))
        if binding.kind == "keywords":
            return self._keywords(expression, owner, depth)
        return self._bound(expression, owner, binding, depth)

    def _of_several(
        self, expression: ast.Name, owner: Scope, bindings: list[Binding], depth: int
    ) -> Node | None:
        """A name that is given several values, of which the number of ranks, config files or a test choose one."""
        if len(bindings) == 2 and self._of_ranks(bindings, owner):
            one, several = (b.value for b in bindings)
            assert one is not None
            assert several is not None
            return self._by_ranks(expression, several, one, owner, depth)
        if not bindings:
            return None
        chosen = self._binding_by_files(owner, bindings, depth)
        if expression.id in self.scopes.changed:
            return None
        if chosen is not None:
            return _locked(self.node(chosen, owner, depth + 1), _BY_FILE)
        choice = self._of_branches(expression, bindings, owner) if len(bindings) == 2 else None
        return None if choice is None else self.node(choice, owner, depth + _CHOICE)

    def _bound(self, expression: ast.Name, owner: Scope, binding: Binding, depth: int) -> Node:
        """A name that is given one value: where it is assigned, by those who call, or as a parameter's default."""
        span = self.places.span(expression)
        given = self.given.get((id(owner.node), expression.id))
        if binding.kind == "parameter" and given is not None:
            return self._given(given, span, depth)
        default_counts = binding.kind == "parameter" and owner.node in self.fire
        if binding.value is None or not (binding.kind == "value" or default_counts):
            return _unknown(span)
        if expression.id in self.scopes.changed:
            return _unknown(span)
        outer = owner.parent if default_counts and owner.parent is not None else owner
        return self._reached(
            binding.value, outer, span, expression.id, depth, setting=default_counts
        )

    def _of_branches(
        self, place: ast.Name, bindings: list[Binding], scope: Scope
    ) -> ast.IfExp | None:
        """A name that an ``if`` gives another value than it had, or one of two, as an expression that says so."""
        if id(scope.node) not in self._branches:
            self._branches[id(scope.node)] = dict(_assigned_in_branches(scope.node))
        branches = self._branches[id(scope.node)]
        values = [b.value for b in bindings if b.kind == "value" and b.value is not None]
        if len(values) != 2:
            return None
        sides = [branches.get(id(value)) for value in values]
        body = getattr(scope.node, "body", [])
        is_first_plain = isinstance(body, list) and any(
            isinstance(each, ast.Assign) and each.value is values[0] for each in body
        )
        match sides:
            case [None, (branch, True)] if is_first_plain and values[0].lineno < branch.lineno:
                other, chosen = values
            case [(branch, True), (other_branch, False)] if branch is other_branch:
                chosen, other = values
            case _:
                return None
        return ast.copy_location(ast.IfExp(branch.test, chosen, other), place)

    def _binding_by_files(
        self, owner: Scope, bindings: list[Binding], depth: int
    ) -> ast.expr | None:
        """The last value that a name is given, where config files decide on all branches in which it is given one;
        worked out once, as what calls give a parameter is."""
        if not self.may_load or depth > _DEEPEST:
            return None
        state = (len(self.calls), self.files.suspended)
        known = self._chosen_by_files.get(id(bindings))
        if known is None or known[0] != state:
            self._chosen_by_files[id(bindings)] = (
                state,
                None,
                0,
            )  # what refers to itself is nothing
            before = self.files.count
            chosen = self._last_held(owner, bindings, depth)
            known = (state, chosen, self.files.count - before)
            self._chosen_by_files[id(bindings)] = known
        else:
            self.files.count += known[2]
        return known[1]

    def _last_held(self, owner: Scope, bindings: list[Binding], depth: int) -> ast.expr | None:
        if id(owner.node) not in self._tests:
            self._tests[id(owner.node)] = tests_of_values(owner.node)
        tests, chosen = self._tests[id(owner.node)], None
        for binding in bindings:
            if binding.kind != "value" or id(binding.value) not in tests:
                return None
            around = tests[id(binding.value)]
            held = [(self.decided(test, owner, depth + 1), side) for test, side in around]
            if any(holds is None for holds, _ in held):
                return None
            chosen = binding.value if all(holds is side for holds, side in held) else chosen
        return chosen

    def _given(self, given: list[tuple[ast.expr, Scope]], span: Span, depth: int) -> Node:
        """What the calls of a function give its parameter, where all of them say the same."""
        nodes = self._all_given(given, span, depth)
        values = {repr(plain_value(node)) for node in nodes}
        if len(values) > 1 or not isinstance(nodes[0], Scalar):
            return _unknown(span) if len(values) > 1 else _locked(nodes[0], _GIVEN)
        return replace(nodes[0], via=span, locked=nodes[0].locked or _GIVEN)

    def _all_given(self, given: list[tuple[ast.expr, Scope]], span: Span, depth: int) -> list[Node]:
        """What each call gives a parameter, worked out once: functions that hand their parameters on, or
        call themselves, would be asked again for every way that leads there."""
        state = (len(self.calls), self.files.suspended)
        known = self.handed_on.get(id(given))
        if known is not None and known.state == state:
            self.files.count += known.filed
            self.files.left_open += known.left_open
            return known.nodes
        # What refers to itself is nothing.
        self.handed_on[id(given)] = _Given(state, [_unknown(span)], 0)
        before, asked = self.files.count, self.files.left_open
        nodes = [self.node(value, scope, depth + 1) for value, scope in given]
        grown = self.files.count - before, self.files.left_open - asked
        self.handed_on[id(given)] = _Given(state, nodes, *grown)
        return nodes

    def _returned(self, call: ast.Call, scope: Scope, depth: int) -> Node | None:
        """What a function of the project returns there of a config file, or as one decides; ``None``
        of what no file has a say in, or more than one statement may return."""
        found = function_of(call, scope, self) if self.may_load else None
        if found is None or depth > _DEEPEST:
            return None
        function, there = found
        own = there.scopes.of_node[id(function)]
        before = self.files.count
        value = there.end_of(function.body, own, depth + 1)
        if value is None:
            return None
        node = there.node(value, own, depth + 1)
        if self.files.count == before:
            return None
        span = self.places.span(call)
        if isinstance(node, Scalar) and isinstance(node.value, Call):
            return Scalar(span, node.value, locked=_RETURNED)
        return from_elsewhere(node, span, there.places.source.path)

    def _made(self, call: ast.Call, depth: int) -> Node | None:
        """The config that a function of the file makes: ``peft_config=lora_config(args)``."""
        function = self.scopes.functions.get(dotted(call.func) or "")
        if function is None or depth > _DEEPEST:
            return None
        own = self.scopes.of_node[id(function)]
        value = self.end_of(function.body, own, depth + 1)
        if isinstance(value, ast.Name):
            bindings = own.bindings.get(value.id, [])
            value = bindings[0].value if len(bindings) == 1 else None
        made = self.calls.get(id(value))
        if made is None or not made.callee.endswith(("Config", "Arguments")):
            return None
        return Scalar(self.places.span(call), made, locked=_RETURNED)

    def end_of(self, body: list[ast.stmt], scope: Scope, depth: int) -> ast.expr | None:
        """What the one ``return`` says that statements come to; ``None`` where it cannot be told."""
        for statement in body:
            if isinstance(statement, ast.Return):
                return statement.value
            if not any(isinstance(node, ast.Return) for node in enclosed(statement)):
                continue
            if isinstance(statement, (ast.With, ast.Try)):
                return self.end_of(statement.body, scope, depth)
            decided = None
            if isinstance(statement, ast.If):
                decided = self.decided(statement.test, scope, depth)
            if decided is None or not isinstance(statement, ast.If):
                return None
            chosen = statement.body if decided else statement.orelse
            if any(isinstance(node, ast.Return) for each in chosen for node in enclosed(each)):
                return self.end_of(chosen, scope, depth)
        return None

    def _attribute(self, expression: ast.Attribute, scope: Scope, depth: int) -> Node:
        span = self.places.span(expression)
        if expression.attr == "parent":
            above = self._path(expression, scope, depth)
            if above is not None:
                return above
        name = dotted(expression)
        if name is None:
            return _unknown(span)
        root, _, rest = name.partition(".")
        qualified = scope.imported(root)
        if qualified:
            return self._imported(expression, f"{qualified}.{rest}", scope, depth)
        found = attribute(expression, scope, self)
        if found is not None:
            return self._of_object(found, span, name, depth)
        own = self.own(rest, scope) if root == "self" else None
        if own is not None:
            return self._seen(self.node(*own, depth + 1), span, name, alone=False)
        if "." not in rest and not {name, f"{root}.*"} & self.scopes.changed:
            return self._option(root, rest, span, scope, depth)
        return _unknown(span)

    def _option(self, root: str, rest: str, span: Span, scope: Scope, depth: int) -> Node:
        """``root.rest`` where ``root`` is what a parser of the command line returned."""
        default = self._setting(root, rest, scope)
        if default is not None:
            name = f"{root}.{rest}"
            node = self._reached(default, self.scopes.module, span, name, depth, setting=True)
            is_switch = isinstance(default, Switch)
            return _locked(node, f"{name} is a switch of the command line") if is_switch else node
        parsed = self._parsed_elsewhere(root, scope, 0)
        if parsed is not None and rest in parsed.options:
            node = parsed.node(parsed.options[rest], parsed.scopes.module, depth + 1)
            there = from_elsewhere(node, span, parsed.places.source.path)
            return _of_option(_or_none(there), rest)
        if self.settings.get(root, root) not in (root, *self.scopes.classes):
            return _of_option(_unknown(span), rest)  # by the default of a library's class
        return _unknown(span)

    def own(self, name: str, scope: Scope) -> tuple[ast.expr, Scope] | None:
        """What the one statement of a class says that gives its objects an attribute."""
        around: Scope | None = scope
        while around is not None and not isinstance(around.node, ast.ClassDef):
            around = around.parent
        if around is None or not isinstance(around.node, ast.ClassDef):
            return None
        found = [
            (node.value, self.scopes.of_node[id(method)])
            for node, method in self.tree.stores_of(around.node).get(name, ())
            if method is not None and isinstance(node, ast.Assign)
        ]
        return found[0] if len(found) == 1 else None

    def _of_object(self, found: AttributeValue, span: Span, name: str, depth: int) -> Node:
        """What an attribute of an object of the project is, from where it is asked for."""
        node = found.home.node(found.value, found.scope, depth + 1)
        if found.home is not self:
            node = from_elsewhere(node, span, found.home.places.source.path)
        elif found.may_differ:
            node = _locked(_seen_from(node, span), f"{name} may come from the environment")
        else:
            node = self._seen(node, span, name, alone=self.scopes.reads[name] <= 1)
        if not found.may_differ or not isinstance(node, Scalar):
            return node
        return PythonScalar(
            node.span,
            node.value,
            node.plain,
            node.via,
            node.locked,
            may_differ=True,
            option=option_of(node),
        )

    # -- other modules ----------------------------------------------------------------

    def elsewhere(self, name: str, scope: Scope) -> tuple[Evaluator, ast.expr] | None:
        """Who knows an imported name, and what it is called there, where a module of the project
        has it."""
        qualified = scope.imported(name)
        found = qualified and self.modules.holding(qualified, self.places.source.path)
        if not found:
            return None
        module, inner = found
        return self._reader_of(module), _name_of(inner)

    def _reader_of(self, module: Module) -> Evaluator:
        path = module.source.path
        if path not in self.known:
            places = NodeSpans(module.source)
            self.known[path] = Evaluator(places, module.tree, self.modules, self.known, self.files)
        return self.known[path]

    def _imported(self, expression: ast.expr, qualified: str, scope: Scope, depth: int) -> Node:
        """What an imported name stands for: itself where a library has it, its value where a module
        of the project gives it one."""
        span = self.places.span(expression)
        name = dotted(expression) or ""
        found = self.elsewhere(name, scope)
        if found is None:
            return Scalar(span, Name(qualified))
        holder = name.rpartition(".")[0]
        if {name, holder, f"{holder}.*"} & self.scopes.changed:
            return _unknown(span)
        home, there = found
        node = home.node(there, home.scopes.module, depth + 1)
        if isinstance(node, Scalar) and isinstance(node.value, Name):
            return Scalar(span, Name(qualified))
        return from_elsewhere(node, span, home.places.source.path)

    # -- parts, and what names lead to ------------------------------------------------

    def _subscript(self, expression: ast.Subscript, scope: Scope, depth: int) -> Node:
        """``CONFIG["key"]`` of a dict that nothing changes, ``path.parents[1]``."""
        above = self._path(expression, scope, depth)
        if above is not None:
            return above
        span = self.places.span(expression)
        variable = variable_taken(expression, scope)
        if variable is not None:
            is_set = not is_set_by_launchers(variable) and self.files.sets(variable)
            return self._as_set(variable, span) if is_set else _unknown(span)
        name = dotted(expression.value)
        key = self.value(expression.slice, scope, depth + 1)
        if name is None or not isinstance(key, str) or name in self.scopes.changed:
            return _unknown(span)
        found = scope.find(name)
        if found is None or len(found[1]) != 1:
            return _unknown(span)
        owner, (binding,) = found
        if binding.value is None:
            return _unknown(span)
        holder = self.node(binding.value, owner, depth + 1)
        entry = holder.entries.get(key) if isinstance(holder, Mapping) else None
        if entry is None or binding.kind != "value":
            return _unknown(span)
        reads = self.scopes.reads
        by_key = reads[name] == reads[f"{name}[]"] and reads[f"{name}[{key!r}]"] == 1
        return self._seen(entry.value, span, name, alone=by_key)

    def _reached(
        self, value: ast.expr, scope: Scope, span: Span, name: str, depth: int, *, setting: bool
    ) -> Node:
        """A value that a name stands for, edited at its definition if nothing else reads it.

        A setting (an option's default) is never replaced where it is used: that would cut
        the option off.
        """
        node = self.node(value, scope, depth + 1)
        alone = self.scopes.reads[name] <= 1
        if setting:
            option = name.rpartition(".")[2]
            seen = _of_option(_or_none(_seen_from(node, span)), option)
            return seen if alone else _locked(seen, _SHARED.format(name))
        return self._seen(node, span, name, alone=alone)

    def _seen(self, node: Node, span: Span, name: str, *, alone: bool) -> Node:
        """A definition's node from where its name stands: one reader edits the definition,
        of several readers each edits its own place."""
        if alone:
            return _seen_from(node, span)
        if isinstance(node, Scalar):
            if _is_unsettled(node) or node.value is UNKNOWN or isinstance(node.value, Call):
                return replace(node, via=span, locked=node.locked or _SHARED.format(name))
            return Scalar(span, node.value)
        return _locked(node, _SHARED.format(name))

    def _setting(self, holder: str, attribute: str, scope: Scope) -> ast.expr | None:
        """The default of ``args.x`` or ``script_args.x``."""
        found = scope.find(holder)
        if found is None:
            return None
        is_parsed = are_parsed(found[1], self.tree)
        if len(found[1]) != 1 and not is_parsed:
            return None
        binding = found[1][0]
        cls = self._settings_class(holder, binding)
        if cls is not None:
            return field_default(self.scopes.classes.get(cls), attribute)
        if is_parsed:
            return self.options.get(attribute)
        return None

    def _parsed_elsewhere(self, holder: str, scope: Scope, depth: int) -> Evaluator | None:
        """Who declares the options of ``args``, where a function of another module parses them:
        ``args = get_args()``."""
        found = scope.find(holder)
        if found is None or len(found[1]) != 1 or depth > _DEEPEST:
            return None
        binding = found[1][0]
        value, around = binding.value, found[0]
        if binding.kind == "parameter":
            given = self.given.get((id(found[0].node), holder), [])
            value, around = given[0] if len(given) == 1 else (None, scope)
            if isinstance(value, ast.Name):
                return self._parsed_elsewhere(value.id, around, depth + 1)
        called = dotted(value.func) if isinstance(value, ast.Call) else None
        there = self.elsewhere(called, around) if called else None
        if there is None:
            return None
        home, name = there
        parses = (
            isinstance(call.func, ast.Attribute) and call.func.attr in PARSES_ARGUMENTS
            for function in home.tree.functions
            if function.name == dotted(name)
            for call in ast.walk(function)
            if isinstance(call, ast.Call)
        )
        return home if any(parses) else None

    def _settings_class(self, holder: str, binding: Binding) -> str | None:
        annotation = binding.annotation
        if annotation is not None:
            name = dotted(annotation)
            if name in self.scopes.classes:
                return name
        cls = self.settings.get(holder)
        return cls if cls in self.scopes.classes else None


def _assigned_in_branches(scope: ast.AST) -> Iterator[tuple[int, tuple[ast.If, bool]]]:
    """The values, by ``id``, that the branches of an ``if`` assign, and whether its test holds there."""
    for branch in ast.walk(scope):
        if isinstance(branch, ast.If):
            for body, holds in ((branch.body, True), (branch.orelse, False)):
                yield from (
                    (id(each.value), (branch, holds))
                    for each in body
                    if isinstance(each, ast.Assign)
                )


def _arguments_given(tree: Tree) -> dict[tuple[int, str], list[tuple[ast.expr, Scope]]]:
    """What the functions of the file get for their parameters, with the scope of each call that
    gives it; by ``id`` of the function and parameter. Of a call that leaves it out it is the default;
    a parameter that has none, or that cannot be told, is left out."""
    given: dict[tuple[int, str], list[tuple[ast.expr, Scope]]] = {}
    made = {
        cls.name: function
        for cls in tree.classes
        for function in cls.body
        if isinstance(function, ast.FunctionDef) and function.name == "__init__"
    }
    for name, function in (*tree.scopes.functions.items(), *made.items()):
        calls = [call for call in tree.calls_to(name) if isinstance(call.func, ast.Name)]
        places = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
        places = places[1:] if name in made else places
        defaults = defaults_of(function)
        for parameter in (*places, *(a.arg for a in function.args.kwonlyargs)):
            found = [
                (value, tree.scope_of[id(call)])
                for call in calls
                if (value := _argument_of(call, parameter, places)) is not None
            ]
            default = None if any(map(_is_open, calls)) else defaults.get(parameter)
            if default is not None:
                found += [(default, tree.scopes.module)] * (len(calls) - len(found))
            if found and len(found) == len(calls):
                given[id(function), parameter] = found
    return given


def _parameters_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    given = function.args
    return {each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)}


def _asks_if_taken(test: ast.expr, key: str) -> bool:
    """``key in inspect.signature(Config).parameters``, or in another collection of names."""
    match test:
        case ast.Compare(left=ast.Name(id=asked), ops=[ast.In()]):
            return asked == key
        case ast.Call(func=ast.Name(id="hasattr"), args=[_, ast.Name(id=asked)]):
            return asked == key
    return False


def _asks_if_set(test: ast.expr, value: str) -> bool:
    match test:
        case ast.Compare(
            left=ast.Name(id=asked), ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]
        ):
            return asked == value
    return False


def defaults_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, ast.expr]:
    """The parameters of a function that have defaults."""
    places = [*function.args.posonlyargs, *function.args.args]
    last = function.args.defaults
    found = {a.arg: value for a, value in zip(places[len(places) - len(last) :], last, strict=True)}
    named = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    return found | {a.arg: value for a, value in named if value is not None}


def _is_open(call: ast.Call) -> bool:
    """Whether a call unpacks something of which nobody tells what it gives."""
    return any(isinstance(a, ast.Starred) for a in call.args) or any(
        k.arg is None for k in call.keywords
    )


def _argument_of(call: ast.Call, parameter: str, places: list[str]) -> ast.expr | None:
    if _is_open(call):
        return None
    named = next((k.value for k in call.keywords if k.arg == parameter), None)
    if named is not None or parameter not in places:
        return named
    number = places.index(parameter)
    return call.args[number] if number < len(call.args) else None


_READERS: Final[dict[type[ast.expr], Callable[[Evaluator, Any, Scope, int], Node]]] = {
    ast.Dict: Evaluator._dict,
    ast.DictComp: Evaluator._chosen,
    ast.Call: Evaluator._call,
    ast.Name: Evaluator._name,
    ast.Attribute: Evaluator._attribute,
    ast.Subscript: Evaluator._subscript,
    ast.BinOp: Evaluator._arithmetic,
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


def _compared(sign: ast.cmpop, left: Any, right: Any) -> bool | None:
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


def _joined(operation: ast.boolop, parts: list[Any]) -> Any:
    """What ``and`` or ``or`` makes of parts that are true or false; ``UNKNOWN`` where it hangs on another."""
    ends = isinstance(operation, ast.Or)
    if any(part is ends for part in parts):
        return ends
    return (
        (not ends)
        if all(part is not ends and isinstance(part, bool) for part in parts)
        else UNKNOWN
    )


def _as_choice(comparison: ast.Compare) -> ast.IfExp:
    """``args.dtype == "bf16"`` as one of two values, between which it decides."""
    sides = (ast.copy_location(ast.Constant(each), comparison) for each in (True, False))
    return ast.copy_location(ast.IfExp(comparison, *sides), comparison)


def _copied(call: ast.Call, scope: Scope) -> ast.expr | None:
    """What ``settings.copy()``, ``dict(settings)`` or ``copy.deepcopy(settings)`` copies."""
    function, given = call.func, call.args
    if call.keywords:
        return None
    if isinstance(function, ast.Attribute) and function.attr == "copy" and not given:
        return function.value
    name = scope.resolved(dotted(function) or "")
    return given[0] if name in ("dict", "copy.copy", "copy.deepcopy") and len(given) == 1 else None


def _is_of_card(call: ast.Call, scope: Scope) -> bool:
    name = dotted(call.func)
    return name is not None and scope.imported(name) in _OF_CARD


def _asks_card(expression: ast.expr, scope: Scope) -> bool:
    calls = (each for each in ast.walk(expression) if isinstance(each, ast.Call))
    return any(_is_of_card(call, scope) for call in calls)


def _is_unsettled(node: Scalar) -> bool:
    """Whether an option or a config file has a say in a value."""
    is_decided = isinstance(node, PythonScalar) and node.either is not None
    return is_decided or is_of_options(node) or filed_of(node) is not None


def _has_node(expression: ast.expr) -> bool:
    return isinstance(expression, (ast.Name, ast.Attribute, ast.Subscript, ast.Call))


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def _unknown(span: Span) -> Scalar:
    return Scalar(span, UNKNOWN, locked="its value is only known when the program runs")


def _open(node: Node) -> Node:
    """A value in whose place a variable of the environment may put another."""
    return replace(node, may_differ=True) if isinstance(node, Scalar) else node


def _may_differ(node: Node) -> bool:
    return isinstance(node, Scalar) and node.may_differ


def _seen_from(node: Node, span: Span) -> Node:
    return replace(node, via=span) if isinstance(node, Scalar) else node


def _or_none(node: Node) -> Node:
    """An option whose default is an empty text has none."""
    is_empty = isinstance(node, Scalar) and node.value == ""
    return replace(node, value=None) if is_empty else node


def _of_option(node: Node, option: str) -> Node:
    if not isinstance(node, Scalar) or filed_of(node) is not None:
        return node
    return PythonScalar(node.span, node.value, node.plain, node.via, node.locked, option=option)


def _locked(node: Node, reason: str) -> Node:
    if isinstance(node, Sequence):
        return replace(node, items=tuple(_locked(i, reason) for i in node.items), locked=reason)
    if isinstance(node, Mapping):
        entries = {
            key: replace(entry, value=_locked(entry.value, reason))
            for key, entry in node.entries.items()
        }
        return replace(node, entries=entries, locked=reason)
    return replace(node, locked=node.locked or reason)


def _name_of(dotted_name: str) -> ast.expr:
    """A name as an expression that stands nowhere: at the head of whatever file it is looked up in."""
    name = ast.parse(dotted_name, mode="eval").body
    for node in ast.walk(name):
        if isinstance(node, ast.expr):
            node.lineno = node.end_lineno = 1
            node.col_offset = node.end_col_offset = 0
    return name


def from_elsewhere(node: Node, span: Span, path: str) -> Node:
    """A value of another file, from where a name stands for it here."""
    reason = f"it is written in {path}"
    if isinstance(node, Sequence):
        items = tuple(from_elsewhere(item, span, path) for item in node.items)
        return Sequence(span, items, reason)
    if isinstance(node, Mapping):
        entries = [
            PythonEntry(key, span, from_elsewhere(entry.value, span, path), span, locked=reason)
            for key, entry in node.entries.items()
        ]
        return replace(_mapping(entries, span, "dict", node.open_ended), locked=reason)
    if node.value is UNKNOWN or isinstance(node.value, Call):
        return _unknown(span)
    return replace(node, span=span, via=None, locked=reason)


def _mapping(entries: list[PythonEntry], span: Span, kind: str, open_ended: bool) -> PythonMapping:
    wins: dict[str, Entry] = {}
    lost: list[Entry] = []
    for entry in entries:
        earlier = wins.pop(entry.key, None)
        if earlier is not None:
            lost.append(earlier)
        wins[entry.key] = entry
    return PythonMapping(span, wins, tuple(lost), None, open_ended, kind=kind)


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
