"""From files to runs: recognise documents, follow references, join what belongs together.

A launch line finds its YAML and its Accelerate file, the YAML its DeepSpeed JSON. A
config that several launch lines use is several runs; a part that nothing uses is a run of
its own, with unknowns.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Iterable, Iterator, Mapping as MappingABC, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from oomlint.dialects.base import Claim, Dialect, DialectEntry, Reference, Registry
from oomlint.dialects.cells import Given
from oomlint.dialects.common.config_values import ConfigValues
from oomlint.dialects.kinds import is_stand_in
from oomlint.dialects.table import Block, Reading
from oomlint.documents import (
    HELD_LANGUAGES,
    JSON_SUFFIXES,
    PYTHON_SUFFIXES,
    SHELL_SUFFIXES,
    TOML_SUFFIXES,
    YAML_SUFFIXES,
    kind_of,
    languages_of,
)
from oomlint.documents.base import (
    UNKNOWN,
    DataDocument,
    Document,
    HeldCode,
    PythonDocument,
    Scalar,
    ShellDocument,
)
from oomlint.documents.text import Location, Source
from oomlint.errors import FileError, InternalError, in_words
from oomlint.files.requirements import chosen_anew, installed, is_commit
from oomlint.files.workspace import Workspace
from oomlint.plan import Plan
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.documented_launches import (
    IN_README,
    OF_ANOTHER,
    LinkerReading as Lent,
    Suggestions,
)
from oomlint.runs.inference_only import ForwardOnly
from oomlint.runs.lineage import Lineage
from oomlint.runs.measurements import KeptMeasurements
from oomlint.runs.private_copies import Copier, shipped_copy
from oomlint.runs.run import Attested, MissingFile, Parts, Run, build_run, merge_sequences
from oomlint.runs.shipped_configs import ShippedAround
from oomlint.runs.vendored import (
    CarriedCode,
    OwnPrograms,
    OwnReaders,
    options_of_training,
    without_declared,
)

if TYPE_CHECKING:
    from oomlint.datasets import Lengths
    from oomlint.dialects.machine.handed import Handed
    from oomlint.dialects.machine.launch import Launch
    from oomlint.documents.shell.files import WrittenFile
    from oomlint.hardware import Hardware
    from oomlint.models import ModelFacts
    from oomlint.runs.documented_hardware import Attestations

# A sweep of more lines is read by its first ones.
_MOST_HANDED = 24
# Of a README that starts one script in many ways, so many are read.
_MOST_SHOWN = 4
# A script that takes an argument for which it has no default.
_TAKES_BARE = re.compile(r"\$[1-9@*]|\$\{[1-9@*]\}")
_DATA = (*YAML_SUFFIXES, *JSON_SUFFIXES, *TOML_SUFFIXES)

Submitted = Callable[[Document], Iterator[tuple[str, Block]]]


class LinkOptions(Struct, frozen=True):
    """What the user told oomlint about the machine and the run."""

    hardware: Hardware | None = None
    framework: str | None = None
    values: MappingABC[str, Any] = field(default_factory=dict)
    margin: float = 0.85
    as_written: bool = False


# A line that makes a trainer or what one is given, and is no class of that kind.
_TRAINS_IN_PYTHON = rb"^(?![ \t]*class\b).*(?:Trainer|TrainingArguments|\bdeepspeed\.initialize)\("


class Linked(Struct):
    """Runs found, files that were opened, errors on the way, asides recognised."""

    runs: list[Run] = field(default_factory=list)
    errors: list[FileError] = field(default_factory=list)
    files_read: int = 0
    recognised: dict[str, str] = field(default_factory=dict)
    """Display path → framework, of every file that a dialect claimed."""
    asides: list[Run] = field(default_factory=list)
    """Training scripts that hold no run we can read, but facts for rules on habits."""
    merges: list[Run] = field(default_factory=list)
    """Jobs that train nothing: they add an adapter to its base and write the model."""


class _Joining(Struct):
    """What comes of following the references of one run.

    ``used`` are the files that runs have taken in; ``folder`` is where the run's command stands,
    by the ``cd`` before it: a program opens all its files from there. ``script`` is the file that the
    command stands in: what it wrote before is what the program finds. ``options`` are what it says to
    the program; of its words that are no options the first is ``"1"``.
    """

    used: set[str]
    folder: str = ""
    script: str = ""
    options: MappingABC[str, str | None] = field(default_factory=dict)
    missing: list[MissingFile] = field(default_factory=list)


class Linker:
    """Builds runs out of a workspace's files."""

    def __init__(self, workspace: Workspace, registry: Registry, options: LinkOptions) -> None:
        self.workspace = workspace
        self.registry = registry
        self.options = options
        self._claims: dict[str, tuple[Claim, ...]] = {}
        self._readings: dict[int, tuple[Block, Reading]] = {}
        self._models: dict[tuple[str, str], ModelFacts | None] = {}
        self._adoptions: dict[tuple[str, str], Claim | None] = {}
        self._opened: set[str] = set()
        self._files: dict[str, MappingABC[str, WrittenFile]] = {}
        self._written_claims: dict[tuple[str, str], tuple[Claim, ...]] = {}
        self._configured: dict[
            tuple[str, tuple[tuple[str, str | None], ...]], tuple[Claim, ...]
        ] = {}
        self._submissions: dict[str, list[Block]] | None = None
        self._markers: dict[tuple[str, bool], tuple[bytes, ...]] = {}
        self._failures: dict[str, list[InternalError]] = {}
        lent = Lent(self._launches_in, self._handed_in, lambda c: self._build(c, set(), root=c))
        self._suggestions = Suggestions(workspace, lent)
        self._lineage = Lineage(workspace, lent)
        self._own_programs = OwnPrograms(workspace)
        self._forward_only = ForwardOnly(workspace)
        self._carried = CarriedCode(workspace)
        self._shipped_around = ShippedAround(workspace)
        self._lengths: dict[tuple[str, str | None, bool, str], Lengths | None] = {}
        self._attestations: Attestations | None = None
        self._own_readers = OwnReaders(workspace)
        self._by_example: set[str] = set()
        """Scripts whose arguments are those of a README's example."""
        self._kept = KeptMeasurements(workspace)

    def link(
        self,
        names: Iterable[str],
        *,
        explicit: frozenset[str] = frozenset(),
        elsewhere: MappingABC[str, str] | None = None,
    ) -> Linked:
        """The runs that the files ``names`` describe.

        Args:
            names: display paths.
            explicit: those that the user named one by one; a problem reading one of them
                is an error whatever it holds.
            elsewhere: files that runs use which ``names`` do not describe → one of these runs.
        """
        linked = Linked()
        claims: list[Claim] = []
        for name in dict.fromkeys(names):
            claims += self._claims_of(name, linked, must_read=name in explicit)
        claims = [self._as_submitted(claim) for claim in self._with_handed(claims)]
        claims += self._shown_starts(names, claims)
        used: set[str] = set()
        launches = [c for c in claims if c.kind == "launch" and not self._is_of_own_program(c)]
        runs = [run for run in self._built(launches, used, linked) if _trains(run)]
        runs = list(_best_known(list(_read_by_their_scripts(runs))))
        started = {run.parts.root.anchor for run in runs if run.parts.root is not None}
        for kind in ("run", "part"):
            alone = [c for c in claims if c.kind == kind and c.path not in used]
            loaded = {path for claim in alone for path in _configs_of(claim)}
            alone = [c for c in alone if c.path not in loaded]
            # What a command starts may be a run of one framework, and its config another's.
            alone = [c for c in alone if not (c.is_launched and c.anchor in started)]
            alone = [c for c in alone if not (c.is_launched and self._is_of_own_program(c))]
            alone = [c for c in alone if kind != "run" or not self._own_programs.reads_itself(c)]
            alone = [c for c in alone if kind == "part" or not self._own_programs.has(c)]
            found = self._built(alone, used, linked, self._suggestions.started)
            runs += (run for run in found if kind == "part" or run.dialect.trains(run.cells))
        linked.runs = _distinctly_named(list(_without_repeats(runs)))
        _note_shared(linked.runs, elsewhere or {})
        linked.asides = list(self._asides(names, linked.runs))
        taken = {claim.path for run in runs for claim in run.claims}
        jobs = [c for c in claims if c.kind == "aside" and c.merges and c.path not in taken]
        linked.merges = self._built(jobs, used, linked)
        linked.files_read = len(self._opened)
        linked.errors += self._kept.errors
        return linked

    def _is_of_own_program(self, launch: Claim) -> bool:
        """Whether a command starts a program of the project's own that the framework has no part in, or
        that only runs a model forward."""
        own, program = self._own_programs, _launch_of(launch)
        return (
            own.starts_another(launch)
            or own.is_namesake(launch, program)
            or (own.does_without(launch, program) and not self._has_run(launch))
            or (own.loops_itself(launch, program) and not self._has_run(launch))
            or self._forward_only.is_started_by(launch)
        )

    def _has_run(self, launch: Claim) -> bool:
        """Whether the script of a command is itself read as one that trains, and no config of the framework's stands
        on the line."""
        if any(r.dialect == launch.dialect.name for r in launch.references):
            return False
        scripts = (r.path for r in launch.references if not r.dialect and r.path.endswith(".py"))
        found = (self.workspace.resolve(path, launch.path) for path in scripts)
        return any(self._trains_in(name) for name in found if name is not None)

    def _trains_in(self, script: str) -> bool:
        with suppress(FileError):
            return any(c.kind in ("run", "aside") and c.blocks for c in self.claims(script))
        return False

    def _built(
        self,
        claims: Iterable[Claim],
        used: set[str],
        linked: Linked,
        extended: Callable[[Claim], Claim] = lambda claim: claim,
    ) -> list[Run]:
        runs = []
        for claim in claims:
            try:
                runs.append(self._build(extended(claim), used, root=claim))
            except Exception as error:  # a dialect's bug must not cost the user the other runs
                linked.errors.append(
                    InternalError(claim.path, f"{claim.dialect.called} failed: {in_words(error)}")
                )
        return runs

    def _asides(self, names: Iterable[str], runs: Iterable[Run]) -> Iterator[Run]:
        """A run without settings for each script that no run took in."""
        taken = {claim.path for run in runs for claim in run.claims}
        for name in dict.fromkeys(names):
            if name not in self._claims or name in taken:
                continue
            document = self.workspace.document(name)
            facts = () if document is None else document.facts
            if document is None or not facts or self._is_library(document):
                continue
            if _may_train(document):
                claim = Claim(_UNREAD, "aside", document, ())
                parts = Parts(
                    _UNREAD,
                    (),
                    (claim,),
                    options=self.options.values,
                    hardware=self.options.hardware,
                )
                yield build_run(name, parts)

    def _is_library(self, document: Document) -> bool:
        """Whether a Python file is a module of a package, which others call as they see fit."""
        source = document.source
        folder = source.path.rpartition("/")[0]
        package = f"{folder}/__init__.py" if folder else "__init__.py"
        return (
            source.path.endswith(".py")
            and self.workspace.exists(package)
            and "__main__" not in source.text
        )

    def _with_handed(self, claims: list[Claim]) -> list[Claim]:
        """The claims, with scripts that others start read as they run with what these hand them:
        the line that starts one trains nothing itself, nor does a script that nobody completes, or
        one that runs otherwise where it is started."""
        scripts = sorted(name for name in self._opened if kind_of(name) in SHELL_SUFFIXES)
        handings = [each for name in scripts for each in self._handings(name)]
        started = {script for script, _ in handings}
        completed = {script for script, given in handings if given.arguments}
        roots = sorted(scripts, key=started.__contains__)  # two may start each other
        handed: list[Claim] = []
        reached: dict[tuple[str, Handed | None], None] = {}
        seen: set[tuple[str, object, object]] = set()
        for root in roots:
            if root in started and any(name == root for name, _ in reached):
                continue
            shown = [] if root in completed else self._shown_to(root)
            todo: list[tuple[str, Handed | None]] = [(root, given) for given in shown or [None]]
            for name, given in todo:
                reached[name, given] = None
                own = [] if given is None else list(self._as_handed(name, given))
                own = [replace(claim, started_by=root) for claim in own]
                if own:
                    handed += own
                if own and given is not None and self._is_completed_by(given, name):
                    completed.add(name)
                if given is not None and given.is_shown:
                    self._by_example.add(name)
                for script, inner in self._handings(name, given):
                    is_shown = inner.is_shown or (given is not None and given.is_shown)
                    if (script, inner.arguments, inner.variables) not in seen:
                        seen.add((script, inner.arguments, inner.variables))
                        todo.append((script, replace(inner, is_shown=is_shown)))
        alone = [c for c in claims if not _starts_script(c)]
        return [*(c for c in alone if c.path not in completed or c.kind == "part"), *handed]

    def _handings(self, name: str, as_shown: Handed | None = None) -> Iterator[tuple[str, Handed]]:
        """The scripts here that a script starts with arguments or variables which they take, if it is
        itself started ``as_shown`` somewhere."""
        if not any(suffix.encode() in self.workspace.read(name) for suffix in SHELL_SUFFIXES):
            return
        from oomlint.dialects.machine.handed import handed

        try:
            document = (
                self.workspace.document(name)
                if as_shown is None
                else self.workspace.started(name, as_shown.arguments, as_shown.variables)
            )
        except FileError:
            return
        for given in islice(handed(document) if document is not None else (), _MOST_HANDED):
            found = self._taking_arguments(given, name)
            if found is not None:
                yield found, given

    def _shown_to(self, script: str) -> list[Handed | None]:
        """How READMEs start a script that does not run without arguments: they say so of the machine, the
        model or the data, which the script alone leaves open."""
        text = (self.workspace.read_or_none(script) or b"").decode("utf-8", "replace")
        if not _TAKES_BARE.search(text):
            return []
        shown = (given for given in self._suggestions.handed_to(script) if any(given.arguments))
        return [replace(given, is_shown=True) for given in islice(shown, _MOST_SHOWN)]

    def _shown_starts(self, names: Iterable[str], claims: list[Claim]) -> list[Claim]:
        """The commands of READMEs and guides, or of its own comments, that start a Python script with options, or on
        several GPUs, which no script here starts: how it runs stands there alone."""
        scripts = {name for name in names if name.endswith(".py")}
        scripts -= {self._script_of(claim) for claim in claims}
        told = self._suggestions
        readmes = dict.fromkeys(name for name in sorted(scripts) if self._may_say(name))
        readmes |= dict.fromkeys(r for name in scripts for r in told.readmes(name))
        readmes |= dict.fromkeys(r for name in scripts for r in told.guides(name))
        shown: dict[str, list[Claim]] = {}
        for readme in readmes:
            document = self._suggestions.commands_of(readme)
            for claim in self._recognise_in(document, readme) if document is not None else ():
                script = self._script_of(claim) if _says_how(claim) else ""
                if script in scripts:
                    blocks = tuple(replace(block, level=Level.FACT) for block in claim.blocks)
                    shown.setdefault(script, []).append(replace(claim, blocks=blocks))
        return [claim for starts in shown.values() for claim in starts[:_MOST_SHOWN]]

    def _may_say(self, script: str) -> bool:
        """Whether a script names itself, as one does that says how it is started."""
        data = self.workspace.read_or_none(script) or b""
        return PurePath(script).name.encode() in data

    def _script_of(self, claim: Claim) -> str:
        """The Python file that a command starts, if it does and that is here."""
        launch = _launch_of(claim)
        script = None if launch is None else launch.script
        return "" if script is None else self.workspace.resolve(script, claim.path) or ""

    def _taking_arguments(self, given: Handed, name: str) -> str | None:
        """The script that a file starts, if it is here and takes the arguments or reads a variable."""
        from oomlint.documents.shell.variables import TAKES_ARGUMENTS, reads

        found = self.workspace.resolve(given.script, name)
        if found is None or found == name:
            return None
        text = (self.workspace.read_or_none(found) or b"").decode("utf-8", "replace")
        takes = bool(given.arguments) and TAKES_ARGUMENTS.search(text) is not None
        return found if takes or any(reads(text, name) for name, _ in given.variables) else None

    def _as_handed(self, script: str, given: Handed) -> Iterator[Claim]:
        try:
            document = self.workspace.started(script, given.arguments, given.variables)
        except FileError:
            return
        from oomlint.dialects.machine.slurm_keys import SBATCH

        for claim in self._recognise_in(document, script):
            if not _starts_script(claim):
                at = sum(block.table is SBATCH for block in claim.blocks)
                blocks = (*claim.blocks[:at], *given.asked, *claim.blocks[at:])
                blocks = blocks if claim.kind == "launch" else claim.blocks
                if given.is_shown:
                    blocks = tuple(replace(block, level=Level.FACT) for block in blocks)
                yield replace(claim, blocks=blocks)

    def _as_submitted(self, claim: Claim) -> Claim:
        """A job's claim with the options of the one line that submits it."""
        if claim.kind != "launch":
            return claim
        from oomlint.dialects.machine.launchers import submitted
        from oomlint.dialects.machine.slurm_keys import SBATCH

        if self._submissions is None:
            self._submissions = {}
            for name in self._opened:
                if kind_of(name) in SHELL_SUFFIXES and b"sbatch" in self.workspace.read(name):
                    for script, block in self._submitted_in(name, submitted):
                        self._submissions.setdefault(script, []).append(block)
        asked = self._submissions.get(claim.path, [])
        if len(asked) != 1:
            return claim
        at = sum(block.table is SBATCH for block in claim.blocks)
        return replace(claim, blocks=(*claim.blocks[:at], asked[0], *claim.blocks[at:]))

    def _is_completed_by(self, given: Handed, name: str) -> bool:
        """Whether a script does not run without what it is handed: variables alone may have defaults in
        it, and then it runs by itself too."""
        from oomlint.documents.shell.variables import needs

        text = (self.workspace.read_or_none(name) or b"").decode("utf-8", "replace")
        return bool(given.arguments) or any(needs(text, each) for each, _ in given.variables)

    def _launches_in(self, name: str) -> list[Claim]:
        """The launch lines of a script, and of scripts that it starts with arguments."""
        try:
            own = [claim for claim in self.claims(name) if claim.kind == "launch"]
        except FileError:
            return []
        handed = (
            each
            for script, given in self._handings(name)
            for each in self._as_handed(script, given)
        )
        return [*own, *(claim for claim in handed if claim.kind == "launch")]

    def _handed_in(self, given: Handed, name: str) -> Iterator[Claim]:
        """The launch lines of a script that a file starts with arguments."""
        script = self._taking_arguments(given, name)
        if script is not None:
            yield from (c for c in self._as_handed(script, given) if c.kind == "launch")

    def _submitted_in(self, name: str, submitted: Submitted) -> Iterator[tuple[str, Block]]:
        try:
            document = self.workspace.document(name)
        except FileError:
            return
        for script, block in submitted(document) if document is not None else ():
            found = self.workspace.resolve(script, name)
            if found is not None:
                yield found, block

    # -- recognising -----------------------------------------------------------------

    def _claims_of(self, name: str, linked: Linked, *, must_read: bool) -> tuple[Claim, ...]:
        data = b""
        try:
            data = self.workspace.read(name)
            self._opened.add(name)
            may_be_ours = self._has_marker(name, data)
            if not may_be_ours and not (must_read and kind_of(name)):
                return ()
            claims = self.claims(name)
        except FileError as error:
            is_ours = self._has_marker(name, data, proof=True) and not _holds_records(name, data)
            if must_read or is_ours:
                linked.errors.append(error)
            return ()
        if name in self._failures and (must_read or self._has_marker(name, data, proof=True)):
            linked.errors += self._failures.pop(name)
        for claim in claims:
            if not any(reference.decides for reference in claim.references):
                linked.recognised.setdefault(name, claim.framework or claim.dialect.name)
        return claims

    def _has_marker(self, name: str, data: bytes, *, proof: bool = False) -> bool:
        """Whether some dialect that reads such files may find something in this one, or with
        ``proof``, whether one would take it for its own unparsed."""
        key = (kind_of(name), proof)
        if proof and key[0] in HELD_LANGUAGES:
            return False  # a word in a notebook or a Makefile proves nothing of the rest
        if proof and key[0] in PYTHON_SUFFIXES:
            # The modules of a library name what its scripts name. They need not be in the Python
            # that oomlint runs on.
            return re.search(_TRAINS_IN_PYTHON, data, re.MULTILINE) is not None
        if key not in self._markers:
            readers = self.registry.readers(languages_of(name))
            marks = {
                m for entry in readers if entry.markers_prove or not proof for m in entry.markers
            }
            self._markers[key] = tuple(sorted(marks))
        return any(mark in data for mark in self._markers[key])

    def claims(self, name: str) -> tuple[Claim, ...]:
        """What the dialects recognise in a file; the first dialect that claims a YAML or JSON
        document has it, while a script may hold runs of several."""
        if name not in self._claims:
            self._claims[name] = tuple(self._recognise(name))
        return self._claims[name]

    def _recognise(self, name: str) -> Iterator[Claim]:
        document = self.workspace.document(name)
        if document is None:
            return
        for part in document.parts:
            yield from self._recognise_in(part, name)

    def _recognise_in(self, document: Document, name: str) -> Iterator[Claim]:
        wanted = self.options.framework
        language = document.language if isinstance(document, HeldCode) else kind_of(name) or ".json"
        for entry in self._in_order(document, language):
            dialect = entry.load()
            try:
                claims = tuple(dialect.recognise(document))
            except Exception as error:  # as above: one dialect's bug is not the others'
                failure = InternalError(name, f"{dialect.called} failed: {in_words(error)}")
                self._failures.setdefault(name, []).append(failure)
                continue
            if wanted and all(wanted not in (c.framework, c.dialect.name) for c in claims):
                claims = tuple(c for c in claims if c.kind == "part")
            yield from claims
            if claims and not isinstance(document, ShellDocument):
                return

    def _in_order(self, document: Document, language: str) -> Sequence[DialectEntry]:
        """The dialects that read a language, and that need no marker there or have one. Of a file
        of plain data, which has one owner, those whose markers stand in it come before the rest,
        which is then mostly not even imported; those of plug-ins come before both."""
        readers = self.registry.readers((language,))
        data = document.source.text.encode("utf-8", "surrogateescape")
        if language not in _DATA:
            return [e for e in readers if language not in e.only_marked or e.is_marked(data)]
        return sorted(readers, key=lambda entry: entry.is_ours and not entry.is_marked(data))

    # -- joining ---------------------------------------------------------------------

    def _build(self, claim: Claim, used: set[str], *, root: Claim) -> Run:
        launch = _launch_of(claim)
        claim = claim if launch is None else _without_what_is_cut_off(claim, launch)
        claims: list[Claim] = [claim]
        folder = launch.command.folder if launch is not None else ""
        joining = _Joining(used, folder, script=claim.path)
        if launch is not None:
            joining.options = self._said_to_program(launch, claim.path)
        if isinstance(claim.document, ShellDocument):
            self._files.setdefault(claim.path, claim.document.files)
        for reference in claim.references:
            claims += self._follow(reference, claim.path, joining)
        used.update(path for each in claims for path in _configs_of(each))
        # A launch line overrides the file that it starts; a file it names comes below it.
        ordered = [*(c for c in claims if c is not claim), claim]
        centre = [
            *(c for c in ordered if c.kind == "run"),
            *(c for c in ordered if c.kind == "aside"),
        ]
        dialect = centre[0].dialect if centre else claim.dialect
        carried = self._carried.blocks(dialect, claim, joining.folder)
        blocks = self._read_all((*carried, *dialect.layered(claims)))
        blocks = self._follow_fields(dialect, blocks, claims, joining)
        main = next((c for c in claims if c.kind == "run"), claim)
        versions = self._versions(claims) | self._carried.version(dialect, claim, joining.folder)
        parts = Parts(
            dialect=dialect,
            blocks=blocks,
            claims=(main, *(c for c in claims if c is not main)),
            root=root,
            options=self.options.values,
            hardware=self.options.hardware,
            find_model=self._model_finder(main.path, claim.path),
            find_lengths=self._lengths_finder(main.path),
            find_attested=self._attested_finder(claim, main),
            find_shipped=partial(self._shipped_around.of, main.path),
            missing=tuple(self._placed(each, claim, launch) for each in joining.missing),
            versions={name: at for name, at in versions.items() if not is_commit(at[0])},
            floors=self._floors(claims),
            untold=self._untold(claims, versions),
            unread_program=self._unread_program(joining.folder, claims),
            measurements=self._kept.around(main.path),
            copier=Copier(self.workspace, claims),
            as_written=self.options.as_written,
        )
        run = build_run(main.name or main.path, parts, margin=self.options.margin)
        declared = without_declared(self.workspace, run, claims, self._own_readers)
        if any(c.is_launched or c.is_program for c in claims):
            return declared
        is_asked = len(declared.stray) < len(run.stray)
        if not is_asked and not any(map(self._own_readers.declare, run.stray)):
            return declared
        # Some of its keys are for a program of the project's own, which reads the others, too.
        doubted = replace(
            parts, blocks=tuple(_doubted_again(parts.blocks, _READ_BY_OWN.format(main.path)))
        )
        run = build_run(run.name, doubted, margin=self.options.margin)
        return without_declared(self.workspace, run, claims, self._own_readers)

    def _placed(self, missing: MissingFile, claim: Claim, launch: Launch | None) -> MissingFile:
        """A missing file, marked where the program that it is meant for is not here either, or
        where the script that names it writes it."""
        programs = [reference.path for reference in claim.references if reference.optional]
        folder = ""
        if launch is not None:
            folder = launch.command.folder
            programs = programs if launch.script is None else [launch.script]
        is_foreign = bool(programs) and all(
            self.workspace.resolve(path, claim.path, folder) is None for path in programs
        )
        is_absolute = missing.reference.startswith(("/", "~"))
        is_shown = any(block.locked in (IN_README, OF_ANOTHER) for block in claim.blocks)
        is_shown = is_shown or claim.path in self._by_example
        made = claim.document.made if isinstance(claim.document, ShellDocument) else ()
        is_made = os.path.normpath(missing.reference) in map(os.path.normpath, made)
        return replace(missing, is_elsewhere=is_absolute or is_foreign or is_shown or is_made)

    def _unread_program(self, folder: str, claims: Sequence[Claim]) -> str:
        """Why it is not known what the Python program does that a command starts, in words; empty where it was read,
        or where no command here starts one."""
        for launch in (claim for claim in claims if claim.kind == "launch"):
            programs = [r for r in launch.references if not r.dialect and r.path.endswith(".py")]
            if not programs:
                continue
            name = PurePath(programs[0].path).name
            files = (self._found(each, launch.path, folder) for each in programs)
            found = next(filter(None, files), None)
            if found is None:
                return f"{name} is not here"
            if any(c.path == found for c in claims) or self._parses_arguments(found):
                return ""
            return f"what {name} does is not followed"
        return ""

    def _parses_arguments(self, script: str) -> bool:
        with suppress(FileError):
            return options_of_training(self.workspace.document(script)) is not None
        return False

    def _versions(self, claims: Iterable[Claim]) -> dict[str, tuple[str, str]]:
        """What the project around the files of a run pins, and what its scripts install, commits included."""
        found: dict[str, tuple[str, str]] = {}
        for claim in claims:
            found = {**self.workspace.versions(claim.path), **found}
        for package in self._anew(claims):
            found.pop(package, None)
        for claim in claims:
            own = installed(claim.document.source.text)
            found |= {package: (version, claim.path) for package, version in own.items()}
        return found

    def _untold(
        self, claims: Iterable[Claim], versions: MappingABC[str, tuple[str, str]]
    ) -> dict[str, str]:
        """Packages of which a commit alone says the release, and how."""
        absent = frozenset[str]().union(*(self.workspace.absent(c.path) for c in claims))
        pinned = ((name, at[0]) for name, at in versions.items() if is_commit(at[0]))
        return {name: f"{name} is a submodule that is not checked out" for name in absent} | {
            name: f"{name} is pinned to {commit}, of which no file tells the release"
            for name, commit in pinned
        }

    def _anew(self, claims: Iterable[Claim]) -> dict[str, str | None]:
        """What the notebooks among the files of a run install, and the oldest that they allow."""
        found: dict[str, str | None] = {}
        for claim in claims:
            if kind_of(claim.path) == ".ipynb":
                found |= chosen_anew(claim.document.source.text)
        return found

    def _floors(self, claims: Iterable[Claim]) -> dict[str, str]:
        """The oldest releases that the project around the files of a run allows."""
        found: dict[str, tuple[str, str]] = {}
        for claim in claims:
            found = {**self.workspace.floors(claim.path), **found}
        oldest = {package: version for package, (version, _) in found.items()}
        anew = self._anew(claims)
        kept = {package: version for package, version in oldest.items() if package not in anew}
        return kept | {package: version for package, version in anew.items() if version is not None}

    def _follow_fields(
        self,
        dialect: Dialect,
        blocks: tuple[tuple[Block, Reading], ...],
        claims: list[Claim],
        joining: _Joining,
    ) -> tuple[tuple[Block, Reading], ...]:
        """Load the files that settings such as ``deepspeed: ds.json`` name."""
        followed: set[str] = set()
        while True:
            stated = Given(blocks).stated
            todo = [f for f in dialect.references if f not in followed and f in stated]
            if not todo:
                return blocks
            for name in todo:
                followed.add(name)
                setting = stated[name]
                location = setting.origin.value_location
                if location is None:
                    continue
                reader = dialect.references[name]
                reference = Reference(str(setting.value), location, reader, level=setting.level)
                found = self._follow(reference, location.path, joining)
                if self._stops_at(found, reference, dialect, claims):
                    problem = f"cannot be used: it has no {dialect.asks[reader].key}"
                    joining.missing.append(MissingFile(reference.path, location, problem))
                    continue
                claims += found
                more = self._read_all(block for c in found for block in c.blocks)
                blocks = merge_sequences(blocks, more)

    def _stops_at(
        self, found: list[Claim], reference: Reference, dialect: Dialect, claims: list[Claim]
    ) -> bool:
        """Whether a framework does not start with a file as it is; one that says less than for certain that it
        takes it may do otherwise."""
        demand = dialect.asks.get(reference.dialect)
        if demand is None or reference.level > Level.STATED:
            return False
        blocks = [block for c in found if c.dialect.name == reference.dialect for block in c.blocks]
        lacks = bool(blocks) and all(demand.key not in b.mapping.entries for b in blocks)
        return lacks and demand.is_made(self._versions(claims))

    def _follow(
        self,
        reference: Reference,
        from_file: str,
        joining: _Joining,
        trail: tuple[str, ...] = (),
    ) -> list[Claim]:
        """The claims on a file that is referred to, and on the files that it names in turn;
        ``trail`` are the files that led here, so that a circle of references ends."""
        missing = joining.missing
        for writer in dict.fromkeys((from_file, joining.script)):
            written = self._written(reference, writer, missing)
            if written is not None:
                return self._with_inner(written, joining, trail)
        found = self._found(reference, from_file, joining.folder)
        if found is None:
            preset = self._preset(reference)
            if preset is not None:
                return [self._reached(preset, reference, from_file)]
        is_vouched = self._is_vouched_for(reference, from_file, joining)
        is_ours = is_vouched or self._may_be_ours(found, reference.dialect)
        if reference.optional and not is_ours:
            return []
        if found is None:
            blank = is_stand_in(reference.path)
            missing.append(
                MissingFile(reference.path, reference.location, "was not found", is_blank=blank)
            )
            return []
        try:
            claims = self._as_started(found, joining)
        except FileError as error:
            if reference.optional:
                return []
            where = f" (line {error.line})" if error.line else ""
            missing.append(
                MissingFile(reference.path, reference.location, f"cannot be used{where}: {error}")
            )
            return []
        wanted = [c for c in claims if reference.dialect in ("", c.dialect.name)]
        if not wanted and (reference.adopts or is_vouched):
            wanted = self._adopted(found, reference.dialect)
        if reference.claim:
            wanted = [c for c in wanted if c.name == f"{found}:{reference.claim}"]
        elif wanted or not reference.decides:
            joining.used.add(found)
        if not wanted:
            problem = self._turned_down(reference)
            if problem:
                missing.append(MissingFile(reference.path, reference.location, problem))
            return []
        self._opened.add(found)
        wanted = [self._reached(c, reference, from_file) for c in wanted]
        return self._with_inner(wanted, joining, (*trail, from_file, found))

    def _said_to_program(self, launch: Launch, from_file: str) -> dict[str, str | None]:
        """What a command says to the program that it starts, ``None`` of what only the shell knows;
        files that are here by their display paths."""
        words = {str(n): word for n, word in enumerate(launch.arguments, 1)}
        values = {**words, **{key: entry.value for key, entry in launch.flags.entries.items()}}
        said = {
            key: str(value.value)
            if isinstance(value, Scalar) and value.value is not UNKNOWN
            else None
            for key, value in values.items()
        }
        if launch.flags.open_ended:
            said.setdefault(str(len(words) + 1), None)  # ``$@`` may be a word more
        for key, text in said.items():
            if text is not None and kind_of(text) in _DATA:
                said[key] = self.workspace.resolve(text, from_file, launch.command.folder) or text
        return said

    def _as_started(self, name: str, joining: _Joining) -> tuple[Claim, ...]:
        """The claims on a file; of a script that takes its config file from its command line, as
        this one starts it."""
        claims = self.claims(name)
        if kind_of(name) not in PYTHON_SUFFIXES or not joining.options:
            return claims
        document = self.workspace.document(name)
        if not isinstance(document, PythonDocument) or not document.config_options:
            return claims
        key = (name, tuple(sorted(joining.options.items(), key=lambda item: item[0])))
        if key not in self._configured:
            started = self.workspace.configured(name, joining.options)
            found = () if started is None else tuple(self._recognise_in(started, name))
            self._configured[key] = found
        return self._configured[key]

    def _turned_down(self, reference: Reference) -> str:
        """Why a file that is here cannot be what a setting names it as; empty where its dialect does
        not say when that is so."""
        dialect = self.registry.named(reference.dialect)
        if reference.optional or not reference.adopts or dialect is None or not dialect.turns_down:
            return ""
        return f"cannot be used: {dialect.turns_down}"

    def _is_vouched_for(self, reference: Reference, from_file: str, joining: _Joining) -> bool:
        """Whether a program that is started with a file makes it one of its dialect."""
        for program in reference.vouched_for:
            found = self._found(program, from_file, joining.folder)
            with suppress(FileError):
                if found is not None and self._adopted(found, program.dialect):
                    return True
        return False

    def _found(self, reference: Reference, from_file: str, folder: str) -> str | None:
        """The file that is referred to; a program may lie in ``src``, which ``PYTHONPATH`` or an
        installation in place puts before the working directory."""
        found = self.workspace.resolve(reference.path, from_file, folder)
        if found is None and not reference.dialect and reference.path.endswith(".py"):
            found = self.workspace.resolve(f"src/{reference.path}", from_file, folder)
        return found

    def _reached(self, claim: Claim, reference: Reference, from_file: str) -> Claim:
        """A claim on a file with what it was reached by, and of one that a framework ships, with
        where a run's own copy would go."""
        blocks = tuple(_at_most(block, reference.level) for block in claim.blocks)
        claim = replace(claim, named=reference, blocks=blocks)
        if not claim.is_shipped:
            return claim
        copy = shipped_copy(self.workspace, claim, reference, from_file)
        return replace(claim, blocks=tuple(replace(b, copy=copy) for b in claim.blocks))

    def _written(
        self, reference: Reference, from_file: str, missing: list[MissingFile]
    ) -> list[Claim] | None:
        """The claims on a file that the script itself writes, whatever lies here by its name;
        ``None`` where it writes no such file."""
        files = self._files.get(from_file, {})
        name = os.path.normpath(reference.path) if files else ""
        if name not in files:
            return None
        key = (from_file, name)
        if key not in self._written_claims:
            try:
                document = files[name].parsed(name)
                found = () if document is None else tuple(self._recognise_in(document, name))
            except FileError as error:
                problem = f"cannot be used as the script writes it: {error}"
                missing.append(MissingFile(reference.path, reference.location, problem))
                return []
            self._written_claims[key] = found
        claims = self._written_claims[key]
        return [c for c in claims if reference.dialect in ("", c.dialect.name)]

    def _with_inner(
        self,
        claims: Iterable[Claim],
        joining: _Joining,
        trail: tuple[str, ...],
    ) -> list[Claim]:
        """Claims, each followed by those on the files that it names."""
        out: list[Claim] = []
        for claim in claims:
            out.append(claim)
            level = Level.STATED if claim.named is None else claim.named.level
            for inner in claim.references:
                if inner.level < level:
                    inner = replace(inner, level=level)
                if self.workspace.resolve(inner.path, claim.path, joining.folder) not in trail:
                    out += self._follow(inner, claim.path, joining, trail)
        return out

    def _adopted(self, name: str, dialect_name: str) -> list[Claim]:
        """A file that only the setting that names it tells to be of a dialect."""
        dialect = self.registry.named(dialect_name)
        document = self.workspace.document(name)
        if document is None and dialect is not None and dialect.any_text:
            document = self.workspace.lines(name)
        if dialect is None or document is None:
            return []
        if (name, dialect_name) not in self._adoptions:
            self._adoptions[name, dialect_name] = dialect.adopt(document)
        claim = self._adoptions[name, dialect_name]
        return [] if claim is None else [claim]

    def _may_be_ours(self, name: str | None, dialect_name: str) -> bool:
        """A cheap look at a file that a launch line happens to start."""
        dialect = self.registry.named(dialect_name)
        if name is not None and dialect is not None and dialect.any_text:
            return True
        data = self.workspace.read_or_none(name) if name is not None else None
        if name is None or data is None:
            return False
        # Its program is of a dialect that reads no files of that kind by itself.
        marks = () if dialect is None else dialect.markers
        return any(mark in data for mark in marks) or self._has_marker(name, data)

    def _preset(self, reference: Reference) -> Claim | None:
        """A file that the framework itself ships under that name, as facts of ours."""
        dialect = self.registry.named(reference.dialect)
        return None if dialect is None else dialect.preset(reference)

    def _read_all(self, blocks: Iterable[Block]) -> tuple[tuple[Block, Reading], ...]:
        """Blocks with their readings; a block inside a block comes right after it."""
        out: list[tuple[Block, Reading]] = []
        for block in blocks:
            # Kept with its block, whose id another one must not come to have.
            known = self._readings.get(id(block))
            if known is None:
                known = self._readings[id(block)] = (block, block.read())
            out.append(known)
            out += self._read_all(known[1].nested)
        return tuple(out)

    def _lengths_finder(self, from_file: str) -> Callable[[str, str | None, int], Lengths | None]:
        """Who looks up how long the samples of a data set are: in the catalogue, or in a file of the project that
        is no larger than any config that is read."""

        def find(name: str, registry: str | None, vocabulary: int) -> Lengths | None:
            from oomlint import datasets

            key = (name, registry, datasets.is_small(vocabulary), os.path.dirname(from_file))
            if key not in self._lengths:
                self._lengths[key] = self._lengths_of(name, registry, vocabulary, from_file)
            return self._lengths[key]

        return find

    def _lengths_of(
        self, name: str, registry: str | None, vocabulary: int, from_file: str
    ) -> Lengths | None:
        from oomlint import datasets
        from oomlint.datasets.measure import lengths_in
        from oomlint.datasets.registry import registered

        path = name
        if registry is not None:
            listed = self._read_from(f"{registry}/dataset_info.json", from_file)
            entry = None if listed is None else registered(listed[1], name)
            if entry is not None:
                name, path = entry.public, f"{registry}/{entry.file}" if entry.file else ""
        found = None
        if path.endswith((".json", ".jsonl")):
            found = self._read_from(path, from_file)
        if found is not None:
            return lengths_in(found[1], found[0], is_small=datasets.is_small(vocabulary))
        return datasets.find(name) if name else None

    def _read_from(self, path: str, from_file: str) -> tuple[str, bytes] | None:
        """A file that another names, under its display path."""
        name = self.workspace.resolve(path, from_file)
        data = None if name is None else self.workspace.read_or_none(name)
        return None if name is None or data is None else (name, data)

    def _attested_finder(self, *claims: Claim) -> Callable[[], Attested | None]:
        """Who looks up on which machine the project says that a run ran: only runs at risk ask."""

        def find() -> Attested | None:
            if self._attestations is None:
                from oomlint.runs.documented_hardware import Attestations

                self._attestations = Attestations(self.workspace)
            return self._attestations.of(dict.fromkeys(claim.path for claim in claims))

        return find

    def _model_finder(self, from_file: str, script: str) -> Any:
        """Who looks up a model: on the disk and in the catalogue, then among what the runs that
        stand beside this one's launch line save."""

        def find(model: str) -> ModelFacts | None:
            found = look_up(model)
            if found is None or found.confidence == "guessed":
                return self._lineage.made(model, script) or found
            return found

        def look_up(model: str) -> ModelFacts | None:
            key = (model, os.path.dirname(from_file))
            if key not in self._models:
                from oomlint.models import resolve

                head = model.replace("\\", "/").partition("/")[0]
                folders = (
                    str(folder)
                    for folder in self.workspace.search_folders(from_file)
                    if self.workspace.holds(folder, head)
                )
                self._models[key] = resolve(
                    model,
                    read=lambda path: self.workspace.read_or_none(self.workspace.name(path)),
                    base_dirs=tuple(folders),
                    hf_cache=self.workspace.disk.hf_cache,
                )
            return self._models[key]

        return find


