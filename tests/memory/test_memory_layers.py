"""Blocks by hand: what autograd keeps of a Llama block, byte by byte."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.plans import plan_of

from oomlint.memory import DecoderStructure
from oomlint.memory.build import skeleton
from oomlint.memory.facts import Facts
from oomlint.memory.layers import LayerProfile, Regime, layer_profile
from oomlint.models import lookup
from oomlint.plan import Plan
from oomlint.plan.model import Mla, ModelDims, Moe

HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM = 4096, 14336, 32, 8, 128
WIDTH, KV = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
LLAMA_8B = ModelDims(
    arch="llama", layers=32, hidden=HIDDEN, heads=HEADS, kv_heads=KV_HEADS, head_dim=HEAD_DIM,
    ffn=FFN, vocab=128256, tie_embeddings=False, act="swiglu", norm="rms",
)  # fmt: skip
STATED = {
    "model.dims": LLAMA_8B, "trainable.method": "full", "precision.param": "bf16",
    "precision.grad": "bf16", "precision.compute": "bf16", "batch.micro": 1, "seq.max_len": 2048,
}  # fmt: skip
ALL = frozenset({"q", "k", "v", "o", "gate", "up", "down"})


def model_of(dims: ModelDims) -> DecoderStructure:
    found = skeleton(dims)
    assert found is not None
    return found


def profile(regime: Regime, dims: ModelDims = LLAMA_8B) -> LayerProfile:
    model = model_of(dims)
    return layer_profile(model, model.blocks[-1], regime)


def test_half_precision_block_keeps_what_the_formula_says() -> None:
    """Two norms 16h+8, SwiGLU 8i, q k v out 4A+4K and the log-sum-exp 4a."""
    saved = profile(Regime()).saved
    assert saved.token == 16 * HIDDEN + 8 * FFN + 4 * WIDTH + 4 * KV + 4 * HEADS + 8
    assert saved.score == 0
    assert saved.fixed == 0


def test_heads_wider_than_flash_attention_takes_go_to_the_next_kernel() -> None:
    """Up to 256 (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp check_head_dim_size_flash); for the memory-efficient
    kernel keys and values are repeated to all heads. Of a block, as of Gemma-4's global layers, and of a model."""
    model = model_of(LLAMA_8B)
    for size, repeated in ((256, 0), (257, 2 * 2 * (WIDTH - KV))):
        block = replace(model.blocks[-1], head_dim=size)
        saved = layer_profile(model, block, Regime(kernel="flash")).saved.token
        assert saved - profile(Regime(kernel="flash")).saved.token == repeated
        plan = plan_of(STATED, model__dims=replace(LLAMA_8B, head_dim=size))
        regime = Facts(plan).regime
        assert regime is not None
        assert regime.kernel == ("efficient" if repeated else "flash")


def test_the_layers_of_each_packed_expert_are_unpacked_one_at_a_time() -> None:
    """One of three matrices of one of eight experts in 16 bit; of experts that are one parameter all are, and stay."""
    regime = Regime(train_base=False, train_norms=False, quantised=True, packed_experts=True)
    dims = replace(LLAMA_8B, arch="mixtral", moe=Moe(experts=8, topk=2, moe_ffn=FFN))
    matrix = 2 * HIDDEN * FFN
    apart = profile(replace(regime, apart_experts=True), dims)
    assert apart.saved.fixed == 0
    assert max(instant.fixed for instant in apart.inference) == matrix
    assert profile(regime, dims).saved.fixed == 8 * 3 * matrix


def test_autocast_on_fp32_weights_keeps_casts_of_activations_and_weights() -> None:
    found = profile(Regime(stream=4, compute=2, amp=True))
    linear = model_of(LLAMA_8B).blocks[0].linear_numel
    assert found.saved.token == 26 * HIDDEN + 8 * FFN + 4 * WIDTH + 4 * KV + 4 * HEADS + 8
    assert found.saved.fixed == 2 * linear


@pytest.mark.parametrize(("rank", "dropout"), [(8, False), (64, False), (16, True)])
def test_lora_in_fp32_keeps_a_wide_copy_of_every_adapted_input(rank: int, dropout: bool) -> None:
    regime = Regime(
        train_base=False, train_norms=False, rank=rank, targets=ALL, adapter=4, dropout=dropout
    )
    inputs = 5 * HIDDEN + WIDTH + FFN  # q, k, v, gate, up; o; down
    expected = 28 * HIDDEN + 10 * FFN + 8 * WIDTH + 4 * KV + 4 * HEADS + 28 * rank + 8
    assert profile(regime).saved.token == expected + (inputs if dropout else 0)


