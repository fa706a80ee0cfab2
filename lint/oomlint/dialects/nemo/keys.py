"""The keys of NeMo 1's Megatron configs that decide memory.

Read from NVIDIA/NeMo v1.11.0, v1.23.0 and v2.2.1 ``examples/nlp/language_modeling/**/conf``.
"""

from __future__ import annotations

from collections.abc import Mapping as MappingABC
from typing import Any

from oomlint.dialects.kinds import (
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
    switch,
)
from oomlint.dialects.megatron.fields import mg
from oomlint.dialects.table import Row, Table, known_keys
from oomlint.documents.base import Mapping
from oomlint.errors import CannotEdit
from oomlint.plan.fields import Private, f

SOURCE = "NeMo v1.23.0 nlp/models/language_modeling/megatron_base_model.py"
BUILDER = "NeMo v1.23.0 nlp/parts/megatron_trainer_builder.py"
SHIPPED = "NeMo v1.23.0 examples/nlp/language_modeling/conf/megatron_gpt_config.yaml"


def _read_devices(raw: Any) -> Any:
    """A number of GPUs, a list of them, or -1 and ``auto`` for all there are."""
    if isinstance(raw, list):
        return len(raw) or None
    if raw == "auto":
        return AUTO
    number = read_integer(raw)
    return AUTO if number == -1 else number


def _read_precision(raw: Any) -> str:
    """PyTorch Lightning's spellings, old and new."""
    text = str(raw).lower().removesuffix("-mixed")
    if text in ("16", "fp16", "16-true"):
        return "fp16"
    if text in ("bf16", "bf16-true"):
        return "bf16"
    if text in ("32", "32-true", "fp32"):
        return "fp32"
    raise BadValue("expected 16, bf16 or 32")


def _write_precision(dtype: Any) -> Any:
    return {"fp16": 16, "bf16": "bf16", "fp32": 32}[dtype]


def _read_checkpoint(raw: Any) -> str | None:
    """The model behind ``/models/llama-2-7b.nemo``; ``???`` is for the command line to say."""
    text = str(raw).rstrip("/")
    return None if text in ("???", "") else text.rpartition("/")[2].removesuffix(".nemo")


def _unwritable(_value: Any) -> Any:
    raise CannotEdit("another model needs another checkpoint")


_DEVICES = Kind(_read_devices)
_PRECISION = Kind(_read_precision, _write_precision)
_CHECKPOINT = Kind(_read_checkpoint, _unwritable)
_ACTIVATION = choice(
    {
        "gelu": "gelu",
        "geglu": "geglu",
        "fast-geglu": "geglu",
        "swiglu": "swiglu",
        "fast-swiglu": "swiglu",
        "reglu": "geglu",
        "squared-relu": "relu2",
        "relu": "relu",
    },
    otherwise=None,
)
_NORM = choice(
    {"layernorm": "ln", "layernorm1p": "ln", "low_precision_layernorm": "ln", "rmsnorm": "rms"},
    otherwise=None,
)
_GRANULARITY = choice({"selective": "selective_op", "full": "full"}, write={"none": None})
_SCHEMES = choice(
    {
        "lora": "lora", "qlora": "qlora", "none": "full", "adapter": "adapter", "ptuning": "other",
        "ia3": "other", "selective": "freeze", "sdlora": "lora",
    },
    otherwise="other",
)  # fmt: skip


class own(Private, prefix="nemo"):  # noqa: N801
    """``o2``: half-precision weights with a copy in the optimizer. ``length`` is that of
    pretraining, ``sft_length`` that of tuning. ``saves``, ``keep``, ``save_every``: the callback that
    writes checkpoints."""

    precision: str
    max_steps: int
    val_interval: float
    val_batches: float
    saves: bool
    keep: int
    save_every: int
    length: int
    sft_length: int
    packed: bool
    pads: bool
    o2: bool
    fsdp: bool
    strategy: str
    reduce: str
    offloads: bool
    offloads_activations: bool
    engine: bool
    mcore: bool
    flash: bool
    rank: int
    targets: tuple[str, ...]
    grad_dtype: str
    shares: bool


