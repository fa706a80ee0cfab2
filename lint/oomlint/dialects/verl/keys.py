"""Keys of verl's PPO and SFT trainers, and of Ray around them.

Read from verl 0.8.0.dev (b178a3cd, 2026-01-29); ``VL`` below is its ``verl`` package.
"""

from __future__ import annotations

import re
from typing import Any

from oomlint.dialects.kinds import (
    ANYTHING,
    BOOLEAN,
    COUNT,
    DTYPE,
    NUMBER,
    POSITIVE,
    REST,
    TARGETS,
    TEXT,
    BadValue,
    Kind,
    choice,
    read_integer,
    read_list,
    switch,
)
from oomlint.dialects.table import Row, Table, known_keys

SOURCE = "verl b178a3cd"
PPO_SOURCE = f"{SOURCE} trainer/config/_generated_ppo_trainer.yaml"
SFT_SOURCE = f"{SOURCE} trainer/config/sft_trainer.yaml"
ENGINE_SOURCE = f"{SOURCE} trainer/config/sft_trainer_engine.yaml"


def _read_rank(raw: Any) -> int | None:
    """A LoRA rank; 0 trains the whole model."""
    number = read_integer(raw)
    if number < 0:
        raise BadValue("expected a whole number, 0 for no LoRA")
    return number or None


def _read_contents(raw: Any) -> tuple[str, ...]:
    """``[model,optimizer]`` as Hydra reads it on a command line, or a list."""
    if isinstance(raw, str):
        return tuple(re.findall(r"\w+", raw))
    return read_list(raw)


def _read_frequency(raw: Any) -> int:
    """Steps; -1 and false are never. A word such as ``after_each_epoch`` counts as 0."""
    if isinstance(raw, bool):
        return 1 if raw else -1
    return 0 if isinstance(raw, str) and not raw.lstrip("-").isdigit() else read_integer(raw)


_RANK = Kind(_read_rank)
_CONTENTS = Kind(_read_contents)
_FREQUENCY = Kind(_read_frequency)
_STRATEGY = choice({"fsdp": "fsdp", "fsdp2": "fsdp2", "megatron": "megatron", "veomni": "fsdp2"})
_ROLLOUT = choice(
    {"vllm": "vllm_colocate", "sglang": "sglang", "hf": "hf", "trtllm": "vllm_colocate"},
    otherwise="vllm_colocate",
)
_ATTENTION = choice(
    {"flash_attention_2": "flash2", "flash_attention_3": "flash3", "sdpa": "sdpa", "eager": "eager", "flex_attention": "flex"}
)  # fmt: skip

_A = "actor_rollout_ref.actor."
ACTOR_MODEL = "actor_rollout_ref.model."
_R = "actor_rollout_ref.rollout."
_MEGATRON = _A + "megatron."

# Sub-trees that are another program's own, or that decide no GPU's memory.
_FREE = (
    "data.", "reward_model.", "reward_manager.", "reward.", "custom_reward_function.",
    "global_profiler.", "transfer_queue.", "ray_kwargs.", "ray_init.", "async_training.",
    "rollout.", "hydra", "checkpoint.", "algorithm.", "trainer.", "actor_rollout_ref.profiler.",
    ACTOR_MODEL + "override_config.", _R + "engine_kwargs.", _R + "multi_turn.", _R + "agent.",
    _R + "val_kwargs.", _R + "trace.", _R + "checkpoint_engine.", _R + "prometheus.", _R + "mtp.",
    _R + "profiler.", _A + "profiler.", "actor_rollout_ref.ref.", "critic.",
    _MEGATRON + "override_", _A + "optim.override_optimizer_config.", _A + "policy_loss.",
    _A + "veomni.", ACTOR_MODEL + "lora.", ACTOR_MODEL + "mtp.", ACTOR_MODEL + "override_",
)  # fmt: skip

