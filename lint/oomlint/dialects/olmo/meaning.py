"""What OLMo makes of its keys about ranks, sharding, a step and its checkpoints, and how they say a wish.

Read from allenai/OLMo 59a53e3f (2025-09-04); ``OL`` below is its package ``olmo``, ``ST`` its ``scripts/train.py``.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.world import (
    batch,
    express_global_batch,
    share_of,
    steps_through,
    world,
)
from oomlint.dialects.machine.meaning import launch_all_visible
from oomlint.dialects.meaning import NOTHING, Meaning, Sourced, Wishes
from oomlint.dialects.olmo.keys import CONFIG, SOURCE, TRAIN_CONFIG, own
from oomlint.dialects.olmo.model import is_null, model
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

meaning = Meaning(model, world, launch_all_visible, batch)

_F = f.parallel.fsdp
_P = f.precision
_C = f.checkpointing
_SCRIPT = f"{SOURCE} scripts/train.py"
_TRAINER = f"{SOURCE} olmo/train.py"
_HYBRID = frozenset({"hybrid", "hybrid_grad_op"})

# -- who holds what --------------------------------------------------------------------------------


def _is_fsdp(run: Cells) -> bool:
    return run[own.strategy] == "fsdp"


def _check_fsdp(run: Cells, what: str) -> None:
    """Whether the run is sharded.

    Raises:
        CannotEdit: it is not, and ``what`` goes with it.
    """
    if not _is_fsdp(run):
        raise CannotEdit(f"{what} is a setting of fsdp, and distributed_strategy is another")


@meaning.derive(f.parallel.backend, source=f"{_SCRIPT}: distributed_strategy")
def backend(run: Cells) -> Any:
    return {"fsdp": "fsdp1", "ddp": "ddp"}.get(run[own.strategy], "none")


@backend.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wanted not in ("fsdp1", "fsdp2"):
        raise CannotEdit("OLMo shards with FSDP")
    return {own.strategy: "fsdp", own.init_device: "meta"}


@meaning.derive(_F.strategy, source=f"{CONFIG} FSDPConfig")
def strategy(run: Cells) -> Any:
    return run[own.sharding] if _is_fsdp(run) else None


@strategy.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    _check_fsdp(run, "sharding_strategy")
    return {own.sharding: wanted}


@meaning.derive(_F.reshard_after_forward)
def reshards(run: Cells) -> Any:
    return run[own.sharding] in ("full", "hybrid") if _is_fsdp(run) else None


@meaning.written(_F.reshard_after_forward)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    _check_fsdp(run, "sharding_strategy")
    hybrid = run[own.sharding] in _HYBRID
    return {own.sharding: ("hybrid" if hybrid else "full") if wanted else "grad_op"}


@meaning.derive(f.parallel.dp_replicate, source=f"{_SCRIPT}: hybrid_sharding_num_model_replicas")
def replicas(run: Cells) -> Any:
    """A copy of the model on every node, unless the file says how many."""
    if not (_is_fsdp(run) and run[own.sharding] in _HYBRID):
        return None
    return run[own.replicas] or run[f.parallel.nodes]


@replicas.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    _check_fsdp(run, "hybrid_sharding_num_model_replicas")
    return {own.replicas: wanted}


_WRAP = {
    None: "none",
    "by_block": "transformer",
    "by_block_group": "transformer",
    "by_block_and_size": "ends",
    "by_block_group_and_size": "ends",
    "size_based": "size",
}


@meaning.derive(_F.wrap, source=f"{SOURCE} olmo/model.py OLMo.get_fsdp_wrap_policy")
def wraps(run: Cells) -> Any:
    """Without a word the model is one unit, gathered as a whole. Where every second block is wrapped
    or fewer, the others stay in the root, which is gathered as a whole, too."""
    return _WRAP.get(run[own.wrapping], "none") if _is_fsdp(run) else None


@wraps.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    _check_fsdp(run, "wrapping_strategy")
    words = {"transformer": "by_block", "ends": "by_block_and_size", "size": "size_based"}
    if wanted not in words:
        raise CannotEdit(f"wrapping_strategy has no word for {wanted}")
    return {own.wrapping: words[wanted]}


_FSDP = {
    _F.version: 1,
    _F.backward_prefetch: "pre",
    _F.forward_prefetch: False,
    _F.limit_all_gathers: True,
    _F.cpu_offload: False,
    _F.sync_every_micro: True,
}


@meaning.default(*_FSDP, source=f"{_SCRIPT}: FSDP(...)")
def sharding(run: Cells) -> Any:
    return _FSDP if _is_fsdp(run) else None


meaning.always(f.parallel.ddp.bucket_mb, 25.0, "torch DistributedDataParallel: bucket_cap_mb")
meaning.always(f.parallel.ddp.bucket_view, False, "torch: gradient_as_bucket_view")
meaning.cannot_say("OLMo has FSDP and DDP, not DeepSpeed", f.parallel.zero.stage, f.load.zero3_init)
meaning.cannot_say(
    "OLMo offloads nothing",
    f.offload.optimizer,
    f.offload.params,
    f.offload.activations,
    f.offload.pin_memory,
    _F.cpu_offload,
    _C.offload,
)
meaning.always(f.offload.optimizer, "none", _SCRIPT)
meaning.always(f.offload.params, "none", _SCRIPT)
meaning.always(f.offload.activations, "none", _SCRIPT)

# -- dtypes ----------------------------------------------------------------------------------------

_POLICY = f"{TRAIN_CONFIG}.fsdp_precision"


def _policy(run: Cells) -> str | None:
    return None if is_null(run, "fsdp.precision") else run[own.policy] or "pure"


def _half(run: Cells) -> str:
    """What autocast computes in (``TrainConfig.autocast_precision``)."""
    return run[own.precision] or "bf16"


@meaning.derive(_P.param, _P.grad, _P.master, _P.optim_state, source=f"{SOURCE} olmo/model.py")
def stored(run: Cells) -> Any:
    """Parameters are made in fp32, and nothing casts what is stored."""
    return {_P.param: "fp32", _P.grad: "fp32", _P.master: "none", _P.optim_state: "fp32"}


meaning.follows(_P.optim_state)
meaning.cannot_say("OLMo holds its parameters in fp32", _P.param)


@meaning.derive(_P.compute, _P.logits, _P.autocast, source=f"{_TRAINER} train_batch: autocast")
def computes(run: Cells) -> Any:
    half = _half(run)
    return {_P.compute: half, _P.logits: half, _P.autocast: half != "fp32"}


@computes.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    """One word says all three, and it is the one that OLMo asks for in every config."""
    half = wishes.get(_P.compute)
    if half is None:
        half = "bf16" if wishes.get(_P.autocast) else "fp32"
    return {own.precision: half}


@meaning.derive(_P.comm, _P.gathered, source=_POLICY)
def moved(run: Cells) -> Any:
    """``pure`` gathers and reduces in 16 bit, ``mixed`` reduces in fp32, ``null`` does both in fp32."""
    if not _is_fsdp(run):
        return None
    policy = _policy(run)
    if policy is None:
        return {_P.comm: "fp32", _P.gathered: "fp32"}
    return {_P.comm: _half(run) if policy == "pure" else "fp32"}


# -- a step ----------------------------------------------------------------------------------------


def _share_of_rank(run: Cells) -> int | None:
    return share_of(run[own.global_], run[f.parallel.world])


@meaning.override(f.batch.micro, source=f"{_TRAINER} split_batch")
def no_more_than_there_are(run: Cells) -> Any:
    share, micro = _share_of_rank(run), run[f.batch.micro]
    return share if share and micro and share < micro else None


@meaning.derive(f.batch.grad_accum, source=f"{_TRAINER} split_batch")
def accumulation(run: Cells) -> Any:
    return steps_through(_share_of_rank(run), run[f.batch.micro])


@accumulation.written
def _(steps: Any, run: Cells, wishes: Wishes) -> Wishes:
    unknown = "global_train_batch_size depends on the number of GPUs"
    return express_global_batch(steps, run, wishes, own.global_, unknown)


_DATA = f"{SOURCE} olmo/data/memmap_dataset.py: chunks of max_sequence_length tokens"
meaning.always(f.seq.packing, "concat", _DATA)
meaning.always(f.seq.pad, "none", _DATA)
meaning.always(f.objective.kind, "pretrain", _TRAINER)
meaning.always(f.objective.ref_model, "none", _TRAINER)
meaning.always(f.trainable.method, "full", _SCRIPT)
meaning.always(f.quant.method, "none", _SCRIPT)
meaning.cannot_say("OLMo trains whole models", f.trainable.method, f.quant.method)

_LOSS = f"{_TRAINER} model_forward"
meaning.always(f.loss.logits_materialised, "full", _LOSS)
meaning.always(f.loss.outputs_kept, False, _LOSS)
meaning.cannot_say("OLMo computes its loss from all logits", f.loss.logits_materialised)


@meaning.derive(f.loss.algorithm, f.loss.upcast_fp32, source=f"{_TRAINER} fused_loss_fn")
def loss(run: Cells) -> Any:
    """flash-attn's kernel on the logits as they are, else torch's, which autocast gives fp32."""
    if run[own.fused_loss]:
        return {f.loss.algorithm: "kernel", f.loss.upcast_fp32: False}
    return {f.loss.upcast_fp32: True}


@loss.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wishes.get(f.loss.algorithm, "kernel") != "kernel":
        raise CannotEdit("fused_loss is flash-attn's kernel, or it is off")
    return {own.fused_loss: not wishes.get(f.loss.upcast_fp32, False)}


@meaning.derive(f.optimizer.kind, f.optimizer.foreach, source=f"{SOURCE} olmo/optim.py")
def optimizer(run: Cells) -> Any:
    """AdamW is torch's with what torch does by itself; LionW goes tensor by tensor."""
    name = run.otherwise(own.optimizer, "adamw")
    is_lion = name.endswith("lionw")
    if not is_lion and name != "adamw":
        return {f.optimizer.kind: "other"}
    return {f.optimizer.kind: "lion" if is_lion else "adamw", f.optimizer.foreach: not is_lion}


