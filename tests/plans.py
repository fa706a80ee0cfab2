"""Plans by their leaves, and models that many tests of memory take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oomlint.plan import Plan
from oomlint.plan.model import ModelDims

LLAMA_8B = ModelDims(
    arch="llama", layers=32, hidden=4096, heads=32, kv_heads=8, head_dim=128, ffn=14336,
    vocab=128256, tie_embeddings=False, act="swiglu", norm="rms",
)  # fmt: skip
SMALL_LLAMA = ModelDims(
    arch="llama", layers=16, hidden=2048, heads=16, kv_heads=4, head_dim=128, ffn=8192,
    vocab=128256, tie_embeddings=False, act="swiglu", norm="rms",
)  # fmt: skip


def plan_of(leaves: Mapping[str, Any], **changes: Any) -> Plan:
    """The plan with these leaves, by dotted path, and ``changes``, whose dots are written ``__``."""
    changed = {name.replace("__", "."): value for name, value in changes.items()}
    return Plan().with_values({**leaves, **changed})
