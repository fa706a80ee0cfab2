"""Which of two backends trains, and what each makes of its section of the config.

Read from NVIDIA-NeMo/RL 7ea279ab (2026-08-22); ``NR`` below is its ``nemo_rl`` package. DTensor shards by
FSDP2 and tensor parallelism, Megatron by its own degrees; either has keys of its own for the same things.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.adapters import checkpoint_layers
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.common.fields import DTYPES, RECOMPUTATION
from oomlint.dialects.common.offloading import to_cpu
from oomlint.dialects.meaning import Meaning, Sourced, Wishes
from oomlint.dialects.nemo_rl.keys import SOURCE, own
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

backends = Meaning()

DTENSOR = f"{SOURCE} nemo_rl/models/dtensor/parallelize.py"
AUTOMODEL = f"{SOURCE} nemo_rl/models/automodel/setup.py"
MEGATRON = f"{SOURCE} nemo_rl/models/megatron/setup.py"
_POLICY = f"{SOURCE} nemo_rl/models/policy/lm_policy.py"


def is_megatron(run: Cells) -> bool:
    return run[own.megatron] is True


@backends.derive(f.parallel.backend, source=_POLICY)
def backend(run: Cells) -> Any:
    if run.is_unread(own.megatron):
        return None
    return "megatron" if is_megatron(run) else "fsdp2"


# -- degrees of parallelism ------------------------------------------------------------------------

_DEGREES: dict[Any, tuple[Any, Any]] = {
    f.parallel.tp: (own.dt_tp, own.mc_tp),
    f.parallel.cp: (own.dt_cp, own.mc_cp),
    f.parallel.ep: (own.dt_ep, own.mc_ep),
    f.parallel.sp: (own.dt_sp, own.mc_sp),
}


@backends.derive(*_DEGREES, source=_POLICY)
def degrees(run: Cells) -> Any:
    side = 1 if is_megatron(run) else 0
    return {field: run[keys[side]] for field, keys in _DEGREES.items()}


for _field, _keys in _DEGREES.items():

    @backends.written(_field)
    def _(wanted: Any, run: Cells, wishes: Wishes, keys: tuple[Any, Any] = _keys) -> Wishes:
        return {keys[is_megatron(run)]: wanted}


@backends.override(f.parallel.sp)
def needs_tensor_parallelism(run: Cells) -> Any:
    return False if (run[f.parallel.tp] or 1) <= 1 else None


@backends.derive(f.parallel.pp, f.parallel.etp, f.parallel.pp_schedule, source=MEGATRON)
def stages(run: Cells) -> Any:
    if not is_megatron(run):
        return {f.parallel.pp: 1}
    stages = run[own.mc_pp]
    schedule = "1F1B" if (stages or 1) > 1 else None
    return {
        f.parallel.pp: stages,
        f.parallel.etp: run[own.mc_etp],
        f.parallel.pp_schedule: schedule,
    }


@backends.written(f.parallel.pp)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if not is_megatron(run):
        raise CannotEdit("DTensor has no pipeline; megatron_cfg has")
    return {own.mc_pp: wanted}


@backends.derive(f.parallel.dp_replicate, source=_POLICY)
def replicas(run: Cells) -> Any:
    count = run[own.replicas] if not is_megatron(run) and run[own.v2] else None
    return count if count and count > 1 else None


# -- FSDP2 -----------------------------------------------------------------------------------------

_F = f.parallel.fsdp


@backends.derive(
    _F.version, _F.wrap, _F.reshard_after_forward, _F.strategy, _F.state_dict, _F.sync_every_micro,
    _F.cpu_offload, f.offload.params, source=DTENSOR,
)  # fmt: skip
def fully_sharded(run: Cells) -> Any:
    """Layer by layer; only the root's own parameters stay gathered through backward."""
    if is_megatron(run):
        return {f.offload.params: "none"}
    device = "cpu" if run[own.dt_offload] else "none"
    return {
        _F.version: 2,
        _F.wrap: "transformer",
        _F.reshard_after_forward: True,
        _F.strategy: "hybrid" if run[f.parallel.dp_replicate] else "full",
        _F.state_dict: "sharded",
        _F.sync_every_micro: True,
        _F.cpu_offload: device == "cpu",
        f.offload.params: device,
    }


@backends.derive(f.offload.optimizer, source=f"{AUTOMODEL}:489, {MEGATRON}:1218")
def offloaded_states(run: Cells) -> Any:
    return "cpu" if run[own.mc_cpu_optimizer if is_megatron(run) else own.dt_offload] else "none"


@backends.written(f.offload.params, f.offload.optimizer, _F.cpu_offload)
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    wanted = device if isinstance(device, bool) else to_cpu(device, "NeMo-RL offloads")
    if not is_megatron(run):
        return {own.dt_offload: wanted}
    if wishes.get(f.offload.params) == "cpu":
        raise CannotEdit("Megatron offloads optimizer states only")
    if not wanted:
        return {own.mc_cpu_optimizer: False}
    return {own.mc_cpu_optimizer: True, f.offload.optimizer_ratio: 1.0}


