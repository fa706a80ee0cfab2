"""What a function makes of the samples that SFTTrainer gives it (``formatting_func``), where its text tells."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from oomlint.documents.base import Fact
from oomlint.documents.python.calls import ReachedCall
from oomlint.documents.python.scopes import FunctionNode
from oomlint.documents.python.tree import Tree
from oomlint.documents.python.values import NodeSpans
from oomlint.documents.python.walking import walk
from oomlint.documents.text import Location, Source

_ARGUMENT = "formatting_func"
_OF_TEXT = frozenset({"format", "join", "strip", "lstrip", "rstrip", "replace"})
# By these, samples may have tokens, or be of a class of the project's own, before the trainer sees them.
_PREPARED_WORDS = (
    "input_ids",
    "skip_prepare_dataset",
    "IterableDataset",
    "ConstantLengthDataset",
    "dataset_text_field",
)


def formatted_sample_facts(
    source: Source, tree: Tree, places: NodeSpans, steps: Sequence[ReachedCall]
) -> Iterator[Fact]:
    """Facts of one kind, ``formats-samples``: ``gives``, whether the function returns a ``text`` or a ``list-of-one``,
    whatever it is given, the ``guards`` around the trainer's call, whether that ``is_sure`` to be reached, and whether it
    ``is_plain`` that nothing else makes tokens."""
    for step in steps:
        argument = next((k.value for k in step.node.keywords if k.arg == _ARGUMENT), None)
        if step.last != "SFTTrainer" or not isinstance(argument, ast.Name):
            continue
        function = tree.scopes.functions.get(argument.id)
        bound = step.scope.find(argument.id)
        if function is None or bound is None or [b.kind for b in bound[1]] != ["definition"]:
            continue
        gives = _given_by(function)
        if gives:
            detail = {
                "gives": gives,
                "guards": step.guards,
                "is_sure": step.reached and len(step.arms) == len(step.guards),
                "is_plain": not any(word in source.text for word in _PREPARED_WORDS),
            }
            yield Fact("formats-samples", Location(source.path, places.span(step.node)), detail)


def _given_by(function: FunctionNode) -> str:
    """What each of a function's ``return`` gives; empty where they differ or only running them tells."""
    if not isinstance(function, ast.FunctionDef):
        return ""
    nodes = list(_own_nodes(function))
    returned = [node.value for node in nodes if isinstance(node, ast.Return)]
    if not returned or any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in nodes):
        return ""
    texts = _texts(nodes)
    if all(value is not None and _is_text(value, texts) for value in returned):
        return "text"
    if all(
        isinstance(value, ast.List) and len(value.elts) == 1 and _is_text(value.elts[0], texts)
        for value in returned
    ):
        return "list-of-one"
    return ""


def _own_nodes(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function but those of functions inside it."""
    inner = {
        id(below)
        for node in walk(function)
        if node is not function and isinstance(node, (ast.FunctionDef, ast.Lambda))
        for below in walk(node)
    }
    return (node for node in walk(function) if id(node) not in inner)


def _texts(nodes: Sequence[ast.AST]) -> frozenset[str]:
    """The names to which a function gives texts alone, one after the other."""
    given: dict[str, list[ast.expr | None]] = {}
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                given.setdefault(name, []).append(value)
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Add()):
                pass  # nothing but a text can be added to one
            case ast.Name(id=name, ctx=ast.Store()):
                given.setdefault(name, []).append(None)
            case _:
                pass
    # The target of a plain assignment is met as a name besides.
    plain = {
        name
        for name, values in given.items()
        if values.count(None) == sum(value is not None for value in values) + _added(nodes, name)
    }
    known: frozenset[str] = frozenset()
    for _ in range(len(plain)):
        found = frozenset(
            name for name in plain if all(_is_text(v, known) for v in given[name] if v is not None)
        )
        if found == known:
            break
        known = found
    return known


def _added(nodes: Sequence[ast.AST], name: str) -> int:
    return sum(
        isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name) and n.target.id == name
        for n in nodes
    )


def _is_text(value: ast.expr, texts: frozenset[str]) -> bool:
    match value:
        case ast.JoinedStr() | ast.Constant(value=str()):
            return True
        case ast.Name(id=name):
            return name in texts
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _is_text(left, texts) or _is_text(right, texts)
        case ast.BinOp(left=left, op=ast.Mod()):
            return _is_text(left, texts)
        case ast.Call(func=ast.Attribute(value=holder, attr=attr)) if attr in _OF_TEXT:
            return _is_text(holder, texts)
        case _:
            return False
