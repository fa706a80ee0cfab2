"""Functions of other files to which a script hands a config that it loads: ``prepare(cfg)``.

What they change in it is no longer what the file says. Nothing else is taken from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomlint.documents.base import Mapping
from oomlint.documents.python.calls import ReachedCall, steps_of
from oomlint.documents.python.configs.paths import At, argument_of, default_of, function_of
from oomlint.documents.python.nodes import Filed
from oomlint.documents.python.scopes import FunctionNode
from oomlint.documents.python.values import Evaluator

_DEEPEST: Final = 3


def note_handed(steps: list[ReachedCall], evaluator: Evaluator) -> None:
    """See what functions of other files are given by a script that loads config files, and what
    they change in these."""
    if not evaluator.may_load:
        return
    reached = (step for step in steps if step.reached)
    entered = [each for step in reached for each in _entered(step, evaluator, 0)]
    evaluator.files.note_changes(entered)


def _entered(
    step: ReachedCall, evaluator: Evaluator, depth: int
) -> Iterator[tuple[FunctionNode, Evaluator]]:
    """The functions of other files that a call hands a config to, the innermost first."""
    if depth >= _DEEPEST or not _gives_config(step, evaluator):
        return  # nor is a file read for it that the script does not need
    called = function_of(step.node, step.scope, evaluator)
    if called is None:
        return
    function, there = called
    if there is evaluator and depth == 0:
        return  # its calls are the script's own
    is_known = _hand(step, function, there, evaluator)
    if is_known or there is evaluator:
        return  # the same calls again, or calls that its caller has with its own
    there.may_load = True
    for each in steps_of(function, there.tree):
        yield from _entered(each, there, depth + 1)
    yield function, there


def _gives_config(step: ReachedCall, evaluator: Evaluator) -> bool:
    given = (*step.node.args, *(keyword.value for keyword in step.node.keywords))
    found = (evaluator.files.held(each, At(step.scope, evaluator)) for each in given)
    return any(isinstance(each, Filed) and isinstance(each.node, Mapping) for each in found)


def _hand(step: ReachedCall, function: FunctionNode, there: Evaluator, caller: Evaluator) -> bool:
    """Note what a call gives the parameters of a function; whether another one did before."""
    parameters = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    is_known = any((id(function), each.arg) in there.handed for each in parameters)
    for each in parameters:
        value, scope, home = argument_of(step.node, function, each.arg), step.scope, caller
        if value is None:
            value, scope, home = default_of(function, each.arg), there.scopes.module, there
        if value is not None:
            there.handed.setdefault((id(function), each.arg), []).append((value, scope, home))
    return is_known
