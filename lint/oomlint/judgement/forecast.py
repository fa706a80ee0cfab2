"""What one reading of a run needs, how likely it dies of it, and the word for that.

A run is described by config files or by a plan. :class:`oomlint.judgement.judgement.Judgement` has the
forecast of a run as it is written and, where a key is misspelt, that of what its author means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from oomlint.dialects.ending import Ending, When
from oomlint.judgement.cards import cards_that_hold
from oomlint.judgement.doubts import Doubt, doubts
from oomlint.judgement.endings import endings_of
from oomlint.judgement.evidence import Evidence, evidence_of, is_open, weakest_of_claims
from oomlint.judgement.measured import measured_words
from oomlint.judgement.peak import (
    counts_as_run,
    is_up_to_code,
    is_up_to_data,
    risk_of,
    unfounded,
)
from oomlint.judgement.releases import over_releases
from oomlint.judgement.risk_model import risk_in
from oomlint.judgement.severity import EVEN, LOST, TIGHT, Outcome, Verdict, verdict_at
from oomlint.plan import Plan
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f

if TYPE_CHECKING:
    from oomlint.hardware import Gpu, Hardware
    from oomlint.memory import Assumption, Estimate
    from oomlint.runs.run import Run


class Risk(Struct, frozen=True):
    """The probability that a run dies of memory; ``None`` where a limit or a need is unknown."""

    gpu: float | None
    host: float | None

    @property
    def any(self) -> float | None:
        """Of either, the larger: both are unsure of the same run, so that they do not add up. Of a GPU that
        nobody knows there is none, unless the run rather dies of the host whatever the GPU is."""
        host = self.host or 0.0
        if self.gpu is None:
            return host if host >= EVEN else None
        return max(self.gpu, host)

    @property
    def verdict(self) -> Verdict:
        return "unknown" if self.any is None else verdict_at(self.any)

    @property
    def is_lost(self) -> bool:
        """Whether the run rather dies than not."""
        return self.any is not None and self.any >= EVEN

    @classmethod
    def of(cls, run: Run) -> Risk:
        """Of a run with all that is open about it."""
        return cls(risk_of(run, "gpu"), risk_of(run, "host"))

    @classmethod
    def by(cls, estimate: Estimate, gpu_bytes: int | None, host_bytes: int | None) -> Risk:
        """Of a run that needs what is estimated, with limits in bytes."""
        return cls(
            None if gpu_bytes is None else risk_in(estimate, "gpu", gpu_bytes),
            None if host_bytes is None else risk_in(estimate, "host", host_bytes),
        )


class Bounded(Struct, frozen=True):
    """A prediction whose bounds hold for every release that a library which nobody pins may have, and what it takes for
    true, those releases included. One that is known answers for itself."""

    estimate: Estimate
    assumptions: tuple[Assumption, ...]

    def __call__(self) -> Bounded:
        return self


class NotKept(Struct, frozen=True):
    """In the place of bounds that a forecast is kept without, since nothing it is kept for shows them."""

    def __call__(self) -> Bounded:
        raise LookupError("the bounds of this forecast were not kept")


class Forecast(Struct, frozen=True, dict=True):
    """One reading of a run with its prediction; bytes are ``None`` inside where nothing is known."""

    name: str
    framework: str | None
    files: tuple[str, ...]
    plan: Plan
    hardware: Hardware | None
    estimate: Estimate
    """With the releases that it is computed with, its bounds too: see ``bounded``."""
    ask: Callable[[], Bounded]
    """Works out how far it may lie off with others."""
    risk: Risk | None
    """``None`` where it hangs on something that was not read whether the run fits, or the run is none of this machine's
    or of the project's."""
    host_limit: int | None
    """RAM of a node in bytes, ``None`` if nobody says."""
    evidence: Evidence | None = None
    """How well that is known on which it rests; ``None`` of a plan that was given as such."""
    doubts: tuple[Doubt, ...] = ()
    """What the run may be besides, where its hardware is known."""
    because: tuple[str, ...] = ()
    """How misspelt keys were read, for the reader to know; empty of a run as it is written."""
    because_of: str = ""
    """``docs/tuning.rst:164 lists it on 4xH800-80GB``, where the project says that the run ran, and that counts."""
    is_fragment: bool = False
    """Whether it is a part (a lone DeepSpeed JSON, say) that no run was found for."""
    unfounded: str = ""
    """Why what it would need says nothing of this project on this machine, in words, where that is more than there is."""
    is_up_to_data: bool = False
    """Whether it rather lives with short samples, and no file says how long they are."""
    is_up_to_code: bool = False
    """Whether it rather lives with the least batches, and a program of the project's own makes them."""
    is_guessed: bool = False
    """Whether all that it would die of hangs on values that nobody says."""
    measured: str = ""
    """What was measured of the run, or of one like it, from which its prediction starts."""
    endings: tuple[Ending, ...] = ()
    """What is sure to end the run before its first step, in the order in which it gets there: all else is of the run once
    that is mended."""

    @cached_property
    def bounded(self) -> Bounded:
        """Worked out when it is first shown, for it takes an estimate of each release."""
        return self.ask()

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        return self.bounded.assumptions

    def kept(self, *, bounds: bool) -> Forecast:
        """The same without the run that its bounds would be asked of: with them, or without for those who show none."""
        return replace(self, ask=self.bounded if bounds else NotKept())

    @property
    def verdict(self) -> Verdict:
        """As sure as a finding on the run may be: what but some data need, or hangs on a guess, is no certainty."""
        found: Verdict = "unknown" if self.risk is None else self.risk.verdict
        is_hard = self.risk is not None and (self.risk.host or 0.0) >= LOST
        is_open = self.is_up_to_data or self.is_up_to_code
        is_soft = self.is_guessed or (is_open and not is_hard)
        return "tight" if found == "does_not_fit" and is_soft else found

    @property
    def is_starved(self) -> bool:
        """Whether it is the engine beside the training that ends the run, for lack of its share."""
        return bool(self.endings) and self.endings[0].when is When.ENGINE

    @property
    def outcome(self) -> Outcome:
        """What becomes of the run: that it ends comes before whether it would fit."""
        return "ends" if self.endings else self.verdict

    @property
    def cards(self) -> tuple[Gpu, ...]:
        """The common cards that hold the run, the smallest first: of one that may die of its own, larger ones alone;
        none where no need is known."""
        from oomlint.hardware import usable_bytes

        peak = self.estimate.gpu.peak_bytes
        if peak is None:
            return ()
        if self.hardware is None or not self.may_die_of("gpu"):
            return cards_that_hold(peak)
        return cards_that_hold(peak, beyond=usable_bytes(self.hardware.gpu))

    def may_die_of(self, resource: Literal["gpu", "host"]) -> bool:
        """Whether the run is too likely to die of a resource for nothing to be said."""
        if self.risk is None:
            return False
        risk = self.risk.gpu if resource == "gpu" else self.risk.host
        return risk is not None and verdict_at(risk) != "fits"

    @property
    def first_seen(self) -> Mapping[str, str | None]:
        """When each phase of GPU and host first gets as high as predicted."""
        from oomlint.memory.onset import first_seen

        return first_seen(self.plan, self.estimate)


