"""Modules played by hand: what each keeps a token, and what is alive at the highest instants of its backward.

Inputs are ten numbers of 2 bytes a token unless a test says otherwise, so that a tensor is 20 bytes, 40 in fp32. An
instant is (bytes a token, bytes a score, fixed bytes, elements of gradients made); of all instants those are compared
that no other exceeds in everything. Which tensors an operation keeps is read in torch's derivatives.yaml, and the
operations of a module in the class of transformers 5.23 that the docstring of its writer names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from oomlint.memory.build import skeleton
from oomlint.memory.layers import Regime
from oomlint.memory.layers.profile import Decoder, head_profile
from oomlint.memory.parameters import DecoderBlock, Linear
from oomlint.memory.tape import Tensor
from oomlint.memory.traits import Traits, traits_of
from oomlint.plan.model import ModelDims

_FOUND = skeleton(
    ModelDims(
        arch="llama", layers=1, hidden=10, heads=4, kv_heads=2, head_dim=5, ffn=4, vocab=30,
        tie_embeddings=False, act="swiglu", norm="rms",
    )
)  # fmt: skip
assert _FOUND is not None
MODEL = _FOUND
PLAIN = Regime()
AMP = Regime(stream=4, compute=2, amp=True)
FROZEN = Regime(train_base=False, train_norms=False, train_experts=False)
Write = Callable[[Decoder, Tensor], Tensor]


class Played(NamedTuple):
    """Bytes that are kept, and the instants of forward without gradients and of backward."""

    saved: tuple[float, ...]
    inference: tuple[tuple[float, ...], ...]
    backward: tuple[tuple[float, ...], ...]


def writer(regime: Regime = PLAIN, **model: Any) -> Decoder:
    return Decoder(replace(MODEL, **model), regime)


def played(decoder: Decoder, write: Callable[..., Tensor], *inputs: tuple[float, float]) -> Played:
    """What ``write`` puts on the tape, given tensors of so many numbers of so many bytes."""
    tape = decoder.tape
    given = [tape.tensor(width, bytes_, needs_grad=True) for width, bytes_ in inputs or [(10, 2)]]
    out = write(decoder, *given)
    return Played(tape.saved(), tape.forward_peaks(training=False), tape.replay(out))


def of(
    write: Callable[..., Tensor],
    *inputs: tuple[float, float],
    regime: Regime = PLAIN,
    **model: Any,
) -> Played:
    return played(writer(regime, **model), write, *inputs)


# -- activations --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "saved", "highest"),
    [
        # The input; the gradients of output and input beside it.
        ("silu", 20, 20 + 40),
        ("gelu", 20, 20 + 40),
        # The output.
        ("relu", 20, 20 + 40),
        # What relu gives is what the square is of; twice that within the square's.
        ("relu2", 20, 20 + 40 + 40),
        # Five more within its kernel.
        ("gelu_bloom", 20, 20 + 40 + 100),
        # Input and sigmoid; their gradients beside that of the product.
        ("quick_gelu", 40, 40 + 20 + 40),
        # Half of x, x, tanh, and one more than tanh.
        ("gelu_tanh_python", 80, 80 + 20 + 40),
        # Besides, what tanh's argument is multiplied from: x, a small x, the scaled one.
        ("gelu_fast_python", 140, 140 + 20 + 40),
        # x, its scaled square root term, expm1 and what is taken off it, and a mask of bytes; in backward, when the
        # lower branch is through but for its scaling, x's, expm1's and both branches' gradients and a copy inside.
        ("xielu", 80 + 10, 80 + 4 * 20 + 20),
    ],
)
def test_an_activation_keeps_what_its_terms_ask_for(kind: str, saved: int, highest: int) -> None:
    found = of(Decoder.activate, activation=kind)
    assert found.saved == (saved, 0, 0)
    assert found.backward == ((highest, 0, 0, 0),)


def test_autocast_takes_the_cube_in_fp32_and_all_after_it() -> None:
    """x and tanh in 4 bytes, half of x in 2, one more than tanh in 4; the output is fp32."""
    found = of(Decoder.activate, regime=AMP, activation="gelu_tanh_python")
    assert found.saved == (40 + 40 + 20 + 40, 0, 0)
    assert found.backward == ((140 + 40 + 20 + 40, 0, 0, 0),)


def test_gates_keep_their_product_unless_a_kernel_writes_over_them() -> None:
    gate: Any = Decoder.gate
    plain = of(gate, (10, 2), (10, 2))
    assert plain.saved == (20 + 40, 0, 0)
    assert plain.backward == ((60 + 20 + 40, 0, 0, 0),)
    fused = of(gate, (10, 2), (10, 2), regime=Regime(fused_glu=True))
    assert fused.saved == (40, 0, 0)
    assert fused.backward == ((40 + 20 + 40, 0, 0, 0),)


def test_dropout_keeps_a_byte_for_each_element() -> None:
    for bytes_ in (2, 4):
        found = of(Decoder.dropout, (10, bytes_))
        assert found.saved == (10, 0, 0)
        assert found.backward == ((10 + 20 * bytes_, 0, 0, 0),)


@pytest.mark.parametrize(
    "write",
    [Decoder.scale, Decoder.dropout, lambda decoder, x: decoder.cast(x, 4), Decoder.activate],
)
def test_what_is_made_of_a_tensor_without_gradients_has_none(write: Write) -> None:
    decoder = writer()
    out = write(decoder, decoder.tape.tensor(10, 2))
    assert not out.needs_grad
    assert decoder.tape.saved() == (0, 0, 0)
    assert write(decoder, decoder.tape.tensor(10, 2, needs_grad=True)).needs_grad


# -- norms --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("norm", "trained", "saved", "backward"),
    [
        # x in fp32, its scale, and the weight's input. The square's backward: x, its gradient twice (of both ways), the
        # square's, and two more inside.
        ("rms", True, 40 + 4 + 20, (240, 10)),
        ("rms", False, 40 + 4, (240, 0)),
        ("rms_fp32_weight", True, 40 + 4 + 40, (240, 10)),
        ("rms_fp32_weight", False, 40 + 4, (240, 0)),
        # x as it is beside x in fp32: the former's gradient is half as wide.
        ("t5", True, 40 + 4 + 20 + 20, (220, 10)),
        ("t5", False, 40 + 4 + 20, (220, 0)),
        # The mean taken off twice, and the weight's input. The weight's backward: all of it, gradients of input and
        # output, and their product, in fp32.
        ("ln_fp32", True, 40 + 40 + 4 + 40, (124 + 120, 10)),
        ("ln_fp32", False, 40 + 40 + 4, (240, 0)),
        # Input, mean and deviation.
        ("ln", True, 20 + 8, (28 + 40, 20)),
        ("ln", False, 20 + 8, (28 + 40, 0)),
        ("ln_plain", True, 40 + 8, (48 + 80, 0)),
    ],
)
def test_a_norm_is_highest_where_the_square_goes_back(
    norm: Any, trained: bool, saved: int, backward: tuple[int, int]
) -> None:
    found = of(Decoder.norm, regime=Regime(train_norms=trained), traits=Traits(norm=norm))
    assert found.saved == (saved, 0, 0)
    token, grads = backward
    assert found.backward == ((token, 0, 0, grads),)


def test_ligers_norm_keeps_its_input_and_a_number() -> None:
    for trained in (True, False):
        regime = Regime(fused_norm=True, train_norms=trained)
        for norm in ("rms", "t5", "rms_fp32_weight"):
            found = of(Decoder.norm, regime=regime, traits=Traits(norm=norm))  # type: ignore[arg-type]
            assert found.saved == (24, 0, 0)
            assert found.backward == ((24 + 40, 0, 0, 10 * trained),)


@pytest.mark.parametrize(
    ("arch", "trained", "saved", "grads"),
    [
        # LPLayerNorm casts its input to 2 bytes; torch's is run in fp32. Mean and deviation beside it, and two vectors.
        ("foundry", True, 20 + 8, 20), ("foundry_alibi", True, 28, 20), ("foundry_rope", True, 28, 20),
        ("foundry_wide", True, 40 + 8, 20), ("foundry_rope_wide", True, 48, 20), ("foundry", False, 28, 0),
        # RMSNorm: the input in fp32, a scale, and what is multiplied by the weight.
        ("foundry_rms", True, 40 + 4 + 40, 10),
        # OLMo's own without weights, in fp32.
        ("olmo_plain", True, 40 + 8, 0),
    ],
)  # fmt: skip
def test_norms_of_frameworks_that_write_their_own_blocks(
    arch: str, trained: bool, saved: int, grads: int
) -> None:
    """llm-foundry 8c8dd48f llmfoundry/models/layers/norm.py; allenai/OLMo 59a53e3f olmo/model.py."""
    found = of(
        Decoder.norm,
        (10, 4),
        regime=replace(AMP, train_norms=trained),
        traits=traits_of(arch, layer_norm=True),
    )
    assert found.saved[0] == saved
    assert max(made for *_, made in found.backward) == grads


@pytest.mark.parametrize(
    "arch", ["foundry", "foundry_alibi_rms", "foundry_rope_plain", "olmo_rms", "olmo_ln_after"]
)
def test_frameworks_that_write_their_own_blocks_have_one_projection_for_all_heads(
    arch: str,
) -> None:
    built = skeleton(
        ModelDims(arch=arch, layers=1, hidden=10, heads=4, kv_heads=2, head_dim=5, ffn=4, vocab=30)
    )
    assert built is not None
    widths = {layer.role: layer.outputs for layer in built.blocks[0].linears}
    assert (widths["qkv"], widths["o"]) == (20 + 10 + 10, 10)


def test_autocast_runs_torchs_norm_in_fp32() -> None:
    found = of(Decoder.norm, regime=AMP, traits=Traits(norm="ln"))
    assert found.saved == (40 + 8, 0, 0)
    assert found.backward == ((48 + 80, 0, 0, 20),)


# -- linear layers --------------------------------------------------------------------------------------

Q, OUT = Linear("q", 10, 6), Linear("o", 10, 6)


def linear(layer: Linear) -> Write:
    return lambda decoder, x: decoder.linear(x, layer)


@pytest.mark.parametrize(
    ("regime", "bytes_", "saved", "backward"),
    [
        # The input, and gradients of output and input.
        (Regime(), 2, (20, 0, 0), ((20 + 12 + 20, 0, 0, 60),)),
        (FROZEN, 2, (0, 0, 0), ((12 + 20, 0, 0, 0),)),
        # Input and weight as they are cast; the weight's gradient in half precision before it is fp32.
        (AMP, 4, (20, 0, 120), ((60, 0, 0, 60), (20 + 12 + 20, 0, 240, 60))),
        (replace(AMP, train_base=False), 4, (0, 0, 120), ((12 + 20, 0, 120, 0), (60, 0, 0, 0))),
        (replace(AMP, stream=2), 2, (20, 0, 0), ((52, 0, 0, 60),)),
        # A packed weight is unpacked whole, and kept input was once.
        (replace(FROZEN, quantised=True), 2, (0, 0, 0), ((32, 0, 120, 0),)),
        (replace(FROZEN, quantised=True, keeps_input=True), 2, (20, 0, 0), ((52, 0, 120, 0),)),
        # A scale and a bias of their own: what is scaled is kept, and one product.
        (replace(FROZEN, rescaled=True), 2, (12, 0, 0), ((12 + 12 + 12 + 12, 0, 0, 12),)),
    ],
)  # fmt: skip
def test_a_linear_layer_keeps_its_input_where_it_is_trained(
    regime: Regime, bytes_: int, saved: tuple[int, ...], backward: tuple[tuple[int, ...], ...]
) -> None:
    found = of(linear(Q), (10, bytes_), regime=regime)
    assert found.saved == saved
    assert sorted(found.backward) == sorted(backward)


def test_ranks_split_outputs_of_columns_and_rows_only_where_sequences_are_split() -> None:
    halved = Regime(tensor_parallel=2)
    assert of(linear(Q), regime=halved).inference == ((6, 0, 0),)
    assert of(linear(Q), regime=halved).backward == ((20 + 6 + 20, 0, 0, 30),)
    assert of(linear(OUT), regime=halved).inference == ((12, 0, 0),)
    assert of(linear(OUT), regime=replace(halved, sequence_parallel=True)).inference == ((6, 0, 0),)
    assert of(linear(Q), regime=replace(FROZEN, quantised=True)).inference == ((12, 0, 120),)


LORA = replace(FROZEN, rank=3, targets=frozenset({"q"}), adapter=4)


def test_an_adapter_keeps_its_input_and_what_its_first_factor_makes() -> None:
    """x in fp32 and three numbers of it. The product's gradient is scaled beside the results' own in both widths."""
    found = of(linear(Q), regime=LORA)
    assert found.saved == (40 + 12, 0, 0)
    scaled = 52 + 24 + 12 + 24
    assert found.backward == ((scaled, 0, 0, 0), (40 + 12 + 12 + 40, 0, 0, 18 + 30))
    half = of(linear(Q), regime=replace(LORA, adapter=2))
    assert half.saved == (20 + 6, 0, 0)
    # Its gradient is the result's; then what is scaled beside it.
    assert half.backward == ((26 + 12 + 12, 0, 0, 0), (20 + 12 + 6 + 20, 0, 0, 48))[1:]


def test_dropout_before_an_adapter_keeps_a_mask() -> None:
    found = of(linear(Q), regime=replace(LORA, dropout=True))
    assert found.saved == (10 + 40 + 12, 0, 0)


def test_doras_magnitude_keeps_what_it_multiplies() -> None:
    """The adapter's product in fp32 and the result; in backward both gradients and two products inside."""
    found = of(linear(Q), regime=replace(LORA, dora=True))
    assert found.saved == (52 + 24 + 12, 0, 0)
    highest = 88 + 24 + 12 + 24 + 12 + 48
    assert found.backward == ((highest, 0, 0, 6), (104, 0, 0, 54))


