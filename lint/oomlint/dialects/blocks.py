"""The documents in which the blocks of a run stand, each once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from oomlint.dialects.block import Block
from oomlint.documents.base import Document, Fact, PythonDocument


def documents_of(blocks: Iterable[Block]) -> list[Document]:
    """The documents, in the order of their first blocks."""
    return list({id(block.document): block.document for block in blocks}.values())


def scripts_of(blocks: Iterable[Block]) -> Iterator[PythonDocument]:
    """Those of Python."""
    return (each for each in documents_of(blocks) if isinstance(each, PythonDocument))


def facts_of(blocks: Iterable[Block], *kinds: str) -> Iterator[Fact]:
    """The facts of the documents: all, or those of some kinds."""
    facts = (fact for document in documents_of(blocks) for fact in document.facts)
    return (fact for fact in facts if not kinds or fact.kind in kinds)
