"""What a prediction rests on: values that are assumed, or that somebody says and we did not read.

A field that nobody wrote down may matter or not. Each is tried at what else it plausibly is: what
that moves is its swing, and it *decides* where the run fits at one value and not at another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from oomlint.dialects.common.fields import shared
from oomlint.judgement import unread
from oomlint.judgement.contradicted import contradicted_by, contradiction
from oomlint.judgement.endings import declared
from oomlint.judgement.launch import hangs_on_launch
from oomlint.judgement.plausible import PLAUSIBLE, is_by_name, plausible_of
from oomlint.judgement.severity import EVEN, TIGHT
from oomlint.judgement.trials import (
    Trials,
    claimed_in,
    decided_from,
    decided_in,
    eased_in,
    elsewise,
    estimate_under,
    estimates_together,
    peaks_of,
    swing_of,
)
from oomlint.memory import Assumption, Estimate
from oomlint.memory.build import skeleton
from oomlint.plan import leaf_paths
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import enumerated

# What was not read is named up to so many.
_MOST_NAMED = 3

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
    """What was not read and decides whether a run fits, or is in trouble at all, in words; empty where nothing does. That
    the run ends before is said by itself."""
    deciding = (b for b in evidence.rests_on if b.level is Level.UNREAD and (b.decides or b.eases))
    words = tuple(dict.fromkeys(b.why for b in deciding if b.field not in unread.ENDS))
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
    found = _weakest([basis for basis in bases if resource in basis.decides | basis.eases])
    if found[0] < Level.ASSUMED and is_by_name(run):
        # A name tells a size, and of folders of a project's own it may tell something else (the run's number).
        return Level.ASSUMED, tuple(basis for basis in bases if basis.leaf == f.model.dims)
    return found


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
    for change in plausible_of(run, leaf):
        if change.get(leaf) == own:
            continue
        found = estimate_under(run, change)
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
    if field not in PLAUSIBLE:
        return
    seen: set[Any] = set()
    for change in ({field: base.plan.get(field)}, *plausible_of(base, field)):
        value = change[field]
        peak = estimate_under(base, change if seen else {}).gpu.peak_bytes
        if value is not None and value not in seen and peak is not None:
            yield value, peak
        seen.add(value)


def level_of(run: Run) -> Level:
    """How well the weakest of the fields is known that move the peak."""
    if run.is_measured:
        return Level.MEASURED
    levels = (run.level(field) for field in (*PLAUSIBLE, f.model.dims))
    return max(*levels, *_weak(run).values())


def _weak(run: Run) -> Mapping[Any, Level]:
    """The fields that move memory and are known no better than by an assumption."""
    known: Mapping[Any, Level] | None = run.remembered.get("weak")
    if known is None:
        known = run.remembered["weak"] = _weakly_known(run)
    return known


def _weakly_known(run: Run) -> dict[Any, Level]:
    weak = {
        leaf: level
        for leaf in PLAUSIBLE
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
    return {each.field: each for each in run.estimate.assumptions if each.field in PLAUSIBLE}


def _found(run: Run) -> Iterator[Basis]:
    found = (*_of_fields(run), *_of_commits(run), *_of_end(run), *_of_owner(run))
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
        decides, eases = decided_in(run, estimates), eased_in(run, estimates)
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
                swing_bytes=swing_of(estimates),
                otherwise=elsewise(found, peaks_of(run.estimate)),
                decides=decides,
                eases=eases,
            )


_ONCE_MENDED = "what the program is once it gets to a step"


def _of_end(run: Run) -> Iterator[Basis]:
    """That the program declares that it ends before its first step: what it would need counts only once that is mended,
    and nobody knows what it is then. Or that it is for other accelerators than those of the machine."""
    for field in declared(run):
        yield _in_vain(run, field, _ONCE_MENDED)
    cards = shared.other_cards
    if run.settings.get(cards) is not None and run.level(cards) <= Level.DEFAULT:
        yield _in_vain(run, cards, "what it needs on other cards")


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
        decides=decided_from(run.placed, EVEN),
        eases=decided_from(run.placed, TIGHT),
    )


def _of_owner(run: Run) -> Iterator[Basis]:
    """That the project says of the run what the prediction says is not so: something of it was not read."""
    said = contradicted_by(run)
    if said is None:
        return
    yield Basis(
        field=shared.said_to_run,
        leaf=shared.said_to_run,
        subject=shared.said_to_run,
        value=said.hardware.name,
        level=Level.UNREAD,
        why=contradiction(run),
        path=said.path,
        line=said.line,
        key="what it is read as, which the project contradicts,",
        swing_bytes=None,
        otherwise={},
        decides=decided_from(run.placed, EVEN) & {"gpu"},
        eases=decided_from(run.placed, TIGHT) & {"gpu"},
    )


def _of_fields(run: Run) -> Iterator[Basis]:
    weak = _weak(run)
    if not weak:
        return
    probe = run.placed
    trials = {leaf: Trials.of(probe, leaf) for leaf in weak}
    best: dict[Any, Basis] = {}
    for level in (Level.ASSUMED, Level.UNREAD):
        leaves = [leaf for leaf, known in weak.items() if known is level]
        together = estimates_together(probe, [trials[leaf] for leaf in leaves])
        for leaf in leaves:
            # What somebody says and nobody read has no likeliest value: no claim may rest on the one it is taken for. A
            # model's name tells its size all the same.
            is_claim = level is Level.UNREAD and leaf != f.model.dims
            decided = _decided_or_claimed if is_claim else decided_in
            swing = trials[leaf].swing
            estimates = trials[leaf].estimates
            # Of another model there is nothing to try.
            is_named = level is Level.ASSUMED and is_by_name(run)
            is_kin = leaf == f.model.dims and (is_named or leaf in run.parts.changed)
            for field in _lost_at(run, leaf):
                basis = replace(
                    _basis(run, field, leaf, level, swing),
                    otherwise=trials[leaf].otherwise,
                    decides=decided(probe, estimates)
                    | decided(probe, together)
                    | (decided_from(probe, EVEN) if is_kin else frozenset()),
                    eases=eased_in(probe, estimates)
                    | eased_in(probe, together)
                    | (decided_from(probe, TIGHT) if is_kin else frozenset()),
                )
                # What stands nowhere is told from others by what is said of it.
                place = (
                    basis.path,
                    basis.line,
                    basis.key if basis.path else (basis.subject, basis.why),
                )
                other = best.get(place, basis)
                wider = basis if (swing or 0) > (other.swing_bytes or 0) else other
                best[place] = replace(
                    wider, decides=basis.decides | other.decides, eases=basis.eases | other.eases
                )
    yield from best.values()


def _decided_or_claimed(run: Run, estimates: Sequence[Estimate]) -> frozenset[str]:
    return decided_in(run, estimates) | claimed_in(run, estimates)


def _lost_at(run: Run, leaf: Any) -> tuple[Any, ...]:
    """The fields where what moves memory by ``leaf`` was lost."""
    if leaf in run.parts.changed:
        return (leaf,)
    if leaf == f.model.dims:
        is_by_parts = run.level(leaf) is Level.ASSUMED and not is_by_name(run)
        return run.roots(leaf) if is_by_parts else (f.model.id,)
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
