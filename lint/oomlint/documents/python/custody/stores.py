"""What is assigned to a model on its way."""

from __future__ import annotations

import ast

from oomlint.documents.python.custody.known_touches import (
    ALL,
    kinds_of,
)
from oomlint.documents.python.custody.record import Custody
from oomlint.documents.python.scopes import Scope, call_name, dotted

# Fields of a model, or of its config, that say what the Trainer or the forward pass makes of it (transformers 5.23
# trainer.py is_model_parallel, modeling_utils.py); others are noted for whoever asks.
_PLACES = frozenset({"is_parallelizable", "model_parallel", "hf_device_map"})


def look_at_store(custody: Custody, assignment: ast.Assign) -> None:
    """Note what an assignment decides that changes the model, or the library that it is made with."""
    scope = custody.flow.scope_at(assignment)
    for target in assignment.targets:
        if not isinstance(target, ast.Attribute):
            continue
        name = dotted(target) or ""
        if _is_below(custody, target, scope):
            _store(custody, assignment, target, name)
        elif name.endswith(".forward") or custody.is_of_library(name, scope):
            decided = kinds_of(name) & {"attention", "loss", "checkpointing"}
            if decided and not isinstance(assignment.value, ast.Constant):
                custody.touch(assignment, decided, name)


def _store(custody: Custody, assignment: ast.Assign, target: ast.Attribute, name: str) -> None:
    """``model.forward = f``, ``model.lm_head = Head(...)``, ``model.config.key = value``."""
    if any(part.endswith("config") for part in name.split(".")[:-1]):
        if "attention" in kinds_of(target.attr) and "implementation" in target.attr:
            custody.touch(assignment, frozenset({"attention"}), name)
    else:
        note_set(custody, assignment, target.attr, assignment.value, name)


def note_set(
    custody: Custody, node: ast.expr | ast.stmt, attribute: str, value: ast.expr, what: str
) -> None:
    """What an attribute of the model decides that is set; another name for a part of it decides nothing."""
    if attribute == "forward":
        custody.touch(node, frozenset({"loss", "attention"}), what)
    elif attribute in _PLACES:
        custody.touch(node, frozenset({"placement"}), what)
    elif isinstance(value, ast.Call) and not attribute.startswith("_"):
        made = call_name(value)
        decided = kinds_of(f"{attribute} {made}")
        is_own = made[:1].isupper() and custody.is_of_project(made, custody.flow.scope_at(node))
        if decided or is_own:
            custody.touch(node, decided or ALL, what)


def _is_below(custody: Custody, target: ast.Attribute, scope: Scope) -> bool:
    holder: ast.expr = target.value
    while True:
        if custody.is_model(holder, scope):
            return True
        if not isinstance(holder, (ast.Attribute, ast.Subscript)):
            return False
        holder = holder.value
