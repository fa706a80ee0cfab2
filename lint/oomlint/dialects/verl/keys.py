"""Keys of verl's PPO and SFT trainers, and of Ray around them.

Read from verl 0.8.0.dev (b178a3cd, 2026-01-29); ``VL`` below is its ``verl`` package.
"""

from __future__ import annotations

import re
from typing import Any

from oomlint.dialects.key_releases import key_spans
from oomlint.dialects.kinds import (
    ANYTHING,
    BOOLEAN,
    COUNT,
    DTYPE,
    LIMIT,
    LIST,
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
from oomlint.dialects.verl.releases import CHECKPOINTS, SFT_BY_FSDP2, SFT_CHECKPOINTS
from oomlint.plan.fields import Private, f

SOURCE = "verl b178a3cd"
PPO_SOURCE = f"{SOURCE} trainer/config/_generated_ppo_trainer.yaml"
SFT_SOURCE = f"{SOURCE} trainer/config/sft_trainer.yaml"
ENGINE_SOURCE = f"{SOURCE} trainer/config/sft_trainer_engine.yaml"


class own(Private, prefix="verl"):  # noqa: N801  a namespace of fields, read like ``f``
    """Keys of verl whose meaning takes more than one of them.

    ``mini``: prompts of one update; ``micro_of_all``: a micro batch of all ranks; ``max_tokens``: of
    one rank and micro batch where ``dynamic`` fills these by tokens. ``*_off``: the critic's states
    are on the CPU while it does not train. ``module``, ``config_name``, ``model_engine``: words of
    the launch line. ``*_sleeps`` and ``copy_*`` are of a project's own copy of verl: whether its
    engine sleeps whatever ``free_cache_engine`` says, whether its FSDP actor takes an entropy beside
    log-probabilities alone, what its SFT trainer makes of
    ``data.micro_batch_size`` (``"divided"`` by the ranks, ``"whole"`` or ``"unread"``), and the key
    that it takes the model's dtype from or else the dtype; ``copy_checks`` whether its trainer
    refuses micro batches that nobody sets. ``scored_*`` and ``scores_dynamic`` are of
    the pass that takes log probabilities, ``rewards`` and ``reward_*`` of a reward model;
    ``rollout_gpus`` and ``rollout_nodes`` of rollouts that have GPUs of their own.
    """

    config_name: str
    model_engine: str
    engine: Any
    strategy: str
    mini: int
    micro_of_all: int
    train_batch: int
    dynamic: bool
    max_tokens: int
    unpads: bool
    megatron_unpads: bool
    main_grads: str
    exp_avg: str
    exp_avg_sq: str
    fused: bool
    liger: bool
    adapter: str
    optimizer_impl: str
    optimizer_cpu: bool
    param_offload: bool
    optimizer_offload: bool
    cpu_offload: bool
    compute: str
    recompute: str
    recompute_layers: int
    mtp: bool
    hybrid: bool
    rollout_gpus: int
    rollout_nodes: int
    estimator: str
    kl_loss: bool
    kl_in_reward: bool
    critic: str
    critic_enabled: bool
    critic_params_off: bool
    critic_optimizer_off: bool
    ref_offload: bool
    contents: tuple[str, ...]
    device: str
    save_freq: int
    test_freq: int
    torch_dtype: str
    fsdp_vllm_sleeps: bool
    fsdp_sglang_sleeps: bool
    megatron_vllm_sleeps: bool
    megatron_sglang_sleeps: bool
    entropy: float
    entropy_for_logs: bool
    compiles: bool
    chunks_entropy: bool
    defers_sync: bool
    agents: int
    scored_of_all: int
    scored_tokens: int
    scores_dynamic: bool
    rewards: bool
    reward_path: str
    reward_offload: bool
    copy_scores_entropy: bool
    copy_micro: str
    copy_dtype_key: str
    copy_checks: bool
    copy_dtype: str


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
_CHECKPOINTING = switch(on="full", off="none")
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
    # Since 0.9: quantization that is only simulated, phases that are skipped, prefill and decoding apart, routes that are
    # replayed, and teachers on cards of their own (trainer/config/_generated_ppo_trainer.yaml of 0.9.1).
    _A + "qat.", _A + "fsdp_config.qat.", _MEGATRON + "qat.", _MEGATRON + "router_replay.", _R + "disaggregation.",
    _A + "fsdp_config.turbo_config.", _R + "qat", "skip.", "distillation.", "sandbox_fusion.",
)  # fmt: skip

