"""What the layers of a rank keep, and what waits while others compute: by hand, of Llama-3-8B, in bytes."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.plans import LLAMA_8B, plan_of

from oomlint.memory import skeleton
from oomlint.memory.estimate import training_points
from oomlint.memory.facts import Facts
from oomlint.memory.host import idle_states_of
from oomlint.memory.layers import layer_profile
from oomlint.memory.logits import logits_of
from oomlint.memory.sharding import fsdp1_points
from oomlint.memory.states import frozen_weight_bytes, frozen_weight_bytes_of
from oomlint.memory.step import Stack, replicated_points, selective_bytes
from oomlint.memory.units import units_of
from oomlint.plan.model import ModelDims, Moe, VisionTower

LEAVES: dict[str, Any] = {
    "model.dims": LLAMA_8B, "trainable.method": "full", "precision.param": "bf16",
    "precision.grad": "bf16", "precision.optim_state": "fp32", "precision.compute": "bf16",
    "optimizer.kind": "adamw", "batch.micro": 1, "seq.max_len": 1024, "checkpointing.mode": "full",
}  # fmt: skip
NUMEL = 8_030_261_248
INPUT = 2 * 1024 * 4096
LORA: dict[str, Any] = {
    "trainable__method": "lora", "trainable__r": 16, "trainable__targets": ("q_proj", "v_proj"),
    "trainable__adapter_dtype": "bf16",
}  # fmt: skip
ADAPTERS = 32 * 16 * (4096 + 4096 + 4096 + 1024)


def facts(**changes: Any) -> Facts:
    return Facts(plan_of(LEAVES, **changes))


def test_selective_checkpointing_keeps_every_second_product() -> None:
    """q, o of 4,096, k and v of 1,024, three of 14,336 or 4,096: half of their outputs at 2 bytes; the attention's
    output with a number a head, and the layer's input."""
    outputs = 4096 + 1024 + 1024 + 4096 + 14_336 + 14_336 + 4096
    attention = 2 * 4096 + 4 * 32
    f = facts(checkpointing__mode="selective_op")
    assert f.model is not None
    assert f.regime is not None
    profile = layer_profile(f.model, f.model.blocks[0], f.regime)
    assert selective_bytes(f, profile) == outputs + attention + 2 * 4096
    assert Stack(f).saved == 32 * 1024 * (outputs + attention + 2 * 4096)


def test_experts_elsewhere_keep_what_is_sent_and_comes_back() -> None:
    moe = replace(LLAMA_8B, arch="mixtral", moe=Moe(experts=8, topk=2, moe_ffn=14_336))
    here = facts(model__dims=moe, checkpointing__mode="selective_op")
    sent = facts(
        model__dims=moe, checkpointing__mode="selective_op", parallel__backend="fsdp2",
        parallel__world=8, parallel__ep=4,
    )  # fmt: skip

    def kept(f: Facts) -> float:
        assert f.model is not None
        assert f.regime is not None
        return selective_bytes(f, layer_profile(f.model, f.model.blocks[0], f.regime))

    assert kept(sent) - kept(here) == 2 * 2 * 4096 * 2
    nothing, alone = (
        replace(sent.plan, checkpointing=replace(sent.plan.checkpointing, selective_keeps=keeps))
        for keeps in ((), ("sent",))
    )
    experts = 3 * 2 * 14_336
    assert kept(here) - kept(Facts(nothing)) == experts
    assert kept(sent) - kept(Facts(alone)) == experts
    # Up and down projection of two experts for a token, beside attention and the router's product.
    assert kept(here) == (4096 + 1024 + 1024 + 4096) + 3 * 2 * 14_336 + 2 * 4096 + 128 + 2 * 4096


