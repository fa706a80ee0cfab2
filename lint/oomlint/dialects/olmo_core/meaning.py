"""What OLMo-core makes of its keys, and how they say a wish.

Read from allenai/OLMo-core fa6c5014c (2026-06-22); ``OC`` below is its ``src/olmo_core``.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import DTYPES
from oomlint.dialects.common.world import batch, world
from oomlint.dialects.machine.meaning import launch_all_visible
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.dialects.olmo_core.keys import COOKBOOK, DATA_PARALLEL, SOURCE, TRAIN_MODULE, own
from oomlint.dialects.olmo_core.model import model
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

meaning = Meaning(model, world, launch_all_visible, batch)

_F = f.parallel.fsdp
_P = f.precision
_C = f.checkpointing
_MODEL = f"{SOURCE} src/olmo_core/nn/transformer/model.py"
_MODULE = f"{SOURCE} src/olmo_core/train/train_module/transformer/train_module.py"

# -- a helper that makes the train module ----------------------------------------------------------


def _is_cooked(run: Cells) -> bool:
    return run[own.maker] == "configure_train_module"


@meaning.derive(own.dp, own.param_dtype, own.optimizer, own.compile, own.ac, source=COOKBOOK)
def cooked(run: Cells) -> Any:
    if not _is_cooked(run):
        return None
    budget = run[own.budget]
    return {
        own.dp: "hsdp",
        own.param_dtype: "bf16",
        own.optimizer: "SkipStepAdamWConfig",
        own.compile: True,
        own.ac: "budget" if budget is not None and budget < 1 else None,
    }


# -- who holds what --------------------------------------------------------------------------------


def _is_sharded(run: Cells) -> bool:
    return run[own.dp] in ("fsdp", "hsdp")


@meaning.derive(f.parallel.backend, source=DATA_PARALLEL)
def backend(run: Cells) -> Any:
    if run.is_unread(own.dp):
        return None
    if _is_sharded(run):
        return "fsdp2"
    return "ddp" if run[own.dp] == "ddp" else "none"


@meaning.derive(_F.strategy, f.parallel.dp_replicate, source=DATA_PARALLEL)
def replicas(run: Cells) -> Any:
    """``hsdp``: a copy of the model on each node, unless the script says how many there are or over how
    many ranks one is spread."""
    if not _is_sharded(run):
        return None
    if run[own.dp] == "fsdp":
        return {_F.strategy: "full"}
    ranks, shard = run[f.parallel.dp], run[own.shard]
    count = run[own.replicas]
    if count is None and shard and ranks:
        count = max(1, ranks // shard)
    return {_F.strategy: "hybrid", f.parallel.dp_replicate: count or run[f.parallel.nodes]}


@meaning.derive(
    f.parallel.ep, source=f"{SOURCE} src/olmo_core/distributed/parallel/__init__.py:285"
)
def expert_ranks(run: Cells) -> Any:
    """A negative degree spreads experts over all the ranks that a copy of the model is spread over."""
    degree, ranks = run[own.ep], run[f.parallel.dp]
    if degree is None or degree > 0:
        return degree
    return max(1, ranks // (run[f.parallel.dp_replicate] or 1)) if ranks else None


@expert_ranks.written
def _(degree: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.ep: degree}


@meaning.derive(
    _F.version,
    _F.wrap,
    _F.reshard_after_forward,
    _F.cpu_offload,
    _F.sync_every_micro,
    source=f"{_MODEL}:883",
)
def wrapping(run: Cells) -> Any:
    """Blocks; embeddings and output layer besides, unless it is ``blocks``. A pipeline keeps what it has gathered."""
    if not _is_sharded(run):
        return None
    return {
        _F.version: 2,
        _F.wrap: "transformer" if run[own.wrapping] == "blocks" else "ends",
        _F.reshard_after_forward: (run[f.parallel.pp] or 1) == 1,
        _F.cpu_offload: False,
        _F.sync_every_micro: True,
    }


@meaning.written(_F.wrap)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wanted not in ("transformer", "ends") or not _is_sharded(run):
        raise CannotEdit("wrapping_strategy is blocks, full or fine_grained")
    return {own.wrapping: "blocks" if wanted == "transformer" else "full"}


meaning.cannot_say(
    "OLMo-core has FSDP2 and DDP, not DeepSpeed", f.parallel.zero.stage, f.load.zero3_init
)
meaning.cannot_say(
    "OLMo-core offloads nothing", f.offload.optimizer, f.offload.params, f.offload.activations,
    f.offload.pin_memory, _F.cpu_offload, _C.offload,
)  # fmt: skip
meaning.always(f.offload.optimizer, "none", _MODULE)
meaning.always(f.offload.params, "none", _MODULE)
meaning.always(f.offload.activations, "none", _MODULE)

# -- dtypes ----------------------------------------------------------------------------------------


@meaning.derive(*DTYPES, source=f"{_MODEL}:883,949")
def dtypes(run: Cells) -> Any:
    """FSDP keeps the model as it was built and gathers in ``param_dtype``; DDP casts the model itself."""
    half, built = run[own.param_dtype], run[own.dtype]
    stored = half if half and run[own.dp] == "ddp" else built
    computed = half or built
    return {
        _P.param: stored,
        _P.grad: stored,
        _P.master: "none",
        _P.optim_state: run[own.states] or stored,
        _P.compute: computed,
        _P.autocast: False,
        _P.logits: computed,
        _P.comm: run[own.reduce_dtype] if _is_sharded(run) else None,
    }


@meaning.written(_P.optim_state)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if run[own.optimizer] != "SkipStepAdamWConfig":
        raise CannotEdit("SkipStepAdamW alone has states of a dtype of their own")
    return {own.states: wanted}


@meaning.written(_P.compute)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if not _is_sharded(run):
        raise CannotEdit("param_dtype is a setting of dp_config, which this script does not have")
    return {own.param_dtype: wanted}


meaning.cannot_say("OLMo-core holds a sharded model in the dtype that it is built in", _P.param)

# -- a step ----------------------------------------------------------------------------------------


@meaning.derive(f.batch.micro, source=f"{_MODULE}:128")
def micro_batch(run: Cells) -> Any:
    """Tokens of a rank; chunks all have the sequence length."""
    tokens, length = run[own.tokens], run[f.seq.max_len]
    return max(1, tokens // length) if tokens and length else None


@micro_batch.written
def _(samples: Any, run: Cells, wishes: Wishes) -> Wishes:
    length = wishes.get(f.seq.max_len) or run[f.seq.max_len]
    if length is None:
        raise CannotEdit("rank_microbatch_size counts tokens, and the sequence length is not known")
    return {own.tokens: samples * length}


@meaning.derive(f.batch.grad_accum, source=f"{_MODULE}:242")
def accumulation(run: Cells) -> Any:
    total, tokens, ranks = run[own.global_], run[own.tokens], run[f.parallel.dp]
    return max(1, -(-total // (tokens * ranks))) if total and tokens and ranks else None


@accumulation.written
def _(steps: Any, run: Cells, wishes: Wishes) -> Wishes:
    """``global_batch_size`` in tokens: micro batch x accumulation x data-parallel ranks."""
    ranks, length = run[f.parallel.dp], wishes.get(f.seq.max_len) or run[f.seq.max_len]
    micro = wishes.get(f.batch.micro) or run[f.batch.micro]
    if steps is None or not (ranks and length and micro):
        raise CannotEdit("global_batch_size depends on the number of GPUs")
    total = steps * micro * length * ranks
    return {} if total == run[own.global_] else {own.global_: total}


meaning.always(f.seq.packing, "concat", f"{SOURCE} src/olmo_core/data/numpy_dataset.py")
meaning.always(f.seq.pad, "none", f"{SOURCE} src/olmo_core/data/numpy_dataset.py")
meaning.always(f.objective.kind, "pretrain", _MODULE)
meaning.always(f.objective.ref_model, "none", _MODULE)
meaning.always(f.quant.method, "none", _MODULE)


@meaning.derive(
    f.trainable.method, source=f"{SOURCE} src/olmo_core/nn/transformer/config.py: freeze_params"
)
def trained(run: Cells) -> Any:
    """What patterns over the names of OLMo-core's own classes leave, nothing here tells."""
    return None if run[own.frozen] else "full"