@pytest.mark.parametrize("dropout", [False, True])
def test_fused_adapters_keep_their_inputs_gate_and_up_alone(dropout: bool) -> None:
    plain = Regime(
        train_base=False, train_norms=False, rank=16, targets=ALL, adapter=2, dropout=dropout
    )
    fused = profile(replace(plain, fused=ALL))
    norms = 2 * (4 * HIDDEN + 4)
    attention = 2 * HIDDEN + 4 * WIDTH + 4 * KV + 4 * HEADS
    feed_forward = 2 * HIDDEN + 4 * FFN
    # One mask and one dropped copy for q, k, v; for o; for gate and up.
    dropped = 3 * (2 * HIDDEN + WIDTH) if dropout else 0
    assert fused.saved.token == norms + attention + feed_forward + dropped
    assert fused.trained == profile(plain).trained
    if not dropout:
        # The activation, the output and the residual; in backward the gradients of the output,
        # of the input and of the last product's input.
        most = fused.saved.token + 4 * HIDDEN + 2 * FFN
        assert max(m.token for m in fused.forward) == most - 4 * HEADS
        assert max(m.token for m in fused.backward) == most


def test_fused_adapters_of_fp32_keep_the_factors_as_they_were_cast() -> None:
    regime = Regime(
        train_base=False, train_norms=False, rank=16, targets=ALL, adapter=4, amp=True, fused=ALL
    )
    ends = sum(x.inputs + x.outputs for x in model_of(LLAMA_8B).blocks[0].linears)
    assert profile(regime).saved == (*profile(replace(regime, adapter=2)).saved[:2], 32 * ends)


def test_eager_attention_keeps_six_bytes_a_score() -> None:
    saved = profile(Regime(kernel="eager")).saved
    assert saved.score == 6 * HEADS


@pytest.mark.parametrize(("kernel", "width"), [("eager", 4), ("math", 2), ("flash", 0)])
def test_cudas_softmax_makes_a_product_before_its_backward(kernel: Any, width: int) -> None:
    """aten/src/ATen/native/cuda/SoftMax.cu: as wide as the weights, beside the gradients on both sides."""
    most, with_product = (
        max(m.score for m in profile(Regime(kernel=kernel, scratch=scratch)).backward)
        for scratch in (False, True)
    )
    assert with_product - most == width * HEADS
    assert (
        profile(Regime(kernel=kernel, scratch=True)).saved == profile(Regime(kernel=kernel)).saved
    )


def test_dense_mask_is_copied_in_every_layer_and_repeats_the_keys() -> None:
    flash, masked = (
        profile(Regime()).saved,
        profile(Regime(kernel="efficient", dense_mask=True)).saved,
    )
    assert masked.score == 2
    assert masked.token - flash.token == 4 * WIDTH - 4 * KV


def test_highest_backward_instant_of_the_feed_forward_holds_three_more_ffn_copies() -> None:
    """At down_proj's product: 18h + 12i of activations and the gradient of its weight."""
    moments = profile(Regime()).backward
    expected = 18 * HIDDEN + 12 * FFN + 4 * WIDTH + 4 * KV + 4 * HEADS + 8
    assert any(m.token == expected and m.grads == HIDDEN * FFN for m in moments)


def test_norm_backward_holds_six_fp32_copies_with_all_gradients_made() -> None:
    found = profile(Regime())
    last = max(m.token for m in found.backward if m.grads >= found.trained - HIDDEN)
    assert last == pytest.approx(26 * HIDDEN, rel=1e-3)


def test_trained_elements_are_the_blocks_parameters() -> None:
    assert profile(Regime()).trained == model_of(LLAMA_8B).blocks[0].numel


def test_sequence_parallelism_shards_the_residual_stream() -> None:
    plain = profile(Regime(tensor_parallel=4))
    sharded = profile(Regime(tensor_parallel=4, sequence_parallel=True))
    assert plain.saved.token - sharded.saved.token == pytest.approx(16 * HIDDEN * 3 / 4)


