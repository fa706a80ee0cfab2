"""What names of a script stand for."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping as MappingABC
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from oomlint.documents.base import UNKNOWN, Call, Name, Node, Scalar
from oomlint.documents.python.object_changes import everywhere, stores_in
from oomlint.documents.python.plain_values import plain_value
from oomlint.documents.python.scopes import Binding, Scope, dotted
from oomlint.documents.python.values.called import part_returned
from oomlint.documents.python.values.choices import are_of_ranks, by_ranks
from oomlint.documents.python.values.dicts import keywords_of
from oomlint.documents.python.values.entered import by_caller
from oomlint.documents.python.values.limits import BY_FILE, CHOICE, DEEPEST, GIVEN, SHARED
from oomlint.documents.python.values.seen_nodes import (
    from_elsewhere,
    is_unsettled,
    locked_by,
    of_option,
    or_none,
    seen_from,
    unknown_at,
)
from oomlint.documents.python.walking import walk
from oomlint.documents.text import Span

if TYPE_CHECKING:
    from oomlint.documents.python.values.evaluator import Evaluator


def named_value(home: Evaluator, expression: ast.Name, scope: Scope, depth: int) -> Node:
    """What a name stands for where it is asked for."""
    span = home.places.span(expression)
    if expression.id == "__file__":
        return Scalar(span, home.places.source.path)
    owner, bindings = scope.find(expression.id) or (scope, [])
    if len(bindings) != 1:
        chosen = _of_several(home, expression, owner, bindings, depth)
        return unknown_at(span) if chosen is None else chosen
    (binding,) = bindings
    if binding.kind == "import":
        return imported(home, expression, binding.qualified, scope, depth)
    if binding.kind == "definition":
        return Scalar(span, Name(expression.id))
    if binding.kind == "keywords":
        return keywords_of(home, expression, owner, depth)
    if binding.part_of is not None:
        return part_returned(home, expression, *binding.part_of, depth)
    return _bound(home, expression, owner, binding, depth)


def _of_several(
    home: Evaluator, expression: ast.Name, owner: Scope, bindings: list[Binding], depth: int
) -> Node | None:
    """A name that is given several values, of which the number of ranks, config files or a test choose one."""
    if len(bindings) == 2 and are_of_ranks(home, bindings, owner):
        one, several = (b.value for b in bindings)
        assert one is not None
        assert several is not None
        return by_ranks(home, expression, several, one, owner, depth)
    if not bindings:
        return None
    chosen = _binding_by_files(home, owner, bindings, depth)
    if expression.id in home.scopes.changed:
        return None
    if chosen is not None:
        return locked_by(home.node(chosen, owner, depth + 1), BY_FILE)
    choice = _of_branches(home, expression, bindings, owner) if len(bindings) > 1 else None
    return None if choice is None else home.node(choice, owner, depth + CHOICE)


def _bound(
    home: Evaluator, expression: ast.Name, owner: Scope, binding: Binding, depth: int
) -> Node:
    """A name that is given one value: where it is assigned, by those who call, or as a parameter's default."""
    span = home.places.span(expression)
    said = by_caller(home, expression, owner, depth)
    if said is not None:
        return said
    given = home.given.get((id(owner.node), expression.id))
    if binding.kind == "parameter" and given is not None:
        return _given(home, given, span, depth)
    default_counts = binding.kind == "parameter" and owner.node in home.fire
    if binding.value is None or not (binding.kind == "value" or default_counts):
        return unknown_at(span)
    if expression.id in home.scopes.changed:
        return unknown_at(span)
    outer = owner.parent if default_counts and owner.parent is not None else owner
    return reached(home, binding.value, outer, span, expression.id, depth, setting=default_counts)


