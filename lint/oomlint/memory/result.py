"""The answers of the memory model: plain frozen records, bytes as integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, TypeAlias

from msgspec import Struct

GPU_PHASES = ("load", "forward", "backward", "optimizer_step", "evaluation", "save")
HOST_PHASES = ("load", "train", "evaluation", "save")
GPU_COMPONENTS = (
    "parameters", "gradients", "optimizer_states", "activations", "logits", "communication",
    "temporary", "engine", "context",
)  # fmt: skip
HOST_COMPONENTS = (
    "model_copies", "checkpoint", "offloaded_states", "pinned_rounding", "gather", "activations",
    "logits", "dataloader", "dataset", "process_overhead",
)  # fmt: skip

# Bytes by phase and component; a component that is left out is zero.
Parts: TypeAlias = Mapping[str, Mapping[str, float]]


class Assumption(Struct, frozen=True):
    """A value that the plan left open and the estimate had to choose."""

    field: Any
    value: Any
    why: str


Assume: TypeAlias = Callable[[Any, Any, str], Any]
"""Takes a field, the value chosen for it and why, notes all three and returns the value."""


class GpuLimits(Struct, frozen=True):
    """What the estimate needs to know of a GPU, in bytes; see ``oomlint.hardware``.

    ``usable`` is torch's total memory, ``context`` what the CUDA context takes of it and ``nccl``
    what the communicators take; ``*_high`` are the most that was read of them. ``cublas_workspace``
    is torch's workspace for a handle and stream. The upper context of an unknown card is the largest that was read: 1343 MiB
    with CUDA 11 on a V100 (transformers docs, model_memory_anatomy).
    """

    usable: int | None = None
    context: int = 450 << 20
    context_high: int = 1343 << 20
    nccl: int = 700 << 20
    nccl_high: int = 1600 << 20
    cublas_workspace: int = 8_519_680


class StateBytes(Struct, frozen=True):
    """What stays on one GPU from step to step, in bytes."""

    parameters: float
    gradients: float
    master: float
    optimizer: float

    @property
    def total(self) -> float:
        return self.parameters + self.gradients + self.master + self.optimizer


class _Phased:
    """Phases and their components, made of what is alive at the highest instant of each.

    Searches ask for many estimates and look at little of each, so that these are worked out
    when asked for.
    """

    __slots__ = ()
    _PHASES: ClassVar[tuple[str, ...]]
    _COMPONENTS: ClassVar[tuple[str, ...]]

    parts: Parts | None
    peak_phase: str | None

    @property
    def by_phase(self) -> Mapping[str, Mapping[str, int | None]]:
        """The components of every phase, in bytes; each phase's add up to it."""
        return {phase: self._components_of(phase) for phase in self._PHASES}

    @property
    def phases(self) -> Mapping[str, int | None]:
        """The highest instant of every phase, in bytes."""
        if self.parts is None:
            return dict.fromkeys(self._PHASES)
        return {phase: whole_bytes(self.parts[phase]) for phase in self._PHASES}

    @property
    def components(self) -> Mapping[str, int | None]:
        """What is alive at the peak, in bytes; adds up to it."""
        return self._components_of(self.peak_phase or "")

    def _components_of(self, phase: str) -> Mapping[str, int | None]:
        if self.parts is None:
            return dict.fromkeys(self._COMPONENTS)
        parts = self.parts[phase]
        return {name: round(parts.get(name, 0.0)) for name in self._COMPONENTS}


def whole_bytes(parts: Mapping[str, float]) -> int:
    """The sum of some components, each rounded to bytes as it is shown."""
    return sum(map(round, parts.values()))


class Bounds(Struct, frozen=True):
    """The least and the most that one counter may show, in bytes."""

    low: int
    high: int

    def covering(self, other: Bounds) -> Bounds:
        """Bounds of both."""
        return Bounds(min(self.low, other.low), max(self.high, other.high))


class DeviceEstimate(_Phased, Struct, frozen=True):
    """One GPU, in bytes.

    ``parts`` has what is alive at the highest instant of each phase, by component; those of
    ``peak_phase`` add up to ``peak_bytes``. ``least_reserved_bytes`` is what torch must reserve
    even after it gave back all cached blocks that it can: what really has to fit beside the
    context. ``allocated`` bounds torch's max_memory_allocated and ``reserved`` its
    max_memory_reserved, neither of which sees the context; ``low_bytes`` and ``high_bytes`` bound both,
    and what the context adds. These are the scatter of a run that is what it was read as, by which it is judged;
    ``at_first_sight`` bounds what ``low_bytes`` and ``high_bytes`` do as a person is told it, and holds for some 85 % of
    publishers whose programs nobody had looked at. ``lengths_vary`` says that batches differ in length, which makes these wide.
    """

    _PHASES: ClassVar = GPU_PHASES
    _COMPONENTS: ClassVar = GPU_COMPONENTS

    peak_bytes: int | None = None
    low_bytes: int | None = None
    high_bytes: int | None = None
    reserved_bytes: int | None = None
    peak_phase: str | None = None
    parts: Parts | None = None
    least_reserved_bytes: int | None = None
    allocated: Bounds | None = None
    reserved: Bounds | None = None
    at_first_sight: Bounds | None = None
    lengths_vary: bool = False

    @property
    def told(self) -> Bounds | None:
        """Between what a person is told that the need lies."""
        return self.at_first_sight

    @property
    def context_bytes(self) -> int:
        """What stands beside all that torch counts."""
        return self.components["context"] or 0

    @property
    def allocated_bytes(self) -> int | None:
        """torch's max_memory_allocated: the peak without the context."""
        return None if self.peak_bytes is None else self.peak_bytes - self.context_bytes

    @property
    def kept_bytes(self) -> int:
        """What torch reserves beyond that: freed blocks, and the holes between those in use."""
        if self.reserved_bytes is None or self.allocated_bytes is None:
            return 0
        return max(0, self.reserved_bytes - self.allocated_bytes)

    @property
    def cached_bytes(self) -> int:
        """What of these it gives back where the card is full."""
        if self.reserved_bytes is None or self.least_reserved_bytes is None:
            return 0
        return max(0, self.reserved_bytes - self.least_reserved_bytes)


class HostEstimate(_Phased, Struct, frozen=True):
    """One node's RAM; the fields are those of :class:`DeviceEstimate` without the allocator."""

    _PHASES: ClassVar = HOST_PHASES
    _COMPONENTS: ClassVar = HOST_COMPONENTS

    peak_bytes: int | None = None
    low_bytes: int | None = None
    high_bytes: int | None = None
    peak_phase: str | None = None
    parts: Parts | None = None

    @property
    def told(self) -> Bounds | None:
        """Between what a person is told that the need lies; no readings of hosts were collected to be seen first."""
        if self.low_bytes is None or self.high_bytes is None:
            return None
        return Bounds(self.low_bytes, self.high_bytes)


class Estimate(Struct, frozen=True):
    """The prediction for one run."""

    gpu: DeviceEstimate
    host: HostEstimate
    disk_checkpoint_bytes: int | None
    assumptions: tuple[Assumption, ...]
    unknown: tuple[Any, ...]

    def of(self, resource: Literal["gpu", "host"]) -> DeviceEstimate | HostEstimate:
        return self.gpu if resource == "gpu" else self.host


def unknown_estimate(fields: tuple[Any, ...], assumptions: tuple[Assumption, ...]) -> Estimate:
    """An estimate without numbers: ``fields`` say what was missing."""
    return Estimate(DeviceEstimate(), HostEstimate(), None, assumptions, fields)
