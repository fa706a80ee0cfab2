"""Programs of a project that load files by themselves: what they ask for by name, and declare as options of theirs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from oomlint.dialects.base import Claim
from oomlint.dialects.reading import StrayKey, WrongValue
from oomlint.documents import TOML_SUFFIXES, YAML_SUFFIXES, kind_of
from oomlint.documents.base import Document, parser_of
from oomlint.errors import FileError
from oomlint.files.reference_index import texts_below
from oomlint.files.workspace import Workspace
from oomlint.runs.vendored.files import (
    MOST_OF_PACKAGE,
    PACKAGE_DEEPEST,
    copies_carried,
    programs_in,
)

if TYPE_CHECKING:
    from oomlint.documents.python.options import ScriptOptions

QUOTED = rb"[\"']([^\"'\n]*)[\"']"
# A field of a class, and an option of a parser.
_FIELD = rb"(?m)^[ \t]+(\w+)[ \t]*:"
_OPTION = rb"[\"']--([\w-]+)[\"']"
# An option of argparse that takes several values (``nargs='+'``), with what brackets stand in its call one deep: looked
# for so far and no further, since a list of options has no end of a call.
LIST = rb"[\"']--([\w-]+)[\"'](?:[^()]|\([^()]{0,200}\)){0,600}?\bnargs\s*=\s*(?:[\"'][*+]|[2-9])"
# Parsers whose options are the fields of dataclasses: of transformers, TRL and alignment-handbook.
PARSES = rb"\b(?:HfArgumentParser|TrlParser|H4ArgumentParser)\("
# What opens a config in Python: PyYAML, ruamel and OmegaConf, with what people call a function that does so; json, tomllib
# and toml.
LOADS_YAML = rb"\b(?:yaml|OmegaConf)\.\w*load\w*\(|\bYAML\(|\b(?:load|read)_(?:yaml|config|cfg)\("
_LOADS_TOML = rb"\btoml\w*\.\w*load\w*\("
_LOADS = rb"|".join((LOADS_YAML, _LOADS_TOML, rb"\bjson\.\w*load\w*\("))
# What may be given a config of a kind: a parser or Hydra, too.
_TAKES = (
    (YAML_SUFFIXES, rb"|".join((LOADS_YAML, PARSES, rb"\bhydra\.main\b"))),
    (TOML_SUFFIXES, _LOADS_TOML),
)
# What a program that trains by itself has.
TRAINS = rb"Trainer\b|TrainingArguments|\.backward\(|\.from_pretrained\(|import train\b"
# What ends the path, which may be put together (``tmp + "/run.yaml"``, ``os.path.join(tmp, "run.yaml")``).
_TO_WRITE = rb"[\"']\)?\s*,\s*(?:mode\s*=\s*)?[\"'][wxa]"
_ASKED = rb"[\"'](\w+)[\"']|\.(\w+)"
# How a program starts others.
STARTS_PROCESSES = rb"\bsubprocess\b|\bos\.(?:system|exec\w+|popen)\(|\bPopen\("
_OF_TRAINING = r"^(?:transformers|trl)\b.*(?:TrainingArguments|Config)$"


def as_field(option: bytes) -> bytes:
    """An option of a parser as its value is called."""
    return option.replace(b"-", b"_")


def options_of_training(document: Document | None) -> ScriptOptions | None:
    """The options of a script that fills a library's own class of training arguments from its command line."""
    options = None if document is None else parser_of(document)
    is_of_training = options is not None and any(
        re.search(_OF_TRAINING, base) for base in options.bases
    )
    return options if is_of_training else None


class Declared(Struct, frozen=True):
    """What the files of a package name: fields and options, the strings that may be values, and which options take
    several."""

    names: frozenset[bytes] = frozenset()
    choices: frozenset[bytes] = frozenset()
    lists: frozenset[bytes] = frozenset()