def test_layers_that_are_not_computed_again_keep_weights_that_zero3_gathered() -> None:
    """Those of a model that was whole before: the same products as above, at 2 bytes."""
    weights = 4096 * (2 * 4096 + 2 * 1024 + 3 * 14_336)
    sharded = {"parallel__backend": "zero", "parallel__zero__stage": 3, "parallel__world": 8}
    for mode, kept in (("none", 32 * 2 * weights), ("every_n", 16 * 2 * weights), ("full", 0)):
        told = {"checkpointing__mode": mode, "checkpointing__every_n": 2, **sharded}
        whole, inside = (Stack(facts(load__zero3_init=is_, **told)) for is_ in (False, True))
        assert whole.saved - inside.saved == kept
    packed = {"checkpointing__mode": "none", "quant__method": "bnb4", **LORA, **sharded}
    whole, inside = (Stack(facts(load__zero3_init=is_, **packed)) for is_ in (False, True))
    # Half a byte, and four bytes for each 64.
    assert whole.saved - inside.saved == 32 * weights * (0.5 + 4 / 64)


@pytest.mark.parametrize("backend", ["none", "ddp", "fsdp1", "fsdp2", "zero"])
def test_outputs_that_keep_their_name_are_there_in_step_and_forward_too(backend: str) -> None:
    told = {
        "parallel__backend": backend, "parallel__world": 1 if backend == "none" else 8,
        "parallel__zero__stage": 2, "loss__upcast_fp32": False, "loss__outputs_kept": True,
    }  # fmt: skip
    once, on = (training_points(facts(loss__outputs_last=last, **told)) for last in (False, True))
    for phase, more in (("forward", 2), ("backward", 0), ("optimizer_step", 2), ("idle", 0)):
        of_phase = zip(once[phase], on[phase], strict=True)
        assert {then.logits - now.logits for now, then in of_phase} == {more * 1024 * 128_256}


def test_every_second_layer_keeps_its_input_alone() -> None:
    full, none = Stack(facts()), Stack(facts(checkpointing__mode="none"))
    assert full.saved == 32 * INPUT
    half = Stack(facts(checkpointing__mode="every_n", checkpointing__every_n=2))
    assert half.saved == pytest.approx((full.saved + none.saved) / 2)


def test_sequence_parallelism_divides_what_layers_keep() -> None:
    split: dict[str, Any] = {
        "parallel__backend": "megatron",
        "parallel__world": 4,
        "parallel__tp": 4,
    }
    assert Stack(facts(**split, parallel__sp=True)).saved == 32 * INPUT / 4
    assert Stack(facts(**split)).saved == 32 * INPUT


def test_below_the_first_adapter_less_is_kept() -> None:
    """A frozen norm whose input needs no gradient keeps nothing for it."""
    bare = {**LORA, "checkpointing__mode": "none"}
    alone = Stack(facts(**bare))
    assert alone.spared > 0
    assert alone.saved == pytest.approx(32 * alone.kept[0] - alone.spared)
    embedded = Stack(facts(**bare, trainable__modules_to_save=("embed_tokens",)))
    assert embedded.spared == 0
    assert embedded.saved == pytest.approx(32 * embedded.kept[0])
    assert Stack(facts(**LORA)).spared == 0


def test_micro_batches_that_wait_keep_their_logits_too() -> None:
    waits = facts(parallel__pp_schedule="afab", batch__grad_accum=4)
    once = facts(batch__grad_accum=4)
    kept = logits_of(once, once.samples.tokens).kept
    for phase, index in (("forward", 2), ("backward", 0)):
        late, plain = replicated_points(waits)[phase][index], replicated_points(once)[phase][index]
        assert late.logits - plain.logits == 3 * kept
        assert late.activations - plain.activations == 3 * 32 * INPUT


def test_only_the_second_micro_batch_meets_gradients_of_the_first() -> None:
    one, more = replicated_points(facts()), replicated_points(facts(batch__grad_accum=2))
    assert one["forward"][0].gradients == 0
    assert more["forward"][0].gradients == 2 * NUMEL
    assert one["optimizer_step"][0].gradients == more["optimizer_step"][0].gradients == 2 * NUMEL


