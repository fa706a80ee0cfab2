"""Every weight of a block gets its gradient once: the tape of each architecture against its parameters."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.plans import LLAMA_8B, plan_of

from oomlint.memory import skeleton
from oomlint.memory.facts import Facts
from oomlint.memory.layers import layer_profile
from oomlint.memory.trained import adapter_ends, targeted, trained_ends
from oomlint.models import all_ids, lookup
from oomlint.plan.model import Mla, ModelDims, Moe, Trainable

# Of parts of these nobody wrote down what computes them: indexers, encoders, Mamba's first scan.
UNWRITTEN = frozenset(
    "afmoe bert blenderbot deberta-v2 deepseek_v32 ernie4_5_vl_moe falcon_h1 glm_moe_dsa granitemoehybrid jamba "
    "kimi_linear lfm2 mamba mimo_v2_flash modernbert nemotron_h phi4_multimodal qwen2_5_omni_thinker qwen2_audio "
    "qwen3_omni_moe_thinker qwen_audio roberta voxtral xlm-roberta gemma4 paddleocr_vl minicpmv4_6 "
    "video_llava lfm2_vl t5 mt5 mllama".split()
)
LEAVES: dict[str, Any] = {
    "precision.param": "bf16", "precision.compute": "bf16", "batch.micro": 1, "seq.max_len": 512,
}  # fmt: skip


def models() -> list[tuple[str, ModelDims]]:
    """One model of each architecture."""
    found: dict[str, ModelDims] = {}
    for name in all_ids():
        facts = lookup(name)
        assert facts is not None
        dims = facts.dims
        if dims.arch and dims.layers and dims.arch not in UNWRITTEN:
            found.setdefault(dims.arch, dims)
    return sorted(found.items())


MODELS = models()


def facts(dims: ModelDims, **changes: Any) -> Facts:
    return Facts(plan_of({**LEAVES, "model.dims": dims}, **changes))


def trained(f: Facts) -> list[tuple[float, float]]:
    """Of each kind of block, the elements of gradients that backward makes, and its parameters."""
    assert f.model is not None
    assert f.regime is not None
    kinds = set(f.model.blocks)
    return [(layer_profile(f.model, block, f.regime).trained, block.numel) for block in kinds]


@pytest.mark.parametrize("experts", ["grouped", "loop"])
@pytest.mark.parametrize(("arch", "dims"), MODELS, ids=[arch for arch, _ in MODELS])
def test_each_weight_gets_one_gradient(arch: str, dims: ModelDims, experts: str) -> None:
    """But for sinks, gates and biases that are a thousandth of a block at most."""
    for made, numel in trained(facts(dims, trainable__method="full", model__experts_impl=experts)):
        assert made == pytest.approx(numel, rel=0.0015)


@pytest.mark.parametrize("experts", ["grouped", "loop"])
@pytest.mark.parametrize(("arch", "dims"), MODELS, ids=[arch for arch, _ in MODELS])
def test_beside_frozen_weights_only_adapters_get_any(
    arch: str, dims: ModelDims, experts: str
) -> None:
    f = facts(
        dims, trainable__method="lora", trainable__r=8, trainable__targets=("o_proj", "wo", "out_proj", "dense", "c_proj"),
        model__experts_impl=experts,
    )  # fmt: skip
    model = f.model
    assert model is not None
    assert f.regime is not None
    for block in set(model.blocks):
        ends = sum(x.inputs + x.outputs for x in block.linears if x.role in f.trained.roles)
        assert layer_profile(model, block, f.regime).trained == 8 * ends


# -- adapters ----------------------------------------------------------------------------------------

# Three experts of 32 in each of two blocks of a width of 64, whose attention has 64 and 32.
SPARSE = ModelDims(
    arch="qwen3_moe", layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=128, vocab=1000,
    tie_embeddings=False, act="swiglu", norm="rms", moe=Moe(experts=3, topk=2, moe_ffn=32),
)  # fmt: skip


def test_adapters_are_a_rank_times_the_ends_of_their_layers() -> None:
    model = skeleton(LLAMA_8B)
    assert model is not None
    q, kv, o = 4096 + 4096, 4096 + 1024, 4096 + 4096
    feed = 3 * (4096 + 14336)
    for targets, ends in (
        (("q_proj", "v_proj"), q + kv),
        (("self_attn.q_proj",), q),
        ("all_linear", q + 2 * kv + o + feed),
        ("peft_default", q + kv),
        (None, q + kv),
        (("lm_head",), 0),
    ):
        roles = targeted(Trainable(method="lora", targets=targets), model)  # type: ignore[arg-type]
        assert adapter_ends(model, roles) == 32 * ends, targets
    out = Trainable(method="lora", targets="all_linear", exclude=("mlp.down_proj", "q_proj"))
    left = q + 2 * kv + o + feed - q - (4096 + 14336)
    assert adapter_ends(model, targeted(out, model)) == 32 * left


@pytest.mark.parametrize(
    ("saved", "embeddings", "ends"),
    [
        (None, None, (False, False)),
        (("embed_tokens", "lm_head"), None, (True, True)),
        (("wte",), None, (True, False)),
        (("output",), None, (False, True)),
        (("score",), None, (False, False)),
        (None, True, (True, False)),
    ],
)
def test_ends_are_trained_by_name(
    saved: tuple[str, ...] | None, embeddings: bool | None, ends: tuple[bool, bool]
) -> None:
    trainable = Trainable(method="lora", modules_to_save=saved, train_embeddings=embeddings)
    assert trained_ends(trainable) == ends


def test_latent_attention_needs_its_rank() -> None:
    plain = skeleton(LLAMA_8B)
    assert plain is not None
    told = skeleton(replace(LLAMA_8B, mla=Mla(qk_nope=128, qk_rope=64, v_dim=128)))
    assert told is not None
    assert told.numel == plain.numel
