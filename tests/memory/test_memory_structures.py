"""From dimensions to blocks: stand-ins by size, mixers, and what counts say beyond the dimensions, by hand."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from oomlint.memory import stand_ins
from oomlint.memory.build import _Parts, skeleton, without_head
from oomlint.memory.parameters import DecoderBlock, DecoderStructure
from oomlint.memory.stand_ins import mixture_class, size_class, stand_in
from oomlint.memory.traits import _TRAITS
from oomlint.memory.vision import tower_of
from oomlint.models.architectures import BARTS, BERTS
from oomlint.plan.model import Mla, ModelDims, Moe, VisionTower

SMALL = ModelDims(
    arch="llama", layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=128, vocab=1000,
    tie_embeddings=False, act="swiglu", norm="rms",
)  # fmt: skip
BLOCK, END, NORM = 36_992, 64_000, 64
NUMEL = 2 * (BLOCK + END) + NORM
FEED = 3 * 64 * 128

NANOGPT = {"nanogpt", "nanogpt_dropless"}


@pytest.fixture(autouse=True)
def _uncounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts of real classes say would hide what is put together wrongly: it is spread over the layers."""
    monkeypatch.setattr("oomlint.models.count.count_parameters", lambda dims: None)
    monkeypatch.setattr("oomlint.memory.build._SEEN", {})


def built(dims: ModelDims = SMALL, **changes: Any) -> DecoderStructure:
    found = skeleton(replace(dims, **changes))
    assert found is not None
    return found


def block(**changes: Any) -> DecoderBlock:
    return built(**changes).blocks[0]


def roles(found: DecoderBlock) -> dict[str, tuple[int, int, bool]]:
    return {x.role: (x.inputs, x.outputs, x.bias) for x in found.linears}


# -- stand-ins ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("total", "hidden", "kv", "vocab"),
    [
        # The cube root of total x 128 / 12, in steps of 128, and less where that is more than the total.
        (7_000_000_000, 3840, 7, 128_000),
        (100_000_000, 768, 1, 32_000),
        # Up to a width of 2,048 embeddings are tied and small.
        (1_000_000_000, 2048, 4, 32_000),
        (1_700_000_000, 2176, 4, 128_000),
    ],
)
def test_a_size_alone_stands_for_a_llama(total: int, hidden: int, kv: int, vocab: int) -> None:
    """Heads of 128, as many layers as heads, a fourth of the heads for keys, and a feed-forward part of 7 / 2."""
    layers = hidden // 128
    assert size_class(total) == ModelDims(
        arch="llama", layers=layers, hidden=hidden, heads=layers, kv_heads=kv, head_dim=128,
        ffn=hidden * 7 // 2, vocab=vocab, tie_embeddings=hidden <= 2048, act="swiglu", norm="rms",
        params_total=total,
    )  # fmt: skip
    assert built(size_class(total)).numel == total


