"""Accelerate's config, YAML or JSON.

Read from accelerate 16cb6eb8 (1.15.0.dev0; commands/config/config_args.py load_config_from_file takes either).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from oomlint.dialects.accelerate.alone import alone
from oomlint.dialects.accelerate.keys import ACCELERATE, DISTRIBUTED_TYPES
from oomlint.dialects.base import Claim, ClaimKind, Dialect
from oomlint.dialects.block import Block
from oomlint.dialects.common.fields import ref
from oomlint.dialects.deepspeed.asked import BY_ACCELERATE
from oomlint.documents import JSON_SUFFIXES, YAML_SUFFIXES
from oomlint.documents.base import Document, roots

# Folders of configs that a framework's examples share: TRL 1.10.0.dev0 trl/accelerate_configs, those of
# alignment-handbook and open-r1 recipes/accelerate_configs, LLaMA-Factory ff6d4d12
# examples/accelerate, accelerate's own examples/config_yaml_templates.
_SHARED = re.compile(
    r"(^|/)(accelerate_configs|examples/accelerate|config_yaml_templates)/[^/]+\.ya?ml$"
)

_SUPPORTING = frozenset({"compute_environment", "num_processes", "mixed_precision"})


class Accelerate(Dialect):
    name = "accelerate"
    markers = (b"distributed_type",)
    suffixes = (*YAML_SUFFIXES, *JSON_SUFFIXES)
    references = {ref.deepspeed: "deepspeed"}
    asks = BY_ACCELERATE
    meaning = alone

    def recognise(self, document: Document) -> Iterable[Claim]:
        for root in roots(document):
            if not _is_type(root.said("distributed_type")) or not _SUPPORTING & set(root.entries):
                continue
            block = Block(document, root, ACCELERATE, root.entries["distributed_type"].span)
            remote = root.said("compute_environment") == "AMAZON_SAGEMAKER"
            kind: ClaimKind = "aside" if remote else "part"
            shared = bool(_SHARED.search(document.source.path))
            yield Claim(self, kind, document, (block,), is_shipped=shared)


def _is_type(value: Any) -> bool:
    return isinstance(value, str) and value.upper() in DISTRIBUTED_TYPES