def test_autocast_keeps_an_adapters_factors_as_they_are_cast() -> None:
    regime = replace(LORA, stream=4, amp=True)
    found = of(linear(Q), (10, 4), regime=regime)
    # Beside the base weight, 30 elements of the first factor and 18 of the second; their gradients in half precision.
    assert found.saved == (20 + 6, 0, 120 + 60 + 36)
    assert (20 + 12 + 6 + 20, 0, 120 + 60 + 60, 48) in found.backward


def test_an_adapter_of_some_outputs_is_copied_to_its_place() -> None:
    layer = Linear("qkv", 10, 12)
    regime = replace(LORA, targets=frozenset({"qkv"}), adapter=2, scattered=0.5)
    found = of(linear(layer), regime=regime)
    assert found.saved == (20 + 6 + 2 * 12 / 2, 0, 0)


# -- attention ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "saved", "highest"),
    [
        # The sum's gradient, the rotated half's, x's, and two padded ones inside the slices.
        (1.0, 0, 20 + 20 + 20 + 40),
        # Of four numbers in ten: the whole's gradient and the same of 4.
        (0.4, 0, 20 + 8 + 8 + 16),
        (0.0, 0, 20),
    ],
)
def test_a_rotation_keeps_nothing(share: float, saved: int, highest: int) -> None:
    found = of(lambda decoder, x: decoder.rotate(x, share))
    assert found.saved == (saved, 0, 0)
    assert found.backward == ((highest, 0, 0, 0),)