def test_weights_cast_by_autocast_are_cached_where_they_are_trained() -> None:
    wide: dict[str, Any] = {"precision__param": "fp32", "precision__autocast": True}
    linears = NUMEL - 2 * 525_336_576 - 65 * 4096
    (_, point, _) = replicated_points(facts(**wide))["forward"]
    assert point.temporary == 2 * linears
    (_, adapters, _) = replicated_points(facts(**wide, **LORA))["forward"]
    assert adapters.temporary == 2 * ADAPTERS
    (_, bare, _) = replicated_points(facts(**wide, checkpointing__mode="none"))["forward"]
    assert bare.temporary == 0
    (_, half, _) = replicated_points(facts(precision__autocast=True))["forward"]
    assert half.temporary == 0


def test_a_tied_embedding_adds_two_gradients_in_a_third() -> None:
    tied = replace(LLAMA_8B, tie_embeddings=True)
    last = replicated_points(facts(model__dims=tied))["backward"][-1]
    assert last.temporary == 2 * 2 * 525_336_576
    assert last.gradients == 2 * (NUMEL - 525_336_576)
    wide = {"precision__param": "fp32", "precision__grad": "fp32", "precision__compute": "fp32"}
    assert (
        replicated_points(facts(model__dims=tied, **wide))["backward"][-1].temporary
        == 4 * 525_336_576
    )
    assert replicated_points(facts())["backward"][-1].temporary == 0
    again = replicated_points(facts(batch__grad_accum=2))["backward"][-1]
    assert again.temporary == 2 * 525_336_576


def test_models_without_a_head_make_no_gradient_of_one() -> None:
    """The first block's backward is the highest: all blocks' gradients but the head's, which a reward model lacks."""
    reward = replicated_points(facts(objective__kind="rm", objective__pairs_per_sample=1))
    whole = replicated_points(facts())
    blocks = [found["backward"][1].gradients for found in (reward, whole)]
    assert blocks[1] - blocks[0] == 2 * 525_336_576
    tied = replace(LLAMA_8B, tie_embeddings=True)
    headless = facts(model__dims=tied, objective__kind="rm", objective__pairs_per_sample=1)
    assert replicated_points(headless)["backward"][1].gradients == blocks[0]
    assert replicated_points(headless)["backward"][-1].temporary == 0


# -- ranks -------------------------------------------------------------------------------------------


def test_fsdp1_keeps_whole_adapters_until_they_are_reduced() -> None:
    ranks: dict[str, Any] = {"parallel__backend": "fsdp1", "parallel__world": 8, **LORA}
    last = fsdp1_points(facts(**ranks))["backward"][-1]
    assert last.gradients == pytest.approx(2 * ADAPTERS / 8)
    more = fsdp1_points(facts(**ranks, batch__grad_accum=2))["backward"][-1]
    # Those of the first micro batch are whole; each unit of them goes as its shard comes.
    assert more.gradients == pytest.approx(2 * ADAPTERS / 8)
    synced = fsdp1_points(
        facts(**ranks, batch__grad_accum=2, parallel__fsdp__sync_every_micro=True)
    )["backward"][-1]
    assert synced.gradients == pytest.approx(2 * ADAPTERS / 8)
    loose = fsdp1_points(facts(**ranks, parallel__fsdp__wrap="none"))["backward"][-1]
    assert loose.gradients == pytest.approx(2 * ADAPTERS)


TOWERED = ModelDims(
    arch="qwen2_vl", layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=128, vocab=1000,
    tie_embeddings=False, act="swiglu", norm="rms", attn_bias=False,
    vision=VisionTower(layers=1, hidden=32, heads=2, ffn=64, patch=14, params=50_000),
)  # fmt: skip


def test_what_is_no_block_is_in_the_root_unit_and_on_the_first_stage() -> None:
    f = facts(model__dims=TOWERED, parallel__backend="fsdp1", parallel__world=2)
    model = f.model
    assert model is not None
    assert (model.vision_numel, model.embed_numel, model.head_numel) == (50_000, 64_000, 64_000)
    units = units_of(f)
    assert (units.embed, units.tail) == (64_000, 64_000 + 64)
    assert units.root == 128_064 + 50_000 + model.other_numel
    block = model.blocks[0].numel
    assert units.blocks == (block,)
    assert frozen_weight_bytes(f) == 2 * model.numel
    assert frozen_weight_bytes_of(f, 3.0) == 3 * model.numel
    staged = facts(
        model__dims=TOWERED, parallel__backend="megatron", parallel__world=2, parallel__pp=2
    )
    half = (2 * block + model.other_numel + 50_000) / 2 + 64_000 + 64
    assert frozen_weight_bytes_of(staged, 1.0) == half


