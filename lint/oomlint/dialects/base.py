"""What a dialect is: one framework, seen as tables plus what its code makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping as MappingABC, Sequence
from copy import copy
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from msgspec import Struct
from msgspec.structs import replace

from oomlint.dialects.block import Block
from oomlint.dialects.meaning import Meaning, Wishes, expressed, writable
from oomlint.dialects.reading import StrayKey
from oomlint.dialects.skeleton import Skeleton, Start
from oomlint.documents import PYTHON_SUFFIXES
from oomlint.documents.base import Document, Fact, PythonDocument, ShellDocument
from oomlint.documents.text import Location, Source, Span
from oomlint.plan.evidence import Level
from oomlint.plan.library_changes import release_of

if TYPE_CHECKING:
    from oomlint.dialects.cells import Cells
    from oomlint.dialects.profiles.match import Profiles

ClaimKind = Literal["run", "part", "launch", "aside"]
CodeReader = Callable[[Source], Block | None]
"""What a file of a framework's code says of its keys; ``None`` for nothing."""


class Reference(Struct, frozen=True, eq=False):
    """A file that a block names.

    ``dialect`` is the name of the dialect that reads it. ``optional``: nothing is lost where the file is
    not here or holds nothing of ours (the script that a launch line starts). ``claim`` is the
    name of the one claim wanted of a file that holds several runs; the others stay on their own.
    ``decides``: whoever names the file claims a run only if the file is of that dialect.
    ``adopts``: naming the file makes it one of that dialect, though nothing in it tells.
    ``vouched_for``: so it does where one of these is what it is taken for (the script that reads it).
    ``level`` is how well it is known that the run takes the file in. ``is_base``: the run begins with it, so that
    where it is not here nobody knows what the framework's defaults give way to. ``framework`` is the name of the dialect
    that takes the path from a config, where that tells what it ships under it.
    """

    path: str
    location: Location
    dialect: str
    optional: bool = False
    claim: str = ""
    decides: bool = False
    adopts: bool = True
    vouched_for: tuple[Reference, ...] = ()
    level: Level = Level.STATED
    is_base: bool = False
    framework: str = ""


class Demand(Struct, frozen=True):
    """A key that a framework asks of a file which a setting of its names, or it stops; ``since`` are a package and
    its release from which on it does."""

    key: str
    since: tuple[str, tuple[int, ...]] | None = None

    def is_made(self, versions: MappingABC[str, tuple[str, str]]) -> bool:
        """Whether the library that a project pins asks so; today's where none is pinned."""
        if self.since is None:
            return True
        package, first = self.since
        pinned = release_of(versions.get(package, ("", ""))[0])
        return pinned is None or pinned >= first


class Claim(Struct, frozen=True, eq=False):
    """A document, or a part of one, that a dialect recognises.

    ``run``: the centre of a training run; ``part``: a file that serves runs (DeepSpeed JSON,
    Accelerate YAML) and is linted alone when no run uses it; ``launch``: a command line that
    starts a run described elsewhere; ``aside``: belongs to the framework but trains nothing.
    ``references`` are files named outside a table row (a launch line's YAML). ``merges``: an
    aside that adds an adapter to its base and writes the whole model, which takes memory too.
    ``is_shipped``: the file is one that a framework ships, unchanged and whole, or stands in a
    folder of such, so that other runs name it too: a run gets a copy of its own before anything in
    it is changed. ``named`` is what the file was reached by, ``None`` of what the run begins with.
    """

    dialect: Dialect
    kind: ClaimKind
    document: Document
    blocks: tuple[Block, ...]
    references: tuple[Reference, ...] = ()
    facts: tuple[Fact, ...] = ()
    name: str = ""
    framework: str = ""
    merges: bool = False
    is_shipped: bool = False
    named: Reference | None = None
    started_by: str = ""
    """Of a command line the script that starts the one in which it stands, and tells it what to train."""

    @property
    def path(self) -> str:
        return self.document.source.path

    @property
    def is_launched(self) -> bool:
        """Whether the claim is a command line, so that nothing about the launch is hidden."""
        return isinstance(self.document, ShellDocument)

    @property
    def scripts(self) -> Iterator[str]:
        """The paths of the Python programs that a command starts, as it writes them."""
        return (r.path for r in self.references if not r.dialect and r.path.endswith(".py"))

    @property
    def is_program(self) -> bool:
        """Whether the claim is Python code, of a notebook too: whoever wrote that may start it bare."""
        return isinstance(self.document, PythonDocument)

    @property
    def anchor(self) -> Location:
        # Of a command line the last block is the program's own, after the scene it stands in.
        span = self.blocks[-1 if self.is_launched else 0].anchor if self.blocks else Span(0, 0)
        return Location(self.path, span)


