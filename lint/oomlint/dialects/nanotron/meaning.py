"""What nanotron makes of its keys, and how they say a wish.

Read from huggingface/nanotron 2411b022 (2026-04-07); ``NT`` below is its ``src/nanotron``. Since 7bc99232
(2025-06-23) ZeRO with sums in fp32 stops at the first step of several replicas (trainer.py:1093,
gradient_accumulator.py:355); what is said of it here is what releases of before do.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import machine, shared
from oomlint.dialects.common.world import batch, world
from oomlint.dialects.machine.fields import USUAL_NODE, scene
from oomlint.dialects.machine.meaning import launch_all_visible
from oomlint.dialects.meaning import Meaning, Said, Wishes
from oomlint.dialects.nanotron.keys import CONFIG, MODELS, PARALLELISM, SOURCE, own
from oomlint.dialects.setting import Setting
from oomlint.errors import CannotEdit
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.plan.model import ModelDims, Moe

meaning = Meaning(world, launch_all_visible, batch)

_HELPERS = f"{SOURCE} src/nanotron/helpers.py"
_TRAINER = f"{SOURCE} src/nanotron/trainer.py"
_ACCUMULATOR = f"{SOURCE} src/nanotron/optim/gradient_accumulator.py"
_CONTEXT = f"{SOURCE} src/nanotron/parallel/context.py"

# -- the model -------------------------------------------------------------------------------------

_NEEDED = (own.layers, own.hidden, own.ffn, own.heads, own.kv_heads, own.vocab)


@meaning.derive(f.model.dims, f.model.arch, source=MODELS)
def model(run: Cells) -> Any:
    """The defaults are LLaMA 7B's, and a vocabulary of -1 is the data's. A run whose config is not here has no model
    that we know."""
    if not any(map(run.mentions, _NEEDED)):
        return None
    if any(map(run.is_unread, _NEEDED)) or (run[own.vocab] or 0) < 0:
        return None
    dims = _starcoder(run) if run[own.is_starcoder] else _gated(run)
    return None if dims is None else {f.model.dims: dims, f.model.arch: dims.arch}


def _padded(run: Cells, size: int) -> int:
    """NT/helpers.py:52."""
    multiple = (run[own.multiple] or 1) * (run[f.parallel.tp] or 1)
    return -(-size // multiple) * multiple


def _gated(run: Cells) -> ModelDims | None:
    heads, hidden = run[own.heads] or 32, run[own.hidden] or 4096
    ffn, moe = run[own.ffn] or 11008, _moe(run)
    if run.mentions(own.moe) and moe is None:
        return None
    return ModelDims(
        arch="qwen2_moe" if moe else "llama",
        layers=run[own.layers] or 32,
        hidden=hidden,
        heads=heads,
        kv_heads=run[own.kv_heads] or heads,
        head_dim=hidden // heads,
        ffn=ffn,
        vocab=_padded(run, run[own.vocab] or 32000),
        tie_embeddings=run[own.tied],
        attn_bias=run[own.attention_bias],
        mlp_bias=False,
        norm="rms",
        act="swiglu",
        ctx=run[own.positions],
        sliding_window=run[own.window],
        moe=moe,
    )


def _moe(run: Cells) -> Moe | None:
    """Experts in every layer; those of some layers alone have no place in the dimensions."""
    if not run.mentions(own.moe) or run[own.expert_layers] not in (None, [-1]):
        return None
    shared = run[own.shared]
    return Moe(
        experts=run[own.experts],
        topk=run[own.topk],
        moe_ffn=run[own.expert_ffn],
        shared_ffn=run[own.shared_ffn] if shared else None,
        first_dense=0,
        every_n=1,
    )


def _starcoder(run: Cells) -> ModelDims:
    """NT/config/models_config.py Starcoder2Config: one head of keys where no key says otherwise."""
    heads, hidden = run[own.heads] or 16, run[own.hidden] or 2048
    kv_heads = 1 if run[own.multi_query] or not run[own.kv_heads] else run[own.kv_heads]
    return ModelDims(
        arch="starcoder2",
        layers=run[own.layers] or 24,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=hidden // heads,
        ffn=run[own.ffn] or 4 * hidden,
        vocab=_padded(run, run[own.vocab] or 49280),
        tie_embeddings=True,
        attn_bias=True,
        mlp_bias=True,
        norm="ln",
        act="gelu",
        ctx=run[own.positions],
        sliding_window=run[own.window],
    )


@meaning.derive(f.model.from_scratch, source=f"{CONFIG}: ModelArgs.init_method")
def starts_from_nothing(run: Cells) -> Any:
    return not run.mentions(own.path)


meaning.always(f.model.attn_impl, "flash2", f"{SOURCE} src/nanotron/models/llama.py:275")
meaning.cannot_say("nanotron has flash attention alone", f.model.attn_impl)

# -- ranks -----------------------------------------------------------------------------------------

_DEGREES = (f.parallel.tp, f.parallel.pp, f.parallel.cp)


def _of_replica(run: Cells, wishes: Wishes | None = None) -> int:
    count = 1
    for degree in _DEGREES:
        count *= (wishes or {}).get(degree) or run[degree] or 1
    return count


def _ranks(run: Cells) -> int | None:
    each, dp = _of_replica(run), run[own.dp]
    return None if dp is None else dp * each


@meaning.derive(f.parallel.gpus_per_node, f.parallel.nodes, source=f"{_CONTEXT}:26")
def ranks(run: Cells) -> Any:
    """As many as the degrees come to, whatever starts them: nanotron stops at any other number. Ranks that a usual node
    has room for are those of one node where no file speaks of several: a smaller machine cannot start them."""
    total = _ranks(run)
    if total is None:
        return None
    said = run.said(f.parallel.nodes)
    nodes = said.value if isinstance(said, Setting) else run[scene.nodes] or run[machine.nodes]
    if (nodes or 1) > 1:
        each = -(-total // nodes)
    else:
        each = USUAL_NODE if total <= USUAL_NODE else run[machine.gpus_per_node] or USUAL_NODE
    per_node = min(total, each)
    return {f.parallel.gpus_per_node: per_node, f.parallel.nodes: -(-total // per_node)}


@meaning.said(f.parallel.gpus_per_node, f.parallel.nodes)
def not_as_another_is_started(run: Cells, field: Any, said: Said) -> Said:
    """The line that starts another config is that config's: of this one its own degrees tell."""
    is_guess = isinstance(said, Setting) and said.level >= Level.ASSUMED
    return None if is_guess and _ranks(run) is not None else said


