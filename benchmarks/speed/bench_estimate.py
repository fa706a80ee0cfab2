"""How long one estimate takes, beside a plain copy of its plan as a dictionary.

``pytest benchmarks/speed/bench_estimate.py`` prints them side by side (pytest-benchmark); the copy
is the yardstick for the machine. ``search`` asks for plans that all differ, as a planner does:
batches, lengths, checkpointing and sharding in turn; ``api`` is ``oomlint.estimate`` on plain values.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import cycle, product
from typing import Any

import pytest

import oomlint
from oomlint.config.plans import read_plan
from oomlint.memory import Estimate, estimate
from oomlint.plan import Plan, plan_to_dict

_PRECISION = {"param": "bf16", "grad": "bf16", "optim_state": "bf16", "compute": "bf16"}
_BASE: dict[str, Any] = {
    "model": {"id": "meta-llama/Meta-Llama-3-8B", "attn_impl": "sdpa"},
    "trainable": {"method": "full"},
    "precision": _PRECISION,
    "optimizer": {"kind": "adamw", "fused": True},
    "parallel": {"backend": "none", "world": 1},
    "batch": {"micro": 2, "grad_accum": 4},
    "seq": {"max_len": 4096, "packing": "multipack"},
    "checkpointing": {"mode": "full"},
}
_LORA = {"trainable": {"method": "lora", "r": 16, "targets": "all_linear"}}


def _eight(backend: str, **more: Any) -> dict[str, Any]:
    return {"parallel": {"backend": backend, "nodes": 1, "gpus_per_node": 8, **more}}


GIVEN: dict[str, dict[str, Any]] = {
    "full": _BASE,
    "lora": {**_BASE, **_LORA},
    "moe": {**_BASE, "model": {"id": "Qwen/Qwen3-30B-A3B"}},
    "vision": {**_BASE, "model": {"id": "Qwen/Qwen2-VL-7B-Instruct"}},
    "windows": {**_BASE, "model": {"id": "google/gemma-3-4b-it"}},
    "zero3": {**_BASE, **_eight("zero", zero={"stage": 3})},
    "zero2-offload": {
        **_BASE, **_eight("zero", zero={"stage": 2}), "offload": {"optimizer": "cpu"}
    },
    "fsdp1": {**_BASE, **_eight("fsdp1")},
    "fsdp2": {**_BASE, **_eight("fsdp2")},
    "fsdp2-windows": {**_BASE, **_eight("fsdp2"), "model": {"id": "google/gemma-3-4b-it"}},
}  # fmt: skip
PLANS = {name: read_plan(values) for name, values in GIVEN.items()}


@pytest.mark.parametrize("name", PLANS)
def test_estimate(benchmark: Any, name: str) -> None:
    found = benchmark(estimate, PLANS[name])
    assert found.gpu.peak_bytes


def _searched() -> Callable[[], Estimate]:
    """Estimates one plan after another of many that share what they have in common."""
    base = PLANS["zero3"]
    every = [
        base.with_values(
            {
                "batch.micro": micro,
                "seq.max_len": length,
                "checkpointing.mode": mode,
                "parallel.zero.stage": stage,
            }
        )
        for stage, mode, length, micro in product(
            (1, 2, 3), ("none", "full"), (1024, 2048, 4096), (1, 2, 4, 8)
        )
    ]
    plans = cycle(every)
    return lambda: estimate(next(plans))


def test_search(benchmark: Any) -> None:
    assert benchmark(_searched()).gpu.peak_bytes


def test_api(benchmark: Any) -> None:
    run = benchmark(oomlint.estimate, {**GIVEN["zero3"], "device": {"type": "A100-80GB"}})
    assert run["gpu"]["peak_bytes"]


@pytest.mark.parametrize("name", PLANS)
def test_copy_of_the_plan(benchmark: Any, name: str) -> None:
    plan: Plan = PLANS[name]
    plain = plan_to_dict(plan)
    assert benchmark(copy.deepcopy, plain) == plain