backends.cannot_say("NeMo-RL pins no memory for what it offloads", f.offload.pin_memory)
backends.cannot_say(
    "NeMo-RL shards with FSDP2 or Megatron, not with DeepSpeed",
    f.parallel.zero.stage,
    f.load.zero3_init,
)
backends.cannot_say(
    "NeMo-RL always frees a layer's weights after use", _F.reshard_after_forward, _F.strategy
)
backends.cannot_say("NeMo-RL saves shards", _F.state_dict)
backends.cannot_say("NeMo-RL trains no quantized weights", f.quant.method)
backends.always(f.quant.method, "none", AUTOMODEL)

# -- dtypes ----------------------------------------------------------------------------------------

_P = f.precision


@backends.derive(
    *DTYPES, f.load.dtype, f.trainable.adapter_dtype, source=f"{AUTOMODEL}:330, {DTENSOR}:745"
)
def dtypes(run: Cells) -> Any:
    """DTensor keeps and steps fp32 weights and computes in ``precision``. Megatron has 16-bit weights;
    its precision-aware optimizer keeps what those lack of fp32 in 16 bits more
    (Megatron-LM d98e8a64 core/optimizer/optimizer_config.py:437, Transformer Engine from 2.1 on)."""
    computes = run[own.precision]
    adapters = is_adapter_run(run)
    if not is_megatron(run):
        return {
            _P.param: "fp32", _P.grad: "fp32", _P.master: "none", _P.optim_state: "fp32",
            _P.compute: computes, _P.comm: "fp32", _P.logits: computes, _P.autocast: True,
            f.load.dtype: "fp32", f.trainable.adapter_dtype: "fp32" if adapters else None,
        }  # fmt: skip
    grads = "fp32" if run[own.mc_wide_grads] else computes
    is_aware = run[f.parallel.megatron.precision_aware_optim]
    keeps_rest = is_aware and (not run[own.mc_fp8] or run[own.mc_recipe] in (None, "delayed"))
    master = "none" if computes == "fp32" else computes if keeps_rest else "fp32"
    return {
        _P.param: computes, _P.grad: grads, _P.master: master, _P.optim_state: "fp32",
        _P.compute: computes, _P.comm: grads, _P.logits: computes, _P.autocast: False,
        f.load.dtype: computes, f.trainable.adapter_dtype: computes if adapters else None,
    }  # fmt: skip


@backends.derive(_P.fp8_train, source=MEGATRON)
def fp8(run: Cells) -> Any:
    return "te" if is_megatron(run) and run[own.mc_fp8] else "none"


@backends.derive(f.model.mtp_layers, source=f"{MEGATRON}:1029")
def later_tokens(run: Cells) -> Any:
    """Automodel ignores the checkpoint's layers of multi-token prediction."""
    return run[own.mc_mtp] or None if is_megatron(run) else None


backends.follows(_P.optim_state)

# -- the optimizer ---------------------------------------------------------------------------------

_CLASSES = {
    "adamw": "adamw", "adam": "adamw", "fusedadam": "adamw", "sgd": "momentum_sgd", "adamw8bit": "adamw8bit",
    "muon": "muon",
}  # fmt: skip


@backends.derive(f.optimizer.kind, source=f"{_POLICY}: any class of torch")
def optimizer(run: Cells) -> Any:
    name = run[own.mc_optimizer] if is_megatron(run) else run[f.optimizer.name]
    return None if name is None else _CLASSES.get(str(name).rpartition(".")[2].lower(), "other")


@optimizer.written
def _(kind: Any, run: Cells, wishes: Wishes) -> Wishes:
    if is_megatron(run) or kind not in ("adamw", "momentum_sgd"):
        raise CannotEdit(f"no {kind} optimizer is known to work on NeMo-RL's shards")
    return {f.optimizer.name: "torch.optim.AdamW" if kind == "adamw" else "torch.optim.SGD"}


@backends.override(f.optimizer.fused)
def is_fused(run: Cells) -> Any:
    return True if is_megatron(run) else None


# -- what is trained -------------------------------------------------------------------------------


@backends.derive(f.trainable.method, source=f"{AUTOMODEL}:672")
def method(run: Cells) -> Any:
    return "lora" if run[own.mc_lora if is_megatron(run) else own.dt_lora] else "full"


@method.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wanted not in ("lora", "full"):
        raise CannotEdit("NeMo-RL trains the whole model or LoRA")
    if not is_megatron(run) and wanted == "lora" and not run[own.v2]:
        raise CannotEdit(
            "LoRA needs dtensor_cfg._v2: true (nemo_rl/models/policy/lm_policy.py:178)"
        )
    return {own.mc_lora if is_megatron(run) else own.dt_lora: wanted == "lora"}


# Whether its adapters reach stacks of experts was not read; PEFT, which would translate names, is not in it.
backends.constant(f.trainable.target_params, "none", AUTOMODEL)


