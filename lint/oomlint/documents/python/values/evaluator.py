"""Values of Python expressions that are known without running the program."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from oomlint.documents.base import UNKNOWN, Call, Name, Node, Scalar, Sequence
from oomlint.documents.python.configs.files import ConfigFiles
from oomlint.documents.python.configs.loaded import MAY_LOAD
from oomlint.documents.python.configs.paths import At
from oomlint.documents.python.modules import Module, Modules
from oomlint.documents.python.nodes import (
    Filed,
    PythonEntry,
    PythonMapping,
    filed_of,
    is_of_options,
)
from oomlint.documents.python.parsers import (
    argparse_defaults,
    dataclass_variables,
    fire_functions,
    scopes_of_defaults,
)
from oomlint.documents.python.plain_values import (
    arithmetic,
    comparison_of,
    is_plain,
    joined_tests,
    plain_value,
)
from oomlint.documents.python.scopes import Scope, enclosed
from oomlint.documents.python.tree import Tree
from oomlint.documents.python.values.attributes import attribute_of, item_of
from oomlint.documents.python.values.called import BY_CARD, asks_card, calculation, call_of
from oomlint.documents.python.values.choices import as_choice, conditional, first_set, is_denial
from oomlint.documents.python.values.dicts import chosen_of, dict_of, unpacked_of
from oomlint.documents.python.values.limits import BY_FILE, CHOICE, DEEPEST
from oomlint.documents.python.values.named import Given, named_value
from oomlint.documents.python.values.parameters import arguments_given
from oomlint.documents.python.values.seen_nodes import left_open, mapping_of, name_of, unknown_at
from oomlint.documents.text import Source, Span


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
        self._scopes_of_defaults = scopes_of_defaults(tree)
        self.settings = dataclass_variables(tree)
        self.fire = fire_functions(tree)
        self.given = arguments_given(tree)
        self.handed_on: dict[int, Given] = {}
        """By ``id`` of what is in ``given``."""
        self.handed: dict[tuple[int, str], list[tuple[ast.expr, Scope, Evaluator]]] = {}
        """What scripts of other files give the parameters of functions here: see :mod:`oomlint.documents.python.handed`."""
        self.by_programs: dict[tuple[int, str], list[tuple[ast.expr, Scope, Evaluator]]] = {}
        """What a program of another file that calls functions and classes here gives their parameters: see
        :mod:`oomlint.documents.python.callers`."""
        self.entered_by: dict[tuple[int, str], tuple[ast.expr, Scope, Evaluator]] = {}
        """What the call that is followed gives the parameters of functions here: see :mod:`.entered`."""
        self.handed_to: dict[str, tuple[tuple[Evaluator, str], ...]] = {}
        """By a name of this file: what functions call what they are given under it."""
        self.branches: dict[int, dict[int, tuple[ast.If, bool]]] = {}
        """By ``id`` of what opens a scope: see :mod:`.named`."""
        self.chosen_by_files: dict[int, tuple[tuple[int, bool], ast.expr | None, int]] = {}
        """By ``id`` of the bindings of a name: as of which state, which value, and how often a file was asked."""
        self.by_ranks_alone: dict[int, frozenset[int]] = {}
        """By ``id`` of what opens a scope: see :mod:`.choices`."""

    # -- nodes ------------------------------------------------------------------------

    def node(self, expression: ast.expr, scope: Scope, depth: int = 0) -> Node:
        """The expression as a scalar, sequence or mapping; ``UNKNOWN`` where it is not plain."""
        if not _has_node(expression):
            return self._asked(expression, scope, depth)
        ask = partial(self._asked, expression, scope, depth)
        return self.files.worked_out(expression, scope, depth, ask)

    def note_call(self, expression: ast.Call, call: Call) -> None:
        """A call that was read: what refers to it from here on is that."""
        self.calls[id(expression)] = call
        self.files.forget_values()

    def _asked(self, expression: ast.expr, scope: Scope, depth: int) -> Node:
        before, asked = self.files.count, self.files.left_open
        found = self._from_file(expression, scope) if self.may_load else None
        if found is not None:
            return found
        found = self._node(expression, scope, depth)
        if self.files.left_open != asked:
            found = left_open(found)
        if self.files.count == before or not isinstance(found, Scalar) or found.locked:
            return found
        return found if filed_of(found) else replace(found, locked=BY_FILE)

    def _from_file(self, expression: ast.expr, scope: Scope) -> Node | None:
        """What the script takes there from a config file that it loads."""
        if not isinstance(expression, (ast.Attribute, ast.Subscript, ast.Call, ast.Name)):
            return None
        if id(expression) in self.calls:
            return None
        return self.files.node(expression, At(scope, self), self.places.span(expression))

    def _node(self, expression: ast.expr, scope: Scope, depth: int) -> Node:
        span = self.places.span(expression)
        if depth > DEEPEST:
            return unknown_at(span)
        if isinstance(expression, (ast.List, ast.Tuple, ast.Set)):
            if any(isinstance(element, ast.Starred) for element in expression.elts):
                return unknown_at(span)
            items = tuple(self.node(element, scope, depth + 1) for element in expression.elts)
            return Sequence(span, items)
        read = _READERS.get(type(expression))
        if read is not None:
            return read(self, expression, scope, depth)
        if isinstance(expression, ast.Compare) or is_denial(expression):
            expression, depth = as_choice(expression), depth + CHOICE
        value = self.value(expression, scope, depth)
        if isinstance(expression, ast.BoolOp) and isinstance(expression.op, ast.Or):
            return first_set(self, expression, value, scope, depth)
        chosen = None
        if isinstance(expression, ast.IfExp):
            chosen = conditional(self, expression, value, scope, depth)
        if chosen is not None:
            return chosen
        if value is UNKNOWN:
            return unknown_at(span)
        return Scalar(span, value, locked=BY_CARD if asks_card(expression, scope) else None)

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
                unpacked = unpacked_of(self, keyword.value, scope, 0)
                entries += unpacked.entries.values()  # type: ignore[arg-type]
                open_ended = open_ended or unpacked.open_ended
                filed = filed_of(unpacked)
                sections += () if filed is None else (filed,)
                continue
            key = Span(place.start, place.start + len(keyword.arg))
            node = self.node(keyword.value, scope)
            entries.append(PythonEntry(keyword.arg, key, node, place, owner=span))
        return replace(mapping_of(entries, span, "call", open_ended), sections=sections)

    # -- values -----------------------------------------------------------------------

    def value(self, expression: ast.expr, scope: Scope, depth: int = 0) -> Any:
        """The plain value of an expression, or ``UNKNOWN``."""
        if depth > DEEPEST:
            return UNKNOWN
        if isinstance(expression, ast.Constant):
            return expression.value if is_plain(expression.value) else UNKNOWN
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
            return joined_tests(expression.op, parts)
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
        if depth > DEEPEST:
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
            return comparison_of(test.ops[0], left, right)
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

    # -- names ------------------------------------------------------------------------

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

    def scope_of_default(self, default: ast.expr) -> Scope:
        """Where the default of an option or of a field is written."""
        return self._scopes_of_defaults.get(id(default), self.scopes.module)

    # -- other modules ----------------------------------------------------------------

    def elsewhere(self, name: str, scope: Scope) -> tuple[Evaluator, ast.expr] | None:
        """Who knows an imported name, and what it is called there, where a module of the project
        has it."""
        qualified = scope.imported(name)
        found = qualified and self.modules.holding(qualified, self.places.source.path)
        if not found:
            return None
        module, inner = found
        return self.reader_of(module), name_of(inner)

    def reader_of(self, module: Module) -> Evaluator:
        """Who evaluates another module of the project."""
        path = module.source.path
        if path not in self.known:
            places = NodeSpans(module.source)
            self.known[path] = Evaluator(places, module.tree, self.modules, self.known, self.files)
        return self.known[path]

    # -- parts, and what names lead to ------------------------------------------------


_READERS: Final[dict[type[ast.expr], Callable[[Evaluator, Any, Scope, int], Node]]] = {
    ast.Dict: dict_of,
    ast.DictComp: chosen_of,
    ast.Call: call_of,
    ast.Name: named_value,
    ast.Attribute: attribute_of,
    ast.Subscript: item_of,
    ast.BinOp: calculation,
}


def _has_node(expression: ast.expr) -> bool:
    return isinstance(expression, (ast.Name, ast.Attribute, ast.Subscript, ast.Call))
