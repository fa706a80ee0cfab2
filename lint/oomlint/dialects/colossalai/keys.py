"""Options of the trainers of Colossal-AI's applications: ColossalChat's scripts and Colossal-LLaMA's.

Read from ColossalAI 4f9953be (0.5.0, 2026-04-09); ``CHAT`` below is ``applications/ColossalChat/examples/training_scripts``,
``LLAMA`` ``applications/Colossal-LLaMA``. Options are argparse's: unknown ones are refused, switches have no value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oomlint.dialects.kinds import BOOLEAN, COUNT, LIST, NUMBER, POSITIVE, TEXT, Kind, choice
from oomlint.dialects.table import Row, Table, known_keys
from oomlint.errors import CannotEdit
from oomlint.plan.fields import Private, f

CHAT = "ColossalAI 4f9953be applications/ColossalChat/examples/training_scripts"
LLAMA = "ColossalAI 4f9953be applications/Colossal-LLaMA/train.py"
LORA_CLASS = "ColossalAI 4f9953be applications/ColossalChat/coati/models/lora.py LoraConfig"


class own(Private, prefix="colossal"):  # noqa: N801  a namespace of fields, read like ``f``
    """Options whose meaning takes more than one of them. ``batch``: samples that a rank, or a whole pipeline, takes at
    a time; ``pipelined``: those of one micro batch of a pipeline."""

    plugin: str
    batch: int
    steps: int
    pipelined: int
    tp: int
    pp: int
    sp: int
    sp_mode: str
    shares_sequence: bool
    stage: int
    offloads: bool
    dtype: str
    flash: bool
    lora: str
    rank: int
    freezes: bool
    loss: str
    no_reference: bool
    ref_tp: int
    interval: int
    eval_set: tuple[str, ...]


def _switched(value: Any) -> bool:
    if value is not True:
        raise CannotEdit("this switch is on by standing there; take it out of the command")
    return True


SWITCH = Kind(BOOLEAN.read, _switched, {"type": "boolean"})
_CHECKPOINTS = Kind(
    lambda raw: "full" if BOOLEAN.read(raw) else "none",
    lambda value: _switched(value == "full"),
    {"type": "boolean"},
)
_PLUGIN = choice(
    {name: name for name in ("gemini", "gemini_auto", "zero2", "zero2_cpu", "3d", "ddp")}
)
_DTYPE = choice({"fp16": "fp16", "bf16": "bf16"})
_PADDING = choice({"max_length": "max_len", "longest": "longest"})


def _shared(
    source: str, *, steps: int, length: int, batch: int, dtype: str, micro: int
) -> tuple[Row, ...]:
    """What all scripts take, by the defaults in which they differ."""
    return (
        Row("plugin", own.plugin, _PLUGIN, default="gemini", source=source),
        Row("batch_size", own.batch, POSITIVE, default=batch, source=source),
        Row("accumulation_steps", own.steps, POSITIVE, default=steps, source=source),
        Row("max_length", f.seq.max_len, POSITIVE, default=length, source=source),
        Row("mixed_precision", own.dtype, _DTYPE, default=dtype, source=source),
        Row("use_flash_attn", own.flash, SWITCH, default=False, source=source),
        Row("tp", own.tp, POSITIVE, default=1, source=source),
        Row("pp", own.pp, POSITIVE, default=1, source=source),
        Row("sp", own.sp, POSITIVE, default=1, source=source),
        Row("sp_mode", own.sp_mode, TEXT, default="split_gather", source=source),
        Row("enable_sequence_parallelism", own.shares_sequence, SWITCH, default=False, source=source),
        Row("zero_stage", own.stage, COUNT, default=0, source=source),
        Row("zero_cpu_offload", own.offloads, SWITCH, default=False, source=source),
        Row("microbatch_size", own.pipelined, POSITIVE, default=micro, source=source),
        Row("grad_clip", f.optimizer.clip_norm, NUMBER, default=1.0, source=source),
        Row("save_interval", own.interval, COUNT, default=1000, source=source),
    )  # fmt: skip


def _chat(
    source: str, *, steps: int, length: int = 2048, dtype: str = "fp16", micro: int = 1
) -> tuple[Row, ...]:
    return (
        *_shared(source, steps=steps, length=length, batch=4, dtype=dtype, micro=micro),
        Row("pretrain", f.model.id, TEXT),
        Row("grad_checkpoint", f.checkpointing.mode, _CHECKPOINTS, default="none", source=source),
        Row("lora_config", own.lora, TEXT),
        Row("eval_dataset", own.eval_set, LIST),
        Row("save_dir", f.save.dir, TEXT),
    )


def _renamed(rows: tuple[Row, ...], names: Mapping[str, str]) -> tuple[Row, ...]:
    return tuple(
        Row(names.get(row.key, row.key), row.field, row.kind, row.default, source=row.source)
        for row in rows
    )


def _table(name: str, rows: tuple[Row, ...]) -> Table:
    return Table(
        name=name,
        rows=rows,
        known=known_keys("colossalai"),
        ignores_unknown=False,
        loader="yaml12",
        section="training",
    )


_SFT, _DPO = f"{CHAT}/train_sft.py", f"{CHAT}/train_dpo.py"
_LLAMA_ROWS = (
    *_shared(LLAMA, steps=1, length=8192, batch=2, dtype="fp16", micro=1),
    Row("pretrained", f.model.id, TEXT),
    Row("use_grad_checkpoint", f.checkpointing.mode, _CHECKPOINTS, default="none", source=LLAMA),
    Row("lora_rank", own.rank, COUNT, default=0, source=LLAMA),
    Row("freeze_non_embeds_params", own.freezes, SWITCH, default=False, source=LLAMA),
    Row("padding_mode", f.seq.pad, _PADDING, default="max_len", source=LLAMA),
    Row("save_dir", f.save.dir, TEXT, default="checkpoint_dir", source=LLAMA),
)

TABLES = {
    "sft": _table(
        "ColossalChat train_sft",
        _renamed(
            _chat(_SFT, steps=8, length=512, dtype="bf16"),
            {"max_length": "max_len", "save_dir": "save_path"},
        ),
    ),
    "dpo": _table(
        "ColossalChat train_dpo",
        (
            *_chat(_DPO, steps=1, micro=2),
            Row("loss_type", own.loss, TEXT, default="dpo_loss", source=_DPO),
            Row("disable_reference_model", own.no_reference, SWITCH, default=False, source=_DPO),
            Row("ref_tp", own.ref_tp, POSITIVE, default=1, source=_DPO),
        ),
    ),
    "rm": _table("ColossalChat train_rm", _chat(f"{CHAT}/train_rm.py", steps=8)),
    "kto": _table("ColossalChat train_kto", _chat(f"{CHAT}/train_kto.py", steps=8)),
    "orpo": _table("ColossalChat train_orpo", _chat(f"{CHAT}/train_orpo.py", steps=8)),
    "llama": _table("Colossal-LLaMA train", _LLAMA_ROWS),
}
"""By script: what follows ``train_`` in its name, and ``llama`` for Colossal-LLaMA's ``train.py``."""

PROGRAM_OF = {table.name: name for name, table in TABLES.items()}

LORA = Table(
    name="ColossalChat LoRA config",
    rows=(
        Row("r", f.trainable.r, POSITIVE),
        Row("lora_alpha", f.trainable.alpha, NUMBER),
        Row("linear_lora_dropout", f.trainable.dropout, NUMBER),
        Row("target_modules", f.trainable.targets, LIST),
    ),
    known=frozenset({"embedding_lora_dropout", "lora_train_bias", "lora_initialization_method"}),
    ignores_unknown=False,
    section="adapter",
)
"""The JSON that ``--lora_config`` names."""