def test_dtensors_layers_keep_the_tokens_of_all_ranks() -> None:
    regime = Regime(tensor_parallel=4, sequence_parallel=True)
    megatrons, torchs = profile(regime), profile(replace(regime, keeps_gathered=True))
    # Attention's input and the feed-forward part's, in half precision, instead of a quarter of each.
    gathered = 2 * 2 * HIDDEN
    assert torchs.saved.token - megatrons.saved.token == pytest.approx(gathered * 3 / 4)
    tops = [max(moment.token for moment in each.backward) for each in (torchs, megatrons)]
    assert tops[0] - tops[1] >= gathered * 3 / 4


def test_the_backend_says_whether_layers_keep_the_tokens_of_all_ranks() -> None:
    leaves: dict[str, Any] = {
        "model.dims": LLAMA_8B, "trainable.method": "full", "parallel.tp": 4, "parallel.sp": True,
        "parallel.world": 8, "precision.param": "bf16", "precision.compute": "bf16",
    }  # fmt: skip
    for backend, keeps in (("fsdp2", True), ("megatron", False)):
        regime = Facts(Plan().with_values(leaves | {"parallel.backend": backend})).regime
        assert regime is not None
        assert regime.keeps_gathered is keeps


def test_an_adapter_of_some_heads_is_kept_where_it_is_copied_to_its_place() -> None:
    dims = replace(LLAMA_8B, arch="litgpt")
    regime = Regime(
        train_base=False, train_norms=False, targets=frozenset({"qkv"}), rank=8, adapter=2
    )
    whole = profile(regime, dims).saved.token
    # Queries of 32 heads and values of 8 heads, of 48 in all.
    some = profile(replace(regime, scattered=40 / 48), dims).saved.token
    assert some - whole == pytest.approx(2 * 40 * 128)


def test_experts_keep_a_copy_for_every_chosen_one() -> None:
    mixtral = ModelDims(
        arch="mixtral", layers=32, hidden=HIDDEN, heads=HEADS, kv_heads=KV_HEADS,
        head_dim=HEAD_DIM, ffn=FFN, vocab=32000, tie_embeddings=False, act="swiglu", norm="rms",
        moe=Moe(experts=8, topk=2, moe_ffn=FFN),
    )  # fmt: skip
    assert model_of(mixtral).numel == 46_702_792_704
    saved = profile(Regime(), mixtral).saved
    dense_part = 16 * HIDDEN + 4 * WIDTH + 4 * KV + 4 * HEADS
    assert saved.token == pytest.approx(dense_part + 2 * (4 * HIDDEN + 8 * FFN) + 116, rel=1e-3)


def test_latent_attention_keeps_full_heads() -> None:
    lite = ModelDims(
        arch="deepseek_v2", layers=27, hidden=2048, heads=16, kv_heads=16, head_dim=192,
        ffn=10944, vocab=102400, tie_embeddings=False, act="swiglu", norm="rms",
        moe=Moe(experts=64, topk=6, moe_ffn=1408, shared_experts=2, first_dense=1),
        mla=Mla(kv_rank=512, qk_nope=128, qk_rope=64, v_dim=128),
    )  # fmt: skip
    assert model_of(lite).numel == 15_706_484_224
    # Measured 209,572 bytes a token and layer with transformers 5.23 on fake tensors.
    saved = profile(Regime(kernel="efficient"), lite).saved
    assert saved.token == pytest.approx(209_572, rel=5e-3)


def test_gemma_4_has_layers_of_several_kinds() -> None:
    found = lookup("google/gemma-4-E2B-it")
    assert found is not None
    assert found.dims is not None
    model = skeleton(found.dims)
    assert model is not None
    assert model.numel == found.dims.params_total
    below, above = model.blocks[0], model.blocks[-2]
    roles = [{x.role: x for x in block.linears} for block in (below, above, model.blocks[-1])]
    assert [block.head_dim for block in model.blocks[:2]] == [256, 512]
    assert "k" in roles[0]
    assert "k" not in roles[1], "the last 20 layers take keys from below"
    assert roles[1]["up"].outputs == 2 * roles[0]["up"].outputs, "and are twice as wide instead"
    assert {"input_gate", "input_out"} <= set(roles[2])
    # The second embedding has a row for each of the 35 layers.
    assert model.largest_tensor == 262144 * 35 * 256
