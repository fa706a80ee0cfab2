"""How transformers' arguments, and options of scripts over its Trainer, say what a fix wants."""

from __future__ import annotations

from collections.abc import Mapping as MappingABC
from typing import Any

from oomlint.dialects.accelerate.fixes import express_sharding
from oomlint.dialects.base import Way, Wishes, expressed
from oomlint.dialects.draft import Draft
from oomlint.dialects.law import ADAPTER_METHODS, is_adapter_run
from oomlint.dialects.liger import check_liger_patches
from oomlint.dialects.trainer.argument_effects import FSDP_TARGETS
from oomlint.dialects.trainer.arguments import FSDP_ROWS
from oomlint.errors import CannotEdit

# The names of HF/training_args.py OptimizerNames that fixes propose.
OPTIMIZER_NAMES = {
    "adamw": "adamw_torch_fused",
    "adamw8bit": "adamw_8bit",
    "adamw4bit": "adamw_torch_4bit",
    "paged_adamw": "paged_adamw_32bit",
    "paged_adamw8bit": "paged_adamw_8bit",
    "adafactor": "adafactor",
    "lion": "lion_32bit",
    "lion8bit": "lion_8bit",
    "paged_lion": "paged_lion_32bit",
    "paged_lion8bit": "paged_lion_8bit",
    "sgd": "sgd",
}


def express_training_arguments(changes: Wishes, draft: Draft) -> dict[str, Any]:
    """Canonical wishes as fields that the rows here, or an Accelerate or DeepSpeed file, write.

    Raises:
        CannotEdit: the Trainer has no way to say it.
    """
    own = expressed(express_sharding(changes, draft), draft, _WAYS, {})
    own.update(_optimizer_settings(own, draft))
    own.update(_matching_batch(own, draft))
    if draft.get("hf.fsdp_words"):
        _take_fsdp_arguments(own, draft)
    for field in own:
        if not _is_option(field, draft):
            raise CannotEdit("a command line says it only in a file that --fsdp_config names")
    return own


def _take_fsdp_arguments(own: dict[str, Any], draft: Draft) -> None:
    """Wishes about FSDP in the Trainer's own arguments, where these set it up."""
    for row in FSDP_ROWS:
        name = row.field.removeprefix("hf.fsdp.")
        target = FSDP_TARGETS.get(name, f"parallel.fsdp.{name}")
        if target in own:
            own[row.field] = own.pop(target)
    if own.pop("parallel.fsdp.strategy", None) == "full":
        own["hf.fsdp.reshard_after_forward"] = True
    if own.get("hf.fsdp.cpu_offload") and not _is_option("hf.fsdp.cpu_offload", draft):
        own.pop("hf.fsdp.cpu_offload")
        own["hf.fsdp_words"] = (*draft.get("hf.fsdp_words"), "offload")


def _is_option(field: str, draft: Draft) -> bool:
    """Whether a field has a key of its own where it would be written: HfArgumentParser takes
    what is inside ``fsdp_config`` as a file or as JSON alone (transformers 5.23
    hf_argparser.py:354 stops at ``--fsdp_config.cpu_offload``)."""
    block = draft.block_with(field)
    if block is None or draft.says(field) or not getattr(block.document, "dotted_keys", False):
        return True
    return not block.table.by_field[field].key.startswith("fsdp_config.")


