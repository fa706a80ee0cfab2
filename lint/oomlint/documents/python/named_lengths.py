"""What a script calls the length of its samples: options, variables, and constants of other modules, by their names."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from oomlint.documents.base import Entry, Fact, Node, Scalar
from oomlint.documents.python.lengths import LENGTH_NAMES
from oomlint.documents.python.nodes import PythonScalar, filed_of, option_of
from oomlint.documents.python.values import Evaluator
from oomlint.documents.text import Location


def named_lengths(evaluator: Evaluator) -> Iterator[Entry]:
    """Values of options and variables that are named for the length of samples."""
    scopes = evaluator.tree.scopes
    for name in (n for n in evaluator.options if n.lower() in LENGTH_NAMES):
        default = evaluator.options[name]
        node = evaluator.node(default, evaluator.scope_of_default(default))
        if isinstance(node, Scalar):
            node = PythonScalar(node.span, node.value, locked=node.locked, option=name)
            yield Entry(name, node.span, node, node.span)
    for scope in (scopes.module, *scopes.of_node.values()):
        for name, bindings in scope.bindings.items():
            value = bindings[0].value
            if name.lower() not in LENGTH_NAMES or len(bindings) > 1:
                continue
            if bindings[0].kind != "value" or value is None:
                continue
            node = evaluator.node(value, scope)
            if isinstance(value, ast.Constant) or filed_of(node) is not None:
                yield Entry(name, node.span, node, node.span)


def length_facts(evaluator: Evaluator) -> Iterator[Fact]:
    """A fact of the kind ``calls-length``, where all that is named so and read has one ``length``: its ``key``, and the
    ``option`` that it is the default of."""
    found: list[tuple[str, Node]] = [(e.key, e.value) for e in named_lengths(evaluator)]
    found += _imported(evaluator)
    reads = evaluator.tree.scopes.reads
    found = [(key, node) for key, node in found if option_of(node) or reads[key]]
    known = [
        (key, node)
        for key, node in found
        if isinstance(node, Scalar) and isinstance(node.value, int) and node.value is not True
    ]
    lengths = {node.value for _, node in known}
    if len(lengths) == 1 and len(known) == len(found):
        (key, node), *_ = known
        where = Location(evaluator.places.source.path, node.span)
        yield Fact(
            "calls-length", where, {"length": node.value, "key": key, "option": option_of(node)}
        )


def _imported(evaluator: Evaluator) -> Iterator[tuple[str, Node]]:
    scopes = evaluator.tree.scopes
    for scope in (scopes.module, *scopes.of_node.values()):
        for name, bindings in scope.bindings.items():
            is_import = len(bindings) == 1 and bindings[0].kind == "import"
            if name.lower() in LENGTH_NAMES and is_import:
                found = evaluator.elsewhere(name, scope)
                if found is not None:
                    home, there = found
                    yield name, home.node(there, home.scopes.module)
