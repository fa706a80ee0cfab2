"""What EasyR1 makes of its keys, and how they say a wish.

Read from hiyouga/EasyR1 b44b311 (2026-07-30); ``ER`` below is its ``verl`` package. One worker
class trains, generates and scores with FSDP 1 and vLLM on the same GPUs (ER/workers/fsdp_workers.py).
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.common.offloading import to_cpu
from oomlint.dialects.common.world import batch, world
from oomlint.dialects.easyr1.keys import ACTOR, ROLLOUT, SOURCE, TRAINER, own
from oomlint.dialects.machine.meaning import launch_one_process
from oomlint.dialects.meaning import Meaning, Said, Sourced, Wishes
from oomlint.dialects.setting import Setting
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

meaning = Meaning(world, launch_one_process, batch)

WORKERS = f"{SOURCE} verl/workers/fsdp_workers.py"
_DP_ACTOR = f"{SOURCE} verl/workers/actor/dp_actor.py"

# -- the models ------------------------------------------------------------------------------------

_O = f.objective
# ER/trainer/core_algos.py AdvantageEstimator: only gae has a critic.
_KINDS = {"gae": "ppo", "rloo": "rloo", "remax": "rloo", "reinforce_plus_plus": "rloo"}


@meaning.derive(_O.kind)
def objective(run: Cells) -> Any:
    return _KINDS.get(run.otherwise(own.estimator, "grpo"), "grpo")


@meaning.derive(_O.critic, source=WORKERS)
def critic(run: Cells) -> Any:
    """It is on the CPU while the actor trains, where both of its switches say so."""
    if run[own.estimator] != "gae" or (run[own.critic_param_off] and run[own.critic_optimizer_off]):
        return "none"
    return run[own.critic] or run[f.model.id]


@meaning.derive(_O.ref_model, source=f"{WORKERS} init_model")
def reference_model(run: Cells) -> Any:
    """A second module in 16 bit, in the same shards, unless adapters are switched off for it."""
    if run[own.no_kl]:
        return "none"
    if _has_adapters(run):
        return "shared_adapter_off"
    return "precomputed" if run[own.ref_off] or run[own.ref_on_cpu] else "copy"


@meaning.derive(_O.ref_dtype, source=WORKERS)
def reference_dtype(run: Cells) -> Any:
    return "bf16" if run[_O.ref_model] == "copy" else None


meaning.always(_O.reward_model, "none", f"{SOURCE} verl/workers/reward: functions alone")
meaning.always(_O.rollout.engine, "vllm_colocate", ROLLOUT)
meaning.always(_O.rollout.sleep, True, f"{SOURCE} verl/workers/rollout/vllm_rollout_spmd.py:149")

# -- what is trained -------------------------------------------------------------------------------

meaning.always(f.quant.method, "none", WORKERS)
meaning.cannot_say("EasyR1 trains no quantized weights", f.quant.method)


def _has_adapters(run: Cells) -> bool:
    return run[f.trainable.r] is not None


@meaning.derive(f.trainable.method)
def method(run: Cells) -> Any:
    if run.is_unread(f.trainable.r):
        return None
    return "lora" if _has_adapters(run) else "full"


@method.written
def _(kind: Any, run: Cells, wishes: Wishes) -> Wishes:
    if kind not in ("full", "lora"):
        raise CannotEdit("EasyR1 trains the whole model or LoRA")
    return {f.trainable.r: None} if kind == "full" else {}


@meaning.said(f.trainable.alpha)
def of_adapters(run: Cells, field: Any, said: Said) -> Said:
    """Without a rank it says nothing."""
    return None if isinstance(said, Setting) and not run.mentions(f.trainable.r) else said


@meaning.derive(f.trainable.targets, source=ACTOR)
def targets(run: Cells) -> Any:
    if not _has_adapters(run):
        return None
    text = run[own.targets]
    if text == "all-linear":
        return "all_linear"
    return tuple(part.strip() for part in text.split(",") if part.strip())


@targets.written
def _(names: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.targets: "all-linear" if names == "all_linear" else ",".join(names)}


@meaning.default(f.trainable.alpha, f.trainable.dropout, source=f"{ACTOR}; peft LoraConfig")
def adapter_defaults(run: Cells) -> Any:
    if not is_adapter_run(run):
        return None
    return {f.trainable.alpha: 64.0, f.trainable.dropout: 0.0}


@meaning.derive(f.optimizer.fused, f.optimizer.foreach, source=WORKERS)
def kernels_of_optimizer(run: Cells) -> Any:
    return {f.optimizer.fused: run[f.optimizer.kind] == "adamw", f.optimizer.foreach: False}


meaning.cannot_say("EasyR1's AdamW is always the fused one", f.optimizer.fused)


@meaning.derive(
    f.optimizer.state_elems_per_param, source="ER/utils/torch_functional.py AnyPrecisionAdamW"
)
def elements(run: Cells) -> Any:
    """Two moments and what rounding loses: Kahan's sum is on by default, and WORKERS leaves it so."""
    return 3.0 if run[f.optimizer.kind] == "anyprecision_adamw" else None


