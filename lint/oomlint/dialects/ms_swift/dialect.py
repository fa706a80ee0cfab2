"""ms-swift: command lines of ``swift sft|pt|rlhf``, and the YAML or JSON that they may name.

Read from ms-swift 3602360a (4.6.0.dev0, 2026-08-22) and the branches release/1.7 to
release/4.3; ``SW`` below is ``swift/``. A file is turned into options before anything reads it
(SW/cli/main.py parse_yaml_args), so both speak the same keys: fields of dataclasses over
transformers' TrainingArguments. Unknown ones are refused (SW/pipelines/base.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oomlint.dialects.base import Claim, Dialect, Reference, Wishes, expressed
from oomlint.dialects.draft import Draft
from oomlint.dialects.fsdp_config import FsdpConfig
from oomlint.dialects.law import finish_world
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.ms_swift.effects import (
    finish_accumulation,
    finish_checkpointing,
    finish_deepspeed,
    finish_eval,
    finish_loss,
    finish_optimizer,
    finish_sequences,
    finish_trainer_defaults,
)
from oomlint.dialects.ms_swift.fixes import NO_WAY, WAYS, name_preset
from oomlint.dialects.ms_swift.keys import FSDP_WORDS, OTHER_COMMANDS, SWIFT, is_old
from oomlint.dialects.ms_swift.launch import (
    command_options,
    config_block,
    finish_device_map,
    finish_ranks,
    is_megatron,
    kind_of,
    launch_claims,
    swift_command,
)
from oomlint.dialects.ms_swift.weights import (
    finish_load,
    finish_objective,
    finish_precision,
    finish_quantization,
    finish_trainable,
)
from oomlint.dialects.table import Table
from oomlint.dialects.trainer.argument_effects import finish_training_arguments
from oomlint.dialects.trainer.arguments import TRAINING_ARGUMENTS
from oomlint.dialects.trainer.fixes import express_training_arguments
from oomlint.documents import JSON_SUFFIXES, SHELL_SUFFIXES, YAML_SUFFIXES
from oomlint.documents.base import Document, Mapping
from oomlint.documents.text import Source, Span
from oomlint.frozen import replace

NEWEST_TRANSFORMERS = (5, 16)
"""ms-swift 3602360a requirements/framework.txt: transformers<5.17."""


class MsSwift(Dialect):
    name = "ms-swift"
    launcher_may_shard = True
    markers = (
        b"swift", b"tuner_type", b"train_type", b"sft_type", b"rlhf_type", b"split_dataset_ratio",
        b"llm_sft", b"llm_dpo", b"llm_infer", b"sampler_engine", b"load_data_args",
    )  # fmt: skip
    suffixes = (*YAML_SUFFIXES, *JSON_SUFFIXES, *SHELL_SUFFIXES)
    references = {"ref.deepspeed": "deepspeed", "swift.fsdp": "ms-swift-fsdp"}

    def recognise(self, document: Document) -> Iterable[Claim]:
        for root in getattr(document, "roots", ()):
            if isinstance(root, Mapping):
                kind = kind_of(root)
                if kind is not None and not is_megatron(root):
                    table = SWIFT if kind == "run" else OTHER_COMMANDS
                    yield Claim(self, kind, document, (config_block(document, root, table),))
        for launch in launches(document):
            found = swift_command(launch)
            if found is not None:
                yield from launch_claims(self, launch, found, command_options)

    def finish(self, draft: Draft) -> None:
        finish_ranks(draft)
        finish_world(draft)
        finish_objective(draft)
        finish_trainable(draft)
        finish_quantization(draft)
        finish_load(draft, old=is_old(draft))
        finish_deepspeed(draft)
        finish_trainer_defaults(draft)
        finish_training_arguments(
            draft, load_dtype=draft.get("load.dtype"), newest=NEWEST_TRANSFORMERS
        )
        finish_device_map(draft)
        finish_accumulation(draft)
        finish_precision(draft)
        finish_checkpointing(draft)
        finish_optimizer(draft)
        finish_sequences(draft)
        finish_loss(draft)
        finish_eval(draft)

    def express(self, changes: Wishes, draft: Draft) -> dict[str, Any]:
        own = expressed(name_preset(dict(changes), draft), draft, WAYS, NO_WAY)
        return super().express(express_training_arguments(own, draft), draft)


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
