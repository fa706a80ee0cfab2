"""Who runs backward in a script, or fits a module, and where."""

from __future__ import annotations

import ast
import re
from typing import Final

from oomlint.documents.python.calls import ReachedCall
from oomlint.documents.python.lightning import (
    ProjectClass,
    given_to,
    imports_lightning,
    is_trained,
    parts_in,
)
from oomlint.documents.python.loops.loop import Kind
from oomlint.documents.python.loops.script import Script
from oomlint.documents.python.scopes import call_name, dotted

_NO_OPTIMIZER: Final = re.compile(r"sched|warmup|prof|env|bar|progress", re.IGNORECASE)
# pytorch_lightning 1.9 trainer/trainer.py from_argparse_args, besides the class itself.
_TRAINERS: Final = frozenset({"Trainer", "from_argparse_args"})


def centre_of(script: Script) -> tuple[Kind, ReachedCall] | None:
    """Who runs backward, and where, if an optimizer steps too."""
    backward = [(_kind(script, step), step) for step in script.steps if step.last == "backward"]
    found = [(kind, step) for kind, step in backward if kind is not None]
    if found and (_steps(script) or found[0][0] == "deepspeed"):
        kind, step = found[0]
        return kind, step
    return _fits(script)


def _steps(script: Script) -> bool:
    for call in script.tree.calls_to("step"):
        holder = dotted(call.func.value) if isinstance(call.func, ast.Attribute) else None
        if holder is not None and not _NO_OPTIMIZER.search(holder.rpartition(".")[2]):
            return True
    return False


def _kind(script: Script, step: ReachedCall) -> Kind | None:
    """Of a call of ``backward``: who runs it; that of an autograd function is nobody's."""
    function = step.node.func
    if not isinstance(function, ast.Attribute):
        return None
    if not step.node.args and not step.node.keywords:
        return "torch"
    makers = {call_name(call) for call in script.flow.made(function.value, step.scope)}
    if "Accelerator" in makers:
        return "accelerate"
    if "Fabric" in makers:
        return "fabric"
    if "initialize" in makers:
        return "deepspeed"
    holder = (dotted(function.value) or "").rpartition(".")[2].lower()
    if "accelerator" in holder and "accelerate.Accelerator" in script.tree.scopes.imports:
        return "accelerate"
    if holder == "fabric" and imports_lightning(script.tree):
        return "fabric"
    return "torch" if _keeps_graph(step.node) else None


def _fits(script: Script) -> tuple[Kind, ReachedCall] | None:
    """``Trainer(...).fit(module)`` of Lightning, where the module is defined in the project."""
    if not imports_lightning(script.tree):
        return None
    is_here = any(map(is_trained, parts_in(script.tree)))
    for step in script.steps:
        if step.last == "fit" and isinstance(step.node.func, ast.Attribute):
            makers = {call_name(c) for c in script.flow.made(step.node.func.value, step.scope)}
            if makers & _TRAINERS and (is_here or parts_of(script, step)):
                return "lightning", step
    return None


def parts_of(script: Script, step: ReachedCall) -> tuple[ProjectClass, ...]:
    """The classes of the project whose objects the call at the centre of a loop is given."""
    found = given_to(
        step.node, step.scope, script.flow, script.evaluator.modules, script.places.source
    )
    return tuple(dict.fromkeys(found))


def _keeps_graph(call: ast.Call) -> bool:
    """``loss.backward(retain_graph=True)``."""
    return not call.args and {k.arg for k in call.keywords} <= {"retain_graph", "gradient"}
