"""What trainers of the project's own do otherwise than the library's, in whatever files their classes stand.

A method that they put in the place of the library's is followed where it comes back to that one, or does what that
one does: a ``compute_loss`` that takes the model's loss or its logits, a loader with the batch size of the arguments.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

from msgspec import Struct

from oomlint.documents.base import Call, Fact, Scalar
from oomlint.documents.python.loss_facts import (
    class_facts,
    is_of_its_own,
    names_logits,
    reads_logits,
)
from oomlint.documents.python.modules import Module, Modules, class_line
from oomlint.documents.python.scopes import dotted
from oomlint.documents.python.trainer_names import names_trainer
from oomlint.documents.python.values import NodeSpans
from oomlint.documents.python.walking import walk
from oomlint.documents.text import Location

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

# Methods of transformers' Trainer (5.23 trainer.py) and of TRL's (0.14 to f2cd5771 trainer/{dpo,grpo,rloo,kto,orpo,
# cpo}_trainer.py), by what they decide.
_DECIDES: Mapping[str, str] = {
    "compute_loss": "loss",
    "_compute_loss": "loss",
    "get_batch_loss_metrics": "loss",
    "concatenated_forward": "loss",
    "_get_per_token_logps": "loss",
    "_get_per_token_logps_and_entropies": "loss",
    "training_step": "steps",
    "_inner_training_loop": "steps",
    "train": "steps",
    "prediction_step": "evaluation",
    "evaluation_loop": "evaluation",
    "prediction_loop": "evaluation",
    "evaluate": "evaluation",
    "create_optimizer": "optimizer",
    "create_optimizer_and_scheduler": "optimizer",
    "get_train_dataloader": "batches",
    "_wrap_model": "sharding",
    "create_accelerator_and_postprocess": "sharding",
}
# Who starts a step, and what one consists of.
_STEPS = frozenset({"training_step", "_inner_training_loop"})
# HF/trainer.py: what ``train`` starts, and what that begins with where DeepSpeed is on; loops copied of it do so, too.
_LIBRARYS_LOOP = frozenset({"_inner_training_loop", "deepspeed_init"})
_BATCH_SIZE = re.compile(r"^_?(?:per_device_)?train_batch_size$")
# HF/trainer.py get_optimizer_cls_and_kwargs: the class that ``optim`` names.
_OPTIMIZER = "get_optimizer_cls_and_kwargs"


def own_trainer_facts(file: Module, calls: Sequence[Call], modules: Modules) -> Iterator[Fact]:
    """Facts of the kind ``own-loop`` (``class``, ``method``): that a trainer of the project's own that the script calls
    never comes to the library's loop; of the kind ``own-way`` (``class``, ``method``, ``decides``): a method that is not
    followed of such, or (``of``) the package of one that is not known, or (``model``) the
    class of the project's own that makes what it is given; and those of :func:`.loss_facts.class_facts` of trainers
    whose class stands in another file."""
    for name in dict.fromkeys(call.callee for call in calls if names_trainer(call.callee)):
        trainer = _Trainer(name, tuple(class_line(name, file, modules)))
        for home, cls in trainer.line:
            if home.source is not file.source:
                yield from class_facts(cls, name, home.source, NodeSpans(home.source))
        yield from trainer.own_loop()
        yield from trainer.own_ways()
        yield from _of_strangers(name, file, trainer.line, calls)
        yield from _of_own_model(name, file, calls, modules)


# Whose trainers are known; and what those of others have of their own more often than not.
_KNOWN = frozenset({"transformers", "trl", "unsloth"})
_OWN = ("loss", "evaluation")


def _of_strangers(
    name: str, file: Module, line: Sequence[tuple[Module, ast.ClassDef]], calls: Sequence[Call]
) -> Iterator[Fact]:
    """That a trainer is one of a package that is not known, or derived from such: it may have a loss and an evaluation
    of its own."""
    named = [(home, dotted(base) or "") for home, cls in line for base in cls.bases]
    for home, written in named or [(file, name)]:
        qualified = home.qualified(written)
        package = qualified.lstrip(".").partition(".")[0]
        is_here = any(cls.name == written.rpartition(".")[2] for _, cls in line)
        if qualified == written or is_here or package in _KNOWN or not names_trainer(written):
            continue
        span = next(call.span for call in calls if call.callee == name)
        where = Location(file.source.path, span)
        for decides in _OWN:
            yield Fact(
                "own-way", where, {"class": name, "method": "", "decides": decides, "of": package}
            )
        return


def _of_own_model(
    name: str, file: Module, calls: Sequence[Call], modules: Modules
) -> Iterator[Fact]:
    """That what a trainer is given is made by a class of the project's own (``model = RewardModel(base)``), whose
    forward pass may have no logits."""
    for call in calls:
        entries = call.arguments.entries
        given = (entries.get("model") or entries.get("0")) if call.callee == name else None
        if given is None:
            continue
        span = given.value.via if isinstance(given.value, Scalar) else None
        span = given.value.span if span is None else span
        written = file.source.text[span.start : span.end]
        for made in _makers(written, file):
            if _is_module(made, file, modules):
                where = Location(file.source.path, call.span)
                for decides in _OWN:
                    detail = {"class": name, "method": "", "decides": decides, "model": made}
                    yield Fact("own-way", where, detail)
                return


def _makers(name: str, file: Module) -> Iterator[str]:
    """What is called for the values that a name is given in a file."""
    for assignment in file.tree.assignments:
        if isinstance(assignment.value, ast.Call) and name in map(dotted, assignment.targets):
            yield dotted(assignment.value.func) or ""


# torch 2.9 nn/modules/module.py, transformers 5.23 modeling_utils.py: what has no forward pass of its own.
_BARE = frozenset({"Module", "PreTrainedModel"})


def _is_module(name: str, file: Module, modules: Modules) -> bool:
    """Whether a class of the project is derived from what has no head of a library's."""
    line = [cls for _, cls in class_line(name, file, modules)]
    bases = {(dotted(base) or "").rpartition(".")[2] for cls in line for base in cls.bases}
    return not bases.isdisjoint(_BARE)


