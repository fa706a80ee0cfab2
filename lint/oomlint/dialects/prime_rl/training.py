"""What prime-rl trains, in which dtypes and with which optimizer, and what it recomputes.

Read from PrimeIntellect-ai/prime-rl 559b4477 (2026-08-21); ``PT`` below is its ``src/prime_rl/trainer``.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.common.fields import RECOMPUTATION
from oomlint.dialects.common.offloading import to_cpu
from oomlint.dialects.meaning import NOTHING, Meaning, Wishes
from oomlint.dialects.prime_rl.keys import SOURCE, TRAINER, own
from oomlint.dialects.prime_rl.sections import has, is_on, steps_on_cpu
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

training = Meaning()

_CODE = f"{SOURCE} src/prime_rl/trainer"
_MODEL = f"{_CODE}/model.py"

# -- dtypes ----------------------------------------------------------------------------------------

_P = f.precision


@training.derive(
    _P.param, _P.grad, _P.master, _P.optim_state, _P.compute, _P.autocast, _P.logits, f.load.dtype,
    f.trainable.adapter_dtype, source=f"{_MODEL}:824, {_CODE}/optim/offload.py:1554",
)  # fmt: skip
def dtypes(run: Cells) -> Any:
    """FSDP2 computes in bf16 whatever weights are kept in; stepped on the CPU they are bf16 on the GPU."""
    steps = steps_on_cpu(run)
    kept = "bf16" if steps else run[own.dtype]
    return {
        _P.param: kept, _P.grad: kept, _P.master: "fp32" if steps else "none",
        _P.optim_state: "fp32" if steps else kept, _P.compute: "bf16", _P.autocast: False, _P.logits: "bf16",
        f.load.dtype: run[own.dtype], f.trainable.adapter_dtype: kept if is_adapter_run(run) else None,
    }  # fmt: skip


@training.written(_P.param)
def _(dtype: Any, run: Cells, wishes: Wishes) -> Wishes:
    if dtype not in ("bf16", "fp32"):
        raise CannotEdit("prime-rl keeps weights in bf16 or fp32")
    return {own.dtype: dtype}


training.follows(_P.optim_state)


@training.derive(_P.fp8_train, source=f"{TRAINER}: QuantizationConfig")
def trains_in_fp8(run: Cells) -> Any:
    return "torchao" if run[own.quantization] or run[own.early_fp8] else "none"


training.always(f.quant.method, "none", _MODEL)
training.cannot_say("prime-rl trains no quantized weights", f.quant.method)


# -- the optimizer ---------------------------------------------------------------------------------


@training.derive(f.optimizer.fused, source=f"{_CODE}/optim/__init__.py:56")
def is_fused(run: Cells) -> Any:
    return run[f.optimizer.kind] == "adamw" and not run[own.optim_offload]


@training.override(
    f.optimizer.clip_norm, source=f"{TRAINER}: full_optimizer_offload_disables_grad_clipping"
)
def clips_nothing(run: Cells) -> Any:
    """With a warning, whatever the file says; so does DeepEP."""
    is_off = steps_on_cpu(run) or run[own.exchange] == "deepep"
    return NOTHING if is_off else None


@training.written(f.optimizer.kind)
def _(kind: Any, run: Cells, wishes: Wishes) -> Wishes:
    if kind not in ("adamw", "muon", "momentum_sgd", "sgd"):
        raise CannotEdit("prime-rl has AdamW, Muon, SGD and sign_sgd")
    if kind == "muon" and run[own.fsdp_offload]:
        raise CannotEdit("Muon does not step what FSDP offloads")
    if kind in ("muon", "momentum_sgd") and steps_on_cpu(run):
        raise CannotEdit("full_offload steps AdamW and sign_sgd alone")
    return {f.optimizer.kind: kind}


training.cannot_say("whether AdamW is fused follows from optim_cpu_offload", f.optimizer.fused)


# -- what is trained -------------------------------------------------------------------------------


@training.derive(f.trainable.method, source=f"{TRAINER}:256")
def method(run: Cells) -> Any:
    return "lora" if has(run, own.lora) else "full"


@method.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wanted != "lora":
        raise CannotEdit("prime-rl trains the whole model, or LoRA")
    if run[own.broadcast] in ("nccl", "nixl"):
        raise CannotEdit("adapters go to inference by way of the file system (weight_broadcast)")
    rank = wishes.get(f.trainable.r) or 16
    return {own.lora: {"rank": rank}, f.trainable.r: rank}


_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "experts")


@training.derive(
    f.trainable.targets,
    f.trainable.target_params,
    f.trainable.modules_to_save,
    source=f"{TRAINER}:114",
)
def adapted(run: Cells) -> Any:
    """``experts`` are stacked matrices, which have adapters of their own."""
    if run[f.trainable.method] != "lora":
        return None
    named = tuple(run[own.targets] or _TARGETS)
    dims = run[f.model.dims]
    has_experts = "experts" in named and dims is not None and dims.moe is not None
    return {
        f.trainable.targets: tuple(name for name in named if name != "experts"),
        f.trainable.target_params: "experts" if has_experts else None,
        f.trainable.modules_to_save: run[own.saved_modules] or None,
    }


@training.written(f.trainable.targets)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wanted == "all_linear":
        return {own.targets: None} if run.says(own.targets) else {}
    return {own.targets: tuple(wanted)}


# -- activations -----------------------------------------------------------------------------------

_C = f.checkpointing
_PARTS = {"mlp": "mlp", "routed_experts": "moe", "norm": "layernorm", "mla_up_proj": "mla_up_proj"}


@training.derive(
    *RECOMPUTATION,
    _C.every_n,
    source=f"{_MODEL}:1133 apply_ac, {SOURCE} src/prime_rl/utils/act_offloading.py",
)
def checkpointing(run: Cells) -> Any:
    """Offloading turns recomputation on. Blocks of transformers' own have no parts to choose from."""
    offloads = is_on(run[own.ac_offload])
    common = {
        _C.source: "framework", _C.reentrant: False,
        _C.offload: "cpu" if offloads else "none", f.offload.activations: "none",
    }  # fmt: skip
    if not has(run, own.ac):
        return {**common, _C.mode: "full" if offloads else "none"}
    if run[own.ac_mode] == "selective" and run[own.implementation] != "hf":
        parts = tuple(_PARTS.get(each, each) for each in run[own.ac_targets])
        return {**common, _C.mode: "selective_op", _C.recompute_modules: parts}
    every = run[own.ac_every] or 1
    return {**common, _C.mode: "every_n" if every > 1 else "full", _C.every_n: every}


@training.written(_C.mode)
def _(mode: Any, run: Cells, wishes: Wishes) -> Wishes:
    if mode == "none":
        return {own.ac: "None", own.ac_offload: "None"}
    if mode != "full":
        raise CannotEdit("prime-rl recomputes blocks, or parts of them by name")
    if not has(run, own.ac):
        return {own.ac: {"mode": "full"}}
    said: dict[Any, Any] = {}
    if run[own.ac_mode] != "full":
        said[own.ac_mode] = "full"
    if (run[own.ac_every] or 1) > 1:
        said[own.ac_every] = 1
    return said


@training.written(_C.offload, f.offload.activations)
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    wanted = to_cpu(device, "prime-rl keeps the inputs of layers")
    if wanted == is_on(run[own.ac_offload]):
        return {}
    return {own.ac_offload: {"pin_memory": True} if wanted else "None"}


training.follows(_C.every_n)


@training.derive(f.compile.enabled, source=f"{TRAINER}:188")
def compiles(run: Cells) -> Any:
    return is_on(run[own.compile])
