"""What one step of a loop takes: its batches, how many of them, what it casts, and the loss."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from oomlint.documents.base import Call, Node
from oomlint.documents.python.calls import ReachedCall
from oomlint.documents.python.loops.loop import Kind
from oomlint.documents.python.loops.models import named_by
from oomlint.documents.python.loops.script import Script
from oomlint.documents.python.scopes import dotted
from oomlint.documents.python.walking import walk
from oomlint.documents.text import Span

_CROSS_ENTROPY: Final = re.compile(
    r"cross_?entropy|(?:^|\.)(?:nll|lm|ce)_loss$|(?:^|\.)(?:loss_f(?:n|ct|unction)|criterion)$",
    re.IGNORECASE,
)
_SPLITS: Final = re.compile(
    r"seq(?:uence)?_?parallel|context_?parallel|ring_?(?:flash_?)?att|zig_?zag|ulysses",
    re.IGNORECASE,
)
_OF_TORCH: Final = re.compile(r"(?:^|\.)(?:cross_entropy|CrossEntropyLoss)$")
_WIDENS: Final = re.compile(r"float32|torch\.float$|torch\.double$|float64")
_STEPS_AGAIN: Final = re.compile(r"accum", re.IGNORECASE)


def batches(script: Script, step: ReachedCall) -> Call | None:
    """The DataLoader that the loop around ``backward`` goes over, or the one for training."""
    makers = script.named("DataLoader")
    if not makers:
        return None
    around = [
        node
        for node in script.tree.nodes
        if isinstance(node, (ast.For, ast.AsyncFor))
        and node.lineno <= step.node.lineno <= (node.end_lineno or 0)
    ]
    for loop in sorted(around, key=lambda node: -node.lineno):
        found = script.flow.leads_to(loop.iter, step.scope, makers)
        if len(found) == 1:
            return makers[found.pop()]
    return for_training(script, makers)


def for_training(script: Script, makers: dict[int, Call]) -> Call | None:
    """Of the calls that make batches the only one, or the one that training is named with."""
    if len(makers) == 1:
        return next(iter(makers.values()))
    trains = [c for n, c in makers.items() if "train" in named_by(script, n, c)]
    return trains[0] if len(trains) == 1 else None


def autocasts(script: Script) -> Iterator[Call]:
    """The calls that make a context in which torch casts."""
    for step in script.steps:
        if step.last == "autocast" and "accelerator" not in step.name and "fabric" not in step.name:
            yield script.call(step)


def splits_samples(script: Script) -> Span | None:
    """A call that divides each sample among the ranks."""
    for step in script.steps:
        if _SPLITS.search(step.last):
            return script.places.span(step.node)
    return None


def accumulation(script: Script) -> Node | None:
    """What a count of batches is divided by before the optimizer steps."""
    for node in script.tree.of_kind(ast.BinOp):
        if isinstance(node.op, ast.Mod):
            name = dotted(node.right)
            if name is not None and _STEPS_AGAIN.search(name):
                return script.evaluator.node(node.right, script.flow.scope_at(node))
    return _waits_for(script)


def _waits_for(script: Script) -> Node | None:
    """The same by another name or by none: ``if (i + 1) % 8 == 0: optimizer.step()``."""
    made = {id(script.node_of[id(call)]) for call in script.optimizers}
    for node in script.tree.of_kind(ast.If):
        counts = [
            each
            for each in walk(node.test)
            if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mod)
        ]
        if len(counts) == 1 and any(_steps(script, each, made) for each in _straight(node.body)):
            return script.evaluator.node(counts[0].right, script.flow.scope_at(node))
    return None


def _straight(body: list[ast.stmt]) -> Iterator[ast.Call]:
    """The calls that statements consist of, those behind further conditions too, and none of a loop inside."""
    for each in body:
        value = each.value if isinstance(each, (ast.Expr, ast.Assign)) else None
        if isinstance(value, ast.Call):
            yield value
        elif isinstance(each, (ast.If, ast.With, ast.Try)):
            yield from _straight(each.body)


def _steps(script: Script, call: ast.Call, made: set[int]) -> bool:
    """``optimizer.step()``, or a scaler's ``step(optimizer)``."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "step":
        return False
    scope = script.flow.scope_at(call)
    return any(script.flow.leads_to(each, scope, made) for each in (call.func.value, *call.args))


