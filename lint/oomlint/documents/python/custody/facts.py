"""What a script leaves unsaid of its model between load and training, as facts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from oomlint.documents.base import Call, Fact, Scalar
from oomlint.documents.python.calls import ReachedCall
from oomlint.documents.python.custody.alternatives import note_alternatives
from oomlint.documents.python.custody.callers import trace_callers
from oomlint.documents.python.custody.carried import carried_calls
from oomlint.documents.python.custody.entering import enter
from oomlint.documents.python.custody.known_touches import CALLED_MODEL, LOAD
from oomlint.documents.python.custody.look import look
from oomlint.documents.python.custody.record import Around, Custody, Touch
from oomlint.documents.python.custody.trace import trace
from oomlint.documents.python.led_by_options import choices_around
from oomlint.documents.python.loops.loop import Loop
from oomlint.documents.python.loops.script import OPTIMIZER
from oomlint.documents.python.scopes import Scope, dotted
from oomlint.documents.python.trainer_names import names_trainer
from oomlint.documents.python.values import Evaluator
from oomlint.documents.text import Location

_OWNS_TRAINING: Final = re.compile(r"trainer$", re.IGNORECASE)
# torch 2.9 nn/modules/module.py.
_CASTS: Final = {"half": "fp16", "bfloat16": "bf16", "float": "fp32"}
_DTYPES: Final = {
    "torch.float16": "fp16",
    "torch.half": "fp16",
    "torch.bfloat16": "bf16",
    "torch.float32": "fp32",
    "torch.float": "fp32",
}


class Account(Struct, frozen=True, eq=False):
    """What is said of the models of a script: facts of what is left open, and calls of other files that decide on them,
    each with the step of the script that enters its function."""

    facts: tuple[Fact, ...]
    calls: tuple[tuple[ReachedCall, Call], ...]


def custody_of(
    evaluator: Evaluator,
    steps: Sequence[ReachedCall],
    calls: Sequence[Call],
    origin: Mapping[int, ReachedCall],
    *,
    loop: Loop | None,
) -> Account:
    """Facts of these kinds, of what comes before a model is trained, each with the ``class`` of the trainer (nothing
    of a ``loop``): ``unaccounted`` (``what`` touches it, which ``decides`` these, in which file, its ``home``, or nobody
    knows, and ``guards``), ``casts-model`` (``dtype``, ``None`` where only running tells it, ``guards``, and the ``choices`` by options that lead there,
    each with the side that does), and
    ``made-elsewhere`` (``function``, ``imports`` of its file, classes that it ``loads`` with)."""
    around = Around(enter)
    of_node = {id(step.node): step for step in steps}
    facts: list[Fact] = []
    carried: dict[tuple[int, int], tuple[ReachedCall, Call]] = {}

    def note(custody: Custody, name: str) -> None:
        facts.extend(_facts(custody, name, evaluator, of_node))
        for number, (step, call) in enumerate(carried_calls(custody, of_node)):
            carried.setdefault((id(step.node), number), (step, call))

    trainers = [call for call in calls if names_trainer(call.callee) and id(call) in origin]
    for trainer in trainers:
        step = origin[id(trainer)]
        given = _given_to(step.node)
        if given is None or isinstance(given, ast.Constant):
            continue
        custody = Custody(evaluator, steps, around)
        trace(custody, given, step.scope)
        trace_callers(custody, step)
        _note_trainer(custody, step)
        look(custody, _training(steps, step))
        _note_open(custody, step, given)
        note_alternatives(custody, step)
        note(custody, trainer.callee)
    if not trainers and loop is not None:
        custody = Custody(evaluator, steps, around)
        loads = {id(origin[id(model)].node) for model in loop.models if id(model) in origin}
        custody.values.update(dict.fromkeys(loads))
        for value, scope in _trained_by_loop(custody, steps):
            trace(custody, value, scope)
        look(custody)
        note(custody, "")
    return Account(tuple(facts), tuple(carried.values()))


def _given_to(trainer: ast.Call) -> ast.expr | None:
    """transformers 5.23 trainer.py, TRL 1.16 trainer/*.py: the model is the first argument."""
    for keyword in trainer.keywords:
        if keyword.arg == "model":
            return keyword.value
    first = trainer.args[0] if trainer.args else None
    # A trainer of the project's own may be given anything first.
    name = "" if first is None else (dotted(first) or "").rpartition(".")[2]
    is_model = isinstance(first, ast.Call) or CALLED_MODEL.fullmatch(name)
    return first if is_model else None


def _note_trainer(custody: Custody, step: ReachedCall) -> None:
    """``trainer.model`` is the model."""
    for name in custody.flow.names_of(id(step.node)).split():
        custody.names.add((0, f"{name}.model"))


def _training(steps: Sequence[ReachedCall], trainer: ReachedCall) -> ReachedCall | None:
    """The call behind which the model has been trained."""
    behind = steps[steps.index(trainer) :]
    for step in behind:
        function = step.node.func
        if step.last not in ("train", "ppo_train") or not isinstance(function, ast.Attribute):
            continue
        if function.value is trainer.node or _OWNS_TRAINING.search(dotted(function.value) or ""):
            return step
    return None


def _note_open(custody: Custody, trainer: ReachedCall, given: ast.expr) -> None:
    """A model that comes from outside of what is here; a name of one is loaded by the trainer itself."""
    is_bare = isinstance(given, ast.Name) and trainer.scope.find(given.id) is None
    if (custody.outside or is_bare) and not custody.loads and not custody.touches:
        custody.touches[id(trainer.node)] = Touch(trainer.node, "where its model is made", LOAD)


def _trained_by_loop(
    custody: Custody, steps: Sequence[ReachedCall]
) -> Iterator[tuple[ast.expr, Scope]]:
    """What optimizers are given."""
    flow = custody.flow
    for step in steps:
        if OPTIMIZER.fullmatch(step.last):
            for call, scope in flow.asked(step.node, ("parameters", "named_parameters")):
                if isinstance(call.func, ast.Attribute):
                    yield call.func.value, scope


def _facts(
    custody: Custody, name: str, evaluator: Evaluator, steps: Mapping[int, ReachedCall]
) -> Iterator[Fact]:
    places, path = evaluator.places, evaluator.places.source.path
    for touch in custody.touches.values():
        step = steps.get(id(touch.node))
        detail = {
            "class": name,
            "what": touch.what,
            "decides": tuple(sorted(touch.decides)),
            "home": touch.home,
            "guards": () if step is None else step.guards,
        }
        yield Fact("unaccounted", Location(path, places.span(touch.node)), detail)
    for step in custody.casts:
        dtype = _dtype(step, evaluator)
        if dtype is not NotImplemented:
            choices = choices_around(step, evaluator)
            cast: dict[str, Any] = {
                "class": name,
                "dtype": None if choices is None else dtype,
                "guards": step.guards,
                "choices": choices or (),
            }
            yield Fact("casts-model", Location(path, places.span(step.node)), cast)
    for call, inner in custody.made_by:
        home = inner.home
        loads = (home.scopes.module.resolved(dotted(each.func) or "") for each in inner.loads)
        detail = {
            "class": name,
            "function": dotted(call.func) or "",
            "imports": tuple(sorted(home.scopes.imports)),
            "loads": tuple(loads),
        }
        yield Fact("made-elsewhere", Location(path, places.span(call)), detail)


def _dtype(step: ReachedCall, evaluator: Evaluator) -> Any:
    """The dtype of a cast, ``None`` where only running tells it; ``NotImplemented`` of what moves a model alone."""
    given = [*step.node.args, *(each.value for each in step.node.keywords if each.arg == "dtype")]
    if step.last != "to":
        is_bare = not step.node.args and not step.node.keywords
        return _CASTS.get(step.last, NotImplemented) if is_bare else NotImplemented
    for value in given:
        node = evaluator.node(value, step.scope)
        said = str(node.value) if isinstance(node, Scalar) else ""
        if said in _DTYPES:
            return _DTYPES[said]
        if "dtype" in ast.unparse(value):
            return None
    return NotImplemented
