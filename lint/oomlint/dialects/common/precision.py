"""The dtype law of transformers' Trainer over accelerate, DeepSpeed, FSDP and peft.

``shared.amp`` is the mixed precision in force, ``shared.loads`` what the weights are loaded in;
``fsdp.keeps_dtype`` where sharding leaves them in that dtype, whatever accelerate does.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.common.fields import fsdp, peft, shared
from oomlint.dialects.deepspeed.keys import ds
from oomlint.dialects.meaning import Meaning, Sourced
from oomlint.dialects.releases import (
    BF16_BELOW_STAGE_1,
    FP32_ADAPTERS,
    FSDP1_UPCASTS,
    FSDP2_LEAVES_FROZEN,
    FSDP2_UPCASTS,
)
from oomlint.plan.fields import f
from oomlint.plan.library_changes import NARROW_LOGITS, STACKED_EXPERTS

precision = Meaning()

_P = f.precision

_STEP_1_IN_DTYPE_OF_PARAM = "torch.optim: states are zeros_like(param)"
# Below stage 1 the FP16 optimizers (runtime/engine.py:2065) keep an fp32 master too, unsharded.
_ENGINE_CASTS = "DeepSpeed edaa7221 runtime/engine.py:1755 casts the module; zero/stage3.py keeps an fp32 master"
# DeepSpeed 0.19.8 runtime/engine.py _configure_distributed_model: without fp16 and bf16 sections __check_params looks,
# which returns at once, and nothing is cast; runtime/zero/stage_1_and_2.py clones the master in fp32 whatever it is of.
_ENGINE_LEAVES = "DeepSpeed 0.19.8 runtime/engine.py casts nothing without fp16 or bf16; zero/stage_1_and_2.py keeps an fp32 master"
_ACCELERATE_UPCASTS = (
    "accelerate 16cb6eb8 accelerator.py:1982, utils/fsdp_utils.py:803: "
    "trainable parameters become fp32"
)
_PEFT_UPCASTS = "peft 0.21.2 mapping_func.py:110: autocast_adapter_dtype=True makes adapters fp32"
_PEFT_COPIES = (
    "peft 0.21.2 utils/other.py ModulesToSaveWrapper.update copies the module as it is, "
    "tuners/tuners_utils.py cast_adapter_dtype casts the layers of adapters alone"
)
_AUTOCAST_KEEPS = "torch autocast computes in 16 bit and leaves parameters as loaded"


@precision.derive(
    _P.param,
    _P.grad,
    _P.grad_accum,
    _P.master,
    _P.optim_state,
    _P.compute,
    _P.comm,
    _P.autocast,
    f.trainable.adapter_dtype,
)
def dtypes(run: Cells) -> Any:
    """What is stored, computed and stepped in which dtype, by who wraps the model."""
    if run[shared.amp] is None:
        return None
    _note_arithmetic(run)
    backend = run[f.parallel.backend]
    if backend == "zero":
        found = _zero(run)
    elif backend in ("fsdp1", "fsdp2"):
        found = _sharded(run)
    else:
        found = _plain(run)
    open_fields = (_P.compute, _P.autocast, _P.comm) if run[shared.amp_is_open] else ()
    return {field: value for field, value in found.items() if field not in open_fields}


precision.takes(shared.loads, f.load.dtype)


@precision.derive(
    shared.stops,
    source="flash-attention csrc/flash_attn/flash_api.cpp: only fp16 and bf16; transformers 5.23 "
    "integrations/flash_attention.py get_target_dtype: that of autocast, of the config or of the weights",
)
def no_kernel(run: Cells) -> Any:
    if run[f.model.attn_impl] not in ("flash2", "flash3") or run[f.load.dtype] != "fp32":
        return None
    if run[_P.compute] != "fp32" or run[_P.autocast]:
        return None
    return "FlashAttention has no kernel for fp32, in which the run computes"


precision.takes(_P.logits, _P.compute)


def _note_arithmetic(run: Cells) -> None:
    """What the arithmetic makes of the version of transformers in a plan stays open without one."""
    if quantizes_experts(run):
        run.has(STACKED_EXPERTS)
    run.has(NARROW_LOGITS)


def quantizes_experts(run: Cells) -> bool:
    """Whether it depends on how transformers holds experts that bitsandbytes packs them."""
    if run[f.quant.method] not in ("bnb4", "bnb8"):
        return False  # asking for the model would make it a root of every dtype
    dims = run[f.model.dims]
    return bool(dims and dims.moe) and not run[f.quant.quantises_moe_experts]


# -- DeepSpeed -------------------------------------------------------------------------------------


def _half(run: Cells) -> str | None:
    """The 16 bit dtype that DeepSpeed casts the module to."""
    if run[ds.bf16] is True:
        return "bf16"
    if run[ds.fp16] is True:
        return "fp16"
    amp = run[shared.amp]
    return amp if amp in ("bf16", "fp16") else None


def _is_older_bf16(run: Cells, stage: int | None) -> bool:
    """DeepSpeed's BF16_Optimizer is stage 1 with gradients that add up in fp32."""
    is_below = run[f.parallel.backend] == "zero" and stage == 0 and _half(run) == "bf16"
    return is_below and not run.has(BF16_BELOW_STAGE_1)


