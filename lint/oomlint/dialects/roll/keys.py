"""The keys of ROLL's configs that decide memory.

Read from alibaba/ROLL 8eb27cc2 (2026-08-18); ``RO`` below is its ``roll`` package, ``MC`` its
``mcore_adapter/src/mcore_adapter``. A pipeline trains one role, whose section has a name of its own in each
of them; what ``strategy_config`` holds depends on the strategy. So there is a table for each of both.
"""

from __future__ import annotations

import ast
from typing import Any

from oomlint.dialects.kinds import (
    ANYTHING,
    BOOLEAN,
    COUNT,
    LIST,
    NUMBER,
    POSITIVE,
    TEXT,
    BadValue,
    Kind,
    choice,
    read_list,
)
from oomlint.dialects.table import Row, Table, known_keys
from oomlint.errors import CannotEdit
from oomlint.plan.fields import Private, f

SOURCE = "ROLL 8eb27cc2"
_BASE = f"{SOURCE} roll/configs/base_config.py"
_WORKER = f"{SOURCE} roll/configs/worker_config.py"
_MODEL = f"{SOURCE} roll/configs/model_args.py"
_TRAINING = f"{SOURCE} roll/configs/training_args.py"
_FSDP2 = f"{SOURCE} roll/distributed/strategy/fsdp2_strategy.py"
_MEGATRON = f"{SOURCE} mcore_adapter/src/mcore_adapter/training_args.py"

# The role that each pipeline trains, the one that writes its answers, and the one that is its measure.
ROLES = {
    "actor_train": ("actor_infer", "reference"),
    "student_train": ("student_infer", "teacher"),
    "sft_train": (None, None),
    "student": (None, "teacher"),
}


class own(Private, prefix="roll"):  # noqa: N801  a namespace of fields, read like ``f``
    """``role`` is the one that trains, by its section's name, and ``strategy`` what it trains with.
    ``devices``, ``engine_devices`` and ``other_devices`` are the GPUs of the trained role, of the one that
    writes answers, and of the reference or the teacher. ``games``: of a step, where answers come of them. ``rows``: of a pass without gradients.
    ``shard``: ranks that FSDP2 shards over, ``kept``: the dtype that it keeps weights in."""

    role: str
    strategy: str
    devices: tuple[int, ...]
    engine_devices: tuple[int, ...]
    other_devices: tuple[int, ...]
    gpus: int
    named: str
    dtype: str
    no_gc: bool
    reentrant: bool
    attention: str
    rank: int
    alpha: float
    dropout: float
    targets: tuple[str, ...]
    rows: int
    sequence: int
    prompt: int
    response: int
    dynamic: bool
    dynamic_tokens: int
    packs: bool
    packed_tokens: int
    wide_logits: bool
    granularity: str
    modules: tuple[str, ...]
    moe_recompute: bool
    optimizer: str
    shard: int
    kept: str
    reduced: str
    offloads: bool
    engine: str
    vllm_share: float
    sglang_share: float
    vllm_tp: int
    sglang_tp: int
    ratio: float
    asynchronous: bool
    partial: bool
    games: int
    estimator: str
    kl: float
    kl_loss: bool
    reference: bool
    entropy: float
    offloads_states: bool
    offloads_adam: bool
    teacher: str
    save_every: int
    keep: int
    val_every: int
    validates: Any
    prompts: int


_MOST_DEVICES = 1 << 16


def _read_devices(raw: Any) -> tuple[int, ...]:
    """What ``eval`` makes of ``list(range(0, 8))``, of lists, and of sums of both."""
    if isinstance(raw, list):
        raw = str(raw)
    try:
        found = _devices_of(ast.parse(str(raw).strip(), mode="eval").body)
    except (SyntaxError, ValueError, TypeError, RecursionError):
        raise BadValue("expected a list of GPUs, such as list(range(0, 8))") from None
    if len(found) > _MOST_DEVICES or not all(isinstance(each, int) for each in found):
        raise BadValue("expected a list of GPUs, such as list(range(0, 8))")
    return found


def _devices_of(node: ast.expr) -> tuple[Any, ...]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return (*_devices_of(node.left), *_devices_of(node.right))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        if node.func.id == "list" and len(node.args) == 1:
            return _devices_of(node.args[0])
        if node.func.id == "range":
            bounds = [ast.literal_eval(each) for each in node.args]
            return tuple(range(*bounds)[: _MOST_DEVICES + 1])
    found = ast.literal_eval(node)
    if not isinstance(found, list | tuple):
        raise TypeError
    return tuple(found)


def _write_devices(devices: Any) -> Any:
    raise CannotEdit("which GPUs a role runs on decides on who shares them")


