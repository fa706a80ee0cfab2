"""How a config is started that no script here starts: what documents it, or what it is taken to be.

A line at the config's own head or in a README that names it, one of a Python program that starts it in a process, or that starts a script which then names
it, documents the launch. Else the project's lines for configs of its kind are a hint: that of the
nearest is taken to be the config's too, which is assumed as long as all of them shard alike, and
otherwise, or where only programs of another kind are shown, not read: somebody knows which it is, and
the files do not say. What a comment
at the head says of the machine counts before the lines for others; a documented line that does not
agree with it leaves open which of the two holds.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import islice
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from oomlint.dialects.base import Claim, Reference
from oomlint.dialects.kinds import is_stand_in
from oomlint.documents import TOML_SUFFIXES, YAML_SUFFIXES, kind_of
from oomlint.documents.base import UNKNOWN, Document, Scalar
from oomlint.documents.text import Source
from oomlint.errors import FileError
from oomlint.files import dependencies
from oomlint.files.workspace import Workspace
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.sibling_launches import STARTS, distance, launch_scripts, stand_alike

if TYPE_CHECKING:
    from oomlint.dialects.block import Block
    from oomlint.dialects.machine.handed import Handed
    from oomlint.runs.run import Run

IN_COMMENT = "it stands in a comment"
IN_README = "it stands in a README"
IN_PROGRAM = "a Python program starts it"
OF_ANOTHER = "it starts another config"

# What a launch decides on beside the number of ranks.
_SHARDING: tuple[Any, ...] = (
    f.parallel.backend,
    f.parallel.zero.stage,
    f.parallel.fsdp.strategy,
    f.offload.optimizer,
    f.offload.params,
)
# What starts a process in Python, and what starts training in one.
_PROCESSES = (b"subprocess", b"os.system", b"os.popen")
_TRAINS = (
    *STARTS,
    b"python",
    b"executable",
    b"axolotl",
    b"llamafactory-cli",
    b"swift",
    b"tune run",
)
_README_NAMES = ("README.md", "readme.md", "Readme.md")
# Of those of a folder, which may have one in each language, so many are looked into.
_MOST_READMES = 4
# Lines that differ, of which is asked how they shard: a sweep has no more ways.
_MOST_COMPARED = 8
# Of the guides of a project, which may be a book, so many are looked into.
_MOST_GUIDES = 24


class LinkerReading(Struct, frozen=True, eq=False):
    """What a linker lends: the launch lines of a script by its name, those of a script that is
    started with arguments, and the run that comes of a claim."""

    launches: Callable[[str], Sequence[Claim]]
    handed: Callable[[Handed, str], Iterable[Claim]]
    built: Callable[[Claim], Run]


class _Line(Struct, frozen=True, eq=False):
    """A launch line, the config that it starts, how far that is from another, and whether both are
    trained alike."""

    launch: Claim
    started: str
    reason: str
    apart: int = 0
    is_kin: bool = True


class _Way(Struct, frozen=True, eq=False, dict=True):
    """How a config would be started by the line of another."""

    line: _Line
    launch: Claim
    built: Callable[[Claim], Run]

    @cached_property
    def run(self) -> Run:
        """Built where there is another way to compare with."""
        return self.built(self.launch)


class Suggestions:
    """The launch lines that a project shows, by the config that they start."""

    def __init__(self, workspace: Workspace, reading: LinkerReading) -> None:
        self.workspace = workspace
        self.reading = reading
        self._shown: dict[tuple[str, str], list[_Line]] = {}
        self._scripted: dict[tuple[str, str], list[_Line]] = {}
        self._headed: dict[tuple[str, str], list[_Line]] = {}
        self._commands: dict[str, Document | None] = {}
        self._processes: dict[str, Document | None] = {}
        self._guides: dict[str, tuple[str, ...]] = {}
        self._readmes: dict[str, tuple[str, ...]] = {}
        self._folders: dict[str, tuple[tuple[str, bool], ...]] = {}
        self._notes: dict[str, tuple[str, ...]] = {}
        self._programs: dict[str, tuple[str, ...]] = {}

    def started(self, claim: Claim) -> Claim:
        """The launch line that a config is started by, or is taken to be, where no script here
        starts it; the claim on the config itself where there is none."""
        if claim.kind != "run" or kind_of(claim.path) not in (*YAML_SUFFIXES, *TOML_SUFFIXES):
            return claim
        header = self._started_by(_header(claim.document.source), claim)
        if len(header) == 1:
            own = self._by_path(header[0], claim)
            return self._told(own, claim, IN_COMMENT, Level.STATED)
        told = [line for line in self._documented(claim) if line.started == claim.path]
        if header:
            # Of several ways at its head the one counts that a guide shows, too.
            ways = {words_of(self._by_path(each, claim)) for each in header}
            shown = {words_of(self._by_path(line.launch, claim)): line for line in told}
            both = [line for words, line in shown.items() if words in ways]
            if len(both) != 1:
                return claim
            return self._told(both[0].launch, claim, both[0].reason, Level.FACT)
        said = self._head(claim)
        launches = [line.launch for line in told]
        if not launches:
            taken = self._taken(claim)
            return taken if said is None else replace(taken, blocks=(*taken.blocks, said))
        differ = len({words_of(launch) for launch in launches}) > 1
        level = Level.ASSUMED if differ else Level.FACT
        launch = self._told(launches[0], claim, told[0].reason, level)
        if said is not None and _disagrees(said, self.reading.built(launch)):
            return self._told(launches[0], claim, told[0].reason, Level.UNREAD)
        return launch

    # -- taken to be ----------------------------------------------------------------------

    def _taken(self, claim: Claim) -> Claim:
        """The nearest line for a config of its kind as this config's own."""
        ways: dict[tuple[object, ...], _Way] = {}
        lines = self._of_others(claim)
        kin = [line for line in lines if line.is_kin]
        for line in kin or lines:
            launch = self._told(_as_beside(line.launch, claim), claim, line.reason, Level.ASSUMED)
            words = words_of(launch)
            if words not in ways and len(ways) < _MOST_COMPARED:
                ways[words] = _Way(line, launch, self.reading.built)
        if not ways:
            return claim
        if len(ways) == 1 and kin:
            return next(iter(ways.values())).launch
        nearest = _nearest(ways.values())
        if kin and _are_alike(way.run for way in ways.values()):
            return nearest.launch
        return self._told(nearest.launch, claim, nearest.line.reason, Level.UNREAD)

    def _of_others(self, claim: Claim) -> list[_Line]:
        """The lines that start configs like this one, the nearest first. Of a config
        that a script starts the script counts, whatever a README shows, which mostly has examples: of
        those only the ones that stand as the config does."""
        found: list[_Line] = []
        scripted = [*self._in_heads(claim), *self._in_scripts(claim)]
        run = {line.started for line in scripted}
        for line in (*scripted, *self._documented(claim)):
            if line.reason in (IN_README, IN_PROGRAM) and (
                line.started in run or not stand_alike(claim.path, line.started)
            ):
                continue
            apart = distance(claim.path, line.started)
            # A path on its author's machine that ends as this one does is this one.
            is_kin = os.path.isabs(line.started) or claim.dialect.are_kin(claim, line.launch)
            if apart is not None:
                found.append(replace(line, apart=apart, is_kin=is_kin))
        return sorted(found, key=lambda line: line.apart)

    # -- lines ----------------------------------------------------------------------------

    def _in_scripts(self, claim: Claim) -> list[_Line]:
        """The lines of launch scripts above a config that start configs of its framework: worked
        out once for all configs of a folder."""
        key = (claim.path.rpartition("/")[0], claim.dialect.name)
        if key not in self._scripted:
            self._scripted[key] = [
                _Line(launch, started, OF_ANOTHER)
                for name in launch_scripts(self.workspace, claim.path)
                for launch in self.reading.launches(name)
                for started in (
                    *self._started(launch, name, claim.dialect.name),
                    *([name] if _takes_any(launch, claim.dialect.name) else ()),
                )
            ]
        return self._scripted[key]

    def _in_heads(self, claim: Claim) -> list[_Line]:
        """The lines at the heads of the configs of a folder that start these: worked out once for all."""
        key = (claim.path.rpartition("/")[0], claim.dialect.name)
        if key not in self._headed:
            self._headed[key] = [
                _Line(launch, name, OF_ANOTHER)
                for name in self.workspace.beside(claim.path)
                for launch in self._at_head_of(name, claim)
                if name in self._started(launch, name, claim.dialect.name)
            ]
        return self._headed[key]

    def _at_head_of(self, name: str, claim: Claim) -> Sequence[Claim]:
        """The launch lines in the comment at the head of another config. Where there are none, what stands below does
        not matter, and somebody may change it."""
        from oomlint.documents.header import head_of

        data, sights = self._seen_apart(name)
        head = b"" if data is None else head_of(data)
        launches = _launches_in(name, head, claim) if b"#" in head else ()
        if data is not None and not launches:
            if sights:
                dependencies.saw_start(self.workspace.file(name), head)
            return ()
        dependencies.saw_all(sights)
        if data is None or not any(word in data for word in STARTS):
            return ()
        return _launches_in(name, data, claim)

    def _seen_apart(self, name: str) -> tuple[bytes | None, dependencies.Sights]:
        """A text, and what was seen of it, which whoever reads it may note."""
        if not dependencies.is_recording():
            return self.workspace.read_or_none(name), {}
        with dependencies.recording() as sights:
            return self.workspace.read_or_none(name), sights

    def _documented(self, claim: Claim) -> Iterator[_Line]:
        """The lines that READMEs above a config show, and by which Python programs start processes, of configs of
        its framework that are here."""
        for path in (*self.readmes(claim.path), *self.programs(claim.path)):
            key = (path, claim.dialect.name)
            if key not in self._shown:
                self._shown[key] = list(self._shown_in(path, claim))
            yield from self._shown[key]

    def readmes(self, name: str) -> Iterator[str]:
        """The READMEs above a file, the nearest first: in a folder of its project the one that is called just so, then
        those of other languages or days (``README_zh.md``, ``README_old.md``). Of what else a folder above the project
        holds an answer does not depend."""
        for key, is_inside in self._folders_above(name):
            if key not in self._readmes:
                self._readmes[key] = self._all_of(key) if is_inside else self._usual_of(key)
            yield from self._readmes[key]

    def _folders_above(self, name: str) -> tuple[tuple[str, bool], ...]:
        """The folders above a file, the nearest first, and whether each is in its project: for all that stand
        beside each other the same."""
        folder = os.path.dirname(name)
        if folder not in self._folders:
            around = self.workspace.project_around(name)
            above = reversed(self.workspace.search_folders(name))
            self._folders[folder] = tuple((str(e), e.is_relative_to(around)) for e in above)
        return self._folders[folder]

    def _all_of(self, folder: str) -> tuple[str, ...]:
        found = self.workspace.documents_in(self.workspace.name(folder), deepest=0)
        named = sorted(filter(_is_readme, found), key=lambda each: len(PurePath(each).stem))
        return tuple(named[:_MOST_READMES])

    def _usual_of(self, folder: str) -> tuple[str, ...]:
        names = (self.workspace.name(os.path.join(folder, each)) for each in _README_NAMES)
        return tuple(islice(filter(self.workspace.exists, names), 1))

    def programs(self, name: str) -> Iterator[str]:
        """The Python programs in the folders above a file, as far as its project goes, that name it and start
        processes that train."""
        word = os.path.basename(name).encode("utf-8", "surrogateescape")
        for key, is_inside in self._folders_above(name):
            if not is_inside:
                continue
            if key not in self._programs:
                beside = self.workspace.beside(self.workspace.name(os.path.join(key, "_.py")))
                self._programs[key] = tuple(each for each in beside if self._starts_processes(each))
            for each in self._programs[key]:
                if each != name and word in (self.workspace.read_or_none(each) or b""):
                    yield each

    def _starts_processes(self, name: str) -> bool:
        data = self.workspace.read_or_none(name) or b""
        return any(word in data for word in _PROCESSES) and any(word in data for word in _TRAINS)

    def guides(self, name: str) -> Iterator[str]:
        """The documents in the ``docs`` folders above a file, the nearest first."""
        for folder in reversed(self.workspace.search_folders(name)):
            docs = self.workspace.name(os.path.join(folder, "docs"))
            if docs not in self._guides:
                found = self.workspace.documents_in(docs, deepest=0)
                self._guides[docs] = tuple(path for path in found if path.endswith(".md"))
            yield from self._guides[docs][:_MOST_GUIDES]

    def notes(self, name: str) -> Iterator[str]:
        """What else there is to read in the folders above a file, as far as its project goes: plans, how to train."""
        around = self.workspace.project_around(name)
        for folder in reversed(self.workspace.search_folders(name)):
            key = str(folder)
            if key not in self._notes:
                is_inside = folder.is_relative_to(around)
                found = self.workspace.documents_in(self.workspace.name(key), deepest=0)
                notes = (each for each in found if each.endswith(".md") and not _is_readme(each))
                self._notes[key] = tuple(islice(notes, _MOST_GUIDES)) if is_inside else ()
            yield from self._notes[key]

    def _shown_in(self, readme: str, claim: Claim) -> Iterator[_Line]:
        is_program = readme.endswith(".py")
        document = self.processes_of(readme) if is_program else self.commands_of(readme)
        if document is None:
            return
        from oomlint.dialects.machine.handed import handed

        launches = [each for each in claim.dialect.recognise(document) if each.kind == "launch"]
        for given in handed(document):
            launches += self.reading.handed(given, readme)
        for launch in launches:
            for started in self._started(launch, readme, claim.dialect.name):
                if self.workspace.exists(started):
                    reason = IN_PROGRAM if is_program else IN_README
                    yield _Line(launch, started, reason)

    def commands_of(self, readme: str) -> Document | None:
        """What the fenced code of a README starts, or a script by what it says of itself."""
        if readme not in self._commands:
            data = self.workspace.read_or_none(readme)
            self._commands[readme] = _commands_in(readme, data) if data else None
        return self._commands[readme]

    def processes_of(self, program: str) -> Document | None:
        """What a Python program starts in processes."""
        if program not in self._processes:
            data = self.workspace.read_or_none(program)
            self._processes[program] = _processes_in(program, data) if data else None
        return self._processes[program]

    def handed_to(self, script: str) -> Iterator[Handed]:
        """How the READMEs above a script that takes arguments show it started with some, each way once;
        what they leave to be filled in (``MODEL=...``) is not known."""
        from oomlint.dialects.machine.handed import handed

        seen: set[tuple[str | None, ...]] = set()
        for readme in self.readmes(script):
            document = self.commands_of(readme)
            for given in handed(document) if document is not None else ():
                is_it = self.workspace.resolve(given.script, readme) == script
                words = tuple(
                    None if word and is_stand_in(word) else word for word in given.arguments
                )
                if is_it and words not in seen:
                    seen.add(words)
                    yield replace(given, arguments=words)

    def cards_for(self, script: str) -> str | None:
        """The cards that the READMEs above a script give it wherever they start it (``CUDA_VISIBLE_DEVICES=0 ./train.sh``);
        ``None`` where none starts it, or they differ."""
        from oomlint.dialects.machine.handed import CARDS, started_scripts

        shown: set[str | None] = set()
        word = os.path.basename(script).encode("utf-8", "surrogateescape")
        for readme in self.readmes(script):
            is_named = word in (self.workspace.read_or_none(readme) or b"")
            document = self.commands_of(readme) if is_named else None
            for name, variables in started_scripts(document) if document is not None else ():
                if self.workspace.resolve(name, readme) == script:
                    shown.add(variables.get(CARDS))
        return shown.pop() if len(shown) == 1 else None

    def _started(self, launch: Claim, name: str, dialect: str) -> Iterator[str]:
        """The configs of a framework that a line starts which stands in a file."""
        if launch.dialect.name != dialect:
            return
        for reference in launch.references:
            if reference.dialect == dialect:
                yield self.workspace.resolve(reference.path, name) or reference.path

    # -- the config's own head ------------------------------------------------------------

    def _head(self, claim: Claim) -> Block | None:
        """What the comment above the first key says of the machine."""
        if "#" not in claim.document.source.text:  # nor is there a comment
            return None
        from oomlint.dialects.machine.head_comment import head_comment

        return head_comment(claim.document)

    def _started_by(self, document: Document | None, claim: Claim) -> list[Claim]:
        """The launch lines of a document that start a config."""
        if document is None:
            return []
        return [
            launch
            for launch in claim.dialect.recognise(document)
            if launch.kind == "launch" and self._starts(launch, claim)
        ]

    def _starts(self, launch: Claim, claim: Claim) -> bool:
        return any(self._names(reference, claim) for reference in launch.references)

    def _names(self, reference: Reference, claim: Claim) -> bool:
        """Whether a path, or what a framework calls its own file (``--config llama2/13B_full``), is a config's."""
        if self.workspace.resolve(reference.path, claim.path) == claim.path:
            return True
        called, path = PurePath(reference.path).parts, PurePath(claim.path).with_suffix("").parts
        is_name = bool(called) and not PurePath(reference.path).suffix
        return (
            is_name and reference.dialect == claim.dialect.name and path[-len(called) :] == called
        )

    def _by_path(self, launch: Claim, claim: Claim) -> Claim:
        references = tuple(
            replace(each, path=claim.path) if self._names(each, claim) else each
            for each in launch.references
        )
        return replace(launch, references=references)

    # -- as the config's own --------------------------------------------------------------

    def _told(self, launch: Claim, claim: Claim, reason: str, level: Level) -> Claim:
        """A launch line that a config is told to be started by, and so well the files that it names:
        none of it is to be edited."""
        blocks = tuple(replace(block, locked=reason, level=level) for block in launch.blocks)
        references = tuple(
            each
            if self.workspace.resolve(each.path, launch.path) == claim.path
            else replace(each, level=level)
            for each in launch.references
        )
        return replace(launch, blocks=blocks, references=references)


