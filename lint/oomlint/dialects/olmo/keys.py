"""The keys of OLMo's training YAML that decide memory.

Read from allenai/OLMo 59a53e3f (2025-09-04) and v0.2.0 to v0.6.0; ``OL`` below is its package ``olmo``. What
a file leaves out is the default of a dataclass: OmegaConf lays the file over ``TrainConfig`` and refuses keys
that it lacks (OL/config.py BaseConfig.load).
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.kinds import (
    ANYTHING,
    BOOLEAN,
    COUNT,
    INTEGER,
    NUMBER,
    POSITIVE,
    TEXT,
    BadValue,
    Kind,
    choice,
    read_boolean,
)
from oomlint.dialects.table import Row, Table, known_keys
from oomlint.plan.fields import Private, f

SOURCE = "OLMo 59a53e3f"
CONFIG = f"{SOURCE} olmo/config.py"
MODEL_CONFIG = f"{CONFIG} ModelConfig"
TRAIN_CONFIG = f"{CONFIG} TrainConfig"


class own(Private, prefix="olmo"):  # noqa: N801  a namespace of fields, read like ``f``
    """Numbers of the model, and keys whose meaning takes more than one of them.

    ``embeddings``: rows of the embedding, which are padded. ``policy``: what FSDP casts to; ``replicas``: copies of the model under hybrid sharding.
    ``sharded``, ``ephemeral``, ``unsharded``: how often checkpoints of each kind are written;
    ``keep`` and ``keep_unsharded``: how many of them stay, 0 being none. ``mask``: whether the data bring an attention mask.
    """

    hidden: int
    heads: int
    kv_heads: int
    multi_query: bool
    layers: int
    ffn: int
    expansion: float
    act: Any
    block_type: str
    alibi: bool
    rope: bool
    flash: bool
    qk_norm: bool
    qk_affine: bool
    embed_norm: bool
    norm_type: Any
    affine: bool
    norm_after: bool
    bias: bool
    clamp: float
    norm_bias: bool
    vocab: int
    embeddings: int
    tied: bool
    init_device: str
    optimizer: str
    precision: str
    strategy: str
    sharding: str
    wrapping: str
    policy: str
    replicas: int
    global_: int
    fused_loss: bool
    mask: bool
    ac: str
    compile: Any
    eval_micro: int
    evaluators: Any
    eval_interval: int
    sharded: int
    ephemeral: int
    unsharded: int
    keep: int
    keep_unsharded: int
    no_first: bool
    load_path: str
    duration: str


_MODES = (
    "whole_layer", "one_in_two", "one_in_three", "one_in_four", "one_in_eight", "two_in_three", "three_in_four",
    "fine_grained",
)  # fmt: skip


def _read_mode(raw: Any) -> str:
    """A word; a boolean is all layers or none (OL/config.py TrainConfig.update_legacy_settings)."""
    if isinstance(raw, bool) or str(raw).lower() in ("true", "false"):
        return "whole_layer" if read_boolean(raw) else "none"
    text = str(raw).lower()
    if text not in _MODES:
        raise BadValue(f"expected one of {', '.join(_MODES)}")
    return text


def _write_mode(value: Any) -> Any:
    return None if value == "none" else value


_STRATEGIES = {
    "FULL_SHARD": "full",
    "SHARD_GRAD_OP": "grad_op",
    "HYBRID_SHARD": "hybrid",
    "_HYBRID_SHARD_ZERO2": "hybrid_grad_op",
    "NO_SHARD": "no_shard",
}
_WRAPPING = (
    "by_block", "by_block_and_size", "by_block_group", "by_block_group_and_size", "size_based",
    "one_in_two", "one_in_three", "one_in_four", "one_in_five",
)  # fmt: skip
_AC = Kind(_read_mode, _write_mode, {"enum": [*_MODES, True, False, None]})
_SHARDING = choice(_STRATEGIES)
_WRAP = choice({word: word for word in _WRAPPING})
_POLICY = choice({"pure": "pure", "mixed": "mixed"})
_PRECISION = choice({"amp_bf16": "bf16", "amp_fp16": "fp16", "fp32": "fp32"})
_STRATEGY = choice({"fsdp": "fsdp", "ddp": "ddp", "single": "single"})
_ACT = choice({"swiglu": "swiglu", "gelu": "gelu", "relu": "relu"})
_NORM = choice({"default": "ln", "low_precision": "ln", "rms": "rms"})
_BLOCK = choice({"sequential": "sequential", "llama": "llama"})

_M = "model."

OLMO = Table(
    name="OLMo config",
    rows=(
        Row(f"{_M}d_model", own.hidden, POSITIVE, 768, source=MODEL_CONFIG),
        Row(f"{_M}n_heads", own.heads, POSITIVE, 12, source=MODEL_CONFIG),
        Row(f"{_M}n_kv_heads", own.kv_heads, POSITIVE),
        Row(f"{_M}multi_query_attention", own.multi_query, BOOLEAN),
        Row(f"{_M}n_layers", own.layers, POSITIVE, 12, source=MODEL_CONFIG),
        Row(f"{_M}mlp_ratio", own.expansion, NUMBER, 4.0, source=MODEL_CONFIG),
        Row(f"{_M}mlp_hidden_size", own.ffn, POSITIVE),
        Row(f"{_M}activation_type", own.act, _ACT, "swiglu", source=MODEL_CONFIG),
        Row(f"{_M}block_type", own.block_type, _BLOCK, "sequential", source=MODEL_CONFIG),
        Row(f"{_M}alibi", own.alibi, BOOLEAN, False, source=MODEL_CONFIG),
        Row(f"{_M}rope", own.rope, BOOLEAN, False, source=MODEL_CONFIG),
        Row(f"{_M}flash_attention", own.flash, BOOLEAN, False, source=MODEL_CONFIG),
        Row(f"{_M}attention_layer_norm", own.qk_norm, BOOLEAN, False, source=MODEL_CONFIG),
        Row(f"{_M}attention_layer_norm_with_affine", own.qk_affine, BOOLEAN, True, source=MODEL_CONFIG),
        Row(f"{_M}embedding_layer_norm", own.embed_norm, BOOLEAN, False, source=MODEL_CONFIG),
        Row(f"{_M}layer_norm_type", own.norm_type, _NORM, "ln", source=MODEL_CONFIG),
        Row(f"{_M}layer_norm_with_affine", own.affine, BOOLEAN, True, source=MODEL_CONFIG),
        Row(f"{_M}norm_after", own.norm_after, BOOLEAN, False, source=MODEL_CONFIG),
        Row(f"{_M}include_bias", own.bias, BOOLEAN, True, source=MODEL_CONFIG),
        Row(f"{_M}bias_for_layer_norm", own.norm_bias, BOOLEAN),
        Row(f"{_M}clip_qkv", own.clamp, NUMBER),
        Row(f"{_M}max_sequence_length", f.seq.max_len, POSITIVE, 1024, source=MODEL_CONFIG),
        Row(f"{_M}vocab_size", own.vocab, POSITIVE, 50257, source=MODEL_CONFIG),
        Row(f"{_M}embedding_size", own.embeddings, POSITIVE),
        Row(f"{_M}weight_tying", own.tied, BOOLEAN, True, source=MODEL_CONFIG),
        Row(f"{_M}init_device", own.init_device, TEXT),
        Row("optimizer.name", own.optimizer, TEXT, "lionw", source=f"{CONFIG} OptimizerConfig"),
        Row("precision", own.precision, _PRECISION),
        Row("distributed_strategy", own.strategy, _STRATEGY, "fsdp", source=TRAIN_CONFIG),
        Row("fsdp.sharding_strategy", own.sharding, _SHARDING, "full", source=f"{CONFIG} FSDPConfig"),
        Row("fsdp.wrapping_strategy", own.wrapping, _WRAP),
        Row("fsdp.precision", own.policy, _POLICY),
        Row("fsdp.use_orig_params", f.parallel.fsdp.use_orig_params, BOOLEAN, True, source=f"{CONFIG} FSDPConfig"),
        Row("fsdp.hybrid_sharding_num_model_replicas", own.replicas, POSITIVE),
        Row("ddp.find_unused_params", f.parallel.ddp.find_unused, BOOLEAN, False, source=f"{CONFIG} DDPConfig"),
        Row("global_train_batch_size", own.global_, POSITIVE, 512, source=TRAIN_CONFIG),
        Row("device_train_microbatch_size", f.batch.micro, POSITIVE, 16, source=TRAIN_CONFIG),
        Row("device_eval_batch_size", own.eval_micro, POSITIVE, 16, source=TRAIN_CONFIG),
        Row("max_grad_norm", f.optimizer.clip_norm, NUMBER),
        Row("fused_loss", own.fused_loss, BOOLEAN),
        Row("activation_checkpointing", own.ac, _AC, "none", source=TRAIN_CONFIG),
        Row("compile", own.compile, ANYTHING),
        Row("data.num_workers", f.data.workers, COUNT, 0, source=f"{CONFIG} DataConfig"),
        Row("data.prefetch_factor", f.data.prefetch, POSITIVE),
        Row("data.pin_memory", f.data.pin_memory, BOOLEAN, False, source=f"{CONFIG} DataConfig"),
        Row("data.persistent_workers", f.data.persistent, BOOLEAN, False, source=f"{CONFIG} DataConfig"),
        Row("data.generate_attention_mask", own.mask, BOOLEAN, False, source=f"{CONFIG} DataConfig"),
        Row("evaluators", own.evaluators, ANYTHING),
        Row("eval_interval", own.eval_interval, POSITIVE, 1000, source=TRAIN_CONFIG),
        Row("save_folder", f.save.dir, TEXT),
        Row("save_interval", own.sharded, POSITIVE),
        Row("save_interval_ephemeral", own.ephemeral, POSITIVE),
        Row("save_interval_unsharded", own.unsharded, POSITIVE),
        Row("save_num_checkpoints_to_keep", own.keep, INTEGER, -1, source=TRAIN_CONFIG),
        Row("save_num_unsharded_checkpoints_to_keep", own.keep_unsharded, INTEGER, -1, source=TRAIN_CONFIG),
        Row("no_pre_train_checkpoint", own.no_first, BOOLEAN, False, source=TRAIN_CONFIG),
        Row("load_path", own.load_path, TEXT),
        Row("max_duration", own.duration, TEXT, "10000", source=TRAIN_CONFIG),
    ),
    known=known_keys("olmo"),
    known_prefixes=("wandb", "evaluators.", "data.datasets.", "data.custom_dataset.args."),
    ignores_unknown=False,
    loader="omegaconf",
    section="training",
)  # fmt: skip