_DEVICES = Kind(_read_devices, write=_write_devices, schema={"type": ["string", "array"]})
_STRATEGY = choice(
    {"megatron_train": "megatron", "fsdp2_train": "fsdp2", "deepspeed_train": "deepspeed"},
    otherwise=None,
)
_ENGINES = choice({"vllm": "vllm", "sglang": "sglang", "hf_infer": "hf"}, otherwise=None)
_GRANULARITY = choice({"full": "full", "selective": "selective_op"})
_DTYPE = choice({"bf16": "bf16", "fp16": "fp16", "fp32": "fp32"})
_TORCH_DTYPE = choice(
    {"bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16", "float16": "fp16", "fp32": "fp32", "float32": "fp32"},
    otherwise=None,
)  # fmt: skip
# Texts with commas between them: a list is refused (model_args.py split_arg).
_TARGETS = Kind(read_list, write=",".join, schema={"type": "string"})
_ATTENTION = choice({"fa2": "flash2", "sdpa": "sdpa", "auto": "sdpa"}, otherwise=None)

# Of every pipeline (RO/configs/base_config.py, RO/pipeline).
_SHARED = (
    Row("pretrain", f.model.id, TEXT, aliases=("student_pretrain",)),
    Row("sequence_length", own.sequence, POSITIVE),
    Row("prompt_length", own.prompt, POSITIVE, 1024, source=f"{_BASE}:176"),
    Row("response_length", own.response, POSITIVE),
    Row("num_gpus_per_node", own.gpus, POSITIVE, 8, source=f"{_BASE}:235"),
    Row("rollout_batch_size", own.prompts, POSITIVE, 128, source=f"{_BASE}:153"),
    Row("num_return_sequences_in_group", f.objective.rollout.n, POSITIVE, 1, source=f"{SOURCE} roll/pipeline/rlvr/rlvr_config.py:95"),
    Row("async_generation_ratio", own.ratio, NUMBER, 0.0, source=_BASE),
    Row("async_pipeline", own.asynchronous, BOOLEAN),
    Row("partial_gpu_mode", own.partial, BOOLEAN, True, source=f"{SOURCE} roll/pipeline/agentic/agentic_config.py:217"),
    Row("train_env_manager.num_env_groups", own.games, COUNT),
    Row("adv_estimator", own.estimator, TEXT, "gae", source=f"{_BASE}:548"),
    Row("init_kl_coef", own.kl, NUMBER, 0.2, source=f"{_BASE}:535"),
    Row("use_kl_loss", own.kl_loss, BOOLEAN, False, source=f"{_BASE}:568"),
    Row("enable_reference", own.reference, BOOLEAN, False, source=f"{_BASE}:575"),
    Row("entropy_loss_coef", own.entropy, NUMBER, 0.0, source=f"{_BASE}:570"),
    Row("is_offload_states", own.offloads_states, BOOLEAN, False, source=f"{_BASE}:199"),
    Row("is_offload_optimizer_states_in_train_step", own.offloads_adam, BOOLEAN, False, source=f"{_BASE}:209"),
    Row("teacher_pretrain", own.teacher, TEXT),
    Row("max_grad_norm", f.optimizer.clip_norm, NUMBER, source=_BASE),
    Row("max_steps", f.total_steps, POSITIVE),
    Row("save_steps", own.save_every, POSITIVE, 50, source=f"{_BASE}:137"),
    Row("max_ckpt_to_keep", own.keep, COUNT, 0, source=f"{_BASE}:141"),
    Row("eval_steps", own.val_every, COUNT, 10, source=f"{_BASE}:149"),
    Row("validation.data_args.file_name", own.validates, ANYTHING),
    Row("output_dir", f.save.dir, TEXT),
)  # fmt: skip


