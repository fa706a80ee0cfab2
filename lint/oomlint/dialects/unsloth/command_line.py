"""``unsloth train``: the config file of Unsloth's own command line, and its options.

Read from unsloth 015bdef0 (2026-08-22) ``unsloth_cli/config.py``, ``unsloth_cli/commands/train.py``
and ``studio/backend/core/training/trainer.py``, which hands them to TRL's SFTTrainer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from oomlint.dialects.base import Claim
from oomlint.dialects.block import Block
from oomlint.dialects.kinds import BOOLEAN, COUNT, NUMBER, POSITIVE, TEXT, choice
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.table import Row, Table
from oomlint.dialects.trainer.dialect import parsed_options
from oomlint.dialects.trainer.fields import hf
from oomlint.dialects.trainer.keys import LENGTH, TARGETS
from oomlint.dialects.trl.fields import trl
from oomlint.dialects.unsloth.command_line_meaning import CONFIG_SOURCE, command_line
from oomlint.dialects.unsloth.dialect import Unsloth
from oomlint.dialects.unsloth.keys import SEVEN, unsloth
from oomlint.documents import SHELL_SUFFIXES
from oomlint.documents.base import Document, Mapping, roots
from oomlint.plan.fields import f

_FULL = choice({"lora": False, "full": True})
_CHECKPOINTING = choice({"unsloth": "unsloth", "true": "full", "none": "none"})

# Section, key, field, kind, default.
_KEYS: tuple[tuple[str, str, Any, Any, Any], ...] = (
    ("", "model", f.model.id, TEXT, None),
    ("training", "training_type", unsloth.full, _FULL, False),
    ("training", "max_seq_length", unsloth.max_len, LENGTH, 2048),
    ("training", "load_in_4bit", unsloth.load_4bit, BOOLEAN, True),
    ("training", "output_dir", f.save.dir, TEXT, "outputs"),
    ("training", "batch_size", f.batch.micro, POSITIVE, 2),
    ("training", "gradient_accumulation_steps", f.batch.grad_accum, POSITIVE, 4),
    ("training", "max_steps", f.total_steps, COUNT, None),
    ("training", "save_steps", f.save.every, COUNT, None),
    ("training", "packing", trl.packing, BOOLEAN, False),
    ("training", "gradient_checkpointing", unsloth.checkpointing, _CHECKPOINTING, "unsloth"),
    ("lora", "lora_r", f.trainable.r, POSITIVE, 64),
    ("lora", "lora_alpha", f.trainable.alpha, NUMBER, 16),
    ("lora", "lora_dropout", f.trainable.dropout, NUMBER, 0.0),
    ("lora", "target_modules", hf.lora_targets, TARGETS, SEVEN),
    ("lora", "use_dora", hf.use_dora, BOOLEAN, None),
)  # fmt: skip
_WITHOUT_EFFECT = {
    "data": ("dataset", "local_dataset", "format_type"),
    "training": ("num_epochs", "learning_rate", "warmup_steps", "weight_decay", "random_seed", "train_on_completions"),
    "lora": ("vision_all_linear", "use_rslora", "use_loftq", "finetune_vision_layers", "finetune_language_layers", "finetune_attention_modules", "finetune_mlp_modules"),
    "logging": ("enable_wandb", "wandb_project", "wandb_token", "enable_tensorboard", "tensorboard_dir", "hf_token"),
}  # fmt: skip

CONFIG = Table(
    name="unsloth train config",
    rows=tuple(
        Row(f"{section}.{key}" if section else key, field, kind, default, source=CONFIG_SOURCE)
        for section, key, field, kind, default in _KEYS
    ),
    known=frozenset(
        f"{section}.{key}" for section, keys in _WITHOUT_EFFECT.items() for key in keys
    ),
    # Pydantic's models pass over what they do not know.
    ignores_unknown=True,
    section="training",
)
OPTIONS = Table(
    name="unsloth train options",
    rows=tuple(Row(key, field, kind) for _, key, field, kind, _ in _KEYS),
    known=frozenset(key for keys in _WITHOUT_EFFECT.values() for key in keys)
    | {"config", "c", "dry_run"},
    ignores_unknown=False,
    loader="yaml12",
    section="training",
)
_ALONE = replace(
    OPTIONS,
    name="unsloth train options alone",
    rows=tuple(replace(row, key=row.key.rpartition(".")[2]) for row in CONFIG.rows),
)

_SECTIONS = frozenset({"model", *_WITHOUT_EFFECT})
_TELLING = frozenset(
    {"training_type", "load_in_4bit", "max_seq_length", "train_on_completions", "random_seed"}
)


class UnslothCli(Unsloth):
    name = "unsloth-cli"
    markers = (b"unsloth train", b"load_in_4bit", b"training_type")
    markers_prove = False
    suffixes = (".yaml", ".yml", ".json", *SHELL_SUFFIXES)
    meaning = command_line

    def recognise(self, document: Document) -> Iterable[Claim]:
        for root in roots(document):
            if _is_config(root):
                anchor = root.entries["training"].key_span
                block = Block(document, root, CONFIG, anchor)
                yield Claim(self, "run", document, (block,), framework="unsloth")
        for launch in launches(document):
            first = str(launch.arguments[0].value) if launch.arguments else ""
            if launch.name.rpartition("/")[2] != "unsloth" or first != "train":
                continue
            config = launch.flag("config") or launch.flag("c")
            references = launch.scene_references
            if config is not None:
                references = (*references, *launch.reference(config.value, self.name))
            table = _ALONE if config is None else OPTIONS
            options = launch.program_block(table, parsed_options(launch.flags, table))
            blocks = (*launch.blocks, options)
            yield Claim(self, "launch", document, blocks, references, framework="unsloth")

    def adopt(self, document: Document) -> Claim | None:
        root = next(roots(document), None)
        if root is None:
            return None
        block = Block(document, root, CONFIG, root.span)
        return Claim(self, "run", document, (block,), framework="unsloth")


def _is_config(root: Mapping) -> bool:
    training = root.section("training")
    named = 0 if training is None else len(_TELLING & set(training.entries))
    return set(root.entries) <= _SECTIONS and named > 1
