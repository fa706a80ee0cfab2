"""What nanoGPT makes of its globals, and how they say a wish.

Read from nanoGPT 3adf61e (2025-11-12) ``train.py`` and ``model.py``.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.world import batch, world
from oomlint.dialects.machine.meaning import launch_one_process
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.dialects.nanogpt.keys import SOURCE, own
from oomlint.errors import CannotEdit
from oomlint.plan.fields import below, f
from oomlint.plan.model import ModelDims

meaning = Meaning(world, launch_one_process, batch)

_P = f.precision
_GPT = "nanoGPT 3adf61e model.py GPT"
# train.py:151: what a model from scratch gets where the data set has no meta.pkl: GPT-2's 50257 tokens, rounded up to 64.
_VOCABULARY = 50304

# -- the model -------------------------------------------------------------------------------------


@meaning.derive(f.model.dims, f.model.arch, source=_GPT)
def model(run: Cells) -> Any:
    """A GPT-2 of the globals' sizes, but where training goes on from weights, which have sizes of their own. Its biases are
    counted where ``bias`` leaves them out, too: a thousandth of the parameters of the smallest."""
    if run[own.differs]:
        return {f.model.arch: "a model that takes other arguments than nanoGPT's"}
    hidden, heads, layers = run[own.hidden], run[own.heads], run[own.layers]
    if run[own.start] != "scratch" or not (hidden and heads and layers):
        return None
    arch = "nanogpt_dropless" if run[own.dropout] == 0 else "nanogpt"
    dims = ModelDims(
        arch=arch, layers=layers, hidden=hidden, heads=heads, kv_heads=heads, head_dim=hidden // heads, ffn=4 * hidden,
        vocab=run[own.vocab], tie_embeddings=True, attn_bias=bool(run[own.bias]), mlp_bias=bool(run[own.bias]), norm="ln",
        act="gelu", ctx=run[f.seq.max_len],
    )  # fmt: skip
    return {f.model.dims: dims, f.model.arch: arch}


@meaning.derive(f.model.id, source=f"{SOURCE}:189")
def pretrained(run: Cells) -> Any:
    start = run[own.start]
    return start if start is not None and start.startswith("gpt2") else None


@meaning.assume(
    own.vocab, why="a data set with a meta.pkl has a vocabulary of its own: GPT-2's is taken"
)
def vocabulary(run: Cells) -> Any:
    return _VOCABULARY


@meaning.derive(f.model.from_scratch)
def starts_from_nothing(run: Cells) -> Any:
    return run[own.start] == "scratch"


meaning.always(f.model.attn_impl, "sdpa", f"{_GPT}: scaled_dot_product_attention from torch 2.0 on")
meaning.always(f.load.dtype, "fp32", _GPT)
meaning.always(f.load.device_map, "none", _GPT)
meaning.always(f.trainable.method, "full", SOURCE)
meaning.always(f.objective.kind, "pretrain", SOURCE)

# -- ranks and batches -----------------------------------------------------------------------------


@meaning.derive(f.parallel.backend, source=f"{SOURCE}:214")
def backend(run: Cells) -> Any:
    ranks = run[f.parallel.world]
    return None if ranks is None else "ddp" if ranks > 1 else "none"


meaning.cannot_say(
    "the script wraps the model in DDP, and knows no sharding",
    f.parallel.backend,
    *below(f.parallel.fsdp),
)


@meaning.derive(f.batch.grad_accum, source=f"{SOURCE}:95")
def accumulation(run: Cells) -> Any:
    """The global counts micro batches of all ranks together."""
    total, ranks = run[own.steps], run[f.parallel.dp]
    return max(1, total // ranks) if total and ranks else None


@accumulation.written
def _(steps: Any, run: Cells, wishes: Wishes) -> Wishes:
    ranks = run[f.parallel.dp]
    if ranks is None:
        raise CannotEdit("gradient_accumulation_steps counts all ranks, whose number is not known")
    return {own.steps: steps * ranks}


meaning.takes(f.batch.eval_micro, f.batch.micro)
meaning.cannot_say("the script evaluates with its training batch", f.batch.eval_micro)

# -- dtypes and the optimizer ----------------------------------------------------------------------


@meaning.assume(own.dtype, why="the script takes bf16 where the GPU has it")
def usual_dtype(run: Cells) -> Any:
    return "bf16"


@meaning.derive(
    _P.param,
    _P.grad,
    _P.master,
    _P.optim_state,
    _P.compute,
    _P.logits,
    _P.autocast,
    source=f"{SOURCE}:114",
)
def dtypes(run: Cells) -> Any:
    """fp32 weights under autocast."""
    compute = run[own.dtype]
    return {
        _P.param: "fp32",
        _P.grad: "fp32",
        _P.master: "none",
        _P.optim_state: "fp32",
        _P.compute: compute,
        _P.logits: compute,
        _P.autocast: compute != "fp32",
    }


meaning.follows(_P.optim_state)


@meaning.written(_P.compute)
def _(dtype: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.dtype: dtype}


meaning.always(f.optimizer.kind, "adamw", f"{_GPT}.configure_optimizers")
meaning.cannot_say("the script makes AdamW itself", f.optimizer.kind, f.optimizer.name)
meaning.constant(f.optimizer.fused, True, f"{_GPT}.configure_optimizers: fused on CUDA")
meaning.constant(f.optimizer.foreach, False, f"{_GPT}.configure_optimizers: fused on CUDA")
meaning.constant(
    f.optimizer.groups, 2, f"{_GPT}.configure_optimizers: weights with and without decay"
)

# -- a step ----------------------------------------------------------------------------------------

meaning.always(f.checkpointing.mode, "none", f"{_GPT}: keeps all activations")
meaning.cannot_say("the model has no checkpointing of activations", f.checkpointing.mode)
meaning.always(f.seq.packing, "concat", f"{SOURCE}:120 get_batch")
meaning.always(f.seq.pad, "none", f"{SOURCE}:120 get_batch")
meaning.always(f.loss.logits_materialised, "full", f"{_GPT}.forward")
meaning.cannot_say("the model takes cross entropy of all logits", f.loss.logits_materialised)
meaning.always(f.loss.upcast_fp32, True, "torch autocast makes cross entropy fp32")


@meaning.derive(
    f.loss.algorithm, source=f"{_GPT}.forward: the loss is a part of the compiled model"
)
def compiles_loss(run: Cells) -> Any:
    return "compiled" if run[f.compile.enabled] else None


@meaning.derive(f.eval.enabled, f.eval.strategy, f.eval.on_start, source=f"{SOURCE}:265")
def evaluates(run: Cells) -> Any:
    return {f.eval.enabled: True, f.eval.strategy: "steps", f.eval.on_start: True}


meaning.always(f.eval.keeps_logits, False, f"{SOURCE}:220 estimate_loss")


@meaning.derive(f.save.strategy, f.save.every, f.save.unit, f.save.contents, source=f"{SOURCE}:277")
def saves(run: Cells) -> Any:
    steps = run[own.interval]
    return {
        f.save.strategy: "steps",
        f.save.every: float(steps) if steps else None,
        f.save.unit: "steps",
        f.save.contents: ("model", "optimizer"),
    }


@meaning.written(f.save.every)
def _(steps: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.interval: int(steps)}
