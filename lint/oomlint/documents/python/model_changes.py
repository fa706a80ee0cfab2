"""What a script makes of a model once it is loaded: another dtype, a forward pass of the project's own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Any

from oomlint.documents.base import Fact, Scalar
from oomlint.documents.python.calls import ReachedCall
from oomlint.documents.python.scopes import call_name, dotted
from oomlint.documents.python.tree import Tree
from oomlint.documents.python.values import Evaluator, NodeSpans
from oomlint.documents.text import Location, Source

# torch 2.9 nn/modules/module.py.
_CASTS = {"half": "fp16", "bfloat16": "bf16", "float": "fp32", "to": None}
_DTYPES = {
    "torch.float16": "fp16",
    "torch.half": "fp16",
    "torch.bfloat16": "bf16",
    "torch.float32": "fp32",
    "torch.float": "fp32",
}
# What scripts call the model that they train.
_MODEL = re.compile(r"(?:self\.)?(?:base_)?model")
_LOADS = re.compile(r"(?:^|\.)(?!Peft)\w*(?:Model|LM)\w*\.from_pretrained$")
_TRAINER = re.compile(r"trainer$", re.IGNORECASE)
_OF_ATTENTION = re.compile(r"att(?:entio)?n", re.IGNORECASE)
_OF_HEAD = re.compile(
    r"(?:For(?:CausalLM|ConditionalGeneration)|LMHeadModel|(?:^|[._])model)\.forward$"
)


def model_change_facts(
    source: Source,
    tree: Tree,
    places: NodeSpans,
    evaluator: Evaluator,
    steps: Sequence[ReachedCall],
) -> Iterator[Fact]:
    """Facts of these kinds: ``casts-model`` (``dtype``, ``None`` where only running tells it, and ``guards``), of what
    comes before a trainer trains; ``patches-forward`` (``target``, ``decides``: ``loss`` or ``attention``)."""
    if "from_pretrained" not in tree.calls:
        return
    for step in steps:
        if step.last == "train" and _TRAINER.search(_owner(step)):
            break
        if step.last in _CASTS and _is_of_model(step):
            dtype: Any = _dtype(step, evaluator)
            if dtype is not NotImplemented:
                where = Location(source.path, places.span(step.node))
                detail = {"dtype": None if step.arms else dtype, "guards": step.guards}
                yield Fact("casts-model", where, detail)
    for assignment in tree.assignments:
        for target in filter(None, map(dotted, assignment.targets)):
            decides = _decided_by(target)
            if decides:
                where = Location(source.path, places.span(assignment))
                yield Fact("patches-forward", where, {"target": target, "decides": decides})


def _owner(step: ReachedCall) -> str:
    function = step.node.func
    return (dotted(function.value) or "") if isinstance(function, ast.Attribute) else ""


def _is_of_model(step: ReachedCall) -> bool:
    """``model.half()`` and ``AutoModel.from_pretrained(...).half()``."""
    function = step.node.func
    if not isinstance(function, ast.Attribute):
        return False
    if isinstance(function.value, ast.Call):
        loader = function.value
        return call_name(loader) == "from_pretrained" and bool(
            _LOADS.search(dotted(loader.func) or "")
        )
    return _MODEL.fullmatch(dotted(function.value) or "") is not None


def _dtype(step: ReachedCall, evaluator: Evaluator) -> Any:
    """The dtype of a cast, ``None`` where only running tells it; ``NotImplemented`` of what moves a model alone."""
    given = [*step.node.args, *(each.value for each in step.node.keywords if each.arg == "dtype")]
    if step.last != "to":
        return NotImplemented if step.node.args or step.node.keywords else _CASTS[step.last]
    for value in given:
        node = evaluator.node(value, step.scope)
        said = str(node.value) if isinstance(node, Scalar) else ""
        if said in _DTYPES:
            return _DTYPES[said]
        if "dtype" in ast.unparse(value):
            return None
    return NotImplemented


def _decided_by(target: str) -> str:
    if not target.endswith(".forward"):
        return ""
    if _OF_ATTENTION.search(target):
        return "attention"
    return "loss" if _OF_HEAD.search(target) else ""