def _express_checkpointing(mode: Any, _draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if mode not in ("full", "none"):
        raise CannotEdit("the Trainer checkpoints every layer or none")
    return {"hf.checkpointing": mode == "full"}


def _express_reentrant(wanted: Any, _draft: Draft, _changes: Wishes) -> dict[str, Any]:
    return {"hf.reentrant": wanted}


def _express_checkpoint_offload(device: Any, _draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if device == "cpu":
        raise CannotEdit("the Trainer has no key that moves checkpoints to the CPU")
    return {}


def _express_loss(kind: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if kind != "fused":
        raise CannotEdit("the Trainer can only fuse the loss (use_liger_kernel)")
    if draft.get("objective.kind") in (None, "sft", "pretrain"):
        check_liger_patches(draft)
    return {"hf.liger": True}


def _express_kept_logits(keeps: Any, _draft: Draft, _changes: Wishes) -> dict[str, Any]:
    return {"hf.loss_only": not keeps}


def _express_compute(half: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    """The switch of one 16-bit type on, and that of the other off where a file names it."""
    if half not in ("bf16", "fp16"):
        raise CannotEdit(f"the Trainer has no mixed precision in {half}")
    if draft.says("ds.bf16") or draft.says("ds.fp16"):
        raise CannotEdit("the DeepSpeed config names the precision too; change both")
    if not (draft.says("hf.bf16") or draft.says("hf.fp16")) and draft.says(
        "accelerate.mixed_precision"
    ):
        return {"accelerate.mixed_precision": half}
    other = "fp16" if half == "bf16" else "bf16"
    off = {f"hf.{other}": False} if draft.says(f"hf.{other}") else {}
    return {**off, f"hf.{half}": True}


_WAYS: dict[str, Way] = {
    "checkpointing.mode": _express_checkpointing,
    "checkpointing.reentrant": _express_reentrant,
    "checkpointing.offload": _express_checkpoint_offload,
    "precision.compute": _express_compute,
    "loss.logits_materialised": _express_loss,
    "eval.keeps_logits": _express_kept_logits,
}


def _matching_batch(own: MappingABC[str, Any], draft: Draft) -> dict[str, Any]:
    """Numbers that a DeepSpeed or Accelerate config repeats and that must stay equal to the
    Trainer's (HF/integrations/deepspeed.py fill_match raises where they differ)."""
    repeated: dict[str, Any] = {}
    for field, copies in (
        ("batch.micro", ("ds.micro",)),
        ("batch.grad_accum", ("ds.grad_accum", "accelerate.grad_accum")),
    ):
        if field in own:
            repeated.update({copy: own[field] for copy in copies if draft.says(copy)})
    if draft.says("ds.train_batch"):
        before = after = 1
        for field in ("batch.micro", "batch.grad_accum"):
            before *= draft.get(field) or 1
            after *= own.get(field) or draft.get(field) or 1
        total = draft.get("ds.train_batch") * after
        if after != before and total % before:
            raise CannotEdit("train_batch_size in the DeepSpeed config would not match")
        if after != before:
            repeated["ds.train_batch"] = total // before
    return repeated


def _optimizer_settings(own: dict[str, Any], draft: Draft) -> dict[str, Any]:
    """``optim`` for a wished kind or variant of optimizer; takes the wishes out of ``own``."""
    kind = own.pop("optimizer.kind", None)
    fused = own.pop("optimizer.fused", None)
    foreach = own.pop("optimizer.foreach", None)
    own.pop("precision.optim_state", None)
    if kind is None and fused is None and foreach is None:
        return {}
    if draft.get("ds.optimizer") is not None and draft.get("parallel.backend") == "zero":
        raise CannotEdit("the optimizer is set in the DeepSpeed config; change it there")
    if kind is not None:
        if kind not in OPTIMIZER_NAMES:
            raise CannotEdit(f"the Trainer has no optimizer for {kind}")
        return {"optimizer.name": OPTIMIZER_NAMES[kind]}
    if draft.get("optimizer.kind") != "adamw":
        raise CannotEdit("only AdamW has a fused variant here")
    if fused or foreach is False:
        return {"optimizer.name": "adamw_torch_fused"}
    return {"optimizer.name": "adamw_torch"}


def express_model(changes: Wishes, draft: Draft) -> dict[str, Any]:
    """Wishes about the weights in the terms of :data:`MODEL_ROWS` and tables like it.

    Raises:
        CannotEdit: the script has no option for it.
    """
    return expressed(changes, draft, _MODEL_WAYS, {})


def _express_quant(method: Any, draft: Draft, changes: Wishes) -> dict[str, Any]:
    field = {"bnb4": "hf.load_4bit", "bnb8": "hf.load_8bit"}.get(method)
    if field is None:
        raise CannotEdit(f"there is no switch here for {method} quantization")
    if draft.block_with(field) is None:
        raise CannotEdit("the script itself has to load the model with a BitsAndBytesConfig")
    adapter = {} if is_adapter_run(draft) else _express_method("lora", draft, changes)
    return {field: True, **adapter}


def _express_method(method: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if method not in ADAPTER_METHODS:
        raise CannotEdit(f"there is no switch here for {method}")
    if draft.block_with("hf.use_peft") is None:
        raise CannotEdit("the script itself has to wrap the model with a LoraConfig")
    return {"hf.use_peft": True}


def _express_load_dtype(dtype: Any, _draft: Draft, _changes: Wishes) -> dict[str, Any]:
    return {"hf.load_dtype": dtype}


def _express_attention(attention: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if attention == "flash2" and draft.says("hf.use_flash"):
        return {"hf.use_flash": True}
    return {"model.attn_impl": attention}


_MODEL_WAYS: dict[str, Way] = {
    "quant.method": _express_quant,
    "trainable.method": _express_method,
    "load.dtype": _express_load_dtype,
    "model.attn_impl": _express_attention,
}
