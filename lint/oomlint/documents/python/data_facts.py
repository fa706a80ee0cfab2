"""Which public data sets a script trains on, where its text leaves no doubt."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from oomlint.documents.base import Fact, Scalar
from oomlint.documents.python.calls import ReachedCall
from oomlint.documents.python.values import Evaluator, NodeSpans
from oomlint.documents.text import Location, Source

# datasets 4.8, pandas 2 and torch 2.9: what else data comes from, or is joined by.
_OTHER_SOURCES = frozenset(
    "load_from_disk from_dict from_pandas from_list from_generator from_json from_csv from_parquet from_text from_sql "
    "read_csv read_json read_parquet read_excel concatenate_datasets interleave_datasets chain from_iterable".split()
)
_OWN_SET = re.compile(r"^[A-Z]\w*(?:Dataset|DataModule)$")


def data_facts(
    source: Source, places: NodeSpans, evaluator: Evaluator, steps: Sequence[ReachedCall]
) -> Iterator[Fact]:
    """Facts of one kind, ``loads-sets``: ``names``, as ``datasets.load_dataset`` is given them. None where one name
    is not plain, where data comes from elsewhere too, or where samples are joined to longer ones."""
    names: dict[str, ReachedCall] = {}
    for step in steps:
        if step.last == "load_dataset":
            name = _name_of(step, evaluator)
            if name is None:
                return
            names.setdefault(name, step)
        elif step.last in _OTHER_SOURCES or _OWN_SET.match(step.last) or _joins(step.node):
            return
    if names:
        first = next(iter(names.values()))
        where = Location(source.path, places.span(first.node))
        yield Fact("loads-sets", where, {"names": tuple(names)})


def _name_of(step: ReachedCall, evaluator: Evaluator) -> str | None:
    """The set that is loaded; ``None`` of files, and of what only running tells."""
    given = {keyword.arg: keyword.value for keyword in step.node.keywords}
    said = given.get("path") or (step.node.args[0] if step.node.args else None)
    if said is None or not {"data_files", "data_dir", None}.isdisjoint(given):
        return None
    node = evaluator.node(said, step.scope)
    return node.value if isinstance(node, Scalar) and isinstance(node.value, str) else None


def _joins(call: ast.Call) -> bool:
    """``sum(lists, [])``, by which scripts join samples."""
    is_sum = isinstance(call.func, ast.Name) and call.func.id == "sum"
    return is_sum and len(call.args) > 1 and isinstance(call.args[1], ast.List)