@meaning.written(f.optimizer.kind)
def _(kind: Any, run: Cells, wishes: Wishes) -> Wishes:
    words = {"adamw": "adamw", "lion": "lionw"}
    if kind not in words:
        raise CannotEdit("OLMo has AdamW and LionW")
    return {own.optimizer: words[kind]}


meaning.always(f.optimizer.fused, False, f"{SOURCE} olmo/optim.py build_optimizer")
meaning.cannot_say(
    "OLMo leaves the kernel of AdamW to torch", f.optimizer.fused, f.optimizer.foreach
)

# -- activations -----------------------------------------------------------------------------------

_BLOCKS = f"{SOURCE} olmo/model.py should_checkpoint_block"
_EVERY = {"one_in_two": 2, "one_in_three": 3, "one_in_four": 4, "one_in_eight": 8}


@meaning.derive(_C.mode, _C.every_n, _C.recompute_modules, source=_BLOCKS)
def checkpointing(run: Cells) -> Any:
    """``fine_grained`` computes norms, attention and activation functions again, and keeps what goes
    into them: no more than without is counted."""
    word = run[own.ac]
    if word in _EVERY:
        return {_C.mode: "every_n", _C.every_n: _EVERY[word]}
    if word in ("two_in_three", "three_in_four"):
        why = f"{_BLOCKS}: {word} is counted as every second block"
        return {
            _C.mode: Sourced("every_n", why, is_assumed=True),
            _C.every_n: Sourced(2, why, is_assumed=True),
        }
    if word == "fine_grained":
        return {_C.mode: "selective_op", _C.recompute_modules: ("core_attn", "norm", "act")}
    return {_C.mode: "full" if word == "whole_layer" else "none"}