VERL_PPO = Table(
    name="verl PPO config",
    rows=(
        Row(ACTOR_MODEL + "path", "model.id", TEXT),
        Row(ACTOR_MODEL + "trust_remote_code", "model.trust_remote_code", BOOLEAN),
        Row(ACTOR_MODEL + "override_config.attn_implementation", "model.attn_impl", _ATTENTION),
        Row(ACTOR_MODEL + "enable_gradient_checkpointing", "checkpointing.mode", switch(on="full", off="none"), default="full", source=PPO_SOURCE),
        Row(ACTOR_MODEL + "enable_activation_offload", "offload.activations", switch(on="cpu", off="none"), default="none", source=PPO_SOURCE),
        Row(ACTOR_MODEL + "use_remove_padding", "verl.unpads", BOOLEAN, default=True, source=PPO_SOURCE),
        Row(ACTOR_MODEL + "use_fused_kernels", "verl.fused", BOOLEAN, default=False, source=PPO_SOURCE),
        Row(ACTOR_MODEL + "use_liger", "verl.liger", BOOLEAN, default=False, source=PPO_SOURCE),
        Row(ACTOR_MODEL + "lora_rank", "trainable.r", _RANK, aliases=(ACTOR_MODEL + "lora.rank",)),
        Row(ACTOR_MODEL + "lora_alpha", "trainable.alpha", NUMBER, aliases=(ACTOR_MODEL + "lora.alpha",)),
        Row(ACTOR_MODEL + "target_modules", "trainable.targets", TARGETS, aliases=(ACTOR_MODEL + "lora.target_modules",)),
        Row(ACTOR_MODEL + "lora_adapter_path", "verl.adapter", TEXT),
        Row(_A + "strategy", "verl.strategy", _STRATEGY),
        Row(_A + "ppo_mini_batch_size", "verl.mini", POSITIVE, default=256, source=PPO_SOURCE),
        Row(_A + "ppo_micro_batch_size_per_gpu", "batch.micro", POSITIVE),
        Row(_A + "ppo_micro_batch_size", "verl.micro_of_all", POSITIVE),
        Row(_A + "use_dynamic_bsz", "verl.dynamic", BOOLEAN, default=False, source=PPO_SOURCE),
        Row(_A + "ppo_max_token_len_per_gpu", "verl.max_tokens", POSITIVE, default=16_384, source=PPO_SOURCE),
        Row(_A + "ulysses_sequence_parallel_size", "parallel.ulysses", POSITIVE, default=1, source=PPO_SOURCE),
        Row(_A + "use_kl_loss", "verl.kl_loss", BOOLEAN, default=False, source=PPO_SOURCE),
        Row(_A + "freeze_vision_tower", "model.vision.freeze_tower", BOOLEAN),
        Row(_A + "optim.optimizer", "optimizer.name", TEXT),
        Row(_A + "optim.optimizer_impl", "verl.optimizer_impl", TEXT),
        Row(_A + "optim.override_optimizer_config.optimizer_cpu_offload", "verl.optimizer_cpu", BOOLEAN),
        Row(_A + "optim.override_optimizer_config.optimizer_offload_fraction", "offload.optimizer_ratio", NUMBER),
        Row(_A + "fsdp_config.param_offload", "verl.param_offload", BOOLEAN, aliases=(_MEGATRON + "param_offload",)),
        Row(_A + "fsdp_config.optimizer_offload", "verl.optimizer_offload", BOOLEAN, aliases=(_MEGATRON + "optimizer_offload",)),
        Row(_A + "fsdp_config.offload_policy", "parallel.fsdp.cpu_offload", BOOLEAN),
        Row(_A + "fsdp_config.fsdp_size", "parallel.dp_shard", REST),
        Row(_A + "fsdp_config.reshard_after_forward", "parallel.fsdp.reshard_after_forward", BOOLEAN),
        Row(_A + "fsdp_config.forward_prefetch", "parallel.fsdp.forward_prefetch", BOOLEAN),
        Row(_A + "fsdp_config.use_orig_params", "parallel.fsdp.use_orig_params", BOOLEAN),
        Row(_A + "fsdp_config.model_dtype", "load.dtype", DTYPE),
        Row(_A + "fsdp_config.dtype", "verl.compute", DTYPE, aliases=(_A + "fsdp_config.mixed_precision.param_dtype",)),
        Row(_A + "checkpoint.save_contents", "verl.contents", _CONTENTS, aliases=(_A + "checkpoint.contents",)),
        Row(_MEGATRON + "tensor_model_parallel_size", "parallel.tp", POSITIVE),
        Row(_MEGATRON + "pipeline_model_parallel_size", "parallel.pp", POSITIVE),
        Row(_MEGATRON + "virtual_pipeline_model_parallel_size", "parallel.vpp", POSITIVE),
        Row(_MEGATRON + "context_parallel_size", "parallel.cp", POSITIVE),
        Row(_MEGATRON + "expert_model_parallel_size", "parallel.ep", POSITIVE),
        Row(_MEGATRON + "expert_tensor_parallel_size", "parallel.etp", POSITIVE),
        Row(_MEGATRON + "use_distributed_optimizer", "parallel.megatron.dist_optimizer", BOOLEAN),
        Row(_MEGATRON + "override_transformer_config.recompute_granularity", "verl.recompute", TEXT),
        Row(_MEGATRON + "override_transformer_config.recompute_num_layers", "verl.recompute_layers", POSITIVE),
        Row(_R + "name", "objective.rollout.engine", _ROLLOUT),
        Row("actor_rollout_ref.hybrid_engine", "verl.hybrid", BOOLEAN, default=True, source=PPO_SOURCE),
        Row(_R + "gpu_memory_utilization", "objective.rollout.gpu_mem_util", NUMBER, default=0.5, source=PPO_SOURCE),
        Row(_R + "tensor_model_parallel_size", "objective.rollout.tp", POSITIVE, default=2, source=PPO_SOURCE),
        Row(_R + "free_cache_engine", "objective.rollout.sleep", BOOLEAN, default=True, source=PPO_SOURCE),
        Row(_R + "n", "objective.rollout.n", POSITIVE, default=1, source=PPO_SOURCE),
        Row(_R + "log_prob_micro_batch_size_per_gpu", "objective.rollout.rollout_micro_batch", POSITIVE),
        Row("critic.model.path", "verl.critic", TEXT),
        Row("critic.enable", "verl.critic_enabled", BOOLEAN),
        Row("critic.model.fsdp_config.param_offload", "verl.critic_params_off", BOOLEAN, aliases=("critic.megatron.param_offload",)),
        Row("critic.model.fsdp_config.optimizer_offload", "verl.critic_optimizer_off", BOOLEAN, aliases=("critic.megatron.optimizer_offload",)),
        Row("actor_rollout_ref.ref.megatron.param_offload", "verl.ref_offload", BOOLEAN),
        Row("algorithm.adv_estimator", "verl.estimator", TEXT, default="gae", source=PPO_SOURCE),
        Row("algorithm.use_kl_in_reward", "verl.kl_in_reward", BOOLEAN, default=False, source=PPO_SOURCE),
        Row("data.max_prompt_length", "objective.rollout.max_prompt_tokens", POSITIVE, default=512, source=PPO_SOURCE),
        Row("data.max_response_length", "objective.rollout.max_completion_tokens", POSITIVE, default=512, source=PPO_SOURCE),
        # experimental/fully_async_policy insists on 0.
        Row("data.train_batch_size", "verl.train_batch", COUNT, default=1024, source=PPO_SOURCE),
        Row("data.dataloader_num_workers", "data.workers", COUNT, default=8, source=PPO_SOURCE),
        Row("trainer.n_gpus_per_node", "parallel.gpus_per_node", POSITIVE, default=8, source=PPO_SOURCE),
        Row("trainer.nnodes", "parallel.nodes", POSITIVE, default=1, source=PPO_SOURCE),
        Row("trainer.save_freq", "verl.save_freq", _FREQUENCY, default=-1, source=PPO_SOURCE),
        Row("trainer.test_freq", "verl.test_freq", _FREQUENCY, default=-1, source=PPO_SOURCE),
        Row("trainer.val_before_train", "eval.on_start", BOOLEAN, default=True, source=PPO_SOURCE),
        Row("trainer.max_actor_ckpt_to_keep", "save.keep", POSITIVE),
        Row("trainer.default_local_dir", "save.dir", TEXT),
        Row("trainer.total_training_steps", "total_steps", POSITIVE),
    ),
    known=known_keys("verl"),
    known_prefixes=_FREE,
    loader="omegaconf",
    section="training",
)  # fmt: skip