VERL_PPO = Table(
    name="verl PPO config",
    rows=(
        Row(ACTOR_MODEL + "path", f.model.id, TEXT),
        Row(ACTOR_MODEL + "trust_remote_code", f.model.trust_remote_code, BOOLEAN),
        Row(ACTOR_MODEL + "override_config.attn_implementation", f.model.attn_impl, _ATTENTION),
        Row(ACTOR_MODEL + "enable_gradient_checkpointing", f.checkpointing.mode, _CHECKPOINTING, default="full", source=PPO_SOURCE, changes=(CHECKPOINTS,)),
        Row(ACTOR_MODEL + "enable_activation_offload", f.offload.activations, switch(on="cpu", off="none"), default="none", source=PPO_SOURCE),
        Row(ACTOR_MODEL + "use_remove_padding", own.unpads, BOOLEAN, source=PPO_SOURCE),
        Row(ACTOR_MODEL + "use_fused_kernels", own.fused, BOOLEAN, default=False, source=PPO_SOURCE),
        Row(ACTOR_MODEL + "use_liger", own.liger, BOOLEAN, default=False, source=PPO_SOURCE),
        Row(ACTOR_MODEL + "lora_rank", f.trainable.r, _RANK, aliases=(ACTOR_MODEL + "lora.rank",)),
        Row(ACTOR_MODEL + "lora_alpha", f.trainable.alpha, NUMBER, aliases=(ACTOR_MODEL + "lora.alpha",)),
        Row(ACTOR_MODEL + "target_modules", f.trainable.targets, TARGETS, aliases=(ACTOR_MODEL + "lora.target_modules",)),
        Row(ACTOR_MODEL + "lora_adapter_path", own.adapter, TEXT),
        Row(_A + "strategy", own.strategy, _STRATEGY),
        Row(_A + "ppo_mini_batch_size", own.mini, POSITIVE, default=256, source=PPO_SOURCE),
        Row(_A + "ppo_micro_batch_size_per_gpu", f.batch.micro, POSITIVE),
        Row(_A + "ppo_micro_batch_size", own.micro_of_all, POSITIVE),
        Row(_A + "use_dynamic_bsz", own.dynamic, BOOLEAN, default=False, source=PPO_SOURCE),
        Row(_A + "ppo_max_token_len_per_gpu", own.max_tokens, POSITIVE, default=16_384, source=PPO_SOURCE),
        Row(_A + "ulysses_sequence_parallel_size", f.parallel.ulysses, POSITIVE, default=1, source=PPO_SOURCE),
        Row(_A + "use_kl_loss", own.kl_loss, BOOLEAN, default=False, source=PPO_SOURCE),
        Row(_A + "freeze_vision_tower", f.model.vision.freeze_tower, BOOLEAN),
        Row(_A + "optim.optimizer", f.optimizer.name, TEXT),
        Row(_A + "optim.optimizer_impl", own.optimizer_impl, TEXT),
        # Since 0.9 beside the override; both go to Megatron's OptimizerConfig (utils/megatron/optimizer.py:188 of 0.9.1).
        Row(_A + "optim.use_precision_aware_optimizer", f.parallel.megatron.precision_aware_optim, BOOLEAN, aliases=(_A + "optim.override_optimizer_config.use_precision_aware_optimizer",)),
        *(
            Row(f"{_A}optim.{key}", field, DTYPE, default="fp32", aliases=(f"{_A}optim.override_optimizer_config.{key}",), source="verl 0.9.1 trainer/config/optim/megatron.yaml:54-64")
            for key, field in (
                ("main_grads_dtype", own.main_grads), ("exp_avg_dtype", own.exp_avg), ("exp_avg_sq_dtype", own.exp_avg_sq),
            )
        ),
        Row(_A + "optim.override_optimizer_config.optimizer_cpu_offload", own.optimizer_cpu, BOOLEAN),
        Row(_A + "optim.override_optimizer_config.optimizer_offload_fraction", f.offload.optimizer_ratio, NUMBER),
        Row(_A + "fsdp_config.param_offload", own.param_offload, BOOLEAN, aliases=(_MEGATRON + "param_offload",)),
        Row(_A + "fsdp_config.optimizer_offload", own.optimizer_offload, BOOLEAN, aliases=(_MEGATRON + "optimizer_offload",)),
        Row(_A + "fsdp_config.offload_policy", f.parallel.fsdp.cpu_offload, BOOLEAN),
        Row(_A + "fsdp_config.fsdp_size", f.parallel.dp_shard, REST),
        Row(_A + "fsdp_config.reshard_after_forward", f.parallel.fsdp.reshard_after_forward, BOOLEAN),
        Row(_A + "fsdp_config.forward_prefetch", f.parallel.fsdp.forward_prefetch, BOOLEAN),
        # Since 0.9.1 (verl/workers/engine/fsdp/transformer_impl.py _gradient_sync_context).
        Row(_A + "fsdp_config.use_no_sync_for_gradient_accumulation", own.defers_sync, BOOLEAN, default=False, source=PPO_SOURCE),
        Row(_A + "fsdp_config.use_orig_params", f.parallel.fsdp.use_orig_params, BOOLEAN),
        Row(_A + "fsdp_config.model_dtype", f.load.dtype, DTYPE),
        Row(_A + "fsdp_config.dtype", own.compute, DTYPE, aliases=(_A + "fsdp_config.mixed_precision.param_dtype",)),
        Row(_A + "checkpoint.save_contents", own.contents, _CONTENTS, aliases=(_A + "checkpoint.contents",)),
        Row(_MEGATRON + "tensor_model_parallel_size", f.parallel.tp, POSITIVE),
        Row(_MEGATRON + "pipeline_model_parallel_size", f.parallel.pp, POSITIVE),
        Row(_MEGATRON + "virtual_pipeline_model_parallel_size", f.parallel.vpp, POSITIVE),
        Row(_MEGATRON + "context_parallel_size", f.parallel.cp, POSITIVE),
        Row(_MEGATRON + "expert_model_parallel_size", f.parallel.ep, POSITIVE),
        Row(_MEGATRON + "expert_tensor_parallel_size", f.parallel.etp, POSITIVE),
        Row(_MEGATRON + "use_distributed_optimizer", f.parallel.megatron.dist_optimizer, BOOLEAN),
        # Releases before 0.6 have no such key: they always do.
        Row(_MEGATRON + "use_remove_padding", own.megatron_unpads, BOOLEAN, default=True, source=f"{SOURCE} trainer/config/engine/megatron.yaml:84; 0.2 to 0.5 models/registry.py *RmPadPP, models/mcore/model_forward.py pack_seqs=True"),
        Row(_MEGATRON + "override_transformer_config.recompute_granularity", own.recompute, TEXT),
        Row(_MEGATRON + "override_transformer_config.recompute_modules", f.checkpointing.recompute_modules, LIST),
        Row(_MEGATRON + "override_transformer_config.recompute_num_layers", own.recompute_layers, POSITIVE),
        Row(ACTOR_MODEL + "mtp.enable", own.mtp, BOOLEAN, default=False, source=f"{SOURCE} trainer/config/model/hf_model.yaml:79"),
        Row(_R + "name", f.objective.rollout.engine, _ROLLOUT),
        Row("actor_rollout_ref.hybrid_engine", own.hybrid, BOOLEAN, default=True, source=PPO_SOURCE),
        Row(_R + "gpu_memory_utilization", f.objective.rollout.gpu_mem_util, NUMBER, default=0.5, source=PPO_SOURCE),
        Row(_R + "tensor_model_parallel_size", f.objective.rollout.tp, POSITIVE, default=2, source=PPO_SOURCE),
        Row(_R + "free_cache_engine", f.objective.rollout.sleep, BOOLEAN, default=True, source=PPO_SOURCE),
        Row(_R + "n", f.objective.rollout.n, POSITIVE, default=1, source=PPO_SOURCE),
        # Search-R1 and what was made of it (verl/trainer/ppo/ray_trainer.py fit): prompts are repeated so often.
        Row(_R + "n_agent", own.agents, POSITIVE),
        Row(_R + "log_prob_micro_batch_size_per_gpu", f.objective.rollout.rollout_micro_batch, POSITIVE),
        Row(_R + "log_prob_micro_batch_size", own.scored_of_all, POSITIVE),
        Row(_R + "log_prob_use_dynamic_bsz", own.scores_dynamic, BOOLEAN),
        Row(_R + "log_prob_max_token_len_per_gpu", own.scored_tokens, POSITIVE),
        Row(_A + "entropy_coeff", own.entropy, NUMBER, default=0.0, source=PPO_SOURCE),
        Row(_A + "calculate_entropy", own.entropy_for_logs, BOOLEAN, default=False, source=PPO_SOURCE),
        Row(_A + "use_torch_compile", own.compiles, BOOLEAN, default=True, source=PPO_SOURCE),
        Row(_A + "entropy_from_logits_with_chunking", own.chunks_entropy, BOOLEAN, default=False, source=PPO_SOURCE),
        Row("reward_model.enable", own.rewards, BOOLEAN, default=False, source=PPO_SOURCE),
        Row("reward_model.model.path", own.reward_path, TEXT),
        Row("reward_model.megatron.param_offload", own.reward_offload, BOOLEAN, default=False, source=PPO_SOURCE),
        Row("critic.model.path", own.critic, TEXT),
        Row("critic.enable", own.critic_enabled, BOOLEAN),
        Row("critic.model.fsdp_config.param_offload", own.critic_params_off, BOOLEAN, aliases=("critic.megatron.param_offload",)),
        Row("critic.model.fsdp_config.optimizer_offload", own.critic_optimizer_off, BOOLEAN, aliases=("critic.megatron.optimizer_offload",)),
        Row("actor_rollout_ref.ref.megatron.param_offload", own.ref_offload, BOOLEAN),
        Row("algorithm.adv_estimator", own.estimator, TEXT, default="gae", source=PPO_SOURCE),
        Row("algorithm.use_kl_in_reward", own.kl_in_reward, BOOLEAN, default=False, source=PPO_SOURCE),
        Row("data.max_prompt_length", f.objective.rollout.max_prompt_tokens, POSITIVE, default=512, source=PPO_SOURCE),
        Row("data.max_response_length", f.objective.rollout.max_completion_tokens, POSITIVE, default=512, source=PPO_SOURCE),
        # experimental/fully_async_policy insists on 0.
        Row("data.train_batch_size", own.train_batch, COUNT, default=1024, source=PPO_SOURCE),
        Row("data.dataloader_num_workers", f.data.workers, COUNT, default=8, source=PPO_SOURCE),
        Row("trainer.n_gpus_per_node", f.parallel.gpus_per_node, POSITIVE, default=8, source=PPO_SOURCE),
        Row("trainer.nnodes", f.parallel.nodes, POSITIVE, default=1, source=PPO_SOURCE),
        Row("rollout.n_gpus_per_node", own.rollout_gpus, POSITIVE),
        Row("rollout.nnodes", own.rollout_nodes, POSITIVE),
        Row("trainer.device", own.device, TEXT),
        Row("trainer.save_freq", own.save_freq, _FREQUENCY, default=-1, source=PPO_SOURCE),
        Row("trainer.test_freq", own.test_freq, _FREQUENCY, default=-1, source=PPO_SOURCE),
        Row("trainer.val_before_train", f.eval.on_start, BOOLEAN, default=True, source=PPO_SOURCE),
        # verl 0.7.0 utils/checkpoint/fsdp_checkpoint_manager.py:205: 0 removes none, as nothing does.
        Row("trainer.max_actor_ckpt_to_keep", f.save.keep, LIMIT),
        Row("trainer.default_local_dir", f.save.dir, TEXT),
        Row("trainer.total_training_steps", f.total_steps, POSITIVE),
    ),
    known=known_keys("verl"),
    known_prefixes=_FREE,
    loader="omegaconf",
    section="training",
    spans=key_spans("verl", "verl_ppo", only_told=True),
)  # fmt: skip

