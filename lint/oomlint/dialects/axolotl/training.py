"""What Axolotl makes of its keys about a step, its loss and optimizer, evaluating and saving.

Read from axolotl 067b021c (2026-07-24); ``AX`` below is ``src/axolotl``.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.axolotl.keys import ATTENTION_SWITCHES, LORA_KERNELS, own
from oomlint.dialects.axolotl.releases import (
    KERNELS_BY_DEFAULT,
    KERNELS_WITH_DROPOUT,
    LOADS_WITH_WORKERS,
)
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.common.data_files import set_or_file
from oomlint.dialects.common.fields import shared
from oomlint.dialects.common.offloading import hooks_of_trl
from oomlint.dialects.kinds import OPTIMIZER_KINDS
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

training = Meaning()

# -- activations -----------------------------------------------------------------------------------

_F = f.parallel.fsdp


@training.derive(f.checkpointing.source)
def checkpointed_by(run: Cells) -> Any:
    return "fsdp" if run[_F.activation_checkpointing] else None


@training.derive(f.checkpointing.mode)
def checkpointing(run: Cells) -> Any:
    mode = "full" if run[_F.activation_checkpointing] else run[own.gc]
    return "full" if mode in ("offload", "disk") else mode


@checkpointing.written
def _(mode: Any, run: Cells, wishes: Wishes) -> Wishes:
    if mode not in ("full", "none"):
        raise CannotEdit("Axolotl checkpoints every layer or none")
    return {own.gc: mode}


@training.derive(f.checkpointing.offload, f.offload.activations)
def activations(run: Cells) -> Any:
    device = {"offload": "cpu", "disk": "disk"}.get(run[own.gc] or "", run[own.activation_offload])
    return {f.checkpointing.offload: device or "none", f.offload.activations: device or "none"}


@training.derive(
    f.offload.keeps_shared, f.offload.takes_loss,
    source="AX/core/trainers/mixins/activation_checkpointing.py ActivationOffloadingMixin",
)  # fmt: skip
def hooks(run: Cells) -> Any:
    return hooks_of_trl(run) if run[own.activation_offload] == "cpu" else None


@training.written(f.checkpointing.offload)
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.activation_offload: "cpu"} if device == "cpu" else {}


training.constant(f.checkpointing.reentrant, False, "AX/core/builders/base.py:599")


@training.derive(f.model.attn_impl)
def attention(run: Cells) -> Any:
    """Of several switches the last one counts."""
    on = [name for name, switch in ATTENTION_SWITCHES.items() if run[switch]]
    return on[-1] if on else None


training.constant(f.model.attn_impl, "sdpa", "transformers 5.23 takes sdpa where the model has it")


@attention.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    """The legacy switch where the file already uses one, else ``attn_implementation``."""
    if wanted != "flash2" and (run[f.parallel.cp] or 1) > 1:
        # AX/utils/schemas/validation.py:1652 check_context_parallel_size
        raise CannotEdit("context parallelism here goes with FlashAttention 2 only")
    on = [switch for switch in ATTENTION_SWITCHES.values() if run[switch]]
    if on and wanted in ATTENTION_SWITCHES:
        return {**dict.fromkeys(on, False), ATTENTION_SWITCHES[wanted]: True}
    return {f.model.attn_impl: wanted}


# Kernels that keep samples of one row apart (AX/utils/schemas/enums.py attn_supports_packing).
_VARLEN = frozenset({"flash2", "flash3", "flex", "xformers", "sage"})


@training.derive(f.seq.pad, source="AX/core/builders/causal.py:594")
def flattening(run: Cells) -> Any:
    """A batch is joined to one row where samples are not packed already and the attention can keep
    them apart; ``auto`` asks for that, and without it ``true`` is refused
    (AX/utils/schemas/validation.py:967)."""
    if not run[own.batch_flattening] or run[f.seq.packing] != "none":
        return None
    is_supervised = run[f.objective.kind] in ("sft", "pretrain")
    return "none" if is_supervised and run[f.model.attn_impl] in _VARLEN else None


@training.derive(f.data.sets, source="AX/utils/schemas/datasets.py SFTDataset.path")
def sets(run: Cells) -> Any:
    """Every set by its path, or none where one is something else."""
    listed = run[own.datasets]
    if not isinstance(listed, (list, tuple)):
        return None
    entries = [each for each in listed if isinstance(each, dict)]
    paths = tuple(set_or_file(each.get("path"), each.get("data_files")) for each in entries)
    is_known = bool(paths) and all(isinstance(path, str) and path for path in paths)
    return paths if is_known and len(paths) == len(listed) else None


@training.derive(f.seq.pad)
def padding(run: Cells) -> Any:
    padded = run[own.pad_to_max]
    if padded is None:
        padded = run[f.seq.packing] != "none"
    return "max_len" if padded else "longest"


# -- loss ------------------------------------------------------------------------------------------


def _lists_plugin(run: Cells, name: str) -> bool:
    """The keys of a plug-in count only where ``plugins`` lists it (AX/utils/config merges its
    arguments into the schema then)."""
    return any(name in plugin for plugin in run[own.plugins] or ())


# AX/integrations/kernels/plugin.py:30: sm_90.
_SONIC_FROM = (9, 0)


@training.override(own.liger_flce)
def fuses_loss(run: Cells) -> Any:
    return False if run[own.liger_flce] and not _lists_plugin(run, "integrations.liger") else None


@training.derive(shared.refused, source="AX/integrations/kernels/plugin.py:16")
def has_no_sonic_kernels(run: Cells) -> Any:
    hardware = run.known.hardware
    if not run[own.sonicmoe] or not _lists_plugin(run, "integrations.kernels") or hardware is None:
        return None
    capability = hardware.gpu.compute_capability
    if capability is None or tuple(map(int, capability.split("."))) >= _SONIC_FROM:
        return None
    return f"SonicMoE stops on {hardware.gpu.name}: its kernels are for Hopper and Blackwell; ScatterMoE's are for all"


@training.override(f.loss.liger.rms, f.loss.liger.swiglu, f.loss.liger.rope)
def liger(run: Cells) -> Any:
    if _lists_plugin(run, "integrations.liger"):
        return None
    parts = (f.loss.liger.rms, f.loss.liger.swiglu, f.loss.liger.rope)
    return {part: False for part in parts if run[part]}


@training.override(f.loss.cut_ce)
def cut_cross_entropy(run: Cells) -> Any:
    is_listed = _lists_plugin(run, "cut_cross_entropy")
    return False if run[f.loss.cut_ce] and not is_listed else None


@training.derive(f.loss.cut_ce, source="AX/integrations/cut_cross_entropy/args.py:33")
def cut_by_being_listed(run: Cells) -> Any:
    return True if _lists_plugin(run, "cut_cross_entropy") else None


def _gives_labels(run: Cells) -> bool:
    """Whether the model computes the loss, which is what these patches replace: preference trainers give it no
    labels and take its logits (TRL f2cd5771 dpo_trainer.py, experimental/orpo/orpo_trainer.py)."""
    return run[f.objective.kind] in ("sft", "pretrain")


# Models with vision that Axolotl loads whole, whatever is trained of them (AX/utils/config/__init__.py:275). For the
# first two it patches the class of the language model alone (AX/integrations/liger/models/qwen3_5.py:175 and
# qwen3_5_moe.py:198), and the third it passes by with a warning (AX/integrations/liger/plugin.py:270).
_PASSED_BY = frozenset({"qwen3_5", "qwen3_5_moe", "gemma4"})


def _liger_fuses(run: Cells) -> bool:
    """Whether Liger's fused loss takes the place of the model's own."""
    return _gives_labels(run) and run[f.model.arch] not in _PASSED_BY


@training.derive(f.loss.logits_materialised)
def logits(run: Cells) -> Any:
    if not _gives_labels(run):
        return "full"
    if (run[own.liger_flce] and _liger_fuses(run)) or run[f.loss.cut_ce]:
        return "fused"
    return "chunked" if run[own.chunked_ce] else "full"


_LIGER = "axolotl.integrations.liger.LigerPlugin"


@logits.written
def _(kind: Any, run: Cells, wishes: Wishes) -> Wishes:
    if kind != "fused":
        return {}
    if not _gives_labels(run):
        raise CannotEdit("the plug-in fuses only a loss that the model computes")
    if not _liger_fuses(run):
        raise CannotEdit("the plug-in leaves the loss of this model with vision as it is")
    plugins = run[own.plugins] or ()
    added = {own.plugins: (*plugins, _LIGER)} if _LIGER not in plugins else {}
    return {own.liger_flce: True, **added}


@training.derive(f.loss.liger.flce)
def fused_by_liger(run: Cells) -> Any:
    return bool(run[own.liger_flce]) and _liger_fuses(run)


training.constant(f.loss.upcast_fp32, True, "transformers 5.23 loss/loss_utils.py:61")


@training.derive(f.trainable.fused)
def lora_kernels(run: Cells) -> Any:
    """Adapted layers in functions that keep little (AX/kernels/lora.py). Without a word about
    kernels they run where they can (AX/utils/schemas/config.py:1901-1994)."""
    if not is_adapter_run(run):
        return None
    stated = [run[field] for field in LORA_KERNELS.values()]
    can = (
        run[f.objective.kind] in ("sft", "pretrain")
        and run[f.quant.method] != "bnb8"
        and run[f.parallel.backend] != "fsdp1"
        and not run[own.remote_code]
    )
    is_silent = set(stated) == {None}
    if is_silent and not (can and run.has(KERNELS_BY_DEFAULT)):
        return None
    parts = tuple(
        part for part, said in zip(("mlp", "qkv", "o"), stated, strict=False) if said or is_silent
    )
    if run[f.trainable.dropout] and not run.has(KERNELS_WITH_DROPOUT):
        return None
    return parts or None


# -- optimizer -------------------------------------------------------------------------------------

# AX/enums.py:86-100 and transformers' names.
_FOREACH = frozenset({"adamw_torch", "adamw_hf"})


@training.derive(f.optimizer.kind, f.optimizer.fused, f.optimizer.foreach)
def optimizer(run: Cells) -> Any:
    name = run[f.optimizer.name]
    if name is None:
        return None
    return {
        f.optimizer.kind: OPTIMIZER_KINDS.get(name, "lion" if name == "lion_pytorch" else "other"),
        f.optimizer.fused: name.endswith("_fused"),
        f.optimizer.foreach: name in _FOREACH,
    }


_OPTIMIZER_NAMES = {
    "adamw": "adamw_torch_fused",
    "adamw8bit": "adamw_8bit",
    "paged_adamw8bit": "paged_adamw_8bit",
    "adafactor": "adafactor",
    "lion": "lion_pytorch",
    "lion8bit": "lion_8bit",
}


@training.written(f.optimizer.kind)
def _(kind: Any, run: Cells, wishes: Wishes) -> Wishes:
    if kind not in _OPTIMIZER_NAMES:
        raise CannotEdit(f"Axolotl has no optimizer for {kind}")
    return {f.optimizer.name: _OPTIMIZER_NAMES[kind]}


@training.written(f.optimizer.fused)
def _(fused: Any, run: Cells, wishes: Wishes) -> Wishes:
    if not fused:
        return {}
    if run[f.optimizer.kind] != "adamw":
        raise CannotEdit("only AdamW has a fused variant here")
    return {f.optimizer.name: "adamw_torch_fused"}


training.follows(f.precision.optim_state)

# -- data ------------------------------------------------------------------------------------------


def _says_how_to_load(run: Cells) -> bool:
    return any(map(run.says, (f.data.workers, f.data.pin_memory, f.data.prefetch)))


@training.derive(
    f.data.workers,
    f.data.prefetch,
    f.data.pin_memory,
    source="AX/utils/schemas/config.py:2132 default_dataloader_opts",
)
def loader(run: Cells) -> Any:
    """With AX/cli/config.py:369: where no key says how, every rank starts as many workers as there
    are ranks."""
    if _says_how_to_load(run) or not run.has(LOADS_WITH_WORKERS):
        return None
    return {f.data.workers: run[f.parallel.world], f.data.prefetch: 256, f.data.pin_memory: True}


@training.default(f.data.workers, source="transformers 5.23 training_args.py:1320")
def no_workers(run: Cells) -> Any:
    return 0 if _says_how_to_load(run) or not run.has(LOADS_WITH_WORKERS) else None


# -- generating, evaluating, saving ----------------------------------------------------------------


@training.derive(f.batch.micro_unit, source="TRL 0.15 GRPOTrainer")
def counts_completions(run: Cells) -> Any:
    return "completions" if run[f.objective.kind] == "grpo" else None


@training.derive(f.objective.rollout.generation_batch)
def generation_batch(run: Cells) -> Any:
    """AX/utils/schemas/validation.py:789 check_grpo_batch_size_divisibility, which counts one
    rank: what holds for it holds for all."""
    if run[f.objective.kind] != "grpo":
        return None
    said = run[own.generation_batch]
    micro, steps = run[f.batch.micro], run[f.batch.grad_accum]
    return micro * steps if said is None and micro and steps else said


@training.derive(f.eval.enabled, f.eval.strategy, f.eval.on_start)
def evaluation(run: Cells) -> Any:
    """AX/core/builders/base.py _configure_save_and_eval_strategy: steps where eval_steps or
    evals_per_epoch say so, else eval_strategy, else transformers' own default, which is no."""
    held_out = bool(run[own.val_set_size]) or bool(run[own.test_datasets])
    strategy = "no"
    if held_out and (run[f.eval.every] or run[own.evals_per_epoch]):
        strategy = "steps"
    elif held_out:
        strategy = run[own.eval_strategy] or "no"
    evaluates = strategy != "no"
    return {f.eval.enabled: evaluates, f.eval.strategy: strategy, f.eval.on_start: evaluates}


