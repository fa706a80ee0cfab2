"""``oomlint.estimate``: a prediction from a script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from oomlint.plan import Plan
from oomlint.plan.fields import f

if TYPE_CHECKING:
    from oomlint.hardware import Hardware
    from oomlint.report.shapes import RunShape


def estimate(
    plan: Plan | Mapping[str, Any],
    hardware: Hardware | str | None = None,
    *,
    host_memory: int | str | None = None,
) -> RunShape:
    """Predict the memory of one run, as ``oomlint estimate --plan`` does.

    Args:
        plan: a canonical plan, as plain values (the JSON of ``schemas/plan.schema.json``) or
            as :class:`oomlint.Plan`, which is taken as it is.
        hardware: such as ``"8xA100-80GB"``; without it the plan's own ``device`` counts.
        host_memory: RAM of one node, bytes or text such as ``"512GiB"``.

    Returns:
        The run object of the JSON output: bytes as integers, ``None`` where unknown.

    Raises:
        UsageError: the plan has an unknown key or a wrong value, or the hardware is unknown.
    """
    from oomlint.given_plans import read_plan
    from oomlint.hardware import parse_bytes, parse_hardware
    from oomlint.judgement import judgement_of_plan
    from oomlint.report.runs import run_object

    canonical = plan if isinstance(plan, Plan) else read_plan(plan)
    machine = parse_hardware(hardware) if isinstance(hardware, str) else hardware
    if host_memory is not None:
        ram = parse_bytes(host_memory) if isinstance(host_memory, str) else host_memory
        canonical = canonical.with_values({f.host.ram_gib: ram / 2**30})
        if machine is not None:
            machine = replace(machine, host_bytes_per_node=ram)
    return run_object(judgement_of_plan(canonical, machine))
