"""What torch reserves for real training steps, beside the prediction: ``python -m benchmarks.allocator``.

Every recorded run is replayed at single lengths, and with samples of 3,000 tokens in the mean (deviation
3,000) that are cut at a limit, thirty steps, for three draws. The law of ``oomlint/memory/allocator.py`` stands beside what the
replay reserves. ``--cut`` shows how the pile of varied lengths depends on where samples are cut, ``--full`` with how
much memory a run still lives, when a full card has given back all that it can.
"""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.accuracy.simulated import single_plan
from benchmarks.allocator.caching import Settings
from benchmarks.allocator.steps import drawn, names, recorded, replayed, survived
from msgspec.structs import replace

from oomlint.memory import GpuLimits, estimate
from oomlint.models import lookup
from oomlint.plan.fields import Field, f

_GIB = 2**30
_LENGTHS = (1024, 4096, 8192)
_MEAN, _DEVIATION, _LIMIT, _STEPS = 3000, 3000, 8192, 30
# The dimensions of the recorded models by their names in the catalogue.
_MODELS = {
    "llama-2-7b": "meta-llama/Llama-2-7b-hf",
    "llama-3-8b": "meta-llama/Meta-Llama-3-8B",
    "qwen2.5-7b": "Qwen/Qwen2.5-7B",
}


def predicted(name: str, length: int, *, one_length: bool, expandable: bool = False) -> float:
    """GiB that the estimate says torch reserves of a recorded run."""
    case = recorded(name).case
    facts = lookup(_MODELS[case["model"]])
    assert facts is not None
    dims = facts.dims
    if case.get("layers"):
        cut = (dims.layers or 0) - case["layers"]
        left = (dims.params_total or 0) - cut * (dims.params_layer_max or 0)
        dims = replace(dims, layers=case["layers"], params_total=left)
    values: dict[Field[Any], object] = {
        f.model.from_scratch: True,
        f.env.expandable_segments: expandable,
    }
    if one_length:
        values[f.seq.pad] = "max_len"
    plan = single_plan({**case, "id": name, "seq_len": length}, dims)
    gpu = estimate(plan.with_values(values), GpuLimits(cublas_workspace=0)).gpu
    return (gpu.reserved_bytes or 0) / _GIB


def _row(name: str, what: str, lengths: list[list[int]], law: float, settings: Settings) -> None:
    found = [replayed(name, some, settings) for some in lengths]
    allocated = max(allocator.allocated_peak for allocator, _ in found) / _GIB
    stays = found[0][1] / _GIB
    reserved = sorted(allocator.reserved_peak / _GIB for allocator, _ in found)
    shown = f"{reserved[0]:.1f}" if len(reserved) == 1 else f"{reserved[0]:.1f}-{reserved[-1]:.1f}"
    print(f"{name:<34}{what:<22}{stays:>7.1f}{allocated:>11.1f}{shown:>14}{law:>8.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.allocator", description=__doc__)
    parser.add_argument("--cut", action="store_true")
    parser.add_argument("--full", action="store_true")
    given = parser.parse_args()
    if given.cut or given.full:
        _cut() if given.cut else _full()
        return
    print(f"{'run':<34}{'tokens':<22}{'stays':>7}{'allocated':>11}{'reserved':>14}{'law':>8}")
    for name in names():
        for length in _LENGTHS:
            law = predicted(name, length, one_length=True)
            _row(name, f"{length:,}", [[length] * 3], law, Settings())
        law = predicted(name, _LENGTHS[-1], one_length=True, expandable=True)
        _row(
            name,
            f"{_LENGTHS[-1]:,}, expandable",
            [[_LENGTHS[-1]] * 3],
            law,
            Settings(expandable=True),
        )
        draws = [drawn(_MEAN, _DEVIATION, _LIMIT, _STEPS, seed) for seed in range(3)]
        law = predicted(name, _LIMIT, one_length=False)
        _row(name, f"up to {_LIMIT:,}", draws, law, Settings())


def _full() -> None:
    """The least that a run lives with, beside what it allocates."""
    print(f"{'run':<34}{'tokens':>13}{'allocated':>11}{'lives with':>12}{'more':>7}")
    for name in names():
        draws = {f"{length:,}": [length] * 3 for length in _LENGTHS}
        draws[f"up to {_LIMIT:,}"] = drawn(_MEAN, _DEVIATION, _LIMIT, 12, 0)
        for what, lengths in draws.items():
            allocated = replayed(name, lengths)[0].allocated_peak / _GIB
            lives = survived(name, lengths) / _GIB
            more = lives / allocated - 1
            print(f"{name:<34}{what:>13}{allocated:>11.1f}{lives:>12.1f}{more:>7.0%}", flush=True)


def _cut() -> None:
    """What comes on top of all that is allocated, as a share of what comes and goes."""
    print(f"{'run':<34}{'cut at':>8}{'at the limit':>14}{'on top':>8}")
    for name in names():
        for limit in (512, 1024, 2048, 4096, 8192):
            lengths = drawn(_MEAN, _DEVIATION, limit, 4 * _STEPS, 0)
            allocator, stays = replayed(name, lengths)
            moving = allocator.allocated_peak - stays
            share = (allocator.reserved_peak - allocator.allocated_peak) / moving
            at_limit = sum(length == limit for length in lengths) / len(lengths)
            print(f"{name:<34}{limit:>8,}{at_limit:>14.0%}{share:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
