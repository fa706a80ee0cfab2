"""Options that most scripts over transformers' Trainer share, for the model and its adapter.

Read from transformers 5.23 ``examples/pytorch``; TrainingArguments has rows of its own.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.common.fields import ref
from oomlint.dialects.kinds import (
    BOOLEAN,
    COUNT,
    DTYPE_OR_AUTO_LOAD,
    FILE_OR_NONE,
    LIMIT,
    LIST,
    NUMBER,
    TEXT,
    BadValue,
    Kind,
    choice,
    read_integer,
    read_list,
)
from oomlint.dialects.table import Row, Table, known_keys
from oomlint.dialects.trainer.arguments import (
    KNOWN_PREFIXES,
    KNOWN_TRAINING_ARGUMENTS,
    RENAMED_ARGUMENTS,
    SEQ2SEQ_ARGUMENTS,
    TRAINING_ARGUMENTS,
)
from oomlint.dialects.trainer.fields import hf
from oomlint.plan.fields import f

# transformers 5.23 integrations/hub_kernels.py and utils/generic.py: names a model may be
# loaded with; kernels of the hub stand for the same algorithms.
ATTENTION = choice(
    {
        "eager": "eager",
        "sdpa": "sdpa",
        "flash_attention_2": "flash2",
        "flash_attention_3": "flash3",
        "flex_attention": "flex",
        "kernels-community/flash-attn": "flash2",
        "kernels-community/flash-attn2": "flash2",
        "kernels-community/flash-attn3": "flash3",
        "kernels-community/vllm-flash-attn3": "flash3",
    },
    otherwise=None,
)


def _read_length(raw: Any) -> int | None:
    """A number of tokens; ``None`` and what is not positive mean that nothing is cut."""
    number = read_integer(raw)
    return number if number > 0 else None


LENGTH = Kind(_read_length, schema={"type": "integer"})


# Module names, or the one word ``all-linear``.
TARGETS = Kind(read_list, list)


def _read_bits(raw: Any) -> int:
    number = read_integer(raw)
    if number not in (4, 8, 16, 32):
        raise BadValue("expected 4, 8, 16 or 32 bits")
    return number


# Names that scripts agree on without a library behind them: the examples of transformers,
# FastChat fastchat/train/train*.py, Stanford Alpaca train.py, LLaVA llava/train/train.py,
# QLoRA qlora.py, Qwen finetune.py.
MODEL_ROWS = (
    Row("model_name_or_path", f.model.id, TEXT),
    Row("torch_dtype", hf.load_dtype, DTYPE_OR_AUTO_LOAD, aliases=("dtype",)),
    Row("attn_implementation", f.model.attn_impl, ATTENTION),
    Row("use_flash_attn", hf.use_flash, BOOLEAN, aliases=("use_flash_attention_2", "flash_attn", "use_flash_attention")),
    Row("low_cpu_mem_usage", f.load.low_cpu_mem, BOOLEAN),
    Row("use_peft", hf.use_peft, BOOLEAN, aliases=("use_lora", "lora_enable", "enable_lora", "use_peft_lora")),
    Row("lora_r", f.trainable.r, COUNT, aliases=("lora_rank",)),
    Row("lora_alpha", f.trainable.alpha, NUMBER),
    Row("lora_dropout", f.trainable.dropout, NUMBER),
    Row("lora_target_modules", hf.lora_targets, TARGETS),
    Row("lora_modules_to_save", f.trainable.modules_to_save, LIST, aliases=("modules_to_save",)),
    Row("use_dora", hf.use_dora, BOOLEAN),
    Row("q_lora", hf.load_4bit, BOOLEAN, aliases=("load_in_4bit", "use_qlora", "use_4bit_quantization")),
    Row("load_in_8bit", hf.load_8bit, BOOLEAN, aliases=("use_8bit_quantization", "use_int8_training")),
    Row("bits", hf.bits, Kind(_read_bits)),
    Row("full_finetune", hf.full, BOOLEAN),
    Row("double_quant", f.quant.double, BOOLEAN, aliases=("use_nested_quant", "use_bnb_nested_quant")),
    Row("model_max_length", f.seq.max_len, LENGTH, aliases=("block_size", "max_seq_length", "max_seq_len", "max_length", "max_source_length", "cutoff_len", "seq_length")),
    Row("max_target_length", f.seq.target_len, LENGTH),
    Row("dataset_name", f.data.sets, LIST),
    Row("max_eval_samples", f.eval.samples, LIMIT),
    Row("preprocessing_num_workers", f.data.preprocess_workers, COUNT),
    Row("streaming", f.data.streaming, BOOLEAN),
)  # fmt: skip


def over(own: tuple[Row, ...], base: tuple[Row, ...]) -> tuple[Row, ...]:
    """``own`` rows and those of ``base`` that none of them replaces."""
    keys = {name for row in own for name in (row.key, *row.aliases)}
    return (*own, *(row for row in base if row.key not in keys))


TRAINER = Table(
    name="training options",
    renamed=RENAMED_ARGUMENTS,
    rows=over(MODEL_ROWS, (*TRAINING_ARGUMENTS, *SEQ2SEQ_ARGUMENTS)),
    known=known_keys("trainer") | KNOWN_TRAINING_ARGUMENTS,
    known_prefixes=KNOWN_PREFIXES,
    # HfArgumentParser refuses what it does not know, but the script's own options are many.
    ignores_unknown=None,
    loader="yaml12",
    section="training",
)

# Options of a script whose meaning its own calls tell (:mod:`.scripts`).
# --deepspeed_config is that of deepspeed.add_config_arguments, which deepspeed.initialize reads by itself
# (DeepSpeed edaa7221 deepspeed/__init__.py:270 and :140).
SCRIPT_OPTIONS = Table(
    "script options",
    (Row("deepspeed_config", ref.deepspeed, FILE_OR_NONE),),
    known_prefixes=("",),
    section="options",
)