def clears_late(script: Script, step: ReachedCall) -> bool:
    """Whether the gradients of the step before are cleared when the loss is there, right before ``backward``, and not
    when that step is through."""
    names = {node.id for node in walk(step.node) if isinstance(node, ast.Name)}
    for block in _blocks(script):
        at = next((i for i, each in enumerate(block) if _holds(each, step.node)), None)
        if at is None or _holds_a_block(block[at]):
            continue
        cleared = [i for i, each in enumerate(block) if _clears(each)]
        if any(i > at for i in cleared):
            return False
        before = [i for i in cleared if i < at]
        return bool(before) and any(_gives_name(each, names) for each in block[: before[-1]])
    return False


def _blocks(script: Script) -> Iterator[list[ast.stmt]]:
    """The bodies of the loops of a script."""
    for node in script.tree.nodes:
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith)):
            yield node.body


def _holds(statement: ast.stmt, call: ast.Call) -> bool:
    return any(node is call for node in walk(statement))


def _holds_a_block(statement: ast.stmt) -> bool:
    return bool(getattr(statement, "body", None))


def _clears(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr == "zero_grad"
    )


def _gives_name(statement: ast.stmt, names: set[str]) -> bool:
    """Whether a statement gives one of the names that ``backward`` runs from its value."""
    if not isinstance(statement, (ast.Assign, ast.With)):
        return False
    stored = (n for n in walk(statement) if isinstance(n, ast.Name))
    return any(n.id in names and isinstance(n.ctx, ast.Store) for n in stored)


def has_own_loss(script: Script, kind: Kind, step: ReachedCall) -> bool:
    """Whether the loss is none of those that the model returns or torch has."""
    if kind == "lightning" or not isinstance(step.node.func, ast.Attribute):
        return False
    return not any(map(_is_usual_loss, script.flow.path(_run_from(step), step.scope)))


def _run_from(step: ReachedCall) -> ast.expr:
    """What backward runs from."""
    assert isinstance(step.node.func, ast.Attribute)
    value = step.node.args[0] if step.node.args else step.node.func.value
    for keyword in step.node.keywords:
        value = keyword.value if keyword.arg == "loss" else value
    return value


def takes_narrow_logits(script: Script, kind: Kind, step: ReachedCall) -> bool:
    """Whether what backward runs from is torch's own cross entropy of logits that nothing makes fp32."""
    if kind == "lightning" or has_own_loss(script, kind, step):
        return False
    values = list(script.flow.path(_run_from(step), step.scope))
    calls = [value for value in values if isinstance(value, ast.Call)]
    if any(_is_usual_loss(value) for value in values if not isinstance(value, ast.Call)):
        return False
    return any(_is_of_torch(script, call) for call in calls) and not any(map(_widens, calls))


def _is_of_torch(script: Script, call: ast.Call) -> bool:
    """``F.cross_entropy(...)``, ``CrossEntropyLoss()(...)``, or a name for the latter's object."""
    made = [call.func] if isinstance(call.func, ast.Call) else []
    made += script.flow.made(call.func, script.flow.scope_at(call))
    names = (dotted(call.func), *(dotted(each.func) for each in made))
    return any(_OF_TORCH.search(name or "") for name in names)


def _widens(call: ast.Call) -> bool:
    """``logits.float()``, ``logits.to(torch.float32)``."""
    if not isinstance(call.func, ast.Attribute):
        return False
    said = (*call.args, *(keyword.value for keyword in call.keywords))
    return call.func.attr in ("float", "double") or (
        call.func.attr in ("to", "type") and any(_WIDENS.search(dotted(v) or "") for v in said)
    )


def _is_usual_loss(value: ast.expr) -> bool:
    """``outputs.loss``, ``outputs[0]``, ``outputs["loss"]``, or a cross entropy."""
    if isinstance(value, ast.Attribute):
        return value.attr == "loss" and dotted(value) != "self.loss"
    if isinstance(value, ast.Subscript):
        key = value.slice
        return isinstance(key, ast.Constant) and key.value in (0, "loss")
    if not isinstance(value, ast.Call):
        return False
    # CrossEntropyLoss()(logits, labels) calls what it has made.
    called = value.func.func if isinstance(value.func, ast.Call) else value.func
    return bool(_CROSS_ENTROPY.search(dotted(called) or ""))
