"""What transformers' Trainer makes of its arguments.

A dialect over the Trainer calls :func:`finish_training_arguments` in ``finish``, *after* it has
settled ``trainable.*``, ``objective.*`` and ``quant.*``, and *before* it overrides what its own
framework does differently (later derivations win over earlier ones). That call also folds in an
Accelerate YAML or ``accelerate launch`` flags, see :mod:`oomlint.dialects.accelerate.effects`, so
nobody else needs to. In ``express`` it calls ``fixes.express_training_arguments``, after it has
taken out the wishes that its own keys can say.

Read from transformers 5.23 (``HF`` below is
``src/transformers``); where 5.8 or 4.57 differ, the version that the run names decides.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.accelerate.effects import accelerate_amp, fold_accelerate
from oomlint.dialects.changes import (
    FSDP2_BY_DEFAULT,
    FUSED_OPTIMIZER,
    FUSED_WITH_TORCH,
    NOT_REENTRANT,
)
from oomlint.dialects.deepspeed.dialect import take_wished_preset, upgrade_old_offload
from oomlint.dialects.draft import Draft
from oomlint.dialects.kinds import OPTIMIZER_KINDS
from oomlint.dialects.law import (
    finish_backend,
    finish_batch,
    finish_deepspeed,
    finish_fsdp,
    finish_trainer_precision,
    finish_world,
    is_adapter_run,
)
from oomlint.dialects.liger import liger_patches
from oomlint.dialects.trainer.arguments import FSDP_ROWS, SOURCE

NEWEST = (5, 23)
"""The transformers version whose defaults hold where a run names none."""


def finish_training_arguments(
    draft: Draft, *, load_dtype: str | None, newest: tuple[int, int] = NEWEST
) -> None:
    """Everything that transformers' Trainer makes of its arguments.

    Args:
        load_dtype: what the dialect loads the weights in (``fp32``, ``bf16``, ``fp16``);
            ``None`` where not known.
        newest: the newest transformers that the framework allows; its defaults hold where
            the run names no version.
    """
    _narrow_versions(draft, newest)
    take_wished_preset(draft)
    fold_accelerate(draft)
    finish_world(draft)
    _fold_fsdp(draft)
    _finish_checkpointing(draft)
    finish_fsdp(draft)
    finish_backend(draft)
    upgrade_old_offload(draft)
    finish_deepspeed(draft, under_trainer=True)
    # HF/integrations/deepspeed.py: TrainingArguments exist before the model does, so
    # from_pretrained finds their config and opens zero.Init.
    stage3 = draft.get("parallel.backend") == "zero" and draft.get("parallel.zero.stage") == 3
    draft.default("load.zero3_init", stage3, "transformers 5.23 integrations/deepspeed.py")
    finish_batch(draft)
    amp = finish_amp(draft)
    finish_trainer_precision(draft, amp=amp, load_dtype=load_dtype)
    _finish_ddp(draft)
    _finish_loss(draft)
    _take_older_optimizer(draft)
    finish_optimizer(draft)
    _finish_eval(draft)
    _finish_save(draft)


def _narrow_versions(draft: Draft, newest: tuple[int, int]) -> None:
    """Where nobody pins transformers, it is the newest that the framework allows, and what that
    one requires is as new (transformers 5.23 setup.py, integrations/peft.py MIN_PEFT_VERSION)."""
    draft.narrow("transformers", beyond=(newest[0], newest[1] + 1))
    if draft.version("transformers") is None:
        draft.narrow("torch", oldest=(2, 4))
        draft.narrow("accelerate", oldest=(1, 1))
        draft.narrow("peft", oldest=(0, 18))


def _take_older_optimizer(draft: Draft) -> None:
    setting = draft.settings.get("optimizer.name")
    if setting is None or setting.origin.kind != "default":
        return
    for change in (FUSED_OPTIMIZER, FUSED_WITH_TORCH):
        if not draft.has(change):
            draft.forget("optimizer.name")
            draft.default("optimizer.name", "adamw_torch", change.source)


def finish_amp(draft: Draft) -> str:
    """Mixed precision in force: the Trainer's flags, else Accelerate's setting.

    HF/training_args.py __post_init__ 5: fp16, then bf16, then ACCELERATE_MIXED_PRECISION.
    """
    if draft.get("hf.fp16"):
        amp = "fp16"
    elif draft.get("hf.bf16"):
        amp = "bf16"
    else:
        amp = accelerate_amp(draft)
    draft.derive("amp", amp, "hf.bf16", "hf.fp16", "accelerate.mixed_precision")
    full = "fp16" if draft.get("hf.fp16_full_eval") else None
    full = "bf16" if draft.get("hf.bf16_full_eval") else full
    draft.derive("eval.full_eval_dtype", full, "hf.bf16_full_eval", "hf.fp16_full_eval")
    return amp


def _fold_fsdp(draft: Draft) -> None:
    """``fsdp`` and ``fsdp_config`` (HF/training_args.py _process_fsdp_args); the latter says
    nothing without the former."""
    words = draft.get("hf.fsdp_words") or ()
    if not words:
        return
    draft.derive("fsdp.enabled", True, "hf.fsdp_words")
    source = SOURCE + ":2775"
    draft.default("hf.fsdp.version", 2, source, FSDP2_BY_DEFAULT)
    newer = draft.has(FSDP2_BY_DEFAULT)
    wraps = newer or "auto_wrap" in words
    draft.default("hf.fsdp.wrap", "transformer" if wraps else "none", source)
    draft.default("hf.fsdp.state_dict", "full", source)
    draft.default("hf.fsdp.cpu_offload", "offload" in words, source)
    draft.default("hf.fsdp.use_orig_params", True, source)
    draft.default("hf.fsdp.sync_module_states", True, source)
    draft.default("hf.fsdp.backward_prefetch", "none", source)
    draft.default("hf.fsdp.forward_prefetch", False, source)
    draft.default("hf.fsdp.activation_checkpointing", False, source)
    draft.default("hf.fsdp.cpu_ram_efficient", False, source)
    if draft.get("hf.fsdp.min_params") and not newer:
        draft.override("hf.fsdp.wrap", "size", "hf.fsdp.min_params")
    for word, strategy in _FSDP_WORDS.items():
        if word in words:
            draft.override("parallel.fsdp.strategy", strategy, "hf.fsdp_words")
            draft.default("hf.fsdp.reshard_after_forward", strategy in ("full", "hybrid"), source)
    for row in FSDP_ROWS:
        name = row.field.removeprefix("hf.fsdp.")
        target = FSDP_TARGETS.get(name, f"parallel.fsdp.{name}")
        value = draft.get(row.field)
        if value is not None:
            draft.override(target, value, row.field, "hf.fsdp_words")


# HF/trainer_utils.py FSDPOption.
_FSDP_WORDS = {
    "full_shard": "full",
    "shard_grad_op": "grad_op",
    "no_shard": "no_shard",
    "hybrid_shard": "hybrid",
    "hybrid_shard_zero2": "hybrid_grad_op",
}
FSDP_TARGETS = {"cpu_ram_efficient": "load.cpu_ram_efficient"}


def _finish_checkpointing(draft: Draft) -> None:
    on = draft.get("hf.checkpointing")
    if "hf.checkpointing" in draft.unknown or on is None:
        return
    draft.derive("checkpointing.mode", "full" if on else "none", "hf.checkpointing")
    every = draft.get("hf.checkpoint_every")
    if on and every and every > 1:
        draft.derive("checkpointing.mode", "every_n", "hf.checkpoint_every")
        draft.derive("checkpointing.every_n", every, "hf.checkpoint_every")
    reentrant = not draft.has(NOT_REENTRANT, noted=False)  # it moves no memory
    draft.default("hf.reentrant", reentrant, "transformers 5.23 modeling_utils.py:3149")
    draft.derive("checkpointing.reentrant", draft.get("hf.reentrant"), "hf.reentrant")
    moved = "cpu" if on and draft.get("hf.checkpoint_offload") else "none"
    draft.derive("checkpointing.offload", moved, "hf.checkpoint_offload")
    draft.derive("offload.activations", moved, "hf.checkpoint_offload")


def _finish_ddp(draft: Draft) -> None:
    # torch 2.9 DistributedDataParallel: gradient_as_bucket_view is false, and the Trainer
    # leaves it (HF/trainer.py:750-766).
    draft.default("parallel.ddp.bucket_view", False, "torch 2.9 DistributedDataParallel")
    # HF/trainer.py:752: unused parameters are looked for unless checkpointing is on.
    draft.derive(
        "parallel.ddp.find_unused", draft.get("checkpointing.mode") == "none", "checkpointing.mode"
    )


def _finish_loss(draft: Draft) -> None:
    # TRL's preference losses take hidden states to Liger's functions, whatever the model is.
    patches = draft.get("objective.kind") not in (None, "sft", "pretrain") or liger_patches(draft)
    liger = bool(draft.get("hf.liger")) and patches
    # HF/integrations/liger.py: fused_linear_cross_entropy is on unless its config says no.
    fused = liger and draft.get("hf.liger_flce") is not False
    smooth = (draft.get("hf.label_smoothing") or 0) > 0
    draft.derive("loss.label_smoothing", smooth, "hf.label_smoothing")
    inputs = ("hf.liger", "hf.liger_flce", "hf.label_smoothing", "model.arch")
    # HF/trainer.py compute_loss: the label smoother takes the logits themselves.
    kind = "fused" if fused and not smooth else "full"
    draft.derive("loss.logits_materialised", kind, *inputs)
    for part in ("rope", "rms", "swiglu"):
        draft.derive(f"loss.liger.{part}", liger, "hf.liger")
    draft.derive("loss.liger.flce", kind == "fused", *inputs)
    draft.default("loss.upcast_fp32", True, "transformers 5.23 loss/loss_utils.py:61")


def finish_optimizer(draft: Draft) -> None:
    """``optim`` in canonical terms; an optimizer of the DeepSpeed JSON replaces it."""
    if draft.get("hf.adafactor"):
        draft.override("optimizer.name", "adafactor", "hf.adafactor")
    name = draft.get("optimizer.name")
    if name is None:
        return
    own = draft.get("ds.optimizer")
    if own is not None and draft.get("parallel.backend") == "zero":
        # HF/integrations/deepspeed.py deepspeed_optim_sched: the JSON's optimizer wins.
        draft.derive("optimizer.kind", own, "ds.optimizer")
    else:
        draft.derive("optimizer.kind", OPTIMIZER_KINDS.get(str(name), "other"), "optimizer.name")
    rank = _argument(draft.get("hf.optim_args"), "rank")
    draft.derive("optimizer.rank", rank, "hf.optim_args")
    kind = draft.get("optimizer.kind")
    draft.derive("optimizer.fused", str(name).endswith("_fused"), "optimizer.name")
    # torch.optim.AdamW takes foreach where it is not told to fuse.
    draft.derive("optimizer.foreach", name in ("adamw_torch", "adamw_hf"), "optimizer.name")
    draft.derive("optimizer.paged", str(kind).startswith("paged_"), "optimizer.kind")
    # HF/trainer_optimizer.py:164: a hook steps each parameter as soon as its gradient is there.
    draft.derive("optimizer.in_backward", str(name).endswith("_layerwise"), "optimizer.name")


def _argument(text: Any, name: str) -> int | None:
    """The value of ``name`` in ``optim_args``: ``"rank=64, update_proj_gap=100"``."""
    for part in str(text or "").split(","):
        key, _, value = part.partition("=")
        if key.strip() == name and value.strip().isdigit():
            return int(value)
    return None


def _finish_eval(draft: Draft) -> None:
    strategy = draft.get("eval.strategy")
    enabled = strategy not in (None, "no") or bool(draft.get("hf.do_eval"))
    draft.derive("eval.enabled", enabled, "eval.strategy", "hf.do_eval")
    if strategy == "steps":
        # HF/training_args.py __post_init__ 3.
        draft.derive("eval.every", draft.get("hf.logging_steps"), "hf.logging_steps")
    # HF/trainer.py:2868: without compute_metrics only the loss is kept.
    draft.default("eval.keeps_logits", False, "transformers 5.23 trainer.py:2868")
    # HF/trainer.py evaluation_loop: no predictions are asked for, or each batch is done with.
    for reason in ("hf.loss_only", "hf.batch_metrics"):
        if draft.get(reason):
            draft.override("eval.keeps_logits", False, reason)


def _finish_save(draft: Draft) -> None:
    strategy = draft.get("save.strategy")
    draft.derive("save.unit", "epochs" if strategy == "epoch" else "steps", "save.strategy")
    draft.default("save.keep", "all", f"{SOURCE}:1201")
    contents: tuple[str, ...] = ("adapter",) if is_adapter_run(draft) else ("model",)
    if not draft.get("save.save_only_model"):
        contents = (*contents, "optimizer", "scheduler", "rng")
    draft.derive("save.contents", contents, "save.save_only_model", "trainable.method")
    backend = draft.get("parallel.backend")
    if backend == "zero" and draft.get("parallel.zero.stage") == 3:
        gathers = bool(draft.get("parallel.zero.gather16_on_save"))
        draft.derive("save.full_gather", gathers, "parallel.zero.gather16_on_save")
    elif backend in ("fsdp1", "fsdp2"):
        gathers = draft.get("parallel.fsdp.state_dict") == "full"
        draft.derive("save.full_gather", gathers, "parallel.fsdp.state_dict")
