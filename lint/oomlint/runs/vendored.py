"""Copies of frameworks that projects carry: what such a copy declares is legal in the project's runs,
and what its code makes of a key is what the key does there.

A copy is often of another version, or changed: it has keys of its own, and values. A program that was
built after a framework's model has arguments of the same names in a package of its own, and its
configs are none of the framework's. And a program may load a config by itself: what it asks for by
name is no slip of the pen.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from oomlint.dialects.base import Claim, CodeReader, Dialect
from oomlint.dialects.machine.launch import Launch
from oomlint.dialects.table import Block, StrayKey, WrongValue, plain_value
from oomlint.documents.base import Document, PythonDocument, parser_of
from oomlint.documents.text import Source
from oomlint.errors import FileError
from oomlint.files.workspace import Workspace
from oomlint.plan.library_changes import release_of
from oomlint.runs.run import Run

if TYPE_CHECKING:
    from oomlint.documents.python.options import ScriptOptions

# `src/llamafactory/hparams/model_args.py` of a copy in a folder of the project.
_DEEPEST = 4
# To read so many takes a tenth of a second.
_MOST_PROGRAMS = 500
_PATCHES = (".patch", ".diff")
_MOST_PATCHES = 50
_VERSION = r"(?m)^(?:VERSION|__version__)\s*=\s*[\"']([^\"'\s]+)"
# Programs that train by these have options of the same names (transformers 4.57 examples/flax,
# examples/tensorflow; its research_projects over Lightning).
_IS_OF_ANOTHER = (
    rb"(?m)^[ \t]*(?:import|from)[ \t]+(?:jax|flax|tensorflow|pytorch_lightning|lightning)\b"
    rb"|\bTFTrainer\b"
)
# A class that is imported, called or derived from, not a word of a comment; Lightning's is named with its
# module, TensorFlow's has a name of its own.
_NAMES_TRAINER = (
    rb"(?m)(?:(?<![\w.])|\btransformers\.)(?!TF)\w*Trainer[ \t]*[(),]"
    rb"|^[ \t]*from[ \t]+[\w.]+[ \t]+import\b[^\n#]*\b(?!TF)\w*Trainer\b"
)
_QUOTED = rb"[\"']([^\"'\n]*)[\"']"
_DECLARES = rb"(?m)^class \w|add_argument\("
# A field of a class, and an option of a parser.
_FIELD = rb"(?m)^[ \t]+(\w+)[ \t]*:"
_OPTION = rb"[\"']--([\w-]+)[\"']"
# An option of argparse that takes several values (``nargs='+'``), with what brackets stand in its call one deep: looked
# for so far and no further, since a list of options has no end of a call.
_LIST = rb"[\"']--([\w-]+)[\"'](?:[^()]|\([^()]{0,200}\)){0,600}?\bnargs\s*=\s*(?:[\"'][*+]|[2-9])"
# A framework's package is some ten folders deep, and has some hundreds of files (ms-swift 4.4: 6, 560).
_PACKAGE_DEEPEST, _MOST_OF_PACKAGE = 10, 2000


def without_declared(
    workspace: Workspace, run: Run, claims: Sequence[Claim], readers: OwnReaders
) -> Run:
    """The run less the stray keys that the project's own programs ask for, and less those and the
    values out of range that its own copy of the framework declares, or a patch of it."""
    is_started = any(claim.is_launched for claim in claims) and not run.is_started_by_guess
    options = readers.options_of(claims) if run.stray else frozenset[str]()
    known = tuple(
        replace(stray, is_dropped=True) if _drops(workspace, stray) else stray
        for stray in run.stray
    )
    strays = tuple(
        stray
        for stray in known
        if stray.path not in options and not readers.ask_for(stray, is_started=is_started)
    )
    run = run if strays == run.stray else replace(run, stray=strays)
    redeclared = frozenset(_redeclared(run, readers))
    run = replace(run, redeclared=redeclared) if redeclared else run
    refused = [stray for stray in run.stray if stray.is_refused]
    worded = [wrong for wrong in run.wrong if _word_of(wrong)]
    listed = [wrong for wrong in run.wrong if _is_list(wrong)]
    # What the project's copy declares it reads, whatever a release makes of it.
    ignored = [stray for stray in run.stray if stray.is_ignored and stray.nearest]
    if not refused and not ignored and not worded and not listed:
        return run
    texts = [*_copies(workspace, claims), *_patches(workspace, claims)]
    copies = [readers.declared_by_copy(claim) for claim in claims]
    words = {word for text in texts for word in re.findall(rb"\w+", text)}
    declared = {name for copy in copies for name in copy.names}
    words |= declared
    choices = {choice for text in texts for choice in re.findall(_QUOTED, text)}
    choices |= {choice for copy in copies for choice in copy.choices}
    lists = {_as_field(option) for text in texts for option in re.findall(_LIST, text)}
    lists |= {option for copy in copies for option in copy.lists}

    def is_known(stray: StrayKey) -> bool:
        key = stray.path.rpartition(".")[2].encode()
        return (stray in refused and key in words) or (stray in ignored and key in declared)

    def is_declared(wrong: WrongValue) -> bool:
        if wrong in listed and _as_field(wrong.entry.key.encode()) in lists:
            return True
        return wrong in worded and _word_of(wrong).encode() in choices

    return replace(
        run,
        stray=tuple(stray for stray in run.stray if not is_known(stray)),
        wrong=tuple(wrong for wrong in run.wrong if not is_declared(wrong)),
    )


def _redeclared(run: Run, readers: OwnReaders) -> Iterator[str]:
    """Old names of keys that a script of the project gives to options of its own."""
    for block, _ in run.parts.blocks:
        if not isinstance(block.document, PythonDocument):  # a call of the library's own class
            yield from (key.path for key, _ in block.renamed() if readers.declare(key))


def lacks(workspace: Workspace, claims: Sequence[Claim], block: Block, key: str) -> bool:
    """Whether a key would be new to the project's own copy of the framework that reads a block."""
    claim = next((c for c in claims if block in c.blocks and c.dialect.declares_all), None)
    if claim is None:
        return False
    copies = list(_own_copies(workspace, claim))
    section, _, name = key.rpartition(".")
    parses = rf'add_argument\(\s*"--{re.escape(section)}\.'.encode()
    if section and any(re.search(parses, text) for text in copies):
        # Options of argparse that are called by their section: the same word in another one is another key.
        return not any(f'"--{key}"'.encode() in text for text in copies)
    words = {word for text in copies for word in re.findall(rb"\w+", text)}
    return bool(copies) and name.encode() not in words