def _of_role(role: str) -> tuple[Row, ...]:
    """What a role says whatever it trains with (RO/configs/worker_config.py)."""
    r = f"{role}."
    return (
        Row(f"{r}name", own.role, Kind(lambda raw: role, schema={"type": "string"}), role, source=_WORKER),
        Row(f"{r}strategy_args.strategy_name", own.strategy, _STRATEGY, "fsdp2", source=f"{_WORKER}:32"),
        Row(f"{r}device_mapping", own.devices, _DEVICES),
        Row(f"{r}infer_batch_size", own.rows, POSITIVE, 16, source=f"{_WORKER}:129"),
        Row(f"{r}model_args.model_name_or_path", own.named, TEXT),
        Row(f"{r}model_args.dtype", own.dtype, _DTYPE, "bf16", source=f"{_MODEL}:92"),
        Row(f"{r}model_args.attn_implementation", own.attention, _ATTENTION),
        Row(f"{r}model_args.disable_gradient_checkpointing", own.no_gc, BOOLEAN, False, source=f"{_MODEL}:76"),
        Row(f"{r}model_args.gradient_checkpointing_use_reentrant", own.reentrant, BOOLEAN),
        Row(f"{r}model_args.lora_target", own.targets, _TARGETS),
        Row(f"{r}model_args.lora_rank", own.rank, POSITIVE, 8, source=f"{_MODEL}:31"),
        Row(f"{r}model_args.lora_alpha", own.alpha, NUMBER),
        Row(f"{r}model_args.lora_dropout", own.dropout, NUMBER, 0.0, source=f"{_MODEL}:27"),
        Row(f"{r}training_args.per_device_train_batch_size", f.batch.micro, POSITIVE, 8, source=f"{_TRAINING}:44"),
        Row(f"{r}training_args.gradient_accumulation_steps", f.batch.grad_accum, POSITIVE, 1, source=f"{_TRAINING}:47"),
        Row(f"{r}training_args.dataloader_num_workers", f.data.workers, COUNT, 0, source=_TRAINING),
    )  # fmt: skip


def _of_megatron(role: str) -> tuple[Row, ...]:
    """MC/training_args.py, handed on by RO/distributed/strategy/megatron_strategy.py:106."""
    r, c = f"{role}.", f"{role}.strategy_args.strategy_config."
    m = f.parallel.megatron
    return (
        Row(f"{r}use_dynamic_batching_in_train", own.dynamic, BOOLEAN, False, source=f"{_WORKER}:148"),
        Row(f"{r}max_tokens_per_microbatch_in_train", own.dynamic_tokens, COUNT),
        Row(f"{r}use_sequence_packing", own.packs, BOOLEAN, False, source=f"{_WORKER}:199"),
        Row(f"{r}sequence_packing_args.max_packed_sequence_length_train", own.packed_tokens, POSITIVE),
        Row(f"{r}logits_in_fp32", own.wide_logits, BOOLEAN, False, source=_WORKER),
        Row(f"{c}tensor_model_parallel_size", f.parallel.tp, POSITIVE, 1, source=f"{_MEGATRON}:28"),
        Row(f"{c}pipeline_model_parallel_size", f.parallel.pp, POSITIVE, 1, source=f"{_MEGATRON}:32"),
        Row(f"{c}virtual_pipeline_model_parallel_size", f.parallel.vpp, POSITIVE),
        Row(f"{c}context_parallel_size", f.parallel.cp, POSITIVE, 1, source=f"{_MEGATRON}:47"),
        Row(f"{c}expert_model_parallel_size", f.parallel.ep, POSITIVE, 1, source=f"{_MEGATRON}:51"),
        Row(f"{c}expert_tensor_parallel_size", f.parallel.etp, POSITIVE),
        Row(f"{c}sequence_parallel", f.parallel.sp, BOOLEAN, False, source=f"{_MEGATRON}:36"),
        Row(f"{c}mtp_num_layers", f.model.mtp_layers, COUNT),
        Row(f"{c}recompute_granularity", own.granularity, _GRANULARITY),
        Row(f"{c}recompute_modules", own.modules, LIST),
        Row(f"{c}moe_layer_recompute", own.moe_recompute, BOOLEAN, False, source=f"{_MEGATRON}:150"),
        Row(f"{c}use_distributed_optimizer", m.dist_optimizer, BOOLEAN, False, source=f"{_MEGATRON}:326"),
        Row(f"{c}optimizer", own.optimizer, TEXT, "adam", source=f"{_MEGATRON}:368"),
        Row(f"{c}save_only_model", f.save.save_only_model, BOOLEAN),
    )  # fmt: skip


def _of_fsdp2(role: str) -> tuple[Row, ...]:
    """RO/distributed/strategy/fsdp2_strategy.py asks for keys one by one and passes over all others."""
    c = f"{role}.strategy_args.strategy_config."
    fsdp = f.parallel.fsdp
    return (
        Row(f"{role}.model_args.ulysses_size", f.parallel.ulysses, POSITIVE, 1, source=f"{_MODEL}:118"),
        Row(f"{c}fsdp_size", own.shard, COUNT, 1, source=f"{_FSDP2}:832"),
        Row(f"{c}ep_size", f.parallel.ep, POSITIVE, 1, source=f"{_FSDP2}:837"),
        Row(f"{c}param_dtype", own.kept, _TORCH_DTYPE),
        Row(f"{c}reduce_dtype", own.reduced, _TORCH_DTYPE, "fp32", source=f"{_FSDP2}:1005"),
        Row(f"{c}reshard_after_forward", fsdp.reshard_after_forward, BOOLEAN, True, source=f"{_FSDP2}:1025"),
        Row(f"{c}offload_policy", own.offloads, BOOLEAN, False, source=f"{_FSDP2}:1027"),
        Row(f"{c}reduce_scatter_during_grad_accumulation", fsdp.sync_every_micro, BOOLEAN, True, source=f"{_FSDP2}:1033"),
        Row(f"{c}save_only_model", f.save.save_only_model, BOOLEAN, False, source=f"{_FSDP2}:1001"),
    )  # fmt: skip