def test_a_stand_in_is_found_in_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its blocks have 13 h^2 parameters and not 12, so that it is (12 / 13)^(1 / 3) as wide as where the search begins: of
    forty widths one is too much."""
    tried: list[int] = []

    def build(dims: ModelDims) -> Any:
        tried.append(dims.layers or 0)
        assert len(tried) <= most
        return made(dims)

    made = stand_ins.build
    monkeypatch.setattr(stand_ins, "build", build)
    for total in (10**9, 10**11, 10**13):
        tried.clear()
        most = 2 + (total * 128 / 12) ** (1 / 3) / 128 / 38
        assert size_class(total).layers == tried[-1]


def test_the_smallest_stand_in_has_a_block_and_an_embedding() -> None:
    least = 4 * 128 * 128 + 3 * 128 * 448 + 2 * 128 + 32_000 * 128 + 128
    assert size_class(1_000_000).params_total == least
    assert size_class(5_000_000).params_total == 5_000_000
    assert size_class(1_000_000).hidden == size_class(5_000_000).hidden == 128
    assert size_class(10**30).params_total == 10**15


def test_a_mixture_of_two_sizes_has_128_experts() -> None:
    """What a token does not pass is 120 of 128 experts, in each of 22 layers 2,816 wide."""
    found = mixture_class(30_000_000_000, 3_000_000_000)
    dense = size_class(3_000_000_000)
    assert (dense.layers, dense.hidden) == (22, 2816)
    width = 27_000_000_000 * 128 // 120 // (3 * 22 * 2816 * 128)
    assert found == replace(
        dense, arch="qwen3_moe", params_total=30_000_000_000,
        moe=Moe(experts=128, topk=8, moe_ffn=width),
    )  # fmt: skip
    assert width == 1210


@pytest.mark.parametrize(
    ("active", "arch"),
    [(None, "llama"), (3_000_000_000, "qwen3_moe"), (5_000_000_000, "llama"), (4_999_999_999, "qwen3_moe")],
)  # fmt: skip
def test_a_mixture_stands_in_where_a_token_passes_less_than_half(
    active: int | None, arch: str
) -> None:
    dims = ModelDims(params_total=10_000_000_000, params_active=active)
    assert stand_in(dims).arch == arch


def test_a_model_without_its_head() -> None:
    assert without_head(SMALL) == replace(
        SMALL, params_lm_head=0, params_total=NUMEL - END, tie_embeddings=False
    )
    tied = replace(SMALL, tie_embeddings=True)
    assert without_head(tied).params_total == NUMEL - END
    headless = replace(SMALL, params_lm_head=0)
    assert without_head(headless) is headless
    assert without_head(ModelDims()) == ModelDims()


@pytest.mark.parametrize("missing", ["layers", "hidden", "vocab"])
def test_without_a_dimension_nothing_is_built(missing: str) -> None:
    assert skeleton(replace(SMALL, **{missing: None})) is None  # type: ignore[arg-type]
    assert skeleton(replace(SMALL, layers=100_001)) is None


# -- what the dimensions leave open -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "heads", "head_dim", "kv", "ffn"),
    [
        ({}, 4, 16, 2, 128),
        ({"kv_heads": None}, 4, 16, 4, 128),
        # Heads of 128 where nobody says, and the rest from their number.
        ({"heads": None, "head_dim": None, "hidden": 512, "kv_heads": None}, 4, 128, 4, 128),
        ({"heads": None, "head_dim": 32, "kv_heads": None}, 2, 32, 2, 128),
        ({"head_dim": None, "heads": 8}, 8, 8, 2, 128),
        ({"heads": None, "head_dim": None, "kv_heads": None}, 1, 64, 1, 128),
        # Two thirds of four times the width with a gate, else four times.
        ({"ffn": None, "hidden": 96}, 4, 16, 2, 256),
        ({"ffn": None, "act": "gelu"}, 4, 16, 2, 256),
    ],
)
def test_dimensions_that_nobody_gives(
    changes: dict[str, Any], heads: int, head_dim: int, kv: int, ffn: int
) -> None:
    found = built(**changes)
    assert (found.heads, found.head_dim, found.kv_heads, found.ffn) == (heads, head_dim, kv, ffn)


@pytest.mark.parametrize(
    ("arch", "act", "activation"),
    [
        ("llama", "swiglu", "silu"), ("llama", "geglu", "gelu"), ("llama", "gelu", "gelu"),
        ("llama", "relu", "relu"), ("llama", "relu2", "relu2"), ("llama", None, "silu"),
        ("nanogpt", None, "gelu"), ("gpt2", None, "gelu_tanh_python"), ("opt", "relu", "relu"),
    ],
)  # fmt: skip
def test_an_activation_is_said_or_the_classs_own(
    arch: str, act: str | None, activation: str
) -> None:
    assert built(arch=arch, act=act).activation == activation


def test_gpt_neox_20b_has_an_activation_of_its_own() -> None:
    own = {
        "arch": "gpt_neox",
        "act": "gelu",
        "hidden": 6144,
        "heads": 64,
        "kv_heads": 64,
        "head_dim": 96,
    }
    assert built(**own, layers=44).activation == "gelu_fast_python"
    assert built(**own, layers=43).activation == "gelu"
    assert built(**{**own, "arch": "gpt2"}, layers=44).activation == "gelu_tanh_python"
    assert built(**{**own, "hidden": 6080, "head_dim": 95}, layers=44).activation == "gelu"


@pytest.mark.parametrize(
    ("changes", "biased"),
    [
        ({}, set()),
        # Llama's attention_bias is the output's too, Qwen2's are its queries', keys' and values'.
        ({"attn_bias": True}, {"q", "k", "v", "o"}),
        ({"arch": "qwen2", "attn_bias": True}, {"q", "k", "v"}),
        ({"mlp_bias": True}, {"gate", "up", "down"}),
        ({"arch": "opt", "act": "relu"}, {"q", "k", "v", "o", "up", "down"}),
        ({"arch": "opt", "act": "relu", "attn_bias": False, "mlp_bias": False}, {"o"}),
        ({"arch": "gpt_neo", "act": "gelu"}, {"o"}),
    ],
)
def test_biases(changes: dict[str, Any], biased: set[str]) -> None:
    found = block(**changes)
    assert {role for role, (_, _, bias) in roles(found).items() if bias} == biased
    assert found.linear_numel == sum(
        x.inputs * x.outputs + x.outputs * x.bias for x in found.linears
    )


def test_norms_of_a_block() -> None:
    assert block().norm_numel == 2 * 64
    assert block(arch="gpt2", act="gelu", norm="ln").norm_numel == 2 * 2 * 64
    # OLMo's have no weights; GPT-J has one norm, Falcon two in its new architecture alone.
    assert block(arch="olmo").norm_numel == 0
    falcon = {"arch": "falcon", "act": "gelu", "norm": "ln"}
    norms = [block(**falcon, kv_heads=heads).norm_numel for heads in (1, 4, 2)]
    assert norms == [2 * 64, 2 * 64, 2 * 2 * 64]


@pytest.mark.parametrize(
    ("arch", "norm", "vectors"),
    [
        # Before and after attention and feed-forward part.
        ("gemma2", "rms", 4), ("gemma3_text", "rms", 4), ("glm4", "rms", 4), ("afmoe", "rms", 4),
        ("olmo2", "rms", 2), ("olmo3", "rms", 2), ("qwen3_next", "rms", 2), ("t5", "rms", 2),
        # With biases, so that a norm is two vectors; GPT-J's, Phi's and CodeGen's blocks have one norm.
        ("gpt_neox", "ln", 4), ("bloom", "ln", 4), ("opt", "ln", 4), ("starcoder2", "ln", 4),
        ("stablelm", "ln", 4), ("nemotron", "ln", 4), ("persimmon", "ln", 4), ("bert", "ln", 4),
        ("gptj", "ln", 2), ("phi", "ln", 2), ("codegen", "ln", 2),
        # Without: CohereLayerNorm and MPT's and ModernBERT's LayerNorm.
        ("cohere", "ln", 1), ("cohere2", "ln", 1), ("mpt", "ln", 2), ("modernbert", "ln", 2), ("dbrx", "ln", 2),
    ],
)  # fmt: skip
def test_norms_of_the_blocks_of_a_class(arch: str, norm: str, vectors: int) -> None:
    """Of each class a block was built on the meta device with transformers 5.24, and its norms as wide as the model were
    counted: their weights, and biases where they have any. T5's were read (models/t5/modeling_t5.py T5LayerNorm)."""
    assert block(arch=arch, norm=norm, act=None).norm_numel == vectors * 64