@meaning.derive(shared.refused, source=f"{_CONTEXT}:25, v0.4 parallel/context.py:33")
def started_otherwise(run: Cells) -> Any:
    """Where a launch line is at hand: its ranks are counted before anything is loaded."""
    world_size, total = run[f.parallel.world], _ranks(run)
    if total is None or world_size is None or total == world_size:
        return None
    return f"the degrees of parallelism ask for {total} processes, and {world_size} are started"


@meaning.written(*_DEGREES)
def _(count: Any, run: Cells, wishes: Wishes) -> Wishes:
    """The ranks stay as many as they are."""
    total, replica = _ranks(run), _of_replica(run, wishes)
    if total is None or total % replica:
        raise CannotEdit("the ranks that there are cannot be divided so")
    heads, keys = run[own.heads], run[own.kv_heads]
    tp = wishes.get(f.parallel.tp) or run[f.parallel.tp] or 1
    if (heads and heads % tp) or (keys and keys < tp):
        raise CannotEdit("nanotron wants a head of keys on every tensor-parallel rank")
    own_keys: dict[Any, Any] = {each: wishes[each] for each in _DEGREES if each in wishes}
    return {**own_keys, own.dp: total // replica}


@meaning.override(f.parallel.sp, source=f"{PARALLELISM}: tp_mode")
def needs_tensor_parallelism(run: Cells) -> Any:
    return False if (run[f.parallel.tp] or 1) <= 1 else None


# -- sharding and dtypes ---------------------------------------------------------------------------

_Z = f.parallel.zero
_P = f.precision


def _is_sharded(run: Cells) -> bool:
    return (run[own.zero] or 0) > 0


@meaning.derive(
    f.parallel.backend, _Z.stage, _Z.overlap_comm, _Z.reduce_bucket_elems, source=f"{_HELPERS}:409"
)
def backend(run: Cells) -> Any:
    """Any stage above 0 is 1. Replicas are DDP's, but where sums in fp32 are sharded, which go without it
    (NT/trainer.py _init_model)."""
    if run.is_unread(own.zero):
        return None
    if _is_sharded(run):
        return {
            f.parallel.backend: "zero",
            _Z.stage: 1,
            _Z.overlap_comm: False,
            _Z.reduce_bucket_elems: 1,
        }
    replicas = (run[own.dp] or 1) * (run[f.parallel.cp] or 1)
    return {f.parallel.backend: "ddp" if replicas > 1 else "none"}


@meaning.written(_Z.stage)
def _(stage: Any, run: Cells, wishes: Wishes) -> Wishes:
    if stage > 1:
        raise CannotEdit("nanotron shards optimizer states, and nothing else")
    if stage == 1 and run[own.sums]:
        raise CannotEdit(
            "ZeRO with accumulate_grad_in_fp32 stops at the first step since 2025-06 (7bc99232)"
        )
    return {own.zero: stage}


meaning.cannot_say("nanotron shards with ZeRO-1 of its own", f.parallel.fsdp.version)
meaning.cannot_say("nanotron offloads nothing", f.offload.optimizer, f.offload.params)
meaning.always(f.offload.optimizer, "none", _TRAINER)
meaning.always(f.offload.params, "none", _TRAINER)


@meaning.derive(
    _P.param, _P.grad, _P.grad_accum, _P.master, _P.optim_state, _P.compute, _P.autocast, f.load.dtype,
    source=f"{_ACCUMULATOR}:64-95",
)  # fmt: skip
def dtypes(run: Cells) -> Any:
    """Sums in fp32 have a buffer of all parameters, which nobody shards, and fp32 weights."""
    dtype = run[own.dtype]
    wide = bool(run[own.sums]) and dtype != "fp32"
    return {
        _P.param: dtype,
        _P.grad: dtype,
        _P.grad_accum: "fp32" if wide else None,
        _P.master: "fp32" if wide else "none",
        _P.optim_state: "fp32" if wide else dtype,
        _P.compute: dtype,
        _P.autocast: False,
        f.load.dtype: dtype,
    }


meaning.follows(_P.optim_state)
meaning.always(f.quant.method, "none", MODELS)
meaning.always(f.trainable.method, "full", MODELS)
meaning.cannot_say("nanotron trains whole models", f.quant.method, f.trainable.method)
meaning.always(
    f.load.meta_init, True, f"{SOURCE} src/nanotron/models/base.py:187: built on the GPU"
)
meaning.always(f.load.device_map, "none", _TRAINER)
meaning.cannot_say("nanotron builds every rank's part on its GPU", f.load.cpu_ram_efficient)

# -- the optimizer ---------------------------------------------------------------------------------


@meaning.derive(f.optimizer.kind, source=f"{_HELPERS}:356")
def optimizer(run: Cells) -> Any:
    return {"adamw": "adamw", "sgd": "sgd"}.get(str(run[own.optimizer]).lower(), "other")


@optimizer.written
def _(kind: Any, run: Cells, wishes: Wishes) -> Wishes:
    raise CannotEdit("nanotron has AdamW, and SGD without momentum")


# -- activations -----------------------------------------------------------------------------------

_C = f.checkpointing


@meaning.derive(_C.mode, _C.source, _C.reentrant, _C.offload, source=f"{PARALLELISM}:35")
def checkpointing(run: Cells) -> Any:
    return {
        _C.mode: "full" if run[own.recomputes] else "none",
        _C.source: "framework",
        _C.reentrant: True,
        _C.offload: "none",
    }


@meaning.written(_C.mode)
def _(mode: Any, run: Cells, wishes: Wishes) -> Wishes:
    if mode not in ("full", "none"):
        raise CannotEdit("nanotron recomputes every layer or none")
    return {own.recomputes: mode == "full"}


meaning.always(f.offload.activations, "none", _TRAINER)
meaning.cannot_say("nanotron offloads no activations", f.offload.activations, _C.offload)

# -- lengths and the loss --------------------------------------------------------------------------

_DATA = f"{SOURCE} src/nanotron/data"
meaning.always(f.seq.packing, "concat", _DATA)
meaning.always(f.seq.pad, "none", _DATA)
meaning.constant(f.data.workers, 1, f"{CONFIG}: DataArgs")
meaning.constant(f.objective.kind, "pretrain", _TRAINER)

_LOSS = f"{SOURCE} src/nanotron/parallel/tensor_parallel/functional.py:43,85,228"
meaning.always(f.loss.logits_materialised, "loss_parallel", _LOSS)
meaning.always(f.loss.upcast_fp32, True, _LOSS)
meaning.always(f.loss.algorithm, "softmax", f"{_LOSS}: fp32 logits and a copy that becomes softmax")
meaning.always(f.loss.outputs_kept, False, _LOSS)
meaning.cannot_say("nanotron computes its loss from all logits", f.loss.logits_materialised)

# -- evaluating and saving -------------------------------------------------------------------------

meaning.always(f.eval.enabled, False, f"{_TRAINER}:733: validation_step has no caller")
meaning.always(f.eval.strategy, "no", _TRAINER)
meaning.cannot_say("nanotron does not evaluate while it trains", f.batch.eval_micro)

_SAVING = f"{SOURCE} src/nanotron/serialize"


@meaning.derive(f.save.strategy, f.save.every, source=_SAVING)
def saving(run: Cells) -> Any:
    every = run[own.interval]
    if every is None:
        return {f.save.strategy: "no"}
    return {f.save.strategy: "steps", f.save.every: float(every)}


@meaning.written(f.save.every)
def _(steps: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.interval: int(steps)}


meaning.always(f.save.unit, "steps", _SAVING)
meaning.always(f.save.keep, "all", _SAVING)
meaning.always(f.save.full_gather, False, _SAVING)
meaning.always(f.save.contents, ("model", "optimizer", "scheduler"), _SAVING)
meaning.always(f.save.format, "safetensors", _SAVING)
meaning.cannot_say("nanotron keeps every checkpoint", f.save.keep)
meaning.cannot_say("nanotron saves the optimizer with the model", f.save.save_only_model)
