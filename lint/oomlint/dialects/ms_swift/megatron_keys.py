"""Keys of Megatron-SWIFT: Megatron-core's own where it has one.

Read from ms-swift 3602360a (4.6.0.dev0) ``swift/megatron`` and its branches from release/3.2.
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
    Kind,
    choice,
    switch,
)
from oomlint.dialects.ms_swift.keys import (
    ENV_MAPPING,
    KNOWN,
    MODEL_ROWS,
    RLHF_ROWS,
    TUNER_ROWS,
    own,
)
from oomlint.dialects.table import Row, Table
from oomlint.dialects.trainer.keys import LENGTH
from oomlint.plan.fields import Private, f

ARGS = "ms-swift 3602360a megatron/arguments/megatron_args.py"


class megatron(Private, prefix="mswift"):  # noqa: N801  a namespace of fields, read like ``f``
    """Keys of Megatron-core whose meaning takes more than one of them."""

    global_batch: int
    seq_length: int
    recompute_method: str
    recompute_layers: int
    fused_loss: bool
    main_grads: str
    main_params: str
    exp_avg: str
    exp_avg_sq: str
    fp8: str
    fp16: bool
    bf16: bool
    eval_iters: int
    train: Any
    rollout: Any


_RECOMPUTE = choice({"selective": "selective_op", "full": "full", "none": "none"})
_TUNERS = choice({"full": "full", "lora": "lora", "lora_llm": "lora_llm"}, write={"qlora": "lora"})
_STATE = choice({"fp32": "fp32", "bf16": "bf16", "fp16": "fp16", "fp8": "fp8"})


def _read_converted(raw: Any) -> str:
    """A folder of converted weights, usually the model's name and ``-mcore``."""
    return str(raw).rstrip("/").removesuffix("-mcore")