def test_heads_that_rotate_in_part_are_put_together_by_torch_cat() -> None:
    """So do Phi-3's apply_rotary_pos_emb, litgpt's GPT and ChatGLM-6B's SelfAttention, whose heads may rotate whole. GPT-J's and CodeGen's lie
    otherwise, and their attention is always written out."""
    joined = {arch for arch, traits in _TRAITS.items() if traits.concatenated_rope}
    partly = {arch for arch, traits in _TRAITS.items() if 0 < traits.rotary < 1}
    assert joined - partly == {"phi3", "litgpt", "chatglm_6b"}
    assert partly - joined == {"gptj", "codegen"}


def test_what_scores_tokens_norms_its_keys_with_a_bias() -> None:
    """DeepseekV32Indexer, k_norm: a LayerNorm of the index's width beside those of the two ranks."""
    mla = Mla(q_rank=96, kv_rank=48, qk_nope=24, qk_rope=8, v_dim=40)
    assert block(mla=mla).other_numel == 96 + 48
    indexed = replace(mla, index_heads=2, index_dim=16)
    assert block(mla=indexed).other_numel == 96 + 48 + 2 * 16


@pytest.mark.parametrize(
    ("share", "classes"),
    [
        # Positions are learned, or a bias of the scores.
        (0, {"gpt2", "gpt_bigcode", *NANOGPT, "gpt_neo", "openai-gpt", "opt", "bloom", "mpt", "biogpt", "xglm", "ctrl",
             "whisper", "olmo_hybrid", "t5", "mt5", "umt5"}),
        (0.25, {"gptj", "gpt_neox", "codegen", "stablelm", "qwen3_next", "qwen3_5", "qwen3_5_moe"}),
        (0.4, {"phi", "litgpt_phi"}),
        (0.5, {"persimmon", "fuyu", "nemotron", "chatglm", "glm", "glm4", "glm4v", "glm46v", "glm4_moe", "glm4v_moe",
               "minimax_m2"}),
        (0.75, {"phi4_multimodal"}),
    ],
)  # fmt: skip
def test_so_much_of_a_head_rotates(share: float, classes: set[str]) -> None:
    """Classes that transformers 5.24 has were built on the meta device with the defaults of their configuration: twice the
    length of inv_freq, or GPT-J's and CodeGen's rotary_dim, beside head_dim; nought where nothing rotates. Two are what
    published files say: Phi-2's 0.4, where Phi-1's and the class's default are 0.5, and MiniMax-M2's 64 of 128, where the class rotates
    whole heads unless it is told. OLMo-Hybrid rotates nothing unless its file has a rope_theta. GLM-4V's and GLM-4.6V's were read
    (models/glm4v/modeling_glm4v.py), ChatGLM's and litgpt's stand in their own code."""
    others = {*BERTS, *BARTS}
    found = {
        arch for arch, traits in _TRAITS.items() if traits.rotary == share and arch not in others
    }
    assert {arch for arch in found if not arch.startswith("foundry")} == classes


@pytest.mark.parametrize(
    ("arch", "elements"),
    [
        # One head's width each, or all heads' of queries and of keys; Llama 4's norm has no weight.
        ("qwen3", 16 + 16), ("olmoe", 64 + 32), ("olmo2", 64 + 32), ("olmo3", 64 + 32), ("minimax_m2", 64 + 32),
        ("llama4", 0),
    ],
)  # fmt: skip
def test_norms_of_queries_and_keys(arch: str, elements: int) -> None:
    """q_norm and k_norm of an attention of each class, built on the meta device with transformers 5.24; Llama 4's
    Llama4TextL2Norm has no parameters."""
    assert block(arch=arch, qk_norm=True).other_numel == elements
    assert block(arch=arch).other_numel == 0


