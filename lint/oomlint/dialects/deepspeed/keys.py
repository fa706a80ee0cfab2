"""Keys of DeepSpeed's JSON, with the defaults of its own code.

Read from DeepSpeed edaa7221 (0.19.x): ``DS`` below is ``deepspeed/runtime``.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.kinds import (
    ANYTHING,
    BOOLEAN,
    COUNT,
    POSITIVE,
    BadValue,
    Kind,
    choice,
    read_boolean,
    read_integer,
    read_number,
)
from oomlint.dialects.reading import Reading
from oomlint.dialects.table import Row, Table, known_keys
from oomlint.plan.fields import Private, f


def _read_stage(raw: Any) -> int:
    """``zero_optimization: true`` was once stage 1 (DS/zero/config.py read_zero_config_deprecated)."""
    if isinstance(raw, bool):
        return 1 if raw else 0
    stage = read_integer(raw)
    if stage not in (0, 1, 2, 3):
        raise BadValue("expected a ZeRO stage: 0, 1, 2 or 3")
    return stage


def _read_device(raw: Any) -> str:
    if raw is True:
        return "cpu"
    device = str(raw or "none").lower()
    if device == "auto":
        return "none"  # DS/config_utils.py:56 drops the word, of objects inside objects too
    if device not in ("none", "cpu", "nvme"):
        raise BadValue("expected one of none, cpu, nvme")
    return device


STAGE = Kind(_read_stage, schema={"enum": [0, 1, 2, 3]})
DEVICE = Kind(_read_device, schema={"enum": ["none", "cpu", "nvme", "auto"]})
_ELEMS = COUNT.or_auto()
# DS/config_utils.py:55 drops "auto" from the zero_optimization object, so it is legal anywhere.
_FLAG = BOOLEAN.or_auto()
_OLD_FLAG = Kind(lambda raw: raw if isinstance(raw, bool) else None, schema={})
_OLD_OFFLOAD = Kind(
    lambda raw: "cpu" if read_boolean(raw) else "none",
    lambda value: value == "cpu",
    {"type": "boolean"},
)

# DS/config.py _configure_basic_optimizer in engine.py: names of the "optimizer" block.
OPTIMIZERS = {
    "AdamW": "adamw",
    "Adam": "adamw",
    "FusedAdam": "adamw",
    "DeepSpeedCPUAdam": "adamw",
    "OneBitAdam": "adamw",
    "ZeroOneAdam": "adamw",
    "Lamb": "lamb",
    "OneBitLamb": "lamb",
    "Lion": "lion",
    "Adagrad": "adagrad",
    "Muon": "muon",
    "SGD": "sgd",
}


class ds(Private, prefix="ds"):  # noqa: N801
    """``zero_flag``: ``zero_optimization`` as the true or false of old versions. ``cpu_offload`` and
    ``cpu_offload_param``: their switches for offloading. ``added_preset``: what a shipped config says that a change
    names and no file named before."""

    added_preset: Reading
    zero_flag: bool
    cpu_offload: str
    cpu_offload_param: str
    old_pin_memory: bool
    elastic_checkpoint: bool
    bf16: bool
    fp16: bool
    bf16_master: bool
    bf16_states: bool
    grad_accum_dtype: str
    micro: int
    grad_accum: int
    train_batch: int
    optimizer: str
    torch_adam: bool
    activation_checkpointing: bool


_ZERO = "zero_optimization."
_ROWS = (
    Row("zero_optimization", ds.zero_flag, _OLD_FLAG, source="DS/zero/config.py:33"),
    Row(_ZERO + "stage", f.parallel.zero.stage, STAGE, default=0, source="DS/zero/config.py:95"),
    Row(
        _ZERO + "offload_optimizer.device",
        f.offload.optimizer,
        DEVICE,
        source="DS/zero/offload_config.py:52",
    ),
    Row(
        _ZERO + "offload_optimizer.pin_memory",
        f.offload.pin_memory,
        _FLAG,
        default=True,
        source="DS/zero/offload_config.py:75",
    ),
    Row(
        _ZERO + "offload_optimizer.ratio",
        f.offload.optimizer_ratio,
        Kind(read_number, schema={"type": "number", "minimum": 0, "maximum": 1}),
        default=1.0,
        source="DS/zero/offload_config.py:93",
    ),
    Row(
        _ZERO + "offload_optimizer.nvme_path",
        f.offload.nvme_path,
        source="DS/zero/offload_config.py",
    ),
    Row(
        _ZERO + "offload_param.device",
        f.offload.params,
        DEVICE,
        source="DS/zero/offload_config.py:20",
    ),
    Row(
        _ZERO + "offload_optimizer.buffer_count",
        f.offload.optimizer_buffers,
        COUNT,
        source="DS/zero/offload_config.py:67",
    ),
    Row(
        _ZERO + "offload_param.buffer_count",
        f.offload.param_buffers,
        COUNT,
        source="DS/zero/offload_config.py:33",
    ),
    Row(
        _ZERO + "offload_param.buffer_size",
        f.offload.param_buffer_elems,
        COUNT,
        source="DS/zero/offload_config.py:36",
    ),
    Row(
        _ZERO + "offload_param.max_in_cpu",
        f.offload.params_in_cpu_elems,
        COUNT,
        source="DS/zero/offload_config.py:39",
    ),
    Row(_ZERO + "cpu_offload", ds.cpu_offload, _OLD_OFFLOAD, source="DS/zero/config.py:202"),
    Row(
        _ZERO + "cpu_offload_param",
        ds.cpu_offload_param,
        _OLD_OFFLOAD,
        aliases=(_ZERO + "cpu_offload_params",),
        source="DS/zero/config.py:181",
    ),
    Row(
        _ZERO + "cpu_offload_use_pin_memory",
        ds.old_pin_memory,
        BOOLEAN,
        source="DS/zero/config.py:192: read by nothing",
    ),
    Row(
        _ZERO + "elastic_checkpoint",
        ds.elastic_checkpoint,
        BOOLEAN,
        source="DS/zero/config.py:151",
    ),
    Row(
        _ZERO + "overlap_comm", f.parallel.zero.overlap_comm, _FLAG, source="DS/zero/config.py:138"
    ),
    Row(
        _ZERO + "contiguous_gradients",
        f.parallel.zero.contiguous_grads,
        _FLAG,
        default=True,
        source="DS/zero/config.py:102",
    ),
    Row(
        _ZERO + "sub_group_size",
        f.parallel.zero.sub_group_elems,
        _ELEMS,
        default=1_000_000_000,
        source="DS/zero/config.py:175",
    ),
    Row(
        _ZERO + "reduce_bucket_size",
        f.parallel.zero.reduce_bucket_elems,
        _ELEMS,
        default=500_000_000,
        source="DS/zero/config.py:113",
    ),
    Row(
        _ZERO + "allgather_bucket_size",
        f.parallel.zero.allgather_bucket_elems,
        _ELEMS,
        default=500_000_000,
        source="DS/zero/config.py:132",
    ),
    Row(
        _ZERO + "stage3_prefetch_bucket_size",
        f.parallel.zero.prefetch_elems,
        _ELEMS,
        default=50_000_000,
        aliases=(_ZERO + "prefetch_bucket_size",),
        source="DS/zero/config.py:215",
    ),
    Row(
        _ZERO + "stage3_param_persistence_threshold",
        f.parallel.zero.persistence_threshold,
        _ELEMS,
        default=100_000,
        aliases=(_ZERO + "param_persistence_threshold",),
        source="DS/zero/config.py:221",
    ),
    Row(
        _ZERO + "stage3_max_live_parameters",
        f.parallel.zero.max_live_params,
        _ELEMS,
        default=1_000_000_000,
        aliases=(_ZERO + "max_live_parameters",),
        source="DS/zero/config.py:238",
    ),
    Row(
        _ZERO + "stage3_max_reuse_distance",
        f.parallel.zero.max_reuse_distance,
        _ELEMS,
        default=1_000_000_000,
        aliases=(_ZERO + "max_reuse_distance",),
        source="DS/zero/config.py:244",
    ),
    Row(
        _ZERO + "stage3_gather_16bit_weights_on_model_save",
        f.parallel.zero.gather16_on_save,
        _FLAG,
        default=False,
        aliases=(
            _ZERO + "gather_16bit_weights_on_model_save",
            _ZERO + "stage3_gather_fp16_weights_on_model_save",
        ),
        source="DS/zero/config.py:250",
    ),
    Row(
        _ZERO + "round_robin_gradients",
        f.parallel.zero.round_robin,
        _FLAG,
        default=False,
        source="DS/zero/config.py:302",
    ),
    Row(
        _ZERO + "pipeline_loading_checkpoint",
        f.parallel.zero.serial_load,
        _FLAG,
        default=False,
        source="DS/zero/config.py:352",
    ),
    Row(
        _ZERO + "zero_hpz_partition_size",
        f.parallel.zero.hpz,
        POSITIVE,
        default=1,
        source="DS/zero/config.py:309",
    ),
    Row(
        _ZERO + "zero_quantized_weights",
        f.parallel.zero.zeropp_weights,
        _FLAG,
        default=False,
        source="DS/zero/config.py:313",
    ),
    Row(
        _ZERO + "zero_quantized_gradients",
        f.parallel.zero.zeropp_grads,
        _FLAG,
        default=False,
        source="DS/zero/config.py:325",
    ),
    Row(
        _ZERO + "mics_shard_size",
        f.parallel.zero.mics,
        Kind(read_integer),
        source="DS/zero/config.py:341",
    ),
    Row(
        "bf16.enabled",
        ds.bf16,
        _FLAG,
        aliases=("bfloat16.enabled",),
        source="DS/precision_config.py:46",
    ),
    Row("fp16.enabled", ds.fp16, _FLAG, source="DS/precision_config.py:105"),
    Row(
        "bf16.bf16_master_weights_and_grads",
        ds.bf16_master,
        BOOLEAN,
        default=False,
        source="DS/precision_config.py:63",
    ),
    Row(
        "bf16.bf16_optimizer_states",
        ds.bf16_states,
        BOOLEAN,
        default=False,
        source="DS/precision_config.py:68",
    ),
    Row(
        "data_types.grad_accum_dtype",
        ds.grad_accum_dtype,
        choice({"fp32": "fp32", "bf16": "bf16", "fp16": "fp16", "float32": "fp32"}).or_auto(),
        source="DS/engine.py:1492",
    ),
    Row("train_micro_batch_size_per_gpu", ds.micro, POSITIVE.or_auto(), source="DS/config.py:942"),
    Row(
        "gradient_accumulation_steps",
        ds.grad_accum,
        POSITIVE.or_auto(),
        source="DS/config.py:942",
    ),
    Row("train_batch_size", ds.train_batch, POSITIVE.or_auto(), source="DS/config.py:942"),
    Row(
        "optimizer.type",
        ds.optimizer,
        choice(OPTIMIZERS, otherwise="other"),
        source="DS/engine.py _configure_basic_optimizer",
    ),
    Row(
        "optimizer.params.torch_adam",
        ds.torch_adam,
        BOOLEAN,
        default=False,
        source="DS/engine.py _configure_basic_optimizer",
    ),
    Row(
        "tensor_parallel.autotp_size",
        f.parallel.tp,
        POSITIVE,
        source="DS/tensor_parallel/config.py",
    ),
    Row("sequence_parallel_size", f.parallel.ulysses, POSITIVE, source="DS/config.py"),
    Row("compile.deepcompile", f.compile.deepcompile, BOOLEAN, source="DS/compile/config.py:17"),
    Row(
        "activation_checkpointing",
        ds.activation_checkpointing,
        ANYTHING,
        source="DS/activation_checkpointing/config.py:28; no effect on models that never call deepspeed.checkpointing",
    ),
)

# What stands inside these objects is DeepSpeed's business and has no effect on memory.
_OPEN_OBJECTS = tuple(
    f"{name}."
    for name in (
        "fp16", "bf16", "bfloat16", "amp", "optimizer", "scheduler", "aio", "flops_profiler",
        "tensorboard", "wandb", "csv_monitor", "comet", "comms_logger", "autotuning", "elasticity",
        "data_efficiency", "curriculum_learning", "progressive_layer_drop", "eigenvalue",
        "quantize_training", "compression_training", "sparse_attention", "pipeline", "checkpoint",
        "data_types", "nebula", "hybrid_engine", "compile", "activation_checkpointing",
        "tensor_parallel", "zenflow", "_", "zero_optimization._",
    )
)  # fmt: skip

DEEPSPEED = Table(
    name="DeepSpeed config",
    rows=_ROWS,
    known=known_keys("deepspeed"),
    known_prefixes=(*_OPEN_OBJECTS, "_", "//"),
    # The top level is not validated (DS/config.py reads the keys it knows); the zero_optimization
    # object is a pydantic model that forbids extra keys (DS/config_utils.py:110).
    ignores_unknown=True,
    strict_under=("zero_optimization.",),
    section="deepspeed",
    # Below zero_optimization all but what is kept where, and in which form a save has it.
    tuning=(
        r"zero_optimization\.(?!stage$|zero_(?:quantized|hpz)_|mics_|offload_(?:optimizer|param)(?:\.device)?$|.*gather_(?:16bit|fp16)).+"
        r"|steps_per_print|wall_clock_breakdown|zero_allow_untested_optimizer"
    ),
)


def is_of_stage_3(key: str) -> bool:
    """Whether only stage 3 reads a key: by the name that it has now (DeepSpeed edaa7221
    runtime/zero/config.py), or the offloading of parameters (:157 there)."""
    if key.startswith(_ZERO + "offload_param"):
        return True
    row = DEEPSPEED.names.get(key)
    return row is not None and row.key.startswith(_ZERO + "stage3_")
