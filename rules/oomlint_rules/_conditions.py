"""Which runs several rules are about."""

from __future__ import annotations

from oomlint.plan.fields import f

UNDER_ZERO_3 = {f.parallel.backend: ("zero",), f.parallel.zero.stage: (3,)}
"""For ``Where(plan=…)``: DeepSpeed shards parameters, too."""

ADAPTERS = frozenset({"lora", "dora", "qlora", "oft", "adapter"})
"""Methods that train what is small beside the model."""


def may_take(doubt: str) -> tuple[str, ...]:
    """What is said beside a refusal by a framework, where something else may read the file."""
    return (f"{doubt}, and may take it",) if doubt else ()