def _holds_records(name: str, data: bytes) -> bool:
    """Whether a file is data that is called like a config, and no config that is broken."""
    if kind_of(name) not in JSON_SUFFIXES:
        return False
    from oomlint.documents.json import is_json_lines

    with suppress(FileError):
        return is_json_lines(Source.from_bytes(name, data))
    return False


def _at_most(block: Block, level: Level) -> Block:
    """A block of a file that is named no better than so."""
    return block if block.level >= level else replace(block, level=level)


def _configs_of(claim: Claim) -> frozenset[str]:
    """The config files that the script of a claim loads itself, and takes values from."""
    documents = (block.document for block in claim.blocks)
    return frozenset(d.source.path for d in documents if isinstance(d, ConfigValues))


def _read_by_their_scripts(runs: list[Run]) -> Iterator[Run]:
    """Runs without those that take for a framework's own config what the script that the same command
    starts loads itself."""
    loaded: dict[Location, set[str]] = {}
    for run in runs:
        paths = {path for claim in run.claims for path in _configs_of(claim)}
        loaded.setdefault(run.anchor, set()).update(paths)
    for run in runs:
        named = {claim.path for claim in run.claims if claim.kind == "run"}
        if not named & loaded[run.anchor]:
            yield run


def _starts_script(claim: Claim) -> bool:
    """Whether a claim is on a command that starts a shell script, which alone says what it trains."""
    launch = _launch_of(claim)
    if launch is None:
        return False
    from oomlint.dialects.machine.handed import starts_script

    return starts_script(launch) and PurePath(launch.stem).stem not in claim.dialect.starters