@meaning.written(_C.mode)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    words = {"full": "whole_layer", "none": "none"}
    if wanted not in words:
        raise CannotEdit("activation_checkpointing has words for every block, some, or none")
    return {own.ac: words[wanted]}


meaning.always(_C.source, "framework", _BLOCKS)
meaning.always(_C.reentrant, False, f"{SOURCE} olmo/model.py activation_checkpoint_function")
meaning.cannot_say("OLMo checkpoints without re-entering", _C.reentrant)

# -- evaluating and saving -------------------------------------------------------------------------


@meaning.derive(
    f.eval.enabled, f.eval.strategy, f.eval.every, f.eval.keeps_logits, f.batch.eval_micro,
    source=f"{_TRAINER} fit",
)  # fmt: skip
def evaluation(run: Cells) -> Any:
    if not run[own.evaluators]:
        return {f.eval.enabled: False, f.eval.strategy: "no"}
    return {
        f.eval.enabled: True,
        f.eval.strategy: "steps",
        f.eval.every: run[own.eval_interval],
        f.eval.keeps_logits: False,
        f.batch.eval_micro: run[own.eval_micro],
    }


@meaning.written(f.batch.eval_micro)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.eval_micro: wanted}


def _sharded_every(run: Cells) -> int | None:
    """Steps between sharded checkpoints, of which there are none where none is to be kept."""
    if not _is_fsdp(run):
        return None
    found = [run[own.ephemeral]]
    if run[own.keep] != 0 and not is_null(run, "save_interval"):
        found.append(run[own.sharded] or 1000)
    return min((n for n in found if n), default=None)


