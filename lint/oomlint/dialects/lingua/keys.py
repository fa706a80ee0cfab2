"""The keys of Meta Lingua's configs that decide memory.

Read from facebookresearch/lingua 437d680 (2025-06-18); ``ML`` below is its ``lingua`` package.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec.structs import replace

from oomlint.dialects.kinds import (
    ANYTHING,
    BOOLEAN,
    COUNT,
    DTYPE,
    INTEGER,
    NUMBER,
    POSITIVE,
    TEXT,
    choice,
)
from oomlint.dialects.table import Row, Table, known_keys
from oomlint.plan.fields import Private, f

SOURCE = "lingua 437d680"
DISTRIBUTED = f"{SOURCE} lingua/distributed.py DistributedArgs"
MODEL = f"{SOURCE} lingua/transformer.py BaseTransformerArgs"
_TRAIN = f"{SOURCE} apps/main/train.py TrainArgs"
_DATA = f"{SOURCE} lingua/data.py DataArgs"

Sharding: TypeAlias = Literal["full_shard", "no_shard"]


class own(Private, prefix="lingua"):  # noqa: N801  a namespace of fields, read like ``f``
    """Numbers of the model, and keys whose meaning takes more than one of them.

    ``shard``: over how many ranks a copy of the model is spread. ``widens``: by how much the inner width of the
    feed-forward part is multiplied. ``tokens``: in the vocabulary of a tokenizer. ``recomputes``: what is cheap to compute again. ``evaluates``: the section of
    evaluation, and ``elsewhere``: how many GPUs another job has for it. ``nodes``, ``gpus``: what stool asks Slurm for, ``app``:
    the module that it starts.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    widens: float
    multiple: int
    vocab: int
    tied: bool
    tokens: int
    tokenizer: str
    sharding: Sharding
    shard: int
    dtype: str
    recomputes: bool
    init: str
    interval: int
    evaluates: Any
    elsewhere: int
    nodes: int
    gpus: int
    app: str


MAIN = "apps.main.train"
"""The app of which the model is known."""
_D = "distributed."
_M = "model."
_SHARDING = choice({"full_shard": "full_shard", "no_shard": "no_shard"})

LINGUA = Table(
    name="lingua config",
    rows=(
        Row(f"{_M}dim", own.hidden, POSITIVE, 512, source=MODEL),
        Row(f"{_M}n_layers", own.layers, POSITIVE, 8, source=MODEL),
        Row(f"{_M}n_heads", own.heads, POSITIVE),
        Row(f"{_M}n_kv_heads", own.kv_heads, POSITIVE),
        Row(f"{_M}head_dim", own.head_dim, POSITIVE),
        Row(f"{_M}ffn_dim_multiplier", own.widens, NUMBER),
        Row(f"{_M}multiple_of", own.multiple, POSITIVE, 256, source=MODEL),
        Row(f"{_M}vocab_size", own.vocab, INTEGER),
        Row(f"{_M}weight_tying", own.tied, BOOLEAN, False, source=f"{SOURCE} apps/main/transformer.py"),
        Row(f"{_D}fsdp_type", own.sharding, _SHARDING, "no_shard", source=DISTRIBUTED),
        Row(f"{_D}dp_shard", own.shard, POSITIVE, 1, source=DISTRIBUTED),
        Row(f"{_D}tp_size", f.parallel.tp, POSITIVE, 1, source=DISTRIBUTED),
        Row(f"{_D}model_dtype", own.dtype, DTYPE, "bf16", source=DISTRIBUTED),
        Row(f"{_D}selective_activation_checkpointing", own.recomputes, BOOLEAN, False, source=DISTRIBUTED),
        Row(f"{_D}compile", f.compile.enabled, BOOLEAN, False, source=DISTRIBUTED),
        Row("data.seq_len", f.seq.max_len, POSITIVE, 2048, source=_DATA),
        Row("data.batch_size", f.batch.micro, POSITIVE, 2, source=_DATA),
        Row("data.tokenizer.name", own.tokenizer, TEXT, "bytes", source=f"{SOURCE} lingua/tokenizer.py"),
        Row("grad_acc_steps", f.batch.grad_accum, POSITIVE, 1, source=_TRAIN),
        Row("steps", f.total_steps, POSITIVE, 1000, source=_TRAIN),
        Row("optim.clip", f.optimizer.clip_norm, NUMBER, 1.0, source=f"{SOURCE} lingua/optim.py"),
        Row("checkpoint.dump.every", own.interval, POSITIVE, 1000, source=f"{SOURCE} lingua/checkpoint.py SaveEvery"),
        Row("checkpoint.init_ckpt_path", own.init, TEXT),
        Row("dump_dir", f.save.dir, TEXT),
        Row("eval", own.evaluates, ANYTHING),
        Row("async_eval_gpus", own.elsewhere, COUNT),
    ),
    known=known_keys("lingua"),
    known_prefixes=("eval.", "profiling.", "logging.", "env.", "data.sources."),
    ignores_unknown=False,
    loader="omegaconf",
    section="training",
)  # fmt: skip

OTHER_APP = replace(LINGUA, name="Lingua config of another app", known_prefixes=("",))
"""The same skeleton around a model, and losses, of another app: what keys it has more is not known."""

# python -m lingua.stool nodes=4 ngpu=8 config=...: what it writes into an sbatch script (ML/stool.py StoolArgs).
STOOL = Table(
    name="lingua.stool",
    rows=(
        Row("nodes", own.nodes, POSITIVE),
        Row("script", own.app, TEXT, MAIN, source=f"{SOURCE} lingua/stool.py StoolArgs"),
        Row("ngpu", own.gpus, POSITIVE, 8, source=f"{SOURCE} lingua/stool.py StoolArgs"),
    ),
    known_prefixes=("",),
    loader="omegaconf",
    section="scheduler",
)