@pytest.mark.parametrize(
    ("mla", "ranks"),
    [
        (Mla(kv_rank=512), (0, 512, 128, 64, 128)),
        (Mla(q_rank=96, kv_rank=48, qk_nope=24, qk_rope=8, v_dim=40), (96, 48, 24, 8, 40)),
        (Mla(q_rank=96), None),
    ],
)
def test_latent_attention_has_the_sizes_of_deepseek_where_nobody_says(
    mla: Mla, ranks: tuple[int, ...] | None
) -> None:
    found = built(mla=mla)
    assert found.mla == ranks
    assert found.value_dim == (16 if ranks is None else ranks[-1])
    if ranks is None:
        return
    q_rank, kv_rank, nope, rope, value = ranks
    query = (
        {"q_a": (64, q_rank, False), "q_b": (q_rank, 4 * (nope + rope), False)}
        if q_rank
        else {"q": (64, 4 * (nope + rope), False)}
    )
    attention = {
        **query, "kv_a": (64, kv_rank + rope, False),
        "kv_b": (kv_rank, 4 * (nope + value), False), "o": (4 * value, 64, False),
    }  # fmt: skip
    feed = {"gate", "up", "down"}
    assert {k: v for k, v in roles(found.blocks[0]).items() if k not in feed} == attention
    assert found.blocks[0].other_numel == q_rank + kv_rank


# -- mixers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "inner", "rank", "kernel"),
    [
        ({}, 128, 4, 4),
        ({"ffn": 96}, 96, 4, 4),
        ({"ssm": {"state_size": 16, "expand": 3}}, 192, 4, 4),
        ({"ssm": {"state_size": 16, "time_step_rank": 7, "conv_kernel": 3}}, 128, 7, 3),
        ({"hidden": 65}, 130, 5, 4),
    ],
)
def test_a_mamba_block(changes: dict[str, Any], inner: int, rank: int, kernel: int) -> None:
    """In and gate; time step, B and C of a state of 16; the step's bias; a convolution with its bias, A and D."""
    sizes: dict[str, Any] = {"arch": "mamba", "ffn": None, "ssm": {"state_size": 16}, **changes}
    found = block(**sizes)
    hidden = changes.get("hidden", 64)
    assert roles(found) == {
        "ssm_in": (hidden, 2 * inner, False), "ssm_x": (inner, rank + 2 * 16, False),
        "ssm_dt": (rank, inner, True), "ssm_out": (inner, hidden, False),
    }  # fmt: skip
    assert found.other_numel == inner * (kernel + 1 + 16 + 1)
    assert (found.norm_numel, found.feeds, found.mixers) == (hidden, False, ("mamba1",))
    assert found.sizes == (inner, 16, rank)


def test_a_delta_block() -> None:
    """Two key heads of 8 and four value heads of 4: a convolution of 4 over keys twice and values, a bias and a decay
    a head, and a norm of one head."""
    linear = {
        "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
        "linear_value_head_dim": 4,
    }  # fmt: skip
    own: dict[str, Any] = {"layer_types": ("linear_attention",), "linear_attn": linear}
    found = block(arch="qwen3_5", **own)
    feed = {"gate": (64, 128, False), "up": (64, 128, False), "down": (128, 64, False)}
    out = {"la_out": (16, 64, False)}
    assert roles(found) == {
        "la_qkv": (64, 48, False), "la_z": (64, 16, False), "la_b": (64, 4, False),
        "la_a": (64, 4, False), **out, **feed,
    }  # fmt: skip
    assert found.other_numel == 48 * 4 + 2 * 4 + 4
    joined = block(arch="qwen3_next", **own)
    assert roles(joined) == {"la_qkvz": (64, 64, False), "la_ba": (64, 8, False), **out, **feed}
    wide = block(arch="qwen3_5", **{**own, "linear_attn": {**linear, "linear_conv_kernel_dim": 6}})
    assert wide.other_numel - found.other_numel == 2 * 48


def test_falcon_h1_has_a_mixer_beside_attention_and_no_norm_in_it() -> None:
    ssm = {"mamba_n_heads": 8, "mamba_d_ssm": 128, "mamba_d_state": 16}
    found = block(arch="falcon_h1", ssm=ssm)
    assert found.mixers == ("mamba2", "attention")
    mixed = 128 + 2 * 16
    assert found.other_numel == 5 * mixed + 3 * 8
    assert roles(found)["ssm_in"] == (64, 128 + mixed + 8, False)
    other = block(arch="bamba", ssm=ssm, layer_types=("mamba",))
    assert other.mixers == ("mamba2",)
    assert other.other_numel == 5 * mixed + 3 * 8 + 128
    assert block(
        arch="bamba", ssm={**ssm, "mamba_d_conv": 7}, layer_types=("mamba",)
    ).other_numel == (8 * mixed + 3 * 8 + 128)


