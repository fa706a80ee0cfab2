"""What xtuner's configs set that decides memory, and the options of ``xtuner train``.

Read from InternLM/xtuner v0.1.21 (2024-06-17) and v0.1.23; ``XT`` below is its ``xtuner`` package. Its
configs set a constant once and refer to it: what has such a name is read, and changed, there.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from oomlint.dialects.common.fields import ref
from oomlint.dialects.kinds import (
    ANYTHING,
    BOOLEAN,
    COUNT,
    DTYPE as NAMED_DTYPE,
    LIST,
    NUMBER,
    POSITIVE,
    TARGETS,
    TEXT,
    Kind,
    choice,
    read_integer,
    switch,
)
from oomlint.dialects.table import Row, Table
from oomlint.plan.fields import Private, f

MODEL = "xtuner v0.1.21 xtuner/model/sft.py"
TRAIN = "xtuner v0.1.21 xtuner/tools/train.py"


class own(Private, prefix="xtuner"):  # noqa: N801  a namespace of fields, read like ``f``
    """``model``: the class of ``model``; ``wrapper``: of ``optim_wrapper``, ``amp`` what it autocasts to.
    ``targets``: layers that get adapters, ``None`` for all linear ones."""

    model: str
    load_dtype: str
    bits4: bool
    bits8: bool
    lora: Any
    targets: tuple[str, ...]
    optimizer: str
    wrapper: str
    amp: str
    packs: bool
    varlen: bool
    interval: int
    keep: int


# ``torch.bfloat16`` is a name in Python, and a text in optim_wrapper.
_DTYPE = Kind(lambda raw: NAMED_DTYPE.read(str(raw)), NAMED_DTYPE.write, names=True)
# A class is written as its name, or as a text by which the registry finds it.
_CLASS = replace(TEXT, names=True)
_ATTENTION = choice(
    {"flash_attention_2": "flash2", "sdpa": "sdpa", "eager": "eager"},
)
_L = "model.llm."
_Q = f"{_L}quantization_config."
_HOOK = "default_hooks.checkpoint."
_DATASETS = ("train_dataset", "train_dataloader.dataset")
_WHOLE = Kind(read_integer)

XTUNER = Table(
    name="xtuner config",
    rows=(
        Row("pretrained_model_name_or_path", f.model.id, TEXT, aliases=(f"{_L}pretrained_model_name_or_path",)),
        Row("model.type", own.model, _CLASS),
        Row("model.use_activation_checkpointing", f.checkpointing.mode, switch(on="full", off="none"), "full", source=MODEL),
        Row(f"{_L}torch_dtype", own.load_dtype, _DTYPE),
        Row(f"{_L}attn_implementation", f.model.attn_impl, _ATTENTION),
        Row(f"{_L}trust_remote_code", f.model.trust_remote_code, BOOLEAN),
        Row(f"{_Q}load_in_4bit", own.bits4, BOOLEAN),
        Row(f"{_Q}load_in_8bit", own.bits8, BOOLEAN),
        Row(f"{_Q}bnb_4bit_use_double_quant", f.quant.double, BOOLEAN),
        Row(f"{_Q}bnb_4bit_compute_dtype", f.quant.compute_dtype, _DTYPE),
        Row(f"{_Q}bnb_4bit_quant_storage", f.quant.storage_dtype, _DTYPE),
        Row("model.lora.r", f.trainable.r, POSITIVE),
        Row("model.lora.lora_alpha", f.trainable.alpha, NUMBER),
        Row("model.lora.lora_dropout", f.trainable.dropout, NUMBER),
        Row("model.lora.target_modules", own.targets, TARGETS),
        Row("model.lora.modules_to_save", f.trainable.modules_to_save, LIST),
        Row("model.lora", own.lora, ANYTHING),
        Row("use_varlen_attn", own.varlen, BOOLEAN, False, ("model.use_varlen_attn",), MODEL),
        Row("max_length", f.seq.max_len, POSITIVE, aliases=tuple(f"{each}.max_length" for each in _DATASETS)),
        Row("pack_to_max_length", own.packs, BOOLEAN, aliases=tuple(f"{each}.pack_to_max_length" for each in _DATASETS)),
        Row("sequence_parallel_size", f.parallel.ulysses, POSITIVE, 1, source=TRAIN),
        Row("batch_size", f.batch.micro, POSITIVE, aliases=("train_dataloader.batch_size",)),
        Row("dataloader_num_workers", f.data.workers, COUNT, aliases=("train_dataloader.num_workers",)),
        Row("accumulative_counts", f.batch.grad_accum, POSITIVE, aliases=("optim_wrapper.accumulative_counts",)),
        Row("optim_wrapper.type", own.wrapper, _CLASS),
        Row("optim_wrapper.dtype", own.amp, _DTYPE),
        Row("optim_type", own.optimizer, _CLASS, aliases=("optim_wrapper.optimizer.type",)),
        Row("max_norm", f.optimizer.clip_norm, NUMBER, aliases=("optim_wrapper.clip_grad.max_norm",)),
        Row("train_cfg.max_iters", f.total_steps, POSITIVE),
        Row("save_steps", own.interval, _WHOLE, aliases=(f"{_HOOK}interval",)),
        Row("save_total_limit", own.keep, _WHOLE, aliases=(f"{_HOOK}max_keep_ckpts",)),
        Row("work_dir", f.save.dir, TEXT),
    ),
    known_prefixes=("",),
    section="training",
)  # fmt: skip

# XT/tools/train.py parse_args.
COMMAND = Table(
    name="xtuner train",
    rows=(
        Row("deepspeed", ref.deepspeed, TEXT),
        Row("work_dir", f.save.dir, TEXT),
    ),
    known_prefixes=("",),
    loader="yaml12",
    section="launch words",
)
