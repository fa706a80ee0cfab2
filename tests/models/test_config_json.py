"""Reading config.json of the common architectures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oomlint.memory import skeleton
from oomlint.memory.trained import adapter_ends, targeted
from oomlint.models import from_config_json, lookup
from oomlint.plan.model import Sound, Trainable

CONFIGS = Path(__file__).parents[2] / "benchmarks" / "catalogue" / "configs.jsonl"
FIELDS = (
    "arch", "layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "tie_embeddings",
    "attn_bias", "mlp_bias", "qk_norm", "norm", "act", "sliding_window", "layer_types", "mla",
)  # fmt: skip
COUNTS = ("params_total", "params_active", "params_embed", "params_lm_head", "params_layer_max")


def entries() -> list[dict[str, Any]]:
    if not CONFIGS.exists():
        pytest.skip("benchmarks/catalogue/configs.jsonl is not part of this source tree")
    return [json.loads(line) for line in CONFIGS.read_text(encoding="utf-8").splitlines()]


def test_reading_the_catalogues_configs_gives_the_catalogue() -> None:
    """Dimensions, tower and counts of every model whose architecture is counted."""
    compared = 0
    for entry in entries():
        facts = lookup(entry["id"])
        assert facts is not None
        want = facts.dims
        if entry["model_type"] != want.arch or entry["build"] not in ("causal", "vl"):
            continue  # a remote-code model built with a stock class, or a reward head
        got = from_config_json({**entry["config"], "model_type": entry["model_type"]}).dims
        if got.params_total is None:
            continue
        if entry["id"] == "tiiuae/falcon-11B":
            continue  # its missing norm cannot be told from the dimensions (see count.py)
        compared += 1
        for name in FIELDS:
            if getattr(want, name) is None and name in ("ctx", "sliding_window"):
                continue  # no source was found for what the catalogue leaves out
            assert getattr(got, name) == getattr(want, name), (entry["id"], name)
        for name in COUNTS:
            assert getattr(got, name) == getattr(want, name), (entry["id"], name)
        if want.vision is not None:
            assert got.vision is not None
            assert got.vision.params == want.vision.params, entry["id"]
        if want.moe is not None:
            assert got.moe is not None
            assert got.moe.experts == want.moe.experts, entry["id"]
            assert got.moe.moe_ffn == want.moe.moe_ffn, entry["id"]
            assert got.moe.topk == want.moe.topk, entry["id"]
    assert compared >= 310


def test_llama_as_the_hub_has_it() -> None:
    facts = from_config_json(
        {
            "architectures": ["LlamaForCausalLM"],
            "attention_bias": False,
            "hidden_act": "silu",
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "max_position_embeddings": 131072,
            "mlp_bias": False,
            "model_type": "llama",
            "num_attention_heads": 32,
            "num_hidden_layers": 32,
            "num_key_value_heads": 8,
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
            "vocab_size": 128256,
        }
    )
    assert facts.dims.params_total == 8_030_261_248
    assert facts.dims.head_dim == 128
    assert facts.dims.act == "swiglu"
    assert facts.ckpt_dtype == "bf16"
    assert facts.dims.ctx == 131072


def test_chatglm_6b_has_blocks_of_its_own() -> None:
    """Its model type is that of its successors, which have other blocks. Trainable and frozen parameters that people print of
    LoRA over it add up to this count."""
    facts = from_config_json(
        {
            "hidden_size": 4096,
            "inner_hidden_size": 16384,
            "max_sequence_length": 2048,
            "model_type": "chatglm",
            "num_attention_heads": 32,
            "num_layers": 28,
            "position_encoding_2d": True,
            "torch_dtype": "float16",
            "vocab_size": 130528,
        }
    )
    dims = facts.dims
    assert dims.params_total == 6_173_286_400
    assert (dims.ffn, dims.kv_heads, dims.norm, dims.act) == (16384, 32, "ln", "gelu")
    assert dims.tie_embeddings
    known = lookup("/data/pretrained/chatglm-6b")
    assert known is not None
    assert known.dims == dims
    newer = lookup("THUDM/chatglm2-6b")
    assert newer is not None
    assert newer.dims.act == "swiglu"


def test_aquila_is_counted_as_the_llama_that_it_is() -> None:
    config = {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
              "vocab_size": 100008, "tie_word_embeddings": False, "max_position_embeddings": 2048}  # fmt: skip
    known = lookup("BAAI/AquilaChat2-7B")
    assert known is not None
    assert from_config_json({**config, "model_type": "aquila"}).dims == known.dims


def test_nested_configs_leave_their_class_defaults_out() -> None:
    """The Hub's gemma-3-4b has neither heads nor vocabulary in its text_config."""
    facts = from_config_json(
        {
            "model_type": "gemma3",
            "text_config": {
                "hidden_size": 2560,
                "intermediate_size": 10240,
                "model_type": "gemma3_text",
                "num_hidden_layers": 34,
                "sliding_window": 1024,
            },
            "torch_dtype": "bfloat16",
            "vision_config": {
                "hidden_size": 1152,
                "image_size": 896,
                "intermediate_size": 4304,
                "model_type": "siglip_vision_model",
                "num_attention_heads": 16,
                "num_hidden_layers": 27,
                "patch_size": 14,
                "vision_use_head": False,
            },
        }
    )
    assert facts.dims.params_total == 4_300_079_472
    assert facts.dims.tie_embeddings is True
    assert facts.dims.head_dim == 256


