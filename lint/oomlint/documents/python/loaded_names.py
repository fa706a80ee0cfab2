"""Which model a script may load where the call that does so, in the script or in a function or a class of another file,
is given a name that the text does not settle.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Final

from oomlint.documents.base import UNKNOWN, Call, Fact, Scalar
from oomlint.documents.python.calls import ReachedCall, matters
from oomlint.documents.python.configs.paths import At, CallFrame, function_of
from oomlint.documents.python.possible_names import PossibleName, possible_names
from oomlint.documents.python.scopes import FunctionNode, call_name, dotted
from oomlint.documents.python.side_facts import OTHER_MODEL
from oomlint.documents.python.trainer_names import names_trainer
from oomlint.documents.python.values import Evaluator
from oomlint.documents.python.walking import walk
from oomlint.documents.text import Location

_LOADERS: Final = frozenset({"from_pretrained", "from_config"})
# transformers 5.23 modeling_utils.py from_pretrained, unsloth 2025.9 models/loader.py.
# TRL's trainers load a model by the name that they are given (TRL 1.16 trainer/sft_trainer.py).
_NAMES: Final = ("pretrained_model_name_or_path", "model_name", "model_name_or_path", "model")
_TRAINS: Final = ("Trainer", "backward")
# Functions within functions; deeper is a framework of the project's own.
_DEEPEST: Final = 3


def loaded_names(
    steps: Sequence[ReachedCall],
    calls: Sequence[Call],
    origin: Mapping[int, ReachedCall],
    evaluator: Evaluator,
) -> Iterator[Fact]:
    """Facts of one kind, ``may-load``, at the call of the script that loads a model, trains it by its name or leads there: the
    ``names`` that it may be given, and in which ``home`` the call stands that is given them."""
    loads = [call for call in calls if call.callee.rpartition(".")[2] in _LOADERS]
    trainers = [call for call in calls if names_trainer(call.callee)]
    for call in (*loads, *trainers):
        step = origin.get(id(call))
        name = None if step is None or not _is_open(call) else _name_in(step.node)
        if step is not None and name is not None:
            yield from _fact(
                step, possible_names(name, At(step.scope, evaluator)), evaluator, evaluator
            )
    if not loads and any(step.last.endswith(_TRAINS) for step in steps):
        for step in takewhile(lambda step: not names_trainer(step.last), steps):
            for name, at in _loads_behind(step.node, At(step.scope, evaluator), 0):
                yield from _fact(step, possible_names(name, at), at.home, evaluator)


def _is_open(call: Call) -> bool:
    entries = call.arguments.entries
    given = next((entries[each].value for each in ("0", *_NAMES) if each in entries), None)
    return isinstance(given, Scalar) and given.value is UNKNOWN


def _fact(
    step: ReachedCall, names: tuple[PossibleName, ...], home: Evaluator, script: Evaluator
) -> Iterator[Fact]:
    if names:
        where = Location(script.places.source.path, script.places.span(step.node))
        yield Fact("may-load", where, {"names": names, "home": home.places.source.path})


def _name_in(load: ast.Call) -> ast.expr | None:
    """What a call that loads a model is given for its name."""
    named = (keyword.value for keyword in load.keywords if keyword.arg in _NAMES)
    first = load.args[0] if load.args else None
    return next(named, None if isinstance(first, ast.Starred) else first)


def _loads_behind(call: ast.Call, at: At, depth: int) -> Iterator[tuple[ast.expr, At]]:
    """What the calls are given that load a model in a function of another file, or where a class of another makes its
    objects."""
    found = _entered(call, at) if depth < _DEEPEST else None
    if found is None or (depth == 0 and found[1] is at.home):
        return  # its calls are the script's own
    function, home = found
    bound = call
    if function.name == "__init__":  # Python itself gives the first, ``self``
        bound = ast.copy_location(ast.Call(call.func, [call.func, *call.args], call.keywords), call)
    scope = home.scopes.of_node[id(function)]
    inner = At(scope, home, CallFrame(function, bound, at), at.depth + 1)
    for node in walk(function):
        if not isinstance(node, ast.Call):
            continue
        name = scope.resolved(dotted(node.func) or "")
        if call_name(node) not in _LOADERS:
            yield from _loads_behind(node, inner, depth + 1)
        elif matters(name, call_name(node)) and not OTHER_MODEL.search(name):
            given = _name_in(node)
            if given is not None:
                yield given, inner


def _entered(call: ast.Call, at: At) -> tuple[FunctionNode, Evaluator] | None:
    """The function of the project that a call enters, or the one by which a class of it makes its objects."""
    found = function_of(call, at.scope, at.home)
    name = dotted(call.func)
    if found is not None or name is None or name.startswith("self."):
        return found
    elsewhere = at.home.elsewhere(name, at.scope)
    home, inner = elsewhere if elsewhere is not None else (at.home, call.func)
    cls = home.scopes.classes.get(dotted(inner) or "")
    for each in cls.body if cls is not None else ():
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            return each, home
    return None
