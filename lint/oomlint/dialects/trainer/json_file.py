"""The Trainer's arguments in a JSON file: ``python run_clm.py arguments.json``.

HfArgumentParser reads such a file in place of the command line (transformers 5.23
hf_argparser.py:377); scripts name it by an option of theirs, or it is their only argument.
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.dialects.base import Claim
from oomlint.dialects.profiles.build import script_table
from oomlint.dialects.profiles.match import script_of_arguments
from oomlint.dialects.table import Block
from oomlint.dialects.trainer.dialect import SIGNATURE, HfTrainer, is_of_others
from oomlint.dialects.trainer.keys import TRAINER
from oomlint.documents.base import Document, Mapping

_NEEDED = frozenset({"output_dir", "per_device_train_batch_size", "model_name_or_path"})
_ENOUGH = 5
# LLaMA-Factory reads JSON too, with defaults for what would tell it at once.
_OF_LLAMA_FACTORY = frozenset({"dataset", "cutoff_len", "dataset_dir", "lora_rank", "template"})


class HfTrainerJson(HfTrainer):
    name = "hf-trainer-json"
    launcher_may_shard = True
    markers = (b"per_device_train_batch_size",)
    markers_prove = False
    suffixes = (".json",)

    def recognise(self, document: Document) -> Iterable[Claim]:
        root = getattr(document, "root", None)
        if not isinstance(root, Mapping) or not _is_trainers(set(root.entries)):
            return
        known = script_of_arguments(set(root.entries))
        table = TRAINER if known is None else script_table(known)
        block = Block(document, root, table, root.entries["output_dir"].span)
        yield Claim(self, "run", document, (block,), framework="hf-trainer")


def _is_trainers(keys: set[str]) -> bool:
    if not keys >= _NEEDED or len(keys & SIGNATURE) < _ENOUGH or is_of_others(keys):
        return False
    return script_of_arguments(keys) is not None or not keys & _OF_LLAMA_FACTORY
