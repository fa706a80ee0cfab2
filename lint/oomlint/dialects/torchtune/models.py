"""torchtune's model builders: which catalogue model each makes, and with which adapters.

Read from torchtune 0.7.0 (bd2a0fc7) ``torchtune/models/*/_model_builders.py`` and
``_component_builders.py``; names carry ``lora_`` or ``qlora_`` in front for adapters.
"""

from __future__ import annotations

from collections.abc import Mapping as MappingABC
from typing import Any

from oomlint.dialects.kinds import BadValue, Kind
from oomlint.errors import CannotEdit
from oomlint.plan.model import ModelDims

_QWEN25_SIZES = {"1_5b": "1.5B", "7b": "7B", "14b": "14B", "32b": "32B", "72b": "72B"}
_QWEN3_SIZES = {"0_6b": "0.6B", "1_7b": "1.7B", "4b": "4B", "8b": "8B", "14b": "14B"}

_BUILDERS = {
    "gemma_2b": "google/gemma-2b",
    "gemma_7b": "google/gemma-7b",
    "gemma2_2b": "google/gemma-2-2b",
    "gemma2_9b": "google/gemma-2-9b",
    "gemma2_27b": "google/gemma-2-27b",
    "llama2_7b": "meta-llama/Llama-2-7b-hf",
    "llama2_13b": "meta-llama/Llama-2-13b-hf",
    "llama2_70b": "meta-llama/Llama-2-70b-hf",
    "llama2_reward_7b": "meta-llama/Llama-2-7b-hf",
    "llama3_8b": "meta-llama/Meta-Llama-3-8B-Instruct",
    "llama3_70b": "meta-llama/Meta-Llama-3-70B",
    "llama3_1_8b": "meta-llama/Llama-3.1-8B",
    "llama3_1_70b": "meta-llama/Llama-3.1-70B-Instruct",
    "llama3_1_405b": "meta-llama/Llama-3.1-405B",
    "llama3_2_1b": "meta-llama/Llama-3.2-1B",
    "llama3_2_3b": "meta-llama/Llama-3.2-3B",
    "llama3_3_70b": "meta-llama/Llama-3.3-70B-Instruct",
    "llama3_2_vision_11b": "meta-llama/Llama-3.2-11B-Vision",
    "llama3_2_vision_90b": "meta-llama/Llama-3.2-90B-Vision",
    "llama4_scout_17b_16e": "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "llama4_maverick_17b_128e": "meta-llama/Llama-4-Maverick-17B-128E-Instruct",
    "mistral_7b": "mistralai/Mistral-7B-v0.1",
    "mistral_reward_7b": "mistralai/Mistral-7B-v0.1",
    "phi3_mini": "microsoft/Phi-3-mini-4k-instruct",
    "phi4_14b": "microsoft/phi-4",
    "qwen2_0_5b": "Qwen/Qwen2-0.5B",
    "qwen2_1_5b": "Qwen/Qwen2-1.5B",
    "qwen2_7b": "Qwen/Qwen2-7B",
    "qwen2_5_0_5b": "Qwen/Qwen2.5-0.5B",
    "qwen2_5_3b": "Qwen/Qwen2.5-3B",
    "qwen3_32b": "Qwen/Qwen3-32B",
    "smollm2_135m": "HuggingFaceTB/SmolLM2-135M",
    "smollm2_360m": "HuggingFaceTB/SmolLM2-360M",
    "smollm2_1_7b": "HuggingFaceTB/SmolLM2-1.7B",
    **{
        f"qwen2_5_{size}_{stage}": f"Qwen/Qwen2.5-{name}"
        for size, name in _QWEN25_SIZES.items()
        for stage in ("base", "instruct")
    },
    **{
        f"qwen3_{size}_{stage}": f"Qwen/Qwen3-{name}"
        for size, name in _QWEN3_SIZES.items()
        for stage in ("base", "instruct")
    },
}

# Builders of whole families, whose dimensions are arguments; all are RMS norm and SwiGLU.
_FAMILIES = {
    "llama2": "llama",
    "llama2_classifier": "llama",
    "llama3": "llama",
    "llama3_1": "llama",
    "mistral": "mistral",
    "mistral_classifier": "mistral",
}

# Llama 3.2 Vision is Llama 3.1, frozen, with an image encoder and cross-attention layers:
# parameters of the part that ``decoder_trainable`` speaks of (models/llama3_2_vision).
_DECODER_PARAMS = {"llama3_2_vision_11b": 8_030_261_248, "llama3_2_vision_90b": 70_553_706_496}

# Names of torchtune's modules and what transformers calls the same layers.
_MODULE_NAMES = {"output_proj": "o_proj"}
_MLP_MODULES = ("gate_proj", "up_proj", "down_proj")


def bare_builder(component: str) -> str:
    """The builder's own name without package and adapter prefix: ``llama3_1_8b``."""
    name = component.rpartition(".")[2]
    return name.removeprefix("qlora_").removeprefix("lora_")


def has_adapters(component: str) -> bool:
    """Whether the builder makes a model with LoRA adapters."""
    return component.rpartition(".")[2].startswith(("lora_", "qlora_"))


def quantizes(component: str) -> bool:
    """Whether the builder stores its frozen linear layers in NF4 whatever its arguments."""
    return component.rpartition(".")[2].startswith("qlora_")


def decoder_params(component: str) -> int | None:
    """Parameters of the text decoder of a vision model that freezes it by default."""
    return _DECODER_PARAMS.get(bare_builder(component))


def _read_builder(raw: Any) -> str | None:
    if isinstance(raw, (dict, list)):
        raise BadValue("expected the dotted name of a model builder")
    return _BUILDERS.get(bare_builder(str(raw)))


def _write_builder(_value: Any) -> Any:
    raise CannotEdit("another model needs another builder, tokenizer and checkpoint")


BUILDER = Kind(_read_builder, _write_builder, {"type": "string"})


def dims_of_arguments(component: str, arguments: MappingABC[str, Any]) -> ModelDims | None:
    """Dimensions that are given to a family's own builder; ``None`` where one is missing.

    ``arguments`` are the builder's keyword arguments, counts of elements and layers.
    """
    arch = _FAMILIES.get(bare_builder(component))
    hidden, heads = arguments.get("embed_dim"), arguments.get("num_heads")
    layers, vocab = arguments.get("num_layers"), arguments.get("vocab_size")
    if arch is None or not (hidden and heads and layers and vocab):
        return None
    return ModelDims(
        arch=arch,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=arguments.get("num_kv_heads") or heads,
        head_dim=hidden // heads,
        ffn=arguments.get("intermediate_dim") or _scaled_ffn(hidden),
        vocab=vocab,
        tie_embeddings=False,
        attn_bias=False,
        mlp_bias=False,
        qk_norm=False,
        norm="rms",
        act="swiglu",
        ctx=arguments.get("max_seq_len"),
    )


def _scaled_ffn(hidden: int) -> int:
    """torchtune 0.7.0 models/llama2/_model_utils.py scale_hidden_dim_for_mlp."""
    ffn = 4 * int(2 * hidden / 3)
    return 256 * ((ffn + 255) // 256)


def lora_targets(
    attention: tuple[str, ...] | None, *, mlp: bool, output: bool
) -> tuple[str, ...] | None:
    """Names of adapted modules as transformers has them; ``None`` where no file says any."""
    if attention is None and not mlp and not output:
        return None
    names = tuple(_MODULE_NAMES.get(name, name) for name in attention or ())
    return (*names, *(_MLP_MODULES if mlp else ()), *(("lm_head",) if output else ()))
