"""The keys of NeMo-RL's configs that decide memory.

Read from NVIDIA-NeMo/RL 7ea279ab (2026-08-22) and the tags v0.1.0 to v0.7.0; ``NR`` below is its
``nemo_rl`` package. Defaults live in the YAML that others begin with (examples/configs), hardly in code.
"""

from __future__ import annotations

from oomlint.dialects.kinds import (
    BOOLEAN,
    COUNT,
    DTYPE,
    INTEGER,
    LIST,
    NUMBER,
    POSITIVE,
    TEXT,
    choice,
)
from oomlint.dialects.table import Renaming, Row, Table, known_keys
from oomlint.plan.fields import Private, f

SOURCE = "NeMo-RL 7ea279ab"
CONFIG = f"{SOURCE} nemo_rl/models/policy/__init__.py"

_GRANULARITY = choice({"full": "full", "selective": "selective_op"})
_ENGINES = choice(
    {
        "vllm": "vllm", "sglang": "sglang", "trtllm": "vllm", "dynamo": "vllm", "megatron": "none",
        "hf": "hf",
    },
    otherwise=None,
)  # fmt: skip
_ATTENTION = choice(
    {
        "flash_attention_2": "flash2",
        "flash_attention_3": "flash3",
        "sdpa": "sdpa",
        "eager": "eager",
    },
    write={"flash2": "flash_attention_2", "flash3": "flash_attention_3"},
    otherwise=None,
)


class own(Private, prefix="nemo_rl"):  # noqa: N801  a namespace of fields, read like ``f``
    """``dt_*`` are of the DTensor backend, ``mc_*`` of Megatron's; ``v2`` is the newer of the two DTensor
    workers. ``packs`` joins samples in bins of ``pack_tokens``, ``dynamic`` fills batches up to
    ``dynamic_tokens``. ``gpus`` and ``nodes`` are the cluster's, ``engine_*`` what engines that
    share no cards take of it. ``prompts``: of one step, ``fused``: log-probabilities without logits."""

    megatron: bool
    v2: bool
    precision: str
    global_batch: int
    dt_tp: int
    dt_cp: int
    dt_ep: int
    dt_sp: bool
    dt_offload: bool
    dt_gc: bool
    dt_liger: bool
    dt_lora: bool
    dt_rank: int
    dt_alpha: float
    dt_dropout: float
    dt_targets: tuple[str, ...]
    dt_all_linear: bool
    replicas: int
    mc_tp: int
    mc_pp: int
    mc_cp: int
    mc_ep: int
    mc_etp: int
    mc_sp: bool
    mc_mtp: int
    mc_gc: bool
    mc_granularity: str
    mc_modules: tuple[str, ...]
    mc_activations: bool
    mc_optimizer: str
    mc_cpu_optimizer: bool
    mc_wide_grads: bool
    mc_fp8: bool
    mc_recipe: str
    mc_lora: bool
    mc_rank: int
    mc_alpha: float
    mc_dropout: float
    mc_targets: tuple[str, ...]
    fused: bool
    packs: bool
    pack_tokens: int
    dynamic: bool
    dynamic_tokens: int
    backend: str
    colocated: bool
    engine_gpus: int
    engine_nodes: int
    vllm_share: float
    vllm_tp: int
    sglang_share: float
    sglang_tp: int
    gpus: int
    nodes: int
    prompts: int
    estimator: str
    kl: float
    ppo: int
    dpo: int
    rm: int
    sft: int
    distillation: int
    grpo: int
    teacher: str
    critic: str
    val_every: int
    val_micro: int
    saves: bool
    save_every: int
    save_optimizer: bool
    keep: int
    dt_alloc: str
    mc_alloc: str


_P = "policy."
_D = "policy.dtensor_cfg."
_M = "policy.megatron_cfg."
_G = "policy.generation."
_ALGORITHMS = ("grpo", "ppo", "distillation", "sft", "dpo", "rm")