_SFT_ROWS = (
    Row("data.train_batch_size", own.train_batch, POSITIVE, default=256, source=SFT_SOURCE),
    Row("data.micro_batch_size_per_gpu", f.batch.micro, POSITIVE),
    Row("data.micro_batch_size", own.micro_of_all, POSITIVE),
    Row("data.max_length", f.seq.max_len, POSITIVE, default=1024, source=SFT_SOURCE),
    Row("model.trust_remote_code", f.model.trust_remote_code, BOOLEAN),
    Row("model.use_liger", own.liger, BOOLEAN, default=False, source=SFT_SOURCE),
    Row("model.lora_rank", f.trainable.r, _RANK),
    Row("model.lora_alpha", f.trainable.alpha, NUMBER),
    Row("model.target_modules", f.trainable.targets, TARGETS),
    Row("model.lora_adapter_path", own.adapter, TEXT),
    Row("optim.optimizer", f.optimizer.name, TEXT),
    Row("optim.optimizer_impl", own.optimizer_impl, TEXT),
    Row("trainer.save_freq", own.save_freq, _FREQUENCY, default=-1, source=SFT_SOURCE),
    Row("trainer.test_freq", own.test_freq, _FREQUENCY, default=-1, source=SFT_SOURCE),
    Row("trainer.max_ckpt_to_keep", f.save.keep, LIMIT),
    Row("trainer.default_local_dir", f.save.dir, TEXT),
    Row("trainer.total_training_steps", f.total_steps, POSITIVE),
)  # fmt: skip