def test_flat_multimodal_configs() -> None:
    """Early Qwen2.5-VL files keep the language model's keys at the top level."""
    facts = from_config_json(
        {
            "model_type": "qwen2_5_vl",
            "hidden_size": 3584,
            "intermediate_size": 18944,
            "num_attention_heads": 28,
            "num_hidden_layers": 28,
            "num_key_value_heads": 4,
            "tie_word_embeddings": False,
            "vocab_size": 152064,
            "use_sliding_window": False,
            "sliding_window": 32768,
            "vision_config": {
                "depth": 32,
                "hidden_act": "silu",
                "hidden_size": 1280,
                "intermediate_size": 3420,
                "num_heads": 16,
                "in_chans": 3,
                "out_hidden_size": 3584,
                "patch_size": 14,
                "spatial_merge_size": 2,
                "spatial_patch_size": 14,
                "temporal_patch_size": 2,
            },
        }
    )
    assert facts.dims.params_total == 8_292_166_656
    assert facts.dims.arch == "qwen2_5_vl"
    assert facts.dims.sliding_window is None


def test_explicit_null_beats_the_class_default() -> None:
    lite = next(e for e in entries() if e["id"].startswith("deepseek-ai/DeepSeek-V2-Lite"))
    facts = from_config_json({**lite["config"], "model_type": "deepseek_v2", "q_lora_rank": None})
    assert facts.dims.mla is not None
    assert facts.dims.mla.q_rank is None
    assert facts.dims.params_total == 15_706_484_224


def test_tie_default_follows_the_model_type() -> None:
    assert from_config_json({"model_type": "gemma2"}).dims.tie_embeddings is True
    assert from_config_json({"model_type": "llama"}).dims.tie_embeddings is False
    assert from_config_json({"model_type": "gpt2"}).dims.tie_embeddings is True