# -- sharding --------------------------------------------------------------------------------------

_F = f.parallel.fsdp

meaning.always(f.parallel.backend, "fsdp1", WORKERS)
meaning.always(_F.version, 1, WORKERS)
meaning.always(_F.wrap, "transformer", f"{SOURCE} verl/utils/fsdp_utils.py")
meaning.always(_F.state_dict, "sharded", f"{SOURCE} verl/utils/checkpoint")
meaning.always(_F.sync_every_micro, True, _DP_ACTOR)
meaning.always(_F.forward_prefetch, False, WORKERS)
meaning.always(_F.backward_prefetch, "pre", "torch FullyShardedDataParallel")
meaning.always(_F.limit_all_gathers, True, "torch FullyShardedDataParallel")


@meaning.derive(_F.isolates_trainable, source=f"{SOURCE} verl/utils/fsdp_utils.py:71")
def wraps_adapters_apart(run: Cells) -> Any:
    return _has_adapters(run) or None


@meaning.override(_F.use_orig_params, source=WORKERS)
def of_frozen_tower(run: Cells) -> Any:
    """What is frozen lies beside what is not."""
    return True if run[f.model.vision.freeze_tower] else None


@meaning.derive(f.parallel.dp_replicate, source=f"{WORKERS} _init_dist_mesh")
def replicas(run: Cells) -> Any:
    ranks, shard = run[f.parallel.world], run[f.parallel.dp_shard]
    return ranks // shard if ranks and shard and shard < ranks else None


@meaning.derive(_F.reshard_after_forward, _F.strategy, source=WORKERS)
def strategy(run: Cells) -> Any:
    full = bool(run[own.full_shard])
    if run[f.parallel.dp_replicate] is not None:
        return {_F.reshard_after_forward: full, _F.strategy: "hybrid" if full else "hybrid_grad_op"}
    return {_F.reshard_after_forward: full, _F.strategy: "full" if full else "grad_op"}


@strategy.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if not isinstance(wanted, bool) and wanted not in ("full", "grad_op"):
        raise CannotEdit("EasyR1 shards by enable_full_shard and fsdp_size")
    return {own.full_shard: wanted in (True, "full")}


meaning.cannot_say(
    "EasyR1 shards with FSDP, not with DeepSpeed", f.parallel.zero.stage, f.load.zero3_init
)
meaning.cannot_say("EasyR1 saves shards", _F.state_dict)

# -- loading and offloading ------------------------------------------------------------------------


@meaning.derive(f.load.cpu_ram_efficient, f.load.device_map, source=f"{WORKERS}:238")
def loads_on_one_rank(run: Cells) -> Any:
    """Else every rank loads the whole model on its own GPU."""
    alone = bool(run[own.rank0])
    return {f.load.cpu_ram_efficient: alone, f.load.device_map: "none" if alone else "single"}


@meaning.written(f.load.cpu_ram_efficient)
def _(alone: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.rank0: alone}


@meaning.derive(f.offload.idle, source=f"{WORKERS} update_actor")
def offloaded_between_phases(run: Cells) -> Any:
    """Whatever is moved away comes back before the actor trains."""
    return "cpu" if run[own.param_off] or run[own.optimizer_off] else "none"


