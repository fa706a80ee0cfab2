"""How long a run's samples are at most."""

from __future__ import annotations

from oomlint.plan import Plan


def longest_sample(plan: Plan) -> int | None:
    """Tokens of the longest sample of a batch: what the limit cuts off, or what the data has where that is known
    and nothing fills samples up; ``None`` where neither is."""
    seq = plan.seq
    is_packed = seq.packing not in (None, "none", "varlen")
    if seq.longest is None or is_packed or seq.pad == "max_len":
        return seq.max_len
    return seq.longest if seq.max_len is None else min(seq.max_len, seq.longest)