def test_nemotron_h_has_one_thing_a_layer() -> None:
    ssm = {"mamba_num_heads": 8, "mamba_head_dim": 16, "ssm_state_size": 16}
    kinds = ("mamba", "moe", "mlp", "attention")
    found = built(
        arch="nemotron_h", act="relu2", layers=4, layer_types=kinds, ssm=ssm,
        moe=Moe(experts=8, topk=2, moe_ffn=32),
    )  # fmt: skip
    assert [b.mixers for b in found.blocks] == [("mamba2",), (), (), ("attention",)]
    assert [b.feeds for b in found.blocks] == [False, True, True, False]
    assert [b.experts for b in found.blocks] == [0, 8, 0, 0]
    assert [b.norm_numel for b in found.blocks] == [64] * 4
    # Two matrices an expert without a gate.
    assert found.blocks[1].expert_numel == 8 * 2 * 64 * 32
    assert set(roles(found.blocks[2])) == {"up", "down"}


# -- mixtures -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moe", "sparse"),
    [
        (Moe(experts=8), [True] * 6),
        (Moe(experts=8, first_dense=2), [False] * 2 + [True] * 4),
        (Moe(experts=8, every_n=2), [False, True] * 3),
        (Moe(experts=8, every_n=3, first_dense=3), [False] * 5 + [True]),
        (Moe(experts=0), [False] * 6),
    ],
)
def test_some_layers_are_dense(moe: Moe, sparse: list[bool]) -> None:
    found = built(arch="mixtral", layers=6, moe=moe)
    assert [bool(b.experts) for b in found.blocks for _ in range(b.count)] == sparse
    dense = [b for b in found.blocks if not b.experts]
    assert all("gate" in roles(b) for b in dense)
    if not all(sparse):
        assert len({id(b) for b in dense if b.count == dense[0].count}) == 1


def test_experts_shared_ones_and_routers() -> None:
    found = block(arch="mixtral", moe=Moe(experts=8))
    # As wide as the feed-forward layer, and two of them, where nobody says otherwise.
    assert (found.expert_numel, found.router_numel, found.topk) == (8 * FEED, 8 * 64, 2)
    deep = block(arch="deepseek_v2", moe=Moe(experts=8, topk=3, moe_ffn=32, shared_experts=2))
    assert (deep.moe_ffn, deep.shared_ffn, deep.topk) == (32, 64, 3)
    assert roles(deep)["shared_gate"] == (64, 64, False)
    told = block(arch="qwen2_moe", attn_bias=True, moe=Moe(experts=8, moe_ffn=32, shared_ffn=48))
    assert roles(told)["shared_down"] == (48, 64, False)
    assert roles(told)["shared_weight"] == (64, 1, False), "a gate of the shared expert"
    assert told.other_numel == 0
    oss = block(arch="gpt_oss", attn_bias=True, moe=Moe(experts=8, moe_ffn=32))
    # Biases of both products and of the router, and a sink a head.
    assert oss.other_numel == 8 * (2 * 32 + 64 + 1) + 4


def test_an_encoder_and_a_decoder() -> None:
    """T5: two stacks of two layers; a decoder's layers attend to the encoder besides, behind a norm of their own."""
    found = built(arch="t5", act="relu", kv_heads=None)
    encoder, decoder = found.blocks
    assert (encoder.count, decoder.count, encoder.crosses, decoder.crosses) == (2, 2, False, True)
    assert decoder.linear_numel - encoder.linear_numel == 4 * 64 * 64
    assert decoder.norm_numel - encoder.norm_numel == 64
    assert {"cross_q", "cross_k", "cross_v", "cross_o"} <= set(roles(decoder))


# -- counts beside the dimensions -----------------------------------------------------------------------


def test_what_a_count_has_beyond_the_blocks_is_spread_over_the_layers() -> None:
    found = built(params_total=NUMEL + 101)
    assert found.numel == NUMEL + 101
    assert found.blocks[0].other_numel == 50
    assert found.other_numel == 1


def test_what_a_count_lacks_is_taken_off_every_layer() -> None:
    total = NUMEL - 30_000
    found = built(params_total=total)
    assert found.numel == total
    share = (2 * BLOCK - 30_000) / (2 * BLOCK)
    expected = {role: int(outputs * share) for role, (_, outputs, _) in roles(block()).items()}
    assert {role: outputs for role, (_, outputs, _) in roles(found.blocks[0]).items()} == expected
    assert found.blocks[0].norm_numel == int(128 * share)
    moe: dict[str, Any] = {"arch": "mixtral", "moe": Moe(experts=8, moe_ffn=32)}
    whole = built(**moe)
    part = built(**moe, params_total=whole.numel - 20_000)
    share = 1 - 20_000 / whole.block_numel
    assert part.blocks[0].expert_numel == int(whole.blocks[0].expert_numel * share)
    assert part.blocks[0].router_numel == int(whole.blocks[0].router_numel * share)
    # Less than the ends alone leaves nothing of the blocks.
    assert built(params_total=100_000).numel == 100_000
    assert built(params_total=100_000).block_numel == 0


