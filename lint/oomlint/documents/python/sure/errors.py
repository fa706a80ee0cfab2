"""Errors that a script is sure to raise before it trains: names that nobody gives a value, and its own ``raise``."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Sequence
from functools import cached_property

from msgspec import Struct

from oomlint.documents.python.scopes import dotted
from oomlint.documents.python.sure.straight_line import Evaluated
from oomlint.documents.python.tree import Tree
from oomlint.documents.python.walking import walk

# What Python, IPython and notebooks of Colab, Kaggle and Databricks have without an import
# (CPython 3.14 "import-related module attributes"; IPython 9 "Built-in magic commands", "Output caching";
# docs.databricks.com/dev-tools/databricks-utils, 2026-11-29).
_GIVEN = frozenset(dir(builtins)) | frozenset(
    {
        "__file__", "__path__", "__annotations__", "__builtins__", "__conditional_annotations__", "__vsc_ipynb_file__",
        "get_ipython", "display", "In", "Out", "_", "__", "___", "exit", "quit", "ipython",
        "spark", "sc", "sqlContext", "dbutils", "displayHTML", "getArgument", "table", "sql",
        "__class__", "WindowsError", "unicode", "reveal_type",
    }
)  # fmt: skip
# By these, names come from where no reader sees them.
_BY_OTHER_WAYS = re.compile(
    r"(?<![.\w])(?:exec|globals|locals|vars|eval|setattr\(\s*builtins)\b|__builtins__|__dict__|#\s*MAGIC\s+%run"
)
_NUMBERED = re.compile(r"_i*\d*")


class SureError(Struct, frozen=True, eq=False):
    """An error, where it arises, and why in words; ``name`` is the one without a value."""

    node: ast.Name | ast.Raise
    why: str
    name: str = ""


def sure_errors(
    tree: Tree, text: str, evaluated: Sequence[Evaluated], *, is_notebook: bool
) -> Iterator[SureError]:
    """The first of the errors: what comes behind it is not reached. Of a notebook, whose cells are all that there is of it and
    may run in another order, a name counts that no cell gives a value, where something is made of it that is read again:
    whoever runs the cells one by one can leave out others. A script that lacks a name is an excerpt more often than a
    program (of 1,424 programs in 96 public repositories one reads a name on its way that nothing gives a value); one that
    reads a name ahead of all that give it a value is wrong as it stands."""
    is_closed = not _BY_OTHER_WAYS.search(text) and not _takes_all(tree)
    elsewhere = _bound_in_patterns(tree) if is_closed else frozenset()
    names = _Names(tree, elsewhere, is_notebook)
    for each in evaluated:
        match each.node:
            case ast.Raise(exc=error):
                yield SureError(each.node, f"it raises {_raised(error)} on its way to training")
                return
            case ast.Name(id=name) if is_closed:
                why = names.why_without_value(each)
                if why:
                    yield SureError(each.node, why, name)
                    return


class _Names:
    """Tells which names of a file have no value when they are read."""

    def __init__(self, tree: Tree, elsewhere: frozenset[str], is_notebook: bool) -> None:
        self._tree = tree
        self._given = elsewhere | _GIVEN
        self._is_notebook = is_notebook

    def why_without_value(self, each: Evaluated) -> str:
        """Why the reading of a name fails, in words; empty where it has a value, or may have one."""
        assert isinstance(each.node, ast.Name)
        name, found = each.node.id, each.scope.find(each.node.id)
        if name in self._given or _NUMBERED.fullmatch(name):
            return ""
        if found is None:
            if not self._is_notebook or not _is_needed(each.statement, self._tree):
                return ""
            return f"nothing gives {name} a value, which it reads before it trains"
        if self._is_notebook or (found[0] is not each.scope and found[0].parent is not None):
            return ""
        # What a function finds at the module's level is there when the statement runs that leads to it.
        is_of_module = found[0].parent is None
        reads_at = each.statement.end_lineno if is_of_module else each.node.end_lineno
        first = self._first_bound.get(name)
        if first is None or reads_at is None or first <= reads_at:
            return ""
        return f"{name} has no value yet where it is read, ahead of line {first}"

    @cached_property
    def _first_bound(self) -> dict[str, int]:
        """The first line on which anything binds a name, in whatever scope."""
        found: dict[str, int] = {}
        for node in self._tree.of_kind(ast.Name, *_BINDING):
            for name in _binds(node):
                line = getattr(node, "lineno", 0)
                found[name] = min(line, found.get(name, line))
        return found


_BINDING: tuple[type[ast.AST], ...] = (
    ast.arg, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar,
    ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal,
)  # fmt: skip


def _binds(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case (
            ast.ExceptHandler(name=str(name))
            | ast.MatchAs(name=str(name))
            | ast.MatchStar(name=str(name))
        ):
            yield name
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            yield from ((each.asname or each.name).partition(".")[0] for each in names)
        case ast.Global(names=bound) | ast.Nonlocal(names=bound):
            yield from bound


def _is_needed(statement: ast.stmt, tree: Tree) -> bool:
    """Whether a statement gives a value to a name that is read."""
    targets = statement.targets if isinstance(statement, ast.Assign) else ()
    names = (node.id for each in targets for node in walk(each) if isinstance(node, ast.Name))
    return any(tree.scopes.reads[name] for name in names)


def _takes_all(tree: Tree) -> bool:
    """``from config import *``."""
    return any(
        alias.name == "*"
        for node in tree.imports
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    )


def _bound_in_patterns(tree: Tree) -> frozenset[str]:
    """What else binds names: ``:=`` in comprehensions, the rest of a mapping in a pattern, type aliases."""
    found: set[str] = set()
    for node in tree.nodes:
        match node:
            case ast.NamedExpr(target=ast.Name(id=name)) | ast.MatchMapping(rest=str(name)):
                found.add(name)
            case _ if type(node).__name__ in ("TypeAlias", "TypeVar", "ParamSpec", "TypeVarTuple"):
                held = getattr(node, "name", "")
                found.add(held.id if isinstance(held, ast.Name) else str(held))
    return frozenset(found)


def _raised(error: ast.expr | None) -> str:
    called = error.func if isinstance(error, ast.Call) else error
    return (dotted(called) if called is not None else None) or "an error"