def _says_how(claim: Claim) -> bool:
    """Whether a claim is a command with options of its own, or on several GPUs. How a config is started is
    asked where the config is read."""
    from oomlint.dialects.machine.launcher_keys import PLAIN

    launch = _launch_of(claim) if claim.kind == "launch" else None
    if launch is None or any(r.dialect == claim.dialect.name for r in claim.references):
        return False
    return bool(launch.flags.entries) or launch.launcher is not PLAIN


def _launch_of(claim: Claim) -> Launch | None:
    """The command that a claim is on, if it is on one."""
    if not claim.is_launched or not claim.blocks:
        return None
    from oomlint.dialects.machine.launches import launches

    at = claim.blocks[-1].anchor
    return next((launch for launch in launches(claim.document) if launch.anchor == at), None)


def _without_what_is_cut_off(claim: Claim, launch: Launch) -> Claim:
    """A command whose last options are lost, since a line of it does not go on: the run that starts so, if any does, is
    not the one that is meant, and what that would be is read once the line is mended."""
    source = claim.document.source
    for fact in claim.document.facts:
        if fact.kind == "broken-continuation":
            last, _ = source.position(fact.location.span.start)
            first, _ = source.position(launch.anchor.start)
            if fact.detail["top"] <= first <= last:
                doubt = f"the command ends in {claim.path}:{last} before its last options"
                return replace(claim, blocks=tuple(_doubted(b, doubt) for b in claim.blocks))
    return claim


