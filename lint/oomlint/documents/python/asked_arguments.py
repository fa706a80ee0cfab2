"""Which arguments of training a script is sure to ask its parsed, or made, object for before it trains, and which it is sure
to make one with."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import Struct

from oomlint.documents.python.calls import ReachedCall
from oomlint.documents.python.nodes import Guard
from oomlint.documents.python.parsers import dataclass_variables
from oomlint.documents.python.scopes import call_name
from oomlint.documents.python.tree import Tree
from oomlint.documents.python.walking import children, walk
from oomlint.documents.text import Edit, Source, Span

_OF_TRAINING = re.compile(r"^(?:trl|transformers)\.(?:.*\.)?\w*(?:Config|TrainingArguments)$")
_TRAINER = re.compile(r"^(?:trl|transformers)\.(?:.*\.)?\w*Trainer$")
MAIN_PROCESS = frozenset(
    {("is_main_process", True), ("main_process", True), ("is_world_process_zero", True)}
    | {("local_rank", False), ("rank", False), ("process_index", False)}
)
"""Guards that hold in one process of every run."""
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
# What is evaluated only sometimes.
_PERHAPS = (
    *_DEFINITIONS,
    ast.IfExp,
    ast.BoolOp,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)
_LEAVES = frozenset({"exit", "_exit", "quit"})


def renamed(source: Source, asked: Collection[Span], argument: str, now: str) -> tuple[Edit, ...]:
    """Edits that have a script ask for an argument under another name wherever it does (``args.max_seq_length``, each
    ``asked`` up to its end); none where the word is an attribute elsewhere, too."""
    old, ends = f".{argument}", {span.end for span in asked}
    if len(re.findall(rf"\{old}\b", source.text)) != len(ends):
        return ()
    if not all(source.text[:end].endswith(old) for end in ends):
        return ()
    return tuple(Edit(source.path, end - len(argument), end, now) for end in sorted(ends))


class Asked(Struct, frozen=True):
    """``training_args.dataset_num_proc`` in a call: of which class it is asked, and the switches that lead there."""

    step: ReachedCall
    node: ast.Attribute
    of_class: str
    guards: tuple[Guard, ...]


class Made(Struct, frozen=True):
    """``TrainingArguments(eval_strategy="no")``, ``SFTTrainer(tokenizer=tokenizer)``: the call, its keywords, and the switches
    that lead there."""

    step: ReachedCall
    keywords: Mapping[str, ast.expr]
    guards: tuple[Guard, ...]


def asked_arguments(
    tree: Tree, steps: Sequence[ReachedCall], may_train: re.Pattern[str]
) -> Iterator[Asked]:
    """The attributes that calls ahead of all that may train are given, of objects of a library's arguments of
    training."""
    variables = _variables(tree, steps)
    if not variables:
        return
    set_here = set(_set_attributes(tree))
    for step, guards in _sure_steps(tree, steps, may_train):
        for node in _given(step.node):
            holder = node.value
            if (
                isinstance(holder, ast.Name)
                and holder.id in variables
                and node.attr not in set_here
            ):
                yield Asked(step, node, variables[holder.id], guards)


def made_arguments(
    tree: Tree, steps: Sequence[ReachedCall], may_train: re.Pattern[str]
) -> Iterator[Made]:
    """The calls that make a library's arguments of training, or its trainer, ahead of all that may train."""
    if not any(_is_made(step.name) for step in steps):
        return
    for step, guards in _sure_steps(tree, steps, may_train):
        if _is_made(step.name):
            keywords = {each.arg: each.value for each in step.node.keywords if each.arg}
            yield Made(step, keywords, guards)


def _is_made(name: str) -> bool:
    return bool(_OF_TRAINING.match(name) or _TRAINER.match(name))


def _sure_steps(
    tree: Tree, steps: Sequence[ReachedCall], may_train: re.Pattern[str]
) -> Iterator[tuple[ReachedCall, tuple[Guard, ...]]]:
    """The calls that a run is sure to reach ahead of all that may train, and the switches that lead there."""
    left_at: dict[ast.AST, int] = {}
    for step in steps:
        is_own = step.last in tree.scopes.functions
        trains = step.last[:1].islower() and may_train.search(step.last) and not is_own
        if not step.reached or trains:
            return
        home = step.function or tree.root
        if home not in left_at:
            left_at[home] = _first_leave(home.body)
        if left_at[home] < step.node.lineno or id(step.node) in tree.tried:
            return
        if len(step.arms) <= len(step.guards):
            yield step, tuple(guard for guard in step.guards if guard not in MAIN_PROCESS)


def _variables(tree: Tree, steps: Sequence[ReachedCall]) -> dict[str, str]:
    """Variables that hold a library's arguments of training and nothing else, with the class as imported."""
    named = dataclass_variables(tree)
    made = {id(step.node): step.name for step in steps}
    counts: dict[str, int] = {}
    for node in tree.assignments:
        for target in node.targets:
            for each in (target,) if isinstance(target, ast.Name) else walk(target):
                if isinstance(each, ast.Name):
                    counts[each.id] = counts.get(each.id, 0) + 1
        if (
            len(node.targets) == 1
            and isinstance(node.targets[0], ast.Name)
            and id(node.value) in made
        ):
            named.setdefault(node.targets[0].id, made[id(node.value)])
    scopes = {id(step.scope): step.scope for step in steps}.values()
    found = {
        name: next((home for scope in scopes if (home := scope.imported(cls))), cls)
        for name, cls in named.items()
        if counts.get(name) == 1
    }
    return {name: cls for name, cls in found.items() if _OF_TRAINING.match(cls)}


def _set_attributes(tree: Tree) -> Iterator[str]:
    for node in tree.of_kind(ast.Attribute):
        if not isinstance(node.ctx, ast.Load):
            yield node.attr


def _given(call: ast.Call) -> Iterator[ast.Attribute]:
    """The attributes that are surely read for a call."""
    waiting: list[ast.AST] = [*call.args, *(keyword.value for keyword in call.keywords)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, _PERHAPS):
            continue
        if isinstance(node, ast.Attribute):
            yield node
        waiting += children(node)


def _first_leave(body: Sequence[ast.stmt]) -> int:
    """The first line at which a body may be left; one behind all others where it is not."""
    first = sys.maxsize
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, _DEFINITIONS) or _line(node) >= first:
            continue
        leaves = isinstance(node, ast.Call) and call_name(node) in _LEAVES
        if isinstance(node, ast.Return) or leaves:
            first = _line(node)
        else:
            waiting += children(node)
    return first


def _line(node: ast.AST) -> int:
    return node.lineno if isinstance(node, (ast.stmt, ast.expr)) else 0