class _Trainer(Struct, frozen=True, eq=False, dict=True):
    """``name`` as the script calls it."""

    name: str
    line: tuple[tuple[Module, ast.ClassDef], ...]

    @cached_property
    def methods(self) -> Mapping[str, tuple[Module, Function]]:
        """The methods of a class, each with the module in which the first of its line defines it."""
        found: dict[str, tuple[Module, Function]] = {}
        for home, cls in self.line:
            for statement in cls.body:
                if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    found.setdefault(statement.name, (home, statement))
        return found

    def own_ways(self) -> Iterator[Fact]:
        for method, decides in _DECIDES.items():
            home, function = self.methods.get(method, (None, None))
            if home is None or function is None or self._is_followed(function, decides):
                continue
            where = Location(home.source.path, NodeSpans(home.source).span(function))
            detail = {"class": self.name, "method": method, "decides": decides}
            yield Fact("own-way", where, detail)

    def own_loop(self) -> Iterator[Fact]:
        """Where ``train`` is the project's own, and comes back to the library's no more than it does what that begins
        with."""
        home, function = self.methods.get("train", (None, None))
        if home is None or function is None:
            return
        if not any(_is_above(node, "train") or _names_loop(node) for node in self._nodes(function)):
            where = Location(home.source.path, NodeSpans(home.source).span(function))
            yield Fact("own-loop", where, {"class": self.name, "method": "train"})

    def _is_followed(self, function: Function, decides: str) -> bool:
        nodes = list(self._nodes(function))
        if any(_is_above(node, function.name) for node in nodes):
            return True
        if decides == "loss" and function.name == "compute_loss" and self._spares_logits(function):
            return True  # see loss_facts
        does: Callable[[ast.AST], bool] = _DOES[decides]
        return any(does(node) or self._hands_on(node, decides) for node in nodes)

    def _spares_logits(self, function: Function) -> bool:
        is_plain = isinstance(function, ast.FunctionDef) and is_of_its_own(function)
        return is_plain and not any(names_logits(cls) for _, cls in self.line)

    def _hands_on(self, node: ast.AST, decides: str) -> bool:
        """Whether it calls a method of the library's that decides the same."""
        called = _called_of_self(node)
        return _DECIDES.get(called) == decides and called not in self.methods

    def _nodes(self, function: Function) -> Iterator[ast.AST]:
        """All of a method, and of those of the trainer's own that it calls."""
        todo, seen = [function], {function.name}
        while todo:
            for node in walk(todo.pop()):
                yield node
                called = _called_of_self(node)
                if called in self.methods and called not in seen:
                    seen.add(called)
                    todo.append(self.methods[called][1])


def _called_of_self(node: ast.AST) -> str:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)):
            return name
    return ""


def _is_above(node: ast.AST, method: str) -> bool:
    """``super().method(...)``."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name)):
            return name == method
    return False


def _names_loop(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name in _LIBRARYS_LOOP
    return False


def _runs_model(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and dotted(node.func) in ("model", "self.model")


def _takes_loss(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(attr="loss", ctx=ast.Load()):
            return True
        case ast.Subscript(slice=ast.Constant(value="loss"), ctx=ast.Load()):
            return True
        case ast.Subscript(
            value=ast.Call() | ast.Name(id="output" | "outputs"), slice=ast.Constant(value=0)
        ):
            return True
    return reads_logits(node)


def _steps(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and (dotted(node.func) or "").rpartition(".")[2] == "backward"


def _evaluates(node: ast.AST) -> bool:
    return _runs_model(node) or _called_of_self(node) in ("compute_loss", "prediction_step")


def _takes_chosen(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == _OPTIMIZER


def _batches(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and _BATCH_SIZE.match(node.attr) is not None


_DOES: Mapping[str, Callable[[ast.AST], bool]] = {
    "loss": _takes_loss,
    "steps": lambda node: _steps(node) or _called_of_self(node) in _STEPS,
    "evaluation": _evaluates,
    "optimizer": _takes_chosen,
    "batches": _batches,
    "sharding": lambda node: False,
}
"""What a method of the project's own does that the library's does, too."""