def _own_copies(workspace: Workspace, claim: Claim) -> Iterator[bytes]:
    """The files of the project that declare the keys of a claim's framework, the program that it starts included; of
    one of which none is known those of its packages."""
    programs = (r.path for r in claim.references if r.dialect == claim.dialect.name)
    paths = (*claim.dialect.declared_in, *(path for path in programs if path.endswith(".py")))
    named = [workspace.resolve(path, claim.path) for path in paths]
    # Where one program parses all options, what its package says elsewhere is no key.
    names = named if any(named) else [*_of_packages(workspace, claim)]
    for name in dict.fromkeys(name for name in names if name is not None):
        with suppress(FileError):
            yield workspace.read(name)


def _of_packages(workspace: Workspace, claim: Claim) -> Iterator[str]:
    """The files of the framework's packages in the project that declare anything: where only configs lie there, no
    copy does."""
    folders = (
        str(each / package)
        for package in claim.dialect.packages
        for each in workspace.search_folders(claim.path)
        if workspace.holds(each, package)
    )
    for folder in folders:
        inside = f"{workspace.name(folder)}/"
        unsaved = (name for name in workspace.overlay if name.startswith(inside))
        saved = islice(workspace.below(folder, (".py",), _PACKAGE_DEEPEST), _MOST_OF_PACKAGE)
        for name in (*unsaved, *saved):
            if re.search(_DECLARES, workspace.read_or_none(name) or b""):
                yield name


