"""Losses that a script computes itself, in place of the model's over all its logits."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from oomlint.documents.base import Fact
from oomlint.documents.python.scopes import dotted
from oomlint.documents.python.trainer_names import names_trainer
from oomlint.documents.python.values import NodeSpans
from oomlint.documents.python.walking import children, walk
from oomlint.documents.text import Location, Source

# Classes of transformers whose forward projects to the vocabulary.
_HEADED = re.compile(r"(?:For(?:CausalLM|ConditionalGeneration|MaskedLM)|LMHeadModel)$")
# What a Trainer overrides to compute its loss (transformers 5.23 trainer.py).
_STEPS = frozenset({"compute_loss", "training_step", "train", "_inner_training_loop"})
# What is made of the model's logits, here or in another function of the class.
_OF_LOGITS = re.compile(r"logit|logp|log_p|label_smoother")


def loss_facts(source: Source, tree: ast.Module, places: NodeSpans) -> Iterator[Fact]:
    """Facts of the kind ``own-loss`` (``class``, ``function``): a Trainer's ``compute_loss`` or a
    model's ``forward`` that the script defines, in a class where no logits occur, and which
    takes its loss neither from the model nor from the class above. Facts of the kind ``own-passes``
    (``class``, ``passes``): a ``compute_loss`` that runs the model several times before one
    backward pass. Facts of the kind ``loss-alone`` (``class``): a Trainer's ``prediction_step`` that has the class
    above return the loss alone. Facts of the kind ``own-logits`` (``class``, ``function``): a function of a Trainer,
    from ``compute_loss`` up to its whole ``train``, that reads the model's logits."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from class_facts(node, node.name, source, places)


def class_facts(node: ast.ClassDef, name: str, source: Source, places: NodeSpans) -> Iterator[Fact]:
    """The same of one class, of another file too, by the name that the script has for it."""
    bases = [(dotted(base) or "").rpartition(".")[2] for base in node.bases]
    if any(map(names_trainer, bases)):
        wanted = "compute_loss"
    elif any(map(_HEADED.search, bases)):
        wanted = "forward"
    else:
        return
    for function in node.body:
        if not isinstance(function, ast.FunctionDef):
            continue
        where = Location(source.path, places.span(function))
        if wanted == "compute_loss" and _asks_for_loss_alone(function):
            yield Fact("loss-alone", where, {"class": name})
        is_step = wanted == "compute_loss" and function.name in _STEPS
        if is_step and any(map(reads_logits, walk(function))):
            yield Fact("own-logits", where, {"class": name, "function": function.name})
        if function.name != wanted:
            continue
        if is_of_its_own(function) and not names_logits(node):
            yield Fact("own-loss", where, {"class": name, "function": wanted})
        passes = _passes(function.body) if wanted == "compute_loss" else 0
        if passes > 1:
            yield Fact("own-passes", where, {"class": name, "passes": passes})


def _asks_for_loss_alone(function: ast.FunctionDef) -> bool:
    """Whether every call of the step above is told ``prediction_loss_only``, its third argument (transformers
    5.23 trainer.py prediction_step)."""
    steps = [
        node
        for node in walk(function)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "prediction_step"
    ]
    return (
        function.name == "prediction_step" and bool(steps) and all(map(_is_told_loss_alone, steps))
    )


def _is_told_loss_alone(step: ast.Call) -> bool:
    said = next((k.value for k in step.keywords if k.arg == "prediction_loss_only"), None)
    said = step.args[2] if said is None and len(step.args) > 2 else said
    return isinstance(said, ast.Constant) and said.value is True


def _passes(body: Sequence[ast.stmt]) -> int:
    """How often statements run the model with gradients; of two branches the dearer counts."""
    return sum(map(_passes_of, body))


def _passes_of(node: ast.AST) -> int:
    match node:
        case ast.If(test=test, body=then, orelse=other):
            return _passes_of(test) + max(_passes(then), _passes(other))
        case ast.With(items=items) if any(map(_stops_gradients, items)):
            return 0
    own = isinstance(node, ast.Call) and dotted(node.func) in ("model", "self.model")
    return own + sum(map(_passes_of, children(node)))


def _stops_gradients(item: ast.withitem) -> bool:
    call = item.context_expr
    name = dotted(call.func) if isinstance(call, ast.Call) else None
    return (name or "").rpartition(".")[2] in ("no_grad", "inference_mode")


def is_of_its_own(function: ast.FunctionDef) -> bool:
    """Whether it takes its loss neither from the model nor from the class above."""
    returns = False
    for node in walk(function):
        match node:
            case ast.Return(value=ast.expr()):
                returns = True
            case ast.Name(id="super") | ast.Attribute(attr="loss"):
                return False
            case ast.Subscript(slice=ast.Constant(value="loss" | "logits")):
                return False
            case ast.Subscript(
                value=ast.Call() | ast.Name(id="output" | "outputs"), slice=ast.Constant(value=0)
            ):
                return False
            case ast.Call(func=ast.Attribute(attr="lm_head" | "get_output_embeddings")):
                return False
    return returns


def reads_logits(node: ast.AST) -> bool:
    """``outputs.logits``, ``outputs["logits"]`` and ``outputs.get("logits")``."""
    match node:
        case ast.Attribute(attr="logits", ctx=ast.Load()):
            return True
        case ast.Subscript(slice=ast.Constant(value="logits"), ctx=ast.Load()):
            return True
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value="logits"), *_]):
            return True
    return False


def names_logits(node: ast.ClassDef) -> bool:
    """Whether anything in a class is called after logits, or what is made of them."""
    for inner in walk(node):
        match inner:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                pass
            case ast.keyword(arg=str(name)):
                pass
            case _:
                continue
        if _OF_LOGITS.search(name):
            return True
    return False
