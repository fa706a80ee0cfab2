"""A script as those who read its loop see it."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from oomlint.documents.base import Call
from oomlint.documents.python.calls import ReachedCall
from oomlint.documents.python.flow import Flow
from oomlint.documents.python.scopes import dotted
from oomlint.documents.python.tree import Tree
from oomlint.documents.python.values import Evaluator, NodeSpans

# Classes of optimizers, by torch, bitsandbytes, DeepSpeed, apex, transformers, torchao and packages
# of single ones; accelerate's DummyOptim stands for the one that a DeepSpeed config names.
OPTIMIZER: Final = re.compile(
    r"(?:Paged|Fused|DeepSpeedCPU|CPU|AnyPrecision|GaLore|Distributed)?"
    r"(?:Adam|AdamW|SGD|Lion|Lamb|LAMB|LARS|RMSprop|Adagrad|AdEMAMix|Adafactor|Muon|Lomo|AdaLomo"
    r"|CAME|SophiaG|Prodigy|Shampoo)(?:W?(?:4|8|32)bit|WFp8|_mini|WScheduleFree|ScheduleFree)?"
    r"|DummyOptim"
)
_LOADERS: Final = ("from_pretrained", "from_config")


class Script(Struct, frozen=True, eq=False):
    """A script as those who read its loop see it: ``node_of`` is the syntax of its calls, by ``id``, ``loaders`` are
    those that load a model, by the ``id`` of their syntax."""

    tree: Tree
    steps: Sequence[ReachedCall]
    evaluator: Evaluator
    places: NodeSpans
    calls: Sequence[Call]
    node_of: dict[int, ast.Call]
    flow: Flow
    loaders: dict[int, Call]
    optimizers: tuple[Call, ...]

    @classmethod
    def of(
        cls,
        tree: Tree,
        steps: Sequence[ReachedCall],
        evaluator: Evaluator,
        places: NodeSpans,
        calls: Sequence[Call],
        origin: dict[int, ReachedCall],
    ) -> Script:
        node_of = {id(call): origin[id(call)].node for call in calls}
        loaders = {id(node_of[id(call)]): call for call in calls if loads_model(call)}
        optimizers = tuple(c for c in calls if OPTIMIZER.fullmatch(c.callee.rpartition(".")[2]))
        return cls(tree, steps, evaluator, places, calls, node_of, Flow(tree), loaders, optimizers)

    def named(self, last: str) -> dict[int, Call]:
        """The calls of a name, by the ``id`` of their syntax."""
        found = (call for call in self.calls if call.callee.rpartition(".")[2] == last)
        return {id(self.node_of[id(call)]): call for call in found}

    def call(self, step: ReachedCall) -> Call:
        """A step as a call that stands behind all others."""
        arguments = replace(
            self.evaluator.arguments(step.node, step.scope), guards=step.guards, arms=step.arms
        )
        name = dotted(step.node.func) or step.last
        return Call(name, arguments, self.places.span(step.node), len(self.calls))


def loads_model(call: Call) -> bool:
    """Whether a call loads or builds a model, and not its config."""
    holder, _, method = call.callee.rpartition(".")
    return method in _LOADERS and "config" not in holder.lower()
