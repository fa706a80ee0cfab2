"""The shapes of the JSON that ``check`` and ``estimate`` print; their schemas come from here.

A number that is not known is ``None``, never 0. Bytes are integers.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

from oomlint.plan import Plan

EvidenceLevel = Literal["measured", "stated", "fact", "default", "assumed", "unread"]
"""How a value is known, best first."""


EndedWhen = Literal["settings", "before_load", "after_load", "engine"]
"""How far a run gets that ends before its first step."""


class PointShape(TypedDict):
    """A place in a file: 1-based line and column in code points, 0-based offset."""

    line: int
    column: int
    offset: int


class RangeShape(TypedDict):
    start: PointShape
    end: PointShape


class _Splice(TypedDict):
    path: str
    start: int
    end: int
    replacement: str


class EditShape(_Splice, total=False):
    """Replace the code points from ``start`` up to ``end``; the byte order mark does not count.
    Where ``creates`` stands, the file is new, and ``replacement`` all of its text."""

    creates: Literal[True]


class FixShape(TypedDict):
    title: str
    applicability: Literal["safe", "unsafe", "display"]
    edits: list[EditShape]
    predicted_bytes_after: int | None


class RelatedShape(TypedDict):
    path: str
    range: RangeShape
    message: str


class FindingShape(TypedDict):
    code: str
    name: str
    severity: Literal["error", "warning", "info"]
    confidence: Literal["high", "medium", "low"]
    message: str
    details: list[str]
    path: str
    range: RangeShape
    resource: Literal["gpu", "host", "disk", "shm"] | None
    predicted_bytes: int | None
    limit_bytes: int | None
    fix: FixShape | None
    related: list[RelatedShape]
    run: str | None
    cause_bytes: int | None
    """What the finding speaks of, as a part of the need of its run that is at risk."""
    evidence: EvidenceLevel | None
    ends: EndedWhen | None
    """Of a finding that is sure of what ends its run before its first step, how far that gets."""
    url: str
    fingerprint: str
    follows: str | None
    """Fingerprint of the finding that leads where several explain one failure."""


class HardwareShape(TypedDict):
    """``gpu_bytes`` is what the driver reports, ``usable_gpu_bytes`` what torch can use of it."""

    name: str
    nodes: int
    gpus_per_node: int
    gpu: str
    gpu_bytes: int | None
    usable_gpu_bytes: int
    host_bytes_per_node: int | None
    source: str


class GpuShape(TypedDict):
    """One GPU; ``components`` are alive at the peak and add up to ``peak_bytes``.

    ``phase_components`` are the same at the highest instant of each phase and add up to its entry
    in ``phases``; ``first_seen`` says in words when a run first gets there, ``None`` for never. A run that is what it was
    read as lies between ``low_bytes`` and ``high_bytes``; between ``first_sight_low_bytes`` and ``first_sight_high_bytes``
    lay some 85 % of those that nobody had looked at.
    """

    peak_bytes: int | None
    low_bytes: int | None
    high_bytes: int | None
    first_sight_low_bytes: int | None
    first_sight_high_bytes: int | None
    reserved_bytes: int | None
    allocated_low_bytes: int | None
    allocated_high_bytes: int | None
    reserved_low_bytes: int | None
    reserved_high_bytes: int | None
    peak_phase: str | None
    phases: dict[str, int | None]
    components: dict[str, int | None]
    phase_components: dict[str, dict[str, int | None]]
    first_seen: dict[str, str | None]


class HostShape(TypedDict):
    """The RAM of one node."""

    peak_bytes: int | None
    low_bytes: int | None
    high_bytes: int | None
    peak_phase: str | None
    phases: dict[str, int | None]
    components: dict[str, int | None]
    phase_components: dict[str, dict[str, int | None]]
    first_seen: dict[str, str | None]


class DiskShape(TypedDict):
    checkpoint_bytes: int | None


class AssumptionShape(TypedDict):
    """A value that the files leave open and the prediction had to choose."""

    field: Any
    value: Any
    why: str


class BasisShape(TypedDict):
    """A value that nobody wrote down, or that was not understood, on which a prediction rests.
    ``swing_bytes`` is how far the GPU's peak moves over what it plausibly is."""

    field: Any
    value: Any
    level: EvidenceLevel
    why: str
    path: str | None
    line: int | None
    swing_bytes: int | None


