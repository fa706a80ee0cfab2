"""How long a run's samples are at most."""

from __future__ import annotations

from oomlint.models.pictures import cut_of
from oomlint.plan import Plan


def longest_sample(plan: Plan) -> int | None:
    """Tokens of the longest sample of a batch: what the limit cuts off, or what the data has where that is known
    and nothing fills samples up; ``None`` where neither is."""
    seq = plan.seq
    is_packed = seq.packing not in (None, "none", "varlen")
    if seq.longest is None or is_packed or seq.pad == "max_len":
        return seq.max_len
    return seq.longest if seq.max_len is None else min(seq.max_len, seq.longest)


def picture_tokens(plan: Plan) -> int:
    """Tokens that one picture brings at most where no length of a sample limits them; none for a model that sees none."""
    dims, seen = plan.model.dims, plan.model.vision
    cut = None if dims is None else cut_of(dims)
    return 0 if cut is None else cut.tokens_beside(seen.max_pixels, seen.max_tiles)


def comes_beside(plan: Plan) -> bool:
    """Whether pictures come on top of what limits samples; whole samples of data that is known have theirs counted."""
    return bool(plan.model.vision.beside_limit) and plan.seq.longest is None
