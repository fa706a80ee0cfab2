"""transformers' TrainingArguments: the rows that every dialect over its Trainer shares.

A dialect puts :data:`TRAINING_ARGUMENTS` into its table behind its own rows (an earlier row
of the same key or field wins) and adds :data:`KNOWN_TRAINING_ARGUMENTS` to its known keys.
What their private fields mean, and how a wish is said in them, is in :mod:`.training_arguments`.

Read from transformers 5.23 (``HF`` below is
``src/transformers``); where 5.8 or 4.57 differ, the version that the run names decides.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from oomlint.dialects.accelerate.keys import (
    BACKWARD_PREFETCH,
    FSDP_VERSION,
    RESHARD,
    STATE_DICT,
    WRAP,
)
from oomlint.dialects.common.fields import ref
from oomlint.dialects.deepspeed.keys import DEEPSPEED
from oomlint.dialects.key_releases import key_spans
from oomlint.dialects.kinds import (
    BOOLEAN,
    COUNT,
    LIMIT,
    LIST,
    NUMBER,
    POSITIVE,
    TEXT,
    TRAINER_OPTIMIZER,
    BadValue,
    Kind,
    choice,
    read_boolean,
    read_text,
)
from oomlint.dialects.releases import FUSED_BY_TRAINER
from oomlint.dialects.table import Renaming, Row, Table, known_keys
from oomlint.dialects.trainer.fields import hf, hf_fsdp
from oomlint.documents.base import Name
from oomlint.plan.fields import f

KNOWN_TRAINING_ARGUMENTS = known_keys("training_arguments")


def _read_fsdp(raw: Any) -> tuple[str, ...]:
    """``true``, ``"full_shard auto_wrap"`` or a list of such words; nothing is no FSDP."""
    if isinstance(raw, (list, tuple)):
        return tuple(str(word).lower() for word in raw)
    words = tuple(str(raw).lower().split())
    if len(words) == 1:
        try:
            return ("full_shard", "auto_wrap") if read_boolean(words[0]) else ()
        except BadValue:  # no boolean, so the name of a strategy
            return words
    return words


def _read_resume(raw: Any) -> bool:
    """A path, or a boolean: go on from that checkpoint, or from the last one."""
    try:
        return read_boolean(raw)
    except BadValue:
        return bool(str(raw).strip())


_ENUMERATIONS = frozenset(
    {"EvaluationStrategy", "IntervalStrategy", "SaveStrategy", "OptimizerNames"}
)
# Whose value is not its name in lower case.
_MEMBERS = {
    "ADAMW_BNB": "adamw_bnb_8bit",
    "RMSPROP_8BIT": "rmsprop_bnb_8bit",
    "RMSPROP_32BIT": "rmsprop_bnb_32bit",
}


def _or_member(kind: Kind) -> Kind:
    """The same kind where a member of an enumeration says the word that it stands for
    (transformers 5.23 trainer_utils.py:240, training_args.py:118): ``IntervalStrategy.STEPS``."""

    def read(raw: Any) -> Any:
        *_, holder, member = ("", *str(raw).split("."))
        if not isinstance(raw, Name):
            return kind.read(raw)
        if holder not in _ENUMERATIONS:
            raise BadValue("expected a member of the enumeration of these")
        return kind.read(_MEMBERS.get(member, member.lower()))

    return replace(kind, read=read, names=True)


RESUME = Kind(_read_resume, schema={"type": ["boolean", "string"]})
_FSDP = Kind(_read_fsdp, lambda words: " ".join(words), {"type": ["boolean", "string", "array"]})
INTERVAL = _or_member(choice({"no": "no", False: "no", "steps": "steps", "epoch": "epoch"}))
_SAVE_INTERVAL = _or_member(
    choice({"no": "no", False: "no", "steps": "steps", "epoch": "epoch", "best": "best"})
)
_OPTIMIZER = _or_member(TRAINER_OPTIMIZER)


def _read_config_file(raw: Any) -> str | None:
    """The name of a file; an empty one and a ``False`` of Python's are none (transformers 4.31 and 5.23 training_args.py: ``if
    self.deepspeed``), and a bare ``--deepspeed`` is the switch of deepspeed.add_config_arguments (DeepSpeed edaa7221 deepspeed/__init__.py:270), for
    loops that have it beside their file."""
    return None if raw in ("", False, True, "True", "true") else read_text(raw)


_CONFIG_FILE = Kind(_read_config_file, schema=TEXT.schema)

SOURCE = "transformers 5.23 training_args.py"

FSDP_ROWS = (
    Row("version", hf_fsdp.version, FSDP_VERSION),
    Row("min_num_params", hf_fsdp.min_params, COUNT),
    Row("transformer_layer_cls_to_wrap", hf_fsdp.wrap_classes, LIST),
    Row("auto_wrap_policy", hf_fsdp.wrap, WRAP),
    Row("cpu_offload", hf_fsdp.cpu_offload, BOOLEAN),
    Row("reshard_after_forward", hf_fsdp.reshard_after_forward, RESHARD),
    Row("state_dict_type", hf_fsdp.state_dict, STATE_DICT),
    Row("cpu_ram_efficient_loading", hf_fsdp.cpu_ram_efficient, BOOLEAN),
    Row("activation_checkpointing", hf_fsdp.activation_checkpointing, BOOLEAN),
    Row("backward_prefetch", hf_fsdp.backward_prefetch, BACKWARD_PREFETCH),
    Row("forward_prefetch", hf_fsdp.forward_prefetch, BOOLEAN),
    Row("limit_all_gathers", hf_fsdp.limit_all_gathers, BOOLEAN),
    Row("use_orig_params", hf_fsdp.use_orig_params, BOOLEAN),
    Row("sync_module_states", hf_fsdp.sync_module_states, BOOLEAN),
)
_LOST_OFFLOAD = Row("offload_params", hf.fsdp_lost_offload, BOOLEAN)
_XLA = Row("xla", hf_fsdp.xla, BOOLEAN)
_FSDP_KNOWN = ("xla_fsdp_v2", "xla_fsdp_settings", "xla_fsdp_grad_ckpt")

FSDP_CONFIG = Table(
    name="fsdp_config",
    rows=(*FSDP_ROWS, _XLA, _LOST_OFFLOAD),
    known=frozenset(_FSDP_KNOWN),
    # training_args.py _process_fsdp_args reads the keys it knows.
    ignores_unknown=True,
    strip_prefix="fsdp_",
    section="fsdp",
)
"""A ``fsdp_config`` in a JSON file of its own; inside a config its keys are rows below."""

_ACTIVATION_KWARGS = "gradient_checkpointing_kwargs"

TRAINING_ARGUMENTS = (
    Row(
        "per_device_train_batch_size", f.batch.micro, POSITIVE, default=8,
        aliases=("per_gpu_train_batch_size",), source=f"{SOURCE}:777",
    ),
    Row("gradient_accumulation_steps", f.batch.grad_accum, POSITIVE, default=1, source=f"{SOURCE}:849"),
    Row(
        "per_device_eval_batch_size", f.batch.eval_micro, POSITIVE, default=8,
        aliases=("per_gpu_eval_batch_size",), source=f"{SOURCE}:1128",
    ),
    Row("auto_find_batch_size", f.batch.auto_micro, BOOLEAN, default=False, source=f"{SOURCE}:989"),
    Row("max_steps", "total_steps", LIMIT, source=f"{SOURCE}:779"),
    Row(
        "optim", f.optimizer.name, _OPTIMIZER, default="adamw_torch_fused", source=f"{SOURCE}:806",
        changes=FUSED_BY_TRAINER, near=("lr_scheduler_type", "learning_rate"),
    ),
    Row("optim_args", hf.optim_args, TEXT),
    Row("optim_target_modules", hf.optim_targets, LIST),
    Row("adafactor", hf.adafactor, BOOLEAN, source="transformers 4.57 training_args.py:1303"),
    Row("bf16", hf.bf16, BOOLEAN, default=False, source=f"{SOURCE}:874"),
    Row("fp16", hf.fp16, BOOLEAN, default=False, source=f"{SOURCE}:880"),
    Row("tf32", f.precision.tf32, BOOLEAN),
    Row("bf16_full_eval", hf.bf16_full_eval, BOOLEAN),
    Row("fp16_full_eval", hf.fp16_full_eval, BOOLEAN),
    Row(
        "gradient_checkpointing", hf.checkpointing, BOOLEAN, default=False,
        aliases=("activation_checkpointing",), source=f"{SOURCE}:908",
    ),
    Row(
        f"{_ACTIVATION_KWARGS}.use_reentrant", hf.reentrant, BOOLEAN,
        aliases=("activation_checkpointing_kwargs.use_reentrant",),
    ),
    Row(
        f"{_ACTIVATION_KWARGS}.every_n_layers", hf.checkpoint_every, POSITIVE,
        aliases=("activation_checkpointing_kwargs.every_n_layers",),
    ),
    Row(
        f"{_ACTIVATION_KWARGS}.offload", hf.checkpoint_offload, BOOLEAN,
        aliases=("activation_checkpointing_kwargs.offload",),
    ),
    Row("use_liger_kernel", hf.liger, BOOLEAN, default=False, aliases=("use_liger",), source=f"{SOURCE}:957"),
    Row("liger_kernel_config.fused_linear_cross_entropy", hf.liger_flce, BOOLEAN),
    Row("torch_compile", f.compile.enabled, BOOLEAN, default=False, source=f"{SOURCE}:940"),
    Row("torch_compile_mode", f.compile.mode, TEXT),
    Row("label_smoothing_factor", hf.label_smoothing, NUMBER, default=0.0, source=f"{SOURCE}:869"),
    Row("deepspeed", ref.deepspeed, _CONFIG_FILE, table=DEEPSPEED, source=f"{SOURCE}:1463"),
    Row("fsdp", hf.fsdp_words, _FSDP, source=f"{SOURCE}:1447"),
    *(
        Row(
            f"fsdp_config.{row.key}", row.field, row.kind,
            aliases=(f"fsdp_config.fsdp_{row.key}",), source=f"{SOURCE}:2775",
        )
        for row in (*FSDP_ROWS, _XLA)
    ),
    Row(
        "fsdp_config.offload_params", hf.fsdp_lost_offload, BOOLEAN,
        aliases=("fsdp_config.fsdp_offload_params", "fsdp_offload_params"),
        source=f"{SOURCE}:2775 does not read it",
    ),
    Row("fsdp_config", ref.fsdp_config, Kind(lambda raw: raw if isinstance(raw, str) else None)),
    Row("fsdp_transformer_layer_cls_to_wrap", hf_fsdp.wrap_classes, LIST),
    Row("fsdp_min_num_params", hf_fsdp.min_params, COUNT),
    Row("parallelism_config.tp_size", f.parallel.tp, POSITIVE),
    Row("parallelism_config.cp_size", f.parallel.cp, POSITIVE),
    Row("parallelism_config.sp_size", f.parallel.ulysses, POSITIVE),
    Row("parallelism_config.dp_replicate_size", f.parallel.dp_replicate, POSITIVE),
    Row("parallelism_config.dp_shard_size", f.parallel.dp_shard, POSITIVE),
    Row("ddp_bucket_cap_mb", f.parallel.ddp.bucket_mb, NUMBER, default=25.0, source="torch 2.9 DistributedDataParallel"),
    Row("ddp_find_unused_parameters", f.parallel.ddp.find_unused, BOOLEAN),
    Row("ddp_static_graph", f.parallel.ddp.static_graph, BOOLEAN, default=False, source=f"{SOURCE}:1422"),
    Row("do_eval", hf.do_eval, BOOLEAN),
    Row(
        "eval_strategy", f.eval.strategy, INTERVAL, default="no",
        aliases=("evaluation_strategy",), source=f"{SOURCE}:1106",
    ),
    Row("eval_steps", f.eval.every, NUMBER),
    Row("eval_accumulation_steps", f.eval.accumulation_steps, POSITIVE),
    Row("eval_on_start", f.eval.on_start, BOOLEAN, default=False, source=f"{SOURCE}:1135"),
    Row("prediction_loss_only", hf.loss_only, BOOLEAN, default=False, source=f"{SOURCE}:1131"),
    Row("batch_eval_metrics", hf.batch_metrics, BOOLEAN, default=False, source=f"{SOURCE}:1155"),
    Row("resume_from_checkpoint", f.load.resume, RESUME),
    Row("torch_empty_cache_steps", f.env.empty_cache_steps, POSITIVE),
    Row("logging_steps", hf.logging_steps, NUMBER, default=500, source=f"{SOURCE}:1001"),
    Row("save_strategy", f.save.strategy, _SAVE_INTERVAL, default="steps", source=f"{SOURCE}:1177"),
    Row("save_steps", f.save.every, NUMBER, default=500, source=f"{SOURCE}:1183"),
    Row("save_total_limit", f.save.keep, LIMIT, source=f"{SOURCE}:1201"),
    Row("save_only_model", f.save.save_only_model, BOOLEAN, default=False, source=f"{SOURCE}:1171"),
    Row("load_best_model_at_end", f.save.load_best_at_end, BOOLEAN, default=False, source=f"{SOURCE}:1254"),
    Row("output_dir", f.save.dir, TEXT),
    Row("dataloader_num_workers", f.data.workers, COUNT, default=0, source=f"{SOURCE}:1323"),
    Row("dataloader_prefetch_factor", f.data.prefetch, POSITIVE),
    Row("dataloader_pin_memory", f.data.pin_memory, BOOLEAN, default=True, source=f"{SOURCE}:1332"),
    Row("dataloader_persistent_workers", f.data.persistent, BOOLEAN, default=False, source=f"{SOURCE}:1335"),
)  # fmt: skip

TRANSFORMERS = key_spans("transformers", "training_arguments")
"""Which releases of transformers have which of these arguments."""

SEQ2SEQ_ARGUMENTS = (
    Row("predict_with_generate", f.eval.generate, BOOLEAN, default=False, source="transformers 5.23 training_args_seq2seq.py"),
    Row("generation_max_length", f.eval.max_new_tokens, POSITIVE),
)  # fmt: skip
"""What Seq2SeqTrainingArguments adds."""

RENAMED_ARGUMENTS = (
    Renaming(
        "evaluation_strategy", "eval_strategy", "transformers 4.51",
        source="transformers 4.49 and 4.51 training_args.py",
    ),
    Renaming(
        "per_gpu_train_batch_size", "per_device_train_batch_size", "transformers 5.0",
        source="transformers 4.57 and 5.23 training_args.py",
    ),
    Renaming(
        "per_gpu_eval_batch_size", "per_device_eval_batch_size", "transformers 5.0",
        source="transformers 4.57 and 5.23 training_args.py",
    ),
    Renaming(
        "group_by_length", None, "transformers 5.0",
        advice="train_sampling_strategy=group_by_length says the same",
        source="transformers 5.23 training_args.py:1380",
    ),
    Renaming(
        "adafactor", None, "transformers 5.0", advice="optim=adafactor says the same",
        source="transformers 4.57 and 5.23 training_args.py",
    ),
)  # fmt: skip
"""Arguments that had another name in earlier versions and decide memory."""

KNOWN_PREFIXES = (
    "accelerator_config.",
    "activation_checkpointing_kwargs.",
    "fsdp_config.xla",
    "gradient_checkpointing_kwargs.",
    "liger_kernel_config.",
    "lr_scheduler_kwargs.",
    "optim_args.",
    "parallelism_config.",
)
"""Dictionaries whose further keys are no business of ours."""