def test_rotations_in_fp32_and_in_one_kernel() -> None:
    wide = of(Decoder.rotate, traits=Traits(wide_rope=True))
    # The product's gradient in 4 bytes; the half's, x's and two padded ones in 2.
    assert wide.backward == ((40 + 20 + 20 + 40, 0, 0, 0),)
    assert wide.inference == ((40 + 40 + 40, 0, 0),)
    some = of(lambda decoder, x: decoder.rotate(x, 0.4), traits=Traits(wide_rope=True))
    # Of four: 16 of the sum, 8 + 8 + 16 besides, and the whole's 20, of which a part is cast.
    assert some.backward == ((20 + 16 + 8 + 8 + 16, 0, 0, 0),)
    assert of(Decoder.rotate, regime=Regime(fused_rope=True)).backward == ((20, 0, 0, 0),)
    assert of(Decoder.rotate, regime=AMP).backward == ((40 + 20 + 20 + 40, 0, 0, 0),)


# Four heads of 5, and two of keys and values.
HEADS = ((20, 2), (10, 2), (10, 2))


@pytest.mark.parametrize(
    ("qk_norm", "traits", "query", "key"),
    [
        (False, Traits(), 20, 20),
        # The norm's input in fp32, its scale, and what its weight is multiplied with.
        (True, Traits(), 20 + 80 + 4 + 40, 20 + 40 + 4 + 20),
        # Llama4TextL2Norm has no weight and comes after the rotation.
        (True, Traits(l2_qk_norm=True), 20, 20),
    ],
)
def test_queries_and_keys_are_normed_where_they_are_made_or_once_they_are_turned(
    qk_norm: bool, traits: Traits, query: float, key: float
) -> None:
    parts = {"k": Linear("k", 10, 10), "v": Linear("v", 10, 10)}

    def queries(d: Decoder, x: Tensor) -> Tensor:
        return d.queries(x, Linear("q", 10, 20), 20)[0]

    def keys(d: Decoder, x: Tensor) -> Tensor:
        return d.keys_and_values(x, parts)[0]

    def attended(d: Decoder, x: Tensor) -> Tensor:
        every = {"q": Linear("q", 10, 20), **parts, "o": Linear("o", 20, 10)}
        return d.project_and_attend(x, every)

    told = {"qk_norm": qk_norm, "traits": traits}
    assert of(queries, **told).saved == (query, 0, 0)
    assert of(keys, **told).saved == (key, 0, 0)
    if traits.l2_qk_norm:
        plain = of(attended, traits=Traits()).saved[0]
        # Both in fp32 and a scale each.
        assert of(attended, **told).saved[0] == plain + (80 + 4) + (40 + 4)


