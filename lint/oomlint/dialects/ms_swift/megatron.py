"""Megatron-SWIFT: ``megatron sft|pt|rlhf`` of ms-swift, options and YAML, Ray's included.

Read from ms-swift 3602360a (4.6.0.dev0) ``swift/megatron`` (``SM`` below) and its branches from
release/3.2. Megatron-core trains the model; keys are Megatron's own where it has one.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from oomlint.dialects.base import Claim, Dialect, Wishes, expressed
from oomlint.dialects.draft import Draft
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
from oomlint.dialects.law import express_global_batch, finish_quant, finish_world, is_adapter_run
from oomlint.dialects.machine.launch import Launch
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.ms_swift.effects import finish_length, finish_vision
from oomlint.dialects.ms_swift.keys import (
    ENV_MAPPING,
    KNOWN,
    MODEL_ROWS,
    RLHF_ROWS,
    TUNER_ROWS,
    command_line,
)
from oomlint.dialects.ms_swift.launch import (
    command_of,
    config_block,
    finish_ranks,
    is_megatron,
    kind_of,
    launch_claims,
)
from oomlint.dialects.ms_swift.megatron_fixes import NO_WAY, WAYS
from oomlint.dialects.ms_swift.weights import (
    finish_full,
    finish_load,
    finish_lora,
    finish_models,
    finish_task,
)
from oomlint.dialects.table import Row, Table
from oomlint.dialects.trainer.keys import LENGTH
from oomlint.documents import JSON_SUFFIXES, SHELL_SUFFIXES, YAML_SUFFIXES
from oomlint.documents.base import Document, Mapping
from oomlint.errors import CannotEdit
from oomlint.frozen import replace

_ARGS = "ms-swift 3602360a megatron/arguments/megatron_args.py"

_RECOMPUTE = choice({"selective": "selective_op", "full": "full", "none": "none"})
_TUNERS = choice({"full": "full", "lora": "lora", "lora_llm": "lora_llm"}, write={"qlora": "lora"})
_STATE = choice({"fp32": "fp32", "bf16": "bf16", "fp16": "fp16", "fp8": "fp8"})


def _read_converted(raw: Any) -> str:
    """A folder of converted weights, usually the model's name and ``-mcore``."""
    return str(raw).rstrip("/").removesuffix("-mcore")


