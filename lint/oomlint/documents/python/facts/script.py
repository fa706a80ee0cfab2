"""A script as those who read facts of it see it."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from oomlint.documents.base import Call, Fact
from oomlint.documents.python.calls import ReachedCall
from oomlint.documents.python.tree import Tree
from oomlint.documents.python.values import Evaluator, NodeSpans
from oomlint.documents.text import Location, Source


class Script(Struct, frozen=True, eq=False):
    """A script as those who read facts of it see it; ``origin`` is the step that each of its calls, by ``id``, was read from."""

    source: Source
    tree: Tree
    places: NodeSpans
    evaluator: Evaluator
    steps: Sequence[ReachedCall]
    calls: Sequence[Call]
    origin: dict[int, ReachedCall]

    def fact(self, kind: str, node: ast.expr | ast.stmt | ast.ExceptHandler, **detail: Any) -> Fact:
        return Fact(kind, Location(self.source.path, self.places.span(node)), detail)