RUN_ROWS = (
    *MODEL_ROWS,
    Row("mcore_model", f.model.id, Kind(_read_converted), aliases=("load",)),
    Row("tuner_type", own.tuner, _TUNERS, aliases=("train_type",), default="full", source=f"{ARGS}:449"),
    *TUNER_ROWS,
    *RLHF_ROWS,
    Row("task_type", own.task, TEXT),
    Row("seq_length", megatron.seq_length, LENGTH),
    Row("micro_batch_size", f.batch.micro, POSITIVE, default=1, source=f"{ARGS}:482"),
    Row("global_batch_size", megatron.global_batch, POSITIVE, default=16, source=f"{ARGS}:483"),
    Row("recompute_granularity", f.checkpointing.mode, _RECOMPUTE, default="selective_op", source=f"{ARGS}:484"),
    Row("recompute_method", megatron.recompute_method, choice({"uniform": "uniform", "block": "block"})),
    Row("recompute_num_layers", megatron.recompute_layers, POSITIVE),
    Row("recompute_modules", f.checkpointing.recompute_modules, LIST, default=("core_attn",), source=f"{ARGS}:487"),
    Row("cross_entropy_loss_fusion", megatron.fused_loss, BOOLEAN, default=True, source=f"{ARGS}:496"),
    Row("attention_backend", f.model.attn_impl, choice({"flash": "flash2", "flash_2": "flash2", "flash_3": "flash3", "flash_4": "flash3", "fused": "flash2", "auto": "flash2", "unfused": "eager", "local": "eager"}), default="flash2", source=f"{ARGS}:499"),
    Row("optimizer", f.optimizer.name, TEXT, default="adam", source=f"{ARGS}:500"),
    Row("optimizer_cpu_offload", f.offload.optimizer, switch(on="cpu", off="none"), default="none", source=f"{ARGS}:501"),
    Row("optimizer_offload_fraction", f.offload.optimizer_ratio, NUMBER, default=1.0, source=f"{ARGS}:502"),
    Row("use_precision_aware_optimizer", f.parallel.megatron.precision_aware_optim, BOOLEAN, default=False, source=f"{ARGS}:504"),
    Row("main_grads_dtype", megatron.main_grads, _STATE, default="fp32", source=f"{ARGS}:505"),
    Row("main_params_dtype", megatron.main_params, _STATE, default="fp32", source=f"{ARGS}:506"),
    Row("exp_avg_dtype", megatron.exp_avg, _STATE, default="fp32", source=f"{ARGS}:507"),
    Row("exp_avg_sq_dtype", megatron.exp_avg_sq, _STATE, default="fp32", source=f"{ARGS}:508"),
    Row("dataloader_num_workers", f.data.workers, COUNT, aliases=("num_workers",), default=4, source=f"{ARGS}:516"),
    Row("dataloader_prefetch_factor", f.data.prefetch, POSITIVE, default=2, source=f"{ARGS}:519"),
    Row("padding_free", own.padding_free, BOOLEAN, default=True, source=f"{ARGS}:524"),
    Row("output_dir", f.save.dir, TEXT, aliases=("save",)),
    Row("save_steps", f.save.every, NUMBER, aliases=("save_interval",), default=500, source=f"{ARGS}:563"),
    Row("save_strategy", f.save.strategy, choice({"steps": "steps", "epoch": "epoch"}), default="steps", source=f"{ARGS} save_strategy"),
    Row("save_total_limit", f.save.keep, LENGTH),
    Row("no_save_optim", f.save.save_only_model, BOOLEAN, default=False, source=f"{ARGS}:564"),
    Row("async_save", f.save.async_, switch(on="thread", off="none")),
    Row("use_distributed_optimizer", f.parallel.megatron.dist_optimizer, BOOLEAN, default=True, source=f"{ARGS}:587"),
    Row("overlap_param_gather", f.parallel.megatron.overlap_param_gather, BOOLEAN, default=False, source=f"{ARGS}:609"),
    Row("tensor_model_parallel_size", f.parallel.tp, POSITIVE, default=1, source=f"{ARGS}:592"),
    Row("pipeline_model_parallel_size", f.parallel.pp, POSITIVE, default=1, source=f"{ARGS}:593"),
    Row("virtual_pipeline_model_parallel_size", f.parallel.vpp, POSITIVE, source=f"{ARGS}:615"),
    Row("context_parallel_size", f.parallel.cp, POSITIVE, default=1, source=f"{ARGS}:603"),
    Row("expert_model_parallel_size", f.parallel.ep, POSITIVE, default=1, source=f"{ARGS}:618"),
    Row("expert_tensor_parallel_size", f.parallel.etp, POSITIVE, default=1, source=f"{ARGS}:619"),
    Row("sequence_parallel", f.parallel.sp, BOOLEAN, default=False, source=f"{ARGS}:602"),
    Row("mtp_num_layers", f.model.mtp_layers, COUNT),
    Row("fp8_format", megatron.fp8, TEXT),
    Row("fp16", megatron.fp16, BOOLEAN),
    Row("bf16", megatron.bf16, BOOLEAN),
    Row("train_iters", f.total_steps, POSITIVE),
    Row("eval_iters", megatron.eval_iters, INTEGER),
    Row("eval_steps", f.eval.every, NUMBER, aliases=("eval_interval",)),
    Row("vit_gradient_checkpointing", own.vit_checkpointing, BOOLEAN),
)  # fmt: skip

# A Ray config gives training and generation a group of GPUs each (swift/ray/megatron).
_TRAIN_GROUP = Table(
    name="train group",
    rows=(*RUN_ROWS, Row("gpus", f.parallel.gpus_per_node, POSITIVE)),
    known=KNOWN,
    ignores_unknown=None,
    section="training",
)
ROLLOUT_GROUP = Table(
    name="rollout group",
    rows=RLHF_ROWS,
    known=KNOWN | {"gpus"},
    ignores_unknown=None,
    section="training",
)

MEGATRON_SWIFT = Table(
    name="Megatron-SWIFT config",
    rows=(
        *RUN_ROWS,
        Row("ENV", own.env, Kind(lambda raw: None), table=ENV_MAPPING),
        Row("train", megatron.train, Kind(lambda raw: None), table=_TRAIN_GROUP),
        Row("rollout", megatron.rollout, Kind(lambda raw: None), table=ROLLOUT_GROUP),
    ),
    known=KNOWN | {"colocate_groups", "teacher", "group_by_length", "save_checkpoint"},
    known_prefixes=("teacher.", "ENV.", "ref.", "megatron_extra_kwargs."),
    ignores_unknown=False,
    section="training",
)
