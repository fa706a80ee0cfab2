"""Axolotl YAML.

Read from axolotl 067b021c (2026-07-24); ``AX`` below is ``src/axolotl``. Axolotl loads with
PyYAML's safe loader and validates with pydantic models that *ignore* unknown keys
(AX/utils/schemas/config.py:212), so a misspelt key is lost in silence.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from oomlint.dialects.axolotl.keys import AXOLOTL
from oomlint.dialects.axolotl.meaning import meaning
from oomlint.dialects.base import Claim, Dialect
from oomlint.dialects.block import Block, OverrideBlock
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import ref
from oomlint.dialects.deepspeed.asked import BY_TRAINER
from oomlint.dialects.deepspeed.fixes import swap_preset
from oomlint.dialects.deepspeed.presets import OF_AXOLOTL
from oomlint.dialects.machine.launch import Launch
from oomlint.dialects.machine.launcher_keys import ACCELERATE_LAUNCHER, TORCHRUN
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.meaning import Wishes
from oomlint.dialects.skeleton import Skeleton, Start, zero_block
from oomlint.documents import SHELL_SUFFIXES, YAML_SUFFIXES
from oomlint.documents.base import Document, Scalar, roots
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

_SUPPORTING = frozenset(
    {
        "datasets",
        "pretraining_dataset",
        "micro_batch_size",
        "adapter",
        "sequence_len",
    }
)
_OTHERS = frozenset({"slices", "models", "model_name_or_path"})
_SKELETON = """\
base_model: {model}
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
output_dir: ./out
learning_rate: 0.0001
lr_scheduler: cosine
num_epochs: 1
"""
_FSDP2 = """\
fsdp_version: 2
fsdp_config:
  auto_wrap_policy: TRANSFORMER_BASED_WRAP
  state_dict_type: FULL_STATE_DICT
  reshard_after_forward: true
"""


# Where Axolotl says which keys there are: classes since 0.4.1 (they moved at 0.8), before that the modules that ask for
# them (v0.3.0, v0.4.0, v0.6.0, v0.8.0 and 067b021c of axolotl-ai-cloud/axolotl).
_DECLARING = tuple(
    f"src/axolotl/{path}.py"
    for path in (
        "core/trainer_builder", "integrations/cut_cross_entropy/args", "integrations/liger/args", "train",
        "utils/config", "utils/config/models/input/v0_4_1/__init__", "utils/data", "utils/models", "utils/trainer",
        *(f"utils/schemas/{name}" for name in (
            "config", "datasets", "deprecated", "dynamic_checkpoint", "fsdp", "integrations", "model", "multimodal",
            "peft", "quantization", "training", "trl", "validation", "vllm",
        )),
    )
)  # fmt: skip


class Axolotl(Dialect):
    name = "axolotl"
    packages = ("src/axolotl",)
    markers = (b"base_model", b"axolotl")
    suffixes = (*YAML_SUFFIXES, *SHELL_SUFFIXES)
    references = {ref.deepspeed: "deepspeed"}
    declared_in = _DECLARING
    declares_all = True
    config_program = "axolotl"
    asks = BY_TRAINER
    meaning = meaning

    def recognise(self, document: Document) -> Iterable[Claim]:
        for launch in launches(document):
            yield from self._launched(launch)
        for root in roots(document):
            keys = set(root.entries)
            if "base_model" not in keys or not keys & _SUPPORTING or keys & _OTHERS:
                continue
            anchor = root.entries["base_model"].span
            block = Block(document, root, AXOLOTL, anchor)
            # AX/integrations/hatchery: the model is trained by a service, not here.
            yield Claim(self, "aside" if "hatchery" in keys else "run", document, (block,))

    def _launched(self, launch: Launch) -> Iterable[Claim]:
        """``axolotl train x.yml``, or ``-m axolotl.cli.train x.yml`` under a launcher."""
        words = [word for word in launch.arguments if isinstance(word.value, str)]
        if launch.stem == "axolotl" and words:
            command, *words = words
            trains = command.value == "train"
        elif launch.is_module and launch.name.startswith("axolotl.cli."):
            trains = launch.stem == "train"
        else:
            return
        config = next((w for w in words if w.value.endswith((".yml", ".yaml"))), None)
        if not trains or config is None:
            yield Claim(self, "aside", launch.document, ())
            return
        passed_on = _passed_on(launch) if launch.stem == "axolotl" else []
        yield Claim(
            self,
            "launch",
            launch.document,
            (
                *launch.blocks,
                *passed_on,
                OverrideBlock(launch.document, launch.flags, AXOLOTL, launch.anchor),
            ),
            (
                *launch.reference(config, self.name, optional="://" in config.value),
                *launch.scene_references,
            ),
        )

    def skeleton(self, start: Start) -> Skeleton:
        """What AX/utils/schemas/config.py demands; examples/llama-3/fft-8b-liger-fsdp.yaml has the words of FSDP2."""
        shared = _FSDP2 if start.shard == "fsdp" else zero_block(start.shard)
        text = _SKELETON.format(model=start.model) + shared
        return Skeleton("axolotl.yaml", text, "axolotl train {file}", "datasets")

    def express(self, changes: Wishes, run: Cells) -> dict[Any, Any]:
        _check_recomputing(changes, run)
        return super().express(swap_preset(changes, run, OF_AXOLOTL), run)


def _passed_on(launch: Launch) -> list[Block]:
    """The options of the launcher that ``axolotl train`` starts: Accelerate's, unless the line names torchrun. What
    follows ``--`` is meant for it, and nothing is added for another one (AX/cli/main.py:84)."""
    named = launch.flag("launcher")
    is_torchrun = (
        named is not None and isinstance(named.value, Scalar) and named.value.value == "torchrun"
    )
    started = TORCHRUN if is_torchrun else ACCELERATE_LAUNCHER
    span = launch.command.span
    has_any = "--" in launch.document.source.text[span.start : span.end].split()
    tables = (TORCHRUN,) if is_torchrun else (TORCHRUN, ACCELERATE_LAUNCHER)
    return [
        replace(
            launch.program_block(table),
            locked=None if has_any and table is started else _ONLY_PASSED_ON,
        )
        for table in tables
    ]


_ONLY_PASSED_ON = "axolotl passes on to a launcher only what follows --"


def _check_recomputing(changes: Wishes, run: Cells) -> None:
    """
    Raises:
        CannotEdit: QLoRA is to come under ZeRO-3, and checkpoints are not reentrant (Axolotl's default): recomputed tensors
            may differ in shape from those of the forward pass (AX/utils/schemas/validation.py:625 warn_qlora_zero3_w_use_reentrant).
    """
    if changes.get(f.parallel.zero.stage) != 3 or run[f.quant.method] != "bnb4":
        return
    recomputes = changes.get(f.checkpointing.mode, run[f.checkpointing.mode])
    if recomputes not in (None, "none") and run[f.checkpointing.reentrant] is False:
        raise CannotEdit("Axolotl warns of QLoRA under ZeRO-3 without use_reentrant: true")
