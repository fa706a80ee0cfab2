"""From where a model is trained back to what loads it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from oomlint.documents.base import Scalar
from oomlint.documents.python.configs.paths import option_of
from oomlint.documents.python.custody.contexts import wrapped_in_parts
from oomlint.documents.python.custody.entered import add_entered
from oomlint.documents.python.custody.known_touches import (
    CALLED_MODEL,
    CLASSES,
    FUNCTIONS,
    GIVES_BACK,
    LOAD,
    LOADERS,
    METHODS,
    WRAPPERS,
    decided_by,
)
from oomlint.documents.python.custody.loads import note_load
from oomlint.documents.python.custody.record import Custody, model_in
from oomlint.documents.python.custody.targets import Target, argument_of, target_of
from oomlint.documents.python.flow import returned
from oomlint.documents.python.order import given_later
from oomlint.documents.python.parsers import argparse_names
from oomlint.documents.python.scopes import Binding, Scope, call_name, dotted
from oomlint.documents.python.trainer_names import names_trainer

# Each hand takes up to four of the thousand calls within calls that Python has room for.
_MOST_HANDS = 20


def trace(
    custody: Custody, value: ast.expr, scope: Scope, number: int | None = None, hand: int = 0
) -> None:
    """Follow a value that is the model back to what loads it."""
    if hand > _MOST_HANDS or (id(value), number) in custody.seen:
        return
    custody.seen.add((id(value), number))
    match value:
        case ast.Name() | ast.Attribute():
            _trace_name(custody, value, scope, number, hand)
        case ast.Call():
            custody.values[id(value)] = number
            _trace_call(custody, value, scope, number, hand)
        case ast.Subscript(value=several, slice=ast.Constant(value=int(at))):
            trace(custody, several, scope, at, hand + 1)
    for each, place in _alternatives(value, number):
        trace(custody, each, scope, place, hand + 1)


def _trace_name(
    custody: Custody, value: ast.Name | ast.Attribute, scope: Scope, number: int | None, hand: int
) -> None:
    key = custody.key(value, scope)
    if key is not None:
        custody.names.add(key)
    given = _given(custody, value, scope)
    for each, inner, place in given:
        trace(custody, each, inner, place if number is None else number, hand + 1)
    if given or key is None:
        return
    found = scope.find(value.id) if isinstance(value, ast.Name) else None
    owner = found[0].node if found is not None else None
    if isinstance(owner, (ast.FunctionDef, ast.AsyncFunctionDef)) and found is not None:
        if any(each.kind == "parameter" for each in found[1]):
            custody.outside.add((owner.name, key[1]))
    elif isinstance(value, ast.Attribute) and _is_held(value):
        trace(custody, value.value, scope, None, hand + 1)  # ``trainer.model``, ``engine.module``
    elif (
        isinstance(value, ast.Attribute)
        and _is_of_own_object(custody, value, scope)
        and not _is_words(custody, value, scope)
    ):
        custody.touch(value, LOAD, f"how {dotted(value)} is made")


def _given(
    custody: Custody, value: ast.Name | ast.Attribute, scope: Scope
) -> list[tuple[ast.expr, Scope, int | None]]:
    """What a name stands for where it is asked for: what the trained model is reloaded into comes when it has been
    trained."""
    given = [each for each in custody.flow.values(value, scope) if each[0] is not value]
    found = scope.find(value.id) if isinstance(value, ast.Name) and len(given) > 1 else None
    if found is None:
        return given
    own = [each for each, inner, _ in given if inner is found[0]]
    later = {id(each) for each in given_later(value, own, found[0])}
    return [each for each in given if id(each[0]) not in later] or given


def _trace_call(
    custody: Custody, call: ast.Call, scope: Scope, number: int | None, hand: int
) -> None:
    last, name = call_name(call), scope.resolved(dotted(call.func) or "")
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
    given = model_in(call)
    if parted := wrapped_in_parts(name, last):
        custody.touch(call, parted)
    is_peft = last in LOADERS and "Peft" in name
    if last in LOADERS and not (is_peft and given is not None):
        note_load(custody, call)
        _trace_given(custody, call, scope, hand)  # a class of the project's around another model
    elif receiver is not None and last in GIVES_BACK and not custody.is_module(receiver, scope):
        trace(custody, receiver, scope, None, hand + 1)
    elif last in ("prepare", "setup") and call.args:
        place = min(number or 0, len(call.args) - 1)
        trace(custody, call.args[place], scope, None, hand + 1)
    elif (
        last == "initialize"
        or names_trainer(last)
        or ((last in WRAPPERS or is_peft) and target_of(custody.home, call, scope) is None)
    ):
        _trace_first(custody, call, scope, hand)
    elif (target := target_of(custody.home, call, scope)) is not None:
        _trace_into(custody, call, scope, target, number, hand)
    elif CLASSES.search(name) and not custody.is_of_project(name, scope):
        note_load(custody, call)
    elif custody.knows_no_model(call, scope):
        return  # the name or the path of a model, which the trainer loads itself
    elif last in FUNCTIONS or (last in METHODS and given is None):
        _trace_first(custody, call, scope, hand)  # a name, or what is looked up
    else:
        custody.touch(call, decided_by(last) if given is not None else decided_by(last) | LOAD)
        _trace_first(custody, call, scope, hand)


def _trace_first(custody: Custody, call: ast.Call, scope: Scope, hand: int) -> None:
    """What a library's function wraps, or another is given that may be the model."""
    given = model_in(call)
    is_known = call_name(call) in WRAPPERS or "Peft" in (dotted(call.func) or "")
    if given is not None and (is_known or _may_be_model(custody, given, scope)):
        trace(custody, given, scope, None, hand + 1)


