"""The keys of AReaL's configs that decide memory.

Read from inclusionAI/AReaL 4aef98d8 (2026-05-21, 1.0.4); ``AR`` below is its ``areal`` package. ``model`` was what
``actor`` is in configs of SFT before.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.areal.allocation import BACKEND, MODE
from oomlint.dialects.kinds import (
    ANYTHING,
    BOOLEAN,
    COUNT,
    DTYPE,
    LIST,
    NUMBER,
    POSITIVE,
    TEXT,
    choice,
)
from oomlint.dialects.table import Renaming, Row, Table, known_keys
from oomlint.plan.fields import Private, f

SOURCE = "AReaL 4aef98d8"
ARGS = f"{SOURCE} areal/api/cli_args.py"


class own(Private, prefix="areal"):  # noqa: N801  a namespace of fields, read like ``f``
    """``place`` is of the role that trains, ``serving`` of the engine that writes answers, ``mode`` of all roles
    in older configs. ``critic``, ``ref``, ``teacher``: their sections. ``tokens``: of a micro batch; ``parts``: micro
    batches of a step at least; ``minibatches``: steps of a round of answers. ``streams``: the optimizer's
    states come to the GPU layer by layer."""

    place: Any
    serving: Any
    mode: Any
    target: str
    kind: str
    rollout: Any
    node_gpus: int
    offloads: bool
    role_offload: bool
    tokens: int
    parts: int
    minibatches: int
    fills: bool
    gc: bool
    dtype: str
    optimizer: str
    offloads_params: bool
    loads_once: bool
    streams: bool
    bridge: str
    granularity: str
    modules: tuple[str, ...]
    vpp: int
    wide_grads: bool
    grads_kept: str
    masters_kept: str
    first_moments: str
    second_moments: str
    aware: bool
    fp8: Any
    lora: bool
    rank: int
    alpha: float
    targets: tuple[str, ...]
    critic: Any
    critic_path: str
    critic_place: str
    ref: Any
    ref_place: str
    ref_dtype: str
    ref_offload: bool
    teacher: Any
    teacher_path: str
    teacher_place: str
    kl: float
    scores: bool
    decouples: bool
    prompts: int
    prompt_len: int
    answer_len: int
    whole_len: int
    vllm_share: float
    sglang_share: float
    vllm_len: int
    sglang_len: int
    steps: int
    epochs: int
    recovers: str


_A = "actor."
_M = "actor.megatron."
_OLD = "model."
_GRANULARITY = choice({"full": "full", "selective": "selective_op"})
_ATTENTION = choice(
    {"flash_attention_2": "flash2", "flash_attention_3": "flash3", "sdpa": "sdpa", "eager": "eager", "flex_attention": "flex"},
    write={"flash2": "flash_attention_2", "flash3": "flash_attention_3"},
    otherwise="flash2",
)  # fmt: skip


def _of_actor() -> tuple[Row, ...]:
    """AR/api/cli_args.py TrainEngineConfig, PPOActorConfig."""
    rows = (
        ("path", f.model.id, TEXT, None, 1053),
        ("attn_impl", f.model.attn_impl, _ATTENTION, "flash2", 1054),
        ("init_from_scratch", f.model.from_scratch, BOOLEAN, False, 1069),
        ("backend", own.place, BACKEND, None, 0),
        ("mb_spec.max_tokens_per_mb", own.tokens, POSITIVE, None, 0),
        ("mb_spec.n_mbs", own.parts, POSITIVE, 1, 102),
        ("pad_to_maximum", own.fills, BOOLEAN, False, 1082),
        ("gradient_checkpointing", own.gc, BOOLEAN, False, 1095),
        ("dtype", own.dtype, DTYPE, "bf16", 1098),
        ("grad_reduce_dtype", f.precision.comm, DTYPE, "fp32", 1099),
        ("optimizer.type", own.optimizer, TEXT, "adam", 338),
        ("optimizer.gradient_clipping", f.optimizer.clip_norm, NUMBER, 1.0, 398),
        ("offload", own.role_offload, BOOLEAN, False, 1116),
        ("use_lora", own.lora, BOOLEAN, False, 1124),
        ("lora_rank", own.rank, POSITIVE, 32, 1130),
        ("lora_alpha", own.alpha, NUMBER, 16.0, 1131),
        ("target_modules", own.targets, LIST, (), 1132),
        ("scheduling_strategy.target", own.target, TEXT, None, 0),
        ("ppo_n_minibatches", own.minibatches, POSITIVE, 4, 1393),
        ("kl_ctl", own.kl, NUMBER, 0.1, 1458),
        ("recompute_logprob", own.scores, BOOLEAN, False, 1479),
        ("use_decoupled_loss", own.decouples, BOOLEAN, False, 1485),
        ("fsdp.offload_params", own.offloads_params, BOOLEAN, False, 421),
        ("fsdp.memory_efficient_load", own.loads_once, BOOLEAN, False, 425),
        ("fsdp.per_layer_optim_step", own.streams, BOOLEAN, False, 435),
        ("megatron.bridge_type", own.bridge, TEXT, "mbridge", 913),
        ("megatron.recompute_granularity", own.granularity, _GRANULARITY, "full", 886),
        ("megatron.recompute_modules", own.modules, LIST, None, 0),
        ("megatron.virtual_pipeline_parallel_size", own.vpp, POSITIVE, 1, 846),
        ("megatron.ddp.grad_reduce_in_fp32", own.wide_grads, BOOLEAN, True, 718),
        ("megatron.ddp.use_distributed_optimizer", f.parallel.megatron.dist_optimizer, BOOLEAN, True, 722),
        ("megatron.ddp.overlap_param_gather", f.parallel.megatron.overlap_param_gather, BOOLEAN, False, 720),
        ("megatron.use_precision_aware_optimizer", own.aware, BOOLEAN, False, 861),
        ("megatron.main_grads_dtype", own.grads_kept, DTYPE, "fp32", 869),
        ("megatron.main_params_dtype", own.masters_kept, DTYPE, "fp32", 870),
        ("megatron.exp_avg_dtype", own.first_moments, DTYPE, "fp32", 871),
        ("megatron.exp_avg_sq_dtype", own.second_moments, DTYPE, "fp32", 872),
        ("megatron.fp8_config", own.fp8, ANYTHING, None, 0),
    )  # fmt: skip
    return tuple(
        Row(
            _A + key, field, kind, default, (_OLD + key,),
            f"{ARGS}:{line}" if line else "",
        )
        for key, field, kind, default, line in rows
    )  # fmt: skip


AREAL = Table(
    name="AReaL config",
    rows=(
        *_of_actor(),
        Row("rollout.backend", own.serving, BACKEND),
        Row("rollout", own.rollout, ANYTHING),
        Row("allocation_mode", own.mode, MODE),
        Row("enable_offload", own.offloads, BOOLEAN, False, source=f"{ARGS}:2698"),
        Row("cluster.n_gpus_per_node", own.node_gpus, POSITIVE, 8, source=f"{ARGS}:2552"),
        Row("critic", own.critic, ANYTHING),
        Row("critic.path", own.critic_path, TEXT),
        Row("critic.scheduling_strategy.target", own.critic_place, TEXT),
        Row("ref", own.ref, ANYTHING),
        Row("ref.scheduling_strategy.target", own.ref_place, TEXT),
        Row("ref.dtype", own.ref_dtype, DTYPE, "bf16", source=f"{ARGS}:1098"),
        Row("ref.offload", own.ref_offload, BOOLEAN, False, source=f"{ARGS}:1116"),
        Row("teacher", own.teacher, ANYTHING),
        Row("teacher.path", own.teacher_path, TEXT),
        Row("teacher.scheduling_strategy.target", own.teacher_place, TEXT),
        Row("gconfig.n_samples", f.objective.rollout.n, POSITIVE, 1, source=f"{ARGS}:166"),
        Row("gconfig.max_new_tokens", own.answer_len, POSITIVE, 16384, source=f"{ARGS}:169"),
        Row("gconfig.max_tokens", own.whole_len, POSITIVE, 32768, source=f"{ARGS}:175"),
        Row("sglang.mem_fraction_static", own.sglang_share, NUMBER, 0.9, source=f"{ARGS}:1771"),
        Row("sglang.context_length", own.sglang_len, POSITIVE, 32768, source=f"{ARGS}: SGLangConfig"),
        Row("vllm.gpu_memory_utilization", own.vllm_share, NUMBER, 0.9, source=f"{ARGS}:1657"),
        Row("vllm.max_model_len", own.vllm_len, POSITIVE, 32768, source=f"{ARGS}: vLLMConfig"),
        Row("train_dataset.type", own.kind, TEXT),
        Row("train_dataset.batch_size", own.prompts, POSITIVE, 1, source=f"{ARGS}:2589"),
        Row("train_dataset.max_length", own.prompt_len, POSITIVE),
        Row("train_dataset.num_workers", f.data.workers, COUNT, 0, source=f"{ARGS}:2601"),
        Row("train_dataset.pin_memory", f.data.pin_memory, BOOLEAN, False, source=f"{ARGS}:2595"),
        Row("total_train_steps", f.total_steps, POSITIVE),
        Row("saver.freq_steps", own.steps, POSITIVE),
        Row("saver.freq_epochs", own.epochs, POSITIVE),
        Row("recover.mode", own.recovers, TEXT, "disabled", source=f"{ARGS}:2259"),
    ),
    known=known_keys("areal") | {f"{part}{key}" for part in (_A, _OLD) for key in known_keys("areal_engine")},
    # OmegaConf's structs refuse what AReaL's classes lack (cli_args.py:2950).
    known_prefixes=(
        "ref.", "teacher.", "critic.", "stats_logger.", "perf_tracer.", "valid_dataset.", "memory_profiler.", "launcher.",
        "scheduler.", "cluster.", "sglang.", "vllm.", "rollout.", "eval_gconfig.", "recover.", "evaluator.", "checkpointer.",
        "actor.scheduling_s", "model.scheduling_s", "train_dataset.dataset_kwargs.",
        "train_dataset.scheduling_spec.",
    ),
    ignores_unknown=False,
    renamed=tuple(
        Renaming(
            f"actor.behave_imp_weight_{part}", None, "1.0.4",
            advice="`actor.rejection_sampling` says it since", source="AReaL bc9f0098 (2026-04-20)",
        )
        for part in ("cap", "mode")
    ),
    loader="omegaconf",
    section="training",
)  # fmt: skip
