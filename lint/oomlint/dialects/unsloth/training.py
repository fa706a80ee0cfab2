"""What Unsloth makes of TRL's trainers: its checkpoints, losses and kernels, and its defaults.

Read from unsloth 015bdef0 (2026-08-22; ``U`` below is ``unslothai/unsloth unsloth/``) and
unsloth_zoo 2026.10.9 (``Z``).
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.block import Block
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.meaning import NOTHING, Meaning, Said, Sourced, Wishes
from oomlint.dialects.trainer.scripts import given_to_trainer
from oomlint.dialects.trl.fields import trl
from oomlint.dialects.trl.rollouts import rolls_out
from oomlint.dialects.unsloth.keys import (
    CONFIGS,
    PATCHED,
    PLAIN,
    grows_segments,
    is_for_language,
    returns_logits,
    stands_by,
    unsloth,
)
from oomlint.dialects.unsloth.releases import FUSES_LOSS
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

training = Meaning()

# U models/_utils.py apply_unsloth_gradient_checkpointing: shorter samples stay on the GPU.
_SHORTEST_OFFLOADED = 512

# -- arguments before TRL sees them ----------------------------------------------------------------


def _is_patched(blocks: list[Block]) -> bool:
    return any(block.table is each for block in blocks for each in PATCHED.values())


def _is_plain(blocks: list[Block]) -> bool:
    return any(block.table is each for block in blocks for each in PLAIN.values())


@training.override(f.save.strategy, source=CONFIGS)
def saves_nowhere(run: Cells) -> Any:
    is_told = run.mentions(f.save.dir) or run.says(f.save.strategy)
    return None if is_told or not run.once(_is_patched) else "no"


@training.override(
    f.batch.eval_micro,
    source="unsloth models/rl.py:2463: the default of 8 gives way to the training batch",
)
def evaluates_as_it_trains(run: Cells) -> Any:
    if not run.once(_is_plain) or run.says(f.batch.eval_micro):
        return None
    return run[f.batch.micro]


@training.default(trl.beta, source="unsloth models/rl.py:3314")
def beta(run: Cells) -> Any:
    return 0.001 if run[f.objective.kind] == "grpo" else None


_R = f.objective.rollout


@training.override(
    _R.engine,
    _R.gpu_mem_util,
    _R.sleep,
    _R.shares_weights,
    source="unsloth_zoo vllm_utils.py load_vllm",
)
def shares_weights(run: Cells) -> Any:
    """vLLM is made with the model, whatever the trainer's arguments say of it, and works with
    the one copy of the weights that there is (U models/rl.py:3983, :4047)."""
    if not rolls_out(run) or not run[unsloth.vllm]:
        return None
    return {
        _R.engine: "vllm_colocate",
        _R.gpu_mem_util: run[unsloth.vllm_share],
        _R.sleep: bool(run[unsloth.standby]) or run.once(stands_by),
        _R.shares_weights: True,
    }


# -- samples ---------------------------------------------------------------------------------------


@training.said(unsloth.max_len, f.seq.max_len)
def works_on_pieces(run: Cells, field: Any, said: Said) -> Said:
    """With a tiled MLP it works on pieces of a sample, whatever its length; that is not modelled."""
    tiles = run.setting(unsloth.tiled_mlp)
    return said if tiles is None or not tiles.value else tiles.origin


training.takes(f.seq.max_len, unsloth.max_len, "unsloth models/rl.py:2515")


@training.override(f.seq.max_len, source="unsloth models/rl.py:2521")
def shorter_length(run: Cells) -> Any:
    """The shorter of the model's and the trainer's (U models/rl.py:2509)."""
    own, longest = run[f.seq.max_len], run[unsloth.max_len]
    if rolls_out(run) or own is None or longest is None:
        return None
    return longest if own > longest else None


@training.written(f.seq.max_len)
def _(length: Any, run: Cells, wishes: Wishes) -> Wishes:
    if rolls_out(run):
        raise CannotEdit("the length follows from the prompts and max_completion_length")
    own = {f.seq.max_len: length} if run.says(f.seq.max_len) else {}
    if own and length <= (run[unsloth.max_len] or 0):
        return own
    return {**own, unsloth.max_len: length}


@training.derive(f.seq.pad, source="unsloth trainer.py")
def joins_samples(run: Cells) -> Any:
    """U trainer.py _should_auto_padding_free: samples of a batch are joined without padding."""
    return "none" if run[f.objective.kind] == "sft" and not run[trl.packing] else None


# -- activations and dtypes ------------------------------------------------------------------------

_CHECKPOINTS = "unsloth models/_utils.py apply_unsloth_gradient_checkpointing"


@training.override(f.checkpointing.mode, f.checkpointing.reentrant, source=_CHECKPOINTS)
def checkpointing(run: Cells) -> Any:
    mode = run[unsloth.checkpointing]
    if mode is None:
        return None
    return {
        f.checkpointing.mode: "none" if mode == "none" else "full",
        f.checkpointing.reentrant: True,
    }


@training.written(f.checkpointing.mode)
def _(mode: Any, run: Cells, wishes: Wishes) -> Wishes:
    if mode not in ("full", "none"):
        raise CannotEdit("Unsloth checkpoints every layer or none")
    return {unsloth.checkpointing: "unsloth" if mode == "full" else "none"}


@training.override(f.checkpointing.offload, f.offload.activations, source=_CHECKPOINTS)
def moves_checkpoints(run: Cells) -> Any:
    mode = run[unsloth.checkpointing]
    if mode is None:
        return None
    is_long = run.get(unsloth.max_len, _SHORTEST_OFFLOADED) >= _SHORTEST_OFFLOADED
    device = "cpu" if mode == "unsloth" and is_long else "none"
    return {f.checkpointing.offload: device, f.offload.activations: device}


@training.written(f.checkpointing.offload, f.offload.activations)
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    if device == "cpu" and (run[unsloth.max_len] or 0) < _SHORTEST_OFFLOADED:
        raise CannotEdit("Unsloth keeps samples this short on the GPU")
    return {unsloth.checkpointing: "unsloth" if device == "cpu" else "full"}


training.cannot_say("Unsloth's checkpoints are reentrant", f.checkpointing.reentrant)


@training.override(f.quant.prepares_kbit, source="unsloth models/_utils.py:2482")
def prepares_nothing(run: Cells) -> Any:
    return False


@training.override(
    f.trainable.adapter_dtype,
    f.precision.grad,
    f.precision.optim_state,
    source="unsloth_zoo training_utils.py:404: adapters become fp32",
)
def adapters_in_fp32(run: Cells) -> Any:
    if not is_adapter_run(run):
        return None
    fields = (f.trainable.adapter_dtype, f.precision.grad, f.precision.optim_state)
    return dict.fromkeys(fields, "fp32")


# -- the allocator ---------------------------------------------------------------------------------


@training.derive(
    f.env.expandable_segments,
    source="unsloth_zoo ce232d6c __init__.py: PYTORCH_ALLOC_CONF, before torch is imported",
)
def expandable_segments(run: Cells) -> Any:
    """Since March 2024 (unsloth c599ae0f), unless somebody has said how torch is to allocate, or vLLM sleeps meanwhile."""
    if run[f.env.alloc_conf] is not None:
        return None
    said = run.once(grows_segments)
    return not (bool(run[unsloth.standby]) or run.once(stands_by)) if said is None else said


# -- loss ------------------------------------------------------------------------------------------


training.always(
    trl.fused_head,
    False,
    "unsloth 2026.10.9 models/rl.py: a kernel of its own in the place of TRL's",
)


@training.override(f.loss.logits_materialised)
def logits(run: Cells) -> Any:
    """The fused loss is the model's own, of labels that it is given (U models/llama.py:1472). GRPO
    has one besides (Z rl_replacements.py); preference trainers ask for logits."""
    kind = run[f.objective.kind]
    if kind not in ("sft", "grpo"):
        return None
    if run[f.eval.keeps_logits] or run.once(_looks_at_logits):
        return Sourced("full", "unsloth models/rl.py:2485: what measures the model wants them")
    if run.once(returns_logits):
        return Sourced(
            "full", "unsloth models/llama.py CausalLM_fast_forward: UNSLOTH_RETURN_LOGITS"
        )
    if kind == "sft" and not run.has(FUSES_LOSS):
        return Sourced("full", FUSES_LOSS.source)
    return Sourced("fused", "unsloth_zoo fused_losses: logits are computed chunk by chunk")


@training.override(
    f.loss.algorithm,
    f.loss.upcast_fp32,
    source="unsloth kernels/cross_entropy_loss.py Fast_CrossEntropyLoss.backward",
)
def own_kernel(run: Cells) -> Any:
    """Where all logits are made, a kernel reads them as they are and writes the gradient over them."""
    if run[f.objective.kind] != "sft" or run[f.loss.logits_materialised] != "full":
        return None
    return {f.loss.algorithm: "overwritten", f.loss.upcast_fp32: False}


def _looks_at_logits(blocks: list[Block]) -> bool:
    """Whether a trainer is given metrics, which take all logits in training, too (unsloth 2025.3.9 models/rl.py:287)."""
    measures = {"compute_metrics", "preprocess_logits_for_metrics"}
    return any(not measures.isdisjoint(names) for names in given_to_trainer(blocks))


training.cannot_say("Unsloth computes the loss in chunks already", f.loss.logits_materialised)

# What a chunk may take, and what a logit of it takes over its forward and backward
# (unsloth_zoo 2026.10.9 fused_losses/cross_entropy_loss.py _CE_TARGET_GB_CAP, _CE_BYTES_PER_LOGIT).
_MOST_A_CHUNK = 4 * 2**30
_BYTES_A_LOGIT = 16


@training.override(f.loss.chunks)
def chunks(run: Cells) -> Any:
    """How TRL would cut the tokens counts for nothing: Unsloth's own loss cuts them."""
    if run[f.objective.kind] != "sft" or run[f.loss.logits_materialised] != "fused":
        return NOTHING
    dims, rows, length = run[f.model.dims], run[f.batch.micro], run[f.seq.max_len]
    if dims is None or not dims.vocab or not rows or not length:
        return NOTHING
    varies = run[f.seq.packing] in (None, "none") and run[f.seq.pad] != "max_len"
    if varies:
        length = min(length, run[f.seq.longest] or length)
    least = rows * length * dims.vocab * _BYTES_A_LOGIT / _MOST_A_CHUNK
    count = 1 if least <= 1 else min(-(-least // 4) * 4, rows * length)
    if varies:
        # Of batches of many lengths one comes near the most that is made at once.
        count = max(1, round(least))
    why = (
        "unsloth_zoo 2026.10.9 fused_losses/cross_entropy_loss.py get_chunk_size: a chunk takes half "
        "of what is free at the first loss, at most 4 GiB, which is taken for it"
    )
    return Sourced(int(count), why, is_assumed=True)


# -- kernels ---------------------------------------------------------------------------------------

# U models/loader.py FastLanguageModel: the other ones go to FastModel, whose adapters are peft's.
_WITH_KERNELS = frozenset({"llama", "mistral", "gemma", "gemma2", "qwen2", "qwen3"})


@training.override(f.model.attn_impl)
def attention(run: Cells) -> Any:
    """U models/llama.py LlamaAttention_fast_forward: FlashAttention 2 where it is installed, else xformers,
    else sdpa, none of which keeps scores; another model goes through transformers, whose choice Unsloth
    changes from release to release."""
    if run.mentions(f.model.attn_impl):
        return None
    dims = run[f.model.dims]
    is_own = dims is not None and dims.arch in _WITH_KERNELS
    why = "Unsloth takes FlashAttention 2, xformers or sdpa, whatever is installed"
    return Sourced("xformers", why, is_assumed=not is_own)


training.cannot_say("Unsloth chooses the attention kernel itself", f.model.attn_impl)


def _has_kernels(run: Cells) -> bool:
    """Whether the adapter is one of the classes for language, which have a kernel for the gate in
    the function alone that U models/llama.py patch_peft_model makes of a part of a block."""
    dims = run[f.model.dims]
    return (
        dims is not None
        and dims.arch in _WITH_KERNELS
        and is_adapter_run(run)
        and run.once(is_for_language)
        and run[f.quant.method] != "bnb8"
    )


@training.override(f.loss.liger.rope, f.loss.liger.rms, source="unsloth kernels/")
def kernels(run: Cells) -> Any:
    """Norms and rotations of one kernel each, written by hand or compiled."""
    return {f.loss.liger.rope: True, f.loss.liger.rms: True}


@training.override(f.loss.liger.swiglu, source="unsloth kernels/")
def kernel_of_gate(run: Cells) -> Any:
    rest = "unsloth models/llama.py:3719: other feed-forward parts run as transformers has them"
    return Sourced(False, rest) if _has_kernels(run) else True


@training.derive(f.trainable.fused)
def fused_parts(run: Cells) -> Any:
    """Parts of a block whose layers all carry an adapter, and no bias, where there is no dropout."""
    if not _has_kernels(run) or run[f.trainable.method] == "dora" or run[f.trainable.dropout]:
        return None
    dims = run[f.model.dims]
    assert dims is not None
    has_bias = {"mlp": dims.mlp_bias, "qkv": dims.attn_bias, "o": False}
    return tuple(part for part, biased in has_bias.items() if not biased)


@training.override(f.batch.micro, source="unsloth 2026.1.1 models/rl.py:886")
def whole_group(run: Cells) -> Any:
    """A round that would hold no whole groups of answers gets a micro batch of as many as a group has."""
    micro, group, steps = run.base(f.batch.micro), run[_R.n], run[f.batch.grad_accum]
    world = run[f.parallel.world]
    if not (rolls_out(run) and micro and group and steps and world):
        return None
    if run.says(trl.steps_per_generation) or run.says(_R.generation_batch):
        return None
    return group if micro * steps * world % group else None