def _drops(workspace: Workspace, stray: StrayKey) -> bool:
    """Whether the project's own copy of the framework goes on without a key that later releases refuse."""
    refusal = stray.block.table.refusal
    paths = () if refusal is None else refusal.paths
    names = filter(None, (workspace.resolve(path, stray.block.path) for path in paths))
    data = next((workspace.read_or_none(name) for name in names), None)
    return refusal is not None and data is not None and re.search(refusal.by, data) is None


def _word_of(wrong: WrongValue) -> str:
    """A value that may be one of a list of names; a number that is out of range is so everywhere."""
    value = plain_value(wrong.entry.value, "yaml12")
    return value if isinstance(value, str) and re.search("[A-Za-z]", value) else ""


def _is_list(wrong: WrongValue) -> bool:
    """Whether several values are given at once: a list, or words of a command that stand in one variable."""
    value = plain_value(wrong.entry.value, "yaml12")
    return isinstance(value, list) or (isinstance(value, str) and len(value.split()) > 1)


def _as_field(option: bytes) -> bytes:
    """An option of a parser as its value is called."""
    return option.replace(b"-", b"_")


def _copies(workspace: Workspace, claims: Iterable[Claim]) -> Iterator[bytes]:
    names = {
        workspace.resolve(path, claim.path)
        for claim in claims
        for path in (
            *claim.dialect.declared_in,
            *(r.path for r in claim.references if r.path.endswith(".py")),
        )
    }
    for name in filter(None, names):
        with suppress(FileError):
            yield workspace.read(name)


def _patches(workspace: Workspace, claims: Iterable[Claim]) -> Iterator[bytes]:
    """What patches that the project carries add to the files of a run's framework."""
    folders = {
        (claim.dialect.name.replace("-", "").encode(), workspace.project_around(claim.path))
        for claim in claims
    }
    for package, folder in sorted(folders):
        unsaved = (name for name in workspace.overlay if name.endswith(_PATCHES))
        names = (*unsaved, *workspace.below(str(folder), _PATCHES, _DEEPEST))
        for name in names[:_MOST_PATCHES]:
            for part in re.split(rb"(?m)^\+\+\+ ", workspace.read_or_none(name) or b"")[1:]:
                path, _, hunks = part.partition(b"\n")
                if package in path.replace(b"-", b"").replace(b"_", b"").split(b"/"):
                    yield b"\n".join(re.findall(rb"(?m)^\+(.*)$", hunks))


def _programs(workspace: Workspace, folder: str) -> Iterator[str]:
    """The Python files of a project, those that are not saved yet first."""
    unsaved = [name for name in workspace.overlay if name.endswith(".py")]
    return islice((*unsaved, *workspace.below(folder, (".py",), _DEEPEST)), _MOST_PROGRAMS)


def copies_around(workspace: Workspace, dialect: Dialect, from_file: str) -> Iterator[str]:
    """The folders around a file, within its project, that may be copies of a framework's packages."""
    if dialect.packages:
        project = workspace.project_around(from_file)
        around = (p for p in workspace.search_folders(from_file) if p.is_relative_to(project))
        for folder in around:
            yield from (str(folder / p) for p in dialect.packages if workspace.holds(folder, p))


