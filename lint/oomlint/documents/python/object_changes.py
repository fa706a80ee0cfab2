"""What a program changes of an object that holds its settings, wherever it goes by a name of its own.

``config.batch_size = args.batch_size`` after ``config = Config()``; and the same in a function that is given ``config`` and
calls it otherwise.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from oomlint.documents.python.branches import Tests, statements
from oomlint.documents.python.configs.paths import argument_of, function_of
from oomlint.documents.python.scopes import FunctionNode, Scope, dotted

if TYPE_CHECKING:
    from oomlint.documents.python.values import Evaluator

Alias: TypeAlias = "tuple[Evaluator, str]"
"""A name of an object, and the file in which it goes by it."""

_MOST_NAMES: Final = 12
_MOST_CALLS: Final = 4


class Store(Struct, frozen=True, eq=False):
    """A statement that assigns to an attribute of an object."""

    target: ast.Attribute
    value: ast.expr
    home: Evaluator
    scope: Scope
    tests: Tests

    @property
    def asks_for_itself(self) -> bool:
        """``if args.batch: config.batch = args.batch``, or ``if args.batch is not None:``."""
        if len(self.tests) != 1:
            return False
        ((test, holds),) = self.tests
        match test:
            case ast.Compare(left=asked, ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
                pass
            case _:
                asked = test
        return holds and dotted(asked) is not None and dotted(asked) == dotted(self.value)

    @property
    def asks_if_unset(self) -> bool:
        """``if args.model is None: args.model = …``, or ``if not args.model:``."""
        if len(self.tests) != 1:
            return False
        ((test, holds),) = self.tests
        match test:
            case ast.Compare(left=asked, ops=[ast.Is()], comparators=[ast.Constant(value=None)]):
                pass
            case ast.UnaryOp(op=ast.Not(), operand=asked):
                pass
            case _:
                return False
        return holds and dotted(asked) == dotted(self.target)


def marks(name: str, attribute: str) -> frozenset[str]:
    """How the scopes of a file note that an attribute is assigned to, or perhaps is."""
    return frozenset({f"{name}.{attribute}", name, f"{name}.*"})


def everywhere(names: Iterable[Alias]) -> tuple[Alias, ...]:
    """The names of an object, and those that functions have for it which are given it."""
    found: dict[tuple[int, str], Alias] = {}
    todo = list(names)
    while todo and len(found) < _MOST_NAMES:
        home, name = todo.pop()
        if (id(home), name) not in found:
            found[id(home), name] = (home, name)
            todo += handed_to(home, name)
    return tuple(found.values())


def handed_to(home: Evaluator, name: str) -> tuple[Alias, ...]:
    """What the functions of the project call what they are given under a name."""
    if name not in home.handed_to:
        home.handed_to[name] = ()  # what hands itself on is found once
        home.handed_to[name] = tuple(_parameters_given(home, name))
    return home.handed_to[name]


def _parameters_given(home: Evaluator, name: str) -> Iterator[Alias]:
    for call in home.tree.of_kind(ast.Call):
        given = (*call.args, *(keyword.value for keyword in call.keywords))
        if all(dotted(each) != name for each in given):
            continue
        found = function_of(call, home.tree.scope_of[id(call)], home)
        if found is None:
            continue
        function, there = found
        for parameter in _parameters(function):
            said = argument_of(call, function, parameter)
            if said is not None and dotted(said) == name:
                yield there, parameter


def _parameters(function: FunctionNode) -> Iterator[str]:
    given = function.args
    return (each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs))


def stores_in(names: Iterable[Alias], attribute: str) -> list[Store] | None:
    """The statements that assign to an attribute; ``None`` where it may be changed in another way, or in a loop."""
    found: list[Store] = []
    for home, name in names:
        own = f"{name}.{attribute}"
        # The statement that gives an object its attribute (``self.config = config``) changes nothing of what that is.
        whole = {f"{name}.*"} if name.startswith("self.") else {name, f"{name}.*"}
        if whole & home.scopes.changed:
            return None
        if own not in home.scopes.changed:
            continue
        stores = list(_stores_to(home, own))
        written = (each for each in home.tree.of_kind(ast.Attribute) if dotted(each) == own)
        if len(stores) != sum(not isinstance(each.ctx, ast.Load) for each in written):
            return None
        found += stores
    return found


def _stores_to(home: Evaluator, name: str) -> Iterator[Store]:
    for statement in home.tree.assignments:
        target = statement.targets[0]
        if len(statement.targets) != 1 or dotted(target) != name:
            continue
        scope, tests = _place_of(statement, home)
        if scope is not None and isinstance(target, ast.Attribute):
            yield Store(target, statement.value, home, scope, tests)


def _place_of(statement: ast.Assign, home: Evaluator) -> tuple[Scope | None, Tests]:
    """The scope in which a statement stands, and the tests around it; no scope of one in a loop."""
    scopes = home.scopes
    for scope in (scopes.module, *(scopes.of_node[id(each)] for each in home.tree.functions)):
        tests = home.tree.tests_within(scope.node).get(id(statement.value))
        if tests is not None:
            return scope, _beyond_main(tests)
    return None, ()


def _beyond_main(tests: Tests) -> Tests:
    """The tests besides ``__name__ == "__main__"``, which holds for whatever is started."""
    return tuple(each for each in tests if dotted(getattr(each[0], "left", each[0])) != "__name__")


# -- whether it is sure to run ---------------------------------------------------------------------


def runs_before(store: Store, asked: ast.expr, scope: Scope, home: Evaluator) -> bool:
    """Whether a statement, its tests aside, is sure to have run when somebody asks: it stands above in the same scope, in
    the function that made the object, or in one that is called once, whatever is asked for."""
    if store.scope is scope:
        return store.target.lineno < asked.lineno
    holder = dotted(store.target.value) or ""
    made = store.scope.bindings.get(holder.partition(".")[0], [])
    if isinstance(store.scope.node, ast.Module) or any(each.kind == "value" for each in made):
        return True
    return _is_called(store.scope, store.home, (scope, home), 0)


def _is_called(scope: Scope, home: Evaluator, asked: tuple[Scope, Evaluator], depth: int) -> bool:
    function = scope.node
    if scope is asked[0] or isinstance(function, ast.Module):
        return True
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) or depth > _MOST_CALLS:
        return False
    homes = {id(each): each for each in (home, asked[1])}
    calls = [(call, each) for each in homes.values() for call in each.tree.calls_to(function.name)]
    if len(calls) != 1:
        return False
    ((call, caller),) = calls
    around = caller.tree.scope_of[id(call)]
    tests = _tests_around(call, around, caller)
    return tests is not None and not tests and _is_called(around, caller, asked, depth + 1)


def _tests_around(call: ast.Call, scope: Scope, home: Evaluator) -> Tests | None:
    """The tests around the statement that makes a call; ``None`` of one in a loop, or that is tried."""
    for statement, tests in statements(getattr(scope.node, "body", [])):
        if any(each is call for each in home.tree.calls_of.get(id(statement), ())):
            return _beyond_main(tests)
    return None
