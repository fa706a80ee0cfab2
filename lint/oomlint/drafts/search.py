"""Which draft fits its hardware, and which hardware a draft would fit."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from oomlint.dialects.skeleton import Method, Shard
from oomlint.drafts.draft import Draft, draft
from oomlint.drafts.wanted import Wanted
from oomlint.errors import CannotEdit, UsageError
from oomlint.fix.planned import fix_of, no_more_refused
from oomlint.hardware import usable_bytes
from oomlint.judgement import judgement_of
from oomlint.judgement.planner import HardwareOption, hardware_options, seconds_of, ways_to_fit
from oomlint.linting.engine import refusals
from oomlint.memory import Assumption
from oomlint.plan.fields import f
from oomlint.plugins import rules_in_force

# The lighter a sharing, the less ranks wait for one another; FSDP is ZeRO-3's equal, and stands in for it
# where a framework has no DeepSpeed.
_LIGHTEST_FIRST: tuple[Shard, ...] = ("none", "zero2", "zero3", "fsdp")
# What is trained where nobody says: the better of those that fit.
_METHODS: tuple[Method, ...] = ("lora", "qlora")


class FittingDraft(Struct, frozen=True):
    """A draft that fits, what was chosen and why, and what had to be changed for it."""

    draft: Draft
    assumed: tuple[Assumption, ...]
    changes: tuple[str, ...] = ()


class RankLayout(Struct, frozen=True):
    """Hardware on which a wish fits, and how the ranks share the model there."""

    option: HardwareOption
    shard: Shard


def lightest(wanted: Wanted) -> FittingDraft:
    """The wish on its hardware, shared among the ranks no further than it takes to fit; of a wish that never
    fits, shared as far as it goes.

    Raises:
        UsageError: the framework cannot say it.
    """
    wanted.check()
    whole, assumed = wanted.completed()
    last: Draft | None = None
    reason: UsageError | None = None
    for shard in _shards(whole):
        try:
            made = draft(whole, shard)
        except UsageError as error:
            reason = error
            continue
        if last is None or _peak(made) < _peak(last):
            last = made
        if judgement_of(made.run).verdict == "fits":
            break
    if last is None:
        raise reason or UsageError("there is no way to share this model")
    return FittingDraft(last, (*assumed, *_shared(wanted, last)))


def fitting(wanted: Wanted) -> FittingDraft | None:
    """The wish, with what it leaves open chosen so that it fits its hardware; ``None`` where nothing does.

    Of ways to share the model, and of what the planner does besides without changing what is trained, the
    one by which a step takes least.

    Raises:
        UsageError: the framework cannot say it.
    """
    wanted.check()
    reason: UsageError | None = None
    for method in _METHODS if wanted.method is None else (wanted.method,):
        own = replace(wanted, method=method)
        whole, assumed = own.completed()
        if wanted.method is None:
            why = "the better of lora and qlora that fits"
            assumed = (Assumption(f.trainable.method, method, why), *assumed)
        found: list[FittingDraft] = []
        for shard in _shards(whole):
            try:
                made = draft(whole, shard)
            except UsageError as error:
                reason = error
                continue
            found += [
                replace(each, assumed=(*assumed, *_shared(wanted, each.draft)))
                for each in _made_to_fit(made, own)
            ]
        if found:
            return min(found, key=lambda each: (seconds_of(each.draft.run), len(each.changes)))
    if reason is not None:
        raise reason
    return None


def _made_to_fit(made: Draft, wanted: Wanted) -> Iterator[FittingDraft]:
    """The draft, if it fits, else with the cheapest safe way in it that leaves what the user says."""
    rules = rules_in_force().items
    if judgement_of(made.run).verdict == "fits":
        if not refusals(made.run, rules):
            yield FittingDraft(made, ())
        return
    ways = ways_to_fit(
        made.run,
        unsafe=False,
        takes=lambda move: wanted.fixed.isdisjoint(move.changes),
        accepts=no_more_refused(made.run, ()),
    )
    for way in ways:
        fix = fix_of(way)
        if way.verdict != "fits" or fix is None or not fix.edits:
            continue
        try:
            changed = made.changed(fix)
        except CannotEdit:
            continue
        if judgement_of(changed.run).verdict == "fits" and not refusals(changed.run, rules):
            yield FittingDraft(changed, (), way.titles)
            return


def places(found: FittingDraft) -> list[RankLayout]:
    """On which of the common cards, and how many of them, a draft fits: of each the smallest number, those
    with the least memory in all first. Where nobody says how ranks share the model, any way is looked at."""
    made = found.draft
    best: dict[str, RankLayout] = {}
    for shard in _LIGHTEST_FIRST if _is_open(found) else (made.shard,):
        for option in _options(made, shard):
            known = best.get(option.hardware.gpu.name)
            if known is None or _size(option) < _size(known.option):
                best[option.hardware.gpu.name] = RankLayout(option, shard)
    return sorted(best.values(), key=lambda place: _size(place.option))


def _options(made: Draft, shard: Shard) -> list[HardwareOption]:
    """The hardware for one way to share; a model that is not shared needs no second card."""
    wanted = replace(made.wanted, hardware=None, values=_without_ranks(made.wanted))
    try:
        run = draft(wanted, shard).run
    except UsageError:
        return []
    found = hardware_options(run)
    if shard == "none":
        return [option for option in found if option.hardware.gpus_per_node == 1]
    return [option for option in found if option.hardware.gpus_per_node > 1]


def _without_ranks(wanted: Wanted) -> dict[object, object]:
    counts = (f.parallel.nodes, f.parallel.gpus_per_node)
    return {name: value for name, value in wanted.values.items() if name not in counts}


def _is_open(found: FittingDraft) -> bool:
    return found.draft.wanted.shard is None


def _size(option: HardwareOption) -> tuple[int, int]:
    hardware = option.hardware
    ranks = hardware.nodes * hardware.gpus_per_node
    return ranks * usable_bytes(hardware.gpu), ranks


def _shards(wanted: Wanted) -> tuple[Shard, ...]:
    if wanted.shard is not None:
        return (wanted.shard,)
    return _LIGHTEST_FIRST if (wanted.ranks or 1) > 1 else ("none",)


def _shared(wanted: Wanted, made: Draft) -> tuple[Assumption, ...]:
    if wanted.shard is not None or (made.wanted.ranks or 1) == 1:
        return ()
    why = "of the ways to share the model that fit, a step takes least"
    if judgement_of(made.run).verdict != "fits":
        why = "what needs least of the ways to share the model"
    parallel = made.run.plan.parallel
    shard = f"zero{parallel.zero.stage}" if parallel.backend == "zero" else made.shard
    return (Assumption(f.parallel.backend, shard, why),)


def _peak(made: Draft) -> int:
    return made.run.estimate.gpu.peak_bytes or 0
