"""One training run: its plan merged from every file that belongs to it, and its hardware.

A :class:`Run` is what rules look at. It answers what the run will do (``plan``), where
each value came from (``origin``, ``location``), what it will need (``estimate``), what the
machine has (``limits``), and what a change would bring (``what_if``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping as MappingABC
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from oomlint.dialects.base import Claim, Dialect
from oomlint.dialects.block import Block
from oomlint.dialects.cells import Cells
from oomlint.dialects.machine.fields import USUAL_NODE
from oomlint.dialects.machine.named_hardware import hardware_in_files
from oomlint.dialects.reading import StrayKey, WrongValue
from oomlint.dialects.roots import roots_of
from oomlint.dialects.setting import Origin, Setting
from oomlint.documents.base import Fact
from oomlint.documents.text import Location, Span
from oomlint.errors import CannotEdit
from oomlint.plan import Plan
from oomlint.plan.called import called
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.plan.library_changes import LibraryChange, Release
from oomlint.runs.attested import Attested, attested_by
from oomlint.runs.locations import explicit_location
from oomlint.runs.misspelt import Misspelt, misspelt_in
from oomlint.runs.parts import MissingFile, Parts, expressed, is_guessed, resolve
from oomlint.runs.unused_values import is_unused

if TYPE_CHECKING:
    from oomlint.hardware import Hardware
    from oomlint.memory import Estimate
    from oomlint.memory.measured import Nearest
    from oomlint.models import ModelFacts
    from oomlint.runs.shown_training import Shown


class Limits(Struct, frozen=True):
    """What the machine has; ``None`` is unknown. Bytes, per GPU and per node."""

    gpu_bytes: int | None = None
    host_bytes: int | None = None

    def of(self, resource: Literal["gpu", "host"]) -> int | None:
        return self.gpu_bytes if resource == "gpu" else self.host_bytes


# Options that say on what a run is started, not what it does.
_OF_THE_MACHINE = ("host.", "device.", "parallel.", "versions.")
# Cards that are sold with the same size differ by so much (A100-80GB, H100-80GB and H800-80GB in hardware/data/gpus.tsv).
_AS_LARGE = 0.98


class Run(Struct, frozen=True, eq=False, dict=True):
    """One run, resolved. Cheap to make; the estimate is computed when first asked for."""

    name: str
    parts: Parts
    plan: Plan
    """Its fields as plain data."""
    resolved: Cells | None = None
    """What all this was read from; ``None`` of a run whose plan was known without, until somebody asks for more."""
    stray: tuple[StrayKey, ...] = ()
    """Keys that the framework does not know."""
    redeclared: frozenset[str] = frozenset()
    """Keys with a new name in the framework, whose old one the project's own script has for options of its own."""
    wrong: tuple[WrongValue, ...] = ()
    """Values that it would refuse."""
    unreadable: MappingABC[Any, Origin] = field(default_factory=dict)
    """Fields whose key is there but whose value only running the user's code would tell."""
    model: ModelFacts | None = None
    hardware: Hardware | None = None
    margin: float = 0.85
    """From this share of a limit on, a run is called tight."""
    wished: MappingABC[Any, Any] = field(default_factory=dict)
    """Of a run made by ``what_if``: what its files would have to say, in the dialect's fields."""
    changes: MappingABC[Any, Any] = field(default_factory=dict)
    """Of a run made by ``what_if``: the canonical changes that made it."""
    _cache: dict[str, Any] = field(default_factory=dict)
    """Runs that were asked for as changes of this one."""
    remembered: dict[str, Any] = field(default_factory=dict)
    """What others worked out about this very run."""

    def __repr__(self) -> str:
        """Its name: what it was read from holds all of its project, many times over."""
        return f"<Run {self.name}>"

    # -- what it is ------------------------------------------------------------------

    @cached_property
    def cells(self) -> Cells:
        """Its fields, each with how it is known."""
        return resolve(self.parts, self.changes) if self.resolved is None else self.resolved

    @property
    def dialect(self) -> Dialect:
        return self.parts.dialect

    @property
    def framework(self) -> str:
        return next((c.framework for c in self.parts.claims if c.framework), self.dialect.name)

    @property
    def claims(self) -> tuple[Claim, ...]:
        return self.parts.claims

    @property
    def settings(self) -> MappingABC[Any, Setting]:
        """Every field that has a value; of what a change leads to they are computed when somebody asks."""
        return self.cells.settings

    @property
    def open(self) -> MappingABC[LibraryChange, bool]:
        """Changes of libraries whose version nobody says, and whether they were taken as made."""
        return self.cells.open

    @property
    def is_fragment(self) -> bool:
        """A part (a lone DeepSpeed JSON, say) that no run was found for, or the run of a model of images or sound:
        neither is counted among the runs of which something is predicted."""
        if all(claim.kind in ("part", "aside") for claim in self.claims):
            return True
        return not self.dialect.trains_language(self.cells)

    @property
    def missing(self) -> tuple[MissingFile, ...]:
        return self.parts.missing

    @cached_property
    def files(self) -> tuple[str, ...]:
        """Display paths of every file that decides this run, the main one first."""
        paths = [c.path for c in self.claims if not any(b.locked for b in c.blocks)]
        paths += [block.path for block, _ in self.parts.blocks if not block.locked]
        return tuple(dict.fromkeys(paths))

    @cached_property
    def is_started_by_guess(self) -> bool:
        """Whether only a sibling's launch line tells how the run is started: what that line and the
        files that it names say is the sibling's, and speaks of memory here alone."""
        return any(
            claim.kind == "launch" and any(map(is_guessed, claim.blocks)) for claim in self.claims
        )

    @cached_property
    def guessed_files(self) -> frozenset[str]:
        """Display paths of the files that only such a line names, and of its own."""
        known = {block.path for block, _ in self.parts.blocks if not is_guessed(block)}
        return frozenset(block.path for block, _ in self.parts.blocks) - known

    @cached_property
    def sources(self) -> frozenset[str]:
        """Display paths of all that was read for this run, its ``files`` included."""
        return frozenset((*self.files, *(claim.path for claim in self.claims)))

    @cached_property
    def facts(self) -> tuple[Fact, ...]:
        """What the scripts of this run do that no key says, where its options lead to it."""
        found = (fact for claim in self.claims for fact in (*claim.facts, *claim.document.facts))
        return tuple(fact for fact in dict.fromkeys(found) if self._leads_to(fact))

    def _leads_to(self, fact: Fact) -> bool:
        guards = fact.detail.get("guards")
        if not guards:
            return True
        from oomlint.dialects.trainer.reaching import are_held
        from oomlint.dialects.trainer.statements import switches_of

        return are_held(guards, switches_of([block for block, _ in self.parts.blocks]))

    @cached_property
    def fact_kinds(self) -> frozenset[str]:
        return frozenset(fact.kind for fact in self.facts)

    # -- where things stand ----------------------------------------------------------

    def origin(self, field: Any) -> Origin | None:
        """Where a field has its value from, or where one is said that cannot be read; ``None`` where nothing speaks
        of it."""
        setting = self.cells.setting(field)
        if setting is not None:
            return setting.origin
        return self.unreadable.get(field)

    def level(self, field: Any) -> Level:
        """How well a field is known; of one without a value, what leaves it open."""
        return self.cells.level(field)

    def inputs(self, field: Any) -> tuple[str, ...]:
        """What a field was computed from."""
        return self.cells.reads(field)

    def plan_has(self, field: Any) -> bool:
        """Whether the field has a value, or is set to one that cannot be read."""
        return self.origin(field) is not None

    def roots(self, field: Any, but: Collection[Any] = ()) -> tuple[str, ...]:
        """The fields where what a weakly known one follows from was lost: assumed, or not read; none of ``but``
        (:func:`~oomlint.dialects.roots.roots_of`)."""
        return roots_of(self.cells, field, but)

    def is_explicit(self, field: Any) -> bool:
        """Whether a file of this run says it (rather than a default or a derivation)."""
        origin = self.origin(field)
        return origin is not None and origin.kind == "explicit"

    def location(self, *fields: Any) -> Location:
        """The best place to point at for any of ``fields``: its key, else what it was derived
        from, else the head of the block where it would be written."""
        for name in fields:
            found = explicit_location(self.origin, name, depth=3)
            if found is not None:
                return found
        for name in fields:
            origin = self.origin(name)
            if origin is not None and origin.block is not None:
                return origin.block.location
        for name in fields:
            block = self.block_with(name)
            if block is not None:
                return block.location
        return self.anchor

    def line_of(self, place: Location) -> int | None:
        """The 1-based line of a place in a file of this run."""
        documents = (
            *(c.document for c in self.claims),
            *(b.document for b, _ in self.parts.blocks),
        )
        source = next((d.source for d in documents if d.source.path == place.path), None)
        return None if source is None else source.position(place.span.start)[0]

    def block_with(self, field: Any) -> Block | None:
        """The block of highest precedence that has a key for the field."""
        blocks = [block for block, _ in self.parts.blocks]
        return next((b for b in reversed(blocks) if b.can_write(field)), None)

    @property
    def anchor(self) -> Location:
        """Where to point when nothing tells more of the run: the head of what it begins with."""
        if self.claims:
            return self.claims[0].anchor
        return Location(self.files[0] if self.files else self.name, Span(0, 0))

    def key(self, field: Any) -> str:
        """The key that sets a field, as this run's file spells it, for messages; what people call it where no
        file here has a key for it."""
        origin = self.origin(field)
        key = None if origin is None else origin.key
        if key and not (key.isdigit() and origin is not None and origin.row is not None):
            return key
        if origin is not None and origin.row is not None:
            return origin.row.key  # of an argument that Python is given by its place
        block = self.block_with(field)
        return block.table.by_field[field].key if block else called(field) or field

    # -- what it needs ---------------------------------------------------------------

    @property
    def placed(self) -> Run:
        """This run on one node of eight GPUs, where nobody says how many there are and it
        matters; one process takes as many as it needs."""
        return self._placed or self

    # Runs that kept themselves would stay until the collector looks for them, with all their cells.

    @cached_property
    def _placed(self) -> Run | None:
        """``None`` where it is the run itself."""
        parallel = self.plan.parallel
        if parallel.world is not None or parallel.backend in (None, "none", "device_map_pp"):
            return None
        return self.assuming({f.parallel.nodes: 1, f.parallel.gpus_per_node: USUAL_NODE})

    @cached_property
    def estimate(self) -> Estimate:
        """What the run is predicted to need, in bytes; of one that nobody says the number of GPUs of, on one node of
        the usual size (``placed``)."""
        if self.placed is not self:
            return self.placed.estimate
        return self.estimated(self.plan)

    def estimated(self, plan: Plan) -> Estimate:
        """What a plan needs on this run's machine, by the model and by what was measured of runs like it."""
        found = _estimate(plan, self.hardware)
        if not self.parts.measurements:
            return found
        from oomlint.memory.measured import measured_like

        return measured_like(self.parts.measurements, plan, found)

    @cached_property
    def nearest_measured(self) -> Nearest | None:
        """The measured run that is most like this one; ``None`` where none is near."""
        if not self.parts.measurements:
            return None
        from oomlint.memory.measured import nearest_of

        plan = self.placed.plan
        return nearest_of(plan, _estimate(plan, self.hardware), self.parts.measurements)

    @property
    def is_measured(self) -> bool:
        """Whether it is this very run that was measured."""
        return self.nearest_measured is not None and self.nearest_measured.is_same

    @cached_property
    def limits(self) -> Limits:
        """What a GPU of the machine has for the run, and the RAM of a node."""
        ram = self.plan.host.ram_gib
        return Limits(
            gpu_bytes=_usable_gpu_bytes(self.hardware),
            host_bytes=None if ram is None else int(ram * 2**30),
        )

    @property
    def intended(self) -> Run:
        """This run with misspelt keys taken for what they mean.

        A framework that ignores ``sequence_length`` trains at its default length; what the
        author has in mind, and gets once the key is renamed, is the length that stands there.
        """
        return self._intended or self

    @cached_property
    def _intended(self) -> Run | None:
        """``None`` where it is the run itself."""
        meant = {each.field: each.value for each in self.misspelt}
        return self.assuming(meant) if meant else None

    @property
    def misspelt(self) -> tuple[Misspelt, ...]:
        """The keys that are taken for others; none of a run that is asked for as it is written."""
        return () if self.parts.as_written else self.meant_otherwise

    @cached_property
    def meant_otherwise(self) -> tuple[Misspelt, ...]:
        """The keys that mean others, at most one for each field."""
        return misspelt_in(self.stray, self._is_given)

    def _is_given(self, field: Any) -> bool:
        """Whether a file or an option to oomlint itself says it."""
        origin = self.origin(field)
        return origin is not None and origin.kind in ("explicit", "option")

    @cached_property
    def said_to_run(self) -> tuple[Attested, ...]:
        """On what the project says that this run ran or is to run, by a kept reading or, of one that its files alone
        describe, in its own words, the surest first."""
        nearest = self.nearest_measured
        if nearest is not None and nearest.is_same:
            return (attested_by(nearest.measurement),)
        return tuple(self.parts.find_attested()) if self._is_as_its_files else ()

    @cached_property
    def attested(self) -> Attested | None:
        """What the project says that this run was seen to run on; ``None`` where the machine has less."""
        if self.hardware is None:
            return None
        seen = (each for each in self.said_to_run if each.kind == "seen")
        return next((each for each in seen if self._has_no_less_than(each.hardware)), None)

    @cached_property
    def shown(self) -> Shown | None:
        """The training that the outputs of its notebook show; none of a run that is asked for otherwise than it is
        written."""
        return self.parts.find_shown() if self._is_as_its_files else None

    @property
    def _is_as_its_files(self) -> bool:
        """Whether its files alone describe it, but for the machine."""
        given = (name for name in self.parts.options if not str(name).startswith(_OF_THE_MACHINE))
        return not self.changes and not any(True for _ in given)

    def _has_no_less_than(self, other: Hardware) -> bool:
        """Whether the GPUs of the run are as large as another machine's, and no fewer of them run."""
        mine, theirs = _usable_gpu_bytes(self.hardware), _usable_gpu_bytes(other)
        assert mine is not None
        assert theirs is not None
        ranks = self.placed.plan.parallel.world or 1
        return mine >= _AS_LARGE * theirs and ranks >= other.nodes * other.gpus_per_node

    def assuming(self, values: MappingABC[Any, Any]) -> Run:
        """This run with facts that no file states, such as eight GPUs a node. Where what was changed about it
        cannot be said in another way for these facts, its files say what they say."""
        parts = self.parts.assuming(values)
        try:
            return self._resolved(parts, self.changes)
        except CannotEdit:
            return self._with_cells(parts, parts.completed.changed(self.wished), self.changes)

    @cached_property
    def alternatives(self) -> tuple[tuple[tuple[LibraryChange, ...], Run], ...]:
        """This run with releases of its libraries that nobody excludes: as it would be on the
        other side of open changes, those of one release together, the nearest first."""
        boundaries: dict[tuple[str, Release], list[LibraryChange]] = {}
        for change in self.open:
            boundaries.setdefault((change.package, change.since), []).append(change)
        nearest = [tuple(boundaries[key]) for key in sorted(boundaries, reverse=True)]
        others = ((changes, self._across(changes[0])) for changes in nearest)
        return tuple((changes, other) for changes, other in others if other is not None)

    def _across(self, change: LibraryChange) -> Run | None:
        """``None`` where what is changed here cannot be said on the other side."""
        version = change.last_without if self.open[change] else change.release
        try:
            return self._resolved(
                self.parts.assuming({f"versions.{change.package}": version}), self.changes
            )
        except CannotEdit:
            return None

    def what_if(self, changes: MappingABC[Any, Any]) -> Run:
        """This run as it would be if the files said ``changes`` too.

        Raises:
            CannotEdit: the framework cannot express a change.
        """
        return self._resolved(self.parts, {**self.changes, **changes})

    def _resolved(self, parts: Parts, changes: MappingABC[Any, Any]) -> Run:
        key = repr((sorted(parts.options.items()), sorted(changes.items())))
        if key not in self._cache:
            self._cache[key] = self._changed(parts, changes) if changes else self._under(parts)
        found: Run = self._cache[key]
        return found

    def _under(self, parts: Parts) -> Run:
        """This run as its files are, under more options: over edits that change no value of theirs it is the same."""
        if self.changes or self.parts.based_on is not None:
            return self._with_cells(parts, resolve(parts), {})
        plan = self.cells.plan_under(parts.options)
        if plan is not None:
            return self._planned(parts, plan, {}, {})
        made = self._with_cells(parts, resolve(parts), {})
        self.cells.note_plan_under(parts.options, made.cells)
        return made

    def _changed(self, parts: Parts, changes: MappingABC[Any, Any]) -> Run:
        """This run with changes; the plan is the same over edits for as long as its values and those of the files are."""
        cells, own = parts.completed, expressed(parts, changes)
        plan = cells.plan_with(own)
        if plan is not None:
            return self._planned(parts, plan, {**cells.wished, **own}, changes)
        made = cells.changed(own)
        cells.note_plan_with(own, made)
        return self._with_cells(parts, made, changes)

    def _planned(
        self,
        parts: Parts,
        plan: Plan,
        wished: MappingABC[Any, Any],
        changes: MappingABC[Any, Any],
    ) -> Run:
        """A run whose plan is known; its cells are computed for who asks for more."""
        return replace(
            self,
            parts=parts,
            resolved=None,
            plan=plan.with_values({"name": self.name}),
            wished=wished,
            changes=dict(changes),
            _cache={},
            remembered={},
        )

    def _with_cells(self, parts: Parts, cells: Cells, changes: MappingABC[Any, Any]) -> Run:
        return replace(
            self,
            parts=parts,
            resolved=cells,
            plan=cells.plan(self.name),
            wished=dict(cells.wished),
            changes=dict(changes),
            _cache={},
            remembered={},
        )


