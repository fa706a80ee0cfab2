"""The keys of OLMo-core's configs that decide memory, by the path that its command line gives them.

Read from allenai/OLMo-core fa6c5014c (2026-06-22); ``OC`` below is its ``src/olmo_core``. A script builds the config
in Python; ``--train_module.rank_microbatch_size=8192`` on its line is laid over it (OC/config.py Config.merge).
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.kinds import (
    BOOLEAN,
    COUNT,
    INTEGER,
    LIST,
    NUMBER,
    POSITIVE,
    TEXT,
    BadValue,
    Kind,
)
from oomlint.dialects.table import Row, Table
from oomlint.documents.base import Name
from oomlint.errors import CannotEdit
from oomlint.plan.fields import Private, f

SOURCE = "OLMo-core fa6c5014c"
TRAIN_MODULE = f"{SOURCE} src/olmo_core/train/train_module/transformer/config.py"
COOKBOOK = f"{SOURCE} src/olmo_core/internal/cookbook.py configure_train_module"
DELTA_NET = f"{SOURCE} src/olmo_core/nn/attention/recurrent.py GatedDeltaNetConfig"
DATA_PARALLEL = f"{SOURCE} src/olmo_core/distributed/parallel/data_parallel.py"


class own(Private, prefix="olmo_core"):  # noqa: N801  a namespace of fields, read like ``f``
    """Keys whose meaning takes more than one of them.

    ``tokens``: of a micro batch of one rank; ``global_``: of a step. ``factory``: the method of
    TransformerConfig that makes the model; ``tokenizer``: that of TokenizerConfig; ``maker``: what makes the train
    module, a class of its own or a helper with a ``budget``. ``dp``: how replicas are held.
    """

    tokens: int
    global_: int
    factory: str
    tokenizer: str
    vocab: int
    layers: int
    heads: int
    kv_heads: int
    hidden: int
    experts: int
    topk: int
    expert_ffn: int
    shared_ffn: int
    pattern: list[str]
    frozen: list[str]
    delta_heads: int
    delta_values: int
    delta_dim: int
    delta_expand: float
    qk_norm: bool
    reordered: bool
    backend: str
    loss: str
    dtype: str
    dp: str
    param_dtype: str
    reduce_dtype: str
    wrapping: str
    replicas: int
    shard: int
    maker: str
    budget: float
    ep: int
    ac: str
    ac_modules: tuple[str, ...]
    ac_interval: int
    optimizer: str
    states: str
    compile: bool
    interval: int
    ephemeral: int
    save_async: bool


def _last(raw: Any) -> str:
    """``hsdp`` of ``DataParallelType.hsdp``, or as a command line has it."""
    if isinstance(raw, (dict, list)):
        raise BadValue("expected a single value")
    return str(raw).rpartition(".")[2]


def _of(package: str) -> Kind:
    """A word of an enumeration; written into a script it is a name of code."""

    def write(value: Any) -> Name:
        return Name(f"olmo_core.{package}.{value}")

    return Kind(_last, write, {"type": "string"}, names=True)


_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def _read_dtype(raw: Any) -> str:
    try:
        return _DTYPES[_last(raw)]
    except KeyError:
        raise BadValue("expected float32, bfloat16 or float16") from None


def _write_dtype(value: Any) -> Name:
    word = {v: k for k, v in _DTYPES.items()}.get(value)
    if word is None:
        raise CannotEdit(f"OLMo-core has no {value}")
    return Name(f"olmo_core.config.DType.{word}")


def _unwritable(_value: Any) -> Any:
    raise CannotEdit("the script makes this object itself")


DTYPE = Kind(_read_dtype, _write_dtype, {"type": "string"}, names=True)
_CLASS = Kind(_last, _unwritable, names=True)
_MODE = _of("train.train_module.TransformerActivationCheckpointingMode")
_G = "model.block.gdn.sequence_mixer."
_T = "train_module."
_D = f"{_T}dp_config."
_A = f"{_T}ac_config."

OLMO_CORE = Table(
    name="OLMo-core config",
    rows=(
        Row("model.factory", own.factory, _CLASS),
        Row("model.vocab_size", own.vocab, POSITIVE),
        Row("model.n_layers", own.layers, POSITIVE),
        Row("model.n_heads", own.heads, POSITIVE),
        Row("model.n_kv_heads", own.kv_heads, POSITIVE),
        Row("model.d_model", own.hidden, POSITIVE),
        Row("model.num_experts", own.experts, POSITIVE),
        Row("model.top_k", own.topk, POSITIVE),
        Row("model.expert_hidden_size", own.expert_ffn, POSITIVE),
        Row("model.shared_expert_hidden_size", own.shared_ffn, POSITIVE),
        Row("model.block_pattern", own.pattern, LIST),
        Row("model.freeze_params", own.frozen, LIST),
        Row(f"{_G}n_heads", own.delta_heads, POSITIVE, 16, source=DELTA_NET),
        Row(f"{_G}n_v_heads", own.delta_values, POSITIVE),
        Row(f"{_G}head_dim", own.delta_dim, POSITIVE),
        Row(f"{_G}expand_v", own.delta_expand, NUMBER, 2.0, source=DELTA_NET),
        Row("model.qk_norm", own.qk_norm, BOOLEAN),
        Row("model.reordered_norm", own.reordered, BOOLEAN, False, source=f"{SOURCE} src/olmo_core/nn/transformer/config.py llama_like_moe"),
        Row("model.attn_backend", own.backend, _of("nn.attention.AttentionBackendName")),
        Row("model.dtype", own.dtype, DTYPE, "fp32", source=f"{SOURCE} src/olmo_core/nn/transformer/config.py"),
        Row("model.lm_head.loss_implementation", own.loss, _of("nn.lm_head.LMLossImplementation")),
        Row("tokenizer.factory", own.tokenizer, _CLASS, "dolma2", source=f"{SOURCE} src/olmo_core/internal/experiment.py build_config"),
        Row(f"{_T}class", own.maker, _CLASS),
        Row(f"{_T}activation_memory_budget", own.budget, NUMBER, 1.0, source=COOKBOOK),
        Row(f"{_T}rank_microbatch_size", own.tokens, POSITIVE),
        Row(f"{_T}max_sequence_length", f.seq.max_len, POSITIVE, aliases=("sequence_length", "common.max_sequence_length")),
        Row(f"{_T}compile_model", own.compile, BOOLEAN),
        Row(f"{_T}max_grad_norm", f.optimizer.clip_norm, NUMBER),
        Row(f"{_D}name", own.dp, _of("distributed.parallel.DataParallelType")),
        Row(f"{_D}param_dtype", own.param_dtype, DTYPE),
        Row(f"{_D}reduce_dtype", own.reduce_dtype, DTYPE, "fp32", source=DATA_PARALLEL),
        Row(f"{_D}num_replicas", own.replicas, POSITIVE),
        Row(f"{_D}shard_degree", own.shard, POSITIVE, aliases=(f"{_T}dp_shard_degree",)),
        Row(f"{_D}wrapping_strategy", own.wrapping, _of("train.train_module.TransformerDataParallelWrappingStrategy")),
        Row(f"{_T}tp_config.degree", f.parallel.tp, POSITIVE),
        Row(f"{_T}cp_config.degree", f.parallel.cp, POSITIVE, aliases=(f"{_T}cp_degree",)),
        Row(f"{_T}pp_config.degree", f.parallel.pp, POSITIVE),
        Row(f"{_T}ep_config.degree", own.ep, INTEGER),
        Row(f"{_A}mode", own.ac, _MODE, aliases=(f"{_A}0",)),
        Row(f"{_A}modules", own.ac_modules, LIST),
        Row(f"{_A}block_interval", own.ac_interval, POSITIVE),
        Row(f"{_T}optim.class", own.optimizer, _CLASS),
        Row(f"{_T}optim.dtype", own.states, DTYPE),
        Row(f"{_T}optim.foreach", f.optimizer.foreach, BOOLEAN),
        Row(f"{_T}optim.fused", f.optimizer.fused, BOOLEAN),
        Row("data_loader.global_batch_size", own.global_, POSITIVE, aliases=("common.global_batch_size",)),
        Row("data_loader.num_workers", f.data.workers, COUNT, 0, source=f"{SOURCE} src/olmo_core/data/data_loader.py"),
        Row("trainer.callbacks.checkpointer.save_interval", own.interval, POSITIVE, 250, source=f"{SOURCE} src/olmo_core/train/callbacks/checkpointer.py"),
        Row("trainer.callbacks.checkpointer.ephemeral_save_interval", own.ephemeral, POSITIVE),
        Row("trainer.callbacks.checkpointer.save_async", own.save_async, BOOLEAN, True, source=f"{SOURCE} src/olmo_core/train/callbacks/checkpointer.py"),
        Row("trainer.save_folder", f.save.dir, TEXT, aliases=("save_folder",)),
    ),
    # Arguments of classes, which may be a project's own.
    known_prefixes=("",),
    loader="yaml12",
    section="training",
)  # fmt: skip
