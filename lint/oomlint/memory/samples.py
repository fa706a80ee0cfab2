"""How much a rank computes at a time."""

from __future__ import annotations

from msgspec import Struct

from oomlint.memory.lengths import comes_beside, longest_sample, picture_tokens
from oomlint.memory.parameters import DecoderStructure
from oomlint.memory.result import Assume
from oomlint.plan import Plan
from oomlint.plan.fields import f as fields

_PAIRED = frozenset({"dpo", "orpo", "simpo", "cpo", "rm"})


class Samples(Struct, frozen=True, gc=False):
    """A micro batch of a rank: rows, tokens a row, and both together."""

    rows: float
    length: float
    tokens: float
    """Of a rank: its share, where several have a sequence between them."""
    written: float
    """Tokens that a decoder reads and writes, where an encoder reads others."""
    target_share: float
    """Those to one of its encoder."""
    accumulation: int
    """Micro batches a step."""
    eval_rows: float


def samples_of(plan: Plan, model: DecoderStructure | None, cp: int, assume: Assume) -> Samples:
    """The micro batch of a plan; size and length that nobody says are assumed."""
    b = plan.batch
    rows = b.micro
    if rows is None:
        rows = assume(fields.batch.micro, 1, "the micro batch size is not known")
    longest = longest_sample(plan)
    if longest is None:
        ctx = plan.model.dims.ctx if plan.model.dims else None
        why = "the sequence length is not known"
        longest = assume(fields.seq.max_len, max(min(ctx or 2048, 2048), picture_tokens(plan)), why)
    elif comes_beside(plan):
        longest += picture_tokens(plan)
    length: float = longest
    target = plan.seq.target_len
    dims = plan.model.dims
    if dims is not None and dims.sound is not None and dims.sound.frames:
        # What is said of lengths is said of the text; the encoder is given as much of every sample.
        target, length = min(target or longest, dims.ctx or longest), dims.sound.frames
    is_apart = model is not None and any(block.crosses for block in model.blocks)
    share = target / length if target and is_apart and length else 1.0
    if b.micro_unit == "tokens":
        rows, length = 1, rows
    if b.max_tokens_per_gpu:
        rows, length = 1, b.max_tokens_per_gpu
    pairs = plan.objective.pairs_per_sample
    if pairs is None:
        pairs = 2 if plan.objective.kind in _PAIRED else 1
    tokens = rows * pairs * length / cp
    evaluated = b.eval_micro if b.eval_micro is not None else b.micro
    return Samples(
        rows=rows * pairs,
        length=length,
        tokens=tokens,
        written=tokens * share,
        target_share=share,
        accumulation=max(1, b.grad_accum or 1),
        eval_rows=(evaluated or rows) * pairs,
    )
