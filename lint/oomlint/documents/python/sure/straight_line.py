"""What a script is sure to evaluate before anything may train: module level, and the functions that it calls on its way.

A branch, a loop's body, a ``try`` whose handlers go on and the rest of an expression that may be cut short are passed over, so that whatever
is found here happens in each run of the script.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TypeAlias

from msgspec import Struct, field

from oomlint.documents.python import walking
from oomlint.documents.python.scopes import FunctionNode, Scope, call_name, dotted, settled
from oomlint.documents.python.tree import Tree

Certain: TypeAlias = (
    "ast.Name | ast.Attribute | ast.Subscript | ast.Call | ast.Raise | ast.Import | ast.ImportFrom"
)

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# Their parts are evaluated for some elements, or later.
_LATER = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# contextlib: what is raised in its block is dropped, or what is printed is looked at.
_SUPPRESSES = frozenset({"suppress", "raises"})
_LEAVES = frozenset({"exit", "_exit", "quit"})


class Evaluated(Struct, frozen=True, eq=False):
    """A name, an attribute or an item that is read, a call, an error that is raised or an import, with the scope in which it
    stands, and the statement of the module that leads there."""

    node: Certain
    scope: Scope
    statement: ast.stmt


class _Ended(Exception):
    """What comes behind is not certain, or comes too late."""


class _Walk(Struct, eq=False):
    """One walk along what is sure to be evaluated, and what it has met so far."""

    tree: Tree
    may_train: re.Pattern[str]
    found: list[Evaluated] = field(default_factory=list)
    statement: ast.stmt | None = None
    entered: set[int] = field(default_factory=set)


def straight_line(tree: Tree, may_train: re.Pattern[str]) -> tuple[Evaluated, ...]:
    """What the module is sure to evaluate, in that order, up to the first call that may train by its name."""
    walk = _Walk(tree, may_train)
    with suppress(_Ended):
        _block(tree.root.body, tree.scopes.module, walk)
    return tuple(walk.found)


def _block(body: Sequence[ast.stmt], scope: Scope, walk: _Walk) -> bool:
    """Statements one after the other; whether the last of them is certain, too.

    Raises:
        _Ended: one of them may train, or ends the program.
    """
    for statement in body:
        if scope is walk.tree.scopes.module:
            walk.statement = statement
        handled = _HANDLERS.get(type(statement), _plain)
        if not handled(statement, scope, walk):
            return False
    return True


_Handler: TypeAlias = "Callable[[ast.stmt, Scope, _Walk], bool]"
"""Whether the statement behind it is certain, too."""


def _note(node: Certain, scope: Scope, walk: _Walk) -> None:
    assert walk.statement is not None
    walk.found.append(Evaluated(node, scope, walk.statement))


def _plain(statement: ast.stmt, scope: Scope, walk: _Walk) -> bool:
    for child in walking.children(statement):
        if isinstance(child, ast.expr):
            _expression(child, scope, walk)
    return True


def _annotated(statement: ast.stmt, scope: Scope, walk: _Walk) -> bool:
    assert isinstance(statement, ast.AnnAssign)  # annotations are not evaluated from Python 3.14 on
    if statement.value is not None:
        _expression(statement.value, scope, walk)
    return True


def _imports(statement: ast.stmt, scope: Scope, walk: _Walk) -> bool:
    assert isinstance(statement, (ast.Import, ast.ImportFrom))
    _note(statement, scope, walk)
    return True


def _raises(statement: ast.stmt, scope: Scope, walk: _Walk) -> bool:
    assert isinstance(statement, ast.Raise)
    _plain(statement, scope, walk)
    _note(statement, scope, walk)
    raise _Ended


def _returns(statement: ast.stmt, scope: Scope, walk: _Walk) -> bool:
    _plain(statement, scope, walk)
    return False


def _defines(statement: ast.stmt, scope: Scope, walk: _Walk) -> bool:
    assert isinstance(statement, _DEFINITIONS)
    for decorator in statement.decorator_list:
        _expression(decorator, scope, walk)
    if isinstance(statement, ast.ClassDef):
        for base in statement.bases:
            _expression(base, scope, walk)
    return True


def _branches(statement: ast.stmt, scope: Scope, walk: _Walk) -> bool:
    assert isinstance(statement, ast.If)
    if isinstance(statement.test, ast.Compare) and dotted(statement.test.left) == "__name__":
        _block(statement.body, scope, walk)
        return True
    _expression(statement.test, scope, walk)
    holds = settled(statement.test, scope)
    if holds is not None:
        _block(statement.body if holds else statement.orelse, scope, walk)
        return True
    return _passed_over((*statement.body, *statement.orelse), walk)


def _with(statement: ast.stmt, scope: Scope, walk: _Walk) -> bool:
    assert isinstance(statement, (ast.With, ast.AsyncWith))
    for item in statement.items:
        _expression(item.context_expr, scope, walk)
    calls = (each.context_expr for each in statement.items)
    if any(isinstance(call, ast.Call) and call_name(call) in _SUPPRESSES for call in calls):
        return _passed_over(statement.body, walk)
    _block(statement.body, scope, walk)
    return not _leaves(statement.body)


def _loops(statement: ast.stmt, scope: Scope, walk: _Walk) -> bool:
    assert isinstance(statement, (ast.For, ast.AsyncFor, ast.While))
    first = statement.test if isinstance(statement, ast.While) else statement.iter
    _expression(first, scope, walk)
    return _passed_over((*statement.body, *statement.orelse), walk)


def _tries(statement: ast.stmt, scope: Scope, walk: _Walk) -> bool:
    """What is raised in a block is raised all the same where every handler of it ends the program, or raises again."""
    if not isinstance(statement, ast.Try) or not all(_ends(h.body) for h in statement.handlers):
        return _passed_over((statement,), walk)
    body = (*statement.body, *statement.orelse, *statement.finalbody)
    _block(body, scope, walk)
    return not _leaves(body)


def _ends(body: Sequence[ast.stmt]) -> bool:
    """Whether what handles an error lets it, or another, end the program (``raise``, ``sys.exit(1)``)."""
    *before, last = body
    match last:
        case ast.Raise():
            return not _leaves(before)
        case ast.Expr(value=ast.Call() as call):
            return call_name(call) in _LEAVES and not _leaves(before)
        case _:
            return False


_HANDLERS: dict[type[ast.stmt], _Handler] = {
    ast.AnnAssign: _annotated,
    ast.Import: _imports,
    ast.ImportFrom: _imports,
    ast.Raise: _raises,
    ast.Return: _returns,
    ast.FunctionDef: _defines,
    ast.AsyncFunctionDef: _defines,
    ast.ClassDef: _defines,
    ast.If: _branches,
    ast.With: _with,
    ast.AsyncWith: _with,
    ast.For: _loops,
    ast.AsyncFor: _loops,
    ast.While: _loops,
    ast.Try: _tries,
    getattr(ast, "TryStar", ast.Try): _tries,  # of Python 3.11
    ast.Match: _tries,
}


def _passed_over(body: Sequence[ast.stmt], walk: _Walk) -> bool:
    """Leave out what may or may not run; whether what follows in the same function is certain all the same.

    Raises:
        _Ended: it may train.
    """
    if any(_may_train(statement, walk, set()) for statement in body):
        raise _Ended
    return not _leaves(body)


def _leaves(body: Sequence[ast.stmt]) -> bool:
    """Whether a function may be left in statements of it."""
    return any(
        isinstance(node, (ast.Return, ast.Break, ast.Continue))
        or (isinstance(node, ast.Call) and call_name(node) in _LEAVES)
        for statement in body
        for node in walking.walk(statement)
    )


def _expression(node: ast.expr, scope: Scope, walk: _Walk) -> None:
    """What of an expression is evaluated whatever its parts come to: arguments before the call that gets them."""
    match node:
        case ast.Name():
            _note_read(node, scope, walk)
        case ast.BoolOp(values=[first, *_]) | ast.IfExp(test=first):
            _expression(first, scope, walk)
            _may_end(node, walk)
        case ast.Compare(left=left, comparators=[first, *_]):
            _expression(left, scope, walk)
            _expression(first, scope, walk)
        case ast.Lambda():
            return
        case _ if isinstance(node, _LATER):
            _may_end(node, walk)
        case ast.Call():
            _call(node, scope, walk)
        case _:
            _parts(node, scope, walk)


def _parts(node: ast.expr, scope: Scope, walk: _Walk) -> None:
    for child in walking.children(node):
        if isinstance(child, ast.expr):
            _expression(child, scope, walk)
    if isinstance(node, (ast.Attribute, ast.Subscript)):
        _note_read(node, scope, walk)


def _note_read(node: ast.Name | ast.Attribute | ast.Subscript, scope: Scope, walk: _Walk) -> None:
    if isinstance(node.ctx, ast.Load):
        _note(node, scope, walk)


def _may_end(node: ast.expr, walk: _Walk) -> None:
    if _may_train(node, walk, set()):
        raise _Ended


def _call(call: ast.Call, scope: Scope, walk: _Walk) -> None:
    _expression(call.func, scope, walk)
    for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
        _expression(argument, scope, walk)
    _note(call, scope, walk)
    function = _own(call, walk)
    if function is None:
        if _trains(call, walk) or call_name(call) in _LEAVES:
            raise _Ended
        return
    if id(function) in walk.entered:
        return
    walk.entered.add(id(function))
    if function.decorator_list or _is_generator(function):
        if _may_train(function, walk, set()):
            raise _Ended
        return
    is_whole = _block(function.body, walk.tree.scopes.of_node[id(function)], walk)
    # Behind a function that was left early there may be nothing left to train: ``raise SystemExit(main())``.
    if not is_whole and _may_train(function, walk, set()):
        raise _Ended


def _own(call: ast.Call, walk: _Walk) -> FunctionNode | None:
    """The function of the file that a call runs, if it is one that is defined once."""
    if not isinstance(call.func, ast.Name):
        return None
    bound = walk.tree.scopes.module.bindings.get(call.func.id, [])
    return walk.tree.scopes.functions.get(call.func.id) if len(bound) == 1 else None


def _is_generator(function: FunctionNode) -> bool:
    inner = (ast.Yield, ast.YieldFrom)
    is_async = isinstance(function, ast.AsyncFunctionDef)
    return is_async or any(isinstance(node, inner) for node in walking.walk(function))


def _trains(call: ast.Call, walk: _Walk) -> bool:
    last = call_name(call)
    return last[:1].islower() and bool(walk.may_train.search(last))


def _may_train(node: ast.AST, walk: _Walk, seen: set[int]) -> bool:
    """Whether anything that a node calls, its own functions entered, may train by its name."""
    return any(_trains(call, walk) or _own_may_train(call, walk, seen) for call in _calls_in(node))


def _own_may_train(call: ast.Call, walk: _Walk, seen: set[int]) -> bool:
    function = _own(call, walk)
    if function is None or id(function) in seen:
        return False
    seen.add(id(function))
    return _may_train(function, walk, seen)


def _calls_in(node: ast.AST) -> Iterator[ast.Call]:
    return (each for each in walking.walk(node) if isinstance(each, ast.Call))
