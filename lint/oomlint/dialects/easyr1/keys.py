"""Keys of EasyR1's trainer.

Read from hiyouga/EasyR1 b44b311 (2026-07-30) and its history from v0.1 on; ``ER`` below is its ``verl``
package. OmegaConf merges YAML and command line into dataclasses and refuses what these lack
(ER/trainer/main.py).
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.kinds import (
    BOOLEAN,
    DTYPE,
    NUMBER,
    POSITIVE,
    REST,
    TEXT,
    BadValue,
    Kind,
    choice,
    read_integer,
    switch,
)
from oomlint.dialects.table import Row, Table, known_keys
from oomlint.plan.fields import Private, f

SOURCE = "EasyR1 b44b311"
TRAINER = f"{SOURCE} verl/trainer/config.py"
ACTOR = f"{SOURCE} verl/workers/actor/config.py"
ROLLOUT = f"{SOURCE} verl/workers/rollout/config.py"
CRITIC = f"{SOURCE} verl/workers/critic/config.py"


class own(Private, prefix="easyr1"):  # noqa: N801  a namespace of fields, read like ``f``
    """``prompts``: those of one update. ``*_off``: moved to the CPU between the phases of a step;
    ``*_on_cpu``: FSDP keeps it there. ``full_shard``: weights are freed after use. ``targets``: layers
    that get adapters, in one text."""

    prompts: int
    unpads: bool
    param_off: bool
    optimizer_off: bool
    on_cpu: bool
    full_shard: bool
    rank0: bool
    compute: str
    targets: str
    estimator: str
    no_kl: bool
    ref_off: bool
    ref_on_cpu: bool
    critic: str
    critic_param_off: bool
    critic_optimizer_off: bool
    save_freq: int
    save_limit: int
    val_freq: int


def _read_rank(raw: Any) -> int | None:
    """A LoRA rank; 0 trains the whole model."""
    number = read_integer(raw)
    if number < 0:
        raise BadValue("expected a whole number, 0 for no LoRA")
    return number or None


_RANK = Kind(_read_rank, lambda value: value or 0)
_FREQUENCY = Kind(read_integer)
_OPTIMIZERS = choice({"adamw": "adamw", "adamw_bf16": "anyprecision_adamw"})

_A = "worker.actor."
_R = "worker.rollout."
_C = "worker.critic."

EASYR1 = Table(
    name="EasyR1 config",
    rows=(
        Row(f"{_A}model.model_path", f.model.id, TEXT),
        Row(f"{_A}model.trust_remote_code", f.model.trust_remote_code, BOOLEAN, True, source=ACTOR),
        Row(f"{_A}model.enable_gradient_checkpointing", f.checkpointing.mode, switch(on="full", off="none"), "full", source=ACTOR),
        Row(f"{_A}model.freeze_vision_tower", f.model.vision.freeze_tower, BOOLEAN, False, source=ACTOR),
        Row(f"{_A}model.lora.rank", f.trainable.r, _RANK),
        Row(f"{_A}model.lora.alpha", f.trainable.alpha, NUMBER),
        Row(f"{_A}model.lora.target_modules", own.targets, TEXT, "all-linear", source=ACTOR),
        Row(f"{_A}global_batch_size", own.prompts, POSITIVE, 256, source=ACTOR),
        Row(f"{_A}micro_batch_size_per_device_for_update", f.batch.micro, POSITIVE, 4, source=ACTOR),
        Row(f"{_A}micro_batch_size_per_device_for_experience", f.objective.rollout.rollout_micro_batch, POSITIVE, 16, source=ACTOR),
        Row(f"{_A}max_grad_norm", f.optimizer.clip_norm, NUMBER, 1.0, source=ACTOR),
        Row(f"{_A}padding_free", own.unpads, BOOLEAN, True, source=ACTOR),
        Row(f"{_A}ulysses_size", f.parallel.ulysses, POSITIVE, 1, (f"{_A}ulysses_sequence_parallel_size",), ACTOR),
        Row(f"{_A}optim.strategy", f.optimizer.kind, _OPTIMIZERS, "adamw", source=ACTOR),
        Row(f"{_A}fsdp.enable_full_shard", own.full_shard, BOOLEAN, True, source=ACTOR),
        Row(f"{_A}fsdp.enable_cpu_offload", own.on_cpu, BOOLEAN, False, source=ACTOR),
        Row(f"{_A}fsdp.enable_rank0_init", own.rank0, BOOLEAN, True, source=ACTOR),
        Row(f"{_A}fsdp.use_orig_params", f.parallel.fsdp.use_orig_params, BOOLEAN, False, source=ACTOR),
        Row(f"{_A}fsdp.torch_dtype", f.load.dtype, DTYPE),
        Row(f"{_A}fsdp.fsdp_size", f.parallel.dp_shard, REST),
        Row(f"{_A}fsdp.mp_param_dtype", own.compute, DTYPE, "bf16", source=ACTOR),
        Row(f"{_A}fsdp.mp_reduce_dtype", f.precision.comm, DTYPE, "fp32", source=ACTOR),
        Row(f"{_A}offload.offload_params", own.param_off, BOOLEAN, False, (f"{_A}offload.param_offload", f"{_A}fsdp.param_offload"), ACTOR),
        Row(f"{_A}offload.offload_optimizer", own.optimizer_off, BOOLEAN, False, (f"{_A}offload.optimizer_offload", f"{_A}fsdp.optimizer_offload"), ACTOR),
        Row("worker.ref.offload.offload_params", own.ref_off, BOOLEAN, False, ("worker.ref.offload.param_offload",), ACTOR),
        Row("worker.ref.fsdp.enable_cpu_offload", own.ref_on_cpu, BOOLEAN, False, source=ACTOR),
        Row(f"{_C}model.model_path", own.critic, TEXT),
        Row(f"{_C}offload.offload_params", own.critic_param_off, BOOLEAN, False, (f"{_C}offload.param_offload",), CRITIC),
        Row(f"{_C}offload.offload_optimizer", own.critic_optimizer_off, BOOLEAN, False, (f"{_C}offload.optimizer_offload",), CRITIC),
        Row(f"{_R}n", f.objective.rollout.n, POSITIVE, 1, source=ROLLOUT),
        Row(f"{_R}gpu_memory_utilization", f.objective.rollout.gpu_mem_util, NUMBER, 0.6, source=ROLLOUT),
        Row(f"{_R}tensor_parallel_size", f.objective.rollout.tp, POSITIVE, 2, source=ROLLOUT),
        Row(f"{_R}max_model_len", f.objective.rollout.max_model_len, POSITIVE),
        Row("algorithm.adv_estimator", own.estimator, TEXT, "grpo", source=TRAINER),
        Row("algorithm.disable_kl", own.no_kl, BOOLEAN, False, source=TRAINER),
        Row("data.max_prompt_length", f.objective.rollout.max_prompt_tokens, POSITIVE, 512, source=TRAINER),
        Row("data.max_response_length", f.objective.rollout.max_completion_tokens, POSITIVE, 512, source=TRAINER),
        Row("data.max_pixels", f.model.vision.max_pixels, POSITIVE, 4_194_304, source=TRAINER),
        Row("trainer.nnodes", f.parallel.nodes, POSITIVE, 1, source=TRAINER),
        Row("trainer.n_gpus_per_node", f.parallel.gpus_per_node, POSITIVE, 8, source=TRAINER),
        Row("trainer.max_steps", f.total_steps, POSITIVE),
        Row("trainer.val_freq", own.val_freq, _FREQUENCY, -1, ("trainer.test_freq",), TRAINER),
        Row("trainer.val_before_train", f.eval.on_start, BOOLEAN, True, source=TRAINER),
        Row("trainer.save_freq", own.save_freq, _FREQUENCY, -1, source=TRAINER),
        Row("trainer.save_limit", own.save_limit, _FREQUENCY, -1, source=TRAINER),
        Row("trainer.save_model_only", f.save.save_only_model, BOOLEAN, False, source=TRAINER),
        Row("trainer.save_checkpoint_path", f.save.dir, TEXT),
    ),
    known=known_keys("easyr1"),
    known_prefixes=(
        f"{_A}model.override_config.", f"{_C}model.override_config.", f"{_R}val_override_config.",
        "worker.reward.reward_function_kwargs.", "worker.reward.score_function_kwargs.",
    ),
    ignores_unknown=False,
    loader="omegaconf",
    section="training",
)  # fmt: skip
