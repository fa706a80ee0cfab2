"""Keys of GPT-NeoX that decide memory: the model's, and what of training is not DeepSpeed's own.

Read from EleutherAI/gpt-neox ea7aefd8 (2026-05-20), v1.0 and v2.0; ``NX`` below is its ``megatron``
package. One flat mapping holds keys of Megatron's kind, keys of DeepSpeed's JSON, and options of
DeepSpeed's launcher (NX/neox_arguments/deepspeed_args.py); NX/neox_arguments/arguments.py hands the
latter two on.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from oomlint.dialects.kinds import (
    BOOLEAN,
    COUNT,
    INTEGER,
    NUMBER,
    POSITIVE,
    TEXT,
    Kind,
    choice,
)
from oomlint.dialects.table import Row, Table, known_keys
from oomlint.plan.fields import Private, f

ARGUMENTS = "gpt-neox ea7aefd8 megatron/neox_arguments/neox_args.py"
DERIVED = "gpt-neox ea7aefd8 megatron/neox_arguments/arguments.py calculate_derived"


Norm: TypeAlias = Literal["rms", "ln"]
Act: TypeAlias = Literal["swiglu", "geglu", "gelu", "relu", "silu"]


class own(Private, prefix="neox"):  # noqa: N801  a namespace of fields, read like ``f``
    """Numbers of the model, and keys whose meaning takes more than one of them.

    ``pipes``: pipeline stages, 0 where the model is no PipelineModule. ``multiple``: what the width
    of the MLP is rounded up to. ``kernels``: ``attention_config``, the kinds of attention and for how
    many layers each. ``interval``: how many layers are recomputed at once. ``partitions``: what checkpoints keep is split over the tensor-parallel ranks.
    ``mlp``: a key of 2023-05 to 2024-09, when ``llama`` had a gated MLP of the width given.
    """

    pipes: int
    layers: int
    hidden: int
    ffn: int
    expansion: float
    multiple: int
    mlp: str
    heads: int
    kv_heads: int
    positions: str
    max_positions: int
    norm: Norm
    qk_norm: bool
    activation: Act
    untied: bool
    attention_bias: bool
    mlp_bias: bool
    window: int
    vocab: int
    tokenizer: str
    vocab_file: str
    divisor: int
    experts: int
    topk: int
    expert_interval: int
    kernels: Any
    mamba_fusion: bool
    checkpoints: bool
    interval: int
    partitions: bool
    checkpoints_on_cpu: bool
    precision: str
    narrow_loss: bool
    bnb: bool
    on_cpu: bool
    task: str
    precomputed: str
    no_reference: bool
    kl: float
    finetune: bool
    load: str
    spacing: str
    factor: float
    eval_iters: int


def _read_as_is(raw: Any) -> Any:
    return raw


_KERNELS = Kind(_read_as_is, schema={"type": "array"})
_PRECISION = choice({"fp16": "fp16", "bfloat16": "bf16", "fp32": "fp32"})
_NORM = choice(
    {
        "layernorm": "ln", "rmsnorm": "rms", "non_parametric_layernorm": "ln", "scalenorm": "rms",
        "te_rmsnorm": "rms", "te_layernorm": "ln",
    },
)  # fmt: skip
_ACTIVATION = choice(
    {
        "gelu": "gelu", "geglu": "geglu", "relu": "relu", "reglu": "geglu", "swiglu": "swiglu",
        "bilinear": "geglu", "glu": "geglu", "silu": "silu", "swish": "silu", "mish": "silu",
        "softsign": "gelu",
    },
)  # fmt: skip

_MODEL_ROWS = (
    Row("pipe_parallel_size", own.pipes, COUNT, 0, source=ARGUMENTS),
    Row("model_parallel_size", f.parallel.tp, POSITIVE, 1, source=ARGUMENTS),
    Row("sequence_parallel", f.parallel.sp, BOOLEAN, False, source=ARGUMENTS),
    Row("num_layers", own.layers, POSITIVE),
    Row("hidden_size", own.hidden, POSITIVE),
    Row("intermediate_size", own.ffn, POSITIVE),
    Row("expansion_factor", own.expansion, NUMBER),
    Row("mlp_multiple_of", own.multiple, POSITIVE, 1, source=ARGUMENTS),
    Row("mlp_type", own.mlp, TEXT),
    Row("num_attention_heads", own.heads, POSITIVE),
    Row("num_kv_heads", own.kv_heads, POSITIVE),
    Row("seq_length", f.seq.max_len, POSITIVE),
    Row("max_position_embeddings", own.max_positions, POSITIVE),
    Row("sliding_window_width", own.window, POSITIVE),
    Row("norm", own.norm, _NORM, "ln", source=ARGUMENTS),
    Row("use_qk_layernorm", own.qk_norm, BOOLEAN, False, source=ARGUMENTS),
    Row("pos_emb", own.positions, TEXT, "learned", source=ARGUMENTS),
    Row("no_weight_tying", own.untied, BOOLEAN, False, source=ARGUMENTS),
    Row("activation", own.activation, _ACTIVATION, "gelu", source=ARGUMENTS),
    Row("use_bias_in_attn_linear", own.attention_bias, BOOLEAN, True, source=ARGUMENTS),
    Row("use_bias_in_mlp", own.mlp_bias, BOOLEAN, True, source=ARGUMENTS),
    Row("attention_config", own.kernels, _KERNELS),
    Row("mamba_inner_func_fusion", own.mamba_fusion, BOOLEAN, False, source=ARGUMENTS),
    Row("tokenizer_type", own.tokenizer, TEXT, "GPT2BPETokenizer", source=ARGUMENTS),
    Row("vocab_file", own.vocab_file, TEXT),
    Row("make_vocab_size_divisible_by", own.divisor, POSITIVE, 128, source=ARGUMENTS),
    Row("moe_num_experts", own.experts, POSITIVE, 1, ("num_experts",), ARGUMENTS),
    Row("moe_top_k", own.topk, POSITIVE, 1, source=ARGUMENTS),
    Row("moe_expert_interval", own.expert_interval, POSITIVE, 1, ("expert_interval",), ARGUMENTS),
)

_RUN_ROWS = (
    Row("precision", own.precision, _PRECISION),
    Row("fp16_lm_cross_entropy", own.narrow_loss, BOOLEAN, False, source=ARGUMENTS),
    Row("optimizer.type", f.optimizer.name, TEXT, "Adam", source=f"{DERIVED}: OPT_DEFAULT"),
    Row("use_bnb_optimizer", own.bnb, BOOLEAN, False, source=ARGUMENTS),
    Row("gradient_clipping", f.optimizer.clip_norm, NUMBER, 1.0, source=ARGUMENTS),
    Row("checkpoint_activations", own.checkpoints, BOOLEAN, False, source=ARGUMENTS),
    Row("checkpoint_num_layers", own.interval, POSITIVE, 1, source=ARGUMENTS),
    Row("partition_activations", own.partitions, BOOLEAN, False, source=ARGUMENTS),
    Row("checkpoint_in_cpu", own.checkpoints_on_cpu, BOOLEAN, False, source=ARGUMENTS),
    Row("use_cpu_initialization", own.on_cpu, BOOLEAN, False, source=ARGUMENTS),
    Row("train_impl", own.task, TEXT, "normal", source=ARGUMENTS),
    Row("precompute_model_name", own.precomputed, TEXT),
    Row("dpo_reference_free", own.no_reference, BOOLEAN, False, source=ARGUMENTS),
    Row("kl_div_beta", own.kl, NUMBER, 0.1, source=ARGUMENTS),
    Row("finetune", own.finetune, BOOLEAN, False, source=ARGUMENTS),
    Row("load", own.load, TEXT),
    Row("save", f.save.dir, TEXT),
    Row("checkpoint_scale", own.spacing, TEXT, "linear", source=ARGUMENTS),
    Row("checkpoint_factor", own.factor, NUMBER, aliases=("save_interval",)),
    Row("no_save_optim", f.save.save_only_model, BOOLEAN, False, source=ARGUMENTS),
    Row("keep_last_n_checkpoints", f.save.keep, POSITIVE),
    Row("eval_iters", own.eval_iters, INTEGER, 100, source=ARGUMENTS),
    Row("eval_interval", f.eval.every, POSITIVE, 1000, source=ARGUMENTS),
    Row("train_iters", f.total_steps, POSITIVE),
    Row("num_workers", f.data.workers, COUNT, 2, source=ARGUMENTS),
)

# NX/neox_arguments/deepspeed_args.py NeoXArgsDeepspeedConfig: what the JSON for DeepSpeed is made of.
# The optimizer is none of them: NX/training.py get_optimizer builds it.
FOR_DEEPSPEED = frozenset(
    {
        "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
        "fp16", "bf16", "zero_optimization", "data_types",
    }
)  # fmt: skip

# NeoXArgsDeepspeedRunner: what DeepSpeed's launcher is told.
FOR_LAUNCHER = frozenset({"hostfile", "include", "exclude", "num_nodes", "num_gpus"})

GPT_NEOX = Table(
    name="GPT-NeoX config",
    rows=(*_MODEL_ROWS, *_RUN_ROWS),
    known=known_keys("gpt_neox") | FOR_DEEPSPEED | FOR_LAUNCHER,
    known_prefixes=("optimizer.",),
    # NeoXArgs is a dataclass that takes the mapping as its arguments (arguments.py from_ymls).
    ignores_unknown=False,
    section="training",
)
