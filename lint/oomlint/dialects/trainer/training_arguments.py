"""What transformers' Trainer makes of its arguments, and how they say a wish.

A dialect over the Trainer includes :data:`training_arguments`, which folds in an Accelerate YAML or
the flags of ``accelerate launch`` too. It derives itself what it trains (``trainable.*``,
``objective.*``), what its keys ask for of quantization (``asked.*``) and ``load.dtype``.

Read from transformers 5.23 (``HF`` below is ``src/transformers``); where 5.8 or 4.57 differ, the
version that the run names decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from oomlint.dialects.accelerate.keys import own as acc
from oomlint.dialects.accelerate.meaning import accelerate, accelerate_amp, takes_flags
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import backend, is_adapter_run
from oomlint.dialects.common.fields import fsdp, shared
from oomlint.dialects.common.precision import precision
from oomlint.dialects.common.quantization import quantization
from oomlint.dialects.common.sharding import sharding
from oomlint.dialects.common.world import batch, world
from oomlint.dialects.deepspeed.fixes import swap_preset
from oomlint.dialects.deepspeed.keys import ds
from oomlint.dialects.deepspeed.meaning import deepspeed_json
from oomlint.dialects.deepspeed.presets import OF_TRAINER
from oomlint.dialects.machine.fields import env_
from oomlint.dialects.machine.other_cards import is_on_nvidia
from oomlint.dialects.meaning import Bounds, Meaning, Said, Wishes, expressed
from oomlint.dialects.releases import FSDP2_BY_DEFAULT, NOT_REENTRANT
from oomlint.dialects.setting import Setting
from oomlint.dialects.trainer.arguments import FSDP_ROWS, SOURCE
from oomlint.dialects.trainer.fields import hf, hf_fsdp
from oomlint.dialects.trainer.losses import losses
from oomlint.dialects.trainer.optimizers import optimizers
from oomlint.dialects.trainer.own_models import check_model_is_followed
from oomlint.dialects.trainer.placed_loads import check_stage_may_load
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f
from oomlint.plan.library_changes import LibraryChange

training_arguments = Meaning(
    losses,
    optimizers,
    accelerate,
    world,
    sharding,
    backend,
    quantization,
    precision,
    deepspeed_json,
    batch,
)

_F = f.parallel.fsdp

# -- libraries -------------------------------------------------------------------------------------


@training_arguments.requires
def newest_that_is_known(run: Cells) -> Iterator[Bounds]:
    yield "transformers", (), (5, 24)


@training_arguments.brings
def what_the_newest_requires(run: Cells) -> Iterator[Bounds]:
    """Where nobody pins transformers it is the newest, and what that one requires is as new
    (transformers 5.23 setup.py, integrations/peft.py MIN_PEFT_VERSION)."""
    if run.version("transformers") is None:
        yield "torch", (2, 4), ()
        yield "accelerate", (1, 1), ()
        yield "peft", (0, 18), ()


# -- mixed precision -------------------------------------------------------------------------------


@training_arguments.derive(shared.amp)
def amp(run: Cells) -> Any:
    """HF/training_args.py __post_init__ 5: fp16, then bf16, then ACCELERATE_MIXED_PRECISION."""
    if run[hf.fp16]:
        return "fp16"
    return "bf16" if run[hf.bf16] else accelerate_amp(run)


@training_arguments.derive(f.eval.full_eval_dtype)
def dtype_of_evaluation(run: Cells) -> Any:
    if run[hf.bf16_full_eval]:
        return "bf16"
    return "fp16" if run[hf.fp16_full_eval] else None


@training_arguments.written(f.precision.compute)
def _(half: Any, run: Cells, wishes: Wishes) -> Wishes:
    """The switch of one 16-bit type on, and that of the other off where a file names it."""
    if half not in ("bf16", "fp16"):
        raise CannotEdit(f"the Trainer has no mixed precision in {half}")
    if run.says(ds.bf16) or run.says(ds.fp16):
        raise CannotEdit("the DeepSpeed config names the precision too; change both")
    if not (run.says(hf.bf16) or run.says(hf.fp16)) and run.says(acc.mixed_precision):
        return {acc.mixed_precision: half}
    on, other = (hf.bf16, hf.fp16) if half == "bf16" else (hf.fp16, hf.bf16)
    return {**({other: False} if run.says(other) else {}), on: True}


# -- FSDP ------------------------------------------------------------------------------------------

_FSDP = f"{SOURCE}:2775"

# HF/trainer_utils.py FSDPOption; of several words the later counts.
_STRATEGIES = {
    "hybrid_shard_zero2": "hybrid_grad_op",
    "hybrid_shard": "hybrid",
    "no_shard": "no_shard",
    "shard_grad_op": "grad_op",
    "full_shard": "full",
}


def _strategy(run: Cells) -> str | None:
    words = run[hf.fsdp_words] or ()
    return next((strategy for word, strategy in _STRATEGIES.items() if word in words), None)


@training_arguments.derive(fsdp.enabled)
def asks_for_fsdp(run: Cells) -> Any:
    return True if run[hf.fsdp_words] else None


training_arguments.constant(hf_fsdp.version, 2, _FSDP, FSDP2_BY_DEFAULT)
training_arguments.constant(hf_fsdp.state_dict, "full", _FSDP)
training_arguments.constant(hf_fsdp.use_orig_params, True, _FSDP)
training_arguments.constant(hf_fsdp.sync_module_states, True, _FSDP)
training_arguments.constant(hf_fsdp.backward_prefetch, "none", _FSDP)
training_arguments.constant(hf_fsdp.forward_prefetch, False, _FSDP)
training_arguments.constant(hf_fsdp.activation_checkpointing, False, _FSDP)

_EXPORTS = LibraryChange(
    "transformers", (4, 41), "FSDP_CPU_RAM_EFFICIENT_LOADING of the environment says whether one rank reads for all",
    "transformers 4.40.0 modeling_utils.py is_fsdp_enabled; 4.41.0 training_args.py:1872 writes over it",
)  # fmt: skip


@training_arguments.default(hf_fsdp.cpu_ram_efficient, source=_FSDP)
def reads_once(run: Cells) -> Any:
    is_told = bool(run[env_.use_fsdp] and run[env_.fsdp_efficient])
    return is_told and run.made(_EXPORTS) is False


@training_arguments.derive(
    shared.other_cards,
    source="transformers 4.37.0 training_args.py:1635 and trainer.py:1353-1400, 4.57.3 training_args.py",
)
def shards_by_xla(run: Cells) -> Any:
    """The Trainer then wraps by PyTorch/XLA's own FSDP, whatever ``fsdp`` says."""
    if not run[hf_fsdp.xla] or not is_on_nvidia(run):
        return None
    return "xla in fsdp_config shards by PyTorch/XLA, which is for TPUs"


