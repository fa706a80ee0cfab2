"""The keys of torchtitan's configs: one table for TOML, options and the objects of Python configs.

Read from torchtitan v0.1.0 to v0.2.2 ``config/job_config.py``, from the options of 2024 and from
b5bcd76c (2026-08-21) ``config/configs.py``. ``TN`` is torchtitan's package.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from oomlint.dialects.cells import Cells
from oomlint.dialects.key_releases import Refusal
from oomlint.dialects.kinds import (
    ANYTHING,
    BOOLEAN,
    COUNT,
    DTYPE,
    LIST,
    NUMBER,
    POSITIVE,
    REST,
    TEXT,
    Kind,
    choice,
    read_boolean,
)
from oomlint.dialects.machine.launcher_keys import RANKS
from oomlint.dialects.table import Row, Table, known_keys
from oomlint.plan.fields import Private, f

CONFIG = "torchtitan v0.2.2 config/job_config.py"
FIELDS = "torchtitan b5bcd76c config/configs.py"
PARALLELIZE = "torchtitan v0.2.2 models/llama3/infra/parallelize.py"


class own(Private, prefix="torchtitan"):  # noqa: N801  a namespace of fields, read like ``f``
    """Keys of torchtitan whose meaning takes more than one of them.

    ``early``: a key that only 2024's configs have. ``script``: the script that starts the run;
    ``ngpu`` is what its environment says.
    """

    early: Any
    name: str
    flavor: str
    attention: str
    converters: tuple[str, ...]
    float8: bool
    local_batch: int
    global_batch: int
    tokens: int
    step_tokens: int
    dtype: str
    compute: str
    etp: int
    reshard: str
    sequence_parallel: bool
    no_loss_parallel: bool
    pp_rows: int
    pp_count: int
    stage_layers: int
    ac: str
    ac_option: str
    compile: bool
    compiled: tuple[str, ...]
    implementation: str
    fused: bool
    loss: str
    saves: bool
    keep: int
    last_alone: bool
    export_dtype: str
    load_only: bool
    initial_load: str
    ngpu: int
    script: str


class header(Private, prefix="torchtitan.header"):  # noqa: N801
    """The comment at the head of shipped configs: ``a preset for 64 A100 GPUs``."""

    ranks: int


def _read_fp8(raw: Any) -> bool:
    """``fp8_linear = "dynamic"`` of 2024, or a switch; empty is off."""
    return read_boolean(raw) if isinstance(raw, bool) else bool(str(raw).strip())


_FP8 = Kind(_read_fp8)
AC_MODE = choice(
    {
        "none": "none",
        "full": "full",
        "selective": "selective",
        "memory_budget": "memory_budget",
    }
)
_RESHARD = choice({"default": "default", "always": "always", "never": "never"})
_IMPLEMENTATION = choice(
    {
        "fused": "fused",
        "foreach": "foreach",
        "for-loop": "for-loop",
        "fused_opt_states_bf16": "fused_opt_states_bf16",
    }
)
_ASYNC = choice({"disabled": "none", "async": "thread", "async_with_pinned_mem": "pinned"})

ROWS = (
    # Where 2024's configs kept the degrees; they say how old the torchtitan is.
    Row("training.tensor_parallel_degree", own.early, ANYTHING, aliases=("training.data_parallel_shard_degree", "training.data_parallel_degree", "training.batch_size", "experimental.pipeline_parallel_degree")),
    Row("model.name", own.name, TEXT),
    Row("model.flavor", own.flavor, TEXT),
    Row("hf_transformers.model", f.model.id, TEXT, aliases=("hf_model",)),
    Row("model.converters", own.converters, LIST),
    Row("float8.enable_float8_linear", own.float8, _FP8, aliases=("training.fp8_linear", "training.enable_fp8_linear")),
    Row("training.local_batch_size", own.local_batch, POSITIVE, aliases=("training.batch_size",)),
    Row("training.global_batch_size", own.global_batch, REST),
    Row("training.seq_len", f.seq.max_len, POSITIVE, 2048, ("training.max_context_length",), f"{CONFIG} Training"),
    Row("training.num_tokens_per_microbatch_per_dp_rank", own.tokens, POSITIVE),
    Row("training.num_tokens_per_train_step", own.step_tokens, REST),
    Row("training.max_norm", f.optimizer.clip_norm, NUMBER, 1.0, source=f"{CONFIG} Training"),
    Row("training.steps", "total_steps", POSITIVE, 10000, source=f"{CONFIG} Training"),
    Row("training.enable_cpu_offload", f.parallel.fsdp.cpu_offload, BOOLEAN, False, source=f"{CONFIG} Training"),
    Row("training.dtype", own.dtype, DTYPE, "fp32", source=f"{CONFIG} Training"),
    Row("training.mixed_precision_param", own.compute, DTYPE, "bf16", source=f"{CONFIG} Training"),
    Row("training.mixed_precision_reduce", f.precision.comm, DTYPE, "fp32", source=f"{CONFIG} Training"),
    Row("training.dataloader.num_workers", f.data.workers, COUNT, 0, source=f"{CONFIG} DataLoader"),
    Row("training.dataloader.prefetch_factor", f.data.prefetch, POSITIVE),
    Row("training.dataloader.pin_memory", f.data.pin_memory, BOOLEAN, False, source=f"{CONFIG} DataLoader"),
    Row("parallelism.data_parallel_replicate_degree", f.parallel.dp_replicate, POSITIVE, 1, ("training.data_parallel_replicate_degree",), f"{CONFIG} Parallelism"),
    Row("parallelism.data_parallel_shard_degree", f.parallel.dp_shard, REST, aliases=("training.data_parallel_shard_degree", "training.data_parallel_degree")),
    Row("parallelism.tensor_parallel_degree", f.parallel.tp, POSITIVE, 1, ("training.tensor_parallel_degree",), f"{CONFIG} Parallelism"),
    Row("parallelism.pipeline_parallel_degree", f.parallel.pp, POSITIVE, 1, ("experimental.pipeline_parallel_degree",), f"{CONFIG} Parallelism"),
    Row("parallelism.context_parallel_degree", f.parallel.cp, POSITIVE, 1, ("experimental.context_parallel_degree",), f"{CONFIG} Parallelism"),
    Row("parallelism.expert_parallel_degree", f.parallel.ep, POSITIVE, 1, source=f"{CONFIG} Parallelism"),
    Row("parallelism.expert_tensor_parallel_degree", own.etp, POSITIVE, 1, source=f"{CONFIG} Parallelism"),
    Row("parallelism.fsdp_reshard_after_forward", own.reshard, _RESHARD, "default", source=f"{CONFIG} Parallelism"),
    Row("parallelism.enable_sequence_parallel", own.sequence_parallel, BOOLEAN, True, source=f"{FIELDS} ParallelismConfig"),
    Row("parallelism.disable_loss_parallel", own.no_loss_parallel, BOOLEAN),
    Row("parallelism.pipeline_parallel_schedule", f.parallel.pp_schedule, TEXT, aliases=("experimental.pipeline_parallel_schedule",)),
    Row("parallelism.pipeline_parallel_microbatch_size", own.pp_rows, POSITIVE),
    Row("parallelism.num_pp_microbatches", own.pp_count, POSITIVE, aliases=("experimental.pipeline_parallel_microbatches",)),
    Row("parallelism.pipeline_parallel_layers_per_stage", own.stage_layers, POSITIVE),
    Row("activation_checkpoint.mode", own.ac, AC_MODE),
    Row("activation_checkpoint.selective_ac_option", own.ac_option, TEXT, "2", source=f"{CONFIG} ActivationCheckpoint"),
    Row("compile.enable", own.compile, BOOLEAN, False, ("training.compile",), f"{CONFIG} Compile"),
    Row("compile.components", own.compiled, LIST, ("model", "loss"), source=f"{CONFIG} Compile"),
    Row("optimizer.name", f.optimizer.name, TEXT, "AdamW", source=f"{CONFIG} Optimizer"),
    Row("optimizer.implementation", own.implementation, _IMPLEMENTATION),
    Row("optimizer.fused", own.fused, BOOLEAN),
    Row("optimizer.early_step_in_backward", f.optimizer.in_backward, BOOLEAN, False, source=f"{CONFIG} Optimizer"),
    Row("checkpoint.enable", own.saves, BOOLEAN, False, ("checkpoint.enable_checkpoint",), f"{CONFIG} Checkpoint"),
    Row("checkpoint.interval", f.save.every, POSITIVE, 500, source=f"{CONFIG} Checkpoint"),
    Row("checkpoint.interval_type", f.save.unit, choice({"steps": "steps"}, otherwise=None)),
    Row("checkpoint.keep_latest_k", own.keep, COUNT, 10, source=f"{CONFIG} Checkpoint"),
    Row("checkpoint.last_save_model_only", own.last_alone, BOOLEAN, True, ("checkpoint.last_save_model_weights_only", "checkpoint.model_weights_only"), f"{CONFIG} Checkpoint"),
    Row("checkpoint.export_dtype", own.export_dtype, DTYPE, "fp32", source=f"{CONFIG} Checkpoint"),
    Row("checkpoint.async_mode", f.save.async_, _ASYNC, "none", source=f"{CONFIG} Checkpoint"),
    Row("checkpoint.load_only", own.load_only, BOOLEAN),
    Row("checkpoint.initial_load_path", own.initial_load, TEXT),
    Row("loss.num_chunks", f.loss.chunks, POSITIVE),
    Row("job.dump_folder", f.save.dir, TEXT, aliases=("dump_folder",)),
    Row("validation.enable", f.eval.enabled, BOOLEAN, False, ("validator.enable",), f"{CONFIG} Validation"),
    Row("validation.freq", f.eval.every, POSITIVE, 10, ("validator.freq",), f"{CONFIG} Validation"),
    Row("validation.local_batch_size", f.batch.eval_micro, POSITIVE),
)  # fmt: skip

KNOWN = known_keys("torchtitan")
REGISTRY_NAME = "torchtitan registry"
TORCHTITAN = Table(
    name="torchtitan config",
    rows=ROWS,
    known=KNOWN,
    # TN/config/manager.py _dict_to_dataclass raises on fields that the dataclass lacks, from v0.2.0 on (eadca483).
    ignores_unknown=False,
    refusal=Refusal(
        ("torchtitan/config/manager.py", "torchtitan/config_manager.py"),
        rb"\bset\(data\) - valid_fields\b",
    ),
    loader="yaml12",
    section="training",
)
# A job may bring a dataclass of its own that extends torchtitan's (job.custom_config_module).
EXTENDED = replace(TORCHTITAN, known_prefixes=("",))

OPTIONS = replace(
    TORCHTITAN,
    name="torchtitan options",
    refusal=None,  # tyro's parser has always refused them
    known=KNOWN | {"module", "config", "job.config_file", "m"},
    # Objects of the newer configs, whose classes have options of their own.
    known_prefixes=(
        "metrics.", "profiler.", "dataloader.", "debug.", "comm.", "lr_scheduler.", "compile.",
        "optimizer.", "validator.", "override.", "tokenizer.", "loss.", "activation_checkpoint.",
        "parallelism.spmd_", "parallelism.enable_", "hf_assets_path",
    ),
)  # fmt: skip
# torchtitan's scripts take what they launch from the environment.
SCENE = Table(
    name="torchtitan environment",
    rows=(Row("NGPU", own.ngpu, RANKS),),
    known_prefixes=("",),
    loader="yaml12",
    section="environment",
)
# Where run_train.sh's own choice of the allocator and of the rank count applies.
STARTED = Table(
    name="run_train.sh",
    rows=(Row("script", own.script, TEXT),),
    section="launcher words",
)
HEADER = Table(
    name="comment",
    rows=(Row("ranks", header.ranks, POSITIVE),),
    section="comment",
)


def is_registry(run: Cells) -> bool:
    """Whether the config is a Python function, whose dataclasses have other defaults."""
    return any(block.table.name == REGISTRY_NAME for block in run.blocks)
