"""From files to runs: recognise documents, follow references, join what belongs together.

A launch line finds its YAML and its Accelerate file, the YAML its DeepSpeed JSON. A
config that several launch lines use is several runs; a part that nothing uses is a run of
its own, with unknowns.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Iterable, Iterator, Mapping as MappingABC, Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from oomlint.dialects.base import Claim, Dialect, Registry
from oomlint.dialects.cells import Cells
from oomlint.documents import JSON_SUFFIXES, YAML_SUFFIXES, kind_of
from oomlint.documents.base import Scalar, ShellDocument
from oomlint.errors import FileError, InternalError, in_words
from oomlint.files.requirements import is_commit
from oomlint.files.workspace import Workspace
from oomlint.runs.asides import asides
from oomlint.runs.claimed import (
    configs_of,
    doubted_again,
    launch_of,
    without_defaults,
    without_what_is_cut_off,
)
from oomlint.runs.documented_launches import IN_PROGRAM, IN_README, OF_ANOTHER
from oomlint.runs.lineage import Lineage
from oomlint.runs.linked import Linked, LinkOptions
from oomlint.runs.lookups import Lookups
from oomlint.runs.measurements import KeptMeasurements
from oomlint.runs.parts import MissingFile, Parts
from oomlint.runs.private_copies import Copier
from oomlint.runs.recognition import Recogniser
from oomlint.runs.references import Joining, References
from oomlint.runs.releases import floors, pinned, ranges, untold
from oomlint.runs.run import Run, build_run
from oomlint.runs.selection import (
    asked_to_train,
    best_known,
    distinctly_named,
    is_borne_out,
    note_shared,
    read_by_their_scripts,
    trains,
    without_read,
    without_repeats,
)
from oomlint.runs.shipped_configs import ShippedAround
from oomlint.runs.started_scripts import StartedScripts
from oomlint.runs.templates import Templates
from oomlint.runs.unused import Unused
from oomlint.runs.variable_readers import is_variable_read
from oomlint.runs.vendored.carried import CarriedCode
from oomlint.runs.vendored.declared import without_declared
from oomlint.runs.vendored.files import copies_around, namesake_of
from oomlint.runs.vendored.programs import OwnPrograms
from oomlint.runs.vendored.readers import OwnReaders, options_of_training

if TYPE_CHECKING:
    from oomlint.datasets.registry import Checkout
    from oomlint.dialects.block import Block
    from oomlint.dialects.ending import Ending
    from oomlint.dialects.machine.launch import Launch
    from oomlint.dialects.reading import Reading
    from oomlint.runs.absent_files import AbsentFiles
    from oomlint.runs.absent_imports import AbsentImports
    from oomlint.runs.absent_mpi import AbsentMpi
    from oomlint.runs.absent_packages import AbsentPackages
    from oomlint.runs.absent_programs import AbsentPrograms
    from oomlint.runs.arrivals import Arrivals
    from oomlint.runs.copies import Copies
    from oomlint.runs.inference_only import ForwardOnly
    from oomlint.runs.listed_sets import ListedSets
    from oomlint.runs.refused_words import RefusedWords
    from oomlint.runs.unset_variables import UnsetVariables

# Dialects of files that say how a run is sharded.
_SHARDING = frozenset({"accelerate", "deepspeed"})
_CHANGED_COPY = "{} is not here, and is a changed {} by its options"
_READ_BY_OWN = "the program of the project's own that reads {} is not followed"


def _nothing() -> None:
    return None


class _Earlier:
    """What was computed for the runs of files as they stood at an earlier time, while they are linked again."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self._cells: dict[str, list[Cells]] = {}
        for run in runs:
            if run.parts.root is not None:
                self._cells.setdefault(run.parts.root.path, []).append(run.cells)

    def of(self, root: Claim) -> Cells | None:
        """What was computed for the next of the runs that begin with a file: which it was of several shows in
        what it read."""
        cells = self._cells.get(root.path)
        return cells.pop(0) if cells else None


