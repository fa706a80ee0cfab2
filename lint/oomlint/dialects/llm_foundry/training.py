"""What LLM Foundry and Composer make of their keys about a step, its loss, evaluating and saving.

Read from llm-foundry 0.22.0.dev0 (8c8dd48f) and Composer 640518880 (2026-04-29); ``LF`` below
is the package ``llmfoundry``, ``CO`` the package ``composer``.
"""

from __future__ import annotations

import re
from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.common.world import express_global_batch, share_of, steps_through
from oomlint.dialects.llm_foundry.keys import SOURCE, TRAIN_CONFIG, own
from oomlint.dialects.llm_foundry.mpt import is_mpt
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

training = Meaning()

# -- batches ---------------------------------------------------------------------------------------


@training.derive(f.batch.auto_micro, source=TRAIN_CONFIG)
def searches_micro_batch(run: Cells) -> Any:
    return None if run.mentions(f.batch.micro) else True


training.always(f.batch.micro, 1, "Composer halves the micro batch until it fits; only 1 can fail")


@training.override(f.batch.micro)
def no_more_than_there_are(run: Cells) -> Any:
    """ "device_microbatch_size > device_batch_size … will be reduced" (LF/utils/config_utils.py
    calculate_batch_size_info)."""
    share, micro = _share_of_rank(run), run[f.batch.micro]
    return share if share and micro and micro > share else None


def _share_of_rank(run: Cells) -> int | None:
    """Samples of one rank in a step."""
    return share_of(run[own.global_], run[f.parallel.world])


@training.derive(f.batch.grad_accum)
def accumulation(run: Cells) -> Any:
    return steps_through(_share_of_rank(run), run[f.batch.micro])


@training.derive(f.batch.global_)
def samples_of_step(run: Cells) -> Any:
    """What the file says, which is less than the product where the last micro batch of a rank is a smaller one
    (CO/core/data_spec.py _split_tensor)."""
    return run[own.global_]


@accumulation.written
def _(steps: Any, run: Cells, wishes: Wishes) -> Wishes:
    """``global_train_batch_size`` = micro batch x accumulation x ranks, unless it comes to as many steps as it is."""
    if steps and steps == steps_through(
        _share_of_rank(run), wishes.get(f.batch.micro, run[f.batch.micro])
    ):
        return {}
    unknown = "global_train_batch_size depends on the number of GPUs"
    return express_global_batch(steps, run, wishes, own.global_, unknown)


training.takes(f.batch.eval_micro, f.batch.micro, f"{SOURCE} config_utils.py")


# -- sequences -------------------------------------------------------------------------------------


def _finetunes(run: Cells) -> bool:
    return run[own.loader] == "finetuning"


@training.derive(f.objective.kind)
def objective(run: Cells) -> Any:
    return "sft" if _finetunes(run) else "pretrain"


training.always(f.objective.ref_model, "none", "neither objective has a reference")


@training.derive(f.seq.packing)
def packing(run: Cells) -> Any:
    """Texts are joined (LF/data/text_data.py), samples packed where there is a ratio."""
    if not _finetunes(run):
        return "concat"
    return "none" if run[own.packing_ratio] is None else "bfd"


@training.derive(f.seq.pad)
def padding(run: Cells) -> Any:
    if not _finetunes(run):
        return "none"
    return "longest" if run[own.trims] and run[own.packing_ratio] is None else "max_len"


@training.derive(f.data.streaming)
def streams(run: Cells) -> Any:
    return None if _finetunes(run) else True


# -- loss ------------------------------------------------------------------------------------------


@training.derive(f.loss.logits_materialised)
def logits(run: Cells) -> Any:
    run[own.model]  # no model leaves them out: the place to point at
    return "full"


training.cannot_say(
    "LLM Foundry has no loss that leaves the logits out", f.loss.logits_materialised
)
# They stay for the training metrics.
training.always(f.loss.outputs_kept, True, "Composer trainer.py: state.outputs")


@training.derive(f.loss.upcast_fp32)
def upcasts(run: Cells) -> Any:
    """flash-attn's kernel reads 16-bit logits; torch's cross entropy is autocast to float32."""
    return not _has_kernel(run)


def _has_kernel(run: Cells) -> bool:
    return is_mpt(run) and run[own.loss] in (None, "fused_crossentropy")


@training.derive(f.loss.algorithm, source="flash-attn 2.8 losses/cross_entropy.py")
def kernel(run: Cells) -> Any:
    """The kernel keeps the logits as they are and writes their gradient beside them; autocast knows nothing of it."""
    return "kernel" if _has_kernel(run) else None


# -- optimizer -------------------------------------------------------------------------------------