def test_linear_layers_that_nothing_names_are_mixers() -> None:
    linear = 2 * 36_864
    counted: dict[str, Any] = {
        "params_linear": linear + 2 * 64 * 100,
        "params_total": NUMEL + 20_000,
    }
    assert roles(block(**counted))["mixer"] == (64, 100, False)
    # A hundredth is no mixer, and neither is what the total has no room for.
    assert "mixer" not in roles(block(**{**counted, "params_linear": linear + 740}))
    assert "mixer" not in roles(block(**{**counted, "params_total": NUMEL + 12_799 - NORM}))
    assert "mixer" in roles(block(**{**counted, "params_total": NUMEL + 12_800 - NORM}))


def test_towers_are_counted_or_what_is_left() -> None:
    eyes: dict[str, Any] = {"arch": "qwen2_vl", "attn_bias": False}
    named = built(**eyes, vision=VisionTower(params=5_000), params_total=NUMEL + 5_000)
    assert (named.vision_numel, named.other_numel) == (5_000, 0)
    left = built(**eyes, vision=VisionTower(), params_total=NUMEL + 7_001)
    assert (left.vision_numel, left.other_numel, left.blocks[0].other_numel) == (7_001, 0, 0)


def test_positions_and_norms_at_the_ends() -> None:
    opt = built(arch="opt", act="relu", norm="ln", ctx=512)
    assert opt.position_numel == (512 + 2) * 64
    assert opt.final_norm_numel == 2 * 64
    assert built(arch="gpt2", act="gelu", ctx=None).position_numel == 2048 * 64
    assert built(arch="bloom", act="gelu", norm="ln").position_numel == 2 * 64
    assert built(arch="gptj", act="gelu", norm="ln").head_numel == END + 1000
    assert built(arch="phi", act="gelu", norm="ln", tie_embeddings=True).head_numel == 0


@pytest.mark.parametrize(
    ("arch", "gated", "norm", "scaled"),
    [
        *[(a, False, 128, 0) for a in ("qwen2_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe")],
        *[(a, True, 64, 0) for a in ("qwen2_5_vl", "qwen2_5_omni_thinker")],
        *[(a, False, 128, 0) for a in ("llava", "llava_next", "gemma3", "paligemma", "idefics3", "smolvlm")],
        *[(a, False, 128, 0) for a in ("minicpmv", "minicpmv2", "mllama")],
        ("internvl", False, 128, 128),
    ],
)  # fmt: skip
def test_a_towers_block_is_that_of_its_class(
    arch: str, gated: bool, norm: int, scaled: int
) -> None:
    """Four projections of 64 x 64 and two or three of 64 x 128, with biases; two norms; a factor an element twice."""
    vision = VisionTower(layers=2, hidden=64, heads=4, ffn=128, patch=14, params=100_000)
    tower = tower_of(ModelDims(arch=arch, hidden=32, vision=vision))
    assert tower is not None
    (found,) = tower.skeleton.blocks
    matrices = 4 * (64 * 64 + 64) + 64 * 128 + 128 + 128 * 64 + 64 + gated * (64 * 128 + 128)
    assert found.numel == matrices + 2 * norm + scaled
    assert ("gate" in roles(found)) is gated
    assert tower.checkpoints is (arch not in ("minicpmv2", "mllama"))
    # Qwen's mergers are as wide as a patch inside, others as the text model for each token.
    assert tower.inner == (
        0 if arch == "gemma3" else 64 if not tower.cut.side else 32 / tower.cut.merge
    )
    assert (tower.skeleton.head_dim, tower.skeleton.value_dim) == (16, 16)


@pytest.mark.parametrize(
    ("arch", "patch", "inner"),
    # Mistral 3 merges four patches before it projects them, Pixtral none. GLM's merger keeps four rows of 32 and four of
    # 96 a token of four patches, a hidden layer three.
    [("mistral3", 14, 64), ("llava", 16, 32), *((a, 14, 4 * (32 + 96) / 12) for a in ("glm4v", "glm46v", "glm4v_moe"))],
)  # fmt: skip
def test_some_towers_are_gated_without_biases(arch: str, patch: int, inner: float) -> None:
    vision = VisionTower(layers=2, hidden=64, heads=4, ffn=128, patch=patch, params=100_000)
    tower = tower_of(ModelDims(arch=arch, hidden=32, ffn=96, vision=vision))
    assert tower is not None
    assert tower.skeleton.blocks[0].numel == 4 * 64 * 64 + 3 * 64 * 128 + 2 * 64
    assert tower.inner == inner
    assert tower.cut.merge == (1 if arch == "llava" else 4)


# Two heads of keys of 4 and three of values of 5 over 10 hidden numbers: 8 keys, 15 values.
_DELTA = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 3, "linear_key_head_dim": 4,
    "linear_value_head_dim": 5,
}  # fmt: skip
_APART = {"la_q": 80, "la_k": 80, "la_v": 150}


def parts(arch: str, linear: dict[str, int], **changes: Any) -> _Parts:
    small = replace(SMALL, arch=arch, hidden=10, head_dim=5, linear_attn=linear, **changes)
    return _Parts(small, 10, 2)