class CarriedCode:
    """What the copies of frameworks that a project carries make of their keys; each file is read
    once."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._read: dict[tuple[str, str], Block | None] = {}

    def blocks(self, dialect: Dialect, claim: Claim, folder: str) -> Iterator[Block]:
        """What the files of the copy that a run starts say, if its project carries one."""
        for path, reader in dialect.carried_code.items():
            found = self._found(path, claim, folder)
            if found is None:
                continue
            key = (dialect.name, found)
            if key not in self._read:
                self._read[key] = self._block(found, reader)
            block = self._read[key]
            if block is not None:
                yield block

    def version(self, dialect: Dialect, claim: Claim, folder: str) -> dict[str, tuple[str, str]]:
        """The release that the copy is of, by its package, and the file that says so. A development
        version is taken for the release that it became."""
        package, paths = dialect.carried_version
        for path in paths:
            found = self._found(path, claim, folder)
            data = None if found is None else self.workspace.read_or_none(found)
            said = "" if data is None else data.decode("utf-8", "replace").strip()
            named = re.search(_VERSION, said)
            version = said if named is None else named[1]
            if found is not None and release_of(version) is not None:
                number, is_development, _ = version.partition(".dev")
                became = dialect.became.get(number, number) if is_development else version
                return {package: (became, found)}
        return {}

    def _found(self, path: str, claim: Claim, folder: str) -> str | None:
        """A file of a package that lies in the project's root, or among its sources."""
        places = (path, f"src/{path}")
        found = (self.workspace.resolve(place, claim.path, folder) for place in places)
        return next(filter(None, found), None)

    def _block(self, name: str, reader: CodeReader) -> Block | None:
        with suppress(FileError):
            return reader(Source.from_bytes(name, self.workspace.read(name)))
        return None


# What opens a config in Python: PyYAML, ruamel, OmegaConf, json, tomllib and toml, and what people
# call a function that does so.
_LOADS = rb"\b(?:yaml|json|toml\w*|OmegaConf)\.\w*load\w*\(|\bYAML\(|\b(?:load|read)_(?:yaml|config|cfg)\("
_TO_WRITE = rb"[\"']\s*,\s*(?:mode\s*=\s*)?[\"'][wxa]"
_ASKED = rb"[\"'](\w+)[\"']|\.(\w+)"
# Parsers whose options are the fields of dataclasses: of transformers, TRL and alignment-handbook.
_PARSES = rb"\b(?:HfArgumentParser|TrlParser|H4ArgumentParser)\("
_OF_TRAINING = r"^(?:transformers|trl)\b.*(?:TrainingArguments|Config)$"


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
        self._words: dict[str, frozenset[bytes]] = {}
        self._options: dict[str, frozenset[bytes]] = {}

    def declared_by_copy(self, claim: Claim) -> Declared:
        """What the project's copy of the framework's whole package declares: later releases, and people who change
        it, do so in files that none of this one's are named as."""
        folders = list(copies_around(self.workspace, claim.dialect, claim.path))
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
        files = self.workspace.below(folder, (".py",), _PACKAGE_DEEPEST)
        for name in islice(files, _MOST_OF_PACKAGE):
            data = self.workspace.read_or_none(name) or b""
            names.update(re.findall(_FIELD, data))
            names.update(map(_as_field, re.findall(_OPTION, data)))
            choices.update(re.findall(_QUOTED, data))
            lists.update(map(_as_field, re.findall(_LIST, data)))
        return Declared(frozenset(names), frozenset(choices), frozenset(lists))

    def options_of(self, claims: Iterable[Claim]) -> frozenset[str]:
        """The options that the programs which commands start parse beside a library's arguments of training,
        whatever these programs do with them: one that is not followed has them all the same."""
        scripts = ((path, claim.path) for claim in claims for path in claim.scripts)
        found = (self.workspace.resolve(path, base) for path, base in scripts)
        names = {name for name in found if name is not None}
        return frozenset(each.decode() for name in names for each in self._declared(name))

    def declare(self, key: StrayKey) -> bool:
        """Whether a script of the project parses a key into a class of its own beside a library's arguments."""
        folder = str(self.workspace.project_around(key.block.path))
        if folder not in self._options:
            self._options[folder] = frozenset(self._parsed(folder))
        return key.entry.key.encode() in self._options[folder]

    def _parsed(self, folder: str) -> Iterator[bytes]:
        for name in _programs(self.workspace, folder):
            if re.search(_PARSES, self.workspace.read_or_none(name) or b""):
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

    def write(self, path: str, from_file: str) -> bool:
        """Whether a program of the project opens a file of this name to write it."""
        name = re.escape(os.path.basename(path)).encode()
        opens = rb"\bopen\(\s*[rf]?[\"'](?:[^\"'\n]*/)?" + name + _TO_WRITE
        programs = _programs(self.workspace, str(self.workspace.project_around(from_file)))
        return any(re.search(opens, self.workspace.read_or_none(each) or b"") for each in programs)

    def _asked(self, folder: str) -> Iterator[bytes]:
        for name in _programs(self.workspace, folder):
            data = self.workspace.read_or_none(name) or b""
            if re.search(_LOADS, data):
                yield from (quoted or named for quoted, named in re.findall(_ASKED, data))
            if re.search(_PARSES, data):
                yield from self._declared(name)

    def _declared(self, name: str) -> Iterator[bytes]:
        """The fields of the classes, of the project's own modules too, that a script parses beside a library's
        arguments of training."""
        with suppress(FileError):
            options = options_of_training(self.workspace.document(name))
            if options is not None:
                yield from (declared.encode() for declared in options.names)


