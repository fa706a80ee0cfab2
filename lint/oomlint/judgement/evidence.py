"""What a prediction rests on: values that are assumed, or that somebody says and we did not read.

A field that nobody wrote down may matter or not. Each is tried at what else it plausibly is: what
that moves is its swing, and it *decides* where the run fits at one value and not at another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from oomlint.dialects.common.fields import shared
from oomlint.hardware import usual_limit
from oomlint.judgement import unread
from oomlint.judgement.launch import SHARDED, hangs_on_launch
from oomlint.judgement.risk_model import risk_in
from oomlint.judgement.severity import EVEN, TIGHT
from oomlint.memory import Assumption, Estimate
from oomlint.memory.build import skeleton, stand_in
from oomlint.models.names import one_of_mixture
from oomlint.plan import leaf_paths
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.plan.model import ModelDims
from oomlint.runs.run import Run
from oomlint.wording.amounts import enumerated

# What was not read is named up to so many.
_MOST_NAMED = 3

_LORA = {f.trainable.method: "lora", f.trainable.r: 16, f.trainable.targets: "all_linear"}
_HALF = {f.precision.param: "bf16", f.precision.grad: "bf16", f.precision.optim_state: "bf16"}
_WHOLE = {f.precision.param: "fp32", f.precision.grad: "fp32", f.precision.optim_state: "fp32"}
_ZERO_3 = {f.parallel.backend: "zero", f.parallel.zero.stage: 3}

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
    # Instructions and their answers have some hundred tokens (168 on the mean in alpaca-gpt4-data-en,
    # benchmarks/accuracy/lengths.py): a length that nobody limits is rather below 2,048 than above.
    f.eval.samples: ({f.eval.samples: 100}, {f.eval.samples: 16_600}),
    f.seq.max_len: ({f.seq.max_len: 256}, {f.seq.max_len: 1024}, {f.seq.max_len: 8192}),
    f.seq.packing: ({f.seq.packing: "none"}, {f.seq.packing: "varlen"}),
    f.checkpointing.mode: ({f.checkpointing.mode: "none"}, {f.checkpointing.mode: "full"}),
    f.loss.logits_materialised: (
        {f.loss.logits_materialised: "full"},
        {f.loss.logits_materialised: "fused"},
    ),
    f.eval.enabled: ({f.eval.enabled: False},),
    f.eval.keeps_logits: ({f.eval.keeps_logits: False}, {f.eval.keeps_logits: True}),
    f.model.attn_impl: ({f.model.attn_impl: "eager"}, {f.model.attn_impl: "flash2"}),
    f.objective.ref_model: ({f.objective.ref_model: "none"}, {f.objective.ref_model: "copy"}),
    # A group of completions, of which the run says how many there are.
    f.objective.pairs_per_sample: (),
}


# Of a config that no file here starts.
_LAUNCH, _NO_LAUNCH = (
    "what launches it",
    "nothing here launches it, and what does may shard the model",
)

_RANKS = frozenset({f.parallel.world, f.parallel.nodes, f.parallel.gpus_per_node})
# Which model it is, of which a name alone may tell: what follows from that is no doubt of its own.
_OF_MODEL = frozenset({f.model.dims, f.model.arch, f.model.ckpt_dtype, f.model.native_quant})


class Basis(Struct, frozen=True):
    """One thing that is assumed or was not read, and what hangs on it.

    ``field`` is where it was lost: what follows from it is as weak. ``leaf`` is the field of the
    plan by which it moves memory most. ``subject`` is that of the plan which ``value`` is the value of:
    ``field``, or ``leaf`` where a dialect keeps ``field`` to itself. ``is_stated`` where a file does say
    ``field``, and that it counts for this run is what is assumed. ``otherwise`` are the least and the most that a
    GPU and a host need, in bytes, where ``leaf`` is something else that it plausibly is, and ``swing_bytes`` how
    far the GPU's peak moves over all of them; ``None`` where no peak is known. ``decides`` says of ``gpu`` and ``host``
    whether the run fits at one of these values and not at another, ``eases`` whether there is something
    to say of it as it is taken, and nothing at another. ``why`` says in words for people on what the
    value rests, or why it was not read.
    """

    field: Any
    leaf: Any
    subject: Any
    value: Any
    level: Level
    why: str
    path: str | None
    line: int | None
    key: str
    swing_bytes: int | None
    otherwise: Mapping[str, tuple[int, int]]
    decides: frozenset[str]
    eases: frozenset[str] = frozenset()
    is_stated: bool = False


class Evidence(Struct, frozen=True):
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
        # Whatever its files leave open, the run that was measured had it.
        known = run.remembered["rests_on"] = () if run.is_measured else tuple(_found(run))
    return known


def left_open(evidence: Evidence) -> str:
    """What was not read and decides whether a run fits, or is in trouble at all, in words; empty where nothing does."""
    deciding = (b for b in evidence.rests_on if b.level is Level.UNREAD and (b.decides or b.eases))
    words = tuple(dict.fromkeys(basis.why for basis in deciding))
    if len(words) > _MOST_NAMED:
        words = (*words[: _MOST_NAMED - 1], f"{len(words) - _MOST_NAMED + 1} more were not read")
    return enumerated(words)


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


def assumed_otherwise(run: Run) -> Iterator[tuple[tuple[str, Estimate], ...]]:
    """Of each thing that nobody says: what else the fields plausibly are that follow from it and move
    memory, in words (``loading dtype is fp32``), and the estimate at each. Taken to be started as its
    sibling is, a run may have another launcher; that this would shard, and compute, and count
    otherwise is one doubt and not three."""
    doubts: list[tuple[set[Any], list[tuple[str, Estimate]]]] = []
    for leaf, level in _weak(run).items():
        roots = set(_lost_at(run, leaf))
        # What follows from the number of ranks alone is no doubt beside that of their number.
        follows = leaf != f.parallel.world and roots <= _RANKS
        is_model = leaf == f.model.dims
        is_open = level is Level.ASSUMED and not follows and not is_model
        estimates = list(_otherwise(run, leaf)) if is_open else []
        if not estimates:
            continue
        shared = [each for each in doubts if not roots.isdisjoint(each[0])]
        for each in shared:
            doubts.remove(each)
        doubts.append(
            (
                roots.union(*(each[0] for each in shared)),
                [*(other for each in shared for other in each[1]), *estimates],
            )
        )
    for _, others in doubts:
        yield tuple(others)


def _otherwise(run: Run, leaf: Any) -> Iterator[tuple[str, Estimate]]:
    """What else a field that is assumed plausibly is, in words, and the estimate at each.

    How many ranks there are is up to whoever starts the run before his machine, which we have taken
    as it is: that there may be more of them calms, that he might leave most of it idle is
    nothing that his files tell.
    """
    own, peak = run.plan.get(leaf), run.estimate.gpu.peak_bytes
    for change in _plausible(run, leaf):
        if change.get(leaf) == own:
            continue
        found = _estimate(run, change)
        needs_more = peak is not None and (found.gpu.peak_bytes or 0) > peak
        if leaf != f.parallel.world or not needs_more:
            yield f"{run.key(leaf)} is {change[leaf]}", found


def is_open(run: Run, *resources: str) -> bool:
    """Whether it hangs on what somebody says and was not read that the run fits: one of these resources, or any."""
    each = resources or ("gpu", "host")
    return any(weakest(run, resource)[0] is Level.UNREAD for resource in each)


def moves(run: Run, field: Any) -> Iterator[tuple[Any, int]]:
    """The values that a field of the plan plausibly has, and the GPU's peak at each, in bytes."""
    base = run.placed
    if field not in _PLAUSIBLE:
        return
    seen: set[Any] = set()
    for change in ({field: base.plan.get(field)}, *_plausible(base, field)):
        value = change[field]
        peak = _estimate(base, change if seen else {}).gpu.peak_bytes
        if value is not None and value not in seen and peak is not None:
            yield value, peak
        seen.add(value)