@pytest.mark.parametrize("arch", ["llama", "falcon_h1"])
def test_mixers_side_by_side_are_added_up_and_both_go_back(arch: str) -> None:
    """Two attentions of one input: 200 elements each of q and o, 100 of k and v."""
    block = replace(MODEL.blocks[0], mixers=("attention", "attention"))
    linears = {layer.role: layer for layer in block.linears}

    def mixed(decoder: Decoder, x: Tensor) -> Tensor:
        return decoder.mixed(x, block, linears)

    found = of(mixed, arch=arch)
    assert max(grads for *_, grads in found.backward) == 2 * 600
    # Both keep their q, k, v and output, and a number a head; the input is one tensor, but scaled for each it is two.
    inputs = 2 if arch == "falcon_h1" else 1
    assert found.saved == (2 * (40 + 20 + 20 + 40 + 16) + inputs * 20, 0, 0)


def attention(regime: Regime, *inputs: tuple[float, float], **model: Any) -> Played:
    attend: Any = Decoder.attention
    return of(attend, *(inputs or HEADS), regime=regime, **model)


@pytest.mark.parametrize(
    ("regime", "saved", "backward"),
    [
        # q, k, v, the output, and 4 bytes a head.
        (Regime(), (136, 0, 0), [(136 + 40 + 80, 0)]),
        # Keys and values as wide as queries.
        (Regime(kernel="efficient"), (4 * 40 + 16, 0, 0), [(176 + 40 + 120, 0)]),
        (Regime(kernel="efficient", dense_mask=True), (176, 2, 0), [(336, 2)]),
        (Regime(dense_mask=True), (176, 2, 0), [(336, 2)]),
        # Scaled q and k, v, and the softmax of scores before and after it is made safe.
        (Regime(kernel="math", batched=False), (80, 16, 0), [(80 + 40 + 40, 16), (80 + 40 + 20, 24)]),
        (Regime(kernel="math"), (120, 16, 0), [(120 + 40 + 40, 24)]),
        # q, k, v; the softmax in fp32 and as it is cast. Its backward is in fp32 and makes a half of it.
        (Regime(kernel="eager"), (120, 24, 0), [(120 + 40 + 40, 24 + 8), (120, 24 + 24)]),
    ],
)  # fmt: skip
def test_kernels_of_attention(
    regime: Regime, saved: tuple[int, ...], backward: list[tuple[int, int]]
) -> None:
    found = attention(regime)
    assert found.saved == saved
    assert sorted(found.backward) == sorted((token, score, 0, 0) for token, score in backward)


