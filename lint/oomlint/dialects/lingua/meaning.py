"""What Meta Lingua makes of its keys, and how they say a wish.

Read from facebookresearch/lingua 437d680 (2025-06-18); ``ML`` below is its ``lingua`` package.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import DTYPES
from oomlint.dialects.common.world import batch, world
from oomlint.dialects.lingua.keys import DISTRIBUTED, MAIN, MODEL, OTHER_APP, SOURCE, STOOL, own
from oomlint.dialects.machine.fields import scene
from oomlint.dialects.machine.meaning import launch_one_process
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f
from oomlint.plan.model import ModelDims

meaning = Meaning(world, launch_one_process, batch)

_F = f.parallel.fsdp
_P = f.precision
_C = f.checkpointing
_PARALLELIZE = f"{SOURCE} lingua/distributed.py parallelize_model"
_TRAIN = f"{SOURCE} apps/main/train.py"

# -- the model -------------------------------------------------------------------------------------

_NEEDED = (own.layers, own.hidden, own.heads, own.kv_heads, own.head_dim, own.widens, own.vocab)
# Tokens of ML/tokenizer.py ByteTokenizer; of a file with ranks of byte pairs, Llama 3's with its 256 special ones, and
# of a model of sentencepiece, Llama 2's: what the configs name that Lingua ships.
_BYTES = 258
_USUAL = {"tiktoken": 128256, "sp": 32000}


@meaning.derive(f.model.dims, f.model.arch, source=MODEL)
def model(run: Cells) -> Any:
    is_other = run.has_block_of(OTHER_APP)
    if is_other or run[own.app] not in (None, MAIN):
        return {f.model.arch: "a model of another app than Lingua's apps/main"}
    hidden, width = run[own.hidden], run[own.head_dim]
    heads = run[own.heads] or (hidden // width if hidden and width else None)
    if not (hidden and heads and run[own.layers]) or any(map(run.is_unread, _NEEDED)):
        return None
    dims = ModelDims(
        arch="llama", layers=run[own.layers], hidden=hidden, heads=heads, kv_heads=run[own.kv_heads] or heads,
        head_dim=width or hidden // heads, ffn=_ffn(run, hidden), vocab=_vocabulary(run),
        tie_embeddings=run[own.tied], attn_bias=False, mlp_bias=False, norm="rms", act="swiglu",
        ctx=run[f.seq.max_len],
    )  # fmt: skip
    return {f.model.dims: dims, f.model.arch: dims.arch}


def _ffn(run: Cells, hidden: int) -> int:
    """ML/transformer.py FeedForward: two thirds of four times the hidden size."""
    width = int(2 * 4 * hidden / 3)
    if run[own.widens] is not None:
        width = int(run[own.widens] * width)
    multiple: int = run[own.multiple] or 1
    return -(-width // multiple) * multiple


def _vocabulary(run: Cells) -> int:
    """``apps/main/train.py`` validate_train_args: what the tokenizer has, where no number or a negative one is given."""
    size = run[own.vocab]
    tokens: int = size if size is not None and size > 0 else run[own.tokens]
    return tokens


@meaning.derive(own.tokens, source=f"{SOURCE} lingua/tokenizer.py ByteTokenizer")
def bytes_of_text(run: Cells) -> Any:
    return _BYTES if run[own.tokenizer] == "bytes" else None


@meaning.assume(own.tokens, why="the size of the vocabulary is in the tokenizer's file")
def usual_vocabulary(run: Cells) -> Any:
    return _USUAL.get(run[own.tokenizer], 128256)


@meaning.derive(f.model.from_scratch)
def starts_from_nothing(run: Cells) -> Any:
    return not run.mentions(own.init)


meaning.always(
    f.model.attn_impl, "sdpa", f"{SOURCE} apps/main/transformer.py LMTransformer.forward"
)
meaning.cannot_say("Lingua trains with torch's attention", f.model.attn_impl)
meaning.always(f.load.meta_init, True, f"{_TRAIN}: torch.device('meta')")
meaning.always(f.load.dtype, "fp32", f"{_TRAIN}: torch.device('meta')")
meaning.always(f.load.device_map, "none", _TRAIN)
meaning.cannot_say("Lingua builds its model empty", f.load.cpu_ram_efficient, f.load.low_cpu_mem)

# -- ranks and sharding ----------------------------------------------------------------------------

_STOOL = f"{SOURCE} lingua/stool.py: srun -n tasks"


def _is_stools(run: Cells) -> bool:
    return run.has_block_of(STOOL)


@meaning.derive(
    f.parallel.nodes, f.parallel.gpus_per_node, scene.nodes, scene.gpus_per_node, source=_STOOL
)
def job(run: Cells) -> Any:
    if not _is_stools(run):
        return None
    nodes, gpus = run[own.nodes], run[own.gpus]
    return {
        f.parallel.nodes: nodes,
        scene.nodes: nodes,
        f.parallel.gpus_per_node: gpus,
        scene.gpus_per_node: gpus,
    }


@meaning.derive(_F.strategy, f.parallel.dp_replicate, source=_PARALLELIZE)
def copies(run: Cells) -> Any:
    """``full_shard`` with ``dp_shard: 1`` spreads one copy over all ranks; ``no_shard`` puts a whole one on each."""
    if run.is_unread(own.sharding) or run.is_unread(own.shard):
        return None
    ranks, shard = run[f.parallel.dp], run[own.shard]
    if run[own.sharding] == "no_shard":
        return {_F.strategy: "no_shard"}
    if not shard or shard == 1 or not ranks or ranks <= shard:
        return {_F.strategy: "full"}
    return {_F.strategy: "hybrid", f.parallel.dp_replicate: max(1, ranks // shard)}


@meaning.written(_F.strategy)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wanted != "full":
        raise CannotEdit("fsdp_type is full_shard or no_shard")
    return {own.sharding: "full_shard", own.shard: 1}


@meaning.derive(
    _F.version, _F.wrap, _F.reshard_after_forward, _F.cpu_offload, _F.sync_every_micro,
    source=f"{SOURCE} apps/main/transformer.py build_fsdp_grouping_plan",
)  # fmt: skip
def wrapping(run: Cells) -> Any:
    """Embedding, blocks and head by themselves; all but the head stay gathered until backward."""
    return {
        _F.version: 2,
        _F.wrap: "ends",
        _F.reshard_after_forward: False,
        _F.cpu_offload: False,
        _F.sync_every_micro: (run[f.batch.grad_accum] or 1) == 1,
    }


meaning.always(f.parallel.backend, "fsdp2", _PARALLELIZE)
meaning.cannot_say(
    "the modules that FSDP2 shards stand in the code (build_fsdp_grouping_plan)",
    _F.wrap,
    _F.reshard_after_forward,
)
meaning.cannot_say("Lingua has FSDP2, not DeepSpeed", f.parallel.zero.stage, f.load.zero3_init)
meaning.cannot_say(
    "Lingua offloads nothing",
    f.offload.optimizer,
    f.offload.params,
    f.offload.activations,
    _F.cpu_offload,
    _C.offload,
)
meaning.always(f.offload.optimizer, "none", _PARALLELIZE)
meaning.always(f.offload.params, "none", _PARALLELIZE)
meaning.always(f.offload.activations, "none", _PARALLELIZE)


@meaning.derive(*DTYPES, source=_PARALLELIZE)
def dtypes(run: Cells) -> Any:
    """fp32 shards, gathered in ``model_dtype``; gradients are reduced in fp32."""
    half = run[own.dtype]
    return {
        _P.param: "fp32", _P.grad: "fp32", _P.master: "none", _P.optim_state: "fp32",
        _P.compute: half, _P.autocast: False, _P.logits: half, _P.comm: "fp32",
    }  # fmt: skip


@meaning.written(_P.compute)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.dtype: wanted}


meaning.cannot_say("Lingua keeps its weights in fp32", _P.param, _P.optim_state)

# -- a step ----------------------------------------------------------------------------------------

_DATA = f"{SOURCE} lingua/data.py"
meaning.always(f.seq.packing, "concat", _DATA)
meaning.always(f.seq.pad, "none", _DATA)
meaning.always(f.data.workers, 1, f"{_DATA}: load_async")
meaning.always(f.objective.kind, "pretrain", _TRAIN)
meaning.always(f.objective.ref_model, "none", _TRAIN)
meaning.always(f.trainable.method, "full", _TRAIN)
meaning.always(f.quant.method, "none", _TRAIN)
meaning.cannot_say("Lingua trains whole models", f.trainable.method, f.quant.method)
meaning.always(f.optimizer.kind, "adamw", f"{SOURCE} lingua/optim.py build_optimizer")
meaning.always(f.optimizer.fused, True, f"{SOURCE} lingua/optim.py build_optimizer")
meaning.cannot_say("Lingua has torch's fused AdamW", f.optimizer.kind, f.optimizer.fused)


@meaning.derive(
    f.loss.logits_materialised, f.loss.algorithm, f.loss.upcast_fp32,
    source=f"{SOURCE} lingua/transformer.py cross_entropy",
)  # fmt: skip
def loss(run: Cells) -> Any:
    """fp32 logits and their log-softmax; compiled with the model, one kernel over those of ``model_dtype``."""
    compiled = bool(run[f.compile.enabled])
    return {
        f.loss.logits_materialised: "full",
        f.loss.algorithm: "kernel" if compiled else None,
        f.loss.upcast_fp32: not compiled,
    }


meaning.always(f.loss.outputs_kept, False, _TRAIN)
meaning.cannot_say("Lingua computes its loss from all logits", f.loss.logits_materialised)


@meaning.derive(_C.mode, _C.source, _C.reentrant, source=f"{DISTRIBUTED}; {_PARALLELIZE}")
def checkpointing(run: Cells) -> Any:
    """Products of matrices and attention are kept, the rest is computed again where compiling takes the model apart;
    without it the whole model is one segment, all of which is there again once backward begins."""
    is_on = run[own.recomputes] and run[f.compile.enabled]
    return {
        _C.mode: "selective_op" if is_on else "none",
        _C.source: "framework",
        _C.reentrant: False,
    }


@checkpointing.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wanted not in ("selective_op", "none") or (wanted != "none" and not run[f.compile.enabled]):
        raise CannotEdit(
            "Lingua has selective checkpointing alone, which takes compile: true to save anything"
        )
    return {own.recomputes: wanted == "selective_op"}


meaning.cannot_say("Lingua checkpoints without re-entering", _C.reentrant)

# -- evaluating and saving -------------------------------------------------------------------------


@meaning.derive(f.eval.enabled, f.eval.strategy, source=_TRAIN)
def evaluation(run: Cells) -> Any:
    """Another job's, or none; one of the same process loads the model a second time, which is not read."""
    if run.mentions(own.evaluates) and not run[own.elsewhere]:
        return None
    return {f.eval.enabled: False, f.eval.strategy: "no"}


meaning.cannot_say("evaluation has a model of its own", f.batch.eval_micro)

_SAVING = f"{SOURCE} lingua/checkpoint.py CheckpointManager.save"


@meaning.derive(f.save.strategy, f.save.every, source=_SAVING)
def saving(run: Cells) -> Any:
    every = run[own.interval]
    return None if every is None else {f.save.strategy: "steps", f.save.every: float(every)}


@meaning.written(f.save.every)
def _(steps: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.interval: int(steps)}


meaning.always(f.save.unit, "steps", _SAVING)
meaning.always(f.save.format, "dcp", _SAVING)
meaning.always(f.save.full_gather, False, _SAVING)
meaning.always(_F.state_dict, "sharded", _SAVING)
meaning.always(f.save.contents, ("model", "optimizer"), _SAVING)
meaning.cannot_say("Lingua saves the optimizer with the model", f.save.save_only_model)