@pytest.mark.parametrize(
    ("config", "quant"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bnb4"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bnb8"),
        ({"quant_method": "gptq", "bits": 4}, "gptq"),
        ({"quant_method": "gptq", "bits": 8}, "gptq8"),
        ({"quant_method": "awq"}, "awq"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8_block"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "compressed-tensors", "format": "float-quantized"}, "fp8"),
        ({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}, "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({}, "none"),
        ("odd", "none"),
    ],
)
def test_quantisation(config: Any, quant: str) -> None:
    assert (
        from_config_json({"model_type": "llama", "quantization_config": config}).native_quant
        == quant
    )


def test_an_unknown_architecture_keeps_its_dimensions() -> None:
    facts = from_config_json({"model_type": "novel", "hidden_size": 512, "num_hidden_layers": 4})
    assert facts.dims.hidden == 512
    assert facts.dims.params_total is None
    assert facts.confidence == "derived"


def test_absurd_sizes_are_not_sizes() -> None:
    facts = from_config_json({"model_type": "llama", "num_hidden_layers": 10**9, "hidden_size": -1})
    assert facts.dims.layers is None
    assert facts.dims.hidden is None
    assert facts.dims.params_total is None


def test_a_dense_doge_has_no_experts() -> None:
    """DogeConfig has 16,384 experts by default, which only is_moe builds."""
    doge = {
        "model_type": "doge", "hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 32,
        "num_attention_heads": 8, "vocab_size": 32768, "tie_word_embeddings": True,
        "num_experts": 16384, "num_experts_per_tok": 64,
    }  # fmt: skip
    assert from_config_json({**doge, "is_moe": False}).dims.moe is None
    assert from_config_json({**doge, "is_moe": True}).dims.moe is not None


def test_bamba_attends_in_the_layers_that_it_names_and_scans_in_the_others() -> None:
    bamba = {
        "model_type": "bamba", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 9,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128000, "mamba_d_head": 64,
        "mamba_d_state": 256, "mamba_n_groups": 1, "mamba_n_heads": 128, "mamba_d_conv": 4,
    }  # fmt: skip
    scans = from_config_json(bamba).dims
    built = skeleton(scans)
    assert built is not None
    assert built.numel == 3_564_132_224  # BambaForCausalLM of transformers 5.23 on the meta device
    mixed = from_config_json({**bamba, "attn_layer_indices": [4]}).dims
    assert mixed.layer_types == ("mamba",) * 4 + ("full_attention",) + ("mamba",) * 4


CLASSES = [
    json.loads(line)
    for line in (Path(__file__).parent / "data/classes.jsonl").read_text("utf-8").splitlines()
]


@pytest.mark.parametrize("row", CLASSES, ids=[row["config"]["model_type"] for row in CLASSES])
def test_a_class_is_counted_as_it_is_built(row: dict[str, Any]) -> None:
    """Parameters, and those of adapters of rank one for every linear layer of the blocks, against four layers of each class
    of transformers 5.24 on the meta device (``python -m benchmarks.catalogue.classes --rows``)."""
    built = skeleton(from_config_json(row["config"]).dims)
    assert built is not None
    assert built.numel == pytest.approx(row["parameters"], rel=2e-3)
    every = targeted(Trainable(method="lora", targets="all_linear"), built)
    assert adapter_ends(built, every) == row["adapters"]


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("mamba", 159_308_544),
        ("mamba2", 7_285_403_648),
        ("jamba", 51_570_323_328),
        ("xglm", 564_463_616),
    ],
)
def test_what_a_config_leaves_out_is_its_class_s(kind: str, parameters: int) -> None:
    built = skeleton(from_config_json({"model_type": kind}).dims)
    assert built is not None
    assert built.numel == pytest.approx(parameters, rel=1e-5)


def test_a_rank_of_time_steps_follows_the_width() -> None:
    """MambaConfig takes a sixteenth of the hidden size, rounded up, where nothing is said (state-spaces/mamba-2.8b-hf: 160)."""
    found = from_config_json({"model_type": "mamba", "hidden_size": 2560, "num_hidden_layers": 1})
    built = skeleton(found.dims)
    assert built is not None
    ranks = [x.outputs for x in built.blocks[0].linears if x.role == "ssm_x"]
    assert ranks == [160 + 2 * 16]