@offloaded_between_phases.written
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    return dict.fromkeys((own.param_off, own.optimizer_off), device == "cpu")


@meaning.derive(_F.cpu_offload, f.offload.params, f.offload.optimizer, source=WORKERS)
def offloaded(run: Cells) -> Any:
    device = "cpu" if run[own.on_cpu] else "none"
    return {_F.cpu_offload: device == "cpu", f.offload.params: device, f.offload.optimizer: device}


@meaning.written(f.offload.params, f.offload.optimizer, _F.cpu_offload)
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    """ER/workers/fsdp_workers.py:143 refuses it beside gradient accumulation."""
    wanted = device if isinstance(device, bool) else to_cpu(device, "EasyR1 offloads")
    if wanted and (wishes.get(f.batch.grad_accum) or run[f.batch.grad_accum] or 1) > 1:
        raise CannotEdit("enable_cpu_offload works without gradient accumulation only")
    return {own.on_cpu: wanted}


meaning.cannot_say("EasyR1 has no key for pinned memory", f.offload.pin_memory)
meaning.always(f.offload.activations, "none", WORKERS)
meaning.cannot_say("EasyR1 offloads no activations", f.offload.activations, f.checkpointing.offload)

# -- dtypes ----------------------------------------------------------------------------------------

_P = f.precision

meaning.constant(f.load.dtype, "fp32", f"{WORKERS}:211")


@meaning.derive(
    _P.param, _P.grad, _P.master, _P.optim_state, _P.compute, _P.logits, _P.autocast,
    f.trainable.adapter_dtype, source=f"{WORKERS} _build_model_optimizer",
)  # fmt: skip
def dtypes(run: Cells) -> Any:
    """FSDP trains in ``torch_dtype`` and computes in 16 bit; beside adapters the weights are bf16.
    AnyPrecisionAdamW keeps its states in bf16 (ER/utils/torch_functional.py)."""
    stored, compute = run[f.load.dtype], run[own.compute]
    adapters = is_adapter_run(run)
    states = "bf16" if run[f.optimizer.kind] == "anyprecision_adamw" else stored
    return {
        _P.param: "bf16" if adapters else stored,
        _P.grad: stored,
        _P.master: "none",
        _P.optim_state: states,
        _P.compute: compute,
        _P.logits: compute,
        _P.autocast: False,
        f.trainable.adapter_dtype: stored if adapters else None,
    }


@meaning.written(_P.param)
def _(dtype: Any, run: Cells, wishes: Wishes) -> Wishes:
    if dtype not in ("bf16", "fp16", "fp32"):
        raise CannotEdit(f"EasyR1 cannot hold these weights in {dtype}")
    return {f.load.dtype: dtype}


meaning.follows(_P.optim_state)

# -- batches ---------------------------------------------------------------------------------------

meaning.always(f.batch.micro_unit, "completions", _DP_ACTOR)