_SFT_FREE = ("data.", "model.", "optim", "trainer.", "engine", "checkpoint.", "profiler", "hydra")

VERL_SFT = Table(
    name="verl SFT config",
    rows=(
        Row("model.partial_pretrain", f.model.id, TEXT),
        *_SFT_ROWS,
        Row("model.enable_gradient_checkpointing", f.checkpointing.mode, _CHECKPOINTING, default="full", source=SFT_SOURCE, changes=(SFT_CHECKPOINTS,)),
        Row("model.strategy", own.strategy, _STRATEGY, default="fsdp2", source=SFT_SOURCE, changes=(SFT_BY_FSDP2,)),
        Row("model.fsdp_config.model_dtype", f.load.dtype, DTYPE),
        # A key of copies only.
        Row("model.torch_dtype", own.torch_dtype, DTYPE),
        Row("model.fsdp_config.cpu_offload", own.cpu_offload, BOOLEAN),
        Row("model.fsdp_config.offload_params", own.param_offload, BOOLEAN),
        Row("ulysses_sequence_parallel_size", f.parallel.ulysses, POSITIVE, default=1, source=SFT_SOURCE),
        Row("use_remove_padding", own.unpads, BOOLEAN, default=False, source=SFT_SOURCE),
        Row("trainer.checkpoint.save_contents", own.contents, _CONTENTS),
    ),
    known_prefixes=_SFT_FREE,
    loader="omegaconf",
    section="training",
    spans=key_spans("verl", "verl_sft", only_told=True),
)  # fmt: skip

