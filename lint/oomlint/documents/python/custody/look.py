"""From where a model is loaded on to where it is trained: what touches it."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from oomlint.documents.python.calls import ReachedCall
from oomlint.documents.python.custody.contexts import wrapped_in_parts
from oomlint.documents.python.custody.entered import add_entered
from oomlint.documents.python.custody.known_touches import (
    FUNCTIONS,
    GIVES_BACK,
    HARMLESS_CLASSES,
    LOADERS,
    MEANINGS,
    METHODS,
    PACKAGES,
    PATCHES,
    READ_ELSEWHERE,
    SWITCHES,
    WRAPPERS,
    decided_by,
    is_harmless,
    kinds_of,
)
from oomlint.documents.python.custody.record import Custody
from oomlint.documents.python.custody.stores import look_at_store, note_set
from oomlint.documents.python.custody.targets import Target, method_of, parameters_given, target_of
from oomlint.documents.python.loops.script import OPTIMIZER
from oomlint.documents.python.scopes import Scope, call_name, dotted
from oomlint.documents.python.side_facts import OTHER_MODEL, sets_gradient


def look(custody: Custody, last: ReachedCall | None = None) -> None:
    """Find what touches the model up to where it is trained."""
    known = -1
    while len(custody.names) > known:  # what a pass learns of names the next one uses
        known = len(custody.names)
        _name_more(custody)
        for step in custody.steps:
            _hand_on(custody, step)
    for step in custody.steps:
        if last is None or not _is_behind(step, last):
            _look_at(custody, step)
    for assignment in custody.home.tree.assignments:
        if custody.is_entered(assignment):
            look_at_store(custody, assignment)


def _name_more(custody: Custody) -> None:
    for name, value, owner, number in custody.flow.all_given():
        if _is_given(custody, value, number):
            custody.names.add((owner, name))


def _is_given(custody: Custody, value: ast.expr, number: int | None) -> bool:
    """Whether what a name is given is the model: a value, or the one at its place in several."""
    if number is not None:
        return id(value) in custody.values and (custody.values[id(value)] or 0) == number
    return custody.is_model(value, custody.flow.scope_at(value))


def _hand_on(custody: Custody, step: ReachedCall) -> None:
    """A function of this file that is given the model calls it by a name of its own."""
    given = list(custody.given_in(step.node, step.scope))
    target = target_of(custody.home, step.node, step.scope) if given else None
    if target is None or target.home is not custody.home:
        return
    scope = custody.home.tree.scopes.of_node[id(target.function)]
    for name in parameters_given(step.node, target, given):
        custody.names.add((id(scope), name))


def _look_at(custody: Custody, step: ReachedCall) -> None:
    call, scope = step.node, step.scope
    if id(call) not in custody.values or call_name(call) in GIVES_BACK:
        whole, part = _receiver(custody, call, scope)
        if whole or part:
            _method(custody, step, whole=whole)
            return
    if id(call) in custody.values:
        _known(custody, step)
        return
    given = list(custody.given_in(call, scope))
    if given and not OTHER_MODEL.search(custody.flow.names_of(id(call))):
        _function(custody, step, given)
    elif (
        not given and PATCHES.search(step.last) and isinstance(call.func, (ast.Name, ast.Attribute))
    ):
        _patch(custody, step)


def _receiver(custody: Custody, call: ast.Call, scope: Scope) -> tuple[bool, bool]:
    """Whether a method is one of the model, or of a part of it."""
    holder = call.func.value if isinstance(call.func, ast.Attribute) else None
    if holder is None:
        return False, False
    if custody.is_model(holder, scope):
        return True, False
    while isinstance(holder, (ast.Attribute, ast.Subscript, ast.Call)):
        holder = holder.func if isinstance(holder, ast.Call) else holder.value
        if custody.is_model(holder, scope):
            return False, True
    return False, False


def _method(custody: Custody, step: ReachedCall, *, whole: bool) -> None:
    call, last = step.node, step.last
    if last in ("to", "half", "float", "bfloat16", "double"):
        if whole:
            custody.casts.append(step)
            if not custody.is_here and (last != "to" or _names_dtype(call)):
                custody.touch(call, frozenset({"dtype"}))
        return
    if _known(custody, step) or last in METHODS or is_harmless(last):
        return
    if not whole and not kinds_of(last):
        return
    own = [each for each in custody.home.tree.functions if each.name == last]
    if not own:
        custody.touch(call, decided_by(last))


def _known(custody: Custody, step: ReachedCall) -> bool:
    """Whether a call is one that the tables read; of another file it counts as decided there, unless an option
    decides on it by a name that they know."""
    decided = MEANINGS.get(step.last)
    is_option = any(name in SWITCHES for name, _ in step.guards)
    if decided and not custody.is_here and _may_switch(step.node, step.last):
        custody.read.append((step, frozenset() if is_option else decided))
    return decided is not None


def _function(
    custody: Custody, step: ReachedCall, given: Sequence[tuple[int | str | None, ast.expr]]
) -> None:
    call, scope, last = step.node, step.scope, step.last
    if HARMLESS_CLASSES.search(last):
        return  # of trainers their methods tell
    target = target_of(custody.home, call, scope)
    targets = methods_of(custody, call, scope) if target is None else (target,)
    if targets is None:
        _of_library(custody, step)
        return
    for each in targets:
        if each.home is custody.home and target is not None:
            continue  # of a function of this file the calls are among the steps
        entered = custody.around.enter(
            custody, (call, scope), each, frozenset(parameters_given(call, each, given)), None
        )
        if entered is None:
            custody.touch(call, decided_by(last))
        else:
            add_entered(custody, call, scope, each, entered)


def methods_of(custody: Custody, call: ast.Call, scope: Scope) -> tuple[Target, ...] | None:
    """The methods that a call may enter of objects that classes of the project make; ``None`` where somebody else may
    have made the object."""
    function = call.func
    if not isinstance(function, ast.Attribute):
        return None
    values = [
        each for each in custody.flow.values(function.value, scope) if not _is_nothing(each[0])
    ]
    found: list[Target] = []
    for made, inner, place in values:
        own = method_of(custody.home, made, inner, function.attr) if place is None else None
        if own is None:
            return None
        found += own
    return tuple(found) if values else None


def _is_nothing(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _of_library(custody: Custody, step: ReachedCall) -> None:
    """A function that is given the model and is not here."""
    call, last = step.node, step.last
    if custody.knows_no_model(call, step.scope):
        return
    if parted := wrapped_in_parts(step.name, last):
        custody.touch(call, parted)
    if _known(custody, step) or last in FUNCTIONS or last in WRAPPERS or is_harmless(last):
        return
    if last in LOADERS or OPTIMIZER.fullmatch(last):
        return
    if last == "setattr" and len(call.args) > 2 and isinstance(call.args[1], ast.Constant):
        note_set(custody, call, str(call.args[1].value), call.args[2], "setattr()")
    elif kinds_of(last) or not step.name.startswith(PACKAGES):
        custody.touch(call, decided_by(last))


def _patch(custody: Custody, step: ReachedCall) -> None:
    """A call that changes a library's code for all models that are made after it."""
    name = step.name
    if name.startswith(READ_ELSEWHERE) or step.last in METHODS:
        return
    if (
        isinstance(step.node.func, ast.Attribute)
        and target_of(custody.home, step.node, step.scope) is None
    ):
        root = dotted(step.node.func.value)
        if root is None or step.scope.imported(root) is None:
            return  # ``text.replace(...)``
    target = target_of(custody.home, step.node, step.scope)
    if target is not None and target.home is custody.home:
        return
    entered = (
        None
        if target is None
        else custody.around.enter(custody, (step.node, step.scope), target, frozenset(), None)
    )
    if entered is not None and target is not None:
        add_entered(custody, step.node, step.scope, target, entered)
    else:
        decided = kinds_of(name) - {"trainable"}
        if decided:
            custody.touch(step.node, decided)


def _is_behind(step: ReachedCall, last: ReachedCall) -> bool:
    """Whether a call comes when the model has been trained."""
    return step.scope is last.scope and step.node.lineno > (last.node.end_lineno or 0)


def _names_dtype(call: ast.Call) -> bool:
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    return any(keyword.arg == "dtype" for keyword in call.keywords) or any(
        word in ast.unparse(value) for value in given for word in ("dtype", "float", "half")
    )


def _may_switch(call: ast.Call, last: str) -> bool:
    """``requires_grad_()`` can only switch gradients on."""
    return last != "requires_grad_" or sets_gradient(call)