_SFT_ROWS = (
    Row("data.train_batch_size", "verl.train_batch", POSITIVE, default=256, source=SFT_SOURCE),
    Row("data.micro_batch_size_per_gpu", "batch.micro", POSITIVE, aliases=("data.micro_batch_size",), default=4, source=SFT_SOURCE),
    Row("data.max_length", "seq.max_len", POSITIVE, default=1024, source=SFT_SOURCE),
    Row("model.trust_remote_code", "model.trust_remote_code", BOOLEAN),
    Row("model.enable_gradient_checkpointing", "checkpointing.mode", switch(on="full", off="none"), default="full", source=SFT_SOURCE),
    Row("model.use_liger", "verl.liger", BOOLEAN, default=False, source=SFT_SOURCE),
    Row("model.lora_rank", "trainable.r", _RANK),
    Row("model.lora_alpha", "trainable.alpha", NUMBER),
    Row("model.target_modules", "trainable.targets", TARGETS),
    Row("model.lora_adapter_path", "verl.adapter", TEXT),
    Row("optim.optimizer", "optimizer.name", TEXT),
    Row("optim.optimizer_impl", "verl.optimizer_impl", TEXT),
    Row("trainer.save_freq", "verl.save_freq", _FREQUENCY, default=-1, source=SFT_SOURCE),
    Row("trainer.test_freq", "verl.test_freq", _FREQUENCY, default=-1, source=SFT_SOURCE),
    Row("trainer.max_ckpt_to_keep", "save.keep", POSITIVE),
    Row("trainer.default_local_dir", "save.dir", TEXT),
    Row("trainer.total_training_steps", "total_steps", POSITIVE),
)  # fmt: skip

