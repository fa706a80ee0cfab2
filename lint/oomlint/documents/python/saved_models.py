"""Which models a script leaves in folders: what it trains or merges, and what it downloads."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Final

from oomlint.documents.base import Call, Fact, Scalar
from oomlint.documents.python.calls import ReachedCall
from oomlint.documents.python.configs.paths import At
from oomlint.documents.python.scopes import Scope, dotted
from oomlint.documents.python.values import Evaluator
from oomlint.documents.text import Location

_SAVES: Final = frozenset({"save_pretrained", "save_model", "save_pretrained_merged"})
_NO_MODEL: Final = re.compile(r"tok|proc|config|gener", re.IGNORECASE)
_ADAPTS: Final = re.compile(r"(?:^|\.)(?:get_peft_model|LoraConfig)$")
_MERGES: Final = frozenset({"merge_and_unload", "save_pretrained_merged"})
_LOADS: Final = re.compile(r"(?<!Peft)Model\w*\.from_pretrained$")
# Of PEFT, which loads an adapter over the model that it is given.
_LOADS_ADAPTER: Final = re.compile(r"Peft\w*\.from_pretrained$")


def saved_models(
    steps: Sequence[ReachedCall], calls: Sequence[Call], evaluator: Evaluator
) -> Iterator[Fact]:
    """Facts of one kind, ``saves-model``: the ``folder``, the ``model`` that what is saved there starts from, and
    whether it is an ``adapter`` of it."""
    for step in steps:
        if step.last == "snapshot_download":
            given = {k.arg: k.value for k in step.node.keywords}
            name = given.get("repo_id") or (step.node.args[0] if step.node.args else None)
            models = set() if name is None else set(_texts(name, step.scope, evaluator))
            if len(models) == 1 and "local_dir" in given:
                for folder in _texts(given["local_dir"], step.scope, evaluator):
                    yield _fact(step, evaluator, folder, models.pop(), is_adapter=False)
                    break
    saving = [step for step in steps if _saves(step)]
    model = _loaded(calls) if saving else None
    if model is None:
        return
    adapts = any(_ADAPTS.search(call.callee) for call in calls)
    is_merged = any(step.last in _MERGES for step in steps)
    for step in saving:
        for folder in dict.fromkeys(_texts(step.node.args[0], step.scope, evaluator)):
            yield _fact(step, evaluator, folder, model, is_adapter=adapts and not is_merged)


def _fact(
    step: ReachedCall, evaluator: Evaluator, folder: str, model: str, *, is_adapter: bool
) -> Fact:
    where = Location(evaluator.places.source.path, evaluator.places.span(step.node))
    return Fact("saves-model", where, {"folder": folder, "model": model, "adapter": is_adapter})


def _saves(step: ReachedCall) -> bool:
    function = step.node.func
    holder = dotted(function.value) if isinstance(function, ast.Attribute) else None
    is_model = holder is not None and not _NO_MODEL.search(holder.rpartition(".")[2])
    return step.last in _SAVES and bool(step.node.args) and is_model


def _loaded(calls: Sequence[Call]) -> str | None:
    """The one model that a script loads."""
    names: set[str] = set()
    for call in calls:
        if _LOADS.search(call.callee) and not _LOADS_ADAPTER.search(call.callee):
            entries = call.arguments.entries
            keys = ("0", "pretrained_model_name_or_path", "model_name")
            given = next((entries[key].value for key in keys if key in entries), None)
            name = given.value if isinstance(given, Scalar) else None
            if not isinstance(name, str):
                return None
            names.add(name)
    return names.pop() if len(names) == 1 else None


def _texts(expression: ast.expr, scope: Scope, evaluator: Evaluator) -> Iterator[str]:
    """The path or the name that an expression is; of a variable that is set more than once each that it is given."""
    values = [expression]
    if isinstance(expression, ast.Name) and (found := scope.find(expression.id)) is not None:
        scope = found[0]
        values = [each.value for each in found[1] if each.value is not None]
    for value in values:
        path = evaluator.files.path(value, At(scope, evaluator))
        if path:
            yield path