_M = "model."
_DATA = "model.data."
_CALLBACK = "exp_manager.checkpoint_callback_params."

NEMO = Table(
    name="NeMo config",
    rows=(
        Row("trainer.devices", f.parallel.gpus_per_node, _DEVICES, aliases=("trainer.gpus",)),
        Row("trainer.num_nodes", f.parallel.nodes, POSITIVE),
        Row("trainer.precision", own.precision, _PRECISION, "fp32", source="PyTorch Lightning: 32-true"),
        Row("trainer.max_steps", own.max_steps, Kind(read_integer)),
        Row("trainer.gradient_clip_val", f.optimizer.clip_norm, NUMBER),
        Row("trainer.val_check_interval", own.val_interval, NUMBER),
        Row("trainer.limit_val_batches", own.val_batches, Kind(read_number)),
        Row("exp_manager.create_checkpoint_callback", own.saves, BOOLEAN, True, source="NeMo v1.23.0 utils/exp_manager.py"),
        Row(f"{_CALLBACK}save_top_k", own.keep, Kind(read_integer), 3, source="NeMo v1.23.0 utils/exp_manager.py"),
        Row(f"{_CALLBACK}every_n_train_steps", own.save_every, POSITIVE),
        Row("exp_manager.exp_dir", f.save.dir, TEXT, aliases=("exp_manager.explicit_log_dir",)),
        Row(f"{_M}restore_from_path", f.model.id, _CHECKPOINT, aliases=("restore_from_path", "model.pretrained_checkpoint.checkpoint_name")),
        Row(f"{_M}micro_batch_size", f.batch.micro, POSITIVE, aliases=(f"{_DATA}train_ds.micro_batch_size",)),
        Row(f"{_M}global_batch_size", mg.global_batch, POSITIVE, aliases=(f"{_DATA}train_ds.global_batch_size",)),
        Row(f"{_DATA}validation_ds.micro_batch_size", f.batch.eval_micro, POSITIVE),
        Row(f"{_M}encoder_seq_length", own.length, POSITIVE, aliases=(f"{_DATA}seq_length", f"{_M}seq_length")),
        Row(f"{_DATA}train_ds.max_seq_length", own.sft_length, POSITIVE),
        Row(f"{_DATA}train_ds.packed_sequence", own.packed, BOOLEAN),
        Row(f"{_DATA}train_ds.pad_to_max_length", own.pads, BOOLEAN),
        Row(f"{_DATA}num_workers", f.data.workers, COUNT, aliases=(f"{_DATA}train_ds.num_workers",)),
        Row(f"{_M}tensor_model_parallel_size", f.parallel.tp, POSITIVE, 1, source=SOURCE),
        Row(f"{_M}pipeline_model_parallel_size", f.parallel.pp, POSITIVE, 1, source=SOURCE),
        Row(f"{_M}virtual_pipeline_model_parallel_size", f.parallel.vpp, POSITIVE),
        Row(f"{_M}context_parallel_size", f.parallel.cp, POSITIVE, 1, source=SOURCE),
        Row(f"{_M}expert_model_parallel_size", f.parallel.ep, POSITIVE, 1, source=SOURCE),
        Row(f"{_M}sequence_parallel", f.parallel.sp, BOOLEAN, False, source=SOURCE),
        Row(f"{_M}megatron_amp_O2", own.o2, BOOLEAN, False, source=SOURCE),
        Row(f"{_M}gradient_as_bucket_view", f.parallel.ddp.bucket_view, BOOLEAN),
        Row(f"{_M}fp8", f.precision.fp8_train, switch(on="te", off="none"), "none", source=SOURCE),
        Row(f"{_M}fsdp", own.fsdp, BOOLEAN, False, source=BUILDER),
        Row(f"{_M}fsdp_sharding_strategy", own.strategy, choice({"full": "full", "hybrid": "hybrid", "grad": "grad_op"}), "full", source=BUILDER),
        Row(f"{_M}fsdp_grad_reduce_dtype", own.reduce, Kind(_read_precision, _write_precision), "fp32", source=BUILDER),
        Row(f"{_M}fsdp_cpu_offload", f.parallel.fsdp.cpu_offload, BOOLEAN, False, source=BUILDER),
        Row(f"{_M}fsdp_sharded_checkpoint", f.parallel.fsdp.state_dict, switch(on="sharded", off="full")),
        Row(f"{_M}activations_checkpoint_granularity", f.checkpointing.mode, _GRANULARITY),
        Row(f"{_M}activations_checkpoint_method", mg.recompute_method, choice({"uniform": "uniform", "block": "block"})),
        Row(f"{_M}activations_checkpoint_num_layers", mg.recompute_layers, POSITIVE),
        Row(f"{_M}cpu_offloading", own.offloads, BOOLEAN, False, source=SHIPPED),
        Row(f"{_M}cpu_offloading_activations", own.offloads_activations, BOOLEAN, True, source=SHIPPED),
        Row(f"{_M}transformer_engine", own.engine, BOOLEAN),
        Row(f"{_M}mcore_gpt", own.mcore, BOOLEAN),
        Row(f"{_M}use_flash_attention", own.flash, BOOLEAN),
        Row(f"{_M}peft.peft_scheme", f.trainable.method, _SCHEMES, aliases=("model.lora_tuning.scheme",)),
        Row(f"{_M}peft.lora_tuning.adapter_dim", own.rank, POSITIVE),
        Row(f"{_M}peft.lora_tuning.alpha", f.trainable.alpha, NUMBER),
        Row(f"{_M}peft.lora_tuning.adapter_dropout", f.trainable.dropout, NUMBER),
        Row(f"{_M}peft.lora_tuning.target_modules", own.targets, LIST),
        Row(f"{_M}optim.name", f.optimizer.name, TEXT, "fused_adam", source=SHIPPED),
        Row(f"{_M}optim.grad_sync_dtype", own.grad_dtype, DTYPE),
        Row(f"{_M}num_layers", mg.layers, POSITIVE),
        Row(f"{_M}hidden_size", mg.hidden, POSITIVE),
        Row(f"{_M}ffn_hidden_size", mg.ffn, POSITIVE),
        Row(f"{_M}num_attention_heads", mg.heads, POSITIVE),
        Row(f"{_M}kv_channels", mg.head_dim, POSITIVE),
        Row(f"{_M}num_query_groups", mg.groups, POSITIVE),
        Row(f"{_M}max_position_embeddings", mg.max_positions, POSITIVE),
        Row(f"{_M}normalization", mg.norm, _NORM),
        Row(f"{_M}activation", mg.act, _ACTIVATION),
        Row(f"{_M}bias", mg.bias, BOOLEAN, True, source=SHIPPED),
        Row(f"{_M}share_embeddings_and_output_weights", own.shares, BOOLEAN, True, source=SHIPPED),
        Row(f"{_M}make_vocab_size_divisible_by", mg.divisor, POSITIVE, 128, source=SHIPPED),
        Row(f"{_M}override_vocab_size", mg.vocab, POSITIVE, aliases=("model.vocab_size", "model.padded_vocab_size")),
        Row(f"{_M}tokenizer.type", mg.tokenizer, TEXT),
        Row(f"{_M}num_moe_experts", mg.experts, POSITIVE),
        Row(f"{_M}moe_router_topk", mg.topk, POSITIVE),
    ),
    known=known_keys("nemo"),
    # Other collections and their forks have keys of their own below the same sections.
    ignores_unknown=None,
    loader="omegaconf",
    section="training",
)  # fmt: skip

# Sections of models that are more, or other, than a decoder.
OTHER_MODELS = frozenset(
    {
        "encoder", "decoder", "mm_cfg", "vision", "vision_encoder", "unet_config", "text",
        "first_stage_config", "patch_dim", "image_size", "retro", "enc_num_layers", "audio_adapter",
        "perception", "modality_adapter", "imagen", "hyena", "mamba_ssm_ngroups",
        "hybrid_override_pattern",
    }
)  # fmt: skip


def section(root: Mapping, name: str) -> MappingABC[str, Any]:
    found = root.section(name)
    return {} if found is None else found.entries
