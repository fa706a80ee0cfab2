"""To which length a script pads the samples that it makes tokens of, each of them to the same."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from oomlint.documents.base import Fact, Scalar
from oomlint.documents.python.calls import ReachedCall
from oomlint.documents.python.nodes import PythonScalar
from oomlint.documents.python.values import Evaluator, NodeSpans
from oomlint.documents.text import Location, Source


def padded_sample_facts(
    source: Source, places: NodeSpans, evaluator: Evaluator, steps: Sequence[ReachedCall]
) -> Iterator[Fact]:
    """Facts of one kind, ``pads-samples``: ``length``, to which the one tokenizer's call in what a script runs over its
    data sets (``data.map(tokenize)``) cuts and pads (``padding="max_length"``), and the ``option`` of the command line
    that has this default, if one says it. None where several calls make tokens, or only running the script tells it."""
    mapped = {name for step in steps if step.last == "map" for name in _functions(step.node)}
    made = [
        step
        for step in steps
        if step.last == "tokenizer" and step.function is not None and step.function.name in mapped
    ]
    if len(made) != 1:
        return
    (step,) = made
    given = {keyword.arg: keyword.value for keyword in step.node.keywords}
    if not (_is(given, "padding", "max_length") and _is(given, "truncation", True)):
        return
    node = evaluator.node(given["max_length"], step.scope) if "max_length" in given else None
    if not isinstance(node, Scalar) or type(node.value) is not int:
        return
    option = node.option if isinstance(node, PythonScalar) else ""
    at = Location(source.path, places.span(step.node))
    yield Fact("pads-samples", at, {"length": node.value, "option": option})


def _functions(call: ast.Call) -> Iterator[str]:
    """The function that a data set is given to run over its samples."""
    given = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "function")]
    yield from (node.id for node in given if isinstance(node, ast.Name))


def _is(given: dict[str | None, ast.expr], key: str, value: str | bool) -> bool:
    said = given.get(key)
    return isinstance(said, ast.Constant) and said.value == value
