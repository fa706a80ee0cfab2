"""Fixes that nobody would take as things are: they are shown, with the reason, and not applied."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from oomlint.dialects.machine.fields import scene
from oomlint.documents.base import DataDocument, PythonDocument
from oomlint.fix.assurance import as_sure_as_known
from oomlint.fix.edits import Fix
from oomlint.fix.starts import why_from_nowhere
from oomlint.fix.story import made_for_others, says_it_shards
from oomlint.judgement import (
    card_not_among,
    cards_missing,
    judgement_of,
    mesh_too_large,
    needs_all_samples_long,
    pool_too_large,
    starves_engine,
    unread_program,
)
from oomlint.judgement.evidence import rests_on
from oomlint.linting.diagnosis import Diagnosis
from oomlint.linting.rule import Applicability, Finding, Severity
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.run import Run


def why_unasked(run: Run, finding: Finding) -> str | None:
    """Why nobody may need what fixes a finding, if that is so."""
    if finding.severity < Severity.WARNING:
        if judgement_of(run).endings and finding.resource in ("gpu", "host"):
            return "the run ends before it needs that"
        if finding.resource in ("gpu", "host") and judgement_of(run).is_lost:
            return "it is not sure enough that the run needs it; `oomlint fit --apply 1` writes a way out"
        return "nothing here says that it is needed"
    if finding.rule.cost and finding.resource == "gpu" and needs_all_samples_long(run):
        return (
            "it costs something, and the run fits unless several samples of a batch are long; "
            "`oomlint fit --apply 1` writes what is enough for these"
        )
    return None


def unless_needless(diagnosis: Diagnosis) -> Diagnosis:
    """A finding whose fix is only shown where it changes the memory of a run to no end."""
    if not diagnosis.finding.is_of_need:
        return diagnosis
    return replace(diagnosis, ask=partial(_unless_needless, diagnosis))


def _unless_needless(diagnosis: Diagnosis) -> Fix | None:
    fix = diagnosis.fix
    if fix is None or not fix.edits or fix.applicability is Applicability.DISPLAY:
        return fix
    reason = _why_to_no_end(diagnosis, fix)
    if reason is not None:
        return fix.declined(reason)
    return fix if diagnosis.run is None else as_sure_as_known(diagnosis.run, fix)


def unless_stopped(found: Sequence[Diagnosis], level: Applicability) -> list[Diagnosis]:
    """The findings, where nothing is changed for the sake of a run that another error stops all the same, one which
    no fix mends: neither its memory nor what takes a decision. What is plainly wrong is mended on request."""
    errors: dict[str, list[Diagnosis]] = {}
    for each in found:
        for name in each.run_names if _stops(each) else ():
            errors.setdefault(name, []).append(each)
    return [
        replace(each, ask=partial(_unless_stopped, each, tuple(others), level))
        if (
            others := [o for o in errors.get(each.run.name, ()) if o is not each]
            if each.run
            else []
        )
        else each
        for each in found
    ]


def _stops(diagnosis: Diagnosis) -> bool:
    """Whether a finding says that the run ends before its first step, whatever training needs."""
    return diagnosis.finding.ends_the_run and not diagnosis.finding.starves


def _unless_stopped(
    diagnosis: Diagnosis, others: Sequence[Diagnosis], level: Applicability
) -> Fix | None:
    fix = diagnosis.fix
    if fix is None or not fix.edits or fix.applicability is Applicability.DISPLAY:
        return fix
    for other in others:
        mends = other.applicable
        if mends is not None and mends.applicability >= level:
            continue
        # What is said of memory is for its sake, though it names no need.
        if fix.applicability is Applicability.SAFE and diagnosis.finding.resource is None:
            return fix.unsure("the run stops at something else all the same")
        return fix.declined(
            f"the run stops at something else, which comes first: {other.finding.message}"
        )
    return fix


def _why_to_no_end(diagnosis: Diagnosis, fix: Fix) -> str | None:
    """Why nobody would take a change of a run's memory, if that is so.

    A need that is beyond its limit by itself (what a save gathers, say) asks for its fix whatever the run needs besides.
    """
    run = diagnosis.run
    if run is None:
        return None
    if elsewhere := _for_another_machine(run):
        return elsewhere
    if nowhere := why_from_nowhere(run):
        return nowhere
    if unread := unread_program(run):
        return f"{unread}, and which options it takes is not known"
    if otherwise := _launched_otherwise(run):
        return otherwise
    if _leaves_engine_starved(run, fix):
        return "the share of a card that the generation engine may take does not hold its weights, which comes first"
    if unknown := unknown_of_batch(run, fix.changes):
        return f"a smaller batch rests on what is not known: {unknown}"
    if not diagnosis.finding.overflows and not judgement_of(run).is_lost:
        return "nothing says that the run rather dies without it"
    if fix.risk_after is not None and fix.risk_after.is_lost:
        return "the run would rather die with it, too"
    return None


def unknown_of_batch(run: Run, changes: Iterable[Any]) -> str | None:
    """Why it is not known of what a batch is made that changes make smaller, its samples' length or its own size: what
    makes the states fit may leave room for it as it is.

    Of such fixes in read diffs none would be merged, of those under which something else was not read five of eight.
    """
    if str(f.batch.micro) not in map(str, changes):
        return None
    bases = (b for b in rests_on(run) if b.leaf in _OF_A_BATCH and b.level >= Level.ASSUMED)
    return next((basis.why for basis in bases), None)


_OF_A_BATCH = (f.seq.max_len, f.batch.micro)


def _leaves_engine_starved(run: Run, fix: Fix) -> bool:
    """Whether a generation engine cannot start, neither as things are nor after the fix."""
    card, plan = run.limits.gpu_bytes, run.intended.plan
    if not starves_engine(plan, card):
        return False
    return starves_engine(plan.with_values(fix.changes), card)


def _for_another_machine(run: Run) -> str | None:
    """Why the named machine is not the one that a run is written for, if files say so."""
    if cards_missing(run):
        return "it starts more processes than there are GPUs, which comes first"
    if mesh := mesh_too_large(run):
        return f"its degrees of parallelism come to {mesh} processes, more than there are GPUs, which comes first"
    if (missing := card_not_among(run)) is not None:
        return f"CUDA_VISIBLE_DEVICES names card {missing}, which the machine does not have"
    if _asks_for_more(run):
        return "the job asks for more GPUs than there are, which comes first"
    root, hardware = run.parts.root, run.parts.hardware
    if root is None or hardware is None:
        return None
    if run.plan.precision.fp8_train not in (None, "none") and not hardware.gpu.fp8:
        return f"it computes in FP8, for which {hardware.gpu.name} has nothing"
    texts = {claim.path: claim.document.source.text for claim in run.claims}
    told = "\n".join({**texts, root.path: root.document.source.text}.values())
    other = made_for_others(told, hardware.gpu)
    return other and f"it is written for {other}, with memory of another size"


def _asks_for_more(run: Run) -> bool:
    """Whether a job, or Ray for its groups and engines, waits for more GPUs than a node of the named machine has."""
    asked, hardware = run.settings.get(scene.gpus_per_node), run.parts.hardware
    return pool_too_large(run) is not None or (
        asked is not None and hardware is not None and (asked.value or 0) > hardware.gpus_per_node
    )


def _launched_otherwise(run: Run) -> str | None:
    """Why what starts a run, which is not here, may do more with its model than its files do."""
    if _launch_is_elsewhere(run):
        return "no file says how it is started, and what starts it may shard the model"
    if _tells_of_another_launch(run):
        return "its comments tell of a launch under DeepSpeed or FSDP, whose config is not here"
    return None


def _launch_is_elsewhere(run: Run) -> bool:
    """Whether a run is a file of arguments that nothing here is seen to start, for a script whose launcher, with a
    config of its own, decides how the model is spread: a change reckoned for one process says nothing of it."""
    return (
        run.dialect.launcher_may_shard
        and bool(run.dialect.config_parsers)
        and run.parts.root is not None
        and isinstance(run.parts.root.document, DataDocument)
        and (run.is_started_by_guess or not any(claim.is_launched for claim in run.claims))
        and run.plan.parallel.backend in _WHOLE
    )


def _tells_of_another_launch(run: Run) -> bool:
    """Whether a script that nothing here starts says itself that a launcher shards its model."""
    root = run.parts.root
    return (
        root is not None
        and isinstance(root.document, PythonDocument)
        and not any(claim.is_launched for claim in run.claims)
        and run.plan.parallel.backend in _WHOLE
        and says_it_shards(root.document.source.text)
    )


# Of what keeps the model whole on each card, or on the cards of one process.
_WHOLE = (None, "none", "ddp", "dp", "device_map_pp")