@training_arguments.default(hf_fsdp.wrap, source=_FSDP)
def wraps(run: Cells) -> Any:
    """PyTorch/XLA's own FSDP wraps by class without being told to (transformers 4.37.0 trainer.py:1366-1385)."""
    words = run[hf.fsdp_words] or ()
    is_wrapped = run.has(FSDP2_BY_DEFAULT) or "auto_wrap" in words or run[hf_fsdp.xla]
    return "transformer" if is_wrapped else "none"


@training_arguments.override(hf_fsdp.wrap, source=_FSDP)
def wraps_by_size(run: Cells) -> Any:
    return "size" if run[hf_fsdp.min_params] and not run.has(FSDP2_BY_DEFAULT) else None


@training_arguments.default(hf_fsdp.cpu_offload, source=_FSDP)
def offloads(run: Cells) -> Any:
    return "offload" in (run[hf.fsdp_words] or ())


@training_arguments.default(hf_fsdp.reshard_after_forward, source=_FSDP)
def reshards(run: Cells) -> Any:
    strategy = _strategy(run)
    return None if strategy is None else strategy in ("full", "hybrid")


@training_arguments.derive(_F.strategy)
def strategy(run: Cells) -> Any:
    return _strategy(run)


TARGETS = {
    hf_fsdp.version: _F.version,
    hf_fsdp.min_params: _F.min_params,
    hf_fsdp.wrap_classes: _F.wrap_classes,
    hf_fsdp.wrap: _F.wrap,
    hf_fsdp.cpu_offload: _F.cpu_offload,
    hf_fsdp.reshard_after_forward: _F.reshard_after_forward,
    hf_fsdp.state_dict: _F.state_dict,
    hf_fsdp.cpu_ram_efficient: f.load.cpu_ram_efficient,
    hf_fsdp.activation_checkpointing: _F.activation_checkpointing,
    hf_fsdp.backward_prefetch: _F.backward_prefetch,
    hf_fsdp.forward_prefetch: _F.forward_prefetch,
    hf_fsdp.limit_all_gathers: _F.limit_all_gathers,
    hf_fsdp.use_orig_params: _F.use_orig_params,
    hf_fsdp.sync_module_states: _F.sync_module_states,
}
"""What each key of ``fsdp_config`` stands for."""