_SFT_FREE = ("data.", "model.", "optim", "trainer.", "engine", "checkpoint.", "profiler", "hydra")

VERL_SFT = Table(
    name="verl SFT config",
    rows=(
        Row("model.partial_pretrain", "model.id", TEXT),
        *_SFT_ROWS,
        Row("model.strategy", "verl.strategy", _STRATEGY, default="fsdp2", source=SFT_SOURCE),
        Row("model.fsdp_config.model_dtype", "load.dtype", DTYPE),
        Row("model.fsdp_config.cpu_offload", "verl.cpu_offload", BOOLEAN),
        Row("model.fsdp_config.offload_params", "verl.param_offload", BOOLEAN),
        Row("ulysses_sequence_parallel_size", "parallel.ulysses", POSITIVE, default=1, source=SFT_SOURCE),
        Row("use_remove_padding", "verl.unpads", BOOLEAN, default=False, source=SFT_SOURCE),
        Row("trainer.checkpoint.save_contents", "verl.contents", _CONTENTS),
    ),
    known_prefixes=_SFT_FREE,
    loader="omegaconf",
    section="training",
)  # fmt: skip

VERL_SFT_ENGINE = Table(
    name="verl SFT engine config",
    rows=(
        Row("model.path", "model.id", TEXT),
        *_SFT_ROWS,
        Row("data.use_dynamic_bsz", "verl.dynamic", BOOLEAN, default=True, source=ENGINE_SOURCE),
        Row("data.max_token_len_per_gpu", "verl.max_tokens", POSITIVE, default=8192, source=ENGINE_SOURCE),
        Row("model.override_config.attn_implementation", "model.attn_impl", _ATTENTION),
        Row("model.enable_activation_offload", "offload.activations", switch(on="cpu", off="none"), default="none", source=ENGINE_SOURCE),
        Row("model.use_remove_padding", "verl.unpads", BOOLEAN, default=True, source=ENGINE_SOURCE),
        Row("model.use_fused_kernels", "verl.fused", BOOLEAN, default=False, source=ENGINE_SOURCE),
        Row("engine", "verl.engine", ANYTHING),
        Row("engine.strategy", "verl.strategy", _STRATEGY),
        Row("engine.model_dtype", "load.dtype", DTYPE),
        Row("engine.dtype", "verl.compute", DTYPE),
        Row("engine.param_offload", "verl.param_offload", BOOLEAN),
        Row("engine.optimizer_offload", "verl.optimizer_offload", BOOLEAN),
        Row("engine.offload_policy", "parallel.fsdp.cpu_offload", BOOLEAN),
        Row("engine.fsdp_size", "parallel.dp_shard", REST),
        Row("engine.reshard_after_forward", "parallel.fsdp.reshard_after_forward", BOOLEAN),
        Row("engine.ulysses_sequence_parallel_size", "parallel.ulysses", POSITIVE),
        Row("engine.tensor_model_parallel_size", "parallel.tp", POSITIVE),
        Row("engine.pipeline_model_parallel_size", "parallel.pp", POSITIVE),
        Row("engine.virtual_pipeline_model_parallel_size", "parallel.vpp", POSITIVE),
        Row("engine.context_parallel_size", "parallel.cp", POSITIVE),
        Row("engine.expert_model_parallel_size", "parallel.ep", POSITIVE),
        Row("engine.use_distributed_optimizer", "parallel.megatron.dist_optimizer", BOOLEAN),
        Row("engine.override_transformer_config.recompute_granularity", "verl.recompute", TEXT),
        Row("checkpoint.save_contents", "verl.contents", _CONTENTS, aliases=("trainer.checkpoint.save_contents",)),
    ),
    known_prefixes=_SFT_FREE,
    loader="omegaconf",
    section="training",
)  # fmt: skip

# sft_trainer_ray counts its ranks as PPO does; under torchrun the keys are not read.
RAY = Table(
    name="verl ray trainer",
    rows=(
        Row("trainer.n_gpus_per_node", "parallel.gpus_per_node", POSITIVE, default=1, source=ENGINE_SOURCE),
        Row("trainer.nnodes", "parallel.nodes", POSITIVE, default=1, source=ENGINE_SOURCE),
    ),
    known_prefixes=("",),
    loader="omegaconf",
    section="launch words",
)  # fmt: skip

# The words of a launch line that are no ``key=value``.
LAUNCHED = Table(
    name="verl trainer",
    rows=(
        Row("module", "verl.module", TEXT),
        Row("config_name", "verl.config_name", TEXT),
        Row("model_engine", "verl.model_engine", TEXT),
    ),
    known_prefixes=("",),
    section="launch words",
)