def level_of(run: Run) -> Level:
    """How well the weakest of the fields is known that move the peak."""
    if run.is_measured:
        return Level.MEASURED
    levels = (run.level(field) for field in (*_PLAUSIBLE, f.model.dims))
    return max(*levels, *_weak(run).values())


def _plausible(run: Run, leaf: Any) -> tuple[Mapping[Any, Any], ...]:
    """What else a field plausibly is, and all that changes with it."""
    if leaf == f.objective.pairs_per_sample:
        group = run.plan.objective.rollout.n
        return ({leaf: 1}, {leaf: group}) if group else ()
    dims = run.plan.model.dims
    if leaf == f.quant.method and dims is not None and dims.moe is not None:
        # Who loads a mixture in 4 bit may have its experts packed as well, as Unsloth's copies are.
        return (*_PLAUSIBLE[leaf], {leaf: "bnb4", f.quant.quantises_moe_experts: True})
    if leaf != f.model.dims:
        return _PLAUSIBLE[leaf]
    if dims is None or not dims.params_total:
        return ()
    sizes = {dims.params_total, one_of_mixture(str(run.plan.model.id)) or dims.params_total}
    shapes = (
        replace(stand_in(replace(dims, params_total=size)), vocab=vocabulary)
        for size in sizes
        for vocabulary in _VOCABULARIES
    )
    return tuple({leaf: each} for each in shapes if _has_layers(each))