@pytest.mark.parametrize(
    ("arch", "numels", "decays"),
    [
        ("qwen3_5", {"la_qkv": 310, "la_z": 150, "la_b": 30, "la_a": 30, "la_out": 150}, 3),
        ("qwen3_next", {"la_qkvz": 460, "la_ba": 60, "la_out": 150}, 3),
        ("olmo_hybrid", {**_APART, "la_z": 150, "la_b": 30, "la_a": 30, "la_o": 150}, 3),
        # A decay for each value; Kimi's go through five numbers.
        ("kimi_linear", {**_APART, "la_b": 30, "la_a_in": 50, "la_a": 75, "la_z_in": 50, "la_z": 75, "la_o": 150}, 15),
        ("bailing_hybrid", {**_APART, "la_b": 30, "la_a": 150, "la_z": 150, "la_o": 150}, 15),
    ],
)  # fmt: skip
def test_a_delta_net_has_projections(arch: str, numels: dict[str, int], decays: int) -> None:
    found = parts(arch, _DELTA).delta()
    assert found is not None
    linears, other, sizes = found
    assert {linear.role: linear.numel for linear in linears} == numels
    # A convolution of 4 over what is projected, a bias a head, a norm of a head's values.
    assert other == 31 * 4 + decays + 3 + 5
    assert sizes == (2, 3, 4, 5)


def test_sizes_of_a_delta_net_are_those_of_all_heads_or_unknown() -> None:
    alike = parts("qwen3_next", {"linear_num_heads": 3, "linear_head_dim": 5}).delta()
    assert alike is not None
    assert alike[2] == (3, 3, 5, 5)
    shorter = parts("qwen3_next", {**_DELTA, "linear_conv_kernel_dim": 2}).delta()
    assert shorter is not None
    assert shorter[1] == 31 * 2 + 3 + 3 + 5
    for name in _DELTA:
        assert (
            parts("qwen3_next", {key: n for key, n in _DELTA.items() if key != name}).delta()
            is None
        )


def test_lightning_attention_has_a_head_of_keys_for_each_query_and_a_gate() -> None:
    linears, norm = parts("minimax", {}).lightning()
    assert [linear.numel for linear in linears] == [600, 200, 200]
    assert norm == 20


def test_an_indexer_scores_tokens_where_its_sizes_are_known() -> None:
    known = parts("deepseek_v32", {}, mla=Mla(index_heads=2, index_dim=3))
    assert [linear.numel for linear in known.indexer(7)] == [42, 30, 20]
    assert known.indexer(0) == []
    for mla in (None, Mla(index_heads=2), Mla(index_dim=3)):
        assert parts("deepseek_v32", {}, mla=mla).indexer(7) == []


# -- what classes do that others do not ----------------------------------------------------------------------

GEMMA_3N = {"gemma3n", "gemma3n_text"}
GEMMA_4 = {"gemma4", "gemma4_text", "gemma4_unified", "gemma4_unified_text", "diffusion_gemma"}
T5 = {"t5", "mt5", "umt5"}
MODERNBERT = {"modernbert", "modernbert-decoder"}
GLM_4 = {"glm4", "glm4v", "glm46v"}
QWEN_3_5 = {"qwen3_next", "qwen3_5", "qwen3_5_moe"}
PHI_4 = {"phi3", "phi4_multimodal"}


