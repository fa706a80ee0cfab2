"""Facts that plans of different batches share: what is remembered must never be told wrong."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from tests.plans import SMALL_LLAMA

from oomlint.memory import Estimate, estimate, facts
from oomlint.memory.facts import Facts
from oomlint.plan import Plan
from oomlint.plan.model import ModelDims, Moe
from oomlint.plan.training import Fsdp, Parallel

BASE = Plan().with_values(
    {
        "model.dims": SMALL_LLAMA,
        "trainable.method": "full",
        "precision.param": "bf16",
        "optimizer.kind": "adamw",
        "parallel.gpus_per_node": 8,
        "seq.max_len": 2048,
    }
)
KINDS: dict[str, dict[str, Any]] = {
    "single": {},
    "padded, whose kernel is another from the second sample on": {
        "seq.pad": "longest", "model.attn_impl": "sdpa"
    },
    "eager": {"model.attn_impl": "eager"},
    "lora": {"trainable.method": "lora", "trainable.r": 8},
    "dp": {"parallel.backend": "dp"},
    "ddp": {"parallel.backend": "ddp"},
    "zero2 offloaded": {
        "parallel.backend": "zero", "parallel.zero.stage": 2, "offload.optimizer": "cpu"
    },
    "zero3": {"parallel.backend": "zero", "parallel.zero.stage": 3},
    "fsdp1": {"parallel.backend": "fsdp1"},
    "fsdp2": {"parallel.backend": "fsdp2", "parallel.fsdp.sync_every_micro": True},
    "pipeline": {"parallel": Parallel(backend="megatron", world=8, pp=4)},
    "experts": {"model.dims.moe": Moe(experts=8, topk=2), "model.dims.arch": "mixtral"},
    "dpo": {"objective.kind": "dpo", "objective.reward_model": "other"},
    "evaluated": {"eval.generate": True, "eval.max_new_tokens": 4096, "data.workers": 4},
    "unknown": {"model.dims": None},
}  # fmt: skip
BATCHES: list[dict[str, Any]] = [
    {"batch.micro": micro, "batch.grad_accum": steps, "batch.eval_micro": rows}
    for micro, steps, rows in product((1, 2, 8), (1, 4), (None, 16))
] + [{"batch.max_tokens_per_gpu": 16384}, {"batch.micro": 4096, "batch.micro_unit": "tokens"}, {}]


def cold(plan: Plan) -> Estimate:
    facts._SEEN.clear()
    return estimate(plan)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_an_estimate_does_not_depend_on_those_before_it(name: str) -> None:
    base = BASE.with_values(KINDS[name])
    plans = [base.with_values(batch) for batch in BATCHES]
    alone = [cold(plan) for plan in plans]
    facts._SEEN.clear()
    for order in (1, -1):
        for plan, expected in list(zip(plans, alone, strict=True))[::order]:
            assert estimate(plan) == expected


def test_plans_of_other_sections_share_nothing() -> None:
    base = BASE.with_values({"batch.micro": 2})
    plans = [base.with_values(values) for values in KINDS.values()]
    alone = [cold(plan) for plan in plans]
    facts._SEEN.clear()
    assert [estimate(plan) for plan in plans] == alone
    assert [estimate(plan) for plan in plans] == alone


@pytest.mark.parametrize(
    ("batch", "is_shared"),
    [
        ({"batch.micro": 4}, True),
        # How many samples there are follows from their lengths then, and from that what kernels run.
        ({"batch.micro": 4096, "batch.micro_unit": "tokens"}, False),
        ({"batch.micro": 4, "batch.max_tokens_per_gpu": 16384}, False),
        ({}, False),
        ({"batch.micro": 4, "seq.max_len": None}, False),
    ],
)
def test_facts_are_shared_where_a_batch_is_so_many_samples(
    batch: dict[str, Any], is_shared: bool
) -> None:
    facts._SEEN.clear()
    facts.facts_of(BASE.with_values(batch))
    assert bool(facts._SEEN) == is_shared


def test_what_is_remembered_is_bounded() -> None:
    facts._SEEN.clear()
    for length in range(1, facts._SEEN_LIMIT + 50):
        estimate(BASE.with_values({"batch.micro": 1, "seq.max_len": length}))
    assert len(facts._SEEN) <= facts._SEEN_LIMIT


@pytest.mark.parametrize(("dp", "ranks"), [(4, 8), (None, 8)])
def test_fsdp_shards_over_the_ranks_of_a_sequence_too(dp: int | None, ranks: int) -> None:
    """verl: two ranks a sequence, the mesh of FSDP over all eight."""
    parallel = Parallel(backend="fsdp1", world=8, ulysses=2, dp=dp, fsdp=Fsdp())
    assert Facts(Plan(parallel=parallel)).ranks.shard == ranks


def test_qlora_without_quantization_is_completed_and_says_so():
    """Read as LoRA over weights in float32, an 8B model once took 80 GiB."""
    plan = BASE.with_values({"trainable.method": "qlora", "precision.param": None})
    found = estimate(plan)
    said = plan.with_values({"quant.method": "bnb4", "precision.param": "bf16"})
    assert found.gpu == estimate(said).gpu
    fields = {assumption.field: assumption.value for assumption in found.assumptions}
    assert (fields["quant.method"], fields["precision.param"]) == ("bnb4", "bf16")


def test_a_model_of_known_size_alone_has_no_matrices_of_scores() -> None:
    """Gated linear attention and state spaces come in all sizes, and their configs say "eager" like others."""
    by_size = ModelDims(params_total=1_700_000_000, params_active=1_700_000_000)
    long = BASE.with_values({"model.dims": by_size, "seq.max_len": 4096, "batch.micro": 2})
    eager, sdpa = (
        estimate(long.with_values({"model.attn_impl": impl})).gpu for impl in ("eager", "sdpa")
    )
    assert eager.peak_bytes == sdpa.peak_bytes
