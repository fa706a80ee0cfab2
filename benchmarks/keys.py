"""How much of what configs say each dialect knows.

Counts the keys of every file that a dialect recognises, by occurrence, and lists those that
neither its tables nor its lists of legal keys hold. A key that is not known is either a
setting that oomlint overlooks or, where the framework refuses unknown keys, a false alarm.

A script over transformers' Trainer adds options of its own to those of the framework. Where the
script is at hand its declarations tell which they are; they are counted apart, and so are options
that nobody can judge because their script is not here or builds its parser in ways that only
running it would tell. Neither counts for or against what is known of the framework's keys.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from oomlint.dialects import registry
from oomlint.dialects.base import Claim
from oomlint.dialects.block import Block
from oomlint.documents import SUFFIXES
from oomlint.documents.base import Document, Mapping, PythonDocument, ShellDocument, parser_of
from oomlint.documents.python.options import ScriptOptions
from oomlint.errors import FileError
from oomlint.files.disk import walk
from oomlint.files.workspace import Workspace
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker

TARGET = 0.95
_LISTED = 40
# Blocks that leave most keys to others by design.
_OPEN_SECTIONS = frozenset({"launcher", "environment", "scheduler", "options", "defaults"})
# Frameworks whose parser takes a script's own dataclasses beside its own.
_EXTENDED = frozenset({"hf-trainer", "trl"})


@dataclass
class Tally:
    """Keys of one dialect by occurrence. ``own`` are declared by the script that is started;
    of ``unread`` nobody here can say whether its script takes them."""

    known: int = 0
    unknown: Counter[str] = field(default_factory=Counter)
    own: Counter[str] = field(default_factory=Counter)
    unread: Counter[str] = field(default_factory=Counter)

    @property
    def share(self) -> float:
        """Known keys among those that are the framework's or nobody's."""
        judged = self.known + self.unknown.total()
        return self.known / judged if judged else 1.0

    def lines(self, name: str) -> Iterator[str]:
        judged = self.known + self.unknown.total()
        own = f", {self.own.total()} of scripts" if self.own else ""
        unread = f", {self.unread.total()} of scripts that nobody can read" if self.unread else ""
        yield f"{name:16} {judged:6} keys  {self.share:6.1%} known{own}{unread}"
        for counts, mark in ((self.unknown, ""), (self.unread, "(unread) ")):
            for key, times in counts.most_common(_LISTED):
                yield f"{'':16} {times:6} x {mark}{key}"


def keys_of(block: Block) -> int:
    """How many keys of a block are looked at: those below a known parent each for itself."""
    return _count(block, block.mapping, "")


def _count(block: Block, mapping: Mapping, prefix: str) -> int:
    count = 0
    for entry in mapping.entries.values():
        path = (prefix + entry.key).removeprefix(block.table.strip_prefix)
        inside = path in block.table.parents and isinstance(entry.value, Mapping)
        count += _count(block, entry.value, path + ".") if inside else 1  # type: ignore[arg-type]
    return count


class Survey:
    """Tallies by dialect over the files of some folders."""

    def __init__(self) -> None:
        self.tallies: dict[str, Tally] = {}

    def add(self, folder: Path) -> None:
        workspace = Workspace(folder)
        linker = Linker(workspace, registry(), LinkOptions())
        for file in walk(folder, SUFFIXES):
            name = workspace.name(file)
            try:
                claims = linker.claims(name)
            except Exception as error:  # a file of something else: count what can be read
                print(f"{name}: {error}", file=sys.stderr)
                continue
            for claim in claims:
                self._add_claim(claim, workspace)

    def _add_claim(self, claim: Claim, workspace: Workspace) -> None:
        options = None
        if claim.dialect.name in _EXTENDED and claim.is_launched:
            options = _options_of(claim, workspace)
        todo = list(claim.blocks)
        while todo:
            block = todo.pop()
            reading = block.read()
            todo += reading.nested
            if block.table.section in _OPEN_SECTIONS or block.table.known_prefixes == ("",):
                continue
            tally = self.tallies.setdefault(claim.dialect.name, Tally())
            stray = [each.path for each in reading.stray]
            tally.known += keys_of(block) - len(stray)
            own = claim.dialect.name in _EXTENDED and isinstance(block.document, ShellDocument)
            for key in stray:
                self._place(tally, key, options, has_script=own)

    def _place(
        self, tally: Tally, key: str, options: ScriptOptions | None, *, has_script: bool
    ) -> None:
        if options is not None and {key, key.removeprefix("no_")} & options.names:
            tally.own[key] += 1
        elif has_script and (options is None or not options.is_whole):
            tally.unread[key] += 1
        else:
            tally.unknown[key] += 1


def _options_of(claim: Claim, workspace: Workspace) -> ScriptOptions | None:
    """What the script that a launch line starts declares; ``None`` where it is not here."""
    for reference in claim.references:
        if reference.path.endswith(".py"):
            document = _document(workspace, reference.path, claim.path)
            if isinstance(document, PythonDocument) and document.starts is not None:
                document = _document(workspace, document.starts, claim.path)
            return None if document is None else parser_of(document)
    return None


def _document(workspace: Workspace, path: str, from_file: str) -> Document | None:
    found = workspace.resolve(path, from_file)
    try:
        return workspace.document(found) if found is not None else None
    except FileError:
        return None


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.keys", description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, default=[Path()], metavar="FOLDER")
    survey = Survey()
    for folder in parser.parse_args(arguments).folders:
        survey.add(folder)
    for name, tally in sorted(survey.tallies.items()):
        print("\n".join(tally.lines(name)))
    return 0 if all(tally.share >= TARGET for tally in survey.tallies.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
