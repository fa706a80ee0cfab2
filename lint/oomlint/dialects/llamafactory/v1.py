"""LLaMA-Factory's second configuration (``USE_V1=1 llamafactory-cli sft x.yaml``)."""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.dialects.base import Claim, Dialect
from oomlint.dialects.block import Block
from oomlint.dialects.common.fields import ref
from oomlint.dialects.llamafactory.dialect import launch_claims, uses_v1
from oomlint.dialects.llamafactory.v1_keys import LLAMA_FACTORY_V1
from oomlint.dialects.llamafactory.v1_meaning import meaning
from oomlint.dialects.machine.launches import launches
from oomlint.documents import SHELL_SUFFIXES, YAML_SUFFIXES
from oomlint.documents.base import Document, roots

_SUPPORTING = frozenset(
    {"dist_config", "peft_config", "kernel_config", "micro_batch_size", "model_class", "cutoff_len"}
)
_COMMANDS = frozenset({"train", "sft", "dpo", "rm"})


class LlamaFactoryV1(Dialect):
    name = "llama-factory-v1"
    launcher_may_shard = True
    markers = (b"train_dataset", b"USE_V1")
    suffixes = (*YAML_SUFFIXES, *SHELL_SUFFIXES)
    references = {ref.deepspeed: "deepspeed"}
    meaning = meaning
    declared_in = tuple(
        f"src/llamafactory/v1/config/{kind}_args.py"
        for kind in ("model", "data", "training", "sample")
    )

    def recognise(self, document: Document) -> Iterable[Claim]:
        for root in roots(document):
            if not {"model", "train_dataset"} <= set(root.entries):
                continue
            if not _SUPPORTING & set(root.entries):
                continue
            block = Block(document, root, LLAMA_FACTORY_V1, root.entries["model"].span)
            yield Claim(self, "run", document, (block,), framework="llama-factory")
        for launch in launches(document):
            if uses_v1(launch):
                yield from launch_claims(self, launch, LLAMA_FACTORY_V1, _COMMANDS)
