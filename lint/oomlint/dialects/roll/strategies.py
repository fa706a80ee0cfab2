"""The two strategies that train in ROLL, and what each makes of its ``strategy_config``.

Read from alibaba/ROLL 8eb27cc2 (2026-08-18); ``RO`` below is its ``roll`` package. ``deepspeed_train`` went
with 7f9d4d38 (2026-06-18).
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.adapters import names_of, targets_of
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.common.fields import DTYPES, RECOMPUTATION
from oomlint.dialects.common.offloading import to_cpu
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.dialects.roll.keys import SOURCE, own
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

strategies = Meaning()

MEGATRON = f"{SOURCE} roll/distributed/strategy/megatron_strategy.py"
FSDP2 = f"{SOURCE} roll/distributed/strategy/fsdp2_strategy.py"
_ARGUMENTS = f"{SOURCE} mcore_adapter/src/mcore_adapter/training_args.py"
_MODELS = f"{SOURCE} roll/models/model_providers.py"


def is_megatron(run: Cells) -> bool:
    return run[own.strategy] == "megatron"


strategies.takes(f.parallel.backend, own.strategy, f"{SOURCE} roll/distributed/strategy/factory.py")


# -- degrees of parallelism ------------------------------------------------------------------------


@strategies.override(f.parallel.sp, source=f"{_ARGUMENTS} __post_init__")
def follows_tensor_parallelism(run: Cells) -> Any:
    """Without effect at a degree of one, and always on where experts are spread as well."""
    if (run[f.parallel.tp] or 1) <= 1:
        return False
    return True if (run[f.parallel.ep] or 1) > 1 else None


@strategies.derive(f.parallel.pp_schedule, source=MEGATRON)
def schedule(run: Cells) -> Any:
    return "1F1B" if (run[f.parallel.pp] or 1) > 1 else None


@strategies.derive(f.parallel.dp_replicate, source=f"{FSDP2}:103")
def replicas(run: Cells) -> Any:
    """Up to one, or from all ranks on, it shards over all of them."""
    size, ranks = run[own.shard], run[f.parallel.world]
    if is_megatron(run) or not size or not ranks or size <= 1 or size >= ranks:
        return None
    return ranks // size


# -- FSDP2 -----------------------------------------------------------------------------------------

_F = f.parallel.fsdp


@strategies.derive(
    _F.version, _F.wrap, _F.strategy, _F.state_dict, _F.cpu_offload, f.offload.params, f.offload.optimizer,
    source=f"{FSDP2}:994, roll/utils/fsdp_utils.py:190",
)  # fmt: skip
def sharded(run: Cells) -> Any:
    """Layer by layer, as the model says where a layer begins."""
    if is_megatron(run):
        return {f.offload.params: "none", f.offload.optimizer: "none"}
    device = "cpu" if run[own.offloads] else "none"
    return {
        _F.version: 2,
        _F.wrap: "transformer",
        _F.strategy: "hybrid" if run[f.parallel.dp_replicate] else "full",
        _F.state_dict: "full",
        _F.cpu_offload: device == "cpu",
        f.offload.params: device,
        f.offload.optimizer: device,
    }


@strategies.written(f.offload.params, f.offload.optimizer, _F.cpu_offload)
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    if is_megatron(run):
        raise CannotEdit(
            "ROLL's Megatron keeps its optimizer's states on the GPU: optimizer_cpu_offload is taken and not"
            " handed on"
        )
    return {own.offloads: device if isinstance(device, bool) else to_cpu(device, "FSDP2 offloads")}


strategies.cannot_say("ROLL's FSDP2 always pins what it offloads", f.offload.pin_memory)
strategies.cannot_say(
    "ROLL shards with FSDP2 or Megatron, not with DeepSpeed",
    f.parallel.zero.stage,
    f.load.zero3_init,
)
strategies.cannot_say(
    "fsdp_size says over how many ranks ROLL shards", _F.strategy, f.parallel.dp_replicate
)
strategies.cannot_say("ROLL gathers the whole model when it saves", _F.state_dict)
strategies.cannot_say("ROLL trains no quantized weights", f.quant.method)
strategies.always(f.quant.method, "none", _MODELS)

# -- dtypes ----------------------------------------------------------------------------------------

_P = f.precision


@strategies.derive(
    *DTYPES,
    f.load.dtype,
    f.trainable.adapter_dtype,
    source=f"{_ARGUMENTS}:432, {FSDP2}:828, {FSDP2}:1366",
)
def dtypes(run: Cells) -> Any:
    """Megatron adds gradients up in fp32 as soon as weights are bf16. FSDP2 loads weights in
    ``param_dtype``, fp32 without it, and steps them in what they are; ``model_args.dtype`` is none of
    its."""
    computes, adapters = run[own.dtype], is_adapter_run(run)
    if is_megatron(run):
        grads = "fp32" if computes == "bf16" else computes
        return {
            _P.param: computes, _P.grad: grads, _P.master: "none" if computes == "fp32" else "fp32",
            _P.optim_state: "fp32", _P.compute: computes, _P.comm: grads, _P.autocast: False,
            _P.logits: "fp32" if run[own.wide_logits] else computes,
            f.load.dtype: computes, f.trainable.adapter_dtype: "fp32" if adapters else None,
        }  # fmt: skip
    stored, computes = run[own.kept] or "fp32", run[own.kept] or "bf16"
    return {
        _P.param: stored, _P.grad: stored, _P.master: "none", _P.optim_state: stored,
        _P.compute: computes, _P.comm: run[own.reduced], _P.autocast: True, _P.logits: computes,
        f.load.dtype: stored, f.trainable.adapter_dtype: stored if adapters else None,
    }  # fmt: skip


strategies.follows(_P.optim_state)

# -- the optimizer ---------------------------------------------------------------------------------


@strategies.derive(f.optimizer.kind, source=f"{FSDP2}:1395, {MEGATRON}:1182")
def optimizer(run: Cells) -> Any:
    if not is_megatron(run):
        return "adamw"
    return {"adam": "adamw", "sgd": "momentum_sgd"}.get(str(run[own.optimizer]).lower(), "other")


@optimizer.written
def _(kind: Any, run: Cells, wishes: Wishes) -> Wishes:
    if kind != "adamw" or not is_megatron(run):
        raise CannotEdit("ROLL trains with AdamW")
    return {own.optimizer: "adam"}


@strategies.derive(f.optimizer.fused, source="Megatron-core optimizer: FusedAdam")
def is_fused(run: Cells) -> Any:
    return is_megatron(run)


strategies.cannot_say("ROLL has no key for torch's fused AdamW", f.optimizer.fused)

# -- what is trained -------------------------------------------------------------------------------


@strategies.derive(f.trainable.method, source=f"{_MODELS}:148")
def method(run: Cells) -> Any:
    return "lora" if run[own.targets] else "full"


@method.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wanted not in ("lora", "full"):
        raise CannotEdit("ROLL trains the whole model or LoRA")
    return {own.targets: names_of("all_linear") if wanted == "lora" else None}


@strategies.derive(
    f.trainable.r, f.trainable.alpha, f.trainable.dropout, f.trainable.targets, f.trainable.target_params,
    source=_MODELS,
)  # fmt: skip
def adapter(run: Cells) -> Any:
    """On Megatron ``all-linear`` takes grouped experts in (mcore_adapter/adapters/utils.py find_all_linear_modules)."""
    if run[f.trainable.method] != "lora":
        return None
    targets = targets_of(run[own.targets] or ())
    return {
        f.trainable.r: run[own.rank],
        f.trainable.alpha: run[own.alpha] or float(2 * run[own.rank]),
        f.trainable.dropout: run[own.dropout],
        f.trainable.targets: targets,
        f.trainable.target_params: "experts"
        if is_megatron(run) and targets == "all_linear"
        else None,
    }


@strategies.written(f.trainable.r)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.rank: wanted}


@strategies.written(f.trainable.targets)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.targets: names_of(wanted)}


# -- activations -----------------------------------------------------------------------------------

_C = f.checkpointing


@strategies.derive(*RECOMPUTATION, source=f"{_ARGUMENTS}:97, {_MODELS}:257")
def checkpointing(run: Cells) -> Any:
    """Megatron recomputes nothing unless it is told to, FSDP2's model everything."""
    away = {_C.offload: "none", f.offload.activations: "none"}
    if is_megatron(run):
        granularity = run[own.granularity] or "none"
        modules = run[own.modules] if granularity == "selective_op" else None
        if run[own.moe_recompute] and granularity != "full":
            granularity, modules = "selective_op", (*(modules or ()), "moe")
        return {
            **away, _C.mode: granularity, _C.source: "megatron", _C.reentrant: True, _C.recompute_modules: modules,
        }  # fmt: skip
    dims = run[f.model.dims]
    reentrant = run[own.reentrant]
    if reentrant is None:
        reentrant = bool(dims and dims.moe)
    return {
        **away,
        _C.mode: "none" if run[own.no_gc] else "full",
        _C.source: "framework",
        _C.reentrant: reentrant,
    }