_RUN_ROWS = (
    *MODEL_ROWS,
    Row("mcore_model", "model.id", Kind(_read_converted), aliases=("load",)),
    Row("tuner_type", "swift.tuner", _TUNERS, aliases=("train_type",), default="full", source=f"{_ARGS}:449"),
    *TUNER_ROWS,
    *RLHF_ROWS,
    Row("task_type", "swift.task", TEXT),
    Row("seq_length", "mswift.seq_length", LENGTH),
    Row("micro_batch_size", "batch.micro", POSITIVE, default=1, source=f"{_ARGS}:482"),
    Row("global_batch_size", "mswift.global_batch", POSITIVE, default=16, source=f"{_ARGS}:483"),
    Row("recompute_granularity", "checkpointing.mode", _RECOMPUTE, default="selective_op", source=f"{_ARGS}:484"),
    Row("recompute_method", "mswift.recompute_method", choice({"uniform": "uniform", "block": "block"})),
    Row("recompute_num_layers", "mswift.recompute_layers", POSITIVE),
    Row("recompute_modules", "checkpointing.recompute_modules", LIST, default=("core_attn",), source=f"{_ARGS}:487"),
    Row("cross_entropy_loss_fusion", "mswift.fused_loss", BOOLEAN, default=True, source=f"{_ARGS}:496"),
    Row("attention_backend", "model.attn_impl", choice({"flash": "flash2", "flash_2": "flash2", "flash_3": "flash3", "flash_4": "flash3", "fused": "flash2", "auto": "flash2", "unfused": "eager", "local": "eager"}), default="flash2", source=f"{_ARGS}:499"),
    Row("optimizer", "optimizer.name", TEXT, default="adam", source=f"{_ARGS}:500"),
    Row("optimizer_cpu_offload", "offload.optimizer", switch(on="cpu", off="none"), default="none", source=f"{_ARGS}:501"),
    Row("optimizer_offload_fraction", "offload.optimizer_ratio", NUMBER, default=1.0, source=f"{_ARGS}:502"),
    Row("use_precision_aware_optimizer", "parallel.megatron.precision_aware_optim", BOOLEAN, default=False, source=f"{_ARGS}:504"),
    Row("main_grads_dtype", "mswift.main_grads", _STATE, default="fp32", source=f"{_ARGS}:505"),
    Row("main_params_dtype", "mswift.main_params", _STATE, default="fp32", source=f"{_ARGS}:506"),
    Row("exp_avg_dtype", "mswift.exp_avg", _STATE, default="fp32", source=f"{_ARGS}:507"),
    Row("exp_avg_sq_dtype", "mswift.exp_avg_sq", _STATE, default="fp32", source=f"{_ARGS}:508"),
    Row("dataloader_num_workers", "data.workers", COUNT, aliases=("num_workers",), default=4, source=f"{_ARGS}:516"),
    Row("dataloader_prefetch_factor", "data.prefetch", POSITIVE, default=2, source=f"{_ARGS}:519"),
    Row("padding_free", "swift.padding_free", BOOLEAN, default=True, source=f"{_ARGS}:524"),
    Row("output_dir", "save.dir", TEXT, aliases=("save",)),
    Row("save_steps", "save.every", NUMBER, aliases=("save_interval",), default=500, source=f"{_ARGS}:563"),
    Row("save_strategy", "save.strategy", choice({"steps": "steps", "epoch": "epoch"}), default="steps", source=f"{_ARGS} save_strategy"),
    Row("save_total_limit", "save.keep", LENGTH),
    Row("no_save_optim", "save.save_only_model", BOOLEAN, default=False, source=f"{_ARGS}:564"),
    Row("async_save", "save.async_", switch(on="thread", off="none")),
    Row("use_distributed_optimizer", "parallel.megatron.dist_optimizer", BOOLEAN, default=True, source=f"{_ARGS}:587"),
    Row("overlap_param_gather", "parallel.megatron.overlap_param_gather", BOOLEAN, default=False, source=f"{_ARGS}:609"),
    Row("tensor_model_parallel_size", "parallel.tp", POSITIVE, default=1, source=f"{_ARGS}:592"),
    Row("pipeline_model_parallel_size", "parallel.pp", POSITIVE, default=1, source=f"{_ARGS}:593"),
    Row("virtual_pipeline_model_parallel_size", "parallel.vpp", POSITIVE, source=f"{_ARGS}:615"),
    Row("context_parallel_size", "parallel.cp", POSITIVE, default=1, source=f"{_ARGS}:603"),
    Row("expert_model_parallel_size", "parallel.ep", POSITIVE, default=1, source=f"{_ARGS}:618"),
    Row("expert_tensor_parallel_size", "parallel.etp", POSITIVE, default=1, source=f"{_ARGS}:619"),
    Row("sequence_parallel", "parallel.sp", BOOLEAN, default=False, source=f"{_ARGS}:602"),
    Row("fp8_format", "mswift.fp8", TEXT),
    Row("fp16", "mswift.fp16", BOOLEAN),
    Row("bf16", "mswift.bf16", BOOLEAN),
    Row("train_iters", "total_steps", POSITIVE),
    Row("eval_iters", "mswift.eval_iters", INTEGER),
    Row("eval_steps", "eval.every", NUMBER, aliases=("eval_interval",)),
    Row("attn_impl", "mswift.attn_impl", TEXT),
    Row("vit_gradient_checkpointing", "swift.vit_checkpointing", BOOLEAN),
)  # fmt: skip

# A Ray config gives training and generation a group of GPUs each (swift/ray/megatron).
_TRAIN_GROUP = Table(
    name="train group",
    rows=(*_RUN_ROWS, Row("gpus", "parallel.gpus_per_node", POSITIVE)),
    known=KNOWN,
    ignores_unknown=None,
    section="training",
)
_ROLLOUT_GROUP = Table(
    name="rollout group",
    rows=RLHF_ROWS,
    known=KNOWN | {"gpus"},
    ignores_unknown=None,
    section="training",
)

MEGATRON_SWIFT = Table(
    name="Megatron-SWIFT config",
    rows=(
        *_RUN_ROWS,
        Row("ENV", "swift.env", Kind(lambda raw: None), table=ENV_MAPPING),
        Row("train", "mswift.train", Kind(lambda raw: None), table=_TRAIN_GROUP),
        Row("rollout", "mswift.rollout", Kind(lambda raw: None), table=_ROLLOUT_GROUP),
    ),
    known=KNOWN | {"colocate_groups", "teacher", "group_by_length", "save_checkpoint"},
    known_prefixes=("teacher.", "ENV.", "ref.", "megatron_extra_kwargs."),
    ignores_unknown=False,
    section="training",
)

_COMMANDS = ("sft", "pt", "rlhf")


@cache
def _options(command: str) -> Table | None:
    """The keys that ``megatron`` takes with a command, ``None`` if it trains nothing."""
    keys = replace(MEGATRON_SWIFT, rows=_RUN_ROWS)
    return command_line(keys, f"megatron {command}") if command in _COMMANDS else None