def _may_be_model(custody: Custody, value: ast.expr, scope: Scope) -> bool:
    """Whether a value comes of a call that loads a model, or is called like one."""
    made = [each for each in custody.flow.path(value, scope) if isinstance(each, ast.Call)]
    loads = any(call_name(each) in LOADERS and _is_of_model(each) for each in made)
    owner, _, name = (dotted(value) or "").rpartition(".")
    return loads or (owner in ("", "self") and bool(CALLED_MODEL.fullmatch(name)))


def _trace_into(
    custody: Custody, call: ast.Call, scope: Scope, target: Target, number: int | None, hand: int
) -> None:
    """What a function of the project gives back, or an object of a class of its is made of."""
    function, home = target.function, target.home
    is_made = function.name == "__init__"
    if home is custody.home:
        inner = home.tree.scopes.of_node[id(function)]
        for value in () if is_made else returned(function):
            trace(custody, value, inner, number, hand + 1)
        if is_made:
            _trace_given(custody, call, scope, hand)
        return
    entered = custody.around.enter(
        custody,
        (call, scope),
        target,
        frozenset(),
        None if is_made else number,
        is_made=not is_made,
    )
    if entered is None:
        custody.touch(call, LOAD)
        return
    add_entered(custody, call, scope, target, entered)
    custody.made_by.append((call, entered))
    handed = {name for owner, name in entered.outside if owner == function.name}
    for name in handed:
        given = argument_of(call, target, name)
        if given is not None:
            trace(custody, given, scope, None, hand + 1)
    if is_made:
        _trace_given(custody, call, scope, hand)
    elif not entered.loads and not handed and not entered.touches:
        custody.touch(call, LOAD)


def _trace_given(custody: Custody, call: ast.Call, scope: Scope, hand: int) -> None:
    """What an object is made of: those of the arguments that are models by the calls they come from."""
    for value in (*call.args, *(keyword.value for keyword in call.keywords)):
        if _may_be_model(custody, value, scope):
            trace(custody, value, scope, None, hand + 1)


_HOLDERS = re.compile(r"(?:model|trainer|engine|ddp|fsdp|wrapper|wrapped)$", re.IGNORECASE)


def _is_held(value: ast.Attribute) -> bool:
    """``trainer.model``, ``engine.module``: the model that another object holds."""
    holder = dotted(value.value) or ""
    return value.attr in ("model", "module", "base_model") and bool(_HOLDERS.search(holder))


def _is_of_own_object(custody: Custody, value: ast.Attribute, scope: Scope) -> bool:
    """Whether an attribute is one of an object of the project's own, whose class loads the model and does with it what
    nobody follows: ``llama = LlamaForTask(name, load_in_4bit=True)``, ``Trainer(model=llama.model)``."""
    made = [each for each in custody.flow.path(value.value, scope) if isinstance(each, ast.Call)]
    return any(target_of(custody.home, each, scope) is not None for each in made)


def _is_words(custody: Custody, value: ast.Attribute, scope: Scope) -> bool:
    """Whether an attribute is a text, or an option of the command line: the name of a model, which the trainer loads
    itself (``GRPOTrainer(model=args.model)``, TRL 1.16 trainer/grpo_trainer.py)."""
    home = custody.home
    node = home.node(value, scope)
    if isinstance(node, Scalar) and isinstance(node.value, str):
        return True
    if option_of(value, scope, home.tree) in argparse_names(home.tree).known:
        return True
    found = scope.find(value.value.id) if isinstance(value.value, ast.Name) else None
    return found is not None and any(map(_is_parsed, found[1]))


def _is_parsed(binding: Binding) -> bool:
    """Whether a name is given what a method parses, whoever's class it is one of: ``args, config = parser.parse()``."""
    call = binding.part_of[0] if binding.part_of is not None else binding.value
    return isinstance(call, ast.Call) and call_name(call).startswith("parse")


def _alternatives(value: ast.expr, number: int | None) -> Iterator[tuple[ast.expr, int | None]]:
    """What an expression may come to, each with the place in it of what is wanted."""
    match value:
        case ast.IfExp(body=one, orelse=other):
            yield from ((one, number), (other, number))
        case ast.BoolOp(values=several):
            yield from ((each, number) for each in several)
        case ast.NamedExpr(value=held) | ast.Await(value=held):
            yield held, number
        case ast.Tuple(elts=elements) | ast.List(elts=elements) if number is not None:
            yield from ((each, None) for each in elements[number : number + 1])


def _is_of_model(call: ast.Call) -> bool:
    name = dotted(call.func) or ""
    return not any(word in name.lower() for word in ("token", "processor", "config", "extractor"))
