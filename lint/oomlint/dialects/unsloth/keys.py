"""Arguments of Unsloth's classes, and TRL's config classes with the defaults that it gives them.

Read from unsloth 015bdef0 (2026-08-22; ``U`` below is ``unslothai/unsloth unsloth/``) and
unsloth_zoo 2026.10.9 (``Z``).
"""

from __future__ import annotations

import re
from typing import Any

from msgspec.structs import replace

from oomlint.dialects.block import Block
from oomlint.dialects.kinds import BOOLEAN, LIST, NUMBER, POSITIVE, TEXT, Kind, read_boolean
from oomlint.dialects.table import Row, Table
from oomlint.dialects.trainer.fields import hf
from oomlint.dialects.trainer.keys import ATTENTION, LENGTH, TARGETS, over
from oomlint.dialects.trainer.tables import DEVICE_MAP, DTYPE, MODEL_ID
from oomlint.dialects.trl.fields import trl
from oomlint.dialects.trl.objectives import CALLS
from oomlint.plan.fields import Private, f

_LOADER = "unsloth models/loader.py FastLanguageModel.from_pretrained"
WRAPPER = "unsloth models/llama.py get_peft_model"
CONFIGS = "unsloth models/rl.py: its defaults for TRL's config classes"

# U models/llama.py:3064.
SEVEN = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class unsloth(Private, prefix="unsloth"):  # noqa: N801  a namespace of fields, read like ``f``
    """``full``: nothing is adapted. ``fp32``: full fine-tuning in mixed precision. ``max_len``: the
    longest sample as the model is loaded for it. ``vllm``: vLLM shares the trainer's weights;
    ``vllm_share`` of the GPU is for it, and ``standby`` makes it sleep while a step runs.
    ``checkpointing``: ``unsloth``, ``full`` or ``none``."""

    full: bool
    fp32: bool
    max_len: int
    load_4bit: bool
    load_8bit: bool
    load_16bit: bool
    checkpointing: str
    tiled_mlp: bool
    vllm: bool
    vllm_share: float
    standby: bool


def _read_checkpointing(raw: Any) -> str:
    """``"unsloth"``, or a boolean; its command line passes either as text."""
    if str(raw).lower() == "unsloth":
        return "unsloth"
    return "full" if read_boolean(raw) else "none"


_CHECKPOINTING = Kind(
    _read_checkpointing, lambda mode: mode if mode == "unsloth" else mode == "full"
)


def _read_dtype(raw: Any) -> str | None:
    """``torch.bfloat16``; the empty texts of command lines leave the choice to Unsloth."""
    return None if str(raw).lower() in ("", "none", "auto") else DTYPE.read(raw)


_DTYPE = Kind(_read_dtype, DTYPE.write, names=True)

FAST_MODEL = Table(
    name="FastModel.from_pretrained",
    rows=(
        Row("model_name", f.model.id, MODEL_ID, aliases=("0",), source=_LOADER),
        Row("max_seq_length", unsloth.max_len, LENGTH, default=2048, aliases=("1",), source=_LOADER),
        Row("dtype", hf.load_dtype, _DTYPE, aliases=("2",), source=_LOADER),
        Row("load_in_4bit", unsloth.load_4bit, BOOLEAN, default=True, aliases=("3",), source=_LOADER),
        Row("load_in_8bit", unsloth.load_8bit, BOOLEAN, default=False, source=_LOADER),
        Row("load_in_16bit", unsloth.load_16bit, BOOLEAN, default=False, source=_LOADER),
        Row("full_finetuning", unsloth.full, BOOLEAN, default=False, source=_LOADER),
        Row("float32_mixed_precision", unsloth.fp32, BOOLEAN, source=_LOADER),
        Row("use_gradient_checkpointing", unsloth.checkpointing, _CHECKPOINTING, default="unsloth", source=_LOADER),
        Row("unsloth_tiled_mlp", unsloth.tiled_mlp, BOOLEAN, default=False, source=_LOADER),
        Row("fast_inference", unsloth.vllm, BOOLEAN, default=False, source=_LOADER),
        Row("gpu_memory_utilization", unsloth.vllm_share, NUMBER, default=0.5, source=_LOADER),
        Row("unsloth_vllm_standby", unsloth.standby, BOOLEAN, default=False, source=_LOADER),
        Row("device_map", f.load.device_map, DEVICE_MAP),
        Row("attn_implementation", f.model.attn_impl, ATTENTION),
        Row("trust_remote_code", f.model.trust_remote_code, BOOLEAN),
        Row("revision", f.model.revision, TEXT),
    ),
    known_prefixes=("",),
    section="model",
)  # fmt: skip

