"""What a prediction rests on: values that are assumed, or that somebody says and we did not read.

A field that nobody wrote down may matter or not. Each is tried at what else it plausibly is: what
that moves is its swing, and it *decides* where the run fits at one value and not at another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from oomlint.frozen import frozen, replace
from oomlint.hardware import usual_limit
from oomlint.memory import estimate
from oomlint.memory.build import size_class, skeleton
from oomlint.memory.limits import gpu_limits
from oomlint.models.names import one_of_mixture
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f

if TYPE_CHECKING:
    from oomlint.run import Run

_LORA = {f.trainable.method: "lora", f.trainable.r: 16, f.trainable.targets: "all_linear"}
_HALF = {f.precision.param: "bf16", f.precision.grad: "bf16", f.precision.optim_state: "bf16"}
_WHOLE = {f.precision.param: "fp32", f.precision.grad: "fp32", f.precision.optim_state: "fp32"}
_ZERO_3 = {f.parallel.backend: "zero", f.parallel.zero.stage: 3}

# Peaks of GPU and host, the run's own first.
_AllPeaks = tuple[tuple[int | None, int | None], ...]

# Of Llama 2 and of Qwen 2.5 (their config.json): of a model whose size alone is known, the logits are
# anything between.
_VOCABULARIES = (32_000, 152_064)

# Of fields that move the peak, what else they are in runs that people write.
_PLAUSIBLE: Mapping[Any, tuple[Mapping[Any, Any], ...]] = {
    f.trainable.method: ({f.trainable.method: "full"}, _LORA),
    f.trainable.targets: ({f.trainable.targets: "all_linear"},),
    f.quant.method: ({f.quant.method: "none"}, {f.quant.method: "bnb4"}),
    f.load.dtype: ({f.load.dtype: "fp32", **_WHOLE}, {f.load.dtype: "bf16", **_HALF}),
    f.precision.param: (_HALF, _WHOLE),
    f.precision.master: ({f.precision.master: "none"}, {f.precision.master: "fp32"}),
    f.optimizer.kind: ({f.optimizer.kind: "adamw"}, {f.optimizer.kind: "adamw8bit"}),
    f.parallel.backend: ({f.parallel.backend: "ddp"}, _ZERO_3),
    f.parallel.zero.stage: ({f.parallel.zero.stage: 0}, {f.parallel.zero.stage: 3}),
    f.parallel.fsdp.strategy: (
        {f.parallel.fsdp.strategy: "full"},
        {f.parallel.fsdp.strategy: "no_shard"},
    ),
    f.offload.optimizer: ({f.offload.optimizer: "none"}, {f.offload.optimizer: "cpu"}),
    f.offload.params: ({f.offload.params: "none"}, {f.offload.params: "cpu"}),
    f.parallel.tp: ({f.parallel.tp: 1}, {f.parallel.tp: 8}),
    f.parallel.pp: ({f.parallel.pp: 1}, {f.parallel.pp: 8}),
    f.parallel.cp: ({f.parallel.cp: 1}, {f.parallel.cp: 8}),
    f.parallel.ep: ({f.parallel.ep: 1}, {f.parallel.ep: 8}),
    f.parallel.world: (
        {f.parallel.world: 1, f.parallel.dp: 1, f.parallel.nodes: 1, f.parallel.gpus_per_node: 1},
        {f.parallel.world: 64, f.parallel.dp: 64, f.parallel.nodes: 8, f.parallel.gpus_per_node: 8},
    ),
    f.batch.micro: ({f.batch.micro: 1}, {f.batch.micro: 16}),
    f.seq.max_len: ({f.seq.max_len: 1024}, {f.seq.max_len: 16384}),
    f.seq.packing: ({f.seq.packing: "none"}, {f.seq.packing: "varlen"}),
    f.checkpointing.mode: ({f.checkpointing.mode: "none"}, {f.checkpointing.mode: "full"}),
    f.loss.logits_materialised: (
        {f.loss.logits_materialised: "full"},
        {f.loss.logits_materialised: "fused"},
    ),
    f.model.attn_impl: ({f.model.attn_impl: "eager"}, {f.model.attn_impl: "flash2"}),
    f.objective.ref_model: ({f.objective.ref_model: "none"}, {f.objective.ref_model: "copy"}),
    f.objective.pairs_per_sample: (
        {f.objective.pairs_per_sample: 1},
        {f.objective.pairs_per_sample: 2},
    ),
}


@frozen
class Basis:
    """One thing that is assumed or was not read, and what hangs on it.

    ``field`` is where it was lost: what follows from it is as weak. ``leaf`` is the field of the
    plan by which it moves memory most. ``swing_bytes`` is how far the GPU's peak moves over what
    ``leaf`` plausibly is; ``None`` where no peak is known. ``decides`` says of ``gpu`` and ``host``
    whether the run fits at one of these values and not at another, ``eases`` whether it is tight as
    it is taken, and has room at another.
    """

    field: Any
    leaf: Any
    value: Any
    level: Level
    why: str
    path: str | None
    line: int | None
    key: str
    swing_bytes: int | None
    decides: frozenset[str]
    eases: frozenset[str] = frozenset()


@frozen
class Evidence:
    """How well the weakest is known of what moves the peak, and what is known no better than by an
    assumption, the widest swing first."""

    level: Level
    rests_on: tuple[Basis, ...]


def evidence_of(run: Run) -> Evidence:
    return Evidence(level_of(run), rests_on(run))


def rests_on(run: Run) -> tuple[Basis, ...]:
    """What the prediction of a run rests on besides what is written and known, the widest swing
    first."""
    known: tuple[Basis, ...] | None = run.remembered.get("rests_on")
    if known is None:
        known = run.remembered["rests_on"] = tuple(_found(run))
    return known


def weakest(run: Run, resource: str) -> tuple[Level, tuple[Basis, ...]]:
    """The weakest evidence that decides whether a run fits, and what is known no better."""
    return _weakest([basis for basis in rests_on(run) if resource in basis.decides])


def weakest_of_claims(run: Run, resource: str) -> tuple[Level, tuple[Basis, ...]]:
    """The same of what decides whether there is anything to say of a run's peak: that it does not
    fit, or that it is tight."""
    bases = rests_on(run)
    return _weakest([basis for basis in bases if resource in basis.decides | basis.eases])


def _weakest(deciding: list[Basis]) -> tuple[Level, tuple[Basis, ...]]:
    level = max((basis.level for basis in deciding), default=Level.DEFAULT)
    return level, tuple(basis for basis in deciding if basis.level is level)


def moves(run: Run, field: Any) -> Iterator[tuple[Any, int]]:
    """The values that a field of the plan plausibly has, and the GPU's peak at each, in bytes."""
    base = run.placed
    if field not in _PLAUSIBLE:
        return
    seen: set[Any] = set()
    for change in ({field: base.plan.get(field)}, *_PLAUSIBLE[field]):
        value = change[field]
        peak, _ = _peaks(base, change if seen else {})
        if value is not None and value not in seen and peak is not None:
            yield value, peak
        seen.add(value)