@precision.override(f.parallel.zero.stage, source=BF16_BELOW_STAGE_1.source)
def stage_of_older_bf16(run: Cells) -> Any:
    return 1 if _is_older_bf16(run, run[f.parallel.zero.stage]) else None


@precision.derive(ds.grad_accum_dtype, source=BF16_BELOW_STAGE_1.source)
def sums_of_older_bf16(run: Cells) -> Any:
    return "fp32" if _is_older_bf16(run, run.base(f.parallel.zero.stage)) else None


def _zero(run: Cells) -> dict[Any, Any]:
    half = _half(run)
    if half is None and run[f.parallel.zero.stage] != _MADE_WIDE:
        return _left_as_loaded(run)
    cast = half or "fp32"
    master, states = ("fp32" if half else "none"), "fp32"
    if half == "bf16" and run[ds.bf16_master]:
        # DeepSpeed edaa7221 runtime/precision_config.py:63-70.
        master, states = "bf16", "bf16" if run[ds.bf16_states] else "fp32"
    values = {
        _P.param: _frozen_dtype(run, cast),
        _P.grad: cast,
        _P.grad_accum: run[ds.grad_accum_dtype],
        _P.master: master,
        _P.optim_state: states,
        _P.compute: cast,
        f.trainable.adapter_dtype: cast if is_adapter_run(run) else None,
    }
    found = {field: Sourced(value, _ENGINE_CASTS) for field, value in values.items()}
    return {**found, _P.autocast: Sourced(False, "accelerate leaves autocast to DeepSpeed")}


# DeepSpeed 0.19.8 runtime/zero/partition_parameters.py _set_dtype: without 16 bits zero.Init makes every tensor fp32.
_MADE_WIDE = 3


def _left_as_loaded(run: Cells) -> dict[Any, Any]:
    """Without a 16 bit section the weights keep the dtype that they were loaded in, and compute in it; stages 1 and 2
    step an fp32 copy of them, stage 0 hands them to the optimizer as they are."""
    # A DeepSpeed file alone loads nothing: a model is made in torch's own dtype.
    loaded, stage = run[shared.loads] or "fp32", run[f.parallel.zero.stage]
    adapters = is_adapter_run(run)
    trained = _adapter_dtype(run, loaded) if adapters else loaded
    narrow = trained in ("bf16", "fp16")
    sums_apart = narrow and stage == 1  # stage_1_and_2.py use_grad_accum_attribute: not of stage 2
    values = {
        _P.param: _frozen_dtype(run, loaded) if adapters else loaded,
        _P.grad: trained,
        _P.grad_accum: run[ds.grad_accum_dtype] or ("fp32" if sums_apart else None),
        _P.master: "fp32" if narrow and stage else "none",
        _P.optim_state: "fp32" if stage else trained,
        _P.compute: loaded,
        f.trainable.adapter_dtype: trained if adapters else None,
    }
    found = {field: Sourced(value, _ENGINE_LEAVES) for field, value in values.items()}
    return {**found, _P.autocast: Sourced(False, "accelerate leaves autocast to DeepSpeed")}


# -- FSDP ------------------------------------------------------------------------------------------


