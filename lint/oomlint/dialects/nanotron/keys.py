"""The keys of nanotron's configs that decide memory.

Read from huggingface/nanotron 2411b022 (2026-04-07) and v0.4; ``NT`` below is its ``src/nanotron``.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.kinds import (
    ANYTHING,
    BOOLEAN,
    COUNT,
    DTYPE,
    INTEGER,
    NUMBER,
    POSITIVE,
    TEXT,
    choice,
)
from oomlint.dialects.table import Row, Table, known_keys
from oomlint.plan.fields import Private, f

SOURCE = "nanotron 2411b022"
CONFIG = f"{SOURCE} src/nanotron/config/config.py"
MODELS = f"{SOURCE} src/nanotron/config/models_config.py"
PARALLELISM = f"{SOURCE} src/nanotron/config/parallelism_config.py"


class own(Private, prefix="nanotron"):  # noqa: N801  a namespace of fields, read like ``f``
    """Numbers of the model, and keys whose meaning takes more than one of them.

    ``sums``: gradients add up in fp32, beside fp32 weights. ``multiple``: what the vocabulary is padded to
    on every tensor-parallel rank. ``is_starcoder``: of which family a config is, LLaMA's and
    Qwen's being alike. ``path``: of
    the checkpoint that is tuned. ``whole_mlp``: of the experts that every token goes through.
    """

    dp: int
    zero: int
    sums: bool
    optimizer: str
    recomputes: bool
    dtype: str
    path: str
    multiple: int
    is_starcoder: bool
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    vocab: int
    tied: bool
    attention_bias: bool
    positions: int
    window: int
    multi_query: bool
    moe: Any
    experts: int
    topk: int
    expert_ffn: int
    shared: bool
    shared_ffn: int
    expert_layers: Any
    interval: int


_M = "model.model_config."
_E = f"{_M}moe_config."
_P = "parallelism."
_TP_MODE = choice(
    {"all_reduce": False, "reduce_scatter": True},
    write={True: "REDUCE_SCATTER", False: "ALL_REDUCE"},
)
_ENGINE = choice({"afab": "afab", "1f1b": "1F1B"}, fold_case=False)

NANOTRON = Table(
    name="nanotron config",
    rows=(
        Row(f"{_P}dp", own.dp, POSITIVE),
        Row(f"{_P}tp", f.parallel.tp, POSITIVE),
        Row(f"{_P}pp", f.parallel.pp, POSITIVE),
        Row(f"{_P}context_parallel_size", f.parallel.cp, POSITIVE, 1, source=f"{PARALLELISM}:39"),
        Row(f"{_P}expert_parallel_size", f.parallel.ep, POSITIVE, 1, source=f"{PARALLELISM}:38"),
        Row(f"{_P}pp_engine", f.parallel.pp_schedule, _ENGINE, "afab", source=f"{PARALLELISM}:43"),
        Row(f"{_P}tp_mode", f.parallel.sp, _TP_MODE, False, source=f"{PARALLELISM}:45"),
        Row(f"{_P}recompute_layer", own.recomputes, BOOLEAN, False, source=f"{PARALLELISM}:35"),
        Row("model.dtype", own.dtype, DTYPE, "bf16", source=f"{CONFIG}: ModelArgs.__post_init__"),
        Row("model.make_vocab_size_divisible_by", own.multiple, POSITIVE, 1, source=f"{CONFIG}: ModelArgs"),
        Row("model.ddp_bucket_cap_mb", f.parallel.ddp.bucket_mb, NUMBER, 25.0, source=f"{CONFIG}: ModelArgs"),
        Row("model.init_method.path", own.path, TEXT),
        Row(f"{_M}is_starcoder2_config", own.is_starcoder, BOOLEAN),
        Row(f"{_M}num_hidden_layers", own.layers, POSITIVE),
        Row(f"{_M}hidden_size", own.hidden, POSITIVE),
        Row(f"{_M}intermediate_size", own.ffn, POSITIVE),
        Row(f"{_M}num_attention_heads", own.heads, POSITIVE),
        Row(f"{_M}num_key_value_heads", own.kv_heads, POSITIVE, aliases=(f"{_M}num_kv_heads",)),
        Row(f"{_M}vocab_size", own.vocab, INTEGER),
        Row(f"{_M}tie_word_embeddings", own.tied, BOOLEAN, False, source=f"{MODELS}:87"),
        Row(f"{_M}attention_bias", own.attention_bias, BOOLEAN, False, source=f"{MODELS}:75"),
        Row(f"{_M}max_position_embeddings", own.positions, POSITIVE, 2048, source=f"{MODELS}:72"),
        Row(f"{_M}sliding_window_size", own.window, POSITIVE),
        Row(f"{_M}multi_query", own.multi_query, BOOLEAN),
        Row(f"{_M}moe_config", own.moe, ANYTHING),
        Row(f"{_E}num_experts", own.experts, POSITIVE, 8, source=f"{MODELS}:40"),
        Row(f"{_E}top_k", own.topk, POSITIVE, 2, source=f"{MODELS}:41"),
        Row(f"{_E}moe_intermediate_size", own.expert_ffn, POSITIVE, 1408, source=f"{MODELS}:42"),
        Row(f"{_E}enable_shared_expert", own.shared, BOOLEAN, False, source=f"{MODELS}:48"),
        Row(f"{_E}shared_expert_intermediate_size", own.shared_ffn, POSITIVE, 5632, source=f"{MODELS}:43"),
        Row(f"{_E}layers", own.expert_layers, ANYTHING),
        Row("tokens.sequence_length", f.seq.max_len, POSITIVE),
        Row("tokens.micro_batch_size", f.batch.micro, POSITIVE),
        Row("tokens.batch_accumulation_per_replica", f.batch.grad_accum, POSITIVE),
        Row("tokens.train_steps", f.total_steps, POSITIVE),
        Row("optimizer.zero_stage", own.zero, COUNT),
        Row("optimizer.accumulate_grad_in_fp32", own.sums, BOOLEAN),
        Row("optimizer.clip_grad", f.optimizer.clip_norm, NUMBER),
        Row("optimizer.optimizer_factory.name", own.optimizer, TEXT, "adamW", source=f"{CONFIG}: AdamWOptimizerArgs"),
        Row("optimizer.optimizer_factory.torch_adam_is_fused", f.optimizer.fused, BOOLEAN, aliases=("optimizer.torch_adam_is_fused",)),
        Row("checkpoints.checkpoint_interval", own.interval, POSITIVE),
        Row("checkpoints.checkpoints_path", f.save.dir, TEXT),
    ),

    known=known_keys("nanotron")
    | {"data", "tokens.limit_train_batches"},
    known_prefixes=("lighteval", "data_stages", "data.", "doremi"),
    ignores_unknown=False,
    section="training",
)  # fmt: skip
