"""Calls that a script makes in other files of the project: ``model = load_model(cfg)``.

What a script hands to its trainer is often made by a function of a module beside it. The calls of
such functions are the script's, with what it gives their parameters.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from oomlint.documents.base import UNKNOWN, Call, Document, Scalar
from oomlint.documents.python.calls import Step, matters, reached_by_files, read_calls, steps_of
from oomlint.documents.python.config_paths import argument_of, default_of, function_of
from oomlint.documents.python.scopes import FunctionNode
from oomlint.documents.python.values import Evaluator

if TYPE_CHECKING:
    from collections.abc import Callable

_DEEPEST: Final = 3
# What makes a model with the libraries' own classes; a class of the project's may be anything by any
# name, and a trainer makes a run of its own.
_PARTS: Final = re.compile(
    r"(?:^|\.)(?:(?:Auto|Fast)\w+\.from_(?:pretrained|config)|(?:Lora|AdaLora|BitsAndBytes)Config"
    r"|get_peft_model|prepare_model_for_\w+|gradient_checkpointing_enable)$"
)
_LOADS: Final = re.compile(r"(?:^|\.)from_(?:pretrained|config)$")
_ADAPTERS: Final = re.compile(r"(?:^|\.)\w*Peft\w*\.from_pretrained$")
_NAMES: Final = ("0", "pretrained_model_name_or_path", "model_name")


class Entered(Struct, frozen=True, eq=False):
    """A function of another file that a script calls, and the rank of the script's own call before it."""

    rank: int
    step: Step
    function: FunctionNode
    home: Evaluator


def entered_functions(steps: list[Step], evaluator: Evaluator) -> list[Entered]:
    """The functions of other files that a script leads to, given what it gives them: of scripts that
    hand parts to a trainer, or load config files, which such functions may change."""
    if not (_has_trainer(steps) or evaluator.may_load):
        return []
    found: list[Entered] = []
    rank = -1
    for step in steps:
        rank += matters(step.name, step.name.rpartition(".")[2] or step.last)
        if step.reached:
            inner = _entered(step, evaluator, 0)
            found += (Entered(rank, step, function, home) for function, home in inner)
    evaluator.files.note_changes((each.function, each.home) for each in found)
    return found


def calls_elsewhere(
    entered: list[Entered],
    steps: list[Step],
    evaluator: Evaluator,
    document_of: Callable[[Evaluator], Document],
) -> list[Call]:
    """The calls that make parts of a run in functions of other files, of a script that hands parts
    to a trainer, each with the rank of the script's own call before it; ``steps`` are those of the
    script that are reached."""
    if not _has_trainer(steps):
        return []
    reached = {id(step.node) for step in steps}
    return [
        replace(call, order=each.rank)
        for each in entered
        if id(each.step.node) in reached and _is_used(each.step)
        for call in _calls_in(each.function, each.home, document_of(each.home))
    ]


def modules_entered(entered: list[Entered]) -> frozenset[str]:
    """What the files import in which such functions stand."""
    return frozenset[str]().union(*(each.home.scopes.imports for each in entered))


def _has_trainer(steps: list[Step]) -> bool:
    return any(step.last.endswith("Trainer") and step.reached for step in steps)


def _is_used(step: Step) -> bool:
    """Whether something is made of what the call returns."""
    scope = step.scope.node
    return not any(isinstance(n, ast.Expr) and n.value is step.node for n in ast.walk(scope))


def _entered(
    step: Step, evaluator: Evaluator, depth: int
) -> Iterator[tuple[FunctionNode, Evaluator]]:
    """The functions of other files that a call leads to, the innermost first."""
    called = function_of(step.node, step.scope, evaluator)
    if called is None or depth >= _DEEPEST:
        return
    function, there = called
    if there is evaluator and depth == 0:
        return  # its calls are the script's own
    is_known = _hand(step, function, there, evaluator)
    if is_known or there is evaluator:
        return  # the same calls again, or calls that its caller has with its own
    there.may_load = there.may_load or evaluator.may_load
    for each in steps_of(function, there.tree):
        yield from _entered(each, there, depth + 1)
    yield function, there


def _calls_in(function: FunctionNode, there: Evaluator, document: Document) -> list[Call]:
    wanted = [s for s in steps_of(function, there.tree) if _PARTS.search(s.name or s.last)]
    reached = reached_by_files(wanted, there.tree, there)
    calls = read_calls(reached, there, there.places, document)[0]
    return [call for call in calls if not _LOADS.search(call.callee) or _is_told(call)]


def _is_told(call: Call) -> bool:
    """Whether it is told which model a loader loads, or by which option: of one that nobody knows the
    command line may say more. An adapter is none."""
    if _ADAPTERS.search(call.callee):
        return False
    entries = call.arguments.entries
    named = next((entries[key].value for key in _NAMES if key in entries), None)
    if not isinstance(named, Scalar):
        return False
    return named.value is not UNKNOWN or bool(getattr(named, "option", ""))


def _hand(step: Step, function: FunctionNode, there: Evaluator, caller: Evaluator) -> bool:
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
