"""What torch reserves for sharded steps whose streams were recorded: ``python -m benchmarks.allocator.streams FOLDER``.

``benchmarks/measure/streams.py`` records them. FSDP1 says of what it gathered that the forward pass works on it, so that it comes
free when the GPU is through: at once where the GPU keeps up with the CPU, else when the CPU waits for it (the limit on
gathers). The law of ``oomlint/memory/allocator.py`` stands beside both, and each stream's pool.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.accuracy import simulated
from benchmarks.allocator.caching import Block, CachingAllocator
from msgspec.structs import replace

from oomlint.memory import GpuLimits, estimate
from oomlint.models import lookup
from oomlint.plan.fields import f

_GIB = 2**30


def replayed(events: Sequence[Sequence[Any]], *, keeps_up: bool) -> CachingAllocator:
    """The allocator after all steps; each step ends with the GPU through, as one that reads its loss does."""
    allocator = CachingAllocator()
    held: dict[int, Block] = {}
    waiting: Counter[int] = Counter()
    recorded: dict[int, tuple[int, int]] = {}
    phase = ""
    for kind, number, *rest in events:
        if kind == "made":
            size, stream, now = rest
            if now == "forward" != phase:
                for each in list(allocator._events):
                    allocator.reach(each)
            phase = now
            held[number] = allocator.malloc(size, stream)
        elif kind == "freed" and number in held:
            block = held.pop(number)
            if keeps_up:
                block.users = set()
            waiting.update(block.users)
            allocator.free(block)
        elif kind == "used" and number in held:
            allocator.record_stream(held[number], rest[0])
        elif kind == "event":
            recorded[number] = (rest[0], waiting[rest[0]])
        elif kind == "waited" and number in recorded:
            stream, upto = recorded[number]
            _reach(allocator, stream, upto - (waiting[stream] - _waits(allocator, stream)))
    return allocator


def _waits(allocator: CachingAllocator, stream: int) -> int:
    return len(allocator._events.get(stream, ()))


def _reach(allocator: CachingAllocator, stream: int, count: int) -> None:
    """The GPU has done what ``stream`` was given until so many of its blocks were freed."""
    for _ in range(count):
        block = allocator._events[stream].popleft()
        block.pending -= 1
        if not block.pending:
            allocator._settle(block)


def predicted(case: Mapping[str, Any], layers: int) -> float:
    """GiB that the estimate says torch reserves."""
    facts = lookup("meta-llama/Meta-Llama-3-8B")
    assert facts is not None
    dims = facts.dims
    cut = ((dims.layers or 0) - layers) * (dims.params_layer_max or 0)
    dims = replace(dims, layers=layers, params_total=(dims.params_total or 0) - cut)
    row = {**case, "id": "", "backend": case["strategy"], "sharding_strategy": case.get("sharding")}
    row["prefetch"] = "pre" if case["strategy"] == "fsdp1" else None
    with patch.object(simulated, "dims_of", lambda _: dims):
        plan = simulated.sharded_plan(row)
    plan = plan.with_values({f.model.from_scratch: True, f.seq.pad: "max_len"})
    return (estimate(plan, GpuLimits(cublas_workspace=0)).gpu.reserved_bytes or 0) / _GIB


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.allocator.streams")
    parser.add_argument("folder", type=Path)
    print(f"{'run':<32}{'allocated':>10}{'keeps up':>10}{'behind':>8}{'law':>7}")
    for path in sorted(parser.parse_args().folder.glob("*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        swift, late = (replayed(found["events"], keeps_up=it) for it in (True, False))
        law = predicted(found["case"], found["layers"])
        print(
            f"{found['name']:<32}{swift.allocated_peak / _GIB:>10.1f}{swift.reserved_peak / _GIB:>10.1f}"
            f"{late.reserved_peak / _GIB:>8.1f}{law:>7.1f}"
        )


if __name__ == "__main__":
    main()