def _of_branches(
    home: Evaluator, place: ast.Name, bindings: list[Binding], scope: Scope
) -> ast.expr | None:
    """A name that the arms of an ``if`` give a value each, or another than it had, as an expression that says so. Where
    none of the arms gives it one, nobody can ask for it."""
    if id(scope.node) not in home.branches:
        home.branches[id(scope.node)] = dict(_assigned_in_branches(scope.node))
    branches = home.branches[id(scope.node)]
    values = [b.value for b in bindings if b.kind == "value" and b.value is not None]
    if len(values) != len(bindings):
        return None
    had = values.pop(0) if id(values[0]) not in branches else None
    arms = list(_chained(values, branches))
    if len(arms) != len(values) or (had is not None and not _stands_above(had, arms[0][0], scope)):
        return None
    last, test = arms.pop()
    if had is not None and test is not None:
        last = _either(test, last, had, place)
    for value, test in reversed(arms):
        if test is None:  # an ``else``, with another ``if`` behind it
            return None
        last = _either(test, value, last, place)
    return last if isinstance(last, ast.IfExp) else None


def _either(test: ast.expr, one: ast.expr, other: ast.expr, place: ast.expr) -> ast.expr:
    return ast.copy_location(ast.IfExp(test, one, other), place)


def _stands_above(value: ast.expr, other: ast.expr, scope: Scope) -> bool:
    """Whether a scope assigns a value outside of any branch, before another."""
    body = getattr(scope.node, "body", [])
    is_plain = isinstance(body, list) and any(
        isinstance(each, ast.Assign) and each.value is value for each in body
    )
    return is_plain and value.lineno < other.lineno


def _chained(
    values: list[ast.expr], branches: MappingABC[int, tuple[ast.If, bool]]
) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Values that the arms of one ``if`` give, each with its test, ``None`` of the last one's ``else``; as far as they are."""
    above: ast.If | None = None
    for value in values:
        branch, holds = branches.get(id(value), (None, False))
        if branch is None or not (holds if above is None else _is_next(branch, holds, above)):
            return
        yield value, branch.test if holds else None
        above = branch


def _is_next(branch: ast.If, holds: bool, above: ast.If) -> bool:
    """Whether an arm is the one behind another: its ``else``, or the ``elif`` there."""
    return above.orelse == [branch] if holds else above is branch


def _binding_by_files(
    home: Evaluator, owner: Scope, bindings: list[Binding], depth: int
) -> ast.expr | None:
    """The last value that a name is given, where config files decide on all branches in which it is given one;
    worked out once, as what calls give a parameter is."""
    if not home.may_load or depth > DEEPEST:
        return None
    state = (len(home.calls), home.files.suspended)
    known = home.chosen_by_files.get(id(bindings))
    if known is None or known[0] != state:
        home.chosen_by_files[id(bindings)] = (
            state,
            None,
            0,
        )  # what refers to itself is nothing
        before = home.files.count
        with home.files.in_itself():
            chosen = _last_held(home, owner, bindings, depth)
        known = (state, chosen, home.files.count - before)
        home.chosen_by_files[id(bindings)] = known
    else:
        home.files.count += known[2]
    return known[1]


def _last_held(
    home: Evaluator, owner: Scope, bindings: list[Binding], depth: int
) -> ast.expr | None:
    """The last of the values that a name is given under tests that are known to hold; ``None`` where one is not
    known."""
    tests, chosen = home.tree.tests_within(owner.node), None
    for binding in bindings:
        if binding.kind != "value" or id(binding.value) not in tests:
            return None
        around = tests[id(binding.value)]
        held = [(home.decided(test, owner, depth + 1), side) for test, side in around]
        if any(holds is None for holds, _ in held):
            return None
        chosen = binding.value if all(holds is side for holds, side in held) else chosen
    return chosen


def _given(home: Evaluator, given: list[tuple[ast.expr, Scope]], span: Span, depth: int) -> Node:
    """What the calls of a function give its parameter, where all of them say the same."""
    nodes = _all_given(home, given, span, depth)
    values = {repr(plain_value(node)) for node in nodes}
    if len(values) > 1 or not isinstance(nodes[0], Scalar):
        return unknown_at(span) if len(values) > 1 else locked_by(nodes[0], GIVEN)
    return replace(nodes[0], via=span, locked=nodes[0].locked or GIVEN)


