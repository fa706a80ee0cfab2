"""From the hardware catalogue to what the arithmetic needs of one GPU."""

from __future__ import annotations

from oomlint.hardware import Hardware, nccl_bytes, usable_bytes
from oomlint.memory.result import GpuLimits
from oomlint.plan import Plan

_MIB = 2**20


def gpu_limits(hardware: Hardware, plan: Plan) -> GpuLimits:
    """The limits of one GPU of ``hardware`` under a plan's process groups; bytes."""
    gpu = hardware.gpu
    parallel = plan.parallel
    world = parallel.world or hardware.world
    degrees = (parallel.tp, parallel.pp, parallel.cp, parallel.ep, parallel.ulysses)
    groups = 1 + sum((degree or 1) > 1 for degree in degrees)
    nccl = nccl_bytes(gpu, world, groups)
    context = gpu.context_mib
    return GpuLimits(
        usable=usable_bytes(gpu),
        context=context.typical * _MIB,
        context_high=context.high * _MIB,
        nccl=nccl.typical,
        nccl_high=nccl.high,
        cublas_workspace=gpu.cublas_workspace_bytes,
    )