@pytest.mark.parametrize(
    ("dense", "first"),
    [
        ({"mlp_layer_types": ["dense", "dense", "sparse", "sparse"]}, 2),
        ({"mlp_layer_types": ["sparse"] * 4}, None),
        ({"mlp_layer_types": ["dense"] * 4}, 4),
        ({"mlp_only_layers": [0, 1, 2]}, 3),
        ({"mlp_only_layers": []}, None),
        ({"mlp_only_layers": [3]}, None),
    ],
)
def test_layers_without_experts_are_counted_from_below(dense: Any, first: int | None) -> None:
    sizes = {
        "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 100, "num_experts": 8,
        "num_experts_per_tok": 2, "moe_intermediate_size": 32,
    }  # fmt: skip
    found = from_config_json({"model_type": "qwen3_moe", **sizes, **dense}).dims
    assert found.moe is not None
    assert found.moe.first_dense == first


AUDIO = {
    "d_model": 1280, "encoder_layers": 32, "encoder_ffn_dim": 5120, "num_mel_bins": 128,
    "max_source_positions": 1500,
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "text", "parameters"),
    [
        # As transformers 5.24 builds them: 636,968,960 in the encoder, the rest in the projector.
        ("qwen2_audio", "qwen2", 642_215_936),
        ("audioflamingo3", "qwen2", 658_997_248),
    ],
)
def test_an_encoder_of_sound_is_counted(kind: str, text: str, parameters: int) -> None:
    inner = {"model_type": text, "hidden_size": 4096, "num_hidden_layers": 2, "vocab_size": 1000}
    alone = from_config_json(inner).dims.params_total
    both = from_config_json({"model_type": kind, "text_config": inner, "audio_config": AUDIO}).dims
    assert alone is not None
    assert both.params_total == alone + parameters


def test_whisper_is_read_as_it_is_built() -> None:
    """Of openai/whisper-large-v3 transformers 5.24 builds 1,543,490,560 parameters."""
    dims = from_config_json(
        {**AUDIO, "model_type": "whisper", "decoder_layers": 32, "encoder_attention_heads": 20, "vocab_size": 51866,
         "max_target_positions": 448, "activation_function": "gelu"}
    ).dims  # fmt: skip
    assert (dims.layers, dims.ctx, dims.sound) == (64, 448, Sound(frames=1500, bands=128))
    found = skeleton(dims)
    assert found is not None
    assert found.numel == 1_543_490_560
    assert [block.crosses for block in found.blocks] == [False, True]
    # Models with an encoder of sound beside a decoder hear through a tower.
    tower = {
        "model_type": "qwen2_audio",
        "text_config": {"model_type": "qwen2"},
        "audio_config": AUDIO,
    }
    assert from_config_json(tower).dims.sound is None


@pytest.mark.parametrize("kind", ["longcat_flash", "rwkv", "albert"])
def test_of_classes_that_are_built_otherwise_nothing_is_read(kind: str) -> None:
    """LongCat has two sublayers in a layer: 27 % fewer parameters would be read than it has."""
    sizes = {
        "hidden_size": 1024,
        "num_hidden_layers": 2,
        "num_attention_heads": 16,
        "vocab_size": 1000,
    }
    assert skeleton(from_config_json({"model_type": kind, **sizes}).dims) is None
    assert skeleton(from_config_json({"model_type": "llama", **sizes}).dims) is not None


def test_embeddings_narrower_than_the_layers_are_not_counted_as_wide() -> None:
    """google/electra-small-discriminator embeds in 128, electra-base in as much as its layers have."""
    electra = {
        "model_type": "electra",
        "hidden_size": 256,
        "num_hidden_layers": 12,
        "vocab_size": 30522,
    }
    assert skeleton(from_config_json({**electra, "embedding_size": 128}).dims) is None
    assert skeleton(from_config_json({**electra, "embedding_size": 256}).dims) is not None
