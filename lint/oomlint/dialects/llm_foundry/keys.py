"""Keys of LLM Foundry's training YAML, of ``composer`` and of the MosaicML run file.

Read from llm-foundry 0.22.0.dev0 (8c8dd48f) and Composer 640518880 (2026-04-29); ``LF`` below
is the package ``llmfoundry``, ``CO`` the package ``composer``.
"""

from __future__ import annotations

import math
from typing import Any

from oomlint.dialects.kinds import (
    ANYTHING,
    AUTO,
    BOOLEAN,
    COUNT,
    DTYPE,
    LIST,
    NUMBER,
    POSITIVE,
    TEXT,
    BadValue,
    Kind,
    choice,
    read_integer,
    read_number,
)
from oomlint.dialects.machine.fields import launch
from oomlint.dialects.table import Row, Table, known_keys
from oomlint.plan.fields import Private, f
from oomlint.plan.library_changes import LibraryChange

SOURCE = "llm-foundry 8c8dd48f"
TRAIN_CONFIG = f"{SOURCE} utils/config_utils.py TrainConfig"
FSDP_CONFIG = "Composer 640518880 utils/parallelism.py FSDPConfig"


class own(Private, prefix="foundry"):  # noqa: N801  a namespace of fields, read like ``f``
    """Keys whose meaning takes more than one of them."""

    model: str
    pretrained: bool
    init_device: str
    flash2: bool
    attention: str
    mpt_attention: str
    weights: str
    loss: str
    peft: str
    targets: tuple[str, ...]
    dora: bool
    loader: str
    packing_ratio: Any
    trims: bool
    eval_loader: Any
    icl_tasks: Any
    eval_interval: str
    global_: int
    precision: str
    fsdp: bool
    policy: str
    checkpointing: bool
    reentrant: bool
    offload: bool
    dp_shard: Any
    compile: Any
    save_interval: str
    keep: int
    hf_interval: str
    hf_dtype: str
    duration: str
    world_size: int


EXPANDS_SEGMENTS = LibraryChange(
    "llm-foundry", (0, 10), "segments of the allocator do not expand unless the file asks for it",
    "llm-foundry 0.9.1 and 0.10.0 llmfoundry/utils/config_utils.py TrainConfig", was=False,
)  # fmt: skip


class mpt(Private, prefix="foundry.mpt"):  # noqa: N801
    """The dimensions of an MPT that is built from scratch."""

    d_model: int
    n_heads: int
    n_layers: int
    head_dim: int
    vocab_size: int
    expansion_ratio: float
    no_bias: bool
    norm_type: str
    tie: bool
    kv_n_heads: int
    attn_type: str
    alibi: bool
    rope: bool
    ffn_type: str
    ffn: int
    act: str
    mlp_type: str
    experts: int
    topk: int


def _read_micro(raw: Any) -> Any:
    """Samples; ``auto`` lets Composer halve it on every out-of-memory error. A fraction is of
    one packed sample and counts as one."""
    if raw == "auto":
        return AUTO
    number = read_number(raw)
    if not 0 < number < math.inf:
        raise BadValue("expected a number of samples above 0, or auto")
    return math.ceil(number)


def _read_policy(raw: Any) -> str:
    """A word, or a mapping of dtypes (CO/distributed/mosaic_parallelism.py:59)."""
    if isinstance(raw, dict):
        return str(raw.get("param_dtype") or "full")
    text = str(raw).upper()
    if text not in ("DEFAULT", "PURE", "FULL"):
        raise BadValue("expected one of DEFAULT, PURE, FULL")
    return text


_MICRO = Kind(_read_micro)
_POLICY = Kind(_read_policy)
_PRECISION = choice(
    {
        "amp_bf16": "amp_bf16",
        "amp_fp16": "amp_fp16",
        "amp_fp8": "amp_fp8",
        "fp32": "fp32",
        "amp": "amp_fp16",
        "bf16": "amp_bf16",
        "fp16": "amp_fp16",
    }
)
_STRATEGY = choice(
    {
        "FULL_SHARD": "full",
        "SHARD_GRAD_OP": "grad_op",
        "HYBRID_SHARD": "hybrid",
        "_HYBRID_SHARD_ZERO2": "hybrid_grad_op",
        "NO_SHARD": "no_shard",
    }
)
_PREFETCH = choice({"BACKWARD_PRE": "pre", "BACKWARD_POST": "post", "NO_PREFETCH": "none"})
_ATTENTION = choice(
    {"flash": "flash2", "torch": "eager", "triton": "flash2"},
)
_HF_ATTENTION = choice(
    {
        "eager": "eager",
        "sdpa": "sdpa",
        "flash_attention_2": "flash2",
        "flash_attention_3": "flash3",
        "flex_attention": "flex",
    }
)

