"""Arguments of a script's calls that stand in a config file which the script loads itself.

They are read where they stand, and a fix goes there: of a block of the script those arguments become
a block of the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping as MappingABC
from typing import Any

from msgspec.structs import replace

from oomlint.dialects.block import Block
from oomlint.dialects.table import Table
from oomlint.documents.base import (
    Document,
    Entry,
    Literal,
    Mapping,
    Node,
    PythonDocument,
    RenamedEntry,
    Sequence,
)
from oomlint.documents.python.nodes import ConfigFile, Filed, PythonMapping, filed_of
from oomlint.documents.text import Edit


class ConfigValues(PythonDocument, frozen=True, eq=False):
    """A config file as what a script's calls say: to who asks, a part of the script. Calls has the script's own file."""

    file: Document

    def set_value(self, node: Node, value: Literal) -> list[Edit]:
        return self.file.set_value(node, value)

    def add_entry(
        self, mapping: Mapping, key: str, value: Literal, *, after: str | None = None
    ) -> list[Edit]:
        return self.file.add_entry(mapping, key, value, after=after)

    def remove_entry(self, mapping: Mapping, key: str) -> list[Edit]:
        return self.file.remove_entry(mapping, key)

    def rename_entry(self, mapping: Mapping, key: str, new_key: str) -> list[Edit]:
        return self.file.rename_entry(mapping, key, new_key)

    def append_item(self, sequence: Sequence, value: Literal) -> list[Edit]:
        return self.file.append_item(sequence, value)


class ValuesBlock(Block, frozen=True, eq=False):
    """Arguments that stand in a config file, each under a key of its own there: they are changed where
    they stand, while an argument that is new goes into the call."""

    def can_write(self, field: str) -> bool:
        row = self.table.by_field.get(field)
        return row is not None and self.entry_of(row) is not None


class SectionBlock(Block, frozen=True, eq=False):
    """A section of a config file that a call unpacks: its keys are the arguments."""

    call: Block | None = None

    def refuses_new(self, field: str, blocks: Iterable[Block]) -> str | None:
        return None if self.call is None else self.call.refuses_new(field, blocks)


def with_files(blocks: Iterable[Block]) -> Iterator[Block]:
    """Blocks of a script, each with those of the config files that its arguments stand in."""
    documents: dict[int, ConfigValues] = {}
    for block in blocks:
        sections = block.mapping.sections if isinstance(block.mapping, PythonMapping) else ()
        unpacked = {id(entry) for s in sections for entry in _entries(s)}
        filed = {
            key: found
            for key, entry in block.mapping.entries.items()
            if (found := _filed(entry)) is not None
            and (id(found.entry) in unpacked or _is_known(key, block.table))
        }
        if not filed and not sections:
            yield block
            continue
        own = {k: e for k, e in block.mapping.entries.items() if k not in filed}
        call = replace(block, mapping=replace(block.mapping, entries=own))
        yield call
        apart = {k: f for k, f in filed.items() if id(f.entry) not in unpacked}
        yield from _values(call, apart, documents)
        for section in sections:
            document = _document(section.file, documents)
            assert isinstance(section.node, Mapping)
            anchor = section.node.span if section.entry is None else section.entry.key_span
            yield SectionBlock(
                document, section.node, block.table, anchor, level=block.level, call=call
            )


def _is_known(key: str, table: Table) -> bool:
    """Whether only the value is the file's business: an argument that has another name now, or none, is wrong in
    the call."""
    return key in table.names and all(key != renaming.old for renaming in table.renamed)


def _entries(section: Filed) -> Iterable[Entry]:
    return section.node.entries.values() if isinstance(section.node, Mapping) else ()


def _values(
    call: Block, filed: MappingABC[str, Filed], documents: dict[int, ConfigValues]
) -> Iterator[Block]:
    by_file: dict[int, dict[str, Filed]] = {}
    for key, each in filed.items():
        by_file.setdefault(id(each.file), {})[key] = each
    for found in by_file.values():
        first = next(iter(found.values()))
        entries: dict[str, Any] = {key: _entry(key, each) for key, each in found.items()}
        anchor = next(iter(entries.values())).key_span
        # With the call's own switches around it.
        mapping = replace(call.mapping, entries=entries, open_ended=False)
        yield ValuesBlock(
            _document(first.file, documents), mapping, call.table, anchor, level=call.level
        )


def _entry(key: str, filed: Filed) -> Entry:
    assert filed.entry is not None
    written = ".".join(filed.path)
    return RenamedEntry(key, filed.entry.key_span, filed.node, filed.entry.span, written=written)


def _filed(entry: Entry) -> Filed | None:
    found = filed_of(entry.value)
    return found if found is not None and found.entry is not None else None


def _document(file: ConfigFile, documents: dict[int, ConfigValues]) -> ConfigValues:
    return documents.setdefault(id(file), ConfigValues(file.document.source, file.document))