def _is_readme(name: str) -> bool:
    path = PurePath(name)
    return path.suffix.lower() == ".md" and path.stem.lower().startswith("readme")


def _takes_any(launch: Claim, dialect: str) -> bool:
    """Whether a line starts the config of a framework that it is given itself (``--config $1``)."""
    entry = launch.blocks[-1].mapping.entries.get("config") if launch.blocks else None
    said = None if entry is None else entry.value
    is_open = isinstance(said, Scalar) and said.value is UNKNOWN
    return is_open and launch.dialect.name == dialect


def _launches_in(name: str, data: bytes, claim: Claim) -> Sequence[Claim]:
    head = _header(Source(name, data.decode("utf-8", "replace")))
    found = claim.dialect.recognise(head) if head is not None else ()
    return [each for each in found if each.kind == "launch"]


def _header(source: Source) -> Document | None:
    """What the comment at the head of a config starts."""
    if "#" not in source.text:  # nor is there a comment
        return None
    from oomlint.documents.header import start_in_header

    with suppress(FileError):  # a comment need not be shell
        return start_in_header(source)
    return None


def _commands_in(name: str, data: bytes) -> Document | None:
    from oomlint.documents.readme import starts_in_readme
    from oomlint.documents.usage import starts_in_script

    starts = starts_in_script if name.endswith(".py") else starts_in_readme
    with suppress(FileError):  # it need not be shell
        return starts(Source(name, data.decode("utf-8", "replace")))
    return None