class _Joined(Struct, frozen=True, eq=False):
    """A claim, those on the files that it refers to, and what all of them say."""

    launch: Launch | None
    claim: Claim
    """The one that it began with, as it counts beside the others."""
    claims: tuple[Claim, ...]
    dialect: Dialect
    """The one that reads what trains; of parts alone theirs."""
    blocks: tuple[tuple[Block, Reading], ...]
    joining: Joining


class Linker:
    """Builds runs out of a workspace's files."""

    def __init__(self, workspace: Workspace, registry: Registry, options: LinkOptions) -> None:
        self.workspace = workspace
        self.options = options
        self._recogniser = Recogniser(workspace, registry, options.framework)
        self._references = References(workspace, self._recogniser)
        self._scripts = StartedScripts(workspace, self._recogniser, self._alone)
        self._lookups = Lookups(workspace, Lineage(workspace, self._scripts.lent))
        self._own_programs = OwnPrograms(workspace)
        self._own_readers = OwnReaders(workspace)
        self._carried = CarriedCode(workspace)
        self._shipped_around = ShippedAround(workspace)
        self._unused = Unused(workspace)
        self._templates = Templates(workspace)
        self._kept = KeptMeasurements(workspace)
        self._earlier = _Earlier(())

    @cached_property
    def _copies(self) -> Copies:
        from oomlint.runs.copies import Copies  # few projects carry one

        return Copies(self.workspace)

    @cached_property
    def _absent(self) -> AbsentPrograms:
        from oomlint.runs.absent_programs import AbsentPrograms  # asked of commands alone

        return AbsentPrograms(self.workspace, self._arrivals)

    @cached_property
    def _arrivals(self) -> Arrivals:
        from oomlint.runs.arrivals import Arrivals  # asked of commands alone

        return Arrivals(self.workspace)

    @cached_property
    def _absent_files(self) -> AbsentFiles:
        from oomlint.runs.absent_files import AbsentFiles  # asked of commands alone

        return AbsentFiles(self.workspace, self._arrivals)

    @cached_property
    def _imports(self) -> AbsentImports:
        from oomlint.runs.absent_imports import AbsentImports  # asked of commands alone

        return AbsentImports(self.workspace)

    @cached_property
    def _packages(self) -> AbsentPackages:
        from oomlint.runs.absent_packages import AbsentPackages  # asked of commands alone

        return AbsentPackages(self.workspace)

    @cached_property
    def _mpi(self) -> AbsentMpi:
        from oomlint.runs.absent_mpi import AbsentMpi  # asked of commands alone

        return AbsentMpi(self.workspace)

    @cached_property
    def _words(self) -> RefusedWords:
        from oomlint.runs.refused_words import RefusedWords  # asked of commands alone

        return RefusedWords(self.workspace)

    @cached_property
    def _unset(self) -> UnsetVariables:
        from oomlint.runs.unset_variables import UnsetVariables  # asked of commands alone

        return UnsetVariables(self.workspace)

    @cached_property
    def _listed(self) -> ListedSets:
        from oomlint.runs.listed_sets import ListedSets  # one framework asks

        return ListedSets(self.workspace)

    @cached_property
    def _forward_only(self) -> ForwardOnly:
        from oomlint.runs.inference_only import ForwardOnly  # many links ask nothing of it

        return ForwardOnly(self.workspace)

    def claims(self, name: str) -> tuple[Claim, ...]:
        """What the dialects recognise in a file."""
        return self._recogniser.claims(name)

    def link(
        self,
        names: Iterable[str],
        *,
        explicit: frozenset[str] = frozenset(),
        elsewhere: MappingABC[str, str] | None = None,
        earlier: Iterable[Run] = (),
    ) -> Linked:
        """The runs that the files ``names`` describe.

        Args:
            names: display paths.
            explicit: those that the user named one by one; a problem reading one of them
                is an error whatever it holds.
            elsewhere: files that runs use which ``names`` do not describe → one of these runs.
            earlier: the runs as they were linked when files stood otherwise, under the same options.
        """
        self._earlier = _Earlier(earlier)
        self._unused = Unused(self.workspace, explicit)
        linked = Linked(self._unused, explicit)
        claims: list[Claim] = []
        for name in dict.fromkeys(names):
            claims += self._recogniser.claims_of(name, linked, must_read=name in explicit)
        claims = [self._scripts.as_submitted(claim) for claim in self._scripts.with_handed(claims)]
        claims += self._scripts.shown_starts(names, claims)
        used: set[str] = set()
        launches = [self._by_its_script(c) for c in claims if c.kind == "launch"]
        launches = [c for c in launches if not self._is_of_own_program(c)]
        runs = self._built(launches, used, linked, is_worth_it=is_borne_out)
        runs = [run for run in runs if trains(run)]
        runs = self._read_by_their_scripts(runs, used, linked)
        runs = list(asked_to_train(list(best_known(runs))))
        started = {run.parts.root.anchor for run in runs if run.parts.root is not None}
        for kind in ("run", "part"):
            alone = [c for c in claims if c.kind == kind and c.path not in used]
            loaded = {path for claim in alone for path in configs_of(claim)}
            alone = [c for c in alone if c.path not in loaded]
            linked.taken = frozenset(used | loaded)
            # What a command starts may be a run of one framework, and its config another's.
            alone = [c for c in alone if not (c.is_launched and c.anchor in started)]
            alone = [c for c in alone if not (c.is_launched and self._is_of_own_program(c))]
            alone = [c for c in alone if kind != "run" or not self._own_programs.reads_itself(c)]
            alone = [c for c in alone if kind == "part" or not self._own_programs.has(c)]
            found = self._built(alone, used, linked, self._scripts.suggestions.started)
            runs += (run for run in found if kind == "part" or run.dialect.trains(run.cells))
        runs = list(self._templates.without(runs))
        linked.runs = distinctly_named(list(without_repeats(runs)))
        note_shared(linked.runs, elsewhere or {})
        why_unused = self._unused.run
        linked.asides = list(asides(self._recogniser, self.options, names, linked.runs, why_unused))
        taken = {claim.path for run in runs for claim in run.claims}
        jobs = [c for c in claims if c.kind == "aside" and c.merges and c.path not in taken]
        linked.merges = self._built(jobs, used, linked)
        linked.opened = frozenset(self._recogniser.opened)
        linked.errors += self._kept.errors
        # Runs know who looks things up for them: none of those before may stay for it.
        self._earlier = _Earlier(())
        return linked

    def _read_by_their_scripts(self, runs: list[Run], used: set[str], linked: Linked) -> list[Run]:
        """The runs, less those that take a config for a framework's own which their script loads itself. Where every run of
        a command does, the script's own is built anew without that."""
        kept = list(read_by_their_scripts(runs))
        anchors = {run.anchor for run in kept}
        anew = (without_read(run) for run in runs if run.anchor not in anchors)
        again = self._built([claim for claim in anew if claim is not None], used, linked)
        return [*kept, *filter(trains, again)]

    def _is_of_own_program(self, launch: Claim) -> bool:
        """Whether a command starts a program of the project's own that the framework has no part in, or
        that only runs a model forward."""
        own, program = self._own_programs, launch_of(launch)
        return (
            own.starts_another(launch)
            or own.is_namesake(launch, program)
            or (own.does_without(launch, program) and not self._has_run(launch))
            or (own.loops_itself(launch, program) and not self._has_run(launch))
            or self._forward_only.is_started_by(launch)
        )

    def _by_its_script(self, launch: Claim) -> Claim:
        """A command without the config that a framework would be given, where nothing in the project names that framework and
        the script trains by another: it bears the name of one of the framework's, and reads the file itself."""
        own = tuple(r for r in launch.references if r.dialect != launch.dialect.name)
        if own == launch.references or not self._own_programs.does_without(
            launch, launch_of(launch)
        ):
            return launch
        bare = replace(launch, references=own)
        return bare if self._has_run(bare) else launch

    def _has_run(self, launch: Claim) -> bool:
        """Whether the script of a command is itself read as one that trains, and no config of the framework's stands
        on the line."""
        if any(r.dialect == launch.dialect.name for r in launch.references):
            return False
        scripts = (r.path for r in launch.references if not r.dialect and r.path.endswith(".py"))
        found = (self.workspace.program(path, launch.path) for path in scripts)
        return any(self._recogniser.trains_in(name) for name in found if name is not None)

    def _built(
        self,
        claims: Iterable[Claim],
        used: set[str],
        linked: Linked,
        extended: Callable[[Claim], Claim] = lambda claim: claim,
        is_worth_it: Callable[[Sequence[Claim]], bool] = lambda _claims: True,
    ) -> list[Run]:
        runs = []
        for claim in claims:
            try:
                joined = self._joined(extended(claim), used)
                if is_worth_it(joined.claims):
                    earlier = self._earlier.of(claim)
                    runs.append(self._run_of(joined, root=claim, earlier=earlier))
            except Exception as error:  # a dialect's bug must not cost the user the other runs
                linked.errors.append(
                    InternalError(claim.path, f"{claim.dialect.called} failed: {in_words(error)}")
                )
        return runs

    def _alone(self, claim: Claim) -> Run:
        """The run of one claim, as if there were no others."""
        return self._run_of(self._joined(claim, set()), root=claim)

    def _joined(self, claim: Claim, used: set[str]) -> _Joined:
        """A claim with those on the files that it refers to."""
        launch = launch_of(claim)
        claim = claim if launch is None else without_what_is_cut_off(claim, launch)
        claims: list[Claim] = [claim]
        folder = launch.command.folder if launch is not None else ""
        is_open = launch is not None and launch.command.folder_is_open
        joining = Joining(used, folder, is_open, script=claim.path)
        if launch is not None:
            joining.options = self._references.said_to_program(launch, claim.path)
        self._references.note_written(claim.document)
        for reference in claim.references:
            followed = self._references.follow(reference, claim.path, joining)
            if reference.is_base and not followed:
                claim = without_defaults(claim, f"{reference.path} is not here")
                claims = [claim, *(c for c in claims[1:] if c.dialect is not claim.dialect)]
            claims += followed
        used.update(path for each in claims for path in configs_of(each))
        # A launch line overrides the file that it starts; a file it names comes below it.
        ordered = [*(c for c in claims if c is not claim), claim]
        centre = [
            *(c for c in ordered if c.kind == "run"),
            *(c for c in ordered if c.kind == "aside"),
        ]
        dialect = centre[0].dialect if centre else claim.dialect
        carried = self._carried.blocks(dialect, claim, joining.folder)
        blocks = self._references.read_all((*carried, *dialect.layered(claims)))
        blocks = self._references.follow_fields(dialect, blocks, claims, joining)
        return _Joined(launch, claim, tuple(claims), dialect, blocks, joining)

    def _run_of(self, joined: _Joined, *, root: Claim, earlier: Cells | None = None) -> Run:
        launch, claim, claims = joined.launch, joined.claim, joined.claims
        dialect, blocks, joining = joined.dialect, joined.blocks, joined.joining
        main = next((c for c in claims if c.kind == "run"), claim)
        copies = self._copies if any(copies_around(self.workspace, dialect, claim.path)) else None
        versions = (
            pinned(self.workspace, claims)
            | ({} if copies is None else copies.version(dialect, claim.path))
            | self._carried.version(dialect, claim, joining.folder)
        )
        parts = Parts(
            dialect=dialect,
            blocks=blocks,
            claims=(main, *(c for c in claims if c is not main)),
            root=root,
            options=self.options.values,
            hardware=self.options.hardware,
            find_model=self._lookups.model_finder(main.path, claim.path),
            find_lengths=self._lookups.lengths_finder(main.path),
            find_attested=self._lookups.attested_finder(claim, main),
            find_shown=self._lookups.shown_finder(*claims),
            find_shipped=partial(self._shipped_around.of, main.path),
            why_unused=self._unused.run,
            missing=tuple(self._missing(joining, claim, launch, claims, versions)),
            versions={name: at for name, at in versions.items() if not is_commit(at[0])},
            floors=floors(self.workspace, claims),
            ranges=ranges(self.workspace, claims, versions),
            untold=untold(self.workspace, claims, versions),
            unread_program=self._unread_program(joining.folder, claims),
            find_other_reader=partial(self._other_reader, claims),
            find_unstarted=partial(self._unstarted, claims),
            find_ending=(
                _nothing if launch is None else partial(self._ending_of, launch, claim.path, claims)
            ),
            find_endings=self.options.find_endings,
            find_unlisted=partial(self._unlisted, main.path),
            find_unset=self._is_unset,
            is_variable_read=partial(is_variable_read, self.workspace),
            unlinked_config="" if launch is None else self._unlinked(launch, claim.path, blocks),
            measurements=self._kept.around(main.path),
            copier=Copier(self.workspace, claims),
            as_written=self.options.as_written,
        )
        run = build_run(main.name or main.path, parts, margin=self.options.margin, earlier=earlier)
        if copies is not None:
            parts.changed.update(copies.changed(run, claim.path))
        declared = without_declared(self.workspace, run, claims, self._own_readers)
        if any(c.is_launched or c.is_program for c in claims):
            doubt = "" if launch is None else self._changed_copy(declared, launch, claim.path)
            return self._doubted(declared, parts, claims, doubt, earlier) if doubt else declared
        is_own = (
            len(declared.stray) < len(run.stray)
            or any(map(self._own_readers.declare, run.stray))
            # What the framework takes whole is left to it: who else may read it takes a look at all programs.
            or (bool(run.stray or run.wrong) and self._own_readers.load(main))
        )
        lack = dialect.lack_of(main) if launch is None and main.kind == "run" else ""
        if lack:
            return self._doubted(declared, parts, claims, lack, earlier)
        if not is_own:
            return declared
        # A program of the project's own reads the file, or some of its keys, and so the others, too.
        return self._doubted(run, parts, claims, _READ_BY_OWN.format(main.path), earlier)

    def _doubted(
        self, run: Run, parts: Parts, claims: Sequence[Claim], doubt: str, earlier: Cells | None
    ) -> Run:
        """A run of which no file tells what its program makes of the values."""
        doubted = replace(parts, blocks=tuple(doubted_again(parts.blocks, doubt)))
        run = build_run(run.name, doubted, margin=self.options.margin, earlier=earlier)
        return without_declared(self.workspace, run, claims, self._own_readers)

    def _changed_copy(self, run: Run, launch: Launch, path: str) -> str:
        """The script that a command starts, in words, where it is not here and is given options that are like none of
        the framework's of any release, which it would stop at: whoever starts it has changed the framework's, and what
        that makes of the others is not known. A framework that is installed is started by its command or as a module."""
        if launch.script is None:
            return ""
        others = (stray for stray in run.stray if not (stray.nearest or stray.since or stray.until))
        refused = (stray for stray in others if stray.is_refused)
        if not any(stray.block.document is launch.document for stray in refused):
            return ""
        if self.workspace.resolve(launch.script, path, launch.command.folder) is not None:
            return ""
        return _CHANGED_COPY.format(launch.script, run.dialect.called)

    def _ending_of(self, launch: Launch, path: str, claims: Sequence[Claim]) -> Ending | None:
        """What is sure to end the program of a command as it starts, if anything is."""
        found = self._imports.of(launch, path, claims)
        found = found or self._packages.of(launch, path, claims)
        found = found or self._mpi.of(launch, path, claims)
        return found or self._words.of(launch, path)

    def _unlisted(
        self, path: str, names: Iterable[str], folder: str | None, framework: Checkout
    ) -> str:
        """The first of some names of data sets that no list in a folder has, if that is sure."""
        return self._listed.unlisted(names, folder, framework, path)

    def _is_unset(self, variable: str, script: str) -> bool:
        """Whether nothing gives a variable of a shell script a value."""
        return self._unset.is_unset(variable, script)

    def _missing(
        self,
        joining: Joining,
        claim: Claim,
        launch: Launch | None,
        claims: tuple[Claim, ...],
        versions: MappingABC[str, tuple[str, str]],
    ) -> Iterator[MissingFile]:
        """What a run needs and does not find, that first which ends its command."""
        placed = [self._placed(each, claim, launch) for each in joining.missing]
        if launch is None:
            yield from placed
            return
        program = next(self._absent.of(launch, claim.path), None)
        program = program or next(self._absent_files.program(launch, claim.path), None)
        if program is not None:
            yield program
        elif not self._is_shown(claim):
            for each in self._absent_files.of(launch, claim.path, claims, versions):
                if not self._is_made(each, claim):
                    same = (p for p in placed if p.location == each.location)
                    namesake = next((p.namesake for p in same), "")
                    placed = [p for p in placed if p.location != each.location]
                    yield replace(each, namesake=namesake)
        yield from placed

    def _is_shown(self, claim: Claim) -> bool:
        """Whether a command is a guide's or a program's example, or another's."""
        shown = (IN_README, IN_PROGRAM, OF_ANOTHER)
        is_locked = any(block.locked in shown for block in claim.blocks)
        return is_locked or claim.path in self._scripts.by_example

    def _is_made(self, missing: MissingFile, claim: Claim) -> bool:
        """Whether the script that names a file, a program of the project or its README has it made or moved there."""
        made = claim.document.made if isinstance(claim.document, ShellDocument) else ()
        return (
            os.path.normpath(missing.reference) in map(os.path.normpath, made)
            or self._own_readers.write(missing.reference, claim.path)
            or self._own_readers.put(missing.reference, claim.path)
        )

    def _placed(self, missing: MissingFile, claim: Claim, launch: Launch | None) -> MissingFile:
        """A missing file, marked where the program that it is meant for is not here either, or
        where the script that names it or a program of the project writes it."""
        programs = [reference.path for reference in claim.references if reference.optional]
        folder, is_open = "", False
        if launch is not None:
            folder, is_open = launch.command.folder, launch.command.folder_is_open
            programs = programs if launch.script is None else [launch.script]
        is_foreign = bool(programs) and all(
            self.workspace.resolve(path, claim.path, folder) is None for path in programs
        )
        is_absolute = missing.reference.startswith(("/", "~"))
        is_elsewhere = missing.is_elsewhere or is_absolute or is_foreign or is_open
        is_elsewhere = is_elsewhere or self._is_shown(claim) or self._is_made(missing, claim)
        bases = self.workspace.search_folders(claim.path)
        places = [os.path.normpath(base / folder / missing.reference) for base in bases]
        # What a clone lacks because git leaves it out, its author has.
        is_elsewhere = is_elsewhere or self._arrivals.is_left_out(places, claim.path)
        is_elsewhere = is_elsewhere or not self._is_here(folder, bases)
        template = "" if is_elsewhere else self._arrivals.template_of(places)
        is_elsewhere = is_elsewhere or bool(template)
        is_here = not is_elsewhere and not missing.is_blank
        namesake = namesake_of(self.workspace, missing.reference, claim.path) if is_here else ""
        return replace(missing, is_elsewhere=is_elsewhere, namesake=namesake, template=template)

    def _is_here(self, folder: str, bases: Iterable[Path]) -> bool:
        """Whether the project has the folder in which a command runs: what it has not is made or cloned first, with all
        that the command finds there."""
        return not folder or any(self.workspace.holds(base, folder) for base in bases)

    def _unread_program(self, folder: str, claims: Sequence[Claim]) -> str:
        """Why it is not known what the Python program does that a command starts, or that is the one to name a config
        which no command here starts, in words; empty where it was read, or where there is none."""
        launches = [claim for claim in claims if claim.kind == "launch"]
        if not launches:
            return self._unread_starter(claims[0])
        for launch in launches:
            programs = [r for r in launch.references if not r.dialect and r.path.endswith(".py")]
            if not programs:
                continue
            name = PurePath(programs[0].path).name
            files = (self._references.found(each, launch.path, folder) for each in programs)
            found = next(filter(None, files), None)
            if found is None:
                return f"{name} is not here"
            if any(c.path == found for c in claims):
                return ""
            if self._parses_arguments(found):
                return self._own_loop(found)
            return f"what {name} does is not followed"
        return ""

    def _other_reader(self, claims: Sequence[Claim]) -> str:
        """A program of the project's that may read a config which no command here starts the framework with, and which the
        user did not name, in words."""
        program = self._own_readers.loader_of(claims[0]) if self._may_be_anothers(claims) else ""
        return f"{program} loads such files by itself" if program else ""

    def _unstarted(self, claims: Sequence[Claim]) -> bool:
        """Whether nothing here starts the framework with the config of a run, which the user did not name."""
        return claims[0].kind == "run" and self._may_be_anothers(claims)

    def _may_be_anothers(self, claims: Sequence[Claim]) -> bool:
        """Whether no command here, of a guide either, starts the framework with a config, which the user did not name."""
        if any(claim.is_launched or claim.is_program for claim in claims):
            return False
        return not self._unused.is_named(claims[0].path)

    def _unread_starter(self, config: Claim) -> str:
        """The program of the project that names a config and starts processes of training, of which no line was read:
        what it puts together is not known (``command = f"... run_sft.py recipes/sft.yaml ..."``)."""
        if config.kind != "run" or kind_of(config.path) not in YAML_SUFFIXES:
            return ""
        program = next(self._scripts.suggestions.programs(config.path), "")
        return f"what {program} starts with {config.path} is not followed" if program else ""

    def _unlinked(
        self, launch: Launch, from_file: str, blocks: Iterable[tuple[Block, Reading]]
    ) -> str:
        """An option that names a config of DeepSpeed's or Accelerate's to a program which nothing shows to hand it on, in
        words; empty where there is none."""
        joined = {block.path for block, _ in blocks}
        for key, entry in launch.flags.entries.items():
            path = entry.value.value if isinstance(entry.value, Scalar) else None
            if not isinstance(path, str) or kind_of(path) not in (*JSON_SUFFIXES, *YAML_SUFFIXES):
                continue
            found = self.workspace.resolve(path, from_file, launch.command.folder)
            if found is None or found in joined:
                continue
            with suppress(FileError):
                claims = self._recogniser.claims(found)
                if any(c.kind == "part" and c.dialect.name in _SHARDING for c in claims):
                    return f"what the program does with --{key} {found} is not followed"
        return ""

    def _own_loop(self, script: str) -> str:
        """Why it is not known what a script does that hands a library's arguments to a trainer with a loop of its own,
        in words; empty where it has none."""
        with suppress(FileError):
            document = self.workspace.document(script)
            facts = () if document is None else document.facts
            loop = next((fact for fact in facts if fact.kind == "own-loop"), None)
            if loop is not None:
                return f"{loop.detail['class']}.train is the project's own and not followed"
        return ""

    def _parses_arguments(self, script: str) -> bool:
        with suppress(FileError):
            return options_of_training(self.workspace.document(script)) is not None
        return False