def test_states_that_wait_in_ram_are_those_of_the_trained_model() -> None:
    ranks: dict[str, Any] = {
        "parallel__backend": "fsdp2", "parallel__world": 4, "precision__param": "fp32",
        "precision__master": "none",
    }  # fmt: skip
    assert idle_states_of(facts(**ranks)) == 0
    away = facts(**ranks, offload__idle="cpu")
    assert idle_states_of(away) == pytest.approx((4 + 8) * NUMEL, rel=1e-6)
    stepped = facts(**ranks, offload__between_steps="cpu")
    assert idle_states_of(stepped) == pytest.approx(8 * NUMEL, rel=1e-6)
    master: dict[str, Any] = {
        "parallel__backend": "megatron", "parallel__world": 4, "precision__master": "fp32",
        "offload__idle": "cpu",
    }  # fmt: skip
    found = idle_states_of(facts(**master))
    assert found == pytest.approx((4 * 2 + 4 + 8) * NUMEL, rel=1e-6)


# -- state spaces ------------------------------------------------------------------------------------


def test_a_mamba_2_block_projects_to_gates_states_and_heads() -> None:
    """In: gate and values of 128 each, B and C of 2 groups of 16, a step for each of 8 heads; out 128 to 64; a
    convolution of 4 over 128 + 2 * 2 * 16 with biases; for each head A, D and the step's bias; a norm of 128."""
    dims = ModelDims(
        arch="bamba", layers=1, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=128, vocab=1000,
        tie_embeddings=False, act="swiglu", norm="rms", layer_types=("mamba",),
        ssm={
            "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_n_groups": 2,
            "mamba_d_conv": 4,
        },
    )  # fmt: skip
    model = skeleton(dims)
    assert model is not None
    mixed = 128 + 2 * 2 * 16
    mixer = 64 * (2 * 128 + 2 * 2 * 16 + 8) + 128 * 64 + 5 * mixed + 3 * 8 + 128
    assert model.blocks[0].numel == mixer + 3 * 64 * 128 + 2 * 64


# -- FSDP by hand ------------------------------------------------------------------------------------

# Two blocks of 36,992 elements between an embedding and a head of 64,000 each and a last norm of 64.
SMALL = replace(TOWERED, arch="llama", vision=None)
BLOCK, ENDS = 36_992, 64_000
ROOT = 2 * ENDS + 64
FSDP1: dict[str, Any] = {
    "model__dims": SMALL, "parallel__backend": "fsdp1", "parallel__world": 4, "batch__micro": 1,
    "seq__max_len": 32,
}  # fmt: skip
# Ids, labels and masks of 32 tokens, and cos and sin of 16.
BARE = 16 * 32 + 2 * 32 * 16 * 2
HIDDEN = 2 * 32 * 64


def test_fsdp1_gathers_the_root_and_a_unit_in_forward() -> None:
    f = facts(**FSDP1)
    blocks, head = fsdp1_points(f)["forward"]
    assert blocks.activations == BARE + 2 * HIDDEN
    assert blocks.communication == 2 * (ROOT + BLOCK)
    assert (blocks.gradients, blocks.logits) == (0, 0)
    found = logits_of(f, f.samples.tokens)
    assert (head.activations, head.logits) == (BARE + 2 * HIDDEN + found.norm, found.loss)
    assert head.communication == 2 * (ROOT + BLOCK)


def test_fsdp1_keeps_a_half_of_wider_shards_while_it_gathers() -> None:
    wide = facts(**FSDP1, precision__param="fp32", precision__grad="fp32")
    assert fsdp1_points(wide)["forward"][0].communication == pytest.approx(
        2 * (ROOT + BLOCK) + 2 * BLOCK / 4
    )
    stays = facts(**FSDP1, parallel__fsdp__strategy="grad_op")
    assert fsdp1_points(stays)["forward"][0].communication == 2 * (ROOT + 2 * BLOCK)
    copied = facts(**FSDP1, parallel__fsdp__strategy="no_shard")
    # What is there anyway is gathered from nowhere.
    assert fsdp1_points(copied)["forward"][0].communication == 0