def level_of(run: Run) -> Level:
    """How well the weakest of the fields is known that move the peak."""
    levels = (run.level(field) for field in (*_PLAUSIBLE, f.model.dims))
    return max(*levels, *_weak(run).values())


def _plausible(run: Run, leaf: Any) -> tuple[Mapping[Any, Any], ...]:
    """What else a field plausibly is, and all that changes with it."""
    if leaf != f.model.dims:
        return _PLAUSIBLE[leaf]
    dims = run.plan.model.dims
    if dims is None or not dims.params_total:
        return ()
    sizes = {dims.params_total, one_of_mixture(str(run.plan.model.id)) or dims.params_total}
    shapes = map(size_class, sizes)
    return tuple(
        {leaf: replace(shape, vocab=vocabulary)} for shape in shapes for vocabulary in _VOCABULARIES
    )


def _weak(run: Run) -> dict[Any, Level]:
    """The fields that move memory and are known no better than by an assumption."""
    weak = {leaf: level for leaf in _PLAUSIBLE if (level := run.level(leaf)) >= Level.ASSUMED}
    dims = run.plan.model.dims
    if dims is not None and dims.params_total and skeleton(dims) is None:
        # Its config.json, which the run names, was not read.
        weak[f.model.dims] = Level.UNREAD
    return weak