_ARGUMENT_OF = {target: argument for argument, target in TARGETS.items()}


@training_arguments.said(*TARGETS.values(), _F.strategy)
def beside_arguments(run: Cells, field: Any, said: Said) -> Said:
    """What an Accelerate config says of FSDP is replaced by what the arguments make of it."""
    if not isinstance(said, Setting) or said.origin.kind != "explicit" or not run[hf.fsdp_words]:
        return said
    if field == _F.state_dict and not run.has(FSDP2_BY_DEFAULT):
        return said
    taken = _strategy(run) if field == _F.strategy else run[_ARGUMENT_OF[field]]
    return said if taken is None else None


def _take(argument: Any, target: Any) -> None:
    """``fsdp_config`` (HF/training_args.py _process_fsdp_args) counts where ``fsdp`` is set."""

    @training_arguments.derive(target, source=_FSDP)
    def taken(run: Cells) -> Any:
        return run[argument] if run[hf.fsdp_words] else None


for _argument, _target in TARGETS.items():
    if _target != _F.state_dict:
        _take(_argument, _target)


@training_arguments.derive(_F.state_dict, source=_FSDP)
def state_dict(run: Cells) -> Any:
    """Before 5.10 no key of ``fsdp_config`` says how weights are saved (transformers 4.46.1, 4.57.3 and 5.8.0
    training_args.py), and Accelerate chooses by its version of FSDP (accelerate 1.0.1 and 1.12 utils/dataclasses.py
    FSDP_STATE_DICT_TYPE)."""
    if not run[hf.fsdp_words]:
        return None
    if run.has(FSDP2_BY_DEFAULT):
        return run[hf_fsdp.state_dict]
    return "sharded" if run[hf_fsdp.version] == 2 else "full"


# -- checkpointing ---------------------------------------------------------------------------------


@training_arguments.derive(f.checkpointing.mode)
def checkpointing(run: Cells) -> Any:
    on = run[hf.checkpointing]
    if on is None:
        return None
    return ("every_n" if (run[hf.checkpoint_every] or 1) > 1 else "full") if on else "none"


@checkpointing.written
def _(mode: Any, run: Cells, wishes: Wishes) -> Wishes:
    if mode not in ("full", "none"):
        raise CannotEdit("the Trainer checkpoints every layer or none")
    return {hf.checkpointing: mode == "full"}


@training_arguments.derive(f.checkpointing.every_n)
def layers_between(run: Cells) -> Any:
    every = run[hf.checkpoint_every]
    return every if run[hf.checkpointing] and every and every > 1 else None


@training_arguments.default(hf.reentrant, source="transformers 5.23 modeling_utils.py:3149")
def is_reentrant(run: Cells) -> Any:
    if run[hf.checkpointing] is None:
        return None
    return not run.has(NOT_REENTRANT, noted=False)  # it moves no memory


@training_arguments.derive(f.checkpointing.reentrant)
def reentrant(run: Cells) -> Any:
    return None if run[hf.checkpointing] is None else run[hf.reentrant]


@reentrant.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {hf.reentrant: wanted}


@training_arguments.derive(f.checkpointing.offload, f.offload.activations)
def moves_checkpoints(run: Cells) -> Any:
    on = run[hf.checkpointing]
    if on is None:
        return None
    device = "cpu" if on and run[hf.checkpoint_offload] else "none"
    return {f.checkpointing.offload: device, f.offload.activations: device}