def _has_layers(dims: ModelDims) -> bool:
    """Whether a model of this size has room for layers beside the tables of its vocabulary."""
    built = skeleton(dims)
    return built is not None and all(
        linear.outputs for block in built.blocks for linear in block.linears
    )


def _weak(run: Run) -> dict[Any, Level]:
    """The fields that move memory and are known no better than by an assumption."""
    weak = {
        leaf: level
        for leaf in _PLAUSIBLE
        if (level := run.level(leaf)) >= Level.ASSUMED and run.roots(leaf, _OF_MODEL)
    }
    weak |= dict.fromkeys(run.parts.changed, Level.UNREAD)
    for leaf in _left_to_the_model(run):
        weak.setdefault(leaf, Level.ASSUMED)
    if hangs_on_launch(run, f.parallel.backend):
        weak[f.parallel.backend] = Level.UNREAD
    dims = run.plan.model.dims
    if dims is not None and dims.params_total and skeleton(dims) is None:
        # Its config.json, which the run names, was not read.
        weak[f.model.dims] = Level.UNREAD
    elif dims is not None and run.level(f.model.dims) is Level.ASSUMED:
        weak.setdefault(f.model.dims, Level.ASSUMED)
    return weak


def _left_to_the_model(run: Run) -> Mapping[Any, Assumption]:
    """What nobody says and no framework has a default for: the memory model had to choose it."""
    return {each.field: each for each in run.estimate.assumptions if each.field in _PLAUSIBLE}


def _found(run: Run) -> Iterator[Basis]:
    found = (*_of_fields(run), *_of_commits(run), *_of_end(run))
    yield from sorted(found, key=lambda basis: -(basis.swing_bytes or 0))


def _of_commits(run: Run) -> Iterator[Basis]:
    """Packages of which only a repository tells the release, of a submodule that nobody has checked out or of a commit or
    a fork in a requirement, where the run is another before a change of theirs than behind it."""
    if not run.parts.untold:  # each alternative is a run of its own to read
        return
    others: dict[str, list[Estimate]] = {}
    for changes, other in run.alternatives:
        if changes[0].package in run.parts.untold:
            others.setdefault(changes[0].package, []).append(other.estimate)
    for package, found in others.items():
        estimates = (run.estimate, *found)
        decides, eases = _decided(run, estimates), _eased(run, estimates)
        if decides or eases:
            yield Basis(
                field=f.versions,
                leaf=f.versions,
                subject=f.versions,
                value=package,
                level=Level.UNREAD,
                why=run.parts.untold[package],
                path=None,
                line=None,
                key=f"the release of {package}",
                swing_bytes=_swing(estimates),
                otherwise=_elsewise(found, _peaks(run.estimate)),
                decides=decides,
                eases=eases,
            )


# What a figure counts for once the program gets to a step, and on the cards that it is for.
_FOR_NOTHING = {
    shared.stops: "what the program is once it gets to a step",
    shared.other_cards: "what it needs on other cards",
}


def _of_end(run: Run) -> Iterator[Basis]:
    """That the program is sure to end before its first step: what it would need counts only once that is mended, and
    nobody knows what it is then. Or that it is for other accelerators than those of the machine."""
    for field, key in _FOR_NOTHING.items():
        said = run.settings.get(field)
        if said is not None and run.level(field) <= Level.DEFAULT:
            yield _in_vain(run, field, key)