def _doubted(block: Block, doubt: str) -> Block:
    """A block of which nothing is known, and why."""
    return replace(block, level=Level.UNREAD, doubt=doubt)


_READ_BY_OWN = "the program of the project's own that reads {} is not followed"


def _doubted_again(
    blocks: Iterable[tuple[Block, Reading]], doubt: str
) -> Iterator[tuple[Block, Reading]]:
    """Blocks and their readings, of which nothing is known."""
    for block, _ in blocks:
        doubted = _doubted(block, doubt)
        yield doubted, doubted.read()


class _Unread(Dialect):
    """Stands in for the framework of a script that no dialect reads."""

    name = "script"

    def recognise(self, document: Document) -> Iterable[Claim]:
        return ()


_UNREAD = _Unread()


# The first word of a line behind its assignments: the program, if a command begins there.
_PROGRAM = r"(?m)^[ \t]*(?:\w+=\S*[ \t]+)*([\w./-]+)"


def _may_train(document: Document) -> bool:
    """Whether a shell script starts a program of training; a Python script's facts prove it.

    By the text: what is to be mended may keep the command from being read.
    """
    if not isinstance(document, ShellDocument):
        return True
    from oomlint.documents.shell.names import is_launch

    return any(is_launch(word) for word in re.findall(_PROGRAM, document.source.text))