class Dialect:
    """One framework. Stateless: subclasses hold tables and pure functions."""

    name: ClassVar[str]
    """As reports and ``--framework`` name it: axolotl, llama-factory, trl …"""

    markers: ClassVar[tuple[bytes, ...]] = ()
    """Any of these bytes must stand in a file for the dialect to look at it."""

    markers_prove: ClassVar[bool] = True
    """Whether a file with a marker is a training config even if nobody can parse it, so that
    this is an error; manifests of other programs and templates of them are passed over."""

    suffixes: ClassVar[tuple[str, ...]] = (".yaml", ".yml")

    only_marked: ClassVar[tuple[str, ...]] = ()
    """Of these, kinds of files in which nothing can be of the dialect without a marker: not even
    of a file that the user names."""

    words_in_python: ClassVar[tuple[bytes, ...]] = ()
    """Any of these must stand in a Python file for something in it to be of the dialect: fewer than the markers, which
    are of all kinds of files. Without them the markers count, where :attr:`only_marked` says so."""

    origin: ClassVar[str] = ""
    """The plug-in that brings the dialect, empty for oomlint's own; set when it is loaded."""

    launcher_may_shard: ClassVar[bool] = False
    """Whether what starts the run (an Accelerate config, say) may shard a model that the
    run's own file leaves whole."""

    reads_programs: ClassVar[bool] = False
    """Whether its runs may be programs of a project's own, of whose code calls are read."""

    any_text: ClassVar[bool] = False
    """Whether files of any name may be of it, so that only who names one tells: see ``adopt``."""

    references: ClassVar[MappingABC[str, str]] = {}
    """Private field that holds a path → dialect that reads the file."""

    asks: ClassVar[MappingABC[str, Demand]] = {}
    """Dialect that reads a file which a setting names → what must stand in it."""

    may_lack: ClassVar[bool] = False
    """Whether who names a file of it goes on without one."""

    turns_down: ClassVar[str] = ""
    """Why a file that a setting names as one of it, and that it does not adopt, ends the run; empty where the run
    may go on with such a file."""

    declared_in: ClassVar[tuple[str, ...]] = ()
    """Files in which the framework declares its keys: a project that carries a copy of it, often
    of another version or changed, has them too."""

    packages: ClassVar[tuple[str, ...]] = ()
    """The folders of the framework's own code in its repository: what the files of a project's copy declare there,
    wherever that may be, its runs have too."""

    ships_configs_in: ClassVar[frozenset[str]] = frozenset()
    """Names of folders that only the framework's repository has, in which it ships configs: who has such a folder, copied
    it, whether or not the project requires the framework."""

    declares_all: ClassVar[bool] = False
    """Whether ``declared_in`` or the program that a command starts, else the packages, name every key there is: one
    that a project's copy of them does not name stops its runs, or is read by nobody."""

    distribution: ClassVar[str] = ""
    """The framework's name where packages are installed from, if it is another than ``name``."""

    library: ClassVar[str] = ""
    """The package that every program of the framework imports, as a regular expression: one of a project whose
    files never name it is none of the framework's, whatever its own name and its options."""

    trainer: ClassVar[str] = ""
    """What a program names that leaves its loop to the framework, as a regular expression."""

    carried_code: ClassVar[MappingABC[str, CodeReader]] = {}
    """Files of the framework's package that decide what keys do → what reads it from the copy that
    a project carries: there it is that copy's code which counts, not a release's."""

    carried_version: ClassVar[tuple[str, tuple[str, ...]]] = ("", ())
    """The framework's library, and the files of its package of which one holds its version: alone, or as what
    ``VERSION`` or ``__version__`` is."""

    became: ClassVar[MappingABC[str, str]] = {}
    """Numbers that only development versions of the library had → the release that each became."""

    starters: ClassVar[frozenset[str]] = frozenset()
    """Shell scripts of the framework's own, without suffix, that start its training: a command that
    starts one is a launch."""

    declares: ClassVar[tuple[str, ...]] = ()
    """Keys that nobody but the framework thought of: whoever declares one in a file named as in
    ``declared_in``, in a package of another name, has built a program of its own after it."""

    config_parsers: ClassVar[tuple[str, ...]] = ()
    """The parsers that read a config of the framework's, where its programs are other people's: a project without
    one may have a reader of its own, which takes from the file what it asks for."""

    config_program: ClassVar[str] = ""
    """The name of the framework's own program, where none but that reads its configs: a project that has the word in
    none of its files may have a reader of its own."""

    meaning: ClassVar[Meaning] = Meaning()
    """What the framework makes of its keys, and how it says a wish."""

    _profiles: Profiles | None = None

    @property
    def profiles(self) -> Profiles:
        """What is known of single projects' scripts."""
        from oomlint.dialects.profiles.known import usual

        return self._profiles or usual()

    def with_profiles(self, profiles: Profiles) -> Dialect:
        """The dialect in a project with profiles of its own."""
        other = copy(self)
        other._profiles = profiles
        return other

    def model_folder(self, run: Cells) -> str:
        """What a run calls the folder of the framework's package that its model, or its program, is of; empty where it
        names none."""
        return ""

    def meaning_of(self, blocks: Iterable[Block]) -> Meaning:
        """What the framework makes of these very blocks."""
        return self.meaning

    def strays(self, run: Cells) -> Iterable[StrayKey]:
        """The keys of a run that nothing knows."""
        return run.strays

    @property
    def called(self) -> str:
        """The dialect in messages about its own failures, with the plug-in that brings it."""
        return f"{self.name} of the plug-in {self.origin}" if self.origin else self.name

    def recognise(self, document: Document) -> Iterable[Claim]:
        """The claims of this dialect on a parsed document; none for files of others."""
        raise NotImplementedError

    def adopt(self, document: Document) -> Claim | None:
        """The claim on a file that a setting names as one of this dialect, though nothing in
        it would tell; ``None`` if it cannot be."""
        return None

    def preset(self, reference: Reference) -> Claim | None:
        """The claim on a file of that name which the framework itself ships, where the project has none;
        ``None`` if it ships none, or it is not known."""
        return None

    def trains(self, run: Cells) -> bool:
        """Whether the program gets as far as training with what it is told."""
        return True

    def is_asked(self, run: Cells) -> bool:
        """Whether a command asks the program to train, and not for another of the things that it does."""
        return True

    def trains_language(self, run: Cells) -> bool:
        """Whether it is a language model that is trained, as far as one sees: of others nothing is predicted."""
        return True

    def layered(self, claims: Sequence[Claim]) -> Iterable[Block]:
        """The blocks of a run in rising precedence. Of its claims the first is what it begins with, which
        counts for more than the files that it names; each comes before those that it names itself."""
        first, *others = claims
        return (block for claim in (*others, first) for block in claim.blocks)

    def lack_of(self, config: Claim) -> str:
        """What a config that no command here starts has not, in words, where its program starts with no such file alone;
        empty of one that may be whole."""
        return ""

    def are_kin(self, config: Claim, launch: Claim) -> bool:
        """Whether a launch line of another config may be a hint of how this one is started: not
        where a different program trains by it."""
        return True

    def skeleton(self, start: Start) -> Skeleton | None:
        """Where a new config of this framework begins; ``None`` if oomlint writes none of it.

        Raises:
            CannotEdit: the framework cannot train this, with the reason.
        """
        return None

    def express(self, changes: Wishes, run: Cells) -> dict[Any, Any]:
        """Canonical changes in fields that this framework's tables can write.

        Raises:
            CannotEdit: the framework has no way to say it, with the reason.
        """
        return writable(expressed(changes, run), run, self.name)


