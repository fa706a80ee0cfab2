"""ms-swift: command lines of ``swift sft|pt|rlhf``, and the YAML or JSON that they may name.

Read from ms-swift 3602360a (4.6.0.dev0, 2026-08-22) and the branches release/1.7 to
release/4.3; ``SW`` below is ``swift/``. A file is turned into options before anything reads it
(SW/cli/main.py parse_yaml_args), so both speak the same keys: fields of dataclasses over
transformers' TrainingArguments. Unknown ones are refused (SW/pipelines/base.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from oomlint.dialects.base import Claim, Dialect, Reference
from oomlint.dialects.block import Block
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import ref
from oomlint.dialects.common.generation import with_same_round
from oomlint.dialects.deepspeed.asked import BY_TRAINER
from oomlint.dialects.fsdp_config import FsdpConfig
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.meaning import Wishes, expressed, writable
from oomlint.dialects.ms_swift.keys import FSDP_WORDS, OTHER_COMMANDS, SWIFT, own
from oomlint.dialects.ms_swift.launch import (
    command_options,
    config_block,
    file_counts_more,
    is_megatron,
    kind_of,
    launch_claims,
    swift_command,
)
from oomlint.dialects.ms_swift.meaning import meaning
from oomlint.dialects.ms_swift.presets import name_preset
from oomlint.dialects.skeleton import Skeleton, Start
from oomlint.dialects.table import Table
from oomlint.dialects.trainer.arguments import TRAINING_ARGUMENTS
from oomlint.dialects.trainer.training_arguments import in_training_arguments
from oomlint.documents import JSON_SUFFIXES, SHELL_SUFFIXES, YAML_SUFFIXES
from oomlint.documents.base import Document, roots
from oomlint.documents.text import Source, Span

_SKELETON = """\
model: {model}
use_hf: true
dataset: tatsu-lab/alpaca
tuner_type: full
output_dir: out
learning_rate: 0.0001
num_train_epochs: 1
"""
# SW/config has a file for each of these words.
_SHARED = {"zero2": "deepspeed: zero2\n", "zero3": "deepspeed: zero3\n", "fsdp": "fsdp: fsdp2\n"}


class MsSwift(Dialect):
    name = "ms-swift"
    packages = ("swift",)
    launcher_may_shard = True
    markers = (
        b"swift", b"tuner_type", b"train_type", b"sft_type", b"rlhf_type", b"split_dataset_ratio",
        b"llm_sft", b"llm_dpo", b"llm_infer", b"sampler_engine", b"load_data_args",
    )  # fmt: skip
    suffixes = (*YAML_SUFFIXES, *JSON_SUFFIXES, *SHELL_SUFFIXES)
    references = {ref.deepspeed: "deepspeed", own.fsdp: "ms-swift-fsdp"}
    asks = BY_TRAINER
    meaning = meaning

    def recognise(self, document: Document) -> Iterable[Claim]:
        for root in roots(document):
            kind = kind_of(root)
            if kind is not None and not is_megatron(root):
                table = SWIFT if kind == "run" else OTHER_COMMANDS
                yield Claim(self, kind, document, (config_block(document, root, table),))
        for launch in launches(document):
            found = swift_command(launch)
            if found is not None:
                yield from launch_claims(self, launch, found, command_options)

    def layered(self, claims: Sequence[Claim]) -> Iterable[Block]:
        first, *others = claims
        if not file_counts_more(first):
            return super().layered(claims)
        configs = [claim for claim in others if claim.dialect is self]
        scene = (claim for claim in others if claim.dialect is not self)
        return (block for claim in (*scene, first, *configs) for block in claim.blocks)

    def skeleton(self, start: Start) -> Skeleton:
        """SW/arguments: what `swift sft` demands; the ranks are a variable (SW/cli/main.py get_torchrun_args)."""
        text = _SKELETON.format(model=start.model) + _SHARED.get(start.shard, "")
        ranks = f"NPROC_PER_NODE={start.gpus_per_node} " if start.ranks > 1 else ""
        return Skeleton("ms-swift.yaml", text, f"{ranks}swift sft {{file}}", "dataset")

    def express(self, changes: Wishes, run: Cells) -> dict[Any, Any]:
        said = in_training_arguments(expressed(name_preset(changes, run), run), run)
        return writable(with_same_round(said, run, own.steps_per_generation), run, self.name)


_FSDP_FILE = Table(
    name="ms-swift fsdp config",
    rows=(
        FSDP_WORDS,
        *(row for row in TRAINING_ARGUMENTS if row.key.startswith("fsdp_config.")),
    ),
    known_prefixes=("_", "fsdp_config."),
    ignores_unknown=True,
    section="fsdp",
)

# SW/config/fsdp2.json.
_FSDP2 = """{
  "fsdp": "full_shard auto_wrap",
  "fsdp_config": {
    "fsdp_version": 2,
    "reshard_after_forward": true,
    "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    "cpu_ram_efficient_loading": true,
    "state_dict_type": "SHARDED_STATE_DICT",
    "activation_checkpointing": true
  }
}
"""


class MsSwiftFsdp(FsdpConfig):
    """The JSON that ``fsdp`` names: words of the Trainer and its ``fsdp_config``."""

    name = "ms-swift-fsdp"
    table = _FSDP_FILE

    def preset(self, reference: Reference) -> Claim | None:
        if reference.path != "fsdp2":
            return None
        from oomlint.documents.json import parse_json

        document = parse_json(Source("fsdp2", _FSDP2))
        claim = self.adopt(document)
        if claim is None:
            return None
        why = "fsdp2 is a config that ms-swift ships"
        block = replace(claim.blocks[0], locked=why, referred=reference.location, anchor=Span(0, 0))
        return replace(claim, blocks=(block,), is_shipped=True)