# That the object is there; what it says has rows of its own.
_IS_MAPPING = Kind(lambda raw: isinstance(raw, dict) or None, schema={"type": "object"})

LLM_FOUNDRY = Table(
    name="LLM Foundry config",
    rows=(
        Row("model.name", own.model, TEXT),
        Row("model.pretrained_model_name_or_path", f.model.id, TEXT),
        Row("model.pretrained", own.pretrained, BOOLEAN, default=True, source=f"{SOURCE} models/hf/hf_causal_lm.py"),
        Row("model.init_device", own.init_device, TEXT, default="cpu", source=f"{SOURCE} models/hf/hf_causal_lm.py"),
        Row("model.use_flash_attention_2", own.flash2, BOOLEAN),
        Row("model.attn_implementation", own.attention, _HF_ATTENTION),
        Row(
            "model.attn_config.attn_impl",
            own.mpt_attention,
            _ATTENTION,
            aliases=("model.config_overrides.attn_config.attn_impl",),
        ),
        Row("model.master_weights_dtype", own.weights, DTYPE),
        Row("model.trust_remote_code", f.model.trust_remote_code, BOOLEAN),
        Row("model.loss_fn", own.loss, TEXT),
        Row("model.d_model", mpt.d_model, POSITIVE),
        Row("model.n_heads", mpt.n_heads, POSITIVE),
        Row("model.n_layers", mpt.n_layers, POSITIVE),
        Row("model.head_dim", mpt.head_dim, POSITIVE),
        Row("model.vocab_size", mpt.vocab_size, POSITIVE),
        Row("model.expansion_ratio", mpt.expansion_ratio, NUMBER),
        Row("model.no_bias", mpt.no_bias, BOOLEAN),
        Row("model.norm_type", mpt.norm_type, TEXT),
        Row("model.tie_word_embeddings", mpt.tie, BOOLEAN),
        Row("model.attn_config.kv_n_heads", mpt.kv_n_heads, POSITIVE),
        Row("model.attn_config.attn_type", mpt.attn_type, TEXT),
        Row("model.attn_config.alibi", mpt.alibi, BOOLEAN),
        Row("model.attn_config.rope", mpt.rope, BOOLEAN),
        Row("model.ffn_config.ffn_type", mpt.ffn_type, TEXT),
        Row("model.ffn_config.ffn_hidden_size", mpt.ffn, POSITIVE),
        Row("model.ffn_config.ffn_act_fn.name", mpt.act, TEXT),
        Row("model.ffn_config.mlp_type", mpt.mlp_type, TEXT),
        Row("model.ffn_config.moe_num_experts", mpt.experts, POSITIVE),
        Row("model.ffn_config.moe_top_k", mpt.topk, POSITIVE),
        Row("model.peft_config.peft_type", own.peft, TEXT),
        Row("model.peft_config.r", f.trainable.r, POSITIVE),
        Row("model.peft_config.lora_alpha", f.trainable.alpha, NUMBER),
        Row("model.peft_config.lora_dropout", f.trainable.dropout, NUMBER),
        Row("model.peft_config.target_modules", own.targets, LIST),
        Row("model.peft_config.modules_to_save", f.trainable.modules_to_save, LIST),
        Row("model.peft_config.use_dora", own.dora, BOOLEAN),
        Row("train_loader.name", own.loader, TEXT),
        Row("train_loader.dataset.max_seq_len", f.seq.max_len, POSITIVE, aliases=("max_seq_len",)),
        Row("train_loader.dataset.packing_ratio", own.packing_ratio, ANYTHING),
        Row("train_loader.dataset.allow_pad_trimming", own.trims, BOOLEAN, default=False, source=f"{SOURCE} data/finetuning/dataloader.py:655"),
        Row("train_loader.num_workers", f.data.workers, COUNT, default=0, source="torch DataLoader"),
        Row("train_loader.prefetch_factor", f.data.prefetch, POSITIVE),
        Row("train_loader.pin_memory", f.data.pin_memory, BOOLEAN),
        Row("train_loader.persistent_workers", f.data.persistent, BOOLEAN),
        Row("eval_loader", own.eval_loader, ANYTHING, aliases=("eval_loaders",)),
        Row("icl_tasks", own.icl_tasks, ANYTHING),
        Row("eval_interval", own.eval_interval, TEXT, default="1", source=TRAIN_CONFIG),
        Row("eval_first", f.eval.on_start, BOOLEAN, default=False, source=TRAIN_CONFIG),
        Row("optimizer.name", f.optimizer.name, TEXT),
        Row("global_train_batch_size", own.global_, POSITIVE),
        Row("device_train_microbatch_size", f.batch.micro, _MICRO),
        Row("device_eval_batch_size", f.batch.eval_micro, POSITIVE),
        Row("precision", own.precision, _PRECISION, default="amp_bf16", source=TRAIN_CONFIG),
        Row("fsdp_config", own.fsdp, _IS_MAPPING),
        Row("fsdp_config.sharding_strategy", f.parallel.fsdp.strategy, _STRATEGY),
        Row("fsdp_config.mixed_precision", own.policy, _POLICY),
        Row("fsdp_config.activation_checkpointing", own.checkpointing, BOOLEAN),
        Row("fsdp_config.activation_checkpointing_reentrant", own.reentrant, BOOLEAN),
        Row("fsdp_config.activation_cpu_offload", own.offload, BOOLEAN),
        Row("fsdp_config.backward_prefetch", f.parallel.fsdp.backward_prefetch, _PREFETCH),
        Row("fsdp_config.forward_prefetch", f.parallel.fsdp.forward_prefetch, BOOLEAN),
        Row("fsdp_config.limit_all_gathers", f.parallel.fsdp.limit_all_gathers, BOOLEAN),
        Row("fsdp_config.use_orig_params", f.parallel.fsdp.use_orig_params, BOOLEAN),
        Row("fsdp_config.state_dict_type", f.parallel.fsdp.state_dict, TEXT),
        Row("fsdp_config.sync_module_states", f.parallel.fsdp.sync_module_states, BOOLEAN),
        Row("fsdp_config.data_parallel_shard_degree", own.dp_shard, ANYTHING),
        Row("fsdp_config.data_parallel_replicate_degree", f.parallel.dp_replicate, POSITIVE),
        Row("tp_config.tensor_parallel_degree", f.parallel.tp, POSITIVE),
        Row("expandable_segments", f.env.expandable_segments, BOOLEAN, default=True, changes=(EXPANDS_SEGMENTS,), source=TRAIN_CONFIG),
        Row("compile_config", own.compile, ANYTHING),
        Row("save_folder", f.save.dir, TEXT),
        Row("save_interval", own.save_interval, TEXT, default="1000ba", source=TRAIN_CONFIG),
        Row("save_num_checkpoints_to_keep", own.keep, Kind(read_integer), default=-1, source=TRAIN_CONFIG),
        Row("save_weights_only", f.save.save_only_model, BOOLEAN, default=False, source=TRAIN_CONFIG),
        Row("callbacks.hf_checkpointer.save_interval", own.hf_interval, TEXT),
        Row("callbacks.hf_checkpointer.precision", own.hf_dtype, DTYPE),
        Row("max_duration", own.duration, TEXT),
    ),
    # train.py:138 refuses load_in_8bit: it is there for evaluation.
    known=known_keys("llm_foundry") | {"model.load_in_8bit"},
    # Arguments of registered components, which are any callable's own.
    known_prefixes=(
        "variables.", "model.", "tokenizer.", "train_loader.", "eval_loader.", "eval_loaders.",
        "optimizer.", "scheduler.", "algorithms.", "callbacks.", "loggers.", "fsdp_config.",
        "tp_config.", "compile_config.", "profiler.", "metadata.",
    ),
    ignores_unknown=False,
    loader="omegaconf",
    section="training",
)  # fmt: skip

# CO/cli/launcher.py:44-112.
COMPOSER = Table(
    name="composer",
    rows=(
        Row("nproc", f.parallel.gpus_per_node, POSITIVE, aliases=("n",)),
        Row("world_size", own.world_size, POSITIVE),
    ),
    known_prefixes=("",),
    loader="yaml12",
    section="launch words",
)

# docs.mosaicml.com, "Run schema": GPUs are counted over all nodes.
MCLI = Table(
    name="MosaicML run",
    rows=(
        Row("compute.gpus", launch.total_processes, POSITIVE, aliases=("gpu_num",)),
        Row("compute.nodes", f.parallel.nodes, POSITIVE),
    ),
    known_prefixes=("",),
    section="scheduler",
)