class DialectEntry(Struct, frozen=True):
    """What can be said of a dialect before its module is imported: see :class:`Dialect`."""

    name: str
    suffixes: tuple[str, ...]
    markers: tuple[bytes, ...]
    markers_prove: bool
    only_marked: tuple[str, ...]
    words_in_python: tuple[bytes, ...]
    load: Callable[[], Dialect]
    is_ours: bool = True

    @classmethod
    def of(cls, dialect: Dialect) -> DialectEntry:
        return cls(
            dialect.name,
            dialect.suffixes,
            dialect.markers,
            dialect.markers_prove,
            dialect.only_marked,
            dialect.words_in_python,
            lambda: dialect,
            is_ours=not dialect.origin,
        )

    @property
    def words_of_python(self) -> tuple[bytes, ...]:
        """Of which one stands in each Python file with something of the dialect; none where that is not known."""
        is_marked = not set(PYTHON_SUFFIXES).isdisjoint(self.only_marked)
        return self.words_in_python or (self.markers if is_marked else ())

    def is_marked(self, data: bytes) -> bool:
        return any(marker in data for marker in self.markers)


class Registry(Struct, frozen=True):
    """The dialects in force, in order of recognition. One that no file needs is not imported."""

    entries: tuple[DialectEntry, ...]

    @classmethod
    def of(cls, dialects: Iterable[Dialect]) -> Registry:
        return cls(tuple(map(DialectEntry.of, dialects)))

    @property
    def dialects(self) -> tuple[Dialect, ...]:
        """All of them, imported."""
        return tuple(entry.load() for entry in self.entries)

    def with_profiles(self, profiles: Profiles) -> Registry:
        """The same dialects in a project with profiles of its own."""

        def loader(entry: DialectEntry) -> Callable[[], Dialect]:
            return cache(lambda: entry.load().with_profiles(profiles))

        return Registry(tuple(replace(entry, load=loader(entry)) for entry in self.entries))

    def named(self, name: str) -> Dialect | None:
        return next((entry.load() for entry in self.entries if entry.name == name), None)

    def readers(self, languages: Iterable[str]) -> tuple[DialectEntry, ...]:
        """Those that read files of one of the kinds, by suffix."""
        wanted = frozenset(languages)
        return tuple(entry for entry in self.entries if not wanted.isdisjoint(entry.suffixes))
