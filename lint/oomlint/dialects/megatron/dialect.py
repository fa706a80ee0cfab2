"""Megatron-LM: the command lines of ``pretrain_gpt.py`` and its kin, forks included.

Read from Megatron-LM d98e8a64 (2026-08-22), core_v0.7.0 and v2.5. Everything is an option, the
model's dimensions too, and switches have no value. Scripts of forks add options of their own,
so unknown ones are nobody's fault. Megatron-DeepSpeed adds ``--deepspeed_config``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping as MappingABC
from typing import Any

from oomlint.dialects.base import Claim, Dialect
from oomlint.dialects.common.fields import ref
from oomlint.dialects.machine.launch import Launch
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.megatron.keys import MEGATRON, SWITCHES
from oomlint.dialects.megatron.meaning import meaning
from oomlint.dialects.table import RemovingBlock
from oomlint.documents import SHELL_SUFFIXES
from oomlint.documents.base import UNKNOWN, Document, Entry, Mapping, Scalar
from oomlint.documents.text import Edit
from oomlint.errors import CannotEdit
from oomlint.frozen import replace

# What tells Megatron's options from those of other programs that count layers.
_OWN = frozenset(
    {
        "tensor_model_parallel_size", "pipeline_model_parallel_size", "micro_batch_size",
        "num_attention_heads", "hidden_size", "num_layers", "seq_length", "train_iters",
        "max_position_embeddings", "lr_decay_style", "split", "data_path", "global_batch_size",
        "use_mcore_models", "use_distributed_optimizer", "recompute_granularity",
        "transformer_impl", "tokenizer_type", "eval_iters", "save_interval", "bf16",
    }
)  # fmt: skip
_PARALLEL = frozenset(
    {
        "tensor_model_parallel_size", "pipeline_model_parallel_size", "num_layers",
        "encoder_num_layers", "use_mcore_models", "model_parallel_size", "use_checkpoint_args",
    }
)  # fmt: skip
_ENOUGH = 5
_TRAINS = re.compile(r"pretrain|finetune|train|sft|main", re.IGNORECASE)
_NO_TRAINING = re.compile(
    r"generat|infer|server|eval|export|convert|preprocess|tools|merge|quantize|prune|mmlu|"
    r"validate|checkpoint_util|debugpy|echo",
    re.IGNORECASE,
)
# Megatron-LM tasks/main.py and examples/academic_paper_scripts/msdp/main.py, "--task".
_NO_TRAINING_TASK = re.compile(r"EVAL|PROMPT|LAMBADA|WIKITEXT", re.IGNORECASE)


class _Options(RemovingBlock):
    """Options in which a switch may seem to have a value: ``--bf16 $DATA_ARGS``."""

    def write(self, values: MappingABC[str, Any]) -> list[Edit]:
        for name in values:
            entry = self._entry_of(self.table.by_field[name])
            if entry is not None and entry.value.locked:
                raise CannotEdit(entry.value.locked)
        return super().write(values)


# ``ARGS+=("--vocab-size 128256")``, which the shell splits where the array is used.
_ONE_WORD = re.compile(r"[\"']--?[\w-]+[ =]+([^\s\"']+)[\"']$")


def _as_options(document: Document, flags: Mapping) -> Mapping:
    """Switches are on whatever follows them, and other options have a value."""
    text = document.source.text
    entries: dict[str, Entry] = {}
    for key, entry in flags.entries.items():
        value = entry.value
        if isinstance(value, Scalar) and key in SWITCHES and value.value is not True:
            why = "what follows this switch may belong to it or not"
            entry = replace(entry, value=replace(value, value=True, plain=False, locked=why))
        elif isinstance(value, Scalar) and key not in SWITCHES and value.value in (True, ""):
            word = _ONE_WORD.match(text[entry.span.start : entry.span.end])
            held = word[1] if word is not None and "$" not in word[1] else UNKNOWN
            why = "option and value stand in one word of the script"
            plain = value.plain and held is not UNKNOWN
            entry = replace(entry, value=replace(value, value=held, plain=plain, locked=why))
        entries[key] = entry
    return replace(flags, entries=entries)


class MegatronLm(Dialect):
    name = "megatron"
    markers = (b"tensor-model-parallel-size", b"pretrain_gpt", b"num-layers", b"num_layers", b"micro-batch-size")  # fmt: skip
    markers_prove = False
    suffixes = SHELL_SUFFIXES
    references = {ref.deepspeed: "deepspeed"}
    meaning = meaning

    def recognise(self, document: Document) -> Iterable[Claim]:
        for launch in launches(document):
            kind = _kind_of(launch)
            if kind == "run":
                options = _Options(
                    document, _as_options(document, launch.flags), MEGATRON, launch.anchor
                )
                blocks = (*launch.blocks, options)
                yield Claim(self, "run", document, blocks, launch.scene_references)
            elif kind == "aside":
                yield Claim(self, "aside", document, ())


def _kind_of(launch: Launch) -> str | None:
    """Whether a command trains with Megatron, is another of its programs, or none."""
    keys = set(launch.flags.entries)
    if not keys & _PARALLEL or len(keys & _OWN) < _ENOUGH:
        return None
    task = launch.flag("task")
    tasked = isinstance(task.value, Scalar) and str(task.value.value) if task is not None else ""
    if _NO_TRAINING.search(launch.name) or _NO_TRAINING_TASK.search(tasked or ""):
        return "aside"
    return "run" if _TRAINS.search(launch.stem) else None