def test_one_head_of_keys_is_spread_as_a_view() -> None:
    found = attention(Regime(kernel="efficient"), (20, 2), (5, 2), (5, 2))
    assert found.saved == (40 + 10 + 10 + 40 + 16, 0, 0)
    assert found.backward == ((116 + 40 + 3 * 40, 0, 0, 0),)


def test_ranks_have_a_part_of_the_heads() -> None:
    for kernel, score in (("math", 8), ("eager", 12)):
        regime = Regime(kernel=kernel, tensor_parallel=2, batched=False)  # type: ignore[arg-type]
        assert attention(regime, (10, 2), (5, 2), (5, 2)).saved[1] == score
    flash = attention(Regime(tensor_parallel=2), (10, 2), (5, 2), (5, 2))
    assert flash.saved == (20 + 10 + 10 + 20 + 8, 0, 0)


def test_flash_copies_an_output_that_lies_like_the_query() -> None:
    joined = Traits(concatenated_rope=True)
    assert attention(Regime(), traits=joined).inference == ((80, 0, 0),)
    assert attention(Regime()).inference == ((40, 0, 0),)
    masked = Regime(kernel="efficient", dense_mask=True)
    assert attention(masked, traits=joined).inference == attention(masked).inference


@pytest.mark.parametrize(
    ("traits", "saved", "backward"),
    [
        # fp32 queries, keys and scores, of which the softmax is as wide.
        (Traits(wide_scores=True), (80 + 80 + 40, 24), None),
        # The softmax in half precision: as it is, for the product too.
        (Traits(half_softmax=True), (120, 8), None),
        # The capped scores besides.
        (Traits(attention_softcap=True), (120, 24 + 8), None),
        # A mask of bytes; what is dropped is kept, not what was cast.
        (Traits(attention_dropout=True), (120, 24 + 4), None),
        # One more score a head; its gradient is made with the joined scores'.
        (Traits(sinks=True), (120, 8), [(200, 24, 0), (200, 8, 4), (120, 16, 4)]),
        (Traits(scaled_query=True), (120, 24), [(200, 32, 0), (120, 48, 0)]),
    ],
)
def test_written_attention_keeps_what_its_class_makes(
    traits: Traits, saved: tuple[int, int], backward: list[tuple[int, int, int]] | None
) -> None:
    found = attention(Regime(kernel="eager"), traits=traits)
    assert found.saved == (*saved, 0)
    if backward is not None:
        instants = [(token, score, 0, grads) for token, score, grads in backward]
        assert sorted(found.backward) == sorted(instants)


# -- mixtures of experts --------------------------------------------------------------------------------

# Six experts of three matrices of 10 x 4, of which two are chosen.
MIXTURE = DecoderBlock(
    1, (), 0, expert_numel=6 * 3 * 40, router_numel=60, experts=6, topk=2, moe_ffn=4
)  # fmt: skip


def router(decoder: Decoder, x: Tensor) -> Tensor:
    return decoder.router(x, MIXTURE)


