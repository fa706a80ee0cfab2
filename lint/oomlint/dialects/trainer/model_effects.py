"""What every script over transformers' Trainer says of its model: who is trained, in which types.

Read from transformers 5.23 ``examples/pytorch``.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.changes import CHECKPOINT_DTYPE
from oomlint.dialects.draft import Draft
from oomlint.dialects.law import finish_batch, finish_quant, is_adapter_run, uses_deepspeed
from oomlint.dialects.machine.launcher_keys import PLAIN
from oomlint.dialects.machine.ranks import launcher_of, settle
from oomlint.dialects.trainer.script_effects import bits_of


def finish_adapter(draft: Draft) -> None:
    """Who is trained, and what the frozen weights are stored in."""
    bits = bits_of(draft)
    if bits is None:
        bits = 4 if draft.get("hf.load_4bit") else 8 if draft.get("hf.load_8bit") else None
    draft.derive("quant.requested_bits", bits, "hf.load_4bit", "hf.load_8bit", "hf.bits")
    finish_quant(draft, bits=bits if bits in (4, 8) else None)
    if draft.get("quant.method") == "bnb4":
        draft.default("quant.double", False, "transformers 5.23 utils/quantization_config.py")
    if not draft.says("trainable.method") and not draft.is_unknown("trainable.method"):
        draft.derive("trainable.method", _method(draft, bits), "hf.use_peft", "hf.load_4bit")
    if not is_adapter_run(draft):
        for field in ("r", "alpha", "dropout", "modules_to_save"):
            draft.forget(f"trainable.{field}")
        return
    targets = draft.get("hf.lora_targets")
    if targets:
        words = ("all-linear",), ("all_linear",), ("all",)
        named: Any = "all_linear" if targets in words else targets
        draft.derive("trainable.targets", named, "hf.lora_targets")
    elif not draft.is_unknown("hf.lora_targets"):
        draft.derive("trainable.targets", "peft_default", "trainable.method")
    # peft 0.21.2 tuners/lora/config.py LoraConfig.
    source = "peft 0.21.2 tuners/lora/config.py"
    draft.default("trainable.r", 8, source)
    draft.default("trainable.alpha", 8, source)
    draft.default("trainable.dropout", 0.0, source)


def _method(draft: Draft, bits: int | None) -> str:
    four = draft.get("quant.method") == "bnb4"
    wants = draft.get("hf.use_peft")
    if wants is None:
        # Scripts without a switch of their own adapt where they name a rank or quantize.
        wants = bits in (4, 8) or (bits is not None and not draft.get("hf.full"))
        wants = wants or draft.says("trainable.r") or draft.says("hf.lora_targets")
    if not wants:
        return str(draft.get("script.method") or "full")
    if draft.get("hf.use_dora"):
        return "dora"
    return "qlora" if four else "lora"


def finish_load_dtype(draft: Draft, *, otherwise: str | None = None, source: str = "") -> None:
    """The dtype that weights are loaded in.

    Args:
        otherwise: what the framework loads in where nothing is said; by default what
            transformers' ``from_pretrained`` does, the checkpoint's dtype from 5.0 on.
    """
    said = draft.get("hf.load_dtype")
    checkpoint = draft.get("model.ckpt_dtype")
    if said == "auto":
        draft.derive("load.dtype", checkpoint, "hf.load_dtype", "model.ckpt_dtype")
        draft.assume("load.dtype", "bf16", "dtype auto: most checkpoints are 16 bit")
    elif said is not None:
        draft.derive("load.dtype", said, "hf.load_dtype")
    elif draft.is_unknown("hf.load_dtype"):
        return
    elif otherwise is not None:
        draft.default("load.dtype", otherwise, source)
    elif draft.has(CHECKPOINT_DTYPE, otherwise=False):
        draft.default("load.dtype", checkpoint, "transformers 5.23 modeling_utils.py:4178")
    elif CHECKPOINT_DTYPE not in draft.open:
        draft.default("load.dtype", "fp32", CHECKPOINT_DTYPE.source)
    else:
        draft.assume(
            "load.dtype",
            "fp32",
            "nothing names a dtype: transformers loads in fp32 up to 4.57, and wherever a script "
            "passes None; from 5.0 on in that of the checkpoint",
        )


def finish_one_process(draft: Draft) -> None:
    """One process that sees several GPUs, before ``finish_training_arguments``: which it uses."""
    if not _is_one_process(draft) or _spreads(draft):
        return
    quantized = draft.get("quant.method") in ("bnb4", "bnb8")
    if quantized or uses_deepspeed(draft) or draft.get("hf.fsdp_words"):
        if not draft.says("parallel.gpus_per_node"):
            draft.forget("parallel.gpus_per_node")
        settle(draft, "parallel.gpus_per_node", 1, "one process uses one GPU")


def finish_data_parallel(draft: Draft) -> None:
    """One process on several GPUs: torch's DataParallel, or layers spread by a device map.

    transformers 5.23 trainer.py:2666: a Trainer wraps the model in ``nn.DataParallel`` unless
    it is quantized or already spread. Comes after ``finish_training_arguments``.
    """
    if not _is_one_process(draft) or (draft.get("parallel.world") or 1) < 2:
        return
    if draft.get("parallel.backend") not in (None, "none", "ddp"):
        return
    source = "transformers 5.23 trainer.py:2666"
    if _spreads(draft):
        draft.derive("parallel.backend", "device_map_pp", "load.device_map", source=source)
        draft.derive("parallel.dp", 1, "load.device_map", source=source)
        finish_batch(draft)
    else:
        draft.derive("parallel.backend", "dp", "env.cuda_visible_devices", source=source)


def forget_unclear_precision(draft: Draft) -> None:
    """Where only running tells whether mixed precision is on, what follows from it is unknown."""
    if draft.is_unknown("hf.bf16") and not draft.get("hf.fp16"):
        for name in ("compute", "autocast", "logits", "comm"):
            draft.forget(f"precision.{name}")


def _is_one_process(draft: Draft) -> bool:
    return launcher_of(draft) is PLAIN and draft.get("launch.total_processes") is None


def _spreads(draft: Draft) -> bool:
    return draft.get("load.device_map") in ("auto", "balanced", "explicit")


def finish_attention(draft: Draft) -> None:
    if draft.get("hf.use_flash"):
        draft.derive("model.attn_impl", "flash2", "hf.use_flash")
    draft.default("model.attn_impl", "sdpa", "transformers 5.23 takes sdpa where the model has it")