@strategies.written(_C.mode)
def _(mode: Any, run: Cells, wishes: Wishes) -> Wishes:
    if mode not in ("full", "none"):
        raise CannotEdit("ROLL recomputes every layer, or Megatron's modules by name")
    if not is_megatron(run):
        return {own.no_gc: mode == "none"}
    if mode == "none" and run[own.moe_recompute]:
        return {own.granularity: None, own.moe_recompute: False}
    return {own.granularity: "full" if mode == "full" else None}


strategies.cannot_say("ROLL offloads no activations", f.offload.activations, _C.offload)


@strategies.written(_C.reentrant)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if is_megatron(run):
        raise CannotEdit("Megatron recomputes in a way of its own")
    return {own.reentrant: wanted}


@strategies.derive(f.model.attn_impl, source=f"{_MODELS}, Transformer Engine DotProductAttention")
def attention(run: Cells) -> Any:
    return "flash2" if is_megatron(run) else run[own.attention] or "sdpa"


@attention.written
def _(kernel: Any, run: Cells, wishes: Wishes) -> Wishes:
    if is_megatron(run):
        raise CannotEdit("Megatron has Transformer Engine's attention")
    if kernel not in ("flash2", "sdpa"):
        raise CannotEdit("attn_implementation is fa2 or sdpa")
    return {own.attention: kernel}