def _unsharded_every(run: Cells) -> int | None:
    """The same of whole ones; without FSDP the interval of the sharded counts for them."""
    if run[own.keep_unsharded] == 0 and _is_fsdp(run):
        return None
    if run[own.unsharded] or _is_fsdp(run):
        return run[own.unsharded]
    return None if is_null(run, "save_interval") else run[own.sharded] or 1000


def _starts_whole(run: Cells) -> bool:
    """Whether the checkpoint before the first step is a whole one."""
    if run[own.no_first] or run.mentions(own.load_path):
        return False
    return not _is_fsdp(run) or run[own.keep] == 0


@meaning.derive(f.save.strategy, f.save.every, source=f"{_TRAINER} fit; scripts/train.py")
def saving(run: Cells) -> Any:
    intervals = [n for n in (_sharded_every(run), _unsharded_every(run)) if n]
    if not intervals:
        return {f.save.strategy: "steps" if _starts_whole(run) else "no"}
    return {f.save.strategy: "steps", f.save.every: min(intervals)}


@meaning.written(f.save.every)
def _(steps: Any, run: Cells, wishes: Wishes) -> Wishes:
    field = own.sharded if _sharded_every(run) else own.unsharded
    return {field: int(steps)}


@meaning.derive(
    f.save.full_gather, _F.state_dict, source=f"{SOURCE} olmo/checkpoint.py FullCheckpointer"
)
def gathers_to_save(run: Cells) -> Any:
    if not _is_fsdp(run):
        return {f.save.full_gather: False}
    whole = _unsharded_every(run) is not None or _starts_whole(run)
    return {f.save.full_gather: whole, _F.state_dict: "full" if whole else "sharded"}


@gathers_to_save.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    """No whole checkpoints: neither while training nor before its first step."""
    if wanted not in (False, "sharded"):
        raise CannotEdit("OLMo writes whole checkpoints where save_interval_unsharded says so")
    _check_fsdp(run, "sharded checkpoints")
    said: dict[Any, Any] = {own.unsharded: None}
    if run[own.keep] == 0:
        said[own.keep] = -1
    return said


@meaning.derive(f.save.keep, source=TRAIN_CONFIG)
def keeps(run: Cells) -> Any:
    number = run[own.keep] if _sharded_every(run) else run[own.keep_unsharded]
    return "all" if number is None or number < 0 else number


@keeps.written
def _(number: Any, run: Cells, wishes: Wishes) -> Wishes:
    field = own.keep if _sharded_every(run) else own.keep_unsharded
    return {field: -1 if number == "all" else number}


meaning.always(f.save.unit, "steps", _TRAINER)
meaning.always(f.save.contents, ("model", "optimizer"), f"{SOURCE} olmo/checkpoint.py")
meaning.cannot_say("OLMo saves the optimizer with the model", f.save.save_only_model)


@meaning.derive(f.total_steps, source=f"{_TRAINER} max_steps")
def total_steps(run: Cells) -> Any:
    """``2e12T`` counts tokens and ``1ep`` epochs; a bare number steps."""
    text = run.otherwise(own.duration, "").strip()
    return int(text) if text.isdigit() else None


@meaning.override(f.optimizer.clip_norm)
def no_clipping(run: Cells) -> Any:
    return NOTHING if is_null(run, "max_grad_norm") else None
