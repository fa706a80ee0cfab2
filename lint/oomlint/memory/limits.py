"""From the hardware catalogue to what the arithmetic needs of one GPU."""

from __future__ import annotations

from oomlint.hardware import Hardware, nccl_bytes, usable_bytes, usable_high, usable_low
from oomlint.memory.result import GpuLimits
from oomlint.plan import Plan

_MIB = 2**20


def gpu_limits(hardware: Hardware, plan: Plan) -> GpuLimits:
    """The limits of one GPU of ``hardware`` under a plan's process groups; bytes."""
    gpu = hardware.gpu
    parallel = plan.parallel
    world = parallel.world or hardware.nodes * hardware.gpus_per_node
    degrees = (parallel.tp, parallel.pp, parallel.cp, parallel.ep, parallel.ulysses)
    groups = 1 + sum((degree or 1) > 1 for degree in degrees)
    nccl = nccl_bytes(gpu, world, groups)
    context = gpu.context_mib
    return GpuLimits(
        name=gpu.name,
        usable=usable_bytes(gpu),
        usable_low=usable_low(gpu),
        usable_high=usable_high(gpu),
        context=context.typical * _MIB,
        context_low=context.low * _MIB,
        context_high=context.high * _MIB,
        nccl=nccl.typical,
        nccl_low=nccl.low,
        nccl_high=nccl.high,
        compute_capability=_capability(gpu.compute_capability),
        cublas_workspace=gpu.cublas_workspace_bytes,
    )


def _capability(text: str | None) -> tuple[int, int] | None:
    major, _, minor = (text or "").partition(".")
    return (int(major), int(minor or 0)) if major.isdigit() else None
