"""Keys of NeMo AutoModel's YAML, as its recipes ask for them.

Read from NVIDIA-NeMo/Automodel 36044ad3 (2026-08-22); ``AM`` below is its ``nemo_automodel`` package. A section with
``_target_`` is a call: its other keys are the arguments. Dotted options of the command line are laid over the file.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.kinds import (
    ANYTHING,
    BOOLEAN,
    COUNT,
    LIST,
    NUMBER,
    POSITIVE,
    TEXT,
    Kind,
    choice,
    read_boolean,
    read_list,
    read_rest,
)
from oomlint.dialects.table import Row, Table, known_keys
from oomlint.plan.fields import Private, f

SOURCE = "NeMo AutoModel 36044ad3"
CONFIG = f"{SOURCE} nemo_automodel/components/distributed/config.py"
RECIPE = f"{SOURCE} nemo_automodel/recipes/llm/train_ft.py"


class own(Private, prefix="automodel"):  # noqa: N801  a namespace of fields, read like ``f``
    """Keys of AutoModel whose meaning takes more than one of them.

    ``factory`` is the call that makes the model; ``config_id`` the model whose configuration it is made after.
    ``kept``: what the weights are kept in. ``param_dtype``: what FSDP2 gathers and computes in, ``reduce_dtype``: what it reduces gradients in.
    ``pack_tokens`` of a text recipe and ``vlm_pack`` of one for images: tokens of a pack. ``mock_tokens``: of each made-up
    sample. ``validates``: the data of validation are there. ``bench_nodes`` and ``ci_nodes``: on how many nodes its authors run it.
    """

    recipe: str
    factory: str
    config_id: str
    dtype: str
    config_dtype: str
    kept: str
    backend_attention: str
    liger: bool
    strategy: str
    manager: str
    replicas: int
    ac: str
    offload: Any
    param_dtype: str
    reduce_dtype: str
    autocast: str
    reshard: bool
    defers: bool
    zero: str
    microbatch: int
    local: int
    global_batch: int
    ckpt_every: int
    val_every: int
    optimizer: str
    master: bool
    loss: str
    upcast: bool
    peft: Any
    rank: int
    alpha: float
    dropout: float
    targets: tuple[str, ...]
    exclude: tuple[str, ...]
    all_linear: bool
    dora: bool
    lora_dtype: str
    load4: bool
    load8: bool
    pack_tokens: int
    vlm_pack: int
    longest: int
    mock_tokens: int
    pads: str
    validates: Any
    saves: bool
    async_save: bool
    keep: int
    compiles: bool
    layer_compiles: bool
    wraps_outer: bool
    defers_experts: bool
    fp8: bool
    freezes_vision: bool
    teacher: str
    bench_nodes: int
    ci_nodes: int
    dataset_path: str


def _read_name(raw: Any) -> str | None:
    """A name, or a call whose ``_target_`` stands below it."""
    return None if raw is None or isinstance(raw, (dict, list)) else str(raw)


def _read_dtype(raw: Any) -> str:
    """``bf16``, ``bfloat16`` or ``torch.bfloat16``; ``auto`` is the checkpoint's own (AM/shared/utils.py dtype_from_str)."""
    name = str(raw).lower().removeprefix("torch.")
    return _DTYPES.get(name, "auto")


_DTYPES = {
    "bf16": "bf16", "bfloat16": "bf16", "fp32": "fp32", "float32": "fp32", "float": "fp32",
    "fp16": "fp16", "float16": "fp16", "half": "fp16",
}  # fmt: skip


def _read_ac(raw: Any) -> str:
    """AM/recipes/_dist_utils.py _normalize_activation_checkpointing."""
    if str(raw).lower().replace("-", "_") == "selective":
        return "selective"
    if raw is None or str(raw).lower() in ("none", "disabled"):
        return "none"
    if str(raw).lower() in ("full", "enabled"):
        return "full"
    return "full" if read_boolean(raw) else "none"


def _read_degree(raw: Any) -> int | None:
    """``none`` leaves a size to what the others leave of the ranks."""
    return None if str(raw).lower() in ("none", "null", "") else read_rest(raw)


def _read_patterns(raw: Any) -> tuple[str, ...]:
    return () if raw is None else read_list(raw)


_NAME = Kind(_read_name, schema=TEXT.schema)
_KIND = Kind(_read_dtype)
_AC = Kind(
    _read_ac,
    write=lambda mode: {"full": True, "none": False}.get(mode, mode),
    schema={"type": ["boolean", "string"]},
)
_DEGREE = Kind(_read_degree)
_PATTERNS = Kind(_read_patterns, write=list, schema=LIST.schema)
_ATTENTION = choice(
    {
        "sdpa": "sdpa",
        "eager": "eager",
        "flash_attention_2": "flash2",
        "flash_attention_3": "flash3",
        "flex_attention": "flex",
        "flex": "flex",
        "te": "flash2",
    },
    write={"flash2": "flash_attention_2", "flash3": "flash_attention_3"},
)

