"""Values of a ``config.json``, with the defaults of its model's configuration class behind them.

The defaults are those of transformers 5.23, kept in ``data/defaults.json``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from oomlint.models.catalogue import read_data

Config = Mapping[str, Any]

# Sizes beyond any model, in a hand-edited or hostile file, are not sizes.
_MAX_SIZE: Final = 10**12

SYNONYMS: Final = {
    "hidden": ("hidden_size", "n_embd", "d_model", "dim", "emb_dim"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "heads": (
        "num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads",
        "attention_heads",
    ),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"),
    "ffn": (
        "intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "d_ff", "encoder_ffn_dim",
        "hidden_dim", "dff", "inner_hidden_size",
    ),
    "vocab": ("vocab_size", "padded_vocab_size"),
    "ctx": (
        "max_position_embeddings", "max_target_positions", "n_positions", "max_seq_len", "seq_length",
        "max_sequence_length",
    ),
    "experts": ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    "topk": (
        "num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_top_k", "moe_k",
        "top_k_experts", "moe_topk",
    ),
    "moe_ffn": ("moe_intermediate_size", "expert_ffn_hidden_size"),
    "shared_experts": ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"),
    "shared_ffn": (
        "shared_expert_intermediate_size", "shared_intermediate_size",
        "moe_shared_expert_intermediate_size",
    ),
    "first_dense": ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index"),
    "every_n": ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq", "expert_layer_period"),
}  # fmt: skip


@cache
def class_defaults() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(read_data("defaults.json"))
    return found


class Fields:
    """A config with its class defaults behind it; only values of the right kind come out."""

    def __init__(self, config: Config, defaults: Config) -> None:
        self.config = config
        self.defaults = defaults

    def raw(self, *names: str) -> Any:
        for source in (self.config, self.defaults):
            for name in names:
                value = source.get(name)
                if value is not None:
                    return value
        return None

    def size(self, *names: str) -> int | None:
        return size_in(self.raw(*names))

    def flag(self, *names: str) -> bool:
        return bool(self.raw(*names))


def size_in(value: Any) -> int | None:
    """The whole number that a value stands for; ``None`` for what can be no size."""
    if isinstance(value, list) and value:
        value = value[0]  # a size per layer or per axis: the sizes are equal in practice
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_SIZE:
        return None
    return value


def text_in(value: Any) -> str:
    """The value if it is a text, else an empty one."""
    return value if isinstance(value, str) else ""


def nested_in(f: Fields, key: str, name: str) -> Any:
    """What stands under ``name`` in the object that ``key`` holds, if it holds one."""
    value = f.raw(key)
    return value.get(name) if isinstance(value, dict) else None