def test_fsdp1_reduces_the_root_last() -> None:
    found = fsdp1_points(facts(**FSDP1))
    last = found["backward"][-1]
    # Its gradients and what they are put together in, beside the root itself; those of the blocks are a fourth.
    assert last.communication == 2 * ROOT + 2 * 2 * ROOT
    assert last.gradients == 2 * 2 * BLOCK / 4
    assert last.activations == BARE + HIDDEN
    (step,) = found["optimizer_step"]
    assert step.gradients == 2 * (2 * BLOCK + ROOT) / 4
    apart = fsdp1_points(facts(**FSDP1, parallel__fsdp__wrap="ends"))["backward"][-1]
    # The embedding is a unit of its own, and so is the head with the norm: nothing is left for a root.
    assert apart.communication == 2 * ENDS + 2 * 2 * ENDS
    host = fsdp1_points(facts(**FSDP1, parallel__fsdp__cpu_offload=True))
    assert host["optimizer_step"][0].gradients == 0
    assert host["backward"][-1].gradients == 0


def test_one_unit_of_all_is_whole_from_start_to_end() -> None:
    found = fsdp1_points(facts(**FSDP1, parallel__fsdp__wrap="none"))
    whole = 2 * BLOCK + ROOT
    assert found["forward"][0].communication == 2 * whole
    assert found["backward"][-1].communication == 2 * whole + 2 * 2 * whole
    assert found["backward"][-1].gradients == 0


def test_gradients_of_earlier_micro_batches_are_shards_where_ranks_agree() -> None:
    more = {**FSDP1, "batch__grad_accum": 3}
    whole = 2 * BLOCK + ROOT
    loose = fsdp1_points(facts(**more))["forward"][0]
    assert loose.gradients == 2 * whole
    synced = fsdp1_points(facts(**more, parallel__fsdp__sync_every_micro=True))["forward"][0]
    assert synced.gradients == 2 * whole / 4


# -- parts of single classes -------------------------------------------------------------------------


def test_a_short_convolution_is_as_long_as_its_cache() -> None:
    """Lfm2: 64 to three of 64, a kernel of 5 over 64, and 64 back."""
    dims = ModelDims(
        arch="lfm2", layers=1, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=128, vocab=1000,
        tie_embeddings=True, act="swiglu", norm="rms", layer_types=("conv",), ssm={"conv_L_cache": 5},
    )  # fmt: skip
    model = skeleton(dims)
    assert model is not None
    assert model.blocks[0].numel == 4 * 64 * 64 + 5 * 64 + 3 * 64 * 128 + 2 * 64


@pytest.mark.parametrize(
    ("tie", "counted", "head"),
    [(False, None, 64_000), (True, None, 0), (False, 0, 0), (False, 64_000, 64_000)],
)
def test_a_head_is_tied_its_own_or_not_there(tie: bool, counted: int | None, head: int) -> None:
    model = skeleton(replace(SMALL, tie_embeddings=tie, params_lm_head=counted))
    assert model is not None
    assert (model.embed_numel, model.head_numel) == (64_000, head)
    assert model.numel == 2 * BLOCK + 64_000 + 64 + head


def test_answers_longer_than_the_sample_have_no_more_logits_than_it() -> None:
    sampled: dict[str, Any] = {
        "objective__kind": "grpo", "loss__algorithm": "rows",
        "loss__logits_materialised": "completion_only",
    }  # fmt: skip
    each = 1024 * 128_256
    all_ = facts(**sampled)
    assert logits_of(all_, 1024).kept == 2 * each
    some = facts(**sampled, objective__rollout__max_completion_tokens=255)
    assert logits_of(some, 1024).kept == 2 * each / 4
    long = facts(**sampled, objective__rollout__max_completion_tokens=5000)
    assert logits_of(long, 1024).kept == 2 * each