def _of_others(role: str) -> tuple[Row, ...]:
    """The role that writes answers, and the one that the trained one is held against."""
    infer, other = ROLES[role]
    rows: list[Row] = []
    if infer is not None:
        c = f"{infer}.strategy_args.strategy_config."
        rows += (
            Row(f"{infer}.strategy_args.strategy_name", own.engine, _ENGINES),
            Row(f"{infer}.device_mapping", own.engine_devices, _DEVICES),
            Row(f"{c}gpu_memory_utilization", own.vllm_share, NUMBER),
            Row(f"{c}mem_fraction_static", own.sglang_share, NUMBER),
            Row(f"{c}tensor_parallel_size", own.vllm_tp, POSITIVE, 1, source=f"{_WORKER}:282"),
            Row(f"{c}tp_size", own.sglang_tp, POSITIVE),
            Row(f"{c}max_model_len", f.objective.rollout.max_model_len, POSITIVE),
        )
    if other is not None:
        rows.append(Row(f"{other}.device_mapping", own.other_devices, _DEVICES))
        if other == "teacher":
            rows.append(Row("teacher.model_args.model_name_or_path", own.teacher, TEXT))
    return tuple(rows)


# What FSDP2 takes without effect on memory that is known (fsdp2_strategy.py, RO/utils/fsdp_utils.py).
_FSDP2_KNOWN = (
    "apply_expert_patch", "apply_tiled_mlp", "tiled_num_shards", "model_type", "efsdp_size", "moe_use_grouped_mm", "async_save_ckpt",
)  # fmt: skip
# Sections of roles that are not trained, and of games: nothing of them is looked at but the rows.
_OPEN = (
    "actor_infer", "student_infer", "reference", "critic", "teacher", "validation", "reward", "hydra", "defaults",
    "custom_envs", "train_env_manager", "val_env_manager", "tracker_kwargs", "system_envs", "checkpoint_config",
    "train_infer_correction", "router_args", "transfer_backend", "rollout_mock", "dataset_filter", "_",
)  # fmt: skip


def _table(role: str, strategy: str) -> Table:
    config = f"{role}.strategy_args.strategy_config."
    known = {f"{role}.{key}" for key in known_keys("roll_worker")}
    if strategy == "megatron":
        rows = _of_megatron(role)
        known |= {config + key for key in known_keys("roll_megatron")}
        free: tuple[str, ...] = (f"{config}additional_configs", f"{config}lr_scheduler_kwargs")
    else:
        rows = _of_fsdp2(role)
        known |= {config + key for key in _FSDP2_KNOWN}
        free = (f"{config}wrap_policy",)
    role_free = tuple(
        f"{role}.{key}" for key in ("system_envs", "data_args", "model_args.model_config_kwargs")
    )
    return Table(
        name=f"ROLL config of {role} with {strategy}",
        rows=(*_SHARED, *_of_role(role), *rows, *_of_others(role)),
        known=frozenset(known | known_keys("roll")),
        known_prefixes=(*_OPEN, *free, *role_free),
        # dacite takes what its classes have and passes over the rest; Megatron's arguments are one
        # class's, which refuses (examples/start_rlvr_pipeline.py, megatron_strategy.py:113).
        ignores_unknown=True,
        strict_under=(config,) if strategy == "megatron" else (),
        loader="omegaconf",
        section="training",
    )  # fmt: skip


TABLES = {
    (role, strategy): _table(role, strategy) for role in ROLES for strategy in ("megatron", "fsdp2")
}


def _whole() -> Table:
    """What editors are told: the keys of all roles and strategies."""
    rows = {row.key: row for table in TABLES.values() for row in table.rows}
    known = frozenset().union(*(table.known for table in TABLES.values()))
    prefixes = dict.fromkeys(each for table in TABLES.values() for each in table.known_prefixes)
    return Table(
        name="ROLL config", rows=tuple(rows.values()), known=known - frozenset(rows), known_prefixes=tuple(prefixes),
        ignores_unknown=True, loader="omegaconf", section="training",
    )  # fmt: skip


ROLL = _whole()
