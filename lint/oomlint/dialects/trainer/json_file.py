"""The Trainer's arguments in a JSON file: ``python run_clm.py arguments.json``.

HfArgumentParser reads such a file in place of the command line (transformers 5.23
hf_argparser.py:377); scripts name it by an option of theirs, or it is their only argument.
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.dialects.base import Claim
from oomlint.dialects.block import Block
from oomlint.dialects.profiles.build import script_table
from oomlint.dialects.trainer.dialect import SIGNATURE, HfTrainer, is_of_others
from oomlint.dialects.trainer.keys import TRAINER
from oomlint.documents.base import Document, Mapping, root_of

_NEEDED = frozenset({"output_dir", "per_device_train_batch_size", "model_name_or_path"})
_ENOUGH = 5
# LLaMA-Factory reads JSON too, with defaults for what would tell it at once.
_OF_LLAMA_FACTORY = frozenset(
    {"dataset", "cutoff_len", "dataset_dir", "quantization_bit", "pure_bf16", "neat_packing"}
)


class HfTrainerJson(HfTrainer):
    name = "hf-trainer-json"
    launcher_may_shard = True
    markers = (b"per_device_train_batch_size",)
    markers_prove = False
    suffixes = (".json",)

    def recognise(self, document: Document) -> Iterable[Claim]:
        root = root_of(document)
        if not isinstance(root, Mapping) or not _may_be_trainers(set(root.entries)):
            return
        known = self.profiles.script_of_arguments(root.entries)
        if known is None and root.entries.keys() & _OF_LLAMA_FACTORY:
            return
        table = TRAINER if known is None else script_table(known)
        block = Block(document, root, table, root.entries["output_dir"].span)
        yield Claim(self, "run", document, (block,), framework="hf-trainer")


def _may_be_trainers(keys: set[str]) -> bool:
    return keys >= _NEEDED and len(keys & SIGNATURE) >= _ENOUGH and not is_of_others(keys)
