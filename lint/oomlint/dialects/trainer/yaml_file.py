"""The Trainer's arguments in a section of a YAML file, which a project's own script reads.

Which files these are, profiles say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from oomlint.dialects.base import Claim
from oomlint.dialects.block import Block
from oomlint.dialects.profiles.build import script_table
from oomlint.dialects.trainer.dialect import SIGNATURE, HfTrainer
from oomlint.dialects.trainer.tables import ADAPTER, ARGUMENTS
from oomlint.documents.base import Document, Mapping, roots

_ENOUGH = 4


class HfTrainerYaml(HfTrainer):
    name = "hf-trainer-yaml"
    markers = (b"per_device_train_batch_size",)
    markers_prove = False
    suffixes = (".yaml", ".yml")

    def recognise(self, document: Document) -> Iterable[Claim]:
        for root in roots(document):
            sections = tuple(_sections(document, root))
            known = self.profiles.script_of_arguments(root.entries)
            if known is None or not any(block.table is ARGUMENTS for block in sections):
                continue
            own = Block(document, root, script_table(known), sections[0].anchor)
            yield Claim(self, "run", document, (own, *sections), framework="hf-trainer")


def _sections(document: Document, root: Mapping) -> Iterator[Block]:
    """What is made TrainingArguments of, and the adapter's config (peft get_peft_config)."""
    for entry in root.entries.values():
        if not isinstance(entry.value, Mapping):
            continue
        keys = entry.value.entries.keys()
        if "output_dir" in keys and len(keys & SIGNATURE) >= _ENOUGH:
            yield Block(document, entry.value, ARGUMENTS, entry.key_span)
        elif "peft_type" in keys:
            yield Block(document, entry.value, ADAPTER, entry.key_span)