class MegatronSwift(Dialect):
    name = "megatron-swift"
    markers = (
        b"megatron",
        b"tensor_model_parallel_size",
        b"recompute_granularity",
        b"micro_batch_size",
    )
    suffixes = (*YAML_SUFFIXES, *JSON_SUFFIXES, *SHELL_SUFFIXES)

    def recognise(self, document: Document) -> Iterable[Claim]:
        for root in getattr(document, "roots", ()):
            if isinstance(root, Mapping) and is_megatron(root):
                kind = kind_of(root)
                if kind is not None:
                    block = config_block(document, root, MEGATRON_SWIFT)
                    yield Claim(self, kind, document, (block,), framework="ms-swift")
        for launch in launches(document):
            found = _command(launch)
            if found is not None:
                for claim in launch_claims(self, launch, found, _options):
                    yield replace(claim, framework="ms-swift")

    def finish(self, draft: Draft) -> None:
        finish_ranks(draft)
        _finish_parallel(draft)
        _finish_objective(draft)
        _finish_trainable(draft)
        finish_load(draft, old=False)
        _finish_precision(draft)
        _finish_recompute(draft)
        _finish_sequences(draft)
        _finish_rest(draft)

    def express(self, changes: Wishes, draft: Draft) -> dict[str, Any]:
        if any(name.startswith(("parallel.zero.", "parallel.fsdp.")) for name in changes):
            raise CannotEdit("Megatron shards by its own degrees")
        own = expressed(changes, draft, WAYS, NO_WAY)
        unknown = "global_batch_size follows from the number of GPUs, which is not known"
        express_global_batch(own, draft, "mswift.global_batch", unknown)
        return super().express(own, draft)


def _command(launch: Launch) -> tuple[str, int] | None:
    return command_of(launch, "megatron", "swift.cli._megatron")


