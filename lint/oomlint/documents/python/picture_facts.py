"""How large a script lets pictures be, where it tells their processor."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from oomlint.documents.base import Fact, Scalar
from oomlint.documents.python.calls import ReachedCall
from oomlint.documents.python.nodes import PythonScalar
from oomlint.documents.python.values import Evaluator, NodeSpans
from oomlint.documents.text import Location, Source

_PROCESSOR = re.compile(r"Processor(?:Fast)?\.from_pretrained$")


def picture_facts(
    source: Source, places: NodeSpans, evaluator: Evaluator, steps: Sequence[ReachedCall]
) -> Iterator[Fact]:
    """Facts of one kind, ``scales-pictures``: ``pixels``, the ``max_pixels`` of ``AutoProcessor.from_pretrained`` and
    the like, and the ``option`` of the command line that has this default, if one says it. None where only running the
    script tells it, or where several processors are told different things."""
    found: dict[tuple[int, str], ReachedCall] = {}
    for step in steps:
        said = next((k.value for k in step.node.keywords if k.arg == "max_pixels"), None)
        if said is None or not _PROCESSOR.search(step.name):
            continue
        node = evaluator.node(said, step.scope)
        if not isinstance(node, Scalar) or type(node.value) is not int:
            return
        option = node.option if isinstance(node, PythonScalar) else ""
        found.setdefault((node.value, option), step)
    if len(found) == 1:
        (pixels, option), step = found.popitem()
        at = Location(source.path, places.span(step.node))
        yield Fact("scales-pictures", at, {"pixels": pixels, "option": option})
