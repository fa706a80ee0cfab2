"""By which options of the command line a script comes to a call, where these are no plain switches."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from oomlint.documents.base import Fact
from oomlint.documents.python.calls import ReachedCall, is_switch
from oomlint.documents.python.nodes import PythonScalar
from oomlint.documents.python.values import Evaluator, NodeSpans
from oomlint.documents.python.values.choices import as_choice
from oomlint.documents.text import Location, Source

Choices: TypeAlias = tuple[tuple[PythonScalar, bool], ...]
"""What options choose between, each with the side that is taken."""

# Configs, tokenizers and processors are loaded by the same method.
_OF_MODEL: Final = re.compile(r"(?:^|\.)\w*(?:Model|LM)\w*\.from_pretrained$")


def choices_around(step: ReachedCall, evaluator: Evaluator) -> Choices | None:
    """The choices by options that the branches around a step are, besides its guards; ``None`` where one of them is none."""
    found: list[tuple[PythonScalar, bool]] = []
    for line, side in step.arms:
        branch, scope = evaluator.tree.branches[line]
        if is_switch(branch.test):
            continue
        node = evaluator.node(as_choice(branch.test), scope)
        if not isinstance(node, PythonScalar) or node.either is None:
            return None
        found.append((node, side))
    return tuple(found)


def loading_facts(
    source: Source, places: NodeSpans, evaluator: Evaluator, steps: Sequence[ReachedCall]
) -> Iterator[Fact]:
    """Facts of one kind, ``loads-in-branch``, one for each call in a branch that loads a model: its ``arms``, ``guards`` and
    ``choices``, and the text of each of its ``arguments``, those of what it unpacks under ``**``."""
    for step in steps:
        if not step.arms or not _OF_MODEL.search(step.name):
            continue
        texts = {each.arg or "**": ast.unparse(each.value) for each in step.node.keywords}
        detail = {
            "arms": step.arms,
            "guards": step.guards,
            "choices": choices_around(step, evaluator),
            "arguments": texts,
        }
        yield Fact("loads-in-branch", Location(source.path, places.span(step.node)), detail)