def build_run(
    name: str, parts: Parts, *, margin: float = 0.85, earlier: Cells | None = None
) -> Run:
    """Resolve the parts of a run, of which ``earlier`` was computed when its files stood otherwise."""
    cells = resolve(parts)
    if earlier is not None:
        cells.keep(earlier)
    model_id = cells[f.model.id]
    return Run(
        name=name,
        parts=parts,
        plan=cells.plan(name),
        resolved=cells,
        stray=tuple(parts.dialect.strays(cells)),
        wrong=tuple(wrong for wrong in cells.given.wrong if not is_unused(wrong, cells)),
        unreadable=cells.unreadable,
        model=parts.find_model(str(model_id)) if model_id else None,
        hardware=_hardware_of(parts, cells),
        margin=margin,
    )


def _hardware_of(parts: Parts, cells: Cells) -> Hardware | None:
    """The given hardware, else what the run's own files name, with the ranks that it starts."""
    if parts.hardware is None:
        return hardware_in_files(cells)
    return replace(
        parts.hardware,
        nodes=cells[f.parallel.nodes] or parts.hardware.nodes,
        gpus_per_node=cells[f.parallel.gpus_per_node] or parts.hardware.gpus_per_node,
    )


def _usable_gpu_bytes(hardware: Hardware | None) -> int | None:
    from oomlint.hardware import usable_bytes

    return None if hardware is None else usable_bytes(hardware.gpu)


def _estimate(plan: Plan, hardware: Hardware | None) -> Estimate:
    from oomlint.memory.again import estimate_again
    from oomlint.memory.limits import gpu_limits

    limits = None if hardware is None else gpu_limits(hardware, plan)
    return estimate_again(plan, limits)