@backends.derive(
    f.trainable.r, f.trainable.alpha, f.trainable.dropout, f.trainable.targets, source=AUTOMODEL
)
def adapter(run: Cells) -> Any:
    if run[f.trainable.method] != "lora":
        return None
    if is_megatron(run):
        rank, alpha, dropout = run[own.mc_rank], run[own.mc_alpha], run[own.mc_dropout]
        named, takes_all = run[own.mc_targets], not run[own.mc_targets]
    else:
        rank, alpha, dropout = run[own.dt_rank], run[own.dt_alpha], run[own.dt_dropout]
        named, takes_all = run[own.dt_targets], run[own.dt_all_linear] or not run[own.dt_targets]
    layers = checkpoint_layers(named or ())
    return {
        f.trainable.r: rank,
        f.trainable.alpha: alpha,
        f.trainable.dropout: dropout,
        f.trainable.targets: "all_linear" if takes_all else layers,
    }


@backends.written(f.trainable.r)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.mc_rank if is_megatron(run) else own.dt_rank: wanted}


# -- activations -----------------------------------------------------------------------------------

_C = f.checkpointing


@backends.derive(*RECOMPUTATION, source=f"{DTENSOR}:722, {MEGATRON}:1071")
def checkpointing(run: Cells) -> Any:
    if is_megatron(run):
        granularity = run[own.mc_granularity] if run[own.mc_gc] else "none"
        away = "cpu" if run[own.mc_activations] else "none"
        return {
            _C.mode: granularity, _C.source: "megatron", _C.reentrant: True, _C.offload: "none",
            _C.recompute_modules: run[own.mc_modules] if granularity == "selective_op" else None,
            f.offload.activations: away,
        }  # fmt: skip
    return {
        _C.mode: "full" if run[own.dt_gc] else "none",
        _C.reentrant: False,
        _C.offload: "none",
        f.offload.activations: "none",
    }


@backends.written(_C.mode)
def _(mode: Any, run: Cells, wishes: Wishes) -> Wishes:
    if mode not in ("full", "none"):
        raise CannotEdit("NeMo-RL recomputes every layer, or Megatron's modules by name")
    if not is_megatron(run):
        return {own.dt_gc: mode == "full"}
    if mode == "full" and run[own.mc_granularity] != "full":
        return {own.mc_gc: True, own.mc_granularity: "full"}
    return {own.mc_gc: mode == "full"}


backends.cannot_say(
    "NeMo-RL offloads activations of Megatron's modules by name", f.offload.activations, _C.offload
)


@backends.default(f.model.attn_impl, source=f"{AUTOMODEL}:321")
def attention(run: Cells) -> Any:
    if is_megatron(run):
        return Sourced("flash2", "Transformer Engine DotProductAttention")
    return "flash2" if run[own.packs] else "sdpa"


@backends.written(f.model.attn_impl)
def _(kernel: Any, run: Cells, wishes: Wishes) -> Wishes:
    if is_megatron(run) or not run[own.v2]:
        raise CannotEdit("automodel_kwargs.attn_implementation is for dtensor_cfg with _v2: true")
    return {f.model.attn_impl: kernel}


_LIGER = (f.loss.liger.rope, f.loss.liger.rms, f.loss.liger.swiglu)


@backends.derive(*_LIGER)
def liger(run: Cells) -> Any:
    return dict.fromkeys(_LIGER, bool(run[own.dt_liger]) and not is_megatron(run))


# -- loss ------------------------------------------------------------------------------------------

_LOGPROBS = f"{SOURCE} nemo_rl/distributed/model_utils.py:120,1626"


@backends.derive(f.loss.logits_materialised, f.loss.upcast_fp32, f.loss.algorithm, source=_LOGPROBS)
def loss(run: Cells) -> Any:
    """All logits, fp32, with their log-softmax; split over tensor-parallel ranks by a function of its own."""
    if is_megatron(run) and run[own.fused]:
        return {f.loss.logits_materialised: "fused", f.loss.upcast_fp32: True}
    is_split = is_megatron(run) or (run[f.parallel.tp] or 1) > 1
    takes_topk = (
        run[f.objective.kind] == "distill"
    )  # NR/algorithms/loss: of the student's log-softmax
    return {
        f.loss.logits_materialised: "loss_parallel" if is_megatron(run) else "full",
        f.loss.upcast_fp32: True,
        f.loss.algorithm: "log_softmax" if is_split or takes_topk else None,
    }


@backends.written(f.loss.logits_materialised)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wanted != "fused" or not is_megatron(run):
        raise CannotEdit("only Megatron's use_fused_linear_logprobs leaves the logits out")
    if (
        run[own.packs]
        or (run[f.parallel.cp] or 1) > 1
        or run[f.parallel.megatron.overlap_param_gather]
    ):
        raise CannotEdit(
            "use_fused_linear_logprobs works without packing, context parallelism and overlap_param_gather"
        )
    return {own.fused: True}


backends.always(f.loss.outputs_kept, False, _LOGPROBS)


@backends.derive(f.env.alloc_conf)
def allocator(run: Cells) -> Any:
    return run[own.mc_alloc if is_megatron(run) else own.dt_alloc] or None