def _trains(run: Run) -> bool:
    """Whether a launch line says anything about training, or starts something that does."""
    if not _is_borne_out(run) or not run.dialect.trains(run.cells):
        return False
    if any(claim.kind == "run" for claim in run.claims):
        return True
    if any(_is_idle(claim) for claim in run.claims):
        return False
    if any(block.table.section == "training" for block, _ in run.parts.blocks):
        return True
    # Any script may be started with a launcher's config; one that names its own is training.
    optional = any(r.optional for claim in run.claims for r in claim.references)
    return bool(run.missing) and not optional


def _is_borne_out(run: Run) -> bool:
    """Whether the files that decide on its claims are what they were taken for."""
    reached = {id(claim.named) for claim in run.claims}
    deciding = (r for claim in run.claims for r in claim.references if r.decides)
    return all(id(reference) in reached for reference in deciding)


def _best_known(runs: Sequence[Run]) -> Iterator[Run]:
    """The runs, but of a command that several dialects claim only those of one whose claim the
    program or the config that it starts bears out: the others know the command alone."""
    proven = {_command_of(run) for run in runs if _is_proven(run)}
    for run in runs:
        if _is_proven(run) or _command_of(run) not in proven:
            yield run


def _command_of(run: Run) -> Location | None:
    return None if run.parts.root is None else run.parts.root.anchor


