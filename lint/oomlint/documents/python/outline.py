"""What of a script runs only if somebody asks for it: functions, by their lines, and options' defaults; and the lines
that never run, since they are comments."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, Final, TypeGuard

from msgspec import Struct

from oomlint.documents.python.walking import walk

# Python Fire makes a command of every function of a module (fire 0.7 core.py Fire, without a component).
_ASKS_FOR_ANY: Final = "Fire"


class Lines(Struct, frozen=True):
    """Something with a name, and its first and last line."""

    name: str
    first: int
    last: int

    def has(self, line: int) -> bool:
        return self.first <= line <= self.last


class Outline(Struct, frozen=True, eq=False):
    """A script by its lines, counted from 1."""

    comments: frozenset[int] = frozenset()
    """Whole lines, but for those at the head of the file, which say what it is for."""
    imports: frozenset[int] = frozenset()
    functions: tuple[Lines, ...] = ()
    """Of the module itself, and not handed to a decorator: those run only where some code names them."""
    options: tuple[Lines, ...] = ()
    """Declarations of an option or of a field with a text for its default."""

    def function_at(self, line: int) -> Lines | None:
        return next((each for each in self.functions if each.has(line)), None)


def outline(text: str) -> Outline:
    """The outline of a script; an empty one of what does not parse."""
    try:
        root = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return Outline()
    nodes = list(walk(root))
    return Outline(
        comments=frozenset(_comments(text, root, nodes)),
        imports=_imports(nodes),
        functions=() if _asks_for_any(nodes) else tuple(_functions(root)),
        options=tuple(_options(nodes)),
    )


def _imports(nodes: list[ast.AST]) -> frozenset[int]:
    """The lines that do no more than import: ``import sys; main(sys.argv[1])`` does."""
    simple = [node for node in nodes if isinstance(node, ast.stmt) and not hasattr(node, "body")]
    lines: dict[bool, set[int]] = {True: set(), False: set()}
    for node in simple:
        lines[isinstance(node, (ast.Import, ast.ImportFrom))].update(_lines(node))
    return frozenset(lines[True] - lines[False])


def _comments(text: str, root: ast.Module, nodes: list[ast.AST]) -> Iterator[int]:
    statements = [node for node in root.body if not _is_text(node)]
    head = statements[0].lineno if statements else 0
    quoted = {
        line
        for node in nodes
        if isinstance(node, (ast.Constant, ast.JoinedStr)) and node.end_lineno != node.lineno
        for line in _lines(node)
    }
    for number, line in enumerate(text.split("\n"), 1):
        if number > head and line.lstrip().startswith("#") and number not in quoted:
            yield number


def _functions(root: ast.Module) -> Iterator[Lines]:
    for node in root.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not node.decorator_list:
            yield Lines(node.name, node.lineno, node.end_lineno or node.lineno)


def _options(nodes: list[ast.AST]) -> Iterator[Lines]:
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            for each in node.body:
                if (
                    isinstance(each, ast.AnnAssign)
                    and isinstance(each.target, ast.Name)
                    and each.value is not None
                ):
                    yield Lines(each.target.id, each.lineno, each.end_lineno or each.lineno)
        elif isinstance(node, ast.Call) and _name_of(node.func) == "add_argument":
            called = [str(each.value) for each in node.args if isinstance(each, ast.Constant)]
            called += [
                str(each.value.value)
                for each in node.keywords
                if each.arg == "dest" and isinstance(each.value, ast.Constant)
            ]
            if called:
                name = called[-1].lstrip("-").replace("-", "_")
                yield Lines(name, node.lineno, node.end_lineno or node.lineno)


def _asks_for_any(nodes: list[ast.AST]) -> bool:
    return any(isinstance(n, ast.Call) and _name_of(n.func) == _ASKS_FOR_ANY for n in nodes)


def _name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _lines(node: ast.stmt | ast.expr) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# Statements that start nothing unless what they call does.
_GIVES_VALUES: Final = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Pass)
# Modules whose functions set something up, and run none of the project's.
_SETS_UP: Final = frozenset({"logging", "os", "sys", "warnings"})


def only_defines(text: str) -> bool:
    """Whether a program, once started, defines functions and classes and calls none of them: one that others import.
    ``False`` of what does not parse or defines nothing."""
    try:
        root = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return False
    own = {each.name for each in root.body if isinstance(each, _DEFINITIONS)}
    return bool(own) and all(_starts_nothing(each, own) for each in root.body)


def _starts_nothing(statement: ast.stmt, own: set[str]) -> bool:
    if isinstance(statement, (ast.If, ast.Try)):
        blocks = (statement.body, statement.orelse, getattr(statement, "finalbody", []))
        handlers = [each.body for each in getattr(statement, "handlers", [])]
        return all(_starts_nothing(each, own) for body in (*blocks, *handlers) for each in body)
    if isinstance(statement, ast.Expr):
        value = statement.value
        name = value.func if isinstance(value, ast.Call) else value
        while isinstance(name, ast.Attribute):
            name = name.value
        is_setting_up = isinstance(name, ast.Name) and name.id in _SETS_UP
        return isinstance(value, ast.Constant) or is_setting_up
    if isinstance(statement, (*_DEFINITIONS, ast.Import, ast.ImportFrom)):
        return True
    names = {node.func.id for node in walk(statement) if _is_plain_call(node)}
    return isinstance(statement, _GIVES_VALUES) and not names & own


def _is_plain_call(node: ast.AST) -> TypeGuard[Any]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
