"""A training loop that a script writes out itself: who runs backward, which model it trains.

A file is one by what it does: it calls ``backward`` and lets an optimizer step, or hands a
LightningModule to ``Trainer.fit``. A script that only runs a model forward never is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from oomlint.documents.base import UNKNOWN, Call, Entry, Mapping, Scalar
from oomlint.documents.python.calls import ReachedCall
from oomlint.documents.python.lightning import (
    imports_lightning,
    parts_in,
)
from oomlint.documents.python.loops.centre import centre_of, parts_of
from oomlint.documents.python.loops.engine_config import engine_config, is_idle
from oomlint.documents.python.loops.loop import Kind, Loop
from oomlint.documents.python.loops.models import (
    behind_load,
    casts,
    checkpoints,
    comes_after,
    configs,
    frozen,
    kept_outputs,
    outputs_last,
    trained_by_name,
    trained_loads,
    used_by,
)
from oomlint.documents.python.loops.script import Script
from oomlint.documents.python.loops.steps import (
    accumulation,
    autocasts,
    batches,
    clears_late,
    for_training,
    has_own_loss,
    splits_samples,
    takes_narrow_logits,
)
from oomlint.documents.python.named_lengths import named_lengths
from oomlint.documents.python.process_variables import variable_set
from oomlint.documents.python.tree import Tree
from oomlint.documents.python.values import Evaluator, NodeSpans
from oomlint.documents.python.wording import code_says
from oomlint.documents.text import Span

_JOINS: Final = re.compile(
    r"torch\.distributed|LOCAL_RANK|WORLD_SIZE|init_process_group|device_mesh|tp_plan"
)
# A model is put in order for it or its gradients are switched off, or a function is called like it.
_EVALUATES: Final = re.compile(
    r"no_grad|inference_mode|set_grad_enabled|\beval\(|\beval\b|evaluat|validation|validate\(|\bval_|_eval\b|\beval_"
    r"|perplexity|\btest_",
    re.IGNORECASE,
)

MAKE_LOOPS: Final = frozenset({"backward", "fit"})
"""A script that calls neither has no loop."""


def read_loop(
    tree: Tree,
    steps: Sequence[ReachedCall],
    evaluator: Evaluator,
    places: NodeSpans,
    calls: Sequence[Call],
    origin: dict[int, ReachedCall],
) -> Loop | None:
    """The loop of a script; ``None`` where it has none, or trains several models at once."""
    if not tree.calls.keys() & MAKE_LOOPS:
        return None
    script = Script.of(tree, steps, evaluator, places, calls, origin)
    centre = centre_of(script)
    return None if centre is None else _loop(script, *centre)


def read_parts(
    tree: Tree,
    steps: Sequence[ReachedCall],
    evaluator: Evaluator,
    places: NodeSpans,
    calls: Sequence[Call],
    origin: dict[int, ReachedCall],
) -> tuple[Loop, ...]:
    """What each class of a file says that Lightning trains, or takes batches from, in another file."""
    if "fit" in tree.calls or not imports_lightning(tree):
        return ()
    families = tuple(parts_in(tree))
    if not families:
        return ()
    script = Script.of(tree, steps, evaluator, places, calls, origin)
    found = (_part(script, family) for family in families)
    return tuple(part for part in found if part is not None)


def _loop(script: Script, kind: Kind, step: ReachedCall) -> Loop | None:
    before = {n: call for n, call in script.loaders.items() if not comes_after(script, call, step)}
    script = replace(script, loaders=before)
    models = trained_loads(script)
    parts = parts_of(script, step) if kind == "lightning" else ()
    if not models and not parts:
        return None
    trained = {id(script.node_of[id(model)]) for model in models}
    others = tuple(call for node, call in script.loaders.items() if node not in trained)
    outputs = kept_outputs(script, trained, step)
    return Loop(
        kind,
        script.call(step),
        models,
        others,
        tuple(configs(script, models)),
        script.optimizers,
        batches(script, step),
        tuple(casts(script, trained)),
        tuple(autocasts(script)),
        frozen(script, trained),
        trained_by_name(script, trained),
        checkpoints(script),
        code_says(script.tree.root, script.places.source.text, _JOINS),
        bool(parts) or code_says(script.tree.root, script.places.source.text, _EVALUATES),
        _ranks(script),
        splits_samples(script),
        accumulation(script),
        has_own_loss(script, kind, step),
        None if outputs is None else bool(outputs),
        clears_late(script, step),
        takes_narrow_logits(script, kind, step),
        _switches(script),
        engine_config(script),
        behind_load(script, models),
        tuple(named_lengths(script.evaluator)),
        parts,
        outputs_last=outputs_last(outputs or (), script, step),
        is_started=step.function is None,
        idle_plugins=frozenset(call.span for call in script.calls if is_idle(script, call)),
    )


def _part(script: Script, family: Sequence[ast.ClassDef]) -> Loop | None:
    """What a class loads, optimizes and takes batches from; what stands outside of all classes it may use."""
    script = replace(script, loaders=used_by(script, family, script.loaders))
    models = tuple(script.loaders.values())
    makers = script.named("DataLoader")
    batches = for_training(script, used_by(script, family, makers))
    if not models and batches is None:
        return None
    made = {id(script.node_of[id(call)]): call for call in script.optimizers}
    trained = {id(script.node_of[id(model)]) for model in models}
    return Loop(
        "lightning",
        models[0] if models or batches is None else batches,
        models,
        configs=tuple(configs(script, models)),
        optimizers=tuple(used_by(script, family, made).values()),
        batches=batches,
        casts=tuple(casts(script, trained)),
        frozen=frozen(script, trained) if models else None,
        checkpoints=checkpoints(script),
        switches=_switches(script),
        behind_load=behind_load(script, models),
        lengths=tuple(named_lengths(script.evaluator)),
        name=family[0].name,
    )


def _ranks(script: Script) -> Scalar | None:
    """``os.environ.setdefault("WORLD_SIZE", "1")``: the number of processes, where it is one number."""
    found = list(variable_set("WORLD_SIZE", script.tree, script.steps))
    nodes = [script.evaluator.node(value, scope) for value, scope in found]
    numbers = {str(node.value) for node in nodes if isinstance(node, Scalar)}
    if len(numbers) != 1 or not (number := numbers.pop()).isdigit():
        return None
    return Scalar(script.places.span(found[0][0]), int(number), locked="a launcher may set it")


def _switches(script: Script) -> Mapping | None:
    entries: dict[str, Entry] = {}
    for name, value in script.evaluator.options.items():
        node = script.evaluator.node(value, script.tree.scopes.module)
        if isinstance(node, Scalar) and node.value is not UNKNOWN:
            entries[name] = Entry(name, node.span, node, node.span)
    if not entries:
        return None
    return Mapping(Span(0, 0), entries, locked="the script's options are no call to add to")
