"""Collators that mask words, which not every tokenizer can."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Final

from oomlint.documents.base import Fact
from oomlint.documents.python.calls import ReachedCall
from oomlint.documents.python.values import NodeSpans
from oomlint.documents.text import Location, Source

# transformers 4.57.3 data/data_collator.py: the first two ask for a mask token as they are made (``mlm`` is on by default),
# the last with its first batch.
_AT_ONCE: Final = frozenset({"DataCollatorForLanguageModeling", "DataCollatorForWholeWordMask"})
_AT_FIRST_BATCH: Final = "DataCollatorForPermutationLanguageModeling"


def collator_facts(
    source: Source, places: NodeSpans, steps: Sequence[ReachedCall]
) -> Iterator[Fact]:
    """Facts of one kind, ``masks-words`` (``collator``, ``guards``): a collator of transformers that asks its tokenizer for
    a mask token, in a script that gives it none."""
    if "mask_token" in source.text:
        return
    collates = any(k.arg == "data_collator" for step in steps for k in step.node.keywords)
    for step in steps:
        if not step.reached or step.arms or not step.name.startswith("transformers."):
            continue
        if step.last in _AT_ONCE and not _asks_for_masks(step.node):
            continue
        if step.last in _AT_ONCE or (step.last == _AT_FIRST_BATCH and collates):
            where = Location(source.path, places.span(step.node))
            yield Fact("masks-words", where, {"collator": step.last, "guards": step.guards})


def _asks_for_masks(call: ast.Call) -> bool:
    """Whether ``mlm`` is left on, or switched on outright."""
    if any(keyword.arg is None for keyword in call.keywords):
        return False
    said = next((k.value for k in call.keywords if k.arg == "mlm"), None)
    if said is None and len(call.args) > 1:
        said = call.args[1]
    return said is None or (isinstance(said, ast.Constant) and said.value is True)
