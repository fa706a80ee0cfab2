"""Several calls of a script that may load what a trainer is given: what they are told otherwise is open."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from oomlint.documents.python.calls import ReachedCall
from oomlint.documents.python.custody.known_touches import LOAD, OF_LOADING
from oomlint.documents.python.custody.loads import is_usual
from oomlint.documents.python.custody.record import Custody, Touch


def note_alternatives(custody: Custody, trainer: ReachedCall) -> None:
    """What loads differ in of which branches decide that are no switches; of those that switches decide on the launch
    says which counts, and what is loaded when the trainer has its model is another."""
    loads = {id(call) for call in custody.loads}
    before = custody.steps[: custody.steps.index(trainer)]
    steps = [step for step in before if id(step.node) in loads]
    if len(steps) < 2 or not any(_is_open(step) for step in steps):
        return
    decided = frozenset(aspect for aspect in LOAD if _differ(steps, aspect))
    if decided:
        node = steps[-1].node
        custody.touches[id(node)] = Touch(node, f"which of {len(steps)} loads counts", decided)


def _is_open(step: ReachedCall) -> bool:
    return len(step.guards) < len(step.arms)


def _differ(steps: Sequence[ReachedCall], aspect: str) -> bool:
    return len({_told(step.node, aspect) for step in steps}) > 1


def _told(call: ast.Call, aspect: str) -> frozenset[str]:
    """What a call says of an aspect, where that is not as good as nothing."""
    return frozenset(
        ast.unparse(keyword.value)
        for keyword in call.keywords
        if keyword.arg is not None
        and aspect in OF_LOADING.get(keyword.arg, ())
        and not is_usual(keyword.value)
    )