def _is_proven(run: Run) -> bool:
    return any(r.decides for claim in run.claims for r in claim.references)


def _is_idle(claim: Claim) -> bool:
    """Whether a claim is on a config that makes its framework do something else than train."""
    return claim.kind == "aside" and not claim.blocks and isinstance(claim.document, DataDocument)


def _without_repeats(runs: list[Run]) -> Iterator[Run]:
    """Runs of one line that differ in more than where they save and in which of the models they take
    that others save so: a loop over seeds is one."""
    seen: dict[Location, list[Plan]] = {}
    for run in runs:
        same: dict[Any, Any] = {f.save.dir: None}
        if run.model is not None and run.model.saved_by:
            same[f.model.id] = run.model.id
        plan = run.plan.with_values(same)
        known = seen.setdefault(run.anchor, [])
        if plan not in known:
            known.append(plan)
            yield run


def _note_shared(runs: Iterable[Run], elsewhere: MappingABC[str, str]) -> None:
    """Tell every run which of the files that it names are not its alone."""
    users: dict[str, list[str]] = {path: [name] for path, name in elsewhere.items()}
    runs = list(runs)
    for run in runs:
        for path in run.sources:
            users.setdefault(path, []).append(run.name)
    shared = {path: tuple(names) for path, names in users.items() if len(names) > 1}
    for run in runs:
        named = (claim.path for claim in run.claims if claim.named is not None)
        run.parts.shared.update((path, shared[path]) for path in named if path in shared)


def _distinctly_named(runs: list[Run]) -> list[Run]:
    """Runs whose names tell them apart: a line number is added where a script starts several,
    and a count where one line does."""
    repeated: dict[str, int] = {}
    counts: dict[str, int] = {}
    for run in runs:
        counts[run.name] = counts.get(run.name, 0) + 1
    out = []
    for run in runs:
        if counts[run.name] > 1:
            claim = next((c for c in run.claims if c.kind == "launch"), run.claims[0])
            line, _ = claim.document.source.position(claim.anchor.span.start)
            name = f"{run.name} ({claim.started_by or f'{claim.path}:{line}'})"
            repeated[name] = repeated.get(name, 0) + 1
            name += f" #{repeated[name]}" if repeated[name] > 1 else ""
            run = replace(run, name=name, plan=replace(run.plan, name=name))
        out.append(run)
    return out