# -- the loss --------------------------------------------------------------------------------------

_LOSS = (
    f"{SOURCE} roll/utils/functionals.py:214, {FSDP2}:1715, "
    "mcore_adapter/src/mcore_adapter/parallel_functions/vocab_parallel.py:95"
)


@strategies.derive(f.loss.logits_materialised, f.loss.upcast_fp32, source=_LOSS)
def loss(run: Cells) -> Any:
    """Log-probabilities of fp32 logits, which Megatron works out in place on a copy, split over the
    tensor-parallel ranks; of FSDP2's supervised runs cross entropy of what the model made."""
    return {
        f.loss.logits_materialised: "loss_parallel" if is_megatron(run) else "full",
        f.loss.upcast_fp32: is_megatron(run) or run[f.objective.kind] != "sft",
    }


strategies.cannot_say("ROLL computes its loss from all logits", f.loss.logits_materialised)
strategies.always(f.loss.outputs_kept, False, _LOSS)


@strategies.derive(f.loss.entropy, source=f"{SOURCE} roll/pipeline/base_worker.py:276")
def entropy(run: Cells) -> Any:
    return "whole" if (run[own.entropy] or 0) > 0 else "none"


# -- loading ---------------------------------------------------------------------------------------


@strategies.derive(
    f.load.cpu_ram_efficient, f.load.meta_init, f.load.device_map, source=f"{FSDP2}:868"
)
def loads(run: Cells) -> Any:
    """One rank of a node reads the weights where the others can do without: not where embeddings are tied,
    and not where experts are spread."""
    if is_megatron(run):
        return None
    dims = run[f.model.dims]
    whole = (run[f.parallel.ep] or 1) > 1 or bool(dims and dims.tie_embeddings)
    return {
        f.load.cpu_ram_efficient: not whole,
        f.load.meta_init: False,
        f.load.device_map: "none",
    }


strategies.cannot_say("how ROLL loads follows from the model", f.load.cpu_ram_efficient)
strategies.constant(f.model.from_scratch, False, f"{_MODELS}: a checkpoint always")