VERL_SFT_ENGINE = Table(
    name="verl SFT engine config",
    rows=(
        Row("model.path", f.model.id, TEXT),
        *_SFT_ROWS,
        Row("model.enable_gradient_checkpointing", f.checkpointing.mode, _CHECKPOINTING, default="full", source=ENGINE_SOURCE),
        Row("data.use_dynamic_bsz", own.dynamic, BOOLEAN, default=True, source=ENGINE_SOURCE),
        Row("data.max_token_len_per_gpu", own.max_tokens, POSITIVE, default=8192, source=ENGINE_SOURCE),
        Row("model.override_config.attn_implementation", f.model.attn_impl, _ATTENTION),
        Row("model.enable_activation_offload", f.offload.activations, switch(on="cpu", off="none"), default="none", source=ENGINE_SOURCE),
        Row("model.use_remove_padding", own.unpads, BOOLEAN, default=True, source=ENGINE_SOURCE),
        Row("model.use_fused_kernels", own.fused, BOOLEAN, default=False, source=ENGINE_SOURCE),
        Row("engine", own.engine, ANYTHING),
        Row("engine.strategy", own.strategy, _STRATEGY),
        Row("engine.model_dtype", f.load.dtype, DTYPE),
        Row("engine.dtype", own.compute, DTYPE),
        Row("engine.param_offload", own.param_offload, BOOLEAN),
        Row("engine.optimizer_offload", own.optimizer_offload, BOOLEAN),
        Row("engine.offload_policy", f.parallel.fsdp.cpu_offload, BOOLEAN),
        Row("engine.fsdp_size", f.parallel.dp_shard, REST),
        Row("engine.reshard_after_forward", f.parallel.fsdp.reshard_after_forward, BOOLEAN),
        Row("engine.ulysses_sequence_parallel_size", f.parallel.ulysses, POSITIVE),
        Row("engine.tensor_model_parallel_size", f.parallel.tp, POSITIVE),
        Row("engine.pipeline_model_parallel_size", f.parallel.pp, POSITIVE),
        Row("engine.virtual_pipeline_model_parallel_size", f.parallel.vpp, POSITIVE),
        Row("engine.context_parallel_size", f.parallel.cp, POSITIVE),
        Row("engine.expert_model_parallel_size", f.parallel.ep, POSITIVE),
        Row("engine.use_distributed_optimizer", f.parallel.megatron.dist_optimizer, BOOLEAN),
        Row("engine.override_transformer_config.recompute_granularity", own.recompute, TEXT),
        Row("checkpoint.save_contents", own.contents, _CONTENTS, aliases=("trainer.checkpoint.save_contents",)),
    ),
    known_prefixes=_SFT_FREE,
    loader="omegaconf",
    section="training",
    spans=key_spans("verl", "verl_sft_engine", only_told=True),
)  # fmt: skip

