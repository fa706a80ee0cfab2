"""A Python file that is a config: the names that it gives values to, as one mapping.

``batch_size = 4`` and ``model = dict(type=Model, llm=dict(...))`` read like a file with those keys. What
only running the file would tell is ``UNKNOWN``: a name that several statements bind, or one
under a condition. A later ``steps *= 2`` counts with the statement that it changes.
"""

from __future__ import annotations

import ast
from typing import Final

from oomlint.documents.base import UNKNOWN, Entry, Mapping, Scalar
from oomlint.documents.python.document import PythonScript
from oomlint.documents.python.nodes import PythonMapping
from oomlint.documents.python.tree import read_tree
from oomlint.documents.python.values import Evaluator, NodeSpans
from oomlint.documents.text import Span

_SEVERAL: Final = "several statements decide on it"
_NEW_NAME: Final = "a setting that the file does not have yet would be a statement of its own"


def settings_of(document: PythonScript) -> Mapping:
    """What the statements of a module set."""
    module = ast.parse(document.source.text)
    module.body = _folded(module.body)
    tree = read_tree(module)
    places = NodeSpans(document.source)
    evaluator, scope = Evaluator(places, tree), tree.scopes.module
    entries: dict[str, Entry] = {}
    for statement in module.body:
        name = _assigned(statement)
        if name is None or not isinstance(statement, ast.Assign):
            continue
        span, value = places.span(statement), evaluator.node(statement.value, scope)
        if len(scope.bindings[name]) != 1 or name in tree.scopes.changed:
            value = Scalar(places.span(statement.value), UNKNOWN, locked=_SEVERAL)
        key = Span(span.start, span.start + len(name))
        entries[name] = Entry(name, key, value, span)
    return PythonMapping(
        Span(0, len(document.source.text)), entries, locked=_NEW_NAME, kind="module"
    )


def _assigned(statement: ast.stmt) -> str | None:
    """The one name that a statement gives a value."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    target = statement.targets[0]
    return target.id if isinstance(target, ast.Name) else None


def _folded(body: list[ast.stmt]) -> list[ast.stmt]:
    """Statements, with ``name *= other`` in the value of the one before that sets ``name``."""
    kept: list[ast.stmt] = []
    last: dict[str, ast.Assign] = {}
    for statement in body:
        target = statement.target if isinstance(statement, ast.AugAssign) else None
        if (
            isinstance(target, ast.Name)
            and target.id in last
            and isinstance(statement, ast.AugAssign)
        ):
            first = last[target.id]
            both = ast.BinOp(first.value, statement.op, statement.value)
            first.value = ast.copy_location(both, first.value)
            continue
        name = _assigned(statement)
        if name is not None and isinstance(statement, ast.Assign):
            last[name] = statement
        kept.append(statement)
    return kept
