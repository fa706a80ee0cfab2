"""The other estimators' formulas, worked out by hand."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.plans import plan_of

from oomlint.memory.facts import Facts
from oomlint.plan.model import ModelDims

ROOT = Path(__file__).parents[2]
NUMEL = 8_030_261_248
VOCABULARY, HIDDEN = 128256, 4096
BASE: dict[str, Any] = {
    "model.dims": ModelDims(
        arch="llama", layers=32, hidden=HIDDEN, heads=32, kv_heads=8, head_dim=128, ffn=14336,
        vocab=VOCABULARY, tie_embeddings=False, act="swiglu", norm="rms",
    ),
    "trainable.method": "full",
    "precision.param": "bf16",
    "precision.compute": "bf16",
    "precision.optim_state": "fp32",
    "precision.master": "fp32",
    "parallel.backend": "zero",
    "parallel.world": 8,
    "batch.micro": 2,
    "seq.max_len": 4096,
    "checkpointing.mode": "full",
}  # fmt: skip


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    return importlib.import_module("benchmarks.accuracy.peers")


def facts(**changes: Any) -> Facts:
    return Facts(plan_of(BASE, **changes))


def test_deepspeed_counts_eighteen_bytes_a_parameter(peers: Any) -> None:
    third = peers.deepspeed_states(facts(parallel__zero__stage=3))
    assert third == pytest.approx(4 * VOCABULARY * HIDDEN + 18 * NUMEL / 8)
    second = peers.deepspeed_states(facts(parallel__zero__stage=2))
    assert second == pytest.approx(2 * NUMEL + 18 * NUMEL / 8)
    assert peers.deepspeed_states(facts(parallel__zero__stage=1)) is None
    assert peers.deepspeed_states(facts(parallel__zero__stage=3, trainable__method="lora")) is None


def test_accelerate_counts_two_fp32_models_in_mixed_precision(peers: Any) -> None:
    alone = {"parallel__backend": "none", "parallel__world": 1}
    assert peers.accelerate_estimate(facts(**alone)) == 8 * NUMEL
    wide = facts(precision__param="fp32", precision__compute="fp32", **alone)
    assert peers.accelerate_estimate(wide) == 16 * NUMEL


def test_the_cookbook_splits_states_but_not_activations(peers: Any) -> None:
    third = peers.cookbook_memory(facts(parallel__zero__stage=3))
    total = (
        2 * VOCABULARY * HIDDEN + HIDDEN * 4096 + 8 * HIDDEN * 32 + 2 * HIDDEN
        + 2.5 * 32 * HIDDEN**2 + 3 * 32 * HIDDEN * 14336
    )  # fmt: skip
    kept = 4096 * 2 * HIDDEN * 32 * 34
    assert third == pytest.approx(18 * total / 8 + 3e9 + kept)


def test_llama_factory_divides_its_table_only_where_ranks_share(peers: Any) -> None:
    assert peers.llama_factory_table(facts(parallel__zero__stage=3)) == 18 * NUMEL / 8
    assert peers.llama_factory_table(facts(parallel__zero__stage=2)) == 18 * NUMEL
    packed = facts(parallel__backend="ddp", trainable__method="qlora", quant__method="bnb4")
    assert peers.llama_factory_table(packed) == NUMEL / 2


def test_medians_are_taken_within_families(peers: Any) -> None:
    plan = facts(parallel__zero__stage=3).plan
    real = 18 * NUMEL / 8
    runs = [
        peers.Run("one", plan, 0.1, real), peers.Run("one", plan, 0.3, real),
        peers.Run("two", plan, 0.4, real / 2),
    ]  # fmt: skip
    table = {found.name: found for found in peers.compare(runs)}["LLaMA-Factory table"]
    assert (table.runs, table.families) == (3, 2)
    assert table.theirs == pytest.approx((0.0 + 1.0) / 2)
    assert table.ours == pytest.approx((0.2 + 0.4) / 2)