def _sharded(run: Cells) -> dict[Any, Any]:
    amp, loaded = run[shared.amp], run[shared.loads]
    mixed = amp in ("bf16", "fp16")
    keeps = bool(run[fsdp.keeps_dtype])
    upcasts = mixed and loaded != "fp32" and not keeps and _upcasts_trained(run)
    stored = "fp32" if upcasts else loaded
    compute = amp if mixed else loaded
    adapters = is_adapter_run(run)
    source = _ACCELERATE_UPCASTS if upcasts else _STEP_1_IN_DTYPE_OF_PARAM
    trained = _adapter_dtype(run, loaded) if adapters and not upcasts else stored
    if adapters and upcasts and not _leaves_frozen(run):
        loaded = "fp32"
    values = {
        _P.param: _frozen_dtype(run, loaded) if adapters else stored,
        _P.grad: trained,
        _P.master: "none",
        _P.optim_state: trained,
        _P.compute: compute,
        _P.comm: compute,
        # accelerate 1.15: autocast under FSDP1, none under FSDP2 (accelerator.py _prepare_fsdp2).
        _P.autocast: mixed and run[f.parallel.backend] == "fsdp1",
    }
    found = {field: Sourced(value, source) for field, value in values.items()}
    adapter = Sourced(trained if adapters else None, _PEFT_UPCASTS)
    return {**found, f.trainable.adapter_dtype: adapter}


def _upcasts_trained(run: Cells) -> bool:
    """Whether accelerate makes what FSDP trains in mixed precision fp32."""
    if run[f.parallel.backend] == "fsdp1":
        return run.has(FSDP1_UPCASTS)
    return run.has(FSDP2_UPCASTS) or not run.has(FSDP2_LEAVES_FROZEN)


def _leaves_frozen(run: Cells) -> bool:
    return run[f.parallel.backend] == "fsdp1" or run.has(FSDP2_LEAVES_FROZEN)


# -- DDP, or nothing -------------------------------------------------------------------------------


def _plain(run: Cells) -> dict[Any, Any]:
    amp, loaded = run[shared.amp], run[shared.loads]
    mixed = amp in ("bf16", "fp16")
    adapters = is_adapter_run(run)
    trained = _adapter_dtype(run, loaded) if adapters else loaded
    source = _PEFT_UPCASTS if adapters else _STEP_1_IN_DTYPE_OF_PARAM
    return {
        _P.param: Sourced(_frozen_dtype(run, loaded) if adapters else loaded, _AUTOCAST_KEEPS),
        f.trainable.adapter_dtype: Sourced(trained if adapters else None, _PEFT_UPCASTS),
        _P.grad: Sourced(trained, source),
        _P.master: Sourced("none", _AUTOCAST_KEEPS),
        _P.optim_state: Sourced(trained, source),
        _P.compute: Sourced(amp if mixed else loaded, _AUTOCAST_KEEPS),
        _P.autocast: Sourced(mixed, _AUTOCAST_KEEPS),
    }


# -- adapters and what they stand beside -----------------------------------------------------------


def _adapter_dtype(run: Cells, loaded: str | None) -> str | None:
    """What peft makes adapters in; beside packed weights they always were fp32."""
    if run[peft.autocast_adapters] is False:
        return loaded
    if _frozen_dtype(run, None) is not None or loaded == "fp32":
        return "fp32"
    return "fp32" if run.has(FP32_ADAPTERS) else loaded


@precision.derive(f.trainable.saved_dtype, source=_PEFT_COPIES)
def saved_copies(run: Cells) -> Any:
    """What peft copies whole keeps its dtype, where nobody casts all that is trained. In fp16 nobody leaves it:
    torch scales no fp16 gradients."""
    if not is_adapter_run(run) or not run[f.trainable.modules_to_save]:
        return None
    backend = run[f.parallel.backend]
    is_cast = backend == "zero" or (
        backend in ("fsdp1", "fsdp2") and not run[fsdp.keeps_dtype] and _upcasts_trained(run)
    )
    if is_cast or run[f.quant.prepares_kbit]:
        return None  # fp32, as the adapter is
    loaded = run[shared.loads]
    return loaded if loaded == "bf16" else None


def _frozen_dtype(run: Cells, otherwise: str | None) -> str | None:
    """The dtype of what is not trained: quantized weights are storage of their own."""
    packed = {"bnb4": "nf4", "bnb8": "int8", "nf4_torchao": "nf4"}
    return packed.get(str(run[f.quant.method]), otherwise)
