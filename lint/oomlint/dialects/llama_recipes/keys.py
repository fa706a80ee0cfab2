"""Options of llama-recipes' ``finetuning`` script.

Read from llama-cookbook 0e003351 (2025-10-27) and the llama-recipes wheels 0.0.1 to 0.0.4;
``LC`` below is ``src/llama_cookbook``. Options pass through python-fire into dataclasses by
name, with or without the dataclass's own (``--fsdp_config.pure_bf16``); one that no dataclass
has is printed as a warning and dropped (LC/utils/config_utils.py update_config).
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.kinds import (
    BOOLEAN,
    COUNT,
    DTYPE,
    NUMBER,
    POSITIVE,
    TARGETS,
    TEXT,
    BadValue,
    Kind,
    choice,
    switch,
)
from oomlint.dialects.table import Row, Table, known_keys
from oomlint.errors import CannotEdit
from oomlint.plan.fields import Private, f

_TRAINING = "llama-cookbook 0e003351 configs/training.py"
FSDP_SOURCE = "llama-cookbook 0e003351 configs/fsdp.py"
_PEFT = "llama-cookbook 0e003351 configs/peft.py"


class own(Private, prefix="lr"):  # noqa: N801  a namespace of fields, read like ``f``
    """Options whose meaning takes more than one of them."""

    fsdp: bool
    low_cpu: bool
    use_peft: bool
    peft_method: str
    freeze_layers: bool
    frozen_layers: int
    freeze_llm: bool
    context_length: int
    mixed_precision: bool
    fp16: bool
    pure_bf16: bool
    hsdp: bool
    sharding_group: int
    fsdp_checkpointing: str
    quant_storage: str
    fast_kernels: bool
    save_model: bool
    max_steps: int


def _read_quantization(raw: Any) -> str:
    """``4bit``, ``8bit``, or the bare switch of old, which means 8 bit."""
    text = str(raw).strip().lower()
    if text in ("true", "8bit"):
        return "bnb8"
    if text == "4bit":
        return "bnb4"
    if text in ("false", "none", ""):
        return "none"
    raise BadValue("expected 4bit or 8bit")


def _write_quantization(value: Any) -> str:
    spelled = {"bnb4": "4bit", "bnb8": "8bit"}.get(value)
    if spelled is None:
        raise CannotEdit(f"llama-recipes quantizes to 4bit or 8bit, not {value}")
    return spelled


_QUANTIZATION = Kind(_read_quantization, _write_quantization)

# A name reaches FSDP as an enumeration member in code, as text on a command line.
_STRATEGY = choice(
    {
        "ShardingStrategy.FULL_SHARD": "full",
        "ShardingStrategy.SHARD_GRAD_OP": "grad_op",
        "ShardingStrategy.NO_SHARD": "no_shard",
        "ShardingStrategy.HYBRID_SHARD": "hybrid",
        "FULL_SHARD": "full",
        "SHARD_GRAD_OP": "grad_op",
        "NO_SHARD": "no_shard",
        "HYBRID_SHARD": "hybrid",
    }
)
_STATE_DICT = choice(
    {
        "StateDictType.SHARDED_STATE_DICT": "sharded",
        "StateDictType.FULL_STATE_DICT": "full",
        "SHARDED_STATE_DICT": "sharded",
        "FULL_STATE_DICT": "full",
    }
)


def _fsdp(key: str, field: Any, kind: Kind, default: Any = None) -> Row:
    return Row(f"fsdp_config.{key}", field, kind, default, aliases=(key,), source=FSDP_SOURCE)


def _lora(key: str, field: Any, kind: Kind, default: Any = None) -> Row:
    return Row(f"lora_config.{key}", field, kind, default, aliases=(key,), source=_PEFT)


LLAMA_RECIPES = Table(
    name="llama-recipes options",
    rows=(
        Row("model_name", f.model.id, TEXT),
        Row("enable_fsdp", own.fsdp, BOOLEAN, default=False, source=_TRAINING),
        Row("low_cpu_fsdp", own.low_cpu, BOOLEAN, default=False, source=_TRAINING),
        Row("quantization", f.quant.method, _QUANTIZATION, default="none", source=_TRAINING),
        Row("use_peft", own.use_peft, BOOLEAN, default=False, source=_TRAINING),
        Row("peft_method", own.peft_method, TEXT, default="lora", source=_TRAINING),
        _lora("r", f.trainable.r, POSITIVE, 8),
        _lora("lora_alpha", f.trainable.alpha, NUMBER, 32),
        _lora("lora_dropout", f.trainable.dropout, NUMBER, 0.05),
        _lora("target_modules", f.trainable.targets, TARGETS, ("q_proj", "v_proj")),
        Row("freeze_layers", own.freeze_layers, BOOLEAN, default=False, source=_TRAINING),
        Row("num_freeze_layers", own.frozen_layers, COUNT, default=1, source=_TRAINING),
        Row("freeze_LLM_only", own.freeze_llm, BOOLEAN, default=False, source=_TRAINING),
        Row("batch_size_training", f.batch.micro, POSITIVE, default=4, source=_TRAINING),
        Row("gradient_accumulation_steps", f.batch.grad_accum, POSITIVE, default=1, source=_TRAINING),
        Row("val_batch_size", f.batch.eval_micro, POSITIVE, default=1, source=_TRAINING),
        Row("batching_strategy", f.seq.packing, choice({"packing": "concat", "padding": "none"}), default="concat", source=_TRAINING),
        Row("context_length", own.context_length, POSITIVE, default=4096, source=_TRAINING),
        Row("mixed_precision", own.mixed_precision, BOOLEAN, default=True, source=_TRAINING),
        Row("use_fp16", own.fp16, BOOLEAN, aliases=("fsdp_config.use_fp16",), default=False, source=_TRAINING),
        _fsdp("pure_bf16", own.pure_bf16, BOOLEAN, False),
        _fsdp("sharding_strategy", f.parallel.fsdp.strategy, _STRATEGY),
        _fsdp("hsdp", own.hsdp, BOOLEAN, False),
        _fsdp("sharding_group_size", own.sharding_group, COUNT),
        _fsdp("checkpoint_type", f.parallel.fsdp.state_dict, _STATE_DICT),
        _fsdp("fsdp_activation_checkpointing", own.fsdp_checkpointing, switch(on="full", off="none"), "full"),
        _fsdp("fsdp_cpu_offload", f.parallel.fsdp.cpu_offload, BOOLEAN),
        _fsdp("optimizer", f.optimizer.name, TEXT, "AdamW"),
        Row("quantization_config.use_double_quant", f.quant.double, BOOLEAN, aliases=("use_double_quant",)),
        Row("quantization_config.quant_storage", own.quant_storage, DTYPE, aliases=("quant_storage",)),
        Row("use_fast_kernels", own.fast_kernels, BOOLEAN, default=False, source=_TRAINING),
        Row("run_validation", f.eval.enabled, BOOLEAN, default=True, source=_TRAINING),
        Row("save_model", own.save_model, BOOLEAN, default=True, source=_TRAINING),
        Row("save_optimizer", f.save.save_only_model, switch(on=False, off=True), default=True, source=_TRAINING),
        Row("output_dir", f.save.dir, TEXT),
        Row("num_workers_dataloader", f.data.workers, COUNT, default=1, source=_TRAINING),
        Row("max_train_step", own.max_steps, COUNT),
    ),
    known=known_keys("llama_recipes"),
    ignores_unknown=True,
    loader="yaml12",
    section="training",
)  # fmt: skip

# ``llama_finetuning.py`` is the script of 2023. Its defaults were the same where memory is concerned
# (llama-recipes 0.0.1).
OLD_LLAMA_RECIPES = Table(
    name=LLAMA_RECIPES.name,
    rows=LLAMA_RECIPES.rows,
    known=LLAMA_RECIPES.known,
    ignores_unknown=True,
    loader="yaml12",
    section="training",
)