def _in_vain(run: Run, field: Any, key: str) -> Basis:
    origin = run.origin(field)
    place = origin.location if origin is not None else None
    return Basis(
        field=field,
        leaf=field,
        subject=field,
        value=None,
        level=Level.UNREAD,
        why=unread.lost_with_all(run, field),
        path=None if place is None else place.path,
        line=None if place is None else run.line_of(place),
        key=key,
        swing_bytes=None,
        otherwise={},
        decides=_from(run.placed, EVEN),
        eases=_from(run.placed, TIGHT),
    )


def _of_fields(run: Run) -> Iterator[Basis]:
    weak = _weak(run)
    if not weak:
        return
    probe = run.placed
    trials = {leaf: _Trials.of(probe, leaf) for leaf in weak}
    best: dict[Any, Basis] = {}
    for level in (Level.ASSUMED, Level.UNREAD):
        leaves = [leaf for leaf, known in weak.items() if known is level]
        together = _estimates_together(probe, [trials[leaf] for leaf in leaves])
        for leaf in leaves:
            swing = trials[leaf].swing
            estimates = trials[leaf].estimates
            # Of another model there is nothing to try.
            is_kin = leaf == f.model.dims and (level is Level.ASSUMED or leaf in run.parts.changed)
            for field in _lost_at(run, leaf):
                basis = replace(
                    _basis(run, field, leaf, level, swing),
                    otherwise=trials[leaf].otherwise,
                    decides=_decided(probe, estimates)
                    | _decided(probe, together)
                    | (_from(probe, EVEN) if is_kin else frozenset()),
                    eases=_eased(probe, estimates)
                    | _eased(probe, together)
                    | (_from(probe, TIGHT) if is_kin else frozenset()),
                )
                place = (basis.path, basis.line, basis.key)
                other = best.get(place, basis)
                wider = basis if (swing or 0) > (other.swing_bytes or 0) else other
                best[place] = replace(
                    wider, decides=basis.decides | other.decides, eases=basis.eases | other.eases
                )
    yield from best.values()


def _lost_at(run: Run, leaf: Any) -> tuple[Any, ...]:
    """The fields where what moves memory by ``leaf`` was lost."""
    if leaf in run.parts.changed:
        return (leaf,)
    if leaf == f.model.dims:
        return (f.model.id,)
    if hangs_on_launch(run, leaf):
        return (leaf,)
    return run.roots(leaf, _OF_MODEL) or (leaf,)


def _basis(run: Run, field: Any, leaf: Any, level: Level, swing: int | None) -> Basis:
    origin = run.origin(field)
    place = origin.location if origin is not None else None
    why = origin.source if origin is not None else ""
    subject = field if field in leaf_paths() and leaf != f.model.dims else leaf
    value = run.plan.get(subject)
    chosen = _left_to_the_model(run).get(leaf)
    if value is None and chosen is not None:
        subject, value, why = leaf, chosen.value, chosen.why
    if leaf == f.model.dims:
        value = run.plan.get(leaf)
        known = run.origin(leaf)
        why = known.source if level is Level.ASSUMED and known is not None else why
        total = None if value is None else value.params_total
        value = None if total is None else f"{total / 1e9:.3g}B"
    is_launch = hangs_on_launch(run, leaf)
    if level is Level.UNREAD:
        why = _NO_LAUNCH if is_launch else unread.in_words(run, field)
    return Basis(
        field=field,
        leaf=leaf,
        subject=subject,
        value=value,
        level=level,
        why=why,
        path=None if place is None else place.path,
        line=None if place is None else run.line_of(place),
        key=_LAUNCH if is_launch else _named(run, field, leaf),
        swing_bytes=swing,
        otherwise={},
        decides=frozenset(),
        is_stated=level is Level.ASSUMED and origin is not None and origin.kind == "explicit",
    )


def _named(run: Run, field: Any, leaf: Any) -> str:
    """What a person knows a field by; what a dialect keeps for itself, by what follows from it."""
    key = run.key(field)
    return run.key(leaf) if key == field else key