FAST_PEFT = Table(
    name="get_peft_model of Unsloth",
    rows=(
        Row("r", f.trainable.r, POSITIVE, default=16, aliases=("1",), source=WRAPPER),
        Row("target_modules", hf.lora_targets, TARGETS, aliases=("2",), source=WRAPPER),
        Row("lora_alpha", f.trainable.alpha, NUMBER, default=16, source=WRAPPER),
        Row("lora_dropout", f.trainable.dropout, NUMBER, default=0.0, source=WRAPPER),
        Row("modules_to_save", f.trainable.modules_to_save, LIST, source=WRAPPER),
        Row("target_parameters", f.trainable.target_params, LIST, source=WRAPPER),
        Row("use_dora", hf.use_dora, BOOLEAN, source=WRAPPER),
        Row("use_gradient_checkpointing", unsloth.checkpointing, _CHECKPOINTING, default="unsloth", source=WRAPPER),
    ),
    known_prefixes=("",),
    section="adapter",
)  # fmt: skip

# U models/rl.py:3267; the classes' own defaults come from TRL otherwise.
_DEFAULTS = {
    f.batch.micro: 4,
    f.batch.grad_accum: 2,
    f.batch.eval_micro: 4,
    f.optimizer.name: "adamw_8bit",
    f.eval.accumulation_steps: 2,
    hf.logging_steps: 1,
}
# What U models/rl.py adds to every class, and U trainer.py to its own.
ADDED = frozenset(
    {
        "max_seq_length", "vllm_sampling_params", "unsloth_num_chunks", "unsloth_grpo_mini_batch",
        "unsloth_logit_chunk_multiplier", "embedding_learning_rate", "q_galore_config",
    }
)  # fmt: skip


def _with_added_keys(table: Table) -> Table:
    renamed = tuple(old for old in table.renamed if old.old not in ADDED)
    return replace(table, known=table.known | ADDED, renamed=renamed)


def _patched(table: Table) -> Table:
    rows = tuple(
        replace(row, default=_DEFAULTS[row.field], source=CONFIGS)
        if row.field in _DEFAULTS
        else row
        for row in table.rows
    )
    return replace(_with_added_keys(table), rows=rows)


# TRL's classes as Unsloth leaves them, and TrainingArguments in their place.
PATCHED = {kind: _patched(table) for kind, table in CALLS.items()}
PLAIN = {kind: _with_added_keys(table) for kind, table in CALLS.items()}


# unsloth-cli.py of the repository: switches are off where the library's are on.
_CLI = "unsloth unsloth-cli.py"
_CLI_DEFAULTS = {
    f.model.id: "unsloth/llama-3-8b", unsloth.load_4bit: False, f.batch.micro: 2,
    f.batch.grad_accum: 4, f.batch.eval_micro: 4, f.total_steps: 400, f.optimizer.name: "adamw_8bit",
    f.save.dir: "outputs", hf.logging_steps: 1, trl.packing: False,
}  # fmt: skip
CLI = Table(
    name="unsloth-cli.py",
    rows=tuple(
        replace(row, default=_CLI_DEFAULTS.get(row.field, row.default), source=_CLI)
        for row in over((*FAST_PEFT.rows, *FAST_MODEL.rows), PATCHED["sft"].rows)
    ),
    known_prefixes=("",),
    loader="yaml12",
    section="training",
)


# ``os.environ["UNSLOTH_VLLM_STANDBY"] = "1"`` or a launch line; what is commented out counts not.
_STANDBY = re.compile(
    r"""^[^#\n]*\bUNSLOTH_VLLM_STANDBY["']?\]?\s*[=,]\s*["']?[1-9]""", re.MULTILINE
)


def stands_by(blocks: list[Block]) -> bool:
    """Whether a file of the run sets the variable that makes vLLM sleep while a step runs."""
    return any(_STANDBY.search(block.document.source.text) for block in blocks)


# ``os.environ["UNSLOTH_RETURN_LOGITS"] = "1"`` or a launch line: Unsloth takes nothing but "1" for it (unsloth 2025.3.9
# models/llama.py CausalLM_fast_forward, unsloth_zoo 2025.3.7 compiler.py).
_LOGITS = re.compile(r"""^[^#\n]*\bUNSLOTH_RETURN_LOGITS["']?\]?\s*[=,]\s*["']?1\b""", re.MULTILINE)


def returns_logits(blocks: list[Block]) -> bool:
    """Whether a file of the run sets the variable that makes the model return its logits beside the loss."""
    return any(_LOGITS.search(block.document.source.text) for block in blocks)


# What a script's own file says of torch's allocator, on the line that says it.
_ALLOCATOR = re.compile(r"^[^#\n]*\bPYTORCH_(?:CUDA_)?ALLOC_CONF\b([^\n]*)", re.MULTILINE)


def grows_segments(blocks: list[Block]) -> bool | None:
    """Whether a file of the run lets the allocator's segments grow; ``None`` where none says how to allocate."""
    found = [said[1] for b in blocks for said in _ALLOCATOR.finditer(b.document.source.text)]
    return any("expandable_segments:True" in said for said in found) if found else None


def is_for_language(blocks: list[Block]) -> bool:
    """Whether it is FastLanguageModel that adds the adapter, as on the command line."""
    block = next((block for block in blocks if block.table in (FAST_PEFT, CLI)), None)
    if block is None or block.table is CLI:
        return block is not None
    text = block.document.source.text[block.anchor.start : block.anchor.end]
    return text.startswith("FastLanguageModel")
