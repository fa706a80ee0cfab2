"""What AReaL trains, in which dtypes and with which optimizer, and what it recomputes.

Read from inclusionAI/AReaL 4aef98d8 (2026-05-21); ``AR`` below is its ``areal`` package.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.areal.keys import ARGS, SOURCE, own
from oomlint.dialects.areal.roles import is_megatron
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.adapters import checkpoint_layers, names_of, targets_of
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.common.fields import RECOMPUTATION
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

training = Meaning()

_FSDP = f"{SOURCE} areal/engine/fsdp_engine.py"
_MEGATRON = f"{SOURCE} areal/engine/megatron_engine.py"

# -- dtypes ----------------------------------------------------------------------------------------

_P = f.precision


@training.derive(
    _P.param, _P.grad, _P.master, _P.optim_state, _P.compute, _P.autocast, _P.logits, f.load.dtype,
    f.trainable.adapter_dtype, f.parallel.megatron.precision_aware_optim,
    source=f"{_FSDP}:1125, {_MEGATRON}:1131, {ARGS}:718,869",
)  # fmt: skip
def dtypes(run: Cells) -> Any:
    """FSDP steps weights in what they are; Megatron has fp32 ones beside, and sums of gradients in fp32."""
    kept, adapters = run[own.dtype], is_adapter_run(run)
    common = {
        _P.param: kept, _P.compute: kept, _P.autocast: False, f.load.dtype: kept,
        f.trainable.adapter_dtype: kept if adapters else None,
    }  # fmt: skip
    if not is_megatron(run):
        return {**common, _P.grad: kept, _P.master: "none", _P.optim_state: kept, _P.logits: kept}
    narrow = run[own.optimizer] == "adam_bf16"
    aware = bool(run[own.aware]) or narrow
    return {
        **common,
        _P.grad: "fp32" if run[own.wide_grads] else run[own.grads_kept] if aware else kept,
        _P.master: ("none" if kept == "fp32" else run[own.masters_kept] if aware else "fp32"),
        _P.optim_state: "bf16" if narrow else run[own.first_moments] if aware else "fp32",
        _P.logits: "fp32",
        f.parallel.megatron.precision_aware_optim: aware,
    }


@training.written(_P.param)
def _(dtype: Any, run: Cells, wishes: Wishes) -> Wishes:
    if dtype not in ("bf16", "fp32"):
        raise CannotEdit("AReaL trains in bf16 or fp32")
    return {own.dtype: dtype}


@training.written(_P.optim_state)
def _(dtype: Any, run: Cells, wishes: Wishes) -> Wishes:
    if not is_megatron(run) or dtype != "bf16":
        return {}
    return {own.optimizer: "adam_bf16"}


@training.derive(_P.fp8_train, source=f"{ARGS}: FP8EngineConfig")
def trains_in_fp8(run: Cells) -> Any:
    return "te" if is_megatron(run) and run[own.fp8] is not None else "none"


# -- the optimizer and what is trained -------------------------------------------------------------


@training.derive(
    f.optimizer.kind, f.optimizer.fused, f.optimizer.state_elems_per_param,
    source=f"{_FSDP}:1125, {SOURCE} areal/engine/fsdp_utils/optimizer.py:44",
)  # fmt: skip
def optimizer(run: Cells) -> Any:
    """FSDP's ``adam_bf16`` has a third buffer, for what rounding loses."""
    named = str(run[own.optimizer]).lower()
    if named == "sgd":
        return {f.optimizer.kind: "sgd", f.optimizer.fused: False}
    if named == "adam_bf16" and not is_megatron(run):
        return {
            f.optimizer.kind: "anyprecision_adamw",
            f.optimizer.fused: False,
            f.optimizer.state_elems_per_param: 3.0,
        }
    return {f.optimizer.kind: "adamw", f.optimizer.fused: True}


@training.written(f.optimizer.kind)
def _(kind: Any, run: Cells, wishes: Wishes) -> Wishes:
    if kind not in ("adamw", "sgd"):
        raise CannotEdit("AReaL has AdamW and SGD")
    return {own.optimizer: "adam" if kind == "adamw" else "sgd"}


training.cannot_say("AReaL's AdamW is fused", f.optimizer.fused)


@training.derive(f.trainable.method, source=f"{_FSDP}:1076")
def method(run: Cells) -> Any:
    return "lora" if run[own.lora] else "full"


@method.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wanted not in ("lora", "full"):
        raise CannotEdit("AReaL trains the whole model, or LoRA")
    if wanted == "lora" and is_megatron(run) and run[own.bridge] != "megatron-bridge":
        raise CannotEdit("LoRA on Megatron takes bridge_type megatron-bridge")
    return {own.lora: wanted == "lora"}


@training.derive(
    f.trainable.r, f.trainable.alpha, f.trainable.targets, source=f"{ARGS}:1130, {_FSDP}:1080"
)
def adapter(run: Cells) -> Any:
    if not run[own.lora]:
        return None
    named = run[own.targets]
    return {
        f.trainable.r: run[own.rank],
        f.trainable.alpha: run[own.alpha],
        f.trainable.targets: targets_of(checkpoint_layers(named)) if named else "all_linear",
    }


@training.written(f.trainable.r)
def _(rank: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.rank: rank}


@training.written(f.trainable.targets)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.targets: names_of(wanted)}


# -- activations -----------------------------------------------------------------------------------

_C = f.checkpointing


@training.derive(
    *RECOMPUTATION,
    source=f"{_FSDP}:1065, {_MEGATRON}:520, {SOURCE} areal/models/mcore/registry.py:218",
)
def checkpointing(run: Cells) -> Any:
    """``megatron-bridge`` recomputes whether ``gradient_checkpointing`` says so or not."""
    away = {_C.offload: "none", f.offload.activations: "none"}
    if not is_megatron(run):
        mode = "full" if run[own.gc] else "none"
        return {**away, _C.mode: mode, _C.source: "framework", _C.reentrant: False}
    is_on = run[own.gc] or run[own.bridge] == "megatron-bridge"
    mode = run[own.granularity] if is_on else "none"
    modules = run[own.modules] if mode == "selective_op" else None
    return {
        **away, _C.mode: mode, _C.source: "megatron", _C.reentrant: True, _C.recompute_modules: modules,
    }  # fmt: skip


@training.written(_C.mode)
def _(mode: Any, run: Cells, wishes: Wishes) -> Wishes:
    if mode not in ("full", "none"):
        raise CannotEdit("AReaL recomputes every layer, or Megatron's modules by name")
    if mode == "none" and is_megatron(run) and run[own.bridge] == "megatron-bridge":
        raise CannotEdit("megatron-bridge recomputes whatever gradient_checkpointing says")
    said: dict[Any, Any] = {own.gc: mode == "full"}
    if mode == "full" and is_megatron(run) and run[own.granularity] != "full":
        said[own.granularity] = "full"
    return said


training.cannot_say("AReaL offloads no activations", _C.offload, f.offload.activations)
