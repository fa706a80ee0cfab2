"""Which calls of a script load what its own loop trains."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping as MappingABC
from typing import TYPE_CHECKING

from msgspec.structs import replace

from oomlint.dialects.block import Block
from oomlint.dialects.entries import plain_value
from oomlint.dialects.trainer.model_calls import NO_LANGUAGE
from oomlint.dialects.trainer.quantizer_calls import quantizer_of
from oomlint.dialects.trainer.reaching import is_reached, may_replace
from oomlint.dialects.trainer.tables import FROM_PRETRAINED
from oomlint.documents.base import (
    UNKNOWN,
    Call,
    Document,
    Entry,
    Node,
)
from oomlint.documents.python.nodes import guards_of
from oomlint.documents.text import Span

if TYPE_CHECKING:
    from oomlint.documents.python.loops.loop import Loop

_OF_OPTIONS = r"\w*args\.\w+"
_ADAPTER = re.compile(r"(?:^|\.)Peft\w*\.from_pretrained$")


def models_of(document: Document, loop: Loop, options: MappingABC[str, Node]) -> list[Call]:
    """The calls of which one loads what is trained, the one that the switches lead to last; none
    where several models take part."""
    if any(not _ADAPTER.search(other.callee) for other in loop.others):
        return []
    models = [call for call in loop.models if not _ADAPTER.search(call.callee)]
    if any(NO_LANGUAGE.search(call.callee) for call in models):
        return []
    if any(not _may_be_one(document, models[0], call) for call in models):
        return []
    return chosen_last(models, options)


def chosen_last(calls: Iterable[Call], options: MappingABC[str, Node]) -> list[Call]:
    """Alternatives, with those behind the ones that switches do not lead to; of several the first counts."""
    found = list(calls)[::-1]
    return sorted(found, key=lambda call: is_reached(call.arguments, options))


def quantizers(model: Call) -> Iterator[Call]:
    """The call that quantizes what a loader loads, under the switches around the loader."""
    found = quantizer_of(model)
    if found is not None:
        guards = guards_of(model.arguments)
        yield replace(found, arguments=replace(found.arguments, guards=guards))


def _may_be_one(document: Document, first: Call, other: Call) -> bool:
    """Whether two calls are one, stand in branches that exclude each other, or load the same."""
    return (
        may_replace(other, first)
        or _name_of(document, first) == _name_of(document, other) is not None
    )


def _name_of(document: Document, call: Call) -> str | None:
    """The model's name, or the option that says it (``args.model_name_or_path``)."""
    for key in ("0", "pretrained_model_name_or_path"):
        entry = call.arguments.entries.get(key)
        if entry is not None:
            value = plain_value(entry.value, "yaml12")
            span = entry.value.span
            text = document.source.text[span.start : span.end] if value is UNKNOWN else str(value)
            return text if value is not UNKNOWN or re.fullmatch(_OF_OPTIONS, text) else None
    return None


def model_block(document: Document, loop: Loop, model: Call) -> Block:
    """The loader; of ``from_config`` with the name of the model whose configuration it takes."""
    named = next((node for call, node in loop.configs if call is model), None)
    arguments = model.arguments
    if named is not None:
        entry = Entry("pretrained_model_name_or_path", named.span, named, named.span)
        entries = {k: e for k, e in arguments.entries.items() if k != "0"}
        arguments = replace(arguments, entries={**entries, entry.key: entry})
    start = model.span.start
    anchor = Span(start, start + len(model.callee))
    return Block(document, arguments, FROM_PRETRAINED, anchor)


def names_model(block: Block) -> bool:
    reading = block.read()
    return any(row == "model.id" for row in reading.settings)