def with_gpus(run: Run) -> tuple[Run, tuple[Assumption, ...]]:
    """The run to compute with: where the number of GPUs matters and nobody says it, one node
    of eight is assumed; and that assumption, if it was made."""
    from oomlint.dialects.machine.fields import USUAL_NODE
    from oomlint.memory import Assumption

    if run.placed is run:
        return run, ()
    why = "no file says how many GPUs there are; --gpus or --hardware does"
    return run.placed, (Assumption(f.parallel.gpus_per_node, USUAL_NODE, why),)


def forecast_of(
    run: Run, because: tuple[str, ...] = (), endings: tuple[Ending, ...] | None = None
) -> Forecast:
    """The forecast of a run as it is given, keys read as ``because`` says, with ``endings`` where these are those of
    another reading; where the number of GPUs matters and nobody says it, one
    node of eight is assumed and listed."""
    probe, assumed = with_gpus(run)
    whole = Risk.of(run)
    is_at_risk = whole.any is not None and whole.any >= TIGHT
    why = unfounded(run) if is_at_risk else ""
    return Forecast(
        name=run.name,
        framework=run.framework,
        files=run.files,
        plan=run.plan,
        hardware=run.hardware,
        estimate=probe.estimate,
        # Not of the very run, which remembers this: both would stay until the collector looks for them.
        ask=partial(_bounded, replace(probe, remembered={}), assumed),
        risk=None if why else _founded(run, whole),
        host_limit=run.limits.host_bytes,
        evidence=evidence_of(run),
        doubts=() if run.hardware is None else doubts(probe),
        because=because,
        because_of=counts_as_run(run),
        is_fragment=run.is_fragment,
        unfounded=why,
        is_up_to_data=is_at_risk and is_up_to_data(run),
        is_up_to_code=is_at_risk and is_up_to_code(run),
        is_guessed=_is_guessed(run, whole),
        measured=measured_words(run),
        endings=endings_of(run) if endings is None else endings,
    )


