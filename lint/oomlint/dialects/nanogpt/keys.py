"""The globals of nanoGPT's ``train.py`` that decide memory.

Read from nanoGPT 3adf61e (2025-11-12) ``train.py``, ``model.py`` and ``configurator.py``.
"""

from __future__ import annotations

from oomlint.dialects.kinds import BOOLEAN, DTYPE, NUMBER, POSITIVE, TEXT
from oomlint.dialects.table import Row, Table
from oomlint.plan.fields import Private, f

SOURCE = "nanoGPT 3adf61e train.py"


class own(Private, prefix="nanogpt"):  # noqa: N801  a namespace of fields, read like ``f``
    """Numbers of the model, and globals whose meaning takes more than one of them. ``steps``: micro batches of all ranks
    that a step takes. ``vocab``: tokens that the model has rows for. ``differs``: whether the script's model takes other
    arguments than nanoGPT's."""

    layers: int
    heads: int
    hidden: int
    bias: bool
    dropout: float
    vocab: int
    steps: int
    dtype: str
    start: str
    interval: int
    differs: bool


NANOGPT = Table(
    name="nanoGPT settings",
    rows=(
        Row("n_layer", own.layers, POSITIVE),
        Row("n_head", own.heads, POSITIVE),
        Row("n_embd", own.hidden, POSITIVE),
        Row("bias", own.bias, BOOLEAN),
        Row("dropout", own.dropout, NUMBER),
        Row("block_size", f.seq.max_len, POSITIVE),
        Row("batch_size", f.batch.micro, POSITIVE),
        Row("gradient_accumulation_steps", own.steps, POSITIVE),
        Row("dtype", own.dtype, DTYPE),
        Row("compile", f.compile.enabled, BOOLEAN),
        Row("init_from", own.start, TEXT),
        Row("grad_clip", f.optimizer.clip_norm, NUMBER),
        Row("out_dir", f.save.dir, TEXT),
        Row("eval_interval", own.interval, POSITIVE),
        Row("max_iters", f.total_steps, POSITIVE),
        Row("vocab_size", own.vocab, POSITIVE),
    ),
    known_prefixes=("",),
    loader="yaml12",
    section="training",
)
"""All else is a global of the script's own; the configurator refuses a name that the script does not have."""

MODEL = Table(
    name="nanoGPT model arguments",
    rows=(Row("differs", own.differs, BOOLEAN),),
    known_prefixes=("",),
    section="script",
)