# A list of words, or a line, that begins with a program which trains or starts what does.
_STARTS = (
    rb"[\[(=,]\s*[rbf]?[\"'](?:torchrun|accelerate|deepspeed|llamafactory-cli|swift|axolotl|trl|tune)"
    rb"(?:[\"']\s*,|[ ]+[\w-])"
)
# Of a config with fewer, a program names most keys by chance.
_FEWEST_KEYS = 6
_AS_PROCESS = rb"\bsubprocess\b|\bos\.(?:system|exec\w+|popen)\(|\bPopen\("
# What a program that trains by itself has.
_TRAINS = rb"Trainer\b|TrainingArguments|\.backward\(|\.from_pretrained\(|import train\b"


# Who runs backward, or asks torch for gradients as a function's value (torch 2.9 func, autograd.grad).
_DIFFERENTIATES = rb"\.backward\(|\bgrad_and_value\(|\bautograd\.grad\("


class OwnPrograms:
    """Which projects train with a program of their own that took over a framework's arguments, or
    that starts a framework's."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._found: dict[tuple[str, str], bool] = {}
        self._unparsed: dict[tuple[str, tuple[str, ...]], tuple[bytes, ...]] = {}

    def has(self, claim: Claim) -> bool:
        """Whether the project around a config declares the framework's own arguments, in files of
        the framework's names, in a package of another name only."""
        dialect = claim.dialect
        if not dialect.declares or self._carries(claim):
            return False
        folder = str(self.workspace.project_around(claim.path))
        key = (folder, dialect.name)
        if key not in self._found:
            self._found[key] = any(self._akin(folder, dialect))
        return self._found[key]

    def reads_itself(self, config: Claim) -> bool:
        """Whether a program of the project's own names most of the keys of a config, where nothing in the
        project has the parser that the framework's programs read such a file with: what the keys mean is
        that program's to say, a name that the framework gave up included."""
        parsers = config.dialect.config_parsers
        if not parsers or config.path.endswith(".py") or not config.blocks:
            return False
        keys = config.blocks[-1].mapping.entries
        if len(keys) < _FEWEST_KEYS:
            return False
        folder = str(self.workspace.project_around(config.path))
        if (folder, parsers) not in self._unparsed:
            self._unparsed[folder, parsers] = tuple(self._without(folder, parsers))
        words = [b"[\"']" + re.escape(key.encode()) + b"[\"']" for key in keys]
        return any(
            sum(re.search(word, text) is not None for word in words) * 2 >= len(words)
            for text in self._unparsed[folder, parsers]
        )

    def _without(self, folder: str, parsers: tuple[str, ...]) -> Iterator[bytes]:
        """The programs of a project where none has one of these parsers. Which of them loads a file often only
        another module tells."""
        texts = [self.workspace.read_or_none(p) or b"" for p in _programs(self.workspace, folder)]
        parses = re.compile("|".join(parsers).encode())
        if not any(map(parses.search, texts)):
            yield from texts

    def starts_another(self, launch: Claim) -> bool:
        """Whether the script of a command trains nothing itself but starts a launcher as a process
        of its own: what it tells that one, its options do not say."""
        for script in launch.scripts:
            name = self.workspace.resolve(script, launch.path)
            data = (name and self.workspace.read_or_none(name)) or b""
            if (
                re.search(_AS_PROCESS, data)
                and re.search(_STARTS, data)
                and not re.search(_TRAINS, data)
            ):
                return True
        return False

    def is_namesake(self, launch: Claim, program: Launch | None) -> bool:
        """Whether the program of a command has only its name and a few options in common with the script
        that a profile tells all of: the project names these, and hardly any of that one's others."""
        if program is None or program.script is None:
            return False
        from oomlint.dialects.profiles.build import ScriptTable  # few runs are a command's

        tables = (b.table for b in launch.blocks if isinstance(b.table, ScriptTable))
        table = next((table for table in tables if table.has_only), None)
        if table is None:
            return False
        found = self._program(launch, program)
        given = sorted(table.has_only & set(program.flags.entries))
        others = sorted(table.has_only.difference(given))
        if found is None or not others:
            return False
        folder = str(self.workspace.project_around(found))
        key = (folder, f"{found}: {' '.join(others)}")
        if key not in self._found:
            is_read = all(any(self._naming(folder, found, option)) for option in given)
            named = sum(any(self._naming(folder, found, option)) for option in others)
            self._found[key] = is_read and (len(given) + named) * 2 < len(table.has_only)
        return self._found[key]

    def does_without(self, launch: Claim, program: Launch | None) -> bool:
        """Whether a command starts a program of the project's own that cannot be the framework's, whatever
        its name and its options are, since nothing in the project names its library."""
        library = launch.dialect.library
        found = None if not library or program is None else self._program(launch, program)
        if found is None:
            return False
        folder = str(self.workspace.project_around(found))
        key = (folder, library)
        if key not in self._found:
            self._found[key] = not any(self._naming(folder, found, library))
        return self._found[key]

    def loops_itself(self, launch: Claim, program: Launch | None) -> bool:
        """Whether a command that has options like those of a trainer's programs starts one of the project's own
        which goes through its loop by itself, and has no trainer, or leaves it to another framework."""
        trainer = launch.dialect.trainer
        found = None if not trainer or program is None else self._program(launch, program)
        if found is None or program is None or launch.dialect.profiles.tell_all_of(program):
            return False
        data = self.workspace.read_or_none(found) or b""
        differentiates = re.search(_DIFFERENTIATES, data) is not None
        if differentiates and re.search(rf"\b{trainer}\b".encode(), data) is None:
            return True
        return bool(re.search(_IS_OF_ANOTHER, data)) and not re.search(_NAMES_TRAINER, data)

    def _program(self, launch: Claim, program: Launch) -> str | None:
        """The file here of the script or the module that a command starts."""
        path = program.script or (
            f"{program.name.replace('.', '/')}.py" if program.is_module else ""
        )
        return self.workspace.resolve(path, launch.path, program.command.folder) if path else None

    def _naming(self, folder: str, program: str, word: str) -> Iterator[bool]:
        """The files, the program first, that name a library or an option."""
        named = re.compile(rf"\b{word}\b".encode())
        for name in (program, *_programs(self.workspace, folder)):
            if named.search(self.workspace.read_or_none(name) or b""):
                yield True

    def _carries(self, claim: Claim) -> bool:
        paths = claim.dialect.declared_in
        return any(self.workspace.resolve(path, claim.path) is not None for path in paths)

    def _akin(self, folder: str, dialect: Dialect) -> Iterator[bool]:
        names = {path.rpartition("/")[2] for path in dialect.declared_in}
        declared = re.compile(rf"^\s+(?:{'|'.join(dialect.declares)})\s*:".encode(), re.MULTILINE)
        files = self.workspace.below(folder, (".py",), _DEEPEST)
        for name in (*files, *self.workspace.overlay):
            if name.rpartition("/")[2] in names:
                yield declared.search(self.workspace.read_or_none(name) or b"") is not None