OtherwiseShape = TypedDict(
    "OtherwiseShape",
    {"if": str, "probability": float, "gpu_bytes": int | None, "host_bytes": int | None},
)
OtherwiseShape.__doc__ = """What a run may be besides what its prediction takes it for, how likely that is, and
what it needs then."""


class EvidenceShape(TypedDict):
    """``level``: the weakest of what moves the peak. ``rests_on``: the widest swing first. ``otherwise``: of
    the reading that findings speak of, on known hardware."""

    level: EvidenceLevel
    rests_on: list[BasisShape]
    otherwise: list[OtherwiseShape]


class RiskShape(TypedDict):
    """Probabilities that the run dies of memory; ``null`` where a limit is not known."""

    gpu: float | None
    host: float | None
    any: float


class AsMeantShape(TypedDict):
    """The run as it is once misspelt keys are renamed."""

    because: list[str]
    gpu: GpuShape
    host: HostShape
    risk: RiskShape | None
    verdict: Literal["fits", "tight", "does_not_fit", "unknown"]


class CauseShape(TypedDict):
    """A part of the need that is most at risk; ``remedy`` is ``null`` where no config lowers it."""

    code: str
    name: str
    component: str
    bytes: int
    path: str
    line: int | None
    remedy: str | None


class EndingShape(TypedDict):
    """What is sure to end a run before its first step, whatever memory there is; ``when``: while its settings are read,
    before the model is loaded, once it is, or as the engine starts that writes its answers; ``null`` where it is not known
    which. ``code`` and ``name`` are the rule's that tells of it, if one does."""

    what: str
    when: EndedWhen | None
    path: str
    line: int | None
    code: str | None
    name: str | None


class WayOutShape(TypedDict):
    """The cheapest change that makes a run fit. ``changes`` are fields of the plan and their new values,
    misspelt keys under their right names included; the bytes are the peaks that are predicted then."""

    title: str
    applicability: Literal["safe", "unsafe"]
    changes: dict[str, Any]
    gpu_bytes: int | None
    host_bytes: int | None
    edits: list[EditShape]
    command: str


class RunShape(TypedDict):
    """``unpredicted``: which fact is missing where ``gpu`` has no peak, in words. ``endings``: what ends the run before its
    first step, in the order in which it gets there; all else is of the run once that is mended."""

    name: str
    framework: str | None
    files: list[str]
    plan: Annotated[dict[str, Any], Plan]
    hardware: HardwareShape | None
    gpu: GpuShape
    host: HostShape
    disk: DiskShape
    assumptions: list[AssumptionShape]
    verdict: Literal["fits", "tight", "does_not_fit", "unknown"]
    unpredicted: str | None
    risk: RiskShape | None
    evidence: EvidenceShape | None
    as_meant: AsMeantShape | None
    endings: list[EndingShape]
    causes: list[CauseShape]
    way: WayOutShape | None
    """``null`` where the run is not in trouble, or no change of its files is known to help."""


class ErrorShape(TypedDict):
    path: str
    kind: Literal["parse", "io", "encoding", "internal"]
    message: str
    line: int | None
    column: int | None


class ToolShape(TypedDict):
    name: str
    version: str


class SummaryShape(TypedDict):
    """``files`` belong to runs, ``files_read`` were opened; ``fixable`` counts findings left."""

    files: int
    files_read: int
    runs: int
    error: int
    warning: int
    info: int
    fixable: int
    fixed: int


class CheckShape(TypedDict):
    """What ``oomlint check --output-format json`` prints."""

    version: Literal[1]
    tool: ToolShape
    findings: list[FindingShape]
    runs: list[RunShape]
    errors: list[ErrorShape]
    summary: SummaryShape


class NamedModelShape(TypedDict):
    """A model that was asked for by name, and where its dimensions come from."""

    name: str
    source: str


class PlaceShape(TypedDict):
    """Cards that hold a run, and how they share the model."""

    hardware: str
    gpu: str
    nodes: int
    gpus_per_node: int
    shard: Literal["none", "zero2", "zero3", "fsdp"]
    gpu_bytes: int | None
    usable_gpu_bytes: int
    host_bytes: int | None
    machines: list[str]