# LF/optim/__init__.py; the 8-bit one and Composer's plain ones are of earlier releases.
_OPTIMIZERS = {
    "decoupled_adamw": "adamw",
    "adamw": "adamw",
    "adam": "adamw",
    "decoupled_lionw": "lion",
    "adalr_lion": "lion",
    "clip_lion": "lion",
    "decoupled_lionw_8b": "lion8bit",
    "decoupled_sgdw": "sgd",
    "sgd": "sgd",
    "no_op": "sgd",
}
_NAMES = {"adamw": "decoupled_adamw", "lion": "decoupled_lionw"}


@training.derive(f.optimizer.kind)
def optimizer(run: Cells) -> Any:
    name = run[f.optimizer.name]
    return None if name is None else _OPTIMIZERS.get(name, "other")


@optimizer.written
def _(kind: Any, run: Cells, wishes: Wishes) -> Wishes:
    if kind not in _NAMES:
        raise CannotEdit(f"LLM Foundry registers no {kind} optimizer")
    return {f.optimizer.name: _NAMES[kind]}


_LOOPS = "CO/optim/decoupled_weight_decay.py loops over tensors one by one"
training.always(f.optimizer.fused, False, _LOOPS)
training.always(f.optimizer.foreach, False, _LOOPS)
training.cannot_say("LLM Foundry's optimizers have no fused kernel", f.optimizer.fused)

# -- evaluating ------------------------------------------------------------------------------------

_TIME = re.compile(r"(\d+)\s*(ba|ep|iter|sp|tok|dur|sec)?")


def _period(text: str | None) -> tuple[int | None, str]:
    """Count and unit of ``500ba``; a bare number counts epochs (CO/core/time.py)."""
    match = _TIME.match((text or "").strip().replace("_", ""))
    return (int(match[1]), match[2] or "ep") if match else (None, "ep")


def _steps(text: str | None) -> int | None:
    """The steps of a period that is said in such."""
    number, unit = _period(text)
    return number if unit == "ba" else None


@training.derive(f.eval.enabled)
def evaluates(run: Cells) -> Any:
    return bool(run[own.eval_loader] or run[own.icl_tasks])


@training.derive(f.eval.strategy, f.eval.every)
def evaluation(run: Cells) -> Any:
    if not run[f.eval.enabled]:
        return {f.eval.strategy: "no"}
    number, unit = _period(run[own.eval_interval])
    if unit == "ba":
        return {f.eval.strategy: "steps", f.eval.every: number}
    return {f.eval.strategy: "epoch"}


training.always(f.eval.keeps_logits, False, "torchmetrics update batch by batch")


@training.derive(f.total_steps)
def total_steps(run: Cells) -> Any:
    return _steps(run[own.duration])


# -- saving ----------------------------------------------------------------------------------------


def _has_folder(run: Cells) -> bool:
    """Whether Composer writes checkpoints; else those count that the callback writes in Hugging
    Face's format, which always gathers the whole model."""
    return run.mentions(f.save.dir)


@training.derive(f.save.strategy, f.save.every)
def saves(run: Cells) -> Any:
    interval = run[own.save_interval] if _has_folder(run) else run[own.hf_interval]
    if interval is None and not _has_folder(run):
        return {f.save.strategy: "no"}
    number, unit = _period(interval)
    if unit == "ba":
        return {f.save.strategy: "steps", f.save.every: number}
    return {f.save.strategy: "end" if unit == "dur" else "epoch"}


@training.written(f.save.every)
def _(steps: Any, run: Cells, wishes: Wishes) -> Wishes:
    _check_folder(run, "save_interval")
    return {own.save_interval: f"{steps:g}ba"}


def _check_folder(run: Cells, key: str) -> None:
    """Whether Composer writes checkpoints to a folder that is known.

    Raises:
        CannotEdit: it does not, so that ``key`` would do nothing.
    """
    if run[f.save.dir] is None:
        raise CannotEdit(f"{key} counts only with save_folder, which this file lacks")


@training.derive(f.save.keep)
def keeps(run: Cells) -> Any:
    number = run[own.keep]
    return "all" if not number or number < 0 else number


@keeps.written
def _(number: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.keep: -1 if number == "all" else number}


@training.override(f.save.save_only_model)
def exports_model(run: Cells) -> Any:
    return None if _has_folder(run) else True


@training.written(f.save.save_only_model)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    _check_folder(run, "save_weights_only")
    return {f.save.save_only_model: bool(wanted)}


@training.derive(f.save.contents)
def saved(run: Cells) -> Any:
    model = "adapter" if is_adapter_run(run) else "model"
    return (model,) if run[f.save.save_only_model] else (model, "optimizer")


@training.derive(f.save.full_gather)
def gathers_to_save(run: Cells) -> Any:
    if run[f.parallel.backend] != "fsdp1":
        return None
    return run[own.hf_interval] is not None or run[f.parallel.fsdp.state_dict] == "full"


@training.derive(f.save.dtype)
def saved_dtype(run: Cells) -> Any:
    if _has_folder(run) or run[own.hf_interval] is None:
        return None
    return run.get(own.hf_dtype, "fp32")