_D = "distributed."
_S = "step_scheduler."

AUTOMODEL = Table(
    name="AutoModel config",
    rows=(
        Row("recipe._target_", own.recipe, _NAME, aliases=("recipe",)),
        Row("model._target_", own.factory, TEXT),
        Row("model.pretrained_model_name_or_path", f.model.id, TEXT),
        Row("model.config.pretrained_model_name_or_path", own.config_id, _NAME, aliases=("model.config",)),
        Row("model.torch_dtype", own.dtype, _KIND, "auto", ("model.dtype",), f"{SOURCE} nemo_automodel/_transformers/auto_model.py:651"),
        Row("model.config.torch_dtype", own.config_dtype, _KIND),
        Row("model.attn_implementation", f.model.attn_impl, _ATTENTION),
        Row("model.backend.attn", own.backend_attention, TEXT),
        Row("model.use_liger_kernel", own.liger, BOOLEAN, True, source=f"{SOURCE} nemo_automodel/_transformers/auto_model.py:648"),
        Row("model.num_nextn_predict_layers", f.model.mtp_layers, COUNT),
        Row(f"{_D}strategy", own.strategy, TEXT, "fsdp2", source=f"{SOURCE} nemo_automodel/recipes/_dist_utils.py parse_distributed_section"),
        Row(f"{_D}_target_", own.manager, TEXT),
        Row(f"{_D}tp_size", f.parallel.tp, _DEGREE),
        Row(f"{_D}pp_size", f.parallel.pp, _DEGREE),
        Row(f"{_D}cp_size", f.parallel.cp, _DEGREE),
        Row(f"{_D}ep_size", f.parallel.ep, _DEGREE),
        Row(f"{_D}dp_replicate_size", own.replicas, _DEGREE),
        Row(f"{_D}sequence_parallel", f.parallel.sp, BOOLEAN, False, source=f"{CONFIG} FSDP2Config"),
        Row(f"{_D}activation_checkpointing", own.ac, _AC, "none", source=f"{CONFIG} FSDP2Config"),
        Row(f"{_D}offload_policy", own.offload, ANYTHING),
        Row(f"{_D}mp_policy.param_dtype", own.param_dtype, _KIND, "bf16", source=f"{CONFIG} FSDP2Config.mp_policy"),
        Row(f"{_D}mp_policy.reduce_dtype", own.reduce_dtype, _KIND, "fp32", source=f"{CONFIG} FSDP2Config.mp_policy"),
        Row(f"{_D}autocast_dtype", own.autocast, _KIND),
        Row(f"{_D}reshard_after_forward", own.reshard, BOOLEAN),
        Row(f"{_D}defer_fsdp_grad_sync", own.defers, BOOLEAN, True, source=f"{CONFIG} FSDP2Config"),
        Row(f"{_D}enable_compile", own.layer_compiles, BOOLEAN, False, source=f"{CONFIG} FSDP2Config"),
        Row(f"{_D}moe.wrap_outer_model", own.wraps_outer, BOOLEAN, True, source=f"{CONFIG} MoEParallelizerConfig"),
        Row("model.backend.enable_fsdp_optimizations", own.defers_experts, BOOLEAN, False, source=f"{SOURCE} nemo_automodel/components/models/common/utils.py BackendConfig"),
        Row(f"{_D}zero_dp_strategy", own.zero, TEXT),
        Row(f"{_D}pipeline.pp_schedule", f.parallel.pp_schedule, TEXT),
        Row(f"{_D}pipeline.pp_microbatch_size", own.microbatch, POSITIVE),
        Row(f"{_S}local_batch_size", own.local, POSITIVE, 1, source=f"{RECIPE} setup"),
        Row(f"{_S}global_batch_size", own.global_batch, POSITIVE),
        Row(f"{_S}max_steps", "total_steps", POSITIVE),
        Row(f"{_S}ckpt_every_steps", own.ckpt_every, POSITIVE),
        Row(f"{_S}val_every_steps", own.val_every, POSITIVE),
        Row("optimizer._target_", own.optimizer, TEXT),
        Row("optimizer.fused", f.optimizer.fused, BOOLEAN, False, source="torch.optim.AdamW"),
        Row("optimizer.foreach", f.optimizer.foreach, BOOLEAN),
        Row("optimizer.master_weights", own.master, BOOLEAN),
        Row("clip_grad_norm.max_norm", f.optimizer.clip_norm, NUMBER, 1.0, source=f"{RECIPE} setup"),
        Row("loss_fn._target_", own.loss, TEXT),
        Row("loss_fn.fp32_upcast", own.upcast, BOOLEAN, True, source=f"{SOURCE} nemo_automodel/components/loss/masked_ce.py"),
        Row("peft._target_", own.peft, TEXT),
        Row("peft.dim", own.rank, POSITIVE, 8, source=f"{SOURCE} nemo_automodel/components/_peft/lora.py PeftConfig"),
        Row("peft.alpha", own.alpha, NUMBER, 32.0, source=f"{SOURCE} nemo_automodel/components/_peft/lora.py PeftConfig"),
        Row("peft.dropout", own.dropout, NUMBER, 0.0, source=f"{SOURCE} nemo_automodel/components/_peft/lora.py PeftConfig"),
        Row("peft.target_modules", own.targets, _PATTERNS),
        Row("peft.exclude_modules", own.exclude, _PATTERNS),
        Row("peft.match_all_linear", own.all_linear, BOOLEAN, False, source=f"{SOURCE} nemo_automodel/components/_peft/lora.py PeftConfig"),
        Row("peft.use_dora", own.dora, BOOLEAN, False, source=f"{SOURCE} nemo_automodel/components/_peft/lora.py PeftConfig"),
        Row("peft.lora_dtype", own.lora_dtype, _KIND),
        Row("quantization.load_in_4bit", own.load4, BOOLEAN, False, source=f"{SOURCE} nemo_automodel/components/quantization/qlora.py"),
        Row("quantization.load_in_8bit", own.load8, BOOLEAN, False, source=f"{SOURCE} nemo_automodel/components/quantization/qlora.py"),
        Row("quantization.bnb_4bit_use_double_quant", f.quant.double, BOOLEAN, True, source=f"{SOURCE} nemo_automodel/components/quantization/qlora.py"),
        Row("packed_sequence.packed_sequence_size", own.pack_tokens, COUNT, 0, source=f"{RECIPE} setup"),
        Row("packed_sequence.pack_size", own.vlm_pack, COUNT),
        Row("dataset.seq_length", own.longest, POSITIVE, aliases=("dataset.max_length", "packed_sequence.max_length")),
        Row("dataset.seq_len", own.mock_tokens, POSITIVE),
        Row("dataset.padding", own.pads, TEXT),
        Row("dataset.path_or_dataset", own.dataset_path, TEXT, aliases=("dataset.dataset_name", "dataset.path_or_dataset_id")),
        Row("dataloader.num_workers", f.data.workers, COUNT, 0, source="torchdata StatefulDataLoader"),
        Row("dataloader.pin_memory", f.data.pin_memory, BOOLEAN, False, source="torchdata StatefulDataLoader"),
        Row("dataloader.persistent_workers", f.data.persistent, BOOLEAN, False, source="torchdata StatefulDataLoader"),
        Row("validation_dataset._target_", own.validates, TEXT),
        Row("checkpoint.enabled", own.saves, BOOLEAN, True, source=f"{SOURCE} nemo_automodel/components/checkpoint/config.py"),
        Row("checkpoint.checkpoint_dir", f.save.dir, TEXT),
        Row("checkpoint.is_async", own.async_save, BOOLEAN, False, source=f"{SOURCE} nemo_automodel/components/checkpoint/config.py"),
        Row("checkpoint.max_recent_checkpoints", own.keep, POSITIVE),
        Row("compile.enabled", own.compiles, BOOLEAN, False, source=f"{SOURCE} nemo_automodel/components/utils/compile_utils.py"),
        Row("fp8.enabled", own.fp8, BOOLEAN, False, source=f"{SOURCE} nemo_automodel/components/quantization/fp8.py"),
        Row("freeze_config.freeze_vision_tower", own.freezes_vision, BOOLEAN),
        Row("teacher_model.pretrained_model_name_or_path", own.teacher, TEXT),
        Row("benchmark.num_nodes", own.bench_nodes, POSITIVE),
        Row("ci.nodes", own.ci_nodes, POSITIVE),
    ),
    known=known_keys("automodel"),
    # Sections that are calls take what their functions take.
    known_prefixes=(
        "model.", "teacher_model.", "dataset.", "validation_dataset", "dataloader.", "validation_dataloader", "optimizer.",
        "loss_fn.", "kd_loss_fn", "peft.", "processor.", "tokenizer.", "wandb.", "mlflow.", "comet.", "ci.", "benchmark.",
        "rng.", "lr_scheduler.", "fp8.", "quantization.", "qat.", "compile.", "packed_sequence.", "freeze_config.",
        "recipe_args.", "skypilot.", "nemo_run.", "slurm.", "dist_env.", "moe_metrics.", "tool_call_eval.", "mfu.", "prewarm.",
        "distributed.multimodal.", "distributed.moe.", "distributed.pipeline.", "distributed.mp_policy.", "distributed.offload_policy.",
        "distributed.tp_plan.", "embedding_row_repair", "neftune", "_", "recipe.", "nvtx", "dllm.", "dflash.", "separate_meshes", "teacher_distributed.",
    ),
    ignores_unknown=True,
    loader="pyyaml",
    section="training",
)  # fmt: skip

LAUNCHED = Table(
    name="automodel",
    rows=(Row("nproc_per_node", f.parallel.gpus_per_node, POSITIVE),),
    known=frozenset({"config", "c"}),
    section="launcher words",
)
