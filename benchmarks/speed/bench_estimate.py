"""How long one estimate takes, beside a plain copy of its plan as a dictionary.

``pytest benchmarks/speed/bench_estimate.py`` prints both (pytest-benchmark); the copy is the
yardstick for the machine.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from oomlint.memory import estimate
from oomlint.plan import (
    Batch,
    Checkpointing,
    Fsdp,
    Model,
    ModelDims,
    Optimizer,
    Parallel,
    Plan,
    Precision,
    Seq,
    Trainable,
    Zero,
    plan_to_dict,
)

_LLAMA = ModelDims(
    arch="llama", layers=32, hidden=4096, heads=32, kv_heads=8, head_dim=128, ffn=14336,
    vocab=128256, tie_embeddings=False, act="swiglu", norm="rms",
)  # fmt: skip
_BASE = Plan(
    name="llama",
    model=Model(dims=_LLAMA, attn_impl="sdpa"),
    trainable=Trainable(method="full"),
    precision=Precision(param="bf16", grad="bf16", optim_state="bf16", compute="bf16"),
    optimizer=Optimizer(kind="adamw", fused=True),
    batch=Batch(micro=2, grad_accum=4),
    seq=Seq(max_len=4096, packing="multipack"),
    checkpointing=Checkpointing(mode="full"),
)
PLANS = {
    "single": _BASE,
    "lora": _BASE.with_values({"trainable.method": "lora", "trainable.r": 16}),
    "zero3": _BASE.with_values({"parallel": Parallel(backend="zero", world=8, zero=Zero(stage=3))}),
    "fsdp2": _BASE.with_values(
        {"parallel": Parallel(backend="fsdp2", world=8, fsdp=Fsdp(version=2))}
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_estimate(benchmark: Any, name: str) -> None:
    found = benchmark(estimate, PLANS[name])
    assert found.gpu.peak_bytes


@pytest.mark.parametrize("name", PLANS)
def test_copy_of_the_plan(benchmark: Any, name: str) -> None:
    plain = plan_to_dict(PLANS[name])
    assert benchmark(copy.deepcopy, plain) == plain