class OwnReaders:
    """What a project's programs that load files by themselves ask for by name, or declare as options of theirs, and
    what its copies of frameworks do."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._copies: dict[str, Declared] = {}
        self._loaders: dict[tuple[Path, str, bytes], str] = {}
        self._words: dict[str, frozenset[bytes]] = {}
        self._options: dict[str, frozenset[bytes]] = {}

    def declared_by_copy(self, claim: Claim) -> Declared:
        """What the project's copy of the framework's whole package declares: later releases, and people who change
        it, do so in files that none of this one's are named as."""
        folders = list(copies_carried(self.workspace, claim.dialect, claim.path))
        for folder in folders:
            if folder not in self._copies:
                self._copies[folder] = self._declared_below(folder)
        found = [self._copies[folder] for folder in folders]
        return Declared(
            frozenset().union(*(each.names for each in found)),
            frozenset().union(*(each.choices for each in found)),
            frozenset().union(*(each.lists for each in found)),
        )

    def _declared_below(self, folder: str) -> Declared:
        names, choices, lists = set[bytes](), set[bytes](), set[bytes]()
        inside = f"{self.workspace.name(Path(folder))}/"
        unsaved = (n for n in self.workspace.overlay if n.startswith(inside) and n.endswith(".py"))
        saved = self.workspace.below(folder, (".py",), PACKAGE_DEEPEST)
        for name in islice((*unsaved, *saved), MOST_OF_PACKAGE):
            data = self.workspace.read_or_none(name) or b""
            names.update(re.findall(_FIELD, data))
            names.update(map(as_field, re.findall(_OPTION, data)))
            choices.update(re.findall(QUOTED, data))
            lists.update(map(as_field, re.findall(LIST, data)))
        return Declared(frozenset(names), frozenset(choices), frozenset(lists))

    def options_of(self, claims: Iterable[Claim]) -> frozenset[str]:
        """The options that the programs which commands start parse beside a library's arguments of training,
        whatever these programs do with them: one that is not followed has them all the same."""
        scripts = ((path, claim.path) for claim in claims for path in claim.scripts)
        found = (self.workspace.resolve(path, base) for path, base in scripts)
        names = {name for name in found if name is not None}
        return frozenset(each.decode() for name in names for each in self._declared(name))

    def declare(self, key: StrayKey | WrongValue) -> bool:
        """Whether a script of the project parses a key into a class of its own beside a library's arguments."""
        folder = str(self.workspace.project_around(key.block.path))
        if folder not in self._options:
            self._options[folder] = frozenset(self._parsed(folder))
        return key.entry.key.encode() in self._options[folder]

    def _parsed(self, folder: str) -> Iterator[bytes]:
        for name in programs_in(self.workspace, folder):
            if re.search(PARSES, self.workspace.read_or_none(name) or b""):
                yield from self._declared(name)

    def ask_for(self, stray: StrayKey, *, is_started: bool) -> bool:
        """Whether a program of the project loads files and asks for such a key, or has it among its options: one
        which is like one of the framework's that it leaves alone; one that the framework refuses, where no
        command of the framework's ``is_started`` with the file."""
        if is_started if stray.is_refused else not (stray.nearest and stray.is_ignored):
            return False
        folder = str(self.workspace.project_around(stray.block.path))
        if folder not in self._words:
            self._words[folder] = frozenset(self._asked(folder))
        return stray.entry.key.encode() in self._words[folder]

    def load(self, config: Claim) -> bool:
        """Whether a program of the project that loads files by itself names a config, as an option's default, say, asks
        for one of its keys, and neither parses it into a library's arguments nor starts a process that may."""
        path = config.path
        keys = {key.encode() for block in config.blocks for key in block.mapping.entries}
        word = os.path.basename(path).encode("utf-8", "surrogateescape")
        texts = texts_below(self.workspace, self.workspace.project_around(path))
        for name, data in texts.holding(word):
            if not name.endswith(".py") or not re.search(_LOADS, data):
                continue
            if re.search(PARSES, data) or re.search(STARTS_PROCESSES, data):
                continue
            asked = {quoted or named for quoted, named in re.findall(_ASKED, data)}
            if asked.isdisjoint(keys):
                continue
            named = (each.decode("utf-8", "replace") for each in re.findall(QUOTED, data))
            if any(
                each.endswith(os.path.basename(path)) and self.workspace.resolve(each, name) == path
                for each in named
            ):
                return True
        return False

    def replace(self, wrong: WrongValue) -> bool:
        """Whether a value is made of others (``${num_gpus}``) and a program of the project puts another in its place
        before the framework sees it."""
        span = wrong.entry.value.span
        if "${" not in wrong.block.document.source.text[span.start : span.end]:
            return False
        key = re.escape(wrong.entry.key.rpartition(".")[2]).encode()
        sets = rb"\[[\"']" + key + rb"[\"']\][ \t]*=(?!=)"
        programs = programs_in(self.workspace, str(self.workspace.project_around(wrong.block.path)))
        return any(re.search(sets, self.workspace.read_or_none(each) or b"") for each in programs)

    def write(self, path: str, from_file: str) -> bool:
        """Whether a program of the project opens a file of this name to write it."""
        name = re.escape(os.path.basename(path)).encode()
        opens = rb"\bopen\((?:[^\n]{0,80}?[^\w\n.-])?" + name + _TO_WRITE
        programs = programs_in(self.workspace, str(self.workspace.project_around(from_file)))
        return any(re.search(opens, self.workspace.read_or_none(each) or b"") for each in programs)

    def put(self, path: str, from_file: str) -> bool:
        """Whether the project's README has a file of this path moved or copied to where a command finds it, into the
        checkout of another project, say."""
        name = re.escape(os.path.normpath(path)).encode()
        puts = rb"(?m)^[ \t]*\$?[ \t]*(?:mv|cp)[ \t][^\n]*/" + name + rb"[ \t]*$"
        root = self.workspace.project_around(from_file)
        readme = self.workspace.read_or_none(self.workspace.name(root / "README.md")) or b""
        return bool(re.search(puts, readme))

    def loader_of(self, claim: Claim) -> str:
        """The first program of the project, outside of its copy of the framework, that trains and loads YAML or TOML by
        itself, where that is what a config is; of JSON none is asked for, which programs load for so much else."""
        takes = next((words for kinds, words in _TAKES if kind_of(claim.path) in kinds), None)
        if takes is None:
            return ""
        key = (self.workspace.project_around(claim.path), claim.dialect.name, takes)
        if key not in self._loaders:
            self._loaders[key] = self._loader(claim, takes)
        return self._loaders[key]

    def _loader(self, claim: Claim, takes: bytes) -> str:
        programs = programs_in(self.workspace, str(self.workspace.project_around(claim.path)))
        copies = tuple(map(Path, copies_carried(self.workspace, claim.dialect, claim.path)))
        for name in programs:
            is_copied = any(self.workspace.file(name).is_relative_to(copy) for copy in copies)
            text = b"" if is_copied else self.workspace.read_or_none(name) or b""
            if re.search(takes, text) and re.search(TRAINS, text):
                return name
        return ""

    def _asked(self, folder: str) -> Iterator[bytes]:
        for name in programs_in(self.workspace, folder):
            data = self.workspace.read_or_none(name) or b""
            if re.search(_LOADS, data):
                yield from (quoted or named for quoted, named in re.findall(_ASKED, data))
            if re.search(PARSES, data):
                yield from self._declared(name)

    def _declared(self, name: str) -> Iterator[bytes]:
        """The fields of the classes, of the project's own modules too, that a script parses beside a library's
        arguments of training."""
        with suppress(FileError):
            options = options_of_training(self.workspace.document(name))
            if options is not None:
                yield from (declared.encode() for declared in options.names)