# sft_trainer_ray counts its ranks as PPO does; under torchrun the keys are not read.
RAY = Table(
    name="verl ray trainer",
    rows=(
        Row("trainer.n_gpus_per_node", f.parallel.gpus_per_node, POSITIVE, default=1, source=ENGINE_SOURCE),
        Row("trainer.nnodes", f.parallel.nodes, POSITIVE, default=1, source=ENGINE_SOURCE),
    ),
    known_prefixes=("",),
    loader="omegaconf",
    section="launch words",
)  # fmt: skip

# What a copy of verl says of its keys, read from its code: see carried.py.
CARRIED = Table(
    name="copy of verl",
    rows=(
        Row("sleeps.fsdp_vllm", own.fsdp_vllm_sleeps, BOOLEAN),
        Row("sleeps.fsdp_sglang", own.fsdp_sglang_sleeps, BOOLEAN),
        Row("sleeps.megatron_vllm", own.megatron_vllm_sleeps, BOOLEAN),
        Row("sleeps.megatron_sglang", own.megatron_sglang_sleeps, BOOLEAN),
        Row("checks.micro_batches", own.copy_checks, BOOLEAN),
        Row("scores.entropy", own.copy_scores_entropy, BOOLEAN),
        Row("data.micro_batch_size", own.copy_micro, TEXT),
        Row("dtype_key", own.copy_dtype_key, TEXT),
        Row("dtype_otherwise", own.copy_dtype, DTYPE),
    ),
    known_prefixes=("",),
    section="launch words",
)  # fmt: skip

# The words of a launch line that are no ``key=value``.
LAUNCHED = Table(
    name="verl trainer",
    rows=(
        Row("config_name", own.config_name, TEXT),
        Row("model_engine", own.model_engine, TEXT),
    ),
    known_prefixes=("",),
    section="launch words",
)
