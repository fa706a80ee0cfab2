"""Classes of the project that are derived from a library's arguments of training, and that a script calls by themselves:
``OurConfig(output_dir=…)`` takes what the library's class takes, with defaults of its own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec.structs import replace

from oomlint.documents.base import UNKNOWN, Scalar
from oomlint.documents.python.instances import default_in, fields_in
from oomlint.documents.python.modules import Module, class_line
from oomlint.documents.python.nodes import PythonEntry, PythonMapping
from oomlint.documents.python.scopes import dotted

if TYPE_CHECKING:
    from oomlint.documents.python.calls import ReachedCall
    from oomlint.documents.python.values import Evaluator

_CALLED = re.compile(r"(?:Config|Arguments|Args)$")
_LIBRARYS = re.compile(r"^(?:transformers|trl)\.(?:.*\.)?(?:\w*TrainingArguments|[A-Z]\w*Config)$")
# Arguments that every call for a training names one of (transformers 5.23 training_args.py).
_OF_TRAINING = frozenset(
    {
        "output_dir", "per_device_train_batch_size", "gradient_accumulation_steps", "learning_rate",
        "num_train_epochs", "max_steps",
    }
)  # fmt: skip
_BY_CLASS = "a class of the project's own says it"

Line: TypeAlias = "Sequence[tuple[Module, ast.ClassDef]]"
"""A class and those of the project that it is derived from, the nearest first."""


def class_of_arguments(step: ReachedCall, evaluator: Evaluator) -> Line:
    """The classes of the project that a call makes arguments of training of; none for any other call, or where a class
    takes its arguments in a way of its own."""
    named = {keyword.arg for keyword in step.node.keywords}
    if not _CALLED.search(step.last) or _OF_TRAINING.isdisjoint(named):
        return ()
    file = Module(evaluator.places.source, evaluator.tree)
    written = dotted(step.node.func)
    line = [] if written is None else list(class_line(written, file, evaluator.modules))
    of_library = any(_LIBRARYS.match(base) for base in _bases(line))
    own_way = any(name == "__init__" for _, cls in line for name in _methods(cls))
    return line if of_library and not own_way else ()


def with_defaults(arguments: PythonMapping, line: Line) -> PythonMapping:
    """The arguments of such a call with what the classes say where it says nothing; of what they assign to the object
    once it is made nobody knows."""
    span = arguments.span
    entries = dict(arguments.entries)
    for name, value in _declared(line):
        if name not in entries:
            said = Scalar(span, _literal(value), locked=_BY_CLASS)
            entries[name] = PythonEntry(name, span, said, span, locked=_BY_CLASS)
    for home, cls in line:
        for name in home.tree.stores_of(cls):
            unread = Scalar(span, UNKNOWN, locked=_BY_CLASS)
            entries[name] = PythonEntry(name, span, unread, span, locked=_BY_CLASS)
    return replace(arguments, entries=entries)


def _declared(line: Line) -> Iterator[tuple[str, ast.expr]]:
    """The defaults that classes give their fields, the nearest class first."""
    for _, cls in line:
        for name, value in fields_in(cls):
            default = default_in(value)
            if default is not None:
                yield name, default


def _literal(value: ast.expr) -> Any:
    return value.value if isinstance(value, ast.Constant) else UNKNOWN


def _bases(line: Line) -> Iterator[str]:
    for home, cls in line:
        yield from (home.qualified(base) for base in map(dotted, cls.bases) if base is not None)


def _methods(cls: ast.ClassDef) -> Iterator[str]:
    return (each.name for each in cls.body if isinstance(each, ast.FunctionDef))
