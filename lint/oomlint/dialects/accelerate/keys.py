"""Keys of Accelerate's config YAML, and the flags of ``accelerate launch`` that say the same.

Read from accelerate 16cb6eb8 (1.15.0.dev0); ``ACC`` below is ``src/accelerate``.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from oomlint.dialects.common.fields import ref
from oomlint.dialects.deepspeed.keys import DEVICE, STAGE
from oomlint.dialects.key_releases import past_keys
from oomlint.dialects.kinds import (
    BOOLEAN,
    COUNT,
    LIST,
    POSITIVE,
    TEXT,
    BadValue,
    Kind,
    choice,
    read_boolean,
)
from oomlint.dialects.machine.fields import launch
from oomlint.dialects.table import Renaming, Row, Table, known_keys
from oomlint.plan.fields import Private, f

# ACC/utils/dataclasses.py DistributedType; `NO` and `no` are false to PyYAML.
DISTRIBUTED_TYPES = {
    "NO": "no",
    False: "no",
    "MULTI_GPU": "multi",
    "MULTI_NPU": "multi",
    "MULTI_MLU": "multi",
    "MULTI_SDAA": "multi",
    "MULTI_MUSA": "multi",
    "MULTI_XPU": "multi",
    "MULTI_HPU": "multi",
    "MULTI_NEURON": "multi",
    "MULTI_CPU": "cpu",
    "FSDP": "fsdp",
    "DEEPSPEED": "deepspeed",
    "MEGATRON_LM": "megatron",
    "XLA": "xla",
    "TPU": "xla",
    "TP": "multi",
    "DATA_PARALLEL": "multi",
    "MODEL_PARALLEL": "multi",
}
DISTRIBUTED_TYPE = choice(DISTRIBUTED_TYPES)
MIXED_PRECISION = choice(
    {"no": "no", False: "no", "bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "fp32": "no"}
)

# torch.distributed.fsdp.ShardingStrategy; ACC/utils/constants.py FSDP_SHARDING_STRATEGY counts from 1.
_STRATEGIES = {
    "FULL_SHARD": "full",
    "SHARD_GRAD_OP": "grad_op",
    "NO_SHARD": "no_shard",
    "HYBRID_SHARD": "hybrid",
    "HYBRID_SHARD_ZERO2": "hybrid_grad_op",
    1: "full",
    2: "grad_op",
    3: "no_shard",
    4: "hybrid",
    5: "hybrid_grad_op",
    "1": "full",
    "2": "grad_op",
    "3": "no_shard",
    "4": "hybrid",
    "5": "hybrid_grad_op",
}
STRATEGY = choice(_STRATEGIES)
WRAP = choice(
    {
        "TRANSFORMER_BASED_WRAP": "transformer",
        "SIZE_BASED_WRAP": "size",
        "NO_WRAP": "none",
    },
    write={"ends": "TRANSFORMER_BASED_WRAP"},
)
STATE_DICT = choice(
    {
        "FULL_STATE_DICT": "full",
        "SHARDED_STATE_DICT": "sharded",
        "LOCAL_STATE_DICT": "local",
    }
)
BACKWARD_PREFETCH = choice({"BACKWARD_PRE": "pre", "BACKWARD_POST": "post", "NO_PREFETCH": "none"})
FSDP_VERSION = choice({1: 1, 2: 2, "1": 1, "2": 2})


def _read_reshard(raw: Any) -> bool:
    """A boolean under FSDP2, the name of a sharding strategy under FSDP1."""
    strategy = _STRATEGIES.get(str(raw).upper()) if isinstance(raw, str) else None
    if strategy is not None and not str(raw).isdigit():
        return strategy in ("full", "hybrid")
    return read_boolean(raw)


RESHARD = Kind(_read_reshard, schema={"anyOf": [{"type": "boolean"}, {"type": "string"}]})


def _read_optional_device(raw: Any) -> str:
    if isinstance(raw, (list, dict)):
        raise BadValue("expected one of none, cpu, nvme")
    return str(DEVICE.read(raw))


_OFFLOAD = replace(DEVICE, read=_read_optional_device)


class own(Private, prefix="accelerate"):  # noqa: N801
    """``distributed_type``: what the file chooses; ``use_*``: what flags of the launcher choose.
    ``fp16``: the old key for mixed precision."""

    distributed_type: str
    use_deepspeed: bool
    use_fsdp: bool
    use_megatron: bool
    mixed_precision: str
    fp16: bool
    grad_accum: int
    recompute: bool
    offloads_checkpoints: bool


_FSDP_ROWS = (
    Row("fsdp_version", f.parallel.fsdp.version, FSDP_VERSION),
    Row("fsdp_sharding_strategy", f.parallel.fsdp.strategy, STRATEGY),
    Row("fsdp_reshard_after_forward", f.parallel.fsdp.reshard_after_forward, RESHARD),
    Row("fsdp_auto_wrap_policy", f.parallel.fsdp.wrap, WRAP),
    Row("fsdp_transformer_layer_cls_to_wrap", f.parallel.fsdp.wrap_classes, LIST),
    Row("fsdp_min_num_params", f.parallel.fsdp.min_params, COUNT),
    Row("fsdp_offload_params", f.parallel.fsdp.cpu_offload, BOOLEAN),
    Row("fsdp_backward_prefetch", f.parallel.fsdp.backward_prefetch, BACKWARD_PREFETCH),
    Row("fsdp_forward_prefetch", f.parallel.fsdp.forward_prefetch, BOOLEAN),
    Row("fsdp_use_orig_params", f.parallel.fsdp.use_orig_params, BOOLEAN),
    Row("fsdp_state_dict_type", f.parallel.fsdp.state_dict, STATE_DICT),
    Row("fsdp_cpu_ram_efficient_loading", f.load.cpu_ram_efficient, BOOLEAN),
    Row("fsdp_sync_module_states", f.parallel.fsdp.sync_module_states, BOOLEAN),
    Row("fsdp_activation_checkpointing", f.parallel.fsdp.activation_checkpointing, BOOLEAN),
    # Since 1.15.0, and under FSDP2 alone (accelerate/utils/dataclasses.py FullyShardedDataParallelPlugin.__post_init__).
    Row("fsdp_activation_checkpointing_offload", own.offloads_checkpoints, BOOLEAN),
)
_DEEPSPEED_ROWS = (
    Row("zero_stage", f.parallel.zero.stage, STAGE),
    Row("offload_optimizer_device", f.offload.optimizer, _OFFLOAD),
    Row("offload_param_device", f.offload.params, _OFFLOAD),
    Row("zero3_init_flag", f.load.zero3_init, BOOLEAN),
    Row("zero3_save_16bit_model", f.parallel.zero.gather16_on_save, BOOLEAN),
    Row("deepspeed_config_file", ref.deepspeed, TEXT),
    Row("gradient_accumulation_steps", own.grad_accum, POSITIVE.or_auto()),
)
_MEGATRON_ROWS = (
    Row("megatron_lm_tp_degree", f.parallel.tp, POSITIVE),
    Row("megatron_lm_pp_degree", f.parallel.pp, POSITIVE),
    Row("megatron_lm_sequence_parallelism", f.parallel.sp, BOOLEAN),
    Row("megatron_lm_recompute_activations", own.recompute, BOOLEAN),
    Row("megatron_lm_use_distributed_optimizer", f.parallel.megatron.dist_optimizer, BOOLEAN),
)
_DEGREE_ROWS = (
    Row("parallelism_config_dp_replicate_size", f.parallel.dp_replicate, POSITIVE),
    Row("parallelism_config_dp_shard_size", f.parallel.dp_shard, POSITIVE),
    Row("parallelism_config_tp_size", f.parallel.tp, POSITIVE),
    Row("parallelism_config_cp_size", f.parallel.cp, POSITIVE),
    Row("parallelism_config_sp_size", f.parallel.ulysses, POSITIVE),
)


def _inside(section: str, rows: tuple[Row, ...], prefix: str) -> tuple[Row, ...]:
    """Rows of a nested dictionary; its keys may leave their prefix away
    (ACC/commands/launch.py _validate_launch_command)."""
    return tuple(
        replace(
            row,
            key=f"{section}.{row.key}",
            aliases=(f"{section}.{row.key.removeprefix(prefix)}",) if prefix else (),
            source="ACC/commands/launch.py launch_command_parser",
        )
        for row in rows
    )


_CONFIG = "ACC/commands/config/config_args.py:180"
_ROWS = (
    Row("distributed_type", own.distributed_type, DISTRIBUTED_TYPE, source=_CONFIG),
    *_inside("deepspeed_config", _DEEPSPEED_ROWS, ""),
    *_inside("fsdp_config", _FSDP_ROWS, "fsdp_"),
    *_inside("megatron_lm_config", _MEGATRON_ROWS, ""),
    *_inside("parallelism_config", _DEGREE_ROWS, ""),
    Row("mixed_precision", own.mixed_precision, MIXED_PRECISION, source=_CONFIG),
    Row("fp16", own.fp16, BOOLEAN, source="ACC/commands/config/config_args.py:104"),
    Row("num_machines", launch.machines, POSITIVE, source=_CONFIG),
    Row("num_processes", launch.total_processes, POSITIVE, source=_CONFIG),
)

ACCELERATE = Table(
    name="Accelerate config",
    renamed=(
        Renaming(
            "fsdp_config.fsdp_backward_prefetch_policy",
            "fsdp_config.fsdp_backward_prefetch",
            "Accelerate 1.0",
            effect="ignored",
            source="ACC/commands/launch.py:1265",
        ),
    ),
    rows=_ROWS,
    tuning=r"deepspeed_config\.(?:zero3_init_flag|deepspeed_multinode_launcher)|debug",
    known=known_keys("accelerate"),
    past=past_keys("accelerate", "accelerate"),
    known_prefixes=(
        "fp8_config", "dynamo_config", "mpirun_config", "tp_config", "megatron_lm_config.",
        "parallelism_config.",
        # ACC/commands/launch.py _validate_launch_command: what it does not know there it passes by.
        "deepspeed_config.", "fsdp_config.",
    ),
    # ACC/commands/config/config_args.py:118: unknown keys at the top raise a ValueError.
    ignores_unknown=False,
    loader="pyyaml",
    section="accelerate",
)  # fmt: skip


def _in_words(row: Row) -> Row:
    """A switch of the YAML as an option: all but ``use_*`` want ``true`` or ``false`` after them
    (ACC/commands/launch.py:466, ``type=str``)."""
    if row.kind not in (BOOLEAN, RESHARD):
        return row
    return replace(row, kind=replace(row.kind, write=lambda value: str(value).lower()))


LAUNCH_ROWS = (
    Row("mixed_precision", own.mixed_precision, MIXED_PRECISION),
    Row("use_deepspeed", own.use_deepspeed, BOOLEAN),
    Row("use_fsdp", own.use_fsdp, BOOLEAN),
    Row("use_megatron_lm", own.use_megatron, BOOLEAN),
    *map(_in_words, (*_DEEPSPEED_ROWS, *_FSDP_ROWS, *_MEGATRON_ROWS, *_DEGREE_ROWS)),
)
"""Flags of ``accelerate launch`` that say what the YAML says; for the launcher's table."""
