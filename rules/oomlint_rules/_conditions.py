"""Which runs several rules are about."""

from __future__ import annotations

from oomlint.dialects.table import Block
from oomlint.plan.fields import f
from oomlint.runs.run import Run

UNDER_ZERO_3 = {f.parallel.backend: ("zero",), f.parallel.zero.stage: (3,)}
"""For ``Where(plan=…)``: DeepSpeed shards parameters, too."""

ADAPTERS = frozenset({"lora", "dora", "qlora", "oft", "adapter"})
"""Methods that train what is small beside the model."""


def other_reader(run: Run, block: Block | None) -> str:
    """What may read a file instead of the framework, and take what that would refuse, in words; empty where nothing is
    known to."""
    return ("" if block is None else block.doubt) or run.parts.find_other_reader()


def may_take(doubt: str) -> tuple[str, ...]:
    """What is said beside a refusal by a framework, where something else may read the file."""
    return (f"{doubt}, and may take it",) if doubt else ()
