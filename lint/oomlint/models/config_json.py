"""Reads a transformers ``config.json`` into the facts that memory depends on.

What the file leaves out is what transformers 5.23 would fill in: the defaults of the
configuration class of its ``model_type``, kept in ``data/defaults.json``.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec.structs import replace

from oomlint.models.architectures import BARTS, BERTS, why_built_otherwise
from oomlint.models.config_fields import Config, Fields, class_defaults, text_in
from oomlint.models.config_text import text_dims
from oomlint.models.count import as_dims_fields, count_parameters
from oomlint.models.facts import ModelFacts
from oomlint.models.towers import count_tower
from oomlint.plan.model import ModelDims, VisionTower

# Where a multimodal config keeps its text model: transformers; InternVL's and DeepSeek-VL's
# own code; Qwen-Omni.
_TEXT_KEYS: Final = ("text_config", "llm_config", "language_config", "thinker_config")

# Model types of inner text models and of remote code, by the architecture they are counted as.
_ARCH_OF: Final = {
    "internvl_chat": "internvl",
    "mllama_text_model": "mllama",
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe_text": "qwen3_moe",
    "qwen3_5_text": "qwen3_5",
    "qwen3_5_moe_text": "qwen3_5_moe",
    "glm4v_moe_text": "glm4_moe",
    "llama4_text": "llama4",
    "RefinedWeb": "falcon",
    "RefinedWebModel": "falcon",
    "InternLM2ForCausalLM": "internlm2",
}

# Classes that leave it to PretrainedConfig, which ties.
_TIED_UNLESS_SAID: Final = (
    frozenset({"t5", "mt5", "umt5", "nomic_bert", "gte", "whisper", "chatglm_6b"}) | BARTS | BERTS
)


def from_config_json(config: dict[str, Any]) -> ModelFacts:
    """The facts that a parsed ``config.json`` states or implies.

    Dimensions of unknown architectures are read as far as their keys are the usual ones;
    ``params_*`` are set only where the architecture can be counted exactly, and ``layers`` where
    its usual keys tell what it is built of. ``id`` is the
    file's ``_name_or_path`` or empty. Never raises for a mapping, however odd.
    """
    outer_type = text_in(config.get("model_type"))
    outer_defaults = class_defaults().get(outer_type, {})
    inner = _text_config(config, outer_defaults)
    text_type = text_in(inner.get("model_type")) or outer_defaults.get("text") or outer_type
    fields = Fields(inner, class_defaults().get(text_type, {}))
    text_arch = _text_arch(text_type, fields)
    multimodal = inner is not config
    arch = _ARCH_OF.get(outer_type, outer_type) if multimodal and outer_type else text_arch

    tie = (
        _tie(config, inner, outer_defaults, fields)
        if multimodal
        else fields.flag("tie_word_embeddings")
    )
    if text_arch in _TIED_UNLESS_SAID and fields.raw("tie_word_embeddings") is None:
        tie = True
    if text_arch == "lfm2" and fields.raw("tie_word_embeddings") is None:
        tie = fields.raw("tie_embedding") is not False  # Lfm2Config's own name for it
    dims = text_dims(text_arch, fields, tie)
    vision_config = config.get("vision_config")
    if isinstance(vision_config, dict):
        dims = replace(dims, vision=_vision(arch, config, vision_config, outer_defaults, dims))
    dims = replace(dims, arch=arch or None)
    audio = config.get("audio_config")
    if isinstance(audio, dict):
        dims = _with_audio(dims, text_arch, _audio_tower(arch, audio, outer_defaults, dims))
    elif not isinstance(config.get("talker_config"), dict):
        counts = count_parameters(dims)
        if counts is not None:
            dims = replace(dims, **as_dims_fields(counts))
    kinds = (arch, text_arch)
    if dims.params_total is None and (any(map(why_built_otherwise, kinds)) or _is_narrow(fields)):
        dims = replace(dims, layers=None)
    return ModelFacts(
        id=text_in(config.get("_name_or_path")),
        dims=dims,
        ckpt_dtype=_dtype(config) or _dtype(inner),
        native_quant=_quantisation(config) or _quantisation(inner) or "none",
        confidence="verified" if dims.params_total is not None else "derived",
        source="config.json",
    )


def _text_arch(kind: str, fields: Fields) -> str:
    """The architecture of a text model: Llama-4's and Qwen-VL's inner types are named after the outer model, and
    ChatGLM-6B has the type of its successors, whose blocks are others: ``inner_hidden_size`` is of GLM-130B's, which it has
    (THUDM/chatglm-6b modeling_chatglm.py GLMBlock)."""
    if kind == "chatglm" and fields.size("inner_hidden_size"):
        return "chatglm_6b"
    return _ARCH_OF.get(kind, kind)


def _is_narrow(fields: Fields) -> bool:
    """Whether embeddings are projected to the width of the layers (small ELECTRA)."""
    width = fields.size("embedding_size")
    return width is not None and width != fields.size("hidden_size")


def _audio_tower(arch: str, audio: Config, outer_defaults: Config, text: ModelDims) -> int | None:
    """Parameters of an encoder of sound and its projector."""
    own_defaults = outer_defaults.get("audio")
    f = Fields(audio, own_defaults if isinstance(own_defaults, dict) else {})
    sizes = {
        "layers": f.size("encoder_layers", "num_hidden_layers"),
        "hidden": f.size("d_model", "hidden_size"),
        "ffn": f.size("encoder_ffn_dim", "intermediate_size"),
        "mels": f.size("num_mel_bins"),
        "positions": f.size("max_source_positions"),
        "text": text.hidden,
    }
    return count_tower(arch, {k: v for k, v in sizes.items() if v is not None})


def _with_audio(dims: ModelDims, text_arch: str, tower: int | None) -> ModelDims:
    """What an encoder of sound adds to a language model, where both are counted."""
    counts = count_parameters(replace(dims, arch=text_arch))
    if counts is None or tower is None:
        return dims
    counted = replace(dims, **as_dims_fields(counts))
    return replace(
        counted,
        params_total=counts.total + tower,
        params_active=counts.active + tower,
        params_nonlinear=counts.nonlinear + tower,
    )


def _text_config(config: Config, outer_defaults: Config) -> Config:
    for key in _TEXT_KEYS:
        inner = config.get(key)
        if isinstance(inner, dict):
            return _text_config(inner, {}) if key == "thinker_config" else inner
    if "text" in outer_defaults:
        # Early multimodal files (Qwen2-VL, PaliGemma) keep the text model's keys at the top.
        return {k: v for k, v in config.items() if k != "model_type"}
    return config


def _tie(config: Config, inner: Config, outer_defaults: Config, fields: Fields) -> bool:
    for source in (config, inner, outer_defaults, fields.defaults):
        value = source.get("tie_word_embeddings")
        if isinstance(value, bool):
            return value
    return False


def _vision(
    arch: str, config: Config, vision: Config, outer_defaults: Config, text: ModelDims
) -> VisionTower:
    own_defaults = outer_defaults.get("vision")
    defaults: Config = own_defaults if isinstance(own_defaults, dict) else {}
    if defaults.get("model_type", "") != vision.get("model_type", defaults.get("model_type", "")):
        same = _family(text_in(vision.get("model_type"))) == _family(
            text_in(defaults.get("model_type"))
        )
        defaults = defaults if same else {}
    f = Fields(vision, defaults)
    layers = f.size("depth", "num_hidden_layers")
    hidden = f.size("embed_dim", "hidden_size")
    ffn = f.size("intermediate_size")
    if arch == "qwen2_vl" and hidden:
        ffn = hidden * (f.size("mlp_ratio") or 4)
    gated = f.size("num_global_layers") if arch == "mllama" else None
    if gated and layers:
        layers += gated  # MllamaVisionModel: transformer, then global_transformer
    patch = f.size("patch_size")
    outer = Fields(config, outer_defaults)
    merge = outer.size("spatial_merge_size", "scale_factor") or f.size("spatial_merge_size")
    merger = ffn
    if arch in ("glm4v", "glm46v", "glm4v_moe"):
        ffn = f.size("out_hidden_size")  # Glm4vVisionMlp; intermediate_size is its merger's
    if arch == "internvl":
        merge = 2  # downsample_ratio 0.5: four patches become one token
    taps = f.raw("deepstack_visual_indexes")
    shapes = f.raw(
        "supported_aspect_ratios"
    )  # configuration_mllama.py lists eight where a file says none
    sizes = {
        "layers": layers,
        "hidden": hidden,
        "ffn": ffn,
        "merger": merger,
        "patch": patch,
        "image": f.size("image_size"),
        "merge": merge,
        "temporal": f.size("temporal_patch_size"),
        "out": f.size("hidden_size")
        if arch == "qwen2_vl"
        else f.size("out_hidden_size", "vision_output_dim"),
        "text": text.hidden,
        "projection": outer.size("projection_dim") or f.size("projection_dim"),
        "positions": f.size("num_position_embeddings"),
        "tiles": f.size("max_num_tiles"),
        "shapes": len(shapes) if isinstance(shapes, list) else 8,
        "gated": gated,
        # Qwen3.5's merger stands alone (modeling_qwen3_5.py).
        "taps": len(taps) if isinstance(taps, list) else 0 if arch.startswith("qwen3_5") else None,
        "unbiased": int(f.raw("attention_bias", "qkv_bias") is False),
        "qk_norm": int(f.flag("use_qk_norm", "qk_normalization")),
        "rms": int(text_in(f.raw("norm_type")) == "rms_norm"),
    }
    kind = arch
    if arch == "llava" and text_in(vision.get("model_type")) == "pixtral":
        kind = "llava_pixtral"
    return VisionTower(
        layers=layers,
        hidden=hidden,
        heads=f.size("num_heads", "num_attention_heads", "attention_heads"),
        ffn=ffn,
        patch=patch,
        image=f.size("image_size"),
        merge=merge and merge**2,
        params=count_tower(kind, {k: v for k, v in sizes.items() if v is not None}),
    )


def _family(tower: str) -> str:
    """``qwen3_vl`` and ``qwen3_vl_vision`` name the same tower in older and newer files."""
    return tower.removesuffix("_model").removesuffix("_vision")


def _dtype(config: Config) -> Literal["fp32", "bf16", "fp16"] | None:
    name = text_in(config.get("dtype") or config.get("torch_dtype")).removeprefix("torch.")
    if name == "float32":
        return "fp32"
    if name == "bfloat16":
        return "bf16"
    return "fp16" if name in ("float16", "half") else None


def _quantisation(config: Config) -> str | None:
    """``native_quant`` by the file's ``quantization_config``."""
    quant = config.get("quantization_config")
    if not isinstance(quant, dict):
        return None
    method = text_in(quant.get("quant_method")).lower()
    if method == "bitsandbytes" or (not method and "load_in_4bit" in quant):
        return "bnb8" if quant.get("load_in_8bit") else "bnb4"
    if method in ("gptq", "auto-round", "gptq_marlin"):
        return "gptq8" if quant.get("bits") == 8 else "gptq"
    if method in ("fp8", "fbgemm_fp8"):
        return "fp8_block" if quant.get("weight_block_size") else "fp8"
    if method == "compressed-tensors":
        layout = text_in(quant.get("format"))
        if "nvfp4" in layout:
            return "nvfp4"
        return "fp8" if layout.startswith("float") else "gptq"
    if method == "modelopt":
        algorithm = text_in(quant.get("quant_algo")).lower()
        return algorithm if algorithm in ("nvfp4", "fp8") else "fp8"
    return method or None
