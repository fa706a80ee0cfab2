"""What calls of a script are given: values, other calls, and what an option decides on."""

from __future__ import annotations

from collections.abc import Mapping as MappingABC, Sequence
from typing import Any, TypeGuard

from oomlint.documents.base import (
    Call,
    Document,
    Mapping,
    Node,
    Scalar,
)
from oomlint.documents.python.nodes import PythonScalar


def defaults_of(defaults: Mapping | None) -> MappingABC[str, Node]:
    return {} if defaults is None else {k: e.value for k, e in defaults.entries.items()}


def is_decided(node: Node) -> TypeGuard[PythonScalar]:
    """Whether a value is one of two, between which an option decides."""
    return isinstance(node, PythonScalar) and node.either is not None


def homes_of(call: Call, document: Document) -> set[str]:
    """The packages that what is called is imported from; none where no import names it."""
    name = call.callee.rpartition(".")[2]
    return {each.partition(".")[0] for each in document.imports if each.endswith(f".{name}")}


# Whose classes of training arguments take what the tables say, and patch or hand on the others'.
_LIBRARIES = frozenset({"transformers", "trl", "unsloth"})


def is_of_library(call: Call, document: Document) -> bool:
    """Whether what is called is a library's own, as far as the imports tell: one of the same name may be the project's, or
    of a library that is not read."""
    return homes_of(call, document) <= _LIBRARIES


def the_only(calls: Sequence[Call]) -> Call | None:
    return calls[0] if len(calls) == 1 else None


def value_of(call: Call, *names: str) -> Any:
    for name in names:
        entry = call.arguments.entries.get(name)
        if entry is not None:
            return entry.value.value if isinstance(entry.value, Scalar) else entry.value
    return None


def call_given(call: Call | None, *names: str) -> Call | None:
    """The call whose result is passed as the first of these arguments that is given."""
    value = value_of(call, *names) if call is not None else None
    return value if isinstance(value, Call) else None