@training_arguments.written(f.checkpointing.offload)
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    if device == "cpu":
        raise CannotEdit("the Trainer has no key that moves checkpoints to the CPU")
    return {}


# -- DeepSpeed and DDP -----------------------------------------------------------------------------


@training_arguments.default(f.load.zero3_init, source="transformers 5.23 integrations/deepspeed.py")
def opens_zero_init(run: Cells) -> Any:
    """TrainingArguments exist before the model does, so from_pretrained finds their config and
    opens zero.Init."""
    return run[f.parallel.backend] == "zero" and run[f.parallel.zero.stage] == 3


# torch 2.9 DistributedDataParallel: gradient_as_bucket_view is false, and the Trainer leaves it
# (HF/trainer.py:750-766).
training_arguments.constant(f.parallel.ddp.bucket_view, False, "torch 2.9 DistributedDataParallel")


@training_arguments.derive(f.parallel.ddp.find_unused, source="HF/trainer.py:752")
def looks_for_unused(run: Cells) -> Any:
    """Unused parameters are looked for unless checkpointing is on."""
    return run[f.checkpointing.mode] == "none"


# -- evaluating and saving -------------------------------------------------------------------------


@training_arguments.derive(f.eval.enabled)
def evaluates(run: Cells) -> Any:
    return run[f.eval.strategy] not in (None, "no") or bool(run[hf.do_eval])


@training_arguments.derive(f.eval.every, source="HF/training_args.py __post_init__ 3")
def evaluates_every(run: Cells) -> Any:
    return run[hf.logging_steps] if run[f.eval.strategy] == "steps" else None


training_arguments.constant(
    # Without compute_metrics only the loss is kept.
    f.eval.keeps_logits, False, "transformers 5.23 trainer.py:2868"
)  # fmt: skip


@training_arguments.override(f.eval.keeps_logits, source="HF/trainer.py evaluation_loop")
def drops_logits(run: Cells) -> Any:
    """No predictions are asked for, or each batch is done with."""
    return False if run[hf.loss_only] or run[hf.batch_metrics] else None


