"""What functions of other files call that the tables read, as the script's own call of them makes it.

A call is carried where it is certain that it runs, or a switch of the script's says so; else what it decides is open.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping as MappingABC
from typing import Final

from msgspec.structs import replace

from oomlint.documents.base import Call
from oomlint.documents.python.calls import ReachedCall, read_calls
from oomlint.documents.python.custody.conditions import NEVER, Conditions, conditions_of
from oomlint.documents.python.custody.known_touches import LOAD
from oomlint.documents.python.custody.loads import is_plain_class, touch_load
from oomlint.documents.python.custody.record import Carried, Custody
from oomlint.documents.python.nodes import Guard, PythonMapping
from oomlint.documents.python.values.made_elsewhere import seen_from


def carry(custody: Custody) -> None:
    """Settle what is loaded and called in a function of another file, while the call that enters it is followed."""
    if custody.function is None or not (custody.read or custody.loads):
        return
    home, loads = custody.home, {id(call) for call in custody.loads}
    steps = list(custody.steps)
    calls, origin = read_calls(steps, home, home.places)
    by_node: dict[int, Call] = {}
    for call in calls:
        by_node.setdefault(id(origin[id(call)].node), call)
    _carry_loads(custody, [step for step in steps if id(step.node) in loads], by_node)
    for step, decides in custody.read:
        when = conditions_of(step, custody.function, home)
        found = by_node.get(id(step.node))
        if when is NEVER:
            continue
        if isinstance(when, tuple) and found is not None and _AS_CALLS.fullmatch(step.name):
            _note(custody, step.node, found, when, decides)
        elif decides:
            custody.touch(step.node, decides)


# PEFT 0.21.2 and transformers 5.23: what the dialects read of a call alone. Others change what is trained, or the class
# of the model, by more than their arguments say; other libraries have functions of the same names.
_AS_CALLS: Final = re.compile(
    r"peft\.(?:\w+\.)*(?:get_peft_model|prepare_model_for_(?:kbit|int8)_training)"
    r"|(?:.+\.)?gradient_checkpointing_enable"
)


def _carry_loads(custody: Custody, steps: list[ReachedCall], by_node: dict[int, Call]) -> None:
    """The one call that loads the model, or those of which switches choose; of others it is open what they decide."""
    assert custody.function is not None
    seen = {id(step.node) for step in steps}
    for call in custody.loads:
        if id(call) not in seen:
            touch_load(custody, call)
    when: dict[int, Conditions] = {
        id(step.node): conditions_of(step, custody.function, custody.home) for step in steps
    }
    alive = [step for step in steps if when[id(step.node)] is not NEVER]
    is_settled = all(_is_carried(step, when[id(step.node)], by_node) for step in alive)
    is_chosen = len(alive) == 1 or all(when[id(step.node)] for step in alive)
    for step in alive:
        guards = when[id(step.node)]
        if (
            is_settled
            and is_chosen
            and isinstance(guards, tuple)
            and len(seen) == len(custody.loads)
        ):
            _note(custody, step.node, by_node[id(step.node)], guards, LOAD)
        else:
            touch_load(custody, step.node)


def _is_carried(step: ReachedCall, when: Conditions, by_node: dict[int, Call]) -> bool:
    call = by_node.get(id(step.node))
    is_told = call is not None and not call.arguments.open_ended
    return is_told and isinstance(when, tuple) and is_plain_class(step.node)


def _note(
    custody: Custody, node: ast.Call, call: Call, guards: tuple[Guard, ...], decides: frozenset[str]
) -> None:
    arguments = call.arguments
    if isinstance(arguments, PythonMapping):
        arguments = replace(arguments, guards=guards, arms=())
    file = custody.home.places.source.path
    custody.carried[id(node)] = (Carried(replace(call, arguments=arguments), decides, file),)


def hand_out(custody: Custody, call: ast.Call, entered: Custody) -> frozenset[str]:
    """What a function that was entered calls, as if its own call did; what of it stays open."""
    found = tuple(each for several in entered.carried.values() for each in several)
    if not found:
        return frozenset()
    if custody.function is None:
        custody.carried[id(call)] = found
        return frozenset()
    step = next((step for step in custody.steps if step.node is call), None)
    when = None if step is None else conditions_of(step, custody.function, custody.home)
    if isinstance(when, tuple):
        custody.carried[id(call)] = tuple(_under(each, when) for each in found)
    elif when is None:
        return frozenset().union(*(each.decides for each in found))
    return frozenset()


def _under(carried: Carried, guards: tuple[Guard, ...]) -> Carried:
    arguments = carried.call.arguments
    if not isinstance(arguments, PythonMapping) or not guards:
        return carried
    arguments = replace(arguments, guards=(*guards, *arguments.guards))
    return replace(carried, call=replace(carried.call, arguments=arguments))


# -- as the script's own -----------------------------------------------------------------------------


def carried_calls(
    custody: Custody, steps: MappingABC[int, ReachedCall]
) -> Iterator[tuple[ReachedCall, Call]]:
    """The calls that a script makes through functions of other files, each with the step that enters these."""
    for node, several in custody.carried.items():
        step = steps.get(node)
        if step is not None:
            span = custody.home.places.span(step.node)
            for each in several:
                call = seen_from(each.call, span, each.file)
                arguments = call.arguments
                if isinstance(arguments, PythonMapping):
                    guards = (*step.guards, *arguments.guards)
                    arguments = replace(arguments, guards=guards, arms=step.arms)
                yield step, replace(call, arguments=arguments)
