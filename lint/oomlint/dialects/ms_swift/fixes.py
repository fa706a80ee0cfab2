"""How ms-swift's options say what a fix wants, and what they cannot say.

Read from ms-swift 3602360a (4.6.0.dev0, 2026-08-22); ``SW`` below is ``swift/``. What is not here is
said by transformers' arguments, which are options too.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.base import Way, Wishes
from oomlint.dialects.deepspeed.presets import SWIFT_PRESETS
from oomlint.dialects.draft import Draft
from oomlint.dialects.liger import check_liger_patches
from oomlint.dialects.ms_swift.effects import FUSED
from oomlint.dialects.ms_swift.keys import is_old
from oomlint.dialects.ms_swift.weights import tuner_of
from oomlint.errors import CannotEdit

NO_WAY = {
    "checkpointing.reentrant": "gradient_checkpointing_kwargs is a JSON text; set use_reentrant "
    "there",
}

# The configs that ms-swift ships (SW/config/*.json; llm/ds_config of 2.x): stage, optimizer
# and parameters offloaded.
_PRESETS = {
    (0, False, False): "zero0",
    (1, False, False): "zero1",
    (2, False, False): "zero2",
    (2, True, False): "zero2_offload",
    (3, False, False): "zero3",
    (3, True, True): "zero3_offload",
    (3, True, False): "zero3_offload",
}
_OLD_PRESETS = {
    "zero2": "default-zero2",
    "zero3": "default-zero3",
    "zero2_offload": "zero2-offload",
    "zero3_offload": "zero3-offload",
}
_PRESET_SAYS = frozenset(
    {
        "parallel.zero.stage", "parallel.zero.gather16_on_save", "offload.optimizer",
        "offload.params",
    }
)  # fmt: skip


def name_preset(own: dict[str, Any], draft: Draft) -> dict[str, Any]:
    """Shipped DeepSpeed configs by name: a preset makes way for its neighbour, and plain data
    parallelism for a preset."""
    wanted = {name for name in own if name.startswith(("parallel.zero.", "offload."))}
    wanted.discard("offload.activations")
    backend = draft.get("parallel.backend")
    named = draft.get("ref.deepspeed")
    shipped = backend == "zero" and str(named) in SWIFT_PRESETS
    if not wanted or not wanted <= _PRESET_SAYS or not (shipped or backend == "ddp"):
        return own
    if backend == "ddp" and named is None and "parallel.zero.stage" not in own:
        own["parallel.zero.stage"] = 3 if own.get("offload.params") == "cpu" else 2
    optimizer, params = (
        own.get(name, draft.get(name)) == "cpu" for name in ("offload.optimizer", "offload.params")
    )
    stage = own.get("parallel.zero.stage", draft.get("parallel.zero.stage"))
    name = _PRESETS.get((stage, optimizer or params, params))
    if name is None:
        return own
    if is_old(draft):
        if name not in _OLD_PRESETS:
            raise CannotEdit(f"ms-swift 2.x ships no DeepSpeed config like {name}")
        name = _OLD_PRESETS[name]
    kept = {field: value for field, value in own.items() if field not in _PRESET_SAYS}
    return {**kept, "ref.deepspeed": name}


def _express_quant(method: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    bits = {"bnb4": 4, "bnb8": 8}.get(method)
    if bits is None:
        raise CannotEdit(f"ms-swift quantizes with bitsandbytes here, not to {method}")
    if tuner_of(draft) == "full":
        raise CannotEdit("full-parameter training takes no quantized weights (tuner_type)")
    if draft.get("model.native_quant") not in (None, "none"):
        raise CannotEdit("the checkpoint is quantized already")
    named = {} if is_old(draft) else {"swift.quant_method": "bnb"}
    return {"swift.quant_bits": bits, **named}


def _express_method(method: Any, _draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if method not in ("lora", "qlora", "dora", "full"):
        raise CannotEdit(f"ms-swift has no tuner for {method}")
    return {"swift.tuner": "full" if method == "full" else "lora"}


def _express_loss(kind: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if kind == "fused":
        if draft.get("parallel.backend") == "device_map_pp":
            raise CannotEdit(
                "ms-swift refuses use_liger_kernel where one process spreads the model"
            )
        if draft.get("objective.kind") not in FUSED:
            raise CannotEdit("ms-swift fuses the loss of pre-training, SFT, GRPO and GKD only")
        if draft.get("objective.kind") in ("sft", "pretrain"):
            check_liger_patches(draft)
        if (draft.get("parallel.ulysses") or 1) > 1:
            raise CannotEdit("with sequence_parallel_size the loss is computed outside of liger")
    return {"loss.logits_materialised": kind}


def _express_rank(rank: Any, _draft: Draft, _changes: Wishes) -> dict[str, Any]:
    return {"swift.lora_rank": rank}


def _express_attention(attention: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    """The switch of 2.x where the run uses it, else ``attn_impl``."""
    if not draft.says("swift.use_flash"):
        return {"model.attn_impl": attention}
    if attention not in ("flash2", "sdpa"):
        raise CannotEdit(f"use_flash_attn cannot ask for {attention} attention")
    return {"swift.use_flash": attention == "flash2"}


def _express_optimizer(kind: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    off = {"swift.galore": False} if draft.get("swift.galore") else {}
    return {"optimizer.kind": kind, **off}


def _express_dtype(dtype: Any, _draft: Draft, _changes: Wishes) -> dict[str, Any]:
    return {"swift.dtype": dtype}


def _express_weights(dtype: Any, _draft: Draft, _changes: Wishes) -> dict[str, Any]:
    return {"swift.dtype": "bf16"} if dtype == "bf16" else {}


def _express_length(length: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if draft.get("objective.kind") in ("grpo", "ppo"):
        raise CannotEdit("the length follows from max_length and max_completion_length")
    return {"seq.max_len": length}


WAYS: dict[str, Way] = {
    "quant.method": _express_quant,
    "trainable.method": _express_method,
    "loss.logits_materialised": _express_loss,
    "trainable.r": _express_rank,
    "model.attn_impl": _express_attention,
    "optimizer.kind": _express_optimizer,
    "load.dtype": _express_dtype,
    "precision.compute": _express_dtype,
    "precision.param": _express_weights,
    "seq.max_len": _express_length,
}