@pytest.mark.parametrize(
    ("traits", "regime", "saved", "backward"),
    [
        # x; fp32 scores of six; indices of two in 8 bytes, the chosen ones and their sum. Choosing goes back over all
        # scores twice.
        (Traits(), Regime(), 20 + 24 + 16 + 8 + 4, [(20 + 24 + 16 + 8 + 48, 0), (20 + 12 + 20, 60)]),
        (Traits(), FROZEN, 24 + 16 + 8 + 4, [(24 + 16 + 8 + 48, 0)]),
        # Peft's adapters of the router keep its input.
        (Traits(), replace(FROZEN, adapted_router=True), 72, [(20 + 24 + 16 + 8 + 48, 0)]),
        (Traits(router_fp32=True), Regime(), 40 + 52, [(40 + 24 + 16 + 8 + 48, 0), (40 + 24 + 40, 60)]),
        # Not cast: two fp32 weights.
        (Traits(router="sigmoid"), Regime(), 72, [(20 + 24 + 16 + 8 + 48, 0), (52, 60)]),
        # The softmax of the chosen two alone, in 2 bytes.
        (Traits(router="chosen"), Regime(), 20 + 16 + 4, [(20 + 12 + 20, 60)]),
    ],
)  # fmt: skip
def test_a_router_keeps_scores_and_the_chosen(
    traits: Traits, regime: Regime, saved: int, backward: list[tuple[int, int]]
) -> None:
    found = of(router, regime=regime, traits=traits)
    assert found.saved == (saved, 0, 0)
    assert sorted(found.backward) == sorted((token, 0, 0, grads) for token, grads in backward)


def test_gates_of_experts_are_halves_of_one_product() -> None:
    plain = of(Decoder.expert_gate, (20, 2))
    # Both halves and the activation; two gradients beside that of their product.
    assert plain.saved == (40 + 20, 0, 0)
    assert plain.backward == ((60 + 20 + 40, 0, 0, 0),)
    clamped = of(Decoder.expert_gate, (20, 2), traits=Traits(clamped_glu=True))
    # Both halves, the clamped gate, its sigmoid, their product, and one more than the clamped other half.
    assert clamped.saved == (40 + 4 * 20, 0, 0)
    assert clamped.backward == ((120 + 20 + 40, 0, 0, 0),)


def experts(decoder: Decoder, x: Tensor) -> Tensor:
    return decoder.experts(x, MIXTURE, {})


def test_grouped_experts_have_a_row_for_each_choice() -> None:
    """Router 72; two permutations of 16; rows of 40, the product of 32, its activation and gated product of 16 each,
    the second product of 40 and two weights."""
    found = of(experts)
    assert found.saved == (72 + 16 + 40 + 32 + 16 + 16 + 40 + 4 + 16, 0, 0)
    assert found.backward == (
        # Weighing: gradients of the weighed rows, of the product and of the weights, and one product inside.
        (236 + 40 + 40 + 4 + 40, 0, 0, 0),
        # The second product, whose input's gradient is made beside it.
        (72 + 16 + 40 + 32 + 16 + 16 + 40 + 4 + 16, 0, 0, 240),
        # The first one.
        (72 + 16 + 40 + 4 + 32 + 40, 0, 0, 720),
        # The router's.
        (20 + 20 + 12 + 20, 0, 0, 780),
    )


def test_experts_that_are_weighed_in_their_activation_keep_less() -> None:
    """Router 72; two permutations of 16; rows of 40, the product of 32 and the weights of 4, which the activation keeps,
    and its result of 16: neither what is activated nor what comes of the second product stays."""
    assert of(experts, regime=Regime(experts="weighted")).saved == (
        72 + 16 + 40 + 32 + 4 + 16 + 16,
        0,
        0,
    )


def test_a_loop_over_experts_makes_whole_gradients_of_the_stack() -> None:
    """Of each expert's part the others are zeros: 480 elements of the first product, 240 of the second."""
    found = of(experts, regime=Regime(experts="loop"))
    assert found.saved == (72 + 32 + 40 + 48 + 16 + 44, 0, 0)
    assert found.backward == (
        (252 + 40 + 44, 0, 0, 0),
        (252 - 44 + 4 + 40 + 16, 0, 480, 240),
        (72 + 32 + 40 + 4 + 32 + 40, 0, 960, 720),
        (72, 0, 0, 780),
    )
    frozen = of(experts, regime=replace(FROZEN, experts="loop"))
    assert frozen.saved == (52 + 32 + 48 + 44, 0, 0)
    assert all(fixed == grads == 0 for _, _, fixed, grads in frozen.backward)
    # Rows that autocast makes half, and the stack's copy.
    cast = of(experts, (10, 4), regime=replace(AMP, experts="loop"))
    assert cast.saved[2] == 2 * 720
    # Weights in fp32 make fp32 of the rows that they weigh: so is the gradient, beside those of the rows and of the weights.
    assert cast.backward[0][0] == cast.saved[0] + 2 * 10 * 4 + 2 * 10 * 2 + 2 * 4


def test_dense_routing_shows_every_token_to_every_expert() -> None:
    """Scores of six in 2 and 4 bytes, six rows of ten before and after they are weighed, the products of six."""
    found = of(experts, traits=Traits(dense_routing=True))
    assert found.saved == (20 + 24 + 12 + 120 + 120 + 96 + 48 + 48, 0, 0)
    assert found.backward == (
        (488 + 120 + 48, 0, 0, 240),
        # Weighing: what is left of it, gradients of rows and weights, and one product inside.
        (20 + 24 + 132 + 120 + 132 + 120, 0, 0, 720),
        (72, 0, 0, 780),
    )