training.takes(f.batch.eval_micro, f.batch.micro, "AX/utils/config normalize_config")


@training.default(f.save.strategy, source="AX/core/builders/base.py:499")
def save_strategy(run: Cells) -> Any:
    by_steps = run.says(f.save.every) or run[own.saves_per_epoch]
    return "steps" if by_steps else "epoch"


@training.derive(f.save.contents)
def saved(run: Cells) -> Any:
    contents: tuple[str, ...] = ("adapter",) if is_adapter_run(run) else ("model",)
    return contents if run[f.save.save_only_model] else (*contents, "optimizer", "scheduler", "rng")


@training.derive(f.save.full_gather)
def gathers_to_save(run: Cells) -> Any:
    if run[f.parallel.zero.stage] != 3 and run[_F.state_dict] != "full":
        return None
    gather = run[f.parallel.zero.gather16_on_save]
    return True if gather is None else gather


@training.derive(f.save.merge_device, source="AX/loaders/model.py:1032")
def merge_device(run: Cells) -> Any:
    """Else the model is merged where it was loaded, on a GPU."""
    if run[f.save.merge] != "whole":
        return None
    return "cpu" if run[own.lora_on_cpu] else "auto"


@merge_device.written
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.lora_on_cpu: device == "cpu"}


@training.derive(f.load.resume)
def resumes(run: Cells) -> Any:
    return True if run[own.auto_resume] else None