def _found(run: Run) -> Iterator[Basis]:
    weak = _weak(run)
    if not weak:
        return
    probe = run.placed
    trials = {leaf: _Trials.of(probe, leaf) for leaf in weak}
    best: dict[Any, Basis] = {}
    for level in (Level.ASSUMED, Level.UNREAD):
        leaves = [leaf for leaf, known in weak.items() if known is level]
        together = _peaks_together(probe, [trials[leaf] for leaf in leaves])
        for leaf in leaves:
            swing = trials[leaf].swing
            for field in (f.model.id,) if leaf == f.model.dims else run.roots(leaf):
                basis = replace(
                    _basis(run, field, leaf, level, swing),
                    decides=_decided(probe, trials[leaf].peaks) | _decided(probe, together),
                    eases=_eased(probe, trials[leaf].peaks) | _eased(probe, together),
                )
                place = (basis.path, basis.line, basis.key)
                other = best.get(place, basis)
                wider = basis if (swing or 0) > (other.swing_bytes or 0) else other
                best[place] = replace(
                    wider, decides=basis.decides | other.decides, eases=basis.eases | other.eases
                )
    yield from sorted(best.values(), key=lambda basis: -(basis.swing_bytes or 0))


def _basis(run: Run, field: Any, leaf: Any, level: Level, swing: int | None) -> Basis:
    origin = run.origin(field)
    place = origin.location if origin is not None else None
    why = origin.source if origin is not None else ""
    value = run.plan.get(leaf)
    if leaf == f.model.dims:
        value = f"{value.params_total / 1e9:.3g}B"
        why = "of the model only its size is known, from its name: there is no config.json here"
    elif level is Level.UNREAD:
        why = why or f"{run.key(field)} is set to what only running it would tell"
    return Basis(
        field=field,
        leaf=leaf,
        value=value,
        level=level,
        why=why,
        path=None if place is None else place.path,
        line=None if place is None else run.line_of(place),
        key=run.key(field),
        swing_bytes=swing,
        decides=frozenset(),
    )


@frozen
class _Trials:
    """A field at what it plausibly is: the changes, and the peaks of GPU and host at each."""

    changes: tuple[Mapping[Any, Any], ...]
    peaks: _AllPeaks

    @classmethod
    def of(cls, run: Run, leaf: Any) -> _Trials:
        changes = ({}, *_plausible(run, leaf))
        return cls(changes, tuple(_peaks(run, change) for change in changes))

    @property
    def swing(self) -> int | None:
        gpu = [peak for peak, _ in self.peaks if peak is not None]
        return max(gpu) - min(gpu) if gpu else None

    def extreme(self, pick: Any) -> Mapping[Any, Any]:
        """The change with the least, or the most, on the GPU."""
        known = [n for n, (gpu, _) in enumerate(self.peaks) if gpu is not None]
        return self.changes[pick(known, key=lambda n: self.peaks[n][0])] if known else {}


def _peaks(run: Run, change: Mapping[Any, Any]) -> tuple[int | None, int | None]:
    plan = run.plan.with_values(change) if change else run.plan
    limits = None if run.hardware is None else gpu_limits(run.hardware, plan)
    found = estimate(plan, limits)
    return found.gpu.peak_bytes, found.host.peak_bytes


def _known(run: Run, peaks: _AllPeaks) -> Iterator[tuple[str, int, list[int]]]:
    """The resources that have a limit, it, and the peaks that are known, the run's own first."""
    limits = run.limits
    gpu = usual_limit() if limits.gpu_bytes is None else limits.gpu_bytes
    for number, (resource, limit) in enumerate((("gpu", gpu), ("host", limits.host_bytes))):
        known = [each for peak in peaks if (each := peak[number]) is not None]
        if limit is not None and known:
            yield resource, limit, known


def _decided(run: Run, peaks: _AllPeaks) -> frozenset[str]:
    """The resources of which a run fits at one of these peaks and not at another; where nobody says
    which GPU, those that would need a larger one than most people can have."""
    return frozenset(
        resource
        for resource, limit, known in _known(run, peaks)
        if len({peak <= limit for peak in known}) > 1
    )


def _eased(run: Run, peaks: _AllPeaks) -> frozenset[str]:
    """The resources that a run just fits as it is taken, and easily at another of these peaks."""
    return frozenset(
        resource
        for resource, limit, (own, *others) in _known(run, peaks)
        if run.margin * limit < own <= limit and any(peak <= run.margin * limit for peak in others)
    )


def _peaks_together(run: Run, trials: Iterable[_Trials]) -> _AllPeaks:
    """The peaks with several fields at once at what weighs least, and at what weighs most."""
    trials = tuple(trials)
    if len(trials) < 2:
        return ()
    lightest: dict[Any, Any] = {}
    heaviest: dict[Any, Any] = {}
    for each in trials:
        lightest |= each.extreme(min)
        heaviest |= each.extreme(max)
    return tuple(_peaks(run, change) for change in ({}, lightest, heaviest))