@pytest.mark.parametrize(
    ("trait", "classes"),
    [
        ("post_norms", {"gemma2", "gemma3", "gemma3_text", "afmoe", "beam", "lfm3", *GEMMA_3N, *GEMMA_4, *GLM_4}),
        ("post_norms_only", {"olmo2", "olmo3"}),
        ("parallel", {"gptj", "gpt_neox", "codegen", "falcon", "phi", "cohere", "cohere2", "litgpt_phi"}),
        ("fused_gate_up", {"chatglm", "glm", *GLM_4, *MODERNBERT, *PHI_4}),
        ("output_bias", {"gpt_neo", "gte"}),
        ("embed_norm", {"bloom"}),
        ("scaled_query", {"opt", "whisper"}),
        ("refuses_sdpa", {"bloom", "chatglm_6b", "codegen", "gemma2", "gpt_neo", "gpt_oss", "gptj", "xglm", *T5}),
        ("biased_scores", T5),
        ("half_softmax", {*NANOGPT, *T5}),
        ("inner_dropout", T5),
        ("attention_softcap", {"gemma2"}),
        ("logit_softcap", {"gemma2", *GEMMA_3N, *GEMMA_4}),
        ("head_bias", {"gptj", "codegen", "phi", "litgpt_phi"}),
        ("qk_norm_full", {"olmoe", "olmo2", "olmo3", "minimax_m2"}),
        ("wide_rope", {"cohere", "cohere2", "olmo", "olmo2", "olmo3", "ernie4_5", "ernie4_5_moe", *MODERNBERT}),
        ("wide_scores", {"gpt_neo", "gptj", "codegen"}),
        ("l2_qk_norm", {"llama4"}),
        ("dense_routing", {"llama4"}),
        ("gated_query", QWEN_3_5),
        ("gated_shared", {"qwen2_moe", "qwen3_next", "qwen3_5_moe"}),
        ("sinks", {"gpt_oss"}),
        ("clamped_glu", {"gpt_oss"}),
        ("value_norm", {*GEMMA_3N, *GEMMA_4}),
        ("experts_beside", GEMMA_4),
        ("output_scale", GEMMA_4),
        ("narrow_loss", {"baichuan", "qwen", "whisper", *T5}),
        ("projects_last", {"chatglm", "glm"}),
        ("scattered_adapter", {"litgpt", "litgpt_phi"}),
        ("transforms_head", {"nomic_bert", "gte", *MODERNBERT}),
        ("unbiased_key", {"whisper"}),
        ("head_major", {"whisper"}),
        ("linear_router", {"afmoe", "dbrx", "hunyuan_v1_moe", "llama4", "phimoe"}),
        ("fused_shared", {"granitemoehybrid", "granitemoeshared", "minimax_m3_vl_text"}),
        (
            "router_fp32",
            {
                "afmoe", "bailing_hybrid", "deepseek_v2", "deepseek_v3", "ernie4_5_moe", "glm4_moe", "glm4_moe_lite",
                "glm4v_moe", "kimi_vl", "laguna", "nemotron_h",
            },
        ),
        ("attention_dropout", {
            "gpt2", "gpt_bigcode", "nanogpt", "openai-gpt", "biogpt", "xglm", "starcoder2", "seed_oss", *T5,
        }),
        ("dropout", {
            "gpt2", "gpt_bigcode", "nanogpt", "openai-gpt", "biogpt", "xglm", "starcoder2", "seed_oss", "opt", "ctrl", "nomic_bert",
            "gte", *T5,
        }),
        ("learned_positions", {"gpt2", "gpt_bigcode", *NANOGPT, "gpt_neo", "openai-gpt", "opt", "biogpt", "whisper"}),
        ("all_biases", {
            "gpt2", "gpt_bigcode", *NANOGPT, "openai-gpt", "gpt_neox", "opt", "bloom", "phi", "litgpt_phi", "whisper", "biogpt",
            "xglm", "ctrl", "starcoder2", "chatglm_6b",
        }),
        ("fused_qkv", {
            "gpt2", "gpt_bigcode", *NANOGPT, "openai-gpt", "gpt_neox", "gpt_neox_japanese", "bloom", "falcon", "mpt", "codegen",
            "persimmon", "fuyu", "dbrx", "baichuan", "qwen", "chatglm", "chatglm_6b", "internlm2", "litgpt", "litgpt_phi", "modernbert",
            *PHI_4,
        }),
        ("clamped_qkv", {"dbrx"}),
        # In towers of pictures alone, and in frameworks' own blocks.
        ("layer_scale", set()),
        ("narrow_norm", set()),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_classes_that_do_what_others_do_not(trait: str, classes: set[str]) -> None:
    """The table once more, so that a change of one class is seen: it was read off transformers 5.23
    models/<arch>/modeling_<arch>.py, litgpt's code and models' own, and not checked by building them. What was (norms, rotations,
    norms of queries and keys) says so in the tests above; DBRX's clamp is DbrxAttention.forward's of 5.24. Encoders and BART's kin, and
    blocks that frameworks write themselves, have tests of their own."""
    found = {arch for arch, traits in _TRAITS.items() if getattr(traits, trait)}
    own = {arch for arch in found if arch.startswith(("olmo_", "foundry"))}
    assert found - own - set(BERTS) - set(BARTS) == classes


@pytest.mark.parametrize("arch", sorted(BERTS))
def test_berts_kin_norm_after_the_sum_and_drop(arch: str) -> None:
    found = _TRAITS[arch]
    assert (found.norm, found.norms, found.activation) == ("ln", 2, "gelu")
    assert found.all_biases
    assert found.dropout
    assert found.attention_dropout
    # Positions are numbered but for RoFormer, whose queries and keys rotate.
    assert found.learned_positions == (found.rotary == 0) == (arch != "roformer")
    assert found.fused_qkv == (arch == "deberta")
    assert found.transforms_head == (arch not in ("bert-generation", "xlm", "flaubert"))


@pytest.mark.parametrize("arch", sorted(BARTS))
def test_barts_kin_drop_and_take_the_loss_as_it_is(arch: str) -> None:
    found = _TRAITS[arch]
    assert (found.norm, found.activation, found.rotary) == ("ln", "gelu", 0)
    assert found.all_biases
    assert found.dropout
    assert found.narrow_loss
    assert found.half_softmax
    assert not found.attention_dropout
    # M2M100 and PEGASUS-X compute their positions; Marian, PEGASUS and the small Blenderbot begin at nought.
    assert found.learned_positions == (arch not in ("m2m_100", "pegasus_x"))
    begins = arch in ("blenderbot-small", "marian", "pegasus")
    assert found.positions == (0 if begins else 2)
