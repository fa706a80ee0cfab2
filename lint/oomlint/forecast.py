"""A run and what it needs, however it was described: by config files or by a plan.

This is what ``oomlint estimate`` prints and ``check`` lists under ``runs``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from math import inf
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from oomlint.errors import UsageError
from oomlint.plan import Plan
from oomlint.plan.fields import f
from oomlint.plan.model import Section
from oomlint.plan.training import MODELS_BESIDE

if TYPE_CHECKING:
    from oomlint.evidence import Evidence
    from oomlint.hardware import Hardware
    from oomlint.memory import Assumption, Estimate, Verdict
    from oomlint.run import Run


class Forecast(Struct, frozen=True):
    """One run with its prediction; bytes are ``None`` inside where nothing is known."""

    name: str
    framework: str | None
    files: tuple[str, ...]
    plan: Plan
    hardware: Hardware | None
    estimate: Estimate
    verdict: Verdict
    assumptions: tuple[Assumption, ...]
    host_limit: int | None
    """RAM of a node in bytes, ``None`` if nobody says."""
    evidence: Evidence | None = None
    """How well that is known on which it rests; ``None`` of a plan that was given as such."""

    @property
    def first_seen(self) -> Mapping[str, str | None]:
        """When each phase of GPU and host first gets as high as predicted."""
        from oomlint.memory.onset import first_seen

        return first_seen(self.plan, self.estimate)


def with_gpus(run: Run) -> tuple[Run, tuple[Assumption, ...]]:
    """The run to compute with: where the number of GPUs matters and nobody says it, one node
    of eight is assumed; and that assumption, if it was made."""
    from oomlint.memory import Assumption
    from oomlint.run import USUAL_NODE

    if run.placed is run:
        return run, ()
    why = "no file says how many GPUs there are; --gpus or --hardware does"
    return run.placed, (Assumption(f.parallel.gpus_per_node, USUAL_NODE, why),)


def of_run(run: Run | Forecast) -> Forecast:
    """The forecast of a run as its files stand, if that is not what is given; where the number of
    GPUs matters and nobody says it, one node of eight is assumed and listed. Its bounds hold for
    every release that a library which nobody pins may have."""
    from oomlint.releases import over_releases

    if isinstance(run, Forecast):
        return run
    probe, assumed = with_gpus(run)
    found, differing = over_releases(probe)
    return _of(run, found, (*assumed, *found.assumptions, *differing))


def outline(run: Run | Forecast) -> Forecast:
    """The forecast as far as a line about the run needs it. What other releases would do, a fifth
    of the work of a lint, moves its bounds alone: nothing is held against those where the
    hardware is unknown."""
    if isinstance(run, Forecast) or run.hardware is not None:
        return of_run(run)
    probe, assumed = with_gpus(run)
    return _of(run, probe.estimate, (*assumed, *probe.estimate.assumptions))


def _of(run: Run, found: Estimate, assumptions: tuple[Assumption, ...]) -> Forecast:
    from oomlint.evidence import evidence_of

    return Forecast(
        name=run.name,
        framework=run.framework,
        files=run.files,
        plan=run.plan,
        hardware=run.hardware,
        estimate=found,
        verdict="unknown" if run.is_open else run.verdict_of(found),
        assumptions=assumptions,
        host_limit=run.limits.host_bytes,
        evidence=evidence_of(run),
    )


def of_plan(plan: Plan, hardware: Hardware | None = None) -> Forecast:
    """The forecast of a plan; ``hardware``, if given, replaces the device that the plan names."""
    from oomlint.hardware import usable_bytes
    from oomlint.memory import estimate, verdict
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
        verdict=verdict(found, usable, ram),
        assumptions=found.assumptions,
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


def read_plan(value: object, values: Mapping[str, Any] | None = None) -> Plan:
    """A canonical plan from plain values, its model's dimensions completed by the catalogue.

    ``values`` of dotted paths go over those of the plan.

    Raises:
        UsageError: a key is unknown, or a value has the wrong type or is negative.
    """
    if not isinstance(value, Mapping):
        raise UsageError("a plan is a JSON object")
    try:
        text = json.dumps((value, values))
    except (TypeError, ValueError, RecursionError):
        return _checked(value, values)
    known = _READ.get(text)
    if known is None:
        known = _checked(value, values)
        if len(_READ) >= _READ_LIMIT:
            _READ.clear()
        _READ[text] = known
    return known


# Scripts that search ask for the same plans again and again.
_READ: dict[str, Plan] = {}
_READ_LIMIT = 256


def _checked(value: Mapping[str, Any], values: Mapping[str, Any] | None) -> Plan:
    from oomlint.records import record

    plan = record(Plan, value)
    if values:
        plan = plan.with_values(values)
    for path, number in _numbers(plan, ""):
        if number < 0:
            raise UsageError(f"{path}: {number} is negative")
        if not number < inf:  # which NaN is not either
            raise UsageError(f"{path}: should be a finite number")
    return _with_models_beside(_with_catalogue(plan))


def _numbers(node: Section, prefix: str) -> Iterator[tuple[str, float]]:
    names = zip(node.__struct_fields__, node.__struct_encode_fields__, strict=True)
    for name, public in names:
        value, path = getattr(node, name), prefix + public
        if isinstance(value, Section):
            yield from _numbers(value, path + ".")
        elif isinstance(value, (int, float)):
            yield path, value


def _with_catalogue(plan: Plan) -> Plan:
    from oomlint.models import guess, lookup
    from oomlint.models.given import over

    if plan.model.id is None:
        return plan
    given = plan.model.dims
    facts = lookup(plan.model.id)
    if facts is None and given is None:
        facts = guess(plan.model.id)
    if facts is None:
        return plan
    dims = facts.dims if given is None else over(facts.dims, given)
    model = replace(
        plan.model,
        dims=dims,
        arch=plan.model.arch or dims.arch,
        ckpt_dtype=plan.model.ckpt_dtype or facts.ckpt_dtype,
        native_quant=plan.model.native_quant or facts.native_quant,
    )
    return replace(plan, model=model)


def _with_models_beside(plan: Plan) -> Plan:
    from oomlint.models import lookup

    known: dict[str, Any] = {}
    for leaf, model in MODELS_BESIDE.items():
        name = getattr(plan.objective, model)
        facts = lookup(name) if name and getattr(plan.objective, leaf) is None else None
        if facts is not None:
            known[leaf] = facts.dims.params_total
    return replace(plan, objective=replace(plan.objective, **known)) if known else plan
