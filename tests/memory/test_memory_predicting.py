"""Layers of multi-token prediction: their parameters, and the heads and losses that they add."""

from __future__ import annotations

from typing import Any

import pytest

from oomlint.memory import estimate
from oomlint.memory.build import predicting, skeleton
from oomlint.memory.facts import Facts
from oomlint.memory.layers import layer_profile
from oomlint.memory.logits import logits_of
from oomlint.models import lookup
from oomlint.plan import Plan
from oomlint.plan.fields import f as fields
from oomlint.plan.model import Model, ModelDims, Precision, Trainable
from oomlint.plan.training import Batch, Checkpointing, Objective, Parallel, Seq

DIMS = ModelDims(
    arch="llama", layers=4, hidden=1024, heads=16, kv_heads=4, head_dim=64, ffn=2816, vocab=32_000,
    tie_embeddings=False, act="swiglu", norm="rms",
)  # fmt: skip
# Attention, gated feed-forward part and two norms of one block.
BLOCK = 1024 * (1024 + 2 * 256 + 1024) + 3 * 1024 * 2816 + 2 * 1024


def plan(layers: int | None, **sections: Any) -> Plan:
    base: dict[str, Any] = {
        "model": Model(dims=DIMS, attn_impl="sdpa", from_scratch=True, mtp_layers=layers),
        "objective": Objective(kind="pretrain"),
        "trainable": Trainable(method="full"),
        "precision": Precision(param="bf16", grad="bf16", optim_state="bf16", compute="bf16"),
        "parallel": Parallel(backend="none", world=1),
        "batch": Batch(micro=1, grad_accum=1),
        "seq": Seq(max_len=2048),
    }
    return Plan(**(base | sections))


def test_a_layer_is_a_block_with_a_projection_and_three_norms() -> None:
    f = Facts(plan(2))
    assert f.model is not None
    bare = skeleton(DIMS)
    assert bare is not None
    assert f.model.numel - bare.numel == 2 * (BLOCK + 2 * 1024 * 1024 + 3 * 1024)


def test_deepseek_v3_has_as_many_more_as_its_authors_say() -> None:
    """11.5B parameters without the embedding and the head, which are the model's (README_WEIGHTS.md of
    deepseek-ai/DeepSeek-V3)."""
    facts = lookup("deepseek-ai/DeepSeek-V3")
    assert facts is not None
    model = skeleton(facts.dims)
    assert model is not None
    assert predicting(model, 1).numel - model.numel == pytest.approx(11.5e9, rel=0.015)


def test_what_a_published_model_has_is_not_what_a_run_builds() -> None:
    facts = lookup("deepseek-ai/DeepSeek-V3")
    assert facts is not None
    assert facts.dims.mtp_layers == 1
    f = Facts(plan(None, model=Model(dims=facts.dims)))
    assert f.model is not None
    assert f.model.numel == facts.dims.params_total


def test_each_keeps_a_loss_of_its_own() -> None:
    """torchtitan holds the 16-bit logits of all until the last loss; fp32 log-probabilities are kept of each."""
    tokens = 2048
    bare, more = (logits_of(Facts(plan(n)), tokens) for n in (None, 2))
    each = tokens * 32_000
    assert more.kept == 3 * bare.kept
    assert more.loss == bare.loss + 2 * (bare.kept + 2 * each)
    assert more.early == max(bare.early, bare.kept) + 2 * bare.kept > 2 * bare.kept
    assert max(late[1] for late in more.late) == max(late[1] for late in bare.late) + 2 * bare.kept


def test_megatron_makes_logits_one_by_one() -> None:
    megatron = Parallel(backend="megatron", world=1)
    bare, more = (logits_of(Facts(plan(n, parallel=megatron)), 2048) for n in (None, 1))
    assert more.loss == bare.loss + bare.kept


def test_a_model_without_a_head_has_no_more_losses() -> None:
    ranked = Objective(kind="rm", pairs_per_sample=1)
    assert logits_of(Facts(plan(1, objective=ranked)), 2048).loss == 0


def test_the_block_keeps_both_inputs_and_what_they_are_joined_to() -> None:
    """Under fused norms, each of which keeps its input."""
    f = Facts(plan(1).with_values({"loss.liger.rms": True}))
    assert f.model is not None
    assert f.regime is not None
    plain, top = (layer_profile(f.model, block, f.regime) for block in f.model.blocks)
    h = 1024
    # The embedding, the concatenation (4h), what the projection makes of it and the last norm's input, beside what the
    # block below gave; and a number in fp32 for each norm.
    assert top.saved.token - plain.saved.token == 2 * h + 4 * h + 2 * h + 2 * h + 3 * 4
    assert top.input_bytes == 2 * plain.input_bytes
    assert top.trained - plain.trained == 2 * h * h + 3 * h


def test_ranks_that_split_the_projection_put_its_output_together() -> None:
    """What each makes of both inputs is half as wide, and what the block begins with is whole: it keeps what one rank
    alone keeps but for the halves of its own attention and feed-forward part."""
    saved = {}
    for tp in (1, 2):
        parallel = Parallel(backend="megatron", world=2, tp=tp)
        f = Facts(plan(1, parallel=parallel).with_values({"loss.liger.rms": True}))
        assert f.model is not None
        assert f.regime is not None
        plain, top = (layer_profile(f.model, block, f.regime) for block in f.model.blocks)
        saved[tp] = top.saved.token - plain.saved.token
    assert saved[2] == saved[1] == 10 * 1024 + 3 * 4


@pytest.mark.parametrize("backend", ["none", "fsdp2", "megatron"])
@pytest.mark.parametrize("mode", ["none", "full"])
def test_a_run_with_such_a_layer_needs_more_than_a_deeper_one(backend: Any, mode: Any) -> None:
    """By at least the head's second loss."""
    parallel = Parallel(backend=backend, world=8 if backend == "fsdp2" else 1)
    sections = {"parallel": parallel, "checkpointing": Checkpointing(mode=mode)}
    deeper = plan(None, **sections).with_values({"model.dims.layers": 5})
    more, other = (estimate(p).gpu.peak_bytes for p in (plan(1, **sections), deeper))
    assert more > other + 2 * 2048 * 32_000


def test_that_stages_share_them_is_said() -> None:
    staged = Parallel(backend="megatron", world=4, pp=4)
    said = [assumed.field for assumed in estimate(plan(1, parallel=staged)).assumptions]
    assert fields.model.mtp_layers in said