def _processes_in(name: str, data: bytes) -> Document | None:
    from oomlint.documents.python.processes import starts_in_processes

    with suppress(FileError):  # what is filled in may leave no command
        return starts_in_processes(Source(name, data.decode("utf-8", "replace")))
    return None


def _as_beside(launch: Claim, claim: Claim) -> Claim:
    """The launch line of a config's sibling as one of its own, which it is taken to have: the
    machine and what starts the ranks. Which script of the project's own trains the sibling, and
    what it is told there, is the sibling's alone."""
    references = tuple(
        replace(r, path=claim.path) if r.dialect == claim.dialect.name else r
        for r in launch.references
        if r.dialect
    )
    if _takes_any(launch, claim.dialect.name):
        references = (*references, Reference(claim.path, launch.anchor, claim.dialect.name))
    blocks = tuple(block for block in launch.blocks if block.table.section != "training")
    return replace(launch, blocks=blocks, references=references)


def words_of(launch: Claim) -> tuple[object, ...]:
    """What a launch line says, wherever it stands."""
    named = tuple(reference.path for reference in launch.references)
    said = (
        (key, str(entry.value.value) if isinstance(entry.value, Scalar) else "")
        for block in launch.blocks
        for key, entry in block.mapping.entries.items()
    )
    return (named, tuple(said))