meaning.cannot_say("OLMo-core trains whole models", f.trainable.method, f.quant.method)


@meaning.derive(
    f.loss.logits_materialised, f.loss.algorithm, f.loss.upcast_fp32,
    source=f"{SOURCE} src/olmo_core/nn/lm_head.py; {_MODEL}:854",
)  # fmt: skip
def loss(run: Cells) -> Any:
    """Liger's loss makes no logits; the default one makes them fp32, unless the head is compiled with it, of
    which one kernel comes."""
    if run[own.loss] == "fused_linear":
        return {f.loss.logits_materialised: "fused", f.loss.upcast_fp32: True}
    compiled = bool(run[own.compile])
    return {
        f.loss.logits_materialised: "full",
        f.loss.algorithm: "kernel" if compiled else None,
        f.loss.upcast_fp32: not compiled,
    }


meaning.cannot_say(
    "loss_implementation is set on the model's config (lm_head.loss_implementation)",
    f.loss.logits_materialised,
)
meaning.always(f.loss.outputs_kept, False, _MODULE)


@meaning.derive(f.compile.enabled, source=TRAIN_MODULE)
def compiles(run: Cells) -> Any:
    return bool(run[own.compile])


_OPTIMIZERS = {
    "AdamWConfig": "adamw", "SkipStepAdamWConfig": "adamw", "AdamConfig": "adamw", "LionConfig": "lion",
    "SkipStepLionConfig": "lion", "MuonConfig": "muon", "NorMuonConfig": "muon", "DionConfig": "dion",
}  # fmt: skip