class _Trials(Struct, frozen=True):
    """A field at what it plausibly is: the changes, and the estimate at each."""

    changes: tuple[Mapping[Any, Any], ...]
    estimates: tuple[Estimate, ...]

    @classmethod
    def of(cls, run: Run, leaf: Any) -> _Trials:
        changes = ({}, *_plausible(run, leaf))
        if hangs_on_launch(run, leaf):
            # How a model is loaded follows from who launches it.
            return cls(({}, SHARDED), (run.estimate, run.assuming(SHARDED).estimate))
        return cls(changes, tuple(_estimate(run, change) for change in changes))

    @property
    def swing(self) -> int | None:
        return _swing(self.estimates)

    @property
    def otherwise(self) -> Mapping[str, tuple[int, int]]:
        """The least and the most that is needed where the field is not what it is taken for."""
        own, *others = self.estimates
        return _elsewise(others, _peaks(own))

    def extreme(self, pick: Any) -> Mapping[Any, Any]:
        """The change with the least, or the most, on the GPU."""
        peaks = [each.gpu.peak_bytes for each in self.estimates]
        known = [n for n, peak in enumerate(peaks) if peak is not None]
        return self.changes[pick(known, key=peaks.__getitem__)] if known else {}


def _swing(estimates: Iterable[Estimate]) -> int | None:
    """How far the GPU's peak moves over some estimates."""
    known = [peak for each in estimates if (peak := each.gpu.peak_bytes) is not None]
    return max(known) - min(known) if known else None


def _peaks(estimate: Estimate) -> Mapping[str, int | None]:
    return {"gpu": estimate.gpu.peak_bytes, "host": estimate.host.peak_bytes}


def _elsewise(
    estimates: Sequence[Estimate], own: Mapping[str, int | None]
) -> Mapping[str, tuple[int, int]]:
    """The least and the most that a GPU and a host need by those of some estimates, in bytes, by which they need
    another amount than their ``own``."""
    found = {}
    for resource, usual in own.items():
        peaks = (_peaks(each)[resource] for each in estimates)
        known = [peak for peak in peaks if peak is not None and peak != usual]
        if known:
            found[resource] = (min(known), max(known))
    return found


def _estimate(run: Run, change: Mapping[Any, Any]) -> Estimate:
    return run.estimated(run.plan.with_values(change) if change else run.plan)


_Limited: TypeAlias = Literal["gpu", "host"]


def _risks(run: Run, estimates: Iterable[Estimate]) -> Iterator[tuple[_Limited, list[float]]]:
    """The resources that have a limit and the risks by each estimate, the run's own first; where nobody
    says which GPU, by the largest that most people can have."""
    limits = run.limits
    gpu = usual_limit() if limits.gpu_bytes is None else limits.gpu_bytes
    each: tuple[tuple[_Limited, int | None], ...] = (("gpu", gpu), ("host", limits.host_bytes))
    for resource, limit in each:
        if limit is not None:
            risks = [risk_in(estimate, resource, limit) for estimate in estimates]
            yield resource, [risk for risk in risks if risk is not None]


def _decided(run: Run, estimates: Sequence[Estimate]) -> frozenset[str]:
    """The resources of which a run rather dies by one of these estimates and not by another."""
    return frozenset(
        resource
        for resource, risks in _risks(run, estimates)
        if len({risk >= EVEN for risk in risks}) > 1
    )


def _from(run: Run, risk: float) -> frozenset[str]:
    """The resources that a run dies of with at least this risk. A name is no proof of which model it is, so
    that nothing is more certain than that."""
    found = _risks(run, (run.estimate,))
    return frozenset(resource for resource, risks in found if risks and risks[0] >= risk)


def _eased(run: Run, estimates: Sequence[Estimate]) -> frozenset[str]:
    """The resources of which there is something to say as the run is taken, and nothing by another of these
    estimates."""
    return frozenset(
        resource
        for resource, risks in _risks(run, estimates)
        if risks and risks[0] >= TIGHT and min(risks) < TIGHT
    )


def _estimates_together(run: Run, trials: Iterable[_Trials]) -> tuple[Estimate, ...]:
    """The estimates with several fields at once at what weighs least, and at what weighs most."""
    trials = tuple(trials)
    if len(trials) < 2:
        return ()
    lightest: dict[Any, Any] = {}
    heaviest: dict[Any, Any] = {}
    for each in trials:
        lightest |= each.extreme(min)
        heaviest |= each.extreme(max)
    return tuple(_estimate(run, change) for change in ({}, lightest, heaviest))
