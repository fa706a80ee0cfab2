"""Keys that a framework had once and refuses in the release that runs, though a table reads them for those that had them.

Certain only where the project pins the release, or allows none that has the key (``keys/spans``: the fields of the
frameworks' own classes of arguments, release by release).
"""

from __future__ import annotations

from collections.abc import Iterator

from oomlint.dialects.block import Block
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.declared_ends import declare_end
from oomlint.dialects.ending import Ending, When
from oomlint.dialects.key_releases import Spans
from oomlint.dialects.meaning import Meaning
from oomlint.dialects.table import Table
from oomlint.dialects.trainer.arguments import RENAMED_ARGUMENTS
from oomlint.documents.base import Entry
from oomlint.documents.text import Location
from oomlint.plan.library_changes import LibraryChange, release_of

gone_keys = Meaning()


def _first(run: Cells) -> Ending | None:
    """``train_type`` under ms-swift 4.2."""
    for block, entry, went in run.once(_once_known):
        spans = block.table.spans
        release = release_of(went)
        if spans is None or release is None:
            continue
        if run.surely_made(LibraryChange(spans.package, release, "", "")):
            now = _called_now(block.table, spans, entry.key)
            said = f"{spans.package} {went} and later refuses {entry.key}"
            why = f"{said}, which it calls {now}" if now else said
            return Ending(why, Location(block.path, entry.key_span), When.SETTINGS, now)
    return None


declare_end(
    gone_keys,
    _first,
    source="fields of the frameworks' classes of arguments, release by release",
)


def _once_known(blocks: list[Block]) -> tuple[tuple[Block, Entry, str], ...]:
    return tuple(found for block in blocks for found in _of_some_releases(block))


def _of_some_releases(block: Block) -> Iterator[tuple[Block, Entry, str]]:
    """The keys of a block that went with a release, and which."""
    table = block.table
    # What is ignored ends nothing. Of an earlier name that the table lists another rule tells, and transformers' own may
    # be inherited from an older transformers than the framework's newest knows.
    if table.spans is None or table.spans.by_objective or table.ignores_unknown is not False:
        return
    told = {renaming.old for renaming in (*table.renamed, *RENAMED_ARGUMENTS)}
    for entry in block.mapping.entries.values():
        went = table.spans.keys.get(entry.key, ("", ""))[1]
        if went and entry.key not in told and not _begins_another(table, entry.key):
            yield block, entry, went


def _begins_another(table: Table, key: str) -> bool:
    """argparse takes the beginning of an option for the whole of it: ``--use_liger`` is ``--use_liger_kernel``."""
    return any(name != key and name.startswith(key) for name in table.legal_keys)


def _called_now(table: Table, spans: Spans, key: str) -> str:
    """The name that the key has today, and had in the first release that refuses the former one; empty where there is
    none."""
    row, went = table.names.get(key), release_of(spans.keys[key][1])
    if row is None or went is None:
        return ""
    for name in (row.key, *row.aliases):
        came, gone = spans.keys.get(name, ("", ""))
        if not gone and (release_of(came) or ()) <= went:
            return name
    return ""