def _of_all(key: str, algorithms: tuple[str, ...] = _ALGORITHMS) -> tuple[str, ...]:
    return tuple(f"{name}.{key}" for name in algorithms)


def _first(keys: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    return keys[0], keys[1:]


_VAL, _VALS = _first(_of_all("val_period"))
_PROMPTS, _MORE_PROMPTS = _first(_of_all("num_prompts_per_step", ("grpo", "ppo", "distillation")))
_ANSWERS, _MORE_ANSWERS = _first(
    _of_all("num_generations_per_prompt", ("grpo", "ppo", "distillation"))
)
_VAL_MICRO, _VAL_MICROS = _first(_of_all("val_micro_batch_size", ("sft", "dpo", "rm")))

NEMO_RL = Table(
    name="NeMo-RL config",
    rows=(
        Row(f"{_P}model_name", f.model.id, TEXT),
        Row(f"{_P}precision", own.precision, DTYPE),
        Row(f"{_P}train_global_batch_size", own.global_batch, POSITIVE),
        Row(f"{_P}train_micro_batch_size", f.batch.micro, POSITIVE),
        Row(f"{_P}logprob_batch_size", f.objective.rollout.rollout_micro_batch, POSITIVE),
        Row(f"{_P}max_total_sequence_length", f.seq.max_len, POSITIVE),
        Row(f"{_P}max_grad_norm", f.optimizer.clip_norm, NUMBER),
        Row(f"{_P}optimizer.name", f.optimizer.name, TEXT),
        Row(f"{_P}optimizer.kwargs.fused", f.optimizer.fused, BOOLEAN, False, source="torch.optim.AdamW"),
        Row(f"{_P}optimizer.kwargs.foreach", f.optimizer.foreach, BOOLEAN),
        Row(f"{_P}sequence_packing.enabled", own.packs, BOOLEAN, False, source=CONFIG),
        Row(f"{_P}sequence_packing.train_mb_tokens", own.pack_tokens, POSITIVE),
        Row(f"{_P}dynamic_batching.enabled", own.dynamic, BOOLEAN, False, source=CONFIG),
        Row(f"{_P}dynamic_batching.train_mb_tokens", own.dynamic_tokens, POSITIVE),
        Row(f"{_D}_v2", own.v2, BOOLEAN, False, source=f"{SOURCE} nemo_rl/models/policy/lm_policy.py:163"),
        Row(f"{_D}tensor_parallel_size", own.dt_tp, POSITIVE),
        Row(f"{_D}context_parallel_size", own.dt_cp, POSITIVE),
        Row(f"{_D}expert_parallel_size", own.dt_ep, POSITIVE),
        Row(f"{_D}dp_replicate_size", own.replicas, POSITIVE),
        Row(f"{_D}sequence_parallel", own.dt_sp, BOOLEAN),
        Row(f"{_D}cpu_offload", own.dt_offload, BOOLEAN, False, source=CONFIG),
        Row(f"{_D}activation_checkpointing", own.dt_gc, BOOLEAN, False, source=CONFIG),
        Row(f"{_D}clear_cache_every_n_steps", f.env.empty_cache_steps, POSITIVE),
        Row(f"{_D}env_vars.PYTORCH_CUDA_ALLOC_CONF", own.dt_alloc, TEXT),
        Row(f"{_D}automodel_kwargs.use_liger_kernel", own.dt_liger, BOOLEAN),
        Row(f"{_D}automodel_kwargs.attn_implementation", f.model.attn_impl, _ATTENTION),
        Row(f"{_D}lora_cfg.enabled", own.dt_lora, BOOLEAN, False, source=CONFIG),
        Row(f"{_D}lora_cfg.dim", own.dt_rank, POSITIVE),
        Row(f"{_D}lora_cfg.alpha", own.dt_alpha, NUMBER),
        Row(f"{_D}lora_cfg.dropout", own.dt_dropout, NUMBER),
        Row(f"{_D}lora_cfg.target_modules", own.dt_targets, LIST),
        Row(f"{_D}lora_cfg.match_all_linear", own.dt_all_linear, BOOLEAN),
        Row(f"{_M}enabled", own.megatron, BOOLEAN, False, source=CONFIG),
        Row(f"{_M}tensor_model_parallel_size", own.mc_tp, POSITIVE),
        Row(f"{_M}pipeline_model_parallel_size", own.mc_pp, POSITIVE),
        Row(f"{_M}context_parallel_size", own.mc_cp, POSITIVE),
        Row(f"{_M}expert_model_parallel_size", own.mc_ep, POSITIVE),
        Row(f"{_M}expert_tensor_parallel_size", own.mc_etp, POSITIVE),
        Row(f"{_M}sequence_parallel", own.mc_sp, BOOLEAN),
        Row(f"{_M}mtp_num_layers", own.mc_mtp, COUNT),
        Row(f"{_M}activation_checkpointing", own.mc_gc, BOOLEAN, False, source=CONFIG),
        Row(f"{_M}recompute_granularity", own.mc_granularity, _GRANULARITY, "full", source=f"{SOURCE} nemo_rl/models/megatron/setup.py:1071"),
        Row(f"{_M}recompute_modules", own.mc_modules, LIST),
        Row(f"{_M}fine_grained_activation_offloading", own.mc_activations, BOOLEAN),
        Row(f"{_M}optimizer.optimizer", own.mc_optimizer, TEXT, "adam", source=CONFIG),
        Row(f"{_M}optimizer.use_distributed_optimizer", f.parallel.megatron.dist_optimizer, BOOLEAN),
        Row(f"{_M}optimizer.use_precision_aware_optimizer", f.parallel.megatron.precision_aware_optim, BOOLEAN),
        Row(f"{_M}optimizer.optimizer_cpu_offload", own.mc_cpu_optimizer, BOOLEAN, False, source=CONFIG),
        Row(f"{_M}optimizer.optimizer_offload_fraction", f.offload.optimizer_ratio, NUMBER),
        Row(f"{_M}distributed_data_parallel_config.grad_reduce_in_fp32", own.mc_wide_grads, BOOLEAN),
        Row(f"{_M}distributed_data_parallel_config.overlap_param_gather", f.parallel.megatron.overlap_param_gather, BOOLEAN),
        Row(f"{_M}fp8_cfg.enabled", own.mc_fp8, BOOLEAN, False, source=CONFIG),
        Row(f"{_M}fp8_cfg.fp8_recipe", own.mc_recipe, TEXT),
        Row(f"{_M}use_fused_linear_logprobs", own.fused, BOOLEAN, False, ("policy.megatron_cfg.use_linear_ce_fusion_loss",), CONFIG),
        Row(f"{_M}env_vars.PYTORCH_CUDA_ALLOC_CONF", own.mc_alloc, TEXT),
        Row(f"{_M}peft.enabled", own.mc_lora, BOOLEAN, False, source=CONFIG),
        Row(f"{_M}peft.dim", own.mc_rank, POSITIVE),
        Row(f"{_M}peft.alpha", own.mc_alpha, NUMBER),
        Row(f"{_M}peft.dropout", own.mc_dropout, NUMBER),
        Row(f"{_M}peft.target_modules", own.mc_targets, LIST),
        Row(f"{_G}backend", own.backend, _ENGINES),
        Row(f"{_G}max_new_tokens", f.objective.rollout.max_completion_tokens, POSITIVE),
        Row(f"{_G}vllm_cfg.gpu_memory_utilization", own.vllm_share, NUMBER, aliases=(f"{_G}trtllm_cfg.gpu_memory_utilization",)),
        Row(f"{_G}vllm_cfg.tensor_parallel_size", own.vllm_tp, POSITIVE, aliases=(f"{_G}trtllm_cfg.tensor_parallel_size",)),
        Row(f"{_G}vllm_cfg.max_model_len", f.objective.rollout.max_model_len, POSITIVE, aliases=(f"{_G}sglang_cfg.context_length",)),
        Row(f"{_G}sglang_cfg.mem_fraction_static", own.sglang_share, NUMBER),
        Row(f"{_G}sglang_cfg.tp_size", own.sglang_tp, POSITIVE, aliases=(f"{_G}sglang_cfg.gpus_per_server",)),
        Row(f"{_G}colocated.enabled", own.colocated, BOOLEAN),
        Row(f"{_G}colocated.resources.gpus_per_node", own.engine_gpus, COUNT),
        Row(f"{_G}colocated.resources.num_nodes", own.engine_nodes, COUNT),
        Row(_PROMPTS, own.prompts, POSITIVE, aliases=_MORE_PROMPTS),
        Row(_ANSWERS, f.objective.rollout.n, POSITIVE, aliases=_MORE_ANSWERS),
        Row("grpo.adv_estimator.name", own.estimator, TEXT),
        Row("loss_fn.reference_policy_kl_penalty", own.kl, NUMBER),
        Row("teacher.model_name", own.teacher, TEXT),
        Row("value.model_name", own.critic, TEXT),
        *(Row(f"{name}.max_num_steps", getattr(own, name), INTEGER) for name in _ALGORITHMS),
        Row(_VAL, own.val_every, INTEGER, aliases=_VALS),
        Row(_VAL_MICRO, own.val_micro, POSITIVE, aliases=_VAL_MICROS),
        Row("checkpointing.enabled", own.saves, BOOLEAN),
        Row("checkpointing.save_period", own.save_every, POSITIVE),
        Row("checkpointing.save_optimizer", own.save_optimizer, BOOLEAN, True, source=f"{SOURCE} nemo_rl/utils/checkpoint.py"),
        Row("checkpointing.keep_top_k", own.keep, POSITIVE),
        Row("checkpointing.checkpoint_dir", f.save.dir, TEXT),
        Row("data.num_workers", f.data.workers, COUNT),
        Row("cluster.gpus_per_node", own.gpus, POSITIVE),
        Row("cluster.num_nodes", own.nodes, POSITIVE),
    ),
    known=known_keys("nemo_rl"),
    known_prefixes=(
        "data", "env", "logger", "reward_penalties", "teacher", "value", "on_policy_distillation", "data_plane", "async_rl",
        f"{_P}tokenizer", f"{_P}scheduler", f"{_P}hf_config_overrides", f"{_P}optimizer.kwargs.", f"{_P}draft.",
        f"{_G}vllm_kwargs", f"{_G}vllm_cfg.env_vars", f"{_G}vllm_cfg.http_server", f"{_G}sglang_", f"{_G}trtllm_",
        f"{_G}dynamo_cfg", f"{_G}mcore_generation_config", f"{_G}refit_cfg", f"{_D}env_vars", f"{_D}automodel_kwargs",
        f"{_M}env_vars", f"{_M}model_overrides", f"{_M}freeze_config", f"{_M}scheduler", "_", "generation",
    ),
    ignores_unknown=True,
    loader="omegaconf",
    section="training",
    renamed=(
        Renaming(f"{_P}fsdp_offload_enabled", f"{_D}cpu_offload", "0.4.0", "ignored", source="NeMo-RL v0.4.0 nemo_rl/models/policy/lm_policy.py"),
        Renaming(f"{_P}activation_checkpointing_enabled", f"{_D}activation_checkpointing", "0.4.0", "ignored", source="NeMo-RL v0.4.0 nemo_rl/models/policy/lm_policy.py"),
    ),
)  # fmt: skip

ALGORITHMS = frozenset(_ALGORITHMS)