@meaning.derive(f.batch.grad_accum, source=f"{WORKERS} _init_dist_mesh")
def accumulation(run: Cells) -> Any:
    """Prompts x responses of one update, over the ranks and the micro batch. Dynamic batching
    fills a budget of as many tokens as the micro batch has at its longest (dp_actor.py:229)."""
    prompts, responses, dp = run[own.prompts], run[_O.rollout.n], run[f.parallel.dp]
    micro = run[f.batch.micro]
    if not (prompts and responses and dp and micro):
        return None
    return max(1, prompts * responses // dp // micro)


@accumulation.written
def _(steps: Any, run: Cells, wishes: Wishes) -> Wishes:
    rows, before = run[f.batch.micro], run[f.batch.grad_accum]
    micro = wishes.get(f.batch.micro, rows)
    if micro is None or rows is None or before is None or steps * micro != rows * before:
        raise CannotEdit("gradient accumulation follows from worker.actor.global_batch_size")
    return {}


@meaning.derive(f.batch.eval_micro, source=f"{SOURCE} verl/trainer/ray_trainer.py")
def validated_rows(run: Cells) -> Any:
    """It validates by generation alone."""
    return 1


meaning.cannot_say("EasyR1 validates by generation alone", f.batch.eval_micro)


@meaning.derive(f.seq.max_len)
def length(run: Cells) -> Any:
    prompt, response = run[_O.rollout.max_prompt_tokens], run[_O.rollout.max_completion_tokens]
    return prompt + response if prompt and response else None


@length.written
def _(length: Any, run: Cells, wishes: Wishes) -> Wishes:
    rest = length - (run[_O.rollout.max_prompt_tokens] or length)
    if rest < 1:
        raise CannotEdit("the prompts alone are longer: lower data.max_prompt_length")
    return {_O.rollout.max_completion_tokens: rest}


@meaning.derive(f.seq.packing, f.seq.pad, source=_DP_ACTOR)
def padding(run: Cells) -> Any:
    unpads = run[own.unpads]
    return {
        f.seq.packing: "varlen" if unpads else "none",
        f.seq.pad: "none" if unpads else "max_len",
    }


# -- activations and loss --------------------------------------------------------------------------

meaning.always(f.model.attn_impl, "flash2", WORKERS)
meaning.cannot_say("EasyR1 always uses FlashAttention 2", f.model.attn_impl)
meaning.constant(f.checkpointing.reentrant, False, WORKERS)


@meaning.written(f.checkpointing.mode)
def _(mode: Any, run: Cells, wishes: Wishes) -> Wishes:
    if mode not in ("full", "none"):
        raise CannotEdit("EasyR1 checkpoints every layer or none")
    return {f.checkpointing.mode: mode}


meaning.always(f.loss.logits_materialised, "full", _DP_ACTOR)
meaning.cannot_say("EasyR1 computes its loss from whole logits", f.loss.logits_materialised)
meaning.always(f.loss.upcast_fp32, False, f"{SOURCE} verl/utils/torch_functional.py")
meaning.always(f.loss.algorithm, "in_place", f"{SOURCE} verl/utils/torch_functional.py:40")
meaning.always(f.loss.outputs_kept, False, _DP_ACTOR)

# -- data, evaluating, saving ----------------------------------------------------------------------

meaning.always(f.data.workers, 8, f"{SOURCE} verl/trainer/data_loader.py:62")
meaning.cannot_say("EasyR1 always takes eight workers", f.data.workers)


@meaning.derive(f.eval.enabled, f.eval.strategy, f.eval.every, source=TRAINER)
def evaluation(run: Cells) -> Any:
    every = run[own.val_freq]
    if every is None or every <= 0:
        return {f.eval.enabled: False, f.eval.strategy: "no"}
    return {f.eval.enabled: True, f.eval.strategy: "steps", f.eval.every: every}


meaning.always(f.eval.keeps_logits, False, TRAINER)
meaning.always(f.eval.generate, True, f"{SOURCE} verl/trainer/ray_trainer.py")


@meaning.derive(f.save.strategy, f.save.every, source=TRAINER)
def saving(run: Cells) -> Any:
    every = run[own.save_freq]
    if not every or every <= 0:
        return {f.save.strategy: "no"}
    return {f.save.strategy: "steps", f.save.every: every}


@meaning.written(f.save.every)
def _(steps: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.save_freq: int(steps)}


@meaning.derive(f.save.keep, source=TRAINER)
def kept_checkpoints(run: Cells) -> Any:
    limit = run[own.save_limit]
    return limit if limit is not None and limit > 0 else "all"


@kept_checkpoints.written
def _(count: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.save_limit: -1 if count == "all" else count}


meaning.always(f.save.full_gather, False, f"{SOURCE} verl/utils/checkpoint")


@meaning.derive(f.save.contents, source=f"{SOURCE} verl/utils/checkpoint")
def saved(run: Cells) -> Any:
    kept = "adapter" if is_adapter_run(run) else "model"
    source = f"{SOURCE} verl/utils/checkpoint/fsdp_checkpoint_manager.py"
    return Sourced((kept,) if run[f.save.save_only_model] else (kept, "optimizer"), source)