def _finish_parallel(draft: Draft) -> None:
    finish_world(draft)
    draft.derive("parallel.backend", "megatron", "parallel.tp", source=_ARGS)
    if (draft.get("parallel.tp") or 1) <= 1:
        draft.override("parallel.sp", False, "parallel.tp", source=f"{_ARGS} __post_init__")
    micro, dp = draft.get("batch.micro"), draft.get("parallel.dp")
    total = draft.get("mswift.global_batch")
    if micro and dp and total:
        draft.derive(
            "batch.grad_accum", max(1, total // (micro * dp)), "mswift.global_batch", "batch.micro",
            "parallel.dp", source=f"{_ARGS} _init_distributed",
        )  # fmt: skip
        draft.derive("batch.global", total, "mswift.global_batch")
    draft.derive("batch.eval_micro", micro, "batch.micro")


def _finish_objective(draft: Draft) -> None:
    names = {block.table.name for block in draft.blocks}
    kind = draft.get("swift.rlhf")
    if kind is None:
        kind = (
            "dpo" if "megatron rlhf" in names else "pretrain" if "megatron pt" in names else "sft"
        )
    if kind != "sft" or not finish_task(draft):
        draft.derive("objective.kind", kind, "swift.rlhf")
        # swift/dataset/packing.py create_packed_idx: a pack's length counts both sides of its pairs.
        pairs = 2 if kind in ("dpo", "rm") and not draft.get("swift.packing") else 1
        draft.derive("objective.pairs_per_sample", pairs, "swift.rlhf", "swift.packing")
    finish_models(draft, kind)


def _finish_trainable(draft: Draft) -> None:
    tuner = draft.get("swift.tuner")
    draft.default("model.vision.freeze_tower", True, f"{_ARGS}:451")
    finish_quant(draft, bits=None)
    if draft.says("swift.tuner") or not draft.is_unknown("swift.tuner"):
        if tuner in ("lora", "lora_llm"):
            draft.derive("trainable.method", "lora", "swift.tuner")
            finish_lora(draft, draft.get("swift.lora_rank"), old=False)
            # mcore-bridge: all-linear takes grouped experts in.
            if draft.get("trainable.targets") == "all_linear":
                draft.default(
                    "trainable.target_params",
                    "experts",
                    "ms-swift 3602360a megatron/utils/utils.py",
                )
        else:
            finish_full(draft)


def _finish_precision(draft: Draft) -> None:
    """16-bit weights, gradients summed in fp32, fp32 weights and states in the optimizer
    (SM arguments _map_dtype: main_grads_dtype fp32 turns on accumulation in fp32)."""
    half = draft.get("load.dtype")
    if draft.get("mswift.fp16"):
        half = "fp16"
    elif draft.get("mswift.bf16"):
        half = "bf16"
    if half == "fp32" and not draft.get("swift.dtype"):
        half = "fp16"
    aware = bool(draft.get("parallel.megatron.precision_aware_optim"))
    grads = draft.get("mswift.main_grads")
    moments = [draft.get(name) for name in ("mswift.exp_avg", "mswift.exp_avg_sq")]
    # Without the precision-aware optimizer Megatron-core keeps all of them in fp32.
    state = moments[0] if aware and moments[0] == moments[1] else "fp32"
    inputs = ("load.dtype", "mswift.main_grads", "parallel.megatron.precision_aware_optim")
    for name, dtype in (
        ("param", half), ("grad", grads), ("master", draft.get("mswift.main_params") if aware else "fp32"),
        ("optim_state", state), ("compute", half), ("comm", grads), ("logits", half),
    ):  # fmt: skip
        draft.derive(f"precision.{name}", dtype, *inputs, source=f"{_ARGS} _map_dtype")
    draft.derive("precision.autocast", False, "load.dtype")
    if is_adapter_run(draft):
        draft.derive(
            "trainable.adapter_dtype",
            draft.get("swift.lora_dtype") or half,
            "load.dtype",
            "swift.lora_dtype",
        )
    if draft.get("mswift.fp8"):
        draft.derive("precision.fp8_train", "te", "mswift.fp8")
    name = str(draft.get("optimizer.name"))
    kind = {"adam": "adamw", "sgd": "sgd", "muon": "muon", "dist_muon": "muon"}.get(name, "other")
    draft.derive("optimizer.kind", kind, "optimizer.name")
    draft.derive(
        "optimizer.fused", True, "optimizer.name", source="Megatron-core: TE or apex FusedAdam"
    )
    draft.derive("offload.params", "none", "parallel.backend", source=_ARGS)


def _finish_recompute(draft: Draft) -> None:
    """``block`` recomputes the first layers of each stage only (Megatron-core
    transformer_block.py _checkpointed_forward)."""
    draft.derive("checkpointing.source", "megatron", "checkpointing.mode")
    draft.derive("checkpointing.reentrant", True, "checkpointing.mode")
    draft.derive("checkpointing.offload", "none", "checkpointing.mode")
    layers = draft.get("mswift.recompute_layers")
    dims = draft.get("model.dims")
    block = draft.get("mswift.recompute_method") == "block"
    if draft.get("checkpointing.mode") != "full" or not block or not layers or dims is None:
        return
    stage = -(-(dims.layers or 1) // (draft.get("parallel.pp") or 1))
    if layers < stage:
        draft.override(
            "checkpointing.mode",
            "block_partial",
            "mswift.recompute_method",
            "mswift.recompute_layers",
        )
        draft.derive(
            "checkpointing.every_n", max(1, round(stage / layers)), "mswift.recompute_layers"
        )


def _finish_sequences(draft: Draft) -> None:
    draft.derive("seq.max_len", draft.get("mswift.seq_length"), "mswift.seq_length")
    finish_length(draft, old=False)
    packs = bool(draft.get("swift.packing"))
    draft.derive("seq.packing", "bfd" if packs else "none", "swift.packing")
    free = packs or bool(draft.get("swift.padding_free"))
    draft.derive("seq.pad", "none" if free else "longest", "swift.packing", "swift.padding_free")
    draft.derive("loss.logits_materialised", "full", "mswift.fused_loss")
    # Megatron-core fusions/fused_cross_entropy.py works in place on fp32 logits.
    draft.default("loss.upcast_fp32", True, "Megatron-core tensor_parallel/cross_entropy.py")
    finish_vision(draft)


def _finish_rest(draft: Draft) -> None:
    validates = bool(draft.get("swift.val_dataset")) or (draft.get("swift.val_ratio") or 0) > 0
    validates = validates and draft.get("mswift.eval_iters") != 0
    draft.derive("eval.enabled", validates, "swift.val_dataset", "swift.val_ratio")
    draft.derive("eval.strategy", "steps" if validates else "no", "swift.val_dataset")
    draft.default("eval.keeps_logits", False, "ms-swift 3602360a megatron/trainers")
    contents: tuple[str, ...] = ("adapter",) if is_adapter_run(draft) else ("model",)
    if not draft.get("save.save_only_model"):
        contents = (*contents, "optimizer", "scheduler", "rng")
    draft.derive("save.contents", contents, "save.save_only_model", "swift.tuner")
    draft.derive(
        "save.unit", "epochs" if draft.get("save.strategy") == "epoch" else "steps", "save.strategy"
    )
    draft.default("save.keep", "all", f"{_ARGS} save_total_limit")