def _is_guessed(run: Run, whole: Risk) -> bool:
    """Whether everything that the run is lost to hangs on values that nobody says."""
    risks = {"gpu": whole.gpu or 0.0, "host": whole.host or 0.0}
    lost = [resource for resource, risk in risks.items() if risk >= LOST]
    levels = [weakest_of_claims(run.intended, resource)[0] for resource in lost]
    return bool(levels) and all(level is Level.ASSUMED for level in levels)


def _founded(run: Run, whole: Risk) -> Risk | None:
    """The risk, as far as it rests on what was read: where the run is sure to die of one resource, what is not known of
    the other saves nothing; ``None`` where that which was not read decides."""
    gpu_is_open, host_is_open = is_open(run, "gpu"), is_open(run, "host")
    if not (gpu_is_open or host_is_open):
        return whole
    kept = Risk(None if gpu_is_open else whole.gpu, None if host_is_open else whole.host)
    return kept if kept.any is not None and kept.any >= LOST else None


def _bounded(run: Run, assumed: tuple[Assumption, ...]) -> Bounded:
    found, differing = over_releases(run)
    return Bounded(found, (*assumed, *found.assumptions, *differing))


def of_plan(plan: Plan, hardware: Hardware | None = None) -> Forecast:
    """The forecast of a plan; ``hardware``, if given, replaces the device that the plan names."""
    from oomlint.hardware import usable_bytes
    from oomlint.memory import estimate
    from oomlint.memory.limits import gpu_limits

    machine = _machine(plan, hardware)
    if machine is not None:
        counts = (machine.nodes, machine.gpus_per_node)
        if counts != (plan.parallel.nodes, plan.parallel.gpus_per_node):
            names = (f.parallel.nodes, f.parallel.gpus_per_node)
            plan = plan.with_values(dict(zip(names, counts, strict=True)))
    ram = machine.host_bytes_per_node if machine else None
    if ram is None and plan.host.ram_gib is not None:
        ram = int(plan.host.ram_gib * 2**30)
    found = estimate(plan, gpu_limits(machine, plan) if machine else None)
    usable = usable_bytes(machine.gpu) if machine else None
    return Forecast(
        name=plan.name or "plan",
        framework=plan.framework,
        files=(),
        plan=plan,
        hardware=machine,
        estimate=found,
        ask=Bounded(found, found.assumptions),
        risk=Risk.by(found, usable, ram),
        host_limit=ram,
    )


def _machine(plan: Plan, given: Hardware | None) -> Hardware | None:
    """The hardware that a plan describes; its own rank counts win over the given ones."""
    from oomlint.hardware import Hardware, custom_gpu, find_gpu

    nodes, gpus = plan.parallel.nodes, plan.parallel.gpus_per_node
    if nodes is None and gpus is None and plan.parallel.world is not None:
        nodes, gpus = 1, plan.parallel.world
    if given is not None:
        return replace(
            given,
            nodes=nodes or given.nodes,
            gpus_per_node=gpus or given.gpus_per_node,
            host_bytes_per_node=given.host_bytes_per_node or _ram(plan),
        )
    device = plan.device
    if device.mem_bytes is not None:
        gpu = custom_gpu(device.mem_bytes)
        if device.type is not None:
            named = find_gpu(device.type)
            gpu = replace(
                named,
                total_bytes=device.mem_bytes,
                total_low=device.mem_bytes,
                total_high=device.mem_bytes,
                driver_total_mib=None,
            )
    elif device.type is not None:
        gpu = find_gpu(device.type)
    else:
        return None
    nodes, gpus = nodes or 1, gpus or 1
    counts = f"{nodes}x{gpus}x" if nodes > 1 else f"{gpus}x" if gpus > 1 else ""
    return Hardware(
        name=counts + gpu.name,
        nodes=nodes,
        gpus_per_node=gpus,
        gpu=gpu,
        host_bytes_per_node=_ram(plan),
        source=f"the plan; {gpu.source}",
    )


def _ram(plan: Plan) -> int | None:
    return None if plan.host.ram_gib is None else int(plan.host.ram_gib * 2**30)
