"""One plan for a run in trouble, in place of what each rule would do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial

from msgspec import Struct
from msgspec.structs import replace

from oomlint.dialects.machine.fields import launch
from oomlint.errors import CannotEdit
from oomlint.fix.agreement import with_agreement
from oomlint.fix.assurance import leaving_risk
from oomlint.fix.authors import unless_authors
from oomlint.fix.edits import Fix, can_write, make_fix
from oomlint.fix.needless import unknown_of_batch, unless_needless, unless_stopped
from oomlint.judgement import (
    cards_missing,
    depends_on_data,
    exceeds,
    judgement_of,
    settled,
    unread_program,
)
from oomlint.judgement.planner import Accepts, Move, Way, ways_to_fit
from oomlint.linting.engine import Diagnosis, Options, Report, refusals
from oomlint.linting.rule import (
    Applicability,
    Proposal,
    RemoveKey,
    RenameKey,
    SetFields,
    Wish,
)
from oomlint.plan.fields import f
from oomlint.plugins import rules_in_force
from oomlint.runs.run import Run

# What a run is about, which nobody but its author decides.
_DECISIONS = frozenset((f.seq.max_len, f.trainable.method, f.model.vision.max_pixels))

# So is which optimizer trains: one of another kind takes a learning rate of its own; the same in 8 bits does not.
_OTHER_OPTIMIZERS = ("adafactor", "lion", "sgd", "muon", "galore", "apollo", "lomo")

# How many ranks start, of a node or of all.
_RANKS = frozenset((f.parallel.gpus_per_node, launch.total_processes))


class _Plan(Struct, frozen=True, eq=False):
    """``rules`` explain what it changes."""

    fix: Fix
    rules: frozenset[str]


def with_plans(
    report: Report,
    options: Options,
    level: Applicability,
    *,
    lowest: Applicability = Applicability.UNSAFE,
) -> list[Diagnosis]:
    """The diagnoses of :func:`planned_report`."""
    return list(planned_report(report, options, level, lowest=lowest).diagnoses)


def planned_report(
    report: Report,
    options: Options,
    level: Applicability,
    *,
    lowest: Applicability = Applicability.UNSAFE,
) -> Report:
    """The report's findings with the fixes of which ``--fix`` begins with those of the ``level``: the one place that
    decides what is written, whoever shows or counts it.

    Of each run in trouble one carries the cheapest plan as its fix, and what others that speak of its memory would
    do is only shown. A plan is looked for when somebody asks for the fix of one of these. Of what is left each is
    decided by itself.

    Runs for which there is no plan keep what their rules propose, and for those that need one only
    with some data there is none. Where no plan is of the ``level`` that is to be applied, one down to
    ``lowest`` is carried all the same, for people to see, unless what its rule proposes is of the level, and what others
    would do stays.
    """
    runs = {run.name: run for run in report.runs if judgement_of(run).wants_way}
    troubles = {
        name: _Trouble(run, tuple(about), options, level, lowest)
        for name, run in runs.items()
        if (about := [d for d in report.diagnoses if _is_about(d, name)])
    }
    planned = [_planned(diagnosis, troubles) for diagnosis in report.diagnoses]
    agreed, agreement = with_agreement(planned, report.runs, options.elsewhere.wanted[1])
    diagnoses = tuple(each_decided(agreed, options, level, lowest=lowest))
    return replace(report, diagnoses=diagnoses, agreements=(*report.agreements, agreement))


def each_decided(
    found: Sequence[Diagnosis],
    options: Options,
    level: Applicability,
    *,
    lowest: Applicability = Applicability.UNSAFE,
) -> list[Diagnosis]:
    """Findings whose fix is only shown where nobody needs it, its author has to choose it, or something else has to come
    first; each for itself, whatever plan there may be."""
    needed = map(unless_needless, found)
    fitted = (_unless_lost(diagnosis, options, lowest) for diagnosis in needed)
    return unless_stopped([unless_authors(diagnosis) for diagnosis in fitted], level)


class _Trouble(Struct, frozen=True, eq=False, dict=True):
    """A run in trouble, and the findings ``about`` its need, of which one carries its plan."""

    run: Run
    about: tuple[Diagnosis, ...]
    options: Options
    level: Applicability
    lowest: Applicability

    @cached_property
    def plan(self) -> _Plan | None:
        return _plan(self.run, self.options, self.lowest)

    @cached_property
    def carrier(self) -> Diagnosis:
        """The finding that leads: the run's headline (of the need most at risk), else of the worst ones that
        which explains the plan, or the first."""
        headlines = [d for d in self.about if d.rule.is_headline]
        if headlines:
            return max(headlines, key=_risk)
        worst = max(d.severity for d in self.about)
        leading = [d for d in self.about if d.severity == worst]
        rules = self.plan.rules if self.plan is not None else frozenset[str]()
        explaining = (d for d in leading if d.rule.name in rules)
        return next(explaining, leading[0])

    def fix_of(self, diagnosis: Diagnosis) -> Fix | None:
        """The fix of one of the findings: the plan, or what its rule proposes, which is only shown beside a plan."""
        plan, fix = self.plan, diagnosis.fix
        if plan is None:
            return fix
        is_taken = plan.fix.applicability >= self.level
        is_idle = fix is None or fix.applicability < self.level
        if diagnosis is self.carrier and (is_taken or is_idle):
            is_host = diagnosis.finding.resource == "host"
            after = plan.fix.host_bytes_after if is_host else plan.fix.gpu_bytes_after
            return replace(plan.fix, predicted_bytes_after=after)
        if fix is None or fix.applicability < self.level:
            return fix
        if not plan.fix.edits:
            return fix.declined("the cheapest way is another, which is shown")
        return fix.declined("--fix takes the cheapest way instead") if is_taken else fix


def _risk(headline: Diagnosis) -> float:
    run, resource = headline.run, headline.finding.resource
    peaks = judgement_of(run).peaks if run is not None else ()
    return next((peak.risk or 0.0 for peak in peaks if peak.resource == resource), 0.0)


def _planned(diagnosis: Diagnosis, troubles: Mapping[str, _Trouble]) -> Diagnosis:
    run = diagnosis.run
    trouble = troubles.get(run.name) if run is not None and _is_about(diagnosis, run.name) else None
    if trouble is None:
        return diagnosis
    return replace(diagnosis, ask=partial(trouble.fix_of, diagnosis), is_planned=True)


def _is_about(diagnosis: Diagnosis, name: str) -> bool:
    run, finding = diagnosis.run, diagnosis.finding
    return run is not None and run.name == name and (finding.is_of_need or finding.starves)


def _unless_lost(diagnosis: Diagnosis, options: Options, lowest: Applicability) -> Diagnosis:
    """A finding whose fix fits a launch to fewer GPUs only where the run then lives on them, with a plan if need be:
    one that does not is written for another machine."""
    run = diagnosis.run
    if run is None or not cards_missing(run):
        return diagnosis
    return replace(diagnosis, ask=partial(_fitted_or_shown, diagnosis, run, options, lowest))


def _fitted_or_shown(
    diagnosis: Diagnosis, run: Run, options: Options, lowest: Applicability
) -> Fix | None:
    fix = diagnosis.fix
    if fix is None or fix.made is None or not fix.edits:
        return fix
    wishes = (wish for wish in fix.made.proposal.wishes if isinstance(wish, SetFields))
    changes = {field: value for wish in wishes for field, value in wish.values.items()}
    if not changes.keys() & _RANKS:
        return fix
    place = diagnosis.finding.location.path
    if diagnosis.others and any(edit.path != place for edit in fix.edits):
        return fix.declined(
            f"{diagnosis.others[0]} starts from {place} too, and its global batch would be another"
        )
    try:
        fitted = run.what_if(changes)
    except CannotEdit:
        return fix
    if _is_unpredicted(fitted):
        return fix.declined(
            "nothing is known of what it needs, nor whether it can run on so few GPUs"
        )
    if _rather_lives(fitted):
        return fix
    # No plan is written for a program that is not followed.
    plan = None if unread_program(fitted) else _plan(fitted, options, lowest)
    if plan is None or not plan.fix.edits:
        return fix.declined(
            "the run would rather die on so few GPUs: it is written for another machine"
        )
    # It is as safe as what makes it worth while.
    return replace(fix, applicability=min(fix.applicability, plan.fix.applicability))


def _rather_lives(run: Run) -> bool:
    """Whether a run rather lives than not; where that is left open, by what is predicted of it, if anything is."""
    if judgement_of(run).risk is not None:
        return not judgement_of(run).is_lost
    peak = settled(run).estimate.gpu.peak_bytes
    return peak is None or not exceeds(run, "gpu", peak)


def _is_unpredicted(run: Run) -> bool:
    return settled(run).estimate.gpu.peak_bytes is None


def _plan(run: Run, options: Options, lowest: Applicability) -> _Plan | None:
    """The cheapest way out for a run in trouble, an unsafe one only where no safe one is known; none where
    only some data need one."""
    if depends_on_data(run):
        return None
    for level in (Applicability.SAFE, Applicability.UNSAFE):
        if level < lowest:
            break
        # The runs of the last pass are those that are reported: what was looked for then is known.
        key = f"plan {level}"
        asked, plan = run.remembered.get(key, (None, None))
        if asked is not options:
            plan = _plan_at(run, options, level)
            run.remembered[key] = (options, plan)
        if plan is not None:
            found: _Plan = plan
            return found
    return None


def _plan_at(run: Run, options: Options, level: Applicability) -> _Plan | None:
    rules = {rule.name: rule for rule in rules_in_force(options.plugins).items}
    selection = options.selection
    host_is_short = any(
        peak.resource == "host" and peak.severity is not None for peak in judgement_of(run).peaks
    )

    def takes(move: Move) -> bool:
        # How long samples may be is not halved for anybody, nor are their images scaled down (boxes and points in answers
        # count their pixels), nor an adapter trained in place of all weights, which takes a learning rate of its own: `oomlint fit` shows both as ways among others.
        kind = str(move.changes.get(f.optimizer.kind, ""))
        if move.changes.keys() & _DECISIONS or kind.startswith(_OTHER_OPTIMIZERS):
            return False
        if not host_is_short and _takes_back(run, move):
            return False
        if unknown_of_batch(run, move.changes):
            return False
        return move.rule not in rules or selection.takes(rules[move.rule])

    def writable(move: Move) -> bool:
        return takes(move) and can_write(run, move.changes)

    accepts = no_more_refused(run, options.plugins)
    is_unsafe = level is Applicability.UNSAFE
    ways = ways_to_fit(run, unsafe=is_unsafe, takes=takes, accepts=accepts)
    plan = _first_written(ways, level)
    if plan is None and ways:
        refused = fix_of(ways[0])
        # What the files will not have said in them is left out, which is asked only where it matters.
        ways = ways_to_fit(run, unsafe=is_unsafe, takes=writable, accepts=accepts)
        plan = _first_written(ways, level)
        if plan is None and refused is not None and not refused.edits:
            # Who may keep what is trained as it is is shown that, and not given what changes it.
            plan = _Plan(refused, frozenset())
    return plan


def _takes_back(run: Run, move: Move) -> bool:
    """Whether a change takes states back onto the GPU that the files keep in host RAM: it makes a run quicker, and is
    no part of what makes one fit."""
    kept = (f.offload.optimizer, f.offload.params, f.parallel.fsdp.cpu_offload)
    return any(
        run.plan.get(field) not in (None, "none", False) and move.changes[field] in ("none", False)
        for field in kept
        if field in move.changes
    )


def _first_written(ways: Sequence[Way], level: Applicability) -> _Plan | None:
    """The cheapest way that can be written; where nothing but a comment is against a cheaper one, that is shown, since
    its author would rather write the comment anew than have another mechanism brought in. One that trains the same and is
    not known to be enough only where no other can be written."""
    unsure: _Plan | None = None
    for way in ways:
        fix = fix_of(way)
        if fix is None:
            continue
        plan = _Plan(fix, frozenset(move.rule for move in way.moves))
        if fix.is_told_otherwise or (fix.edits and fix.applicability >= level):
            return plan
        if fix.edits and way.is_safe:
            unsure = unsure or plan
    return unsure


def no_more_refused(run: Run, plugins: Sequence[str]) -> Accepts:
    """Whether a changed run is refused for nothing that ``run`` is not, as the rules see it, those
    of plug-ins in folders included."""
    rules = rules_in_force(plugins).items
    before = refusals(run, rules)
    return lambda changed: refusals(changed, rules) <= before


def fix_of(way: Way) -> Fix | None:
    """The edits that take a way; its title says what it gives up, and what it leaves to chance."""
    applicability = Applicability.SAFE if way.is_safe else Applicability.UNSAFE
    wishes: list[Wish] = [RenameKey(each.key, each.new_key) for each in way.renamed]
    wishes += [RemoveKey(each.key.block, each.key.entry) for each in way.dropped]
    if way.changes:
        wishes.append(SetFields(way.changes))
    title = "; ".join(way.titles)
    if way.gives_up:
        title += f", but {' and '.join(way.gives_up)}"
    fix = make_fix(way.base, Proposal(title, tuple(wishes), applicability), "gpu")
    return None if fix is None else leaving_risk(replace(fix, risk_after=way.risk))