def test_a_shared_expert_may_have_a_gate_of_one_number() -> None:
    shared = replace(MIXTURE, shared_ffn=4)
    layers = {
        name: Linear(name, *ends)
        for name, ends in (("shared_gate", (10, 4)), ("shared_up", (10, 4)), ("shared_down", (4, 10)))
    }  # fmt: skip

    def write(decoder: Decoder, x: Tensor) -> Tensor:
        return decoder.experts(x, shared, layers)

    alone = of(experts).saved[0]
    # Gate, up, the activation and the gated product, of 4 numbers each.
    assert of(write).saved[0] == alone + 4 * 8
    gated = of(write, traits=Traits(gated_shared=True))
    # Besides, what is gated, and the gate.
    assert gated.saved[0] == alone + 4 * 8 + 20 + 2
    assert of(write, regime=FROZEN).saved[0] == of(experts, regime=FROZEN).saved[0] + 3 * 8


# -- other mixers ---------------------------------------------------------------------------------------


def mixed(kind: str, sizes: tuple[int, ...], **layers: tuple[int, int, bool]) -> Write:
    linears = {name: Linear(name, *ends) for name, ends in layers.items()}
    block = DecoderBlock(1, tuple(linears.values()), 0, sizes=sizes)
    return lambda decoder, x: decoder.mix(kind, x, block, linears)


def test_mamba_2_keeps_what_is_projected_and_what_comes_before_the_norm() -> None:
    """Two heads of 6 with a state of 4: 34 numbers are projected to, of which 20 are convolved. The scan works on
    chunks of 256 tokens: 48 / 256 states a token and 256 scores of 4 bytes."""
    mamba = mixed("mamba2", (12, 2, 4, 1), ssm_in=(10, 34, False), ssm_out=(12, 10, False))
    found = of(mamba)
    assert found.saved == (20 + 68 + 24 + 8, 0, 0)
    states, scores = 48 / 256, 256 * 4
    assert found.inference == ((68 + 24 + 2 * 20 + 6 * states + scores, 0, 0),)
    inside = 2 * (2 * 20 + 2 * 12) + 10 * states + 2 * scores
    assert found.backward == ((120 + 24 + 68 + inside, 0, 0, 120), (20 + 68 + 20, 0, 0, 460))
    frozen = of(mamba, regime=FROZEN)
    assert frozen.backward[0][3] == 0
    # Two groups have twice the scores; two ranks a half of everything but the state.
    grouped = mixed("mamba2", (12, 2, 4, 2), ssm_in=(10, 42, False), ssm_out=(12, 10, False))
    assert of(grouped).inference == ((84 + 24 + 2 * 28 + 6 * states + 2 * scores, 0, 0),)
    split = of(grouped, regime=Regime(tensor_parallel=2))
    assert split.inference == ((42 + 12 + 2 * (6 + 2 * 2) + 6 * states / 2 + scores, 0, 0),)
    falcon = of(mamba, arch="falcon_h1")
    assert falcon.saved == found.saved


def test_mamba_keeps_its_projection_turned_and_states_of_some_tokens() -> None:
    """Twelve wide with a state of 4 and a time step of rank 3; states are noted every 2,048 tokens."""
    mamba = mixed(
        "mamba1", (12, 4, 3), ssm_in=(10, 24, False), ssm_x=(12, 11, False), ssm_dt=(3, 12, True),
        ssm_out=(12, 10, False),
    )  # fmt: skip
    found = of(mamba)
    states = 2 * 12 * 4 / 2048 * 4
    assert found.saved == (20 + 48 + 2 * (3 + 16) + states + 24, 0, 0)
    assert found.inference == ((48 + 24 + 2 * 3 * 12, 0, 0),)
    kept = 20 + 48 + 38 + states + 24
    inside = 2 * (8 * 12 + 3 + 2 * 4) + 8 * 4
    # 120 of the way out; 132 and 48 inside; 240 of the way in.
    assert found.backward == (
        (kept + 24 + 48 + inside, 0, 0, 120 + 180), (20 + 48 + 20, 0, 0, 540),
    )  # fmt: skip
    assert {grads for *_, grads in of(mamba, regime=FROZEN).backward} == {0}
    # Each of two ranks has a half of every layer.
    halves = of(mamba, regime=Regime(tensor_parallel=2))
    assert [grads for *_, grads in halves.backward] == [(120 + 180) / 2, 540 / 2]


def test_a_short_convolution_keeps_its_three_parts() -> None:
    """Three parts in one tensor, what is convolved and what comes of it, and what is laid out for the way back."""
    found = of(mixed("conv", (), conv_in=(10, 30, False), conv_out=(10, 10, False)))
    assert found.saved == (20 + 60 + 20 + 20 + 20, 0, 0)
    assert found.backward == ((140 + 20 + 20, 0, 0, 100), (20 + 60 + 20, 0, 0, 400))