def _all_given(
    home: Evaluator, given: list[tuple[ast.expr, Scope]], span: Span, depth: int
) -> list[Node]:
    """What each call gives a parameter, worked out once: functions that hand their parameters on, or
    call themselves, would be asked again for every way that leads there."""
    state = (len(home.calls), home.files.suspended)
    known = home.handed_on.get(id(given))
    if known is not None and known.state == state:
        home.files.count += known.filed
        home.files.left_open += known.left_open
        return known.nodes
    # What refers to itself is nothing.
    home.handed_on[id(given)] = Given(state, [unknown_at(span)], 0)
    before, asked = home.files.count, home.files.left_open
    with home.files.in_itself():
        nodes = [home.node(value, scope, depth + 1) for value, scope in given]
    grown = home.files.count - before, home.files.left_open - asked
    home.handed_on[id(given)] = Given(state, nodes, *grown)
    return nodes


def imported(
    home: Evaluator, expression: ast.expr, qualified: str, scope: Scope, depth: int
) -> Node:
    """What an imported name stands for: itself where a library has it, its value where a module
    of the project gives it one."""
    span = home.places.span(expression)
    name = dotted(expression) or ""
    found = home.elsewhere(name, scope)
    if found is None:
        return Scalar(span, Name(qualified))
    holder, _, attribute = name.rpartition(".")
    if holder and stores_in(everywhere([(home, holder)]), attribute) != []:
        return unknown_at(span)
    if name in home.scopes.changed:
        return unknown_at(span)
    other, there = found
    node = other.node(there, other.scopes.module, depth + 1)
    if isinstance(node, Scalar) and isinstance(node.value, Name):
        return Scalar(span, Name(qualified))
    return from_elsewhere(node, span, other.places.source.path)


def reached(
    home: Evaluator,
    value: ast.expr,
    scope: Scope,
    span: Span,
    name: str,
    depth: int,
    *,
    setting: bool,
) -> Node:
    """A value that a name stands for, edited at its definition if nothing else reads it.

    A setting (an option's default) is never replaced where it is used: that would cut
    the option off.
    """
    node = home.node(value, scope, depth + 1)
    alone = home.scopes.reads[name] <= 1
    if setting:
        option = name.rpartition(".")[2]
        seen = of_option(or_none(seen_from(node, span)), option)
        return seen if alone else locked_by(seen, SHARED.format(name))
    return seen_at(home, node, span, name, alone=alone)


def seen_at(home: Evaluator, node: Node, span: Span, name: str, *, alone: bool) -> Node:
    """A definition's node from where its name stands: one reader edits the definition,
    of several readers each edits its own place."""
    if alone:
        return seen_from(node, span)
    if isinstance(node, Scalar):
        if is_unsettled(node) or node.value is UNKNOWN or isinstance(node.value, Call):
            return replace(node, via=span, locked=node.locked or SHARED.format(name))
        return Scalar(span, node.value)
    return locked_by(node, SHARED.format(name))


class Given(Struct, frozen=True, eq=False):
    """What the calls of a function give a parameter, as of a ``state``: how many calls of the script were
    read by then, and whether files count. ``filed`` values came from config files."""

    state: tuple[int, bool]
    nodes: list[Node]
    filed: int
    left_open: int = 0


def _assigned_in_branches(scope: ast.AST) -> Iterator[tuple[int, tuple[ast.If, bool]]]:
    """The values, by ``id``, that the branches of an ``if`` assign, and whether its test holds there."""
    for branch in walk(scope):
        if isinstance(branch, ast.If):
            for body, holds in ((branch.body, True), (branch.orelse, False)):
                yield from (
                    (id(each.value), (branch, holds))
                    for each in body
                    if isinstance(each, ast.Assign)
                )
