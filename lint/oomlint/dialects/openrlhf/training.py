"""What OpenRLHF's trainers make of their options about a step, its loss, evaluating and saving.

Read from OpenRLHF 3c3be623 (0.11.0, 2026-08-13) and the tags v0.3.8 to v0.10.4; ``OR`` below is
``openrlhf/``.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.meaning import Meaning, Sourced, Wishes
from oomlint.dialects.openrlhf.keys import ACTOR, STRATEGY, own
from oomlint.dialects.openrlhf.programs import defaults_of, is_dotted, program_of, reinforces
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f
from oomlint.plan.library_changes import LibraryChange

training = Meaning()

# -- sequences -------------------------------------------------------------------------------------

_PARTS = (f.objective.rollout.max_prompt_tokens, f.objective.rollout.max_completion_tokens)


def _has_length_of_parts(run: Cells) -> bool:
    """Older reinforcement learning counts prompt and answer apart."""
    return reinforces(run) and not is_dotted(run)


@training.default(*_PARTS)
def parts(run: Cells) -> Any:
    if not _has_length_of_parts(run):
        return None
    return {part: Sourced(1024, defaults_of(run)) for part in _PARTS}


@training.override(f.seq.max_len)
def length_of_parts(run: Cells) -> Any:
    if not _has_length_of_parts(run):
        return None
    prompt, answer = (run[part] for part in _PARTS)
    return prompt + answer if prompt and answer else None


@training.default(f.seq.max_len)
def length(run: Cells) -> Any:
    is_long = reinforces(run) or program_of(run) in ("sft", "kd")
    return Sourced(2048 if is_long else 512, defaults_of(run))


@length.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    is_said = run.says(f.seq.max_len) and length_of_parts(run) is None
    if reinforces(run) and not is_said:
        raise CannotEdit("the length follows from prompt_max_len and generate_max_len")
    return {f.seq.max_len: wanted}


training.always(f.seq.packing, "none", "the samples of a micro batch are joined, no more")


def _packs(run: Cells) -> bool:
    """OR/cli/train_ppo_ray.py:641-660 and the like: batches by tokens and ring attention need
    packing, and packing FlashAttention, which is switched on."""
    return run[own.packing] or run[own.dynamic_batch] or (run[f.parallel.cp] or 1) > 1


@training.derive(f.seq.pad)
def padding(run: Cells) -> Any:
    return "none" if _packs(run) else "longest"


@training.derive(f.model.attn_impl)
def attention(run: Cells) -> Any:
    return "flash2" if run[own.flash] else None


@training.default(f.model.attn_impl)
def usual_attention(run: Cells) -> Any:
    return Sourced("flash2" if is_dotted(run) else "eager", defaults_of(run))


@training.override(f.model.attn_impl)
def attention_of_packs(run: Cells) -> Any:
    return "flash2" if _packs(run) and run[f.model.attn_impl] not in ("flash2", "flash3") else None


@attention.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if run.block_with(own.flash) and run.says(own.flash):
        raise CannotEdit("--flash_attn asks for FlashAttention already")
    if run[f.seq.pad] == "none" and wanted not in ("flash2", "flash3"):
        raise CannotEdit("packed samples take FlashAttention whatever is asked for")
    return {f.model.attn_impl: wanted}


# -- loss ------------------------------------------------------------------------------------------


@training.derive(f.loss.logits_materialised, source=f"{ACTOR}:267")
def logits(run: Cells) -> Any:
    """All logits are kept and made fp32; Liger's model gets no labels."""
    run[own.liger]  # the place to point at
    return "full"


training.cannot_say(
    "OpenRLHF takes the logits themselves; Liger does not fuse its losses",
    f.loss.logits_materialised,
)

_BY_ROWS = LibraryChange(
    "openrlhf", (0, 5, 8), "log probabilities come from one log_softmax of all logits",
    "OpenRLHF v0.5.7 and v0.5.8 models/utils.py log_probs_from_logits",
)  # fmt: skip
_BY_KERNEL = LibraryChange(
    "openrlhf", (0, 6, 2), "log probabilities are taken sample by sample",
    "OpenRLHF v0.6.1 and v0.6.2 models/utils.py log_probs_from_logits",
)  # fmt: skip
_WIDENED = LibraryChange(
    "openrlhf", (0, 5, 6), "logits stay as narrow as the model gives them",
    "OpenRLHF v0.5.5.post2 and v0.5.6 models/actor.py forward",
)  # fmt: skip


@training.derive(f.loss.upcast_fp32, source=f"{ACTOR}:267")
def widens_logits(run: Cells) -> Any:
    return run.has(_WIDENED, noted=False)


training.cannot_say("OpenRLHF makes its logits fp32 by itself", f.loss.upcast_fp32)


@training.derive(f.loss.algorithm, source="OR/models/utils.py:147")
def loss_algorithm(run: Cells) -> Any:
    """The same for all objectives but distillation; flash-attn is a requirement."""
    if run[f.objective.kind] == "distill" or not run.has(_BY_ROWS, noted=False):
        return None
    return "kernel" if run.has(_BY_KERNEL, noted=False) else "rows"


_LIGER = (f.loss.liger.rope, f.loss.liger.rms, f.loss.liger.swiglu)


@training.derive(*_LIGER)
def liger(run: Cells) -> Any:
    return dict.fromkeys(_LIGER, bool(run[own.liger]))


training.always(f.checkpointing.offload, "none", ACTOR)

# -- evaluating and saving -------------------------------------------------------------------------


@training.derive(f.eval.enabled)
def evaluates(run: Cells) -> Any:
    return run[own.eval_dataset] is not None


@training.derive(f.eval.strategy)
def evaluation(run: Cells) -> Any:
    """OR/trainer/sft_trainer.py: -1 means once an epoch."""
    if not run[f.eval.enabled]:
        return "no"
    return "steps" if run.get(own.eval_steps, -1) > 0 else "epoch"


training.always(f.eval.keeps_logits, False, "evaluation adds up losses")


def _saved_every(run: Cells) -> int | None:
    """Steps between checkpoints; without any the model is saved at the end."""
    steps = run[own.save_steps]
    return steps if steps and steps > 0 else None


@training.derive(f.save.strategy, f.save.every, f.save.unit)
def saves(run: Cells) -> Any:
    steps = _saved_every(run)
    return {
        f.save.strategy: "steps" if steps else "end",
        f.save.every: float(steps) if steps else None,
        f.save.unit: "steps",
    }


@training.written(f.save.every)
def _(steps: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.save_steps: int(steps)}


@training.derive(f.save.contents)
def saved(run: Cells) -> Any:
    model = "adapter" if is_adapter_run(run) else "model"
    with_states = _saved_every(run) and not run[f.save.save_only_model]
    return (model, "optimizer", "scheduler", "rng") if with_states else (model,)


# save_model collects every parameter on rank 0's host.
training.always(f.save.full_gather, True, f"{STRATEGY}/deepspeed.py save_model")