@meaning.derive(f.optimizer.kind, source=f"{SOURCE} src/olmo_core/optim")
def optimizer(run: Cells) -> Any:
    name = run[own.optimizer]
    return None if name is None else _OPTIMIZERS.get(name, "other")


@optimizer.written
def _(kind: Any, run: Cells, wishes: Wishes) -> Wishes:
    raise CannotEdit("the optimizer is an object that the script makes")


@meaning.default(f.optimizer.foreach, source=f"{SOURCE} src/olmo_core/optim/adamw.py:168")
def foreach(run: Cells) -> Any:
    return True if run[f.optimizer.kind] == "adamw" and not run[f.optimizer.fused] else None


# -- activations -----------------------------------------------------------------------------------


@meaning.derive(_C.mode, _C.every_n, _C.recompute_modules, source=TRAIN_MODULE)
def checkpointing(run: Cells) -> Any:
    word = run[own.ac]
    if word is None:
        return {_C.mode: "none"}
    if word == "selected_blocks":
        return {_C.mode: "every_n", _C.every_n: run[own.ac_interval] or 1}
    if word == "selected_modules":
        modules = run[own.ac_modules] or ()
        parts = ("mlp",) if any("feed_forward" in name for name in modules) else ()
        return {_C.mode: "selective_op", _C.recompute_modules: ("core_attn", *parts)}
    words = {"full": "full", "selected_ops": "selective_op", "budget": "budget"}
    return {_C.mode: words.get(word)}


@meaning.written(_C.mode)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wanted != "full" or run[own.ac] is None:
        raise CannotEdit(
            "ac_config is an object that the script makes: its mode alone can be changed"
        )
    return {own.ac: "full"}


meaning.always(_C.source, "framework", f"{_MODEL}:772")
meaning.always(_C.reentrant, False, f"{_MODEL}:772")
meaning.cannot_say("OLMo-core checkpoints without re-entering", _C.reentrant)

# -- saving and evaluating -------------------------------------------------------------------------

_SAVING = f"{SOURCE} src/olmo_core/train/callbacks/checkpointer.py"


@meaning.derive(f.save.strategy, f.save.every, source=_SAVING)
def saving(run: Cells) -> Any:
    intervals = [n for n in (run[own.interval], run[own.ephemeral]) if n]
    return {f.save.strategy: "steps", f.save.every: min(intervals)}


@meaning.written(f.save.every)
def _(steps: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.interval: int(steps)}


@meaning.derive(f.save.async_, source=_SAVING)
def saves_beside(run: Cells) -> Any:
    return "thread" if run[own.save_async] else "none"


@saves_beside.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.save_async: wanted != "none"}


meaning.always(f.save.unit, "steps", _SAVING)
meaning.always(f.save.format, "dcp", _SAVING)
meaning.always(f.save.full_gather, False, _SAVING)
meaning.always(_F.state_dict, "sharded", _SAVING)
meaning.always(f.save.contents, ("model", "optimizer"), _SAVING)
meaning.cannot_say("OLMo-core saves the optimizer with the model", f.save.save_only_model)


meaning.takes(f.batch.eval_micro, f.batch.micro, f"{_MODULE}:206")
meaning.follows(f.batch.eval_micro)
meaning.always(f.eval.keeps_logits, False, _MODULE)
