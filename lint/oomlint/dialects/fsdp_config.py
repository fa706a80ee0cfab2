"""The JSON file that transformers' ``fsdp_config`` may name."""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.dialects.base import Claim, Dialect
from oomlint.dialects.block import Block
from oomlint.dialects.trainer.arguments import FSDP_CONFIG
from oomlint.documents.base import Document, Mapping, root_of


class FsdpConfig(Dialect):
    """Read only where a setting names it: its keys alone would not tell it from others
    (transformers 5.23 training_args.py _process_fsdp_args opens it)."""

    name = "fsdp-config"
    suffixes = (".json",)
    table = FSDP_CONFIG

    def recognise(self, document: Document) -> Iterable[Claim]:
        return ()

    def adopt(self, document: Document) -> Claim | None:
        root = root_of(document)
        if not isinstance(root, Mapping):
            return None
        return Claim(self, "part", document, (Block(document, root, self.table, root.span),))