DELTA: dict[str, tuple[int, int, bool]] = {
    "la_qkv": (10, 264, False), "la_z": (10, 8, False), "la_b": (10, 4, False),
    "la_a": (10, 4, False), "la_out": (8, 10, False),
}  # fmt: skip
NEXT: dict[str, tuple[int, int, bool]] = {
    "la_qkvz": (10, 272, False), "la_ba": (10, 8, False), "la_out": (8, 10, False),
}  # fmt: skip


def test_a_delta_net_keeps_what_its_chunks_ask_for() -> None:
    """Two key heads of 64 and four value heads of 2, in chunks of 64 tokens."""
    sizes = (2, 4, 64, 2)
    found = of(mixed("delta", sizes, **DELTA))
    # x, what is convolved, the share of b, a in fp32 and its softplus.
    before = 20 + 528 + 8 + 16 + 16
    # Normed q and k, the convolved part, the decay, 64 scores a head, two fp32 norms a key head.
    scan = 256 + 256 + 528 + 16 + 2 * 4 * 64 + 4 * 4
    # The norm of 8, gate and its silu in fp32, what is gated, and the way out's input.
    after = 32 + 4 + 16 + 32 + 32 + 16 + 16
    assert found.saved == (before + scan + after, 0, 0)
    states = 4 * 64 * 2 / 64
    # Gradients of the gate, of the output and of all that goes in; inside, w and u with theirs.
    made = 16 + 16 + 256 + 256 + 16 + 16 + 8
    inside = 2 * (2 * 256 + 3 * 8 + 2 * states)
    assert found.backward[0] == (before + scan + made + inside, 0, 0, 80 + 8)
    # Without gradients: the gate, q, k and v, beta and decay, the output, and w, u, new values and states.
    inside = 2 * (256 + 2 * 8 + states)
    assert max(found.inference)[0] == 16 + 528 + 8 + 16 + 16 + inside
    # Ranks have a part of the heads: all of it is half but x, and what each of them puts in whole.
    halved = of(mixed("delta", sizes, **DELTA), regime=Regime(tensor_parallel=2))
    assert halved.saved[0] == 20 + (before - 20 + scan + after - 4) / 2 + 4
    # What Qwen3-Next's two products put together is copied apart, and of b its own half is kept.
    joined = of(mixed("delta", sizes, **NEXT))
    assert joined.saved == found.saved


def test_a_gated_norm_multiplies_in_fp32() -> None:
    """Kept: what a norm keeps, its output, the gate and its silu in fp32. The product goes back with both gradients, its
    own and one product; then the norm's highest beside the gate's gradient."""
    gated: Any = Decoder.gated_norm
    found = of(gated, (10, 2), (10, 2))
    assert found.saved == (64 + 20 + 40 + 40, 0, 0)
    assert found.backward == ((164 + 40 + 20 + 40 + 40, 0, 0, 0), (240 + 20, 0, 0, 10))


# -- the head -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("regime", "trained", "upcast", "saved", "backward"),
    [
        # The norm, its output, fp32 log-probabilities of 30 words; two gradients of them; then the norm's highest.
        (Regime(), True, True, (64 + 20 + 120, 0), [(204 + 240, 0, 0), (240, 0, 310)]),
        (Regime(), False, True, (64 + 120, 0), [(184 + 240, 0, 0), (240, 0, 10)]),
        (Regime(), True, False, (64 + 20 + 60, 0), [(144 + 120, 0, 0), (240, 0, 310)]),
        (replace(FROZEN, tensor_parallel=2), False, True, (44 + 60, 0), [(240, 0, 0)]),
    ],
)
def test_the_heads_highest_instants_are_the_softmaxs_and_the_norms(
    regime: Regime, trained: bool, upcast: bool, saved: tuple[int, int], backward: list[Any]
) -> None:
    profile = head_profile(MODEL, regime, trained, upcast)
    assert (profile.saved.token, profile.saved.fixed) == saved
    assert sorted(profile.backward) == sorted((t, 0, fixed, grads) for t, fixed, grads in backward)


def test_the_heads_weight_is_cast_under_autocast_and_capped_logits_are_kept() -> None:
    wide = head_profile(MODEL, AMP, True, False)
    # The norm of fp32: x, a number, the weight's input; its output as it is cast; fp32 log-probabilities.
    assert wide.saved == (40 + 4 + 40 + 20 + 120, 0, 600)
    assert any(fixed == 2 * 600 and grads == 300 for _, _, fixed, grads in wide.backward)
    capped = replace(MODEL, traits=Traits(logit_softcap=True))
    found = head_profile(capped, Regime(), True, True)
    assert found.saved.token == 64 + 20 + 60 + 120