class LeverShape(TypedDict):
    """One change alone; ``gives_up`` is null where what is trained and saved stays the same."""

    title: str
    gives_up: str | None
    changes: dict[str, Any]
    gpu_bytes: int | None
    saving_bytes: int


class _Estimate(TypedDict):
    version: Literal[1]
    runs: list[RunShape]


class EstimateShape(_Estimate, total=False):
    """What ``oomlint estimate --output-format json`` prints.

    Of a model that no config trains, besides: of each common card the smallest number that holds the run, and
    the changes that lower its peak.
    """

    model: NamedModelShape
    cards: list[PlaceShape]
    lowers: list[LeverShape]


class NewConfigShape(TypedDict):
    """A config that fits, under the name that it usually has."""

    file: str
    text: str
    command: str
    to_fill: str
    changes: list[str]
    run: RunShape


class MoveShape(TypedDict):
    """One change of a way; ``fields`` are canonical, ``gives_up`` what the result loses by it."""

    title: str
    rule: str
    gives_up: str | None
    fields: dict[str, Any]


class WayShape(TypedDict):
    """Changes together; ``slowdown`` is the time of a token over that of the run as it is, below 1
    where it trains faster."""

    changes: list[MoveShape]
    gpu_peak_bytes: int | None
    host_peak_bytes: int | None
    save_host_bytes: int | None
    verdict: Literal["fits", "tight"]
    slowdown: float
    applicability: Literal["safe", "unsafe"]
    fix: FixShape | None


class HardwareOptionShape(TypedDict):
    hardware: str
    peak_bytes: int | None
    instances: list[str]


class LaunchedShape(TypedDict):
    """What a run that nothing here launches needs if its launch shards it with ZeRO-3, and the ways to make it fit
    then."""

    gpu_peak_bytes: int | None
    fits: bool
    ways: list[WayShape]


class FittingShape(RunShape):
    """A run, the ways to make it fit (or, with an ``aim``, to make that the largest), the cheapest
    first, and the smallest hardware on which it fits as it is. ``ended_early``: the search for ways ended before
    it had seen every combination of changes. ``launched_with_zero3``: of a run that does not fit as a whole copy on
    each GPU."""

    aim: Literal["micro_batch", "seq_len", "throughput"] | None
    ways: list[WayShape]
    ended_early: bool
    launched_with_zero3: LaunchedShape | None
    fits_as_it_is_on: list[HardwareOptionShape]


class FitShape(TypedDict):
    """What ``fit`` prints with ``--output-format json``."""

    version: Literal[1]
    runs: list[FittingShape]


class ValueShape(TypedDict):
    """An effective value and where it comes from: a place in a file, or what is known beside."""

    value: Any
    origin: Literal[
        "explicit", "default", "derived", "catalog", "assumed", "option", "unreadable", "unset"
    ]
    path: str | None
    line: int | None
    key: str | None
    source: str | None


class DifferenceShape(TypedDict):
    field: Any
    a: ValueShape
    b: ValueShape


class ChangeShape(TypedDict):
    """``change_bytes`` in the order of the steps, ``change_bytes_alone`` on A as it is."""

    change_bytes: int | None
    change_bytes_alone: int | None
    peak_bytes: int | None
    peak_phase: str | None


class StepShape(TypedDict):
    group: str
    title: str
    gpu: ChangeShape
    host: ChangeShape
    checkpoint_change_bytes: int | None
    settings: list[DifferenceShape]


class TotalShape(TypedDict):
    """The steps add up to ``change_bytes``; ``interaction_bytes`` of it none brings alone."""

    change_bytes: int | None
    interaction_bytes: int | None


class CompareShape(TypedDict):
    """What ``oomlint compare --output-format json`` prints."""

    version: Literal[1]
    a: RunShape
    b: RunShape
    gpu: TotalShape
    host: TotalShape
    steps: list[StepShape]
    without_effect: list[DifferenceShape]


class _Known(TypedDict):
    path: str
    code: str
    name: str
    fingerprint: str


class KnownShape(_Known, total=False):
    """Findings that look alike: as many as ``count`` says, one where it is left out."""

    count: int
    message: str


class BaselineShape(TypedDict):
    """Findings that a project knows and lives with."""

    version: Literal[1]
    findings: list[KnownShape]
