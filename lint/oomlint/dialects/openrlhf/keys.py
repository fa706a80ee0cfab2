"""Options of OpenRLHF's trainers: one table for each program and each way of writing them.

Read from OpenRLHF 3c3be623 (0.11.0, 2026-08-13) and the tags v0.3.8 to v0.10.4; ``OR`` below is
``openrlhf/``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from oomlint.dialects.deepspeed.keys import ds
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
)
from oomlint.dialects.table import Row, Table, known_keys
from oomlint.errors import CannotEdit
from oomlint.plan.fields import Private, f

CLI = "OpenRLHF 3c3be623 cli/train_*.py"
OLD_CLI = "OpenRLHF v0.7.5 cli/train_*.py"
ACTOR = "OpenRLHF 3c3be623 models/actor.py"
STRATEGY = "OpenRLHF 3c3be623 utils/deepspeed"


class own(Private, prefix="or"):  # noqa: N801  a namespace of fields, read like ``f``
    """Options whose meaning takes more than one of them."""

    batch: int
    dtype: str
    bf16: bool
    sleep: bool
    flash: bool
    liger: bool
    load_4bit: bool
    lora_rank: int
    targets: tuple[str, ...]
    packing: bool
    pretrain_mode: bool
    save_steps: int
    eval_steps: int
    eval_dataset: str
    ref_model: str
    ref_offload: bool
    ref_reward_offload: bool
    teacher: str
    teacher_offload: bool
    actor_gpus: int
    actor_nodes: int
    ref_gpus: int
    reward_gpus: int
    critic_gpus: int
    critic: str
    reward: str
    reward_url: str
    colocate_all: bool
    async_: bool
    colocate_ref: bool
    colocate_critic: bool
    estimator: str
    kl: float
    engines: int
    vllm_sleep: bool
    dynamic_batch: bool
    max_tokens: int


def _switched(value: Any) -> bool:
    if value is not True:
        raise CannotEdit("this switch is on by standing there; take it out of the command")
    return True


SWITCH = Kind(BOOLEAN.read, _switched, {"type": "boolean"})

_OFFLOADS = Kind(
    lambda raw: "cpu" if BOOLEAN.read(raw) else "none",
    lambda value: _switched(value == "cpu"),
    {"type": "boolean"},
)
_CHECKPOINTS = Kind(
    lambda raw: "full" if BOOLEAN.read(raw) else "none",
    lambda value: _switched(value == "full"),
    {"type": "boolean"},
)

# transformers' names, kernels of the hub included; the old switch --flash_attn stands beside it.
ATTENTION = choice(
    {
        "flash_attention_2": "flash2",
        "flash_attention_3": "flash3",
        "sdpa": "sdpa",
        "eager": "eager",
        "flex_attention": "flex",
        "kernels-community/flash-attn2": "flash2",
        "kernels-community/flash-attn3": "flash3",
        "kernels-community/vllm-flash-attn3": "flash3",
    },
    otherwise=None,
)


class _Option(NamedTuple):
    """One option under its dotted and its flat name."""

    field: Any
    kind: Kind
    dotted: str
    flat: str = ""
    ray: str = ""
    """The dotted name in ``train_ppo_ray`` where it differs."""
    default: Any = None


_OPTIONS = (
    _Option(f.model.id, TEXT, "model.model_name_or_path", "pretrain", "actor.model_name_or_path"),
    _Option(f.batch.micro, POSITIVE, "train.micro_batch_size", "micro_train_batch_size"),
    _Option(own.batch, POSITIVE, "train.batch_size", "train_batch_size", default=128),
    _Option(f.seq.max_len, POSITIVE, "data.max_len", "max_len"),
    _Option(f.parallel.zero.stage, COUNT, "ds.zero_stage", "zero_stage", default=2),
    _Option(own.dtype, choice({"bf16": "bf16", "fp16": "fp16"}), "ds.param_dtype", "param_dtype"),
    _Option(own.bf16, SWITCH, "bf16", "bf16"),
    _Option(f.checkpointing.mode, _CHECKPOINTS, "model.gradient_checkpointing_enable", "gradient_checkpointing", "actor.gradient_checkpointing_enable", "none"),
    _Option(f.checkpointing.reentrant, SWITCH, "model.gradient_checkpointing_reentrant", "gradient_checkpointing_use_reentrant", "actor.gradient_checkpointing_reentrant", False),
    _Option(f.offload.optimizer, _OFFLOADS, "ds.adam_offload", "adam_offload", default="none"),
    _Option(own.sleep, SWITCH, "ds.enable_sleep", "deepspeed_enable_sleep", default=False),
    _Option(f.parallel.zero.hpz, POSITIVE, "ds.zpg", "zpg", default=1),
    _Option(f.parallel.zero.overlap_comm, SWITCH, "ds.overlap_comm", "overlap_comm", default=False),
    _Option(ds.grad_accum_dtype, choice({"fp32": "fp32", "bf16": "bf16", "fp16": "fp16"}), "ds.grad_accum_dtype", "grad_accum_dtype"),
    _Option(f.parallel.tp, POSITIVE, "ds.tensor_parallel_size", "ds_tensor_parallel_size", default=1),
    _Option(f.parallel.cp, POSITIVE, "ds.ring_attn_size", "ring_attn_size", default=1),
    _Option(f.model.attn_impl, ATTENTION, "ds.attn_implementation", "attn_implementation"),
    _Option(own.flash, SWITCH, "flash_attn", "flash_attn"),
    _Option(f.model.experts_impl, choice({"grouped_mm": "grouped", "eager": "loop"}, otherwise=None), "ds.experts_implementation"),
    _Option(own.liger, SWITCH, "ds.use_liger_kernel", "use_liger_kernel", default=False),
    _Option(own.load_4bit, SWITCH, "ds.load_in_4bit", "load_in_4bit", default=False),
    _Option(own.lora_rank, COUNT, "ds.lora.rank", "lora_rank", default=0),
    _Option(f.trainable.alpha, NUMBER, "ds.lora.alpha", "lora_alpha", default=16),
    _Option(f.trainable.dropout, NUMBER, "ds.lora.dropout", "lora_dropout", default=0.0),
    _Option(own.targets, LIST, "ds.lora.target_modules", "target_modules", default=("all-linear",)),
    _Option(own.packing, SWITCH, "ds.packing_samples", "packing_samples", default=False),
    _Option(own.pretrain_mode, SWITCH, "model.pretrain_mode_enable", "pretrain_mode"),
    _Option(f.optimizer.name, TEXT, "optim", "optim", "actor.optim", "adam"),
    _Option(f.save.dir, TEXT, "ckpt.output_dir", "save_path"),
    _Option(own.save_steps, INTEGER, "ckpt.save_steps", "save_steps", default=-1),
    _Option(f.save.keep, POSITIVE, "ckpt.max_num", "max_ckpt_num", default=3),
    _Option(f.save.save_only_model, SWITCH, "ckpt.disable_ds", "disable_ds_ckpt", default=False),
    _Option(own.eval_steps, INTEGER, "eval.steps", "eval_steps", default=-1),
    _Option(own.eval_dataset, TEXT, "eval.dataset", "eval_dataset"),
    _Option(f.data.workers, COUNT, "data.dataloader_num_workers", "dataloader_num_workers", default=0),
    _Option(f.data.max_samples, POSITIVE, "data.max_samples", "max_samples"),
    _Option(own.ref_model, TEXT, "ref.model_name_or_path", "ref_pretrain"),
    _Option(own.ref_offload, SWITCH, "ref.offload", "ref_offload", default=False),
    _Option(own.ref_reward_offload, SWITCH, "ref_reward_offload", "ref_reward_offload"),
    _Option(own.teacher, TEXT, "teacher_model", "teacher_model"),
    _Option(own.teacher_offload, SWITCH, "teacher_offload", "teacher_offload", default=False),
    _Option(f.objective.loss, TEXT, "model.loss_type", "loss"),
    # Reinforcement learning over Ray.
    _Option(own.actor_gpus, POSITIVE, "actor.num_gpus_per_node", "actor_num_gpus_per_node"),
    _Option(own.actor_nodes, POSITIVE, "actor.num_nodes", "actor_num_nodes"),
    _Option(own.ref_gpus, POSITIVE, "ref.num_gpus_per_node", "ref_num_gpus_per_node", default=8),
    _Option(own.reward_gpus, POSITIVE, "reward.num_gpus_per_node", "reward_num_gpus_per_node", default=8),
    _Option(own.critic_gpus, POSITIVE, "critic.num_gpus_per_node", "critic_num_gpus_per_node", default=8),
    _Option(own.critic, TEXT, "critic.model_name_or_path", "critic_pretrain"),
    _Option(own.reward, TEXT, "reward.model_name_or_path", "reward_pretrain"),
    _Option(own.reward_url, TEXT, "reward.remote_url", "remote_rm_url"),
    _Option(own.colocate_all, SWITCH, "train.colocate_all", "colocate_all_models", default=False),
    _Option(own.async_, SWITCH, "train.async_enable", "async_train", default=False),
    _Option(own.colocate_ref, SWITCH, "train.colocate_actor_ref", "colocate_actor_ref", default=False),
    _Option(own.colocate_critic, SWITCH, "train.colocate_critic_reward", "colocate_critic_reward", default=False),
    _Option(own.estimator, TEXT, "algo.advantage.estimator", "advantage_estimator"),
    _Option(own.kl, NUMBER, "algo.kl.init_coef", "init_kl_coef", default=0.01),
    _Option(own.engines, COUNT, "vllm.num_engines", "vllm_num_engines"),
    _Option(f.objective.rollout.tp, POSITIVE, "vllm.tensor_parallel_size", "vllm_tensor_parallel_size"),
    _Option(f.objective.rollout.gpu_mem_util, NUMBER, "vllm.gpu_memory_utilization", "vllm_gpu_memory_utilization"),
    _Option(own.vllm_sleep, SWITCH, "vllm.enable_sleep", "vllm_enable_sleep", default=False),
    _Option(f.objective.rollout.n, POSITIVE, "rollout.n_samples_per_prompt", "n_samples_per_prompt"),
    _Option(f.objective.rollout.rollout_micro_batch, POSITIVE, "rollout.micro_batch_size", "micro_rollout_batch_size"),
    _Option(f.objective.rollout.max_prompt_tokens, POSITIVE, "data.max_prompt_len", "prompt_max_len"),
    _Option(f.objective.rollout.max_completion_tokens, POSITIVE, "rollout.max_new_tokens", "generate_max_len"),
    _Option(own.dynamic_batch, SWITCH, "train.dynamic_batch_enable", "use_dynamic_batch", default=False),
    _Option(own.max_tokens, POSITIVE, "train.max_tokens_per_gpu", "train_max_tokens_per_gpu"),
)  # fmt: skip

_KNOWN = known_keys("openrlhf")
# Options of ``ray job submit`` and of DeepSpeed's launcher, which stand in the same command.
_OUTER = frozenset({"address", "runtime_env_json", "m", "module", "no_wait", "working_dir"})


def _table(name: str, *, dotted: bool, ray: bool = False) -> Table:
    rows = []
    for option in _OPTIONS:
        names = [option.ray or option.dotted if ray else option.dotted, option.flat]
        names = names if dotted else names[::-1]
        key, *others = [name for name in names if name]
        aliases = tuple(dict.fromkeys(other for other in others if other != key))
        source = CLI if dotted else OLD_CLI
        rows.append(Row(key, option.field, option.kind, option.default, aliases, source))
    return Table(
        name=name,
        rows=tuple(rows),
        known=_KNOWN | _OUTER,
        # Learning rates and schedules, which the actor and the critic have of their own.
        known_prefixes=tuple(
            f"{model}{part}"
            for model in ("", "actor.", "critic.")
            for part in (
                "adam.",
                "muon.",
                "optim",
                "lr_scheduler",
                "lr_warmup",
                "min_lr",
                "max_norm",
            )
        ),
        ignores_unknown=False,
        loader="yaml12",
        section="training",
    )


_PROGRAMS = ("sft", "dpo", "rm", "kto", "kd", "ppo", "ppo_ray", "prm")
TABLES = {
    (program, dotted): _table(
        f"openrlhf train_{program}{'' if dotted else ' (flat)'}",
        dotted=dotted,
        ray=program.startswith("ppo"),
    )
    for program in _PROGRAMS
    for dotted in (True, False)
}
KEY_OF = {table.name: key for key, table in TABLES.items()}
