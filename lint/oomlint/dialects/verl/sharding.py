"""What verl makes of its keys about ranks, where the model lies, and its dtypes.

Read from verl 0.8.0.dev (b178a3cd, 2026-01-29); ``VL`` below is its ``verl`` package.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.common.fields import DTYPES
from oomlint.dialects.common.offloading import to_cpu
from oomlint.dialects.common.world import world
from oomlint.dialects.machine.meaning import launch_one_process
from oomlint.dialects.meaning import Meaning, Sourced, Wishes
from oomlint.dialects.verl.engine import fsdp_version, is_megatron, running_trainer
from oomlint.dialects.verl.keys import PPO_SOURCE, SOURCE, own
from oomlint.dialects.verl.releases import UNSPLIT
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

sharding = Meaning(world, launch_one_process)

# -- Megatron --------------------------------------------------------------------------------------


@sharding.default(f.parallel.tp, source=UNSPLIT.source)
def split_by_default(run: Cells) -> Any:
    if running_trainer(run) != "ppo" or not is_megatron(run):
        return None
    return 1 if run.has(UNSPLIT) else UNSPLIT.was


@sharding.derive(f.parallel.backend, source=PPO_SOURCE)
def backend(run: Cells) -> Any:
    if is_megatron(run):
        return "megatron"
    return "fsdp2" if fsdp_version(run) == 2 else "fsdp1"


@sharding.derive(f.parallel.sp, source=f"{SOURCE} models/mcore/config_converter.py:85")
def splits_sequences(run: Cells) -> Any:
    """Wherever Megatron splits layers, whatever ``megatron.sequence_parallel`` says."""
    return is_megatron(run) and (run[f.parallel.tp] or 1) > 1


sharding.cannot_say("verl splits sequences wherever it splits layers", f.parallel.sp)


@sharding.default(
    f.parallel.megatron.dist_optimizer, source=f"{SOURCE} trainer/config/engine/megatron.yaml"
)
def shards_optimizer(run: Cells) -> Any:
    return True if is_megatron(run) else None


@sharding.default(
    f.offload.optimizer_ratio,
    source="Megatron-LM megatron/core/optimizer/optimizer_config.py:350: nothing is offloaded",
)
def offloaded_part(run: Cells) -> Any:
    return 0.0 if is_megatron(run) else None


# -- FSDP ------------------------------------------------------------------------------------------

_F = f.parallel.fsdp


@sharding.derive(
    _F.version,
    _F.wrap,
    _F.state_dict,
    _F.sync_every_micro,
)
def fully_sharded(run: Cells) -> Any:
    if is_megatron(run):
        return None
    return {
        _F.version: fsdp_version(run),
        _F.wrap: Sourced("transformer", f"{SOURCE} utils/fsdp_utils.py get_fsdp_wrap_policy"),
        _F.state_dict: Sourced("sharded", f"{SOURCE} utils/checkpoint/fsdp_checkpoint_manager.py"),
        _F.sync_every_micro: Sourced(
            not run[own.defers_sync], f"{SOURCE} workers/actor/dp_actor.py"
        ),
    }


@sharding.default(
    _F.reshard_after_forward, _F.forward_prefetch, _F.use_orig_params, source=PPO_SOURCE
)
def fsdp_defaults(run: Cells) -> Any:
    if is_megatron(run):
        return None
    return {_F.reshard_after_forward: True, _F.forward_prefetch: False, _F.use_orig_params: False}


@sharding.default(
    _F.backward_prefetch, _F.limit_all_gathers, source="torch FullyShardedDataParallel"
)
def torch_defaults(run: Cells) -> Any:
    if is_megatron(run):
        return None
    return {_F.backward_prefetch: "pre", _F.limit_all_gathers: True}


def _replicas(run: Cells) -> int | None:
    """How many copies of the model there are, each sharded over ``fsdp_size`` ranks."""
    ranks, shard = run[f.parallel.world], run[f.parallel.dp_shard]
    return ranks // shard if shard and ranks and shard < ranks else None


@sharding.derive(f.parallel.dp_replicate)
def replicas(run: Cells) -> Any:
    return None if is_megatron(run) else _replicas(run)


@sharding.derive(_F.strategy)
def strategy(run: Cells) -> Any:
    if is_megatron(run):
        return None
    reshards = run[_F.reshard_after_forward]
    if _replicas(run) is not None:
        return "hybrid" if reshards else "hybrid_grad_op"
    return "full" if reshards else "grad_op"


sharding.cannot_say(
    "verl shards with FSDP or Megatron, not with DeepSpeed",
    f.parallel.zero.stage,
    f.load.zero3_init,
)


@sharding.written(_F.state_dict)
def _(kind: Any, run: Cells, wishes: Wishes) -> Wishes:
    if kind != "sharded":
        raise CannotEdit("verl saves shards; hf_model in save_contents adds the whole model")
    return {}


# -- offloading ------------------------------------------------------------------------------------


@sharding.override(_F.cpu_offload)
def policy_counts(run: Cells) -> Any:
    """VL/workers/fsdp_workers.py:547 reads offload_policy under strategy=fsdp2 alone."""
    ignored = run[_F.cpu_offload] and not is_megatron(run) and fsdp_version(run) == 1
    return False if ignored else None


def _offloads_in_step(run: Cells) -> bool:
    if run[own.cpu_offload]:
        # fully_shard wants a CPUOffloadPolicy and does nothing with the FSDP1 object that
        # fsdp_sft_trainer.py hands it.
        return bool(run[own.param_offload]) and fsdp_version(run) == 1
    return bool(run[_F.cpu_offload]) and fsdp_version(run) == 2


@sharding.derive(f.offload.idle)
def offloaded_between_phases(run: Cells) -> Any:
    """``param_offload`` and ``optimizer_offload`` only move states away between the phases of a
    step: update_actor brings all of them back first (workers/fsdp_workers.py:893, and
    workers/megatron_workers.py update_actor, which loads and offloads both)."""
    idle = run[own.param_offload] or run[own.optimizer_offload]
    if is_megatron(run):
        return "cpu" if idle else "none"
    return "cpu" if idle and not _offloads_in_step(run) else "none"


@offloaded_between_phases.written
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    return dict.fromkeys((own.param_offload, own.optimizer_offload), device == "cpu")


@sharding.derive(f.offload.params, f.offload.optimizer)
def offloaded(run: Cells) -> Any:
    if is_megatron(run):
        optimizer = "cpu" if run[own.optimizer_cpu] else "none"
        return {f.offload.params: "none", f.offload.optimizer: optimizer}
    device = "cpu" if _offloads_in_step(run) else "none"
    return {f.offload.params: device, f.offload.optimizer: device}


@offloaded.written
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    offloads = to_cpu(device, "verl offloads")
    if running_trainer(run) == "sft":
        if run[f.parallel.backend] != "fsdp1":
            raise CannotEdit("fsdp_config.cpu_offload works with model.strategy=fsdp only")
        return {own.cpu_offload: offloads, own.param_offload: offloads}
    if run[f.parallel.backend] != "fsdp2":
        raise CannotEdit(
            "only offload_policy under strategy=fsdp2 keeps states on the CPU while verl trains; "
            "param_offload and optimizer_offload make room for the rollout alone"
        )
    return {_F.cpu_offload: device == "cpu"}


sharding.cannot_say("verl has no key for pinned memory", f.offload.pin_memory)

# -- dtypes ----------------------------------------------------------------------------------------

_P = f.precision
_MASTERS = "Megatron-LM's distributed optimizer: bf16 weights, fp32 gradients and masters"
_MIXED = f"{SOURCE} workers/fsdp_workers.py:286: FSDP's MixedPrecision over model_dtype"


@sharding.derive(f.load.dtype, source=_MASTERS)
def loaded_by_megatron(run: Cells) -> Any:
    return "bf16" if is_megatron(run) else None


sharding.constant(f.load.dtype, "fp32", f"{SOURCE} trainer/config/engine/fsdp.yaml model_dtype")

_MODEL_DTYPE = "model.fsdp_config.model_dtype"


@sharding.override(f.load.dtype, source="the project's copy of verl")
def loaded_by_copy(run: Cells) -> Any:
    """A copy of the SFT trainer may take the dtype from a key of its own, or from none."""
    if running_trainer(run) != "sft":
        return None
    key, otherwise = run[own.copy_dtype_key], run[own.copy_dtype]
    if key == "model.torch_dtype":
        return run[own.torch_dtype] or otherwise
    if key == _MODEL_DTYPE:
        return None if run.mentions(f.load.dtype) else otherwise
    return otherwise if key is None else None


@loaded_by_copy.written
def _(dtype: Any, run: Cells, wishes: Wishes) -> Wishes:
    return _said_to_copy(dtype, run)


def _said_to_copy(dtype: Any, run: Cells) -> Wishes:
    if running_trainer(run) == "sft":
        key = run[own.copy_dtype_key]
        if key == "model.torch_dtype":
            return {own.torch_dtype: dtype}
        if key not in (None, _MODEL_DTYPE) or (key is None and run[own.copy_dtype]):
            raise CannotEdit("this copy of verl has no key for the dtype that it trains in")
    return {f.load.dtype: dtype}


@sharding.derive(*DTYPES, f.trainable.adapter_dtype, source=_MIXED)
def dtypes(run: Cells) -> Any:
    """FSDP trains in ``model_dtype`` and computes in 16 bit ("we have to create model in
    fp32", workers/fsdp_workers.py:286); Megatron keeps fp32 masters of bf16 weights, and what its precision-aware optimizer
    is told of the rest."""
    adapters = is_adapter_run(run)
    if is_megatron(run):
        is_aware = run[f.parallel.megatron.precision_aware_optim]
        first, second = run[own.exp_avg], run[own.exp_avg_sq]
        law = {
            _P.param: "bf16",
            _P.grad: run[own.main_grads] if is_aware else "fp32",
            _P.master: "fp32",
            _P.optim_state: first if is_aware and first == second else "fp32",
            _P.compute: "bf16",
            _P.logits: "fp32",
            _P.autocast: False,
            f.trainable.adapter_dtype: "bf16" if adapters else None,
        }
        return {field: Sourced(value, _MASTERS) for field, value in law.items()}
    stored, compute = run[f.load.dtype], run[own.compute] or "bf16"
    is_plain_sft = running_trainer(run) == "sft"
    # peft 0.21.2 mapping_func.py:110 upcasts adapters; fsdp_sft_trainer.py casts them back.
    trained = "fp32" if adapters and not is_plain_sft else stored
    return {
        _P.param: stored,
        _P.grad: trained,
        _P.master: "none",
        _P.optim_state: trained,
        _P.compute: compute,
        _P.comm: "fp32",
        _P.logits: compute,
        # The workers' torch.autocast finds weights and inputs cast by FSDP already, and PPO's loss
        # kernel is none that autocast widens; SFT's cross entropy is.
        _P.autocast: is_plain_sft,
        f.trainable.adapter_dtype: trained if adapters else None,
    }


@sharding.written(_P.param)
def _(dtype: Any, run: Cells, wishes: Wishes) -> Wishes:
    if is_megatron(run) or dtype not in ("bf16", "fp16", "fp32"):
        raise CannotEdit(f"verl cannot hold these weights in {dtype}")
    return _said_to_copy(dtype, run)


sharding.follows(_P.optim_state)


@sharding.derive(f.load.cpu_ram_efficient, source=_MIXED)
def loads_on_one_rank(run: Cells) -> Any:
    """Tied models are loaded whole by every rank (get_init_weight_context_manager)."""
    dims = run[f.model.dims]
    if is_megatron(run) or dims is None or dims.tie_embeddings is None:
        return None
    return not dims.tie_embeddings


# Of the models of our catalogue with more parameters 230 of 285 do not tie their embeddings, of those with fewer 54
# of 155.
_SELDOM_TIED = 5e9


@sharding.assume(
    f.load.cpu_ram_efficient,
    why="whether the model ties its embeddings is not known: most of its size do not, and one rank loads it",
)
def likely_on_one_rank(run: Cells) -> Any:
    dims = run[f.model.dims]
    if is_megatron(run) or dims is None or dims.tie_embeddings is not None:
        return None
    return (dims.params_total or 0) >= _SELDOM_TIED or None


sharding.cannot_say(
    "verl loads weights on one rank only by itself, unless they are tied",
    f.load.cpu_ram_efficient,
)