@training_arguments.written(f.eval.keeps_logits)
def _(keeps: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {hf.loss_only: not keeps}


@training_arguments.derive(f.save.unit)
def unit_of_saves(run: Cells) -> Any:
    return "epochs" if run[f.save.strategy] == "epoch" else "steps"


training_arguments.constant(f.save.keep, "all", f"{SOURCE}:1201")


@training_arguments.derive(f.save.contents)
def saved(run: Cells) -> Any:
    contents: tuple[str, ...] = ("adapter",) if is_adapter_run(run) else ("model",)
    return contents if run[f.save.save_only_model] else (*contents, "optimizer", "scheduler", "rng")


@training_arguments.derive(f.save.full_gather)
def gathers_to_save(run: Cells) -> Any:
    wrapper = run[f.parallel.backend]
    if wrapper == "zero" and run[f.parallel.zero.stage] == 3:
        return bool(run[f.parallel.zero.gather16_on_save])
    return run[_F.state_dict] == "full" if wrapper in ("fsdp1", "fsdp2") else None


# -- wishes that belong together -------------------------------------------------------------------


def matching_batch(own: Wishes, run: Cells) -> dict[Any, Any]:
    """Numbers that a DeepSpeed or Accelerate config repeats and that must stay equal to the
    Trainer's (HF/integrations/deepspeed.py fill_match raises where they differ)."""
    repeated: dict[Any, Any] = {}
    for field, copies in (
        (f.batch.micro, (ds.micro,)),
        (f.batch.grad_accum, (ds.grad_accum, acc.grad_accum)),
    ):
        if field in own:
            repeated.update({copy: own[field] for copy in copies if run.says(copy)})
    if run.says(ds.train_batch):
        before = after = 1
        for size in (f.batch.micro, f.batch.grad_accum):
            before *= run[size] or 1
            after *= own.get(size) or run[size] or 1
        total = run[ds.train_batch] * after
        if after != before and total % before:
            raise CannotEdit("train_batch_size in the DeepSpeed config would not match")
        if after != before:
            repeated[ds.train_batch] = total // before
    return repeated


def trainer_wishes(changes: Wishes, run: Cells) -> dict[Any, Any]:
    """What a script over the Trainer itself would write: its own arguments name a DeepSpeed config, which nothing
    ships, where flags of ``accelerate launch`` do not bring DeepSpeed in.

    Raises:
        CannotEdit: the Trainer has no way to say it.
    """
    check_stage_may_load(changes, run)
    if run[f.parallel.backend] == "ddp":
        _check_experts(changes, run)
    swapped = dict(changes) if takes_flags(run) else swap_preset(changes, run, OF_TRAINER)
    own = expressed(swapped, run)
    if acc.use_deepspeed in own:
        own = {
            acc.use_deepspeed: own[acc.use_deepspeed],
            **own,
        }  # the switch before what it switches on
    return in_training_arguments(own, run)


def _check_experts(changes: Wishes, run: Cells) -> None:
    """
    Raises:
        CannotEdit: stage 3 is to come to a model whose experts are modules that a loop picks: a rank waits for ever for
            the weights of one that only others use, unless its block is made a leaf (DeepSpeed 0.19.8
            utils/z3_leaf_module.py), as LLaMA-Factory and Axolotl do, and neither transformers nor TRL by themselves.
    """
    dims = run[f.model.dims]
    has_experts = dims is not None and dims.moe is not None and (dims.moe.experts or 0) > 1
    if (
        changes.get(f.parallel.zero.stage) == 3
        and has_experts
        and run[f.model.experts_impl] != "grouped"
    ):
        raise CannotEdit("under ZeRO stage 3 ranks wait for experts that only others use")


def in_training_arguments(own: Wishes, run: Cells) -> dict[Any, Any]:
    """Fields that a run over the Trainer would write, with what must change along with them.

    Raises:
        CannotEdit: the Trainer has no way to say it.
    """
    check_model_is_followed(run)
    check_stage_may_load(own, run)
    said = {**own, **matching_batch(own, run)}
    if run[hf.fsdp_words]:
        _take_fsdp_arguments(said, run)
    for field in said:
        if not _is_option(field, run):
            raise CannotEdit("a command line says it only in a file that --fsdp_config names")
    return said


def _take_fsdp_arguments(own: dict[Any, Any], run: Cells) -> None:
    """Wishes about FSDP in the Trainer's own arguments, where these set it up."""
    for row in FSDP_ROWS:
        target = TARGETS[row.field]
        if target in own:
            own[row.field] = own.pop(target)
    if own.pop(_F.strategy, None) == "full":
        own[hf_fsdp.reshard_after_forward] = True
    # Both releases read the word (transformers 4.57 training_args.py:1997, 5.23 _process_fsdp_args); of the keys of
    # fsdp_config only 5 has this one, and how weights are saved.
    has_section = any(block.find("fsdp_config") is not None for block in run.blocks)
    has_keys = has_section and run.made(FSDP2_BY_DEFAULT) is True
    if own.get(hf_fsdp.cpu_offload) and not (
        run.says(hf_fsdp.cpu_offload) or (has_keys and _is_option(hf_fsdp.cpu_offload, run))
    ):
        own.pop(hf_fsdp.cpu_offload)
        own[hf.fsdp_words] = (*run[hf.fsdp_words], "offload")
    if own.keys() & {hf_fsdp.state_dict} and not (run.says(hf_fsdp.state_dict) or has_keys):
        raise CannotEdit(
            "only transformers 5 reads in fsdp_config how weights are saved, and nothing says that this is the release"
        )


def _is_option(field: Any, run: Cells) -> bool:
    """Whether a field has a key of its own where it would be written: HfArgumentParser takes
    what is inside ``fsdp_config`` as a file or as JSON alone (transformers 5.23
    hf_argparser.py:354 stops at ``--fsdp_config.cpu_offload``)."""
    block = run.block_with(field)
    if block is None or run.says(field) or not block.document.dotted_keys:
        return True
    return not block.table.by_field[field].key.startswith("fsdp_config.")