def _nearest(ways: Iterable[_Way]) -> _Way:
    """The way of the nearest line; of two that are as near the one counts that tells how many ranks there are."""
    by_distance = sorted(ways, key=lambda way: way.line.apart)
    near = [way for way in by_distance if way.line.apart == by_distance[0].line.apart]
    return near[0] if len(near) == 1 else min(near, key=lambda way: _ranks(way.run) is None)


def _are_alike(runs: Iterable[Run]) -> bool:
    """Whether launches shard alike, as far as they say how: of runs that are built as they are asked for, none behind the
    first that does not. By half as many ranks again a share of the states changes less than by what the ranks do with it."""
    sharding: dict[Any, Any] = {}
    ranks = []
    for run in runs:
        said = {field: _known(run, field) for field in _SHARDING}
        if any(v is not None and sharding.setdefault(k, v) != v for k, v in said.items()):
            return False
        number = _ranks(run)
        ranks += [] if number is None else [number]
    return not ranks or max(ranks) <= 2 * min(ranks)


def _disagrees(said: Block, run: Run) -> bool:
    """Whether a comment says something else of the machine than how a run is started."""
    settings: dict[Any, Any] = {field: each.value for field, each in said.read().settings.items()}
    nodes = settings.pop(f.parallel.nodes, 1)
    gpus = settings.pop(f.parallel.gpus_per_node, None)
    ranks = _ranks(run)
    if gpus and ranks and max(ranks, nodes * gpus) > 2 * min(ranks, nodes * gpus):
        return True
    found = {field: run.settings.get(field) for field in settings}
    return any(own is not None and own.value != settings[field] for field, own in found.items())


def _ranks(run: Run) -> int | None:
    """How many ranks a run has, where that was read."""
    ranks: int | None = _known(run, f.parallel.world)
    return ranks


def _known(run: Run, field: Any) -> Any:
    """The value of a field; ``None`` where it was not read."""
    return None if run.level(field) is Level.UNREAD else run.plan.get(field)
