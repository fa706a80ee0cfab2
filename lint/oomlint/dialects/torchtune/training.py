"""What torchtune's recipes make of a config: a step, its loss and optimizer, evaluating and saving.

Read from torchtune 0.7.0 (bd2a0fc7, 2026-04-23); ``TT`` below is the root of that checkout.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.common.data_files import set_or_file
from oomlint.dialects.common.offloading import to_cpu
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.dialects.torchtune.keys import RECIPES, own
from oomlint.dialects.torchtune.releases import CUTS_BY_TOKENIZER, FREES_OUTPUTS
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

training = Meaning()

# -- optimizer -------------------------------------------------------------------------------------

# Families of optimizers, by the name of their component without its package.
_OPTIMIZERS = {
    "AdamW": "adamw",
    "Adam": "adamw",
    "SGD": "sgd",
    "Adafactor": "adafactor",
    "RMSprop": "rmsprop",
    "Adagrad": "adagrad",
    "Muon": "muon",
    "AdamW8bit": "adamw8bit",
    "Adam8bit": "adamw8bit",
    "AdamWFp8": "adamw8bit",
    "AdamFp8": "adamw8bit",
    "AdamW4bit": "adamw4bit",
    "Adam4bit": "adamw4bit",
    "PagedAdamW": "paged_adamw",
    "PagedAdam": "paged_adamw",
    "PagedAdamW32bit": "paged_adamw",
    "PagedAdam32bit": "paged_adamw",
    "PagedAdamW8bit": "paged_adamw8bit",
    "PagedAdam8bit": "paged_adamw8bit",
    "AdamW32bit": "adamw",
    "Adam32bit": "adamw",
    "Lion": "lion",
    "Lion32bit": "lion",
    "Lion8bit": "lion8bit",
    "PagedLion": "paged_lion",
    "PagedLion32bit": "paged_lion",
    "PagedLion8bit": "paged_lion8bit",
    "AdEMAMix": "ademamix",
    "LAMB": "lamb",
    "CPUOffloadOptimizer": "adamw",
}


def _short(component: str | None) -> str:
    """The component's own name without package: ``AdamW``."""
    return (component or "").rpartition(".")[2]


@training.derive(f.optimizer.kind)
def optimizer(run: Cells) -> Any:
    name = run[f.optimizer.name]
    return None if name is None else _OPTIMIZERS.get(_short(name), "other")


_COMPONENT_OF = {
    "adamw": "torch.optim.AdamW",
    "adafactor": "torch.optim.Adafactor",
    "sgd": "torch.optim.SGD",
    "adamw8bit": "torchao.optim.AdamW8bit",
    "adamw4bit": "torchao.optim.AdamW4bit",
    "paged_adamw": "bitsandbytes.optim.PagedAdamW",
    "paged_adamw8bit": "bitsandbytes.optim.PagedAdamW8bit",
    "lion": "bitsandbytes.optim.Lion",
    "lion8bit": "bitsandbytes.optim.Lion8bit",
}


@optimizer.written
def _(kind: Any, run: Cells, wishes: Wishes) -> Wishes:
    component = _COMPONENT_OF.get(kind)
    if component is None:
        raise CannotEdit(f"no optimizer that torchtune is used with is {kind}")
    if component.startswith("bitsandbytes.") and run[f.parallel.backend] == "fsdp2":
        raise CannotEdit("bitsandbytes' optimizers do not work on FSDP2's sharded tensors")
    said: dict[Any, Any] = {f.optimizer.name: component}
    # Only torch.optim's Adam and SGD take the argument, and others refuse it.
    if run.says(own.fused) and kind not in ("adamw", "sgd"):
        said[own.fused] = None
    if run.says(own.foreach) and not component.startswith("torch.optim."):
        said[own.foreach] = None
    return said


def _is_of_torch(run: Cells) -> bool:
    return (run[f.optimizer.name] or "").startswith("torch.optim.")


@training.derive(f.optimizer.fused)
def fused(run: Cells) -> Any:
    if run[f.optimizer.name] is None:
        return None
    return bool(run[own.fused]) and _is_of_torch(run)


@fused.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    with_kernel = ("torch.optim.AdamW", "torch.optim.SGD", "torch.optim.Adam")
    if run[f.optimizer.name] not in with_kernel:
        raise CannotEdit("only torch.optim's Adam and SGD have a fused kernel")
    return {own.fused: bool(wanted)}


@training.derive(f.optimizer.foreach)
def foreach(run: Cells) -> Any:
    """torch.optim picks foreach on CUDA where neither is asked for."""
    if run[f.optimizer.name] is None:
        return None
    asked = run[own.foreach]
    return _is_of_torch(run) and not run[f.optimizer.fused] if asked is None else asked


@training.override(f.offload.optimizer)
def offloads_states(run: Cells) -> Any:
    return "cpu" if _short(run[f.optimizer.name]) == "CPUOffloadOptimizer" else None


@training.written(f.optimizer.in_backward)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    """recipes/full_finetune_*.py raise on accumulation and on clipping."""
    if wanted and (run[f.batch.grad_accum] or 1) > 1:
        raise CannotEdit("optimizer_in_bwd needs gradient_accumulation_steps: 1")
    if wanted and run[f.optimizer.clip_norm] is not None:
        raise CannotEdit("optimizer_in_bwd cannot clip gradients")
    if wanted and is_adapter_run(run):
        raise CannotEdit("torchtune's LoRA recipes have no optimizer_in_bwd")
    return {f.optimizer.in_backward: bool(wanted)}


@training.written(f.batch.grad_accum)
def _(steps: Any, run: Cells, wishes: Wishes) -> Wishes:
    if steps > 1 and run[f.optimizer.in_backward]:
        raise CannotEdit("gradient accumulation is refused with optimizer_in_bwd: True")
    return {f.batch.grad_accum: steps}


# -- activations -----------------------------------------------------------------------------------


def _kept(run: Cells) -> str:
    """The switch wraps every self-attention layer; ``ac_mode`` counts only without it
    (recipes/full_finetune_distributed.py _setup_model)."""
    is_on, mode = run[own.checkpointing], run[own.ac_mode]
    if is_on and mode is None:
        return "full"
    if is_on or mode in (None, "none", "None"):
        return "none"
    if mode == "full":
        return "full"
    return "selective_op" if run[own.ac_option] == "op" else "every_n"


@training.derive(f.checkpointing.mode)
def checkpointing(run: Cells) -> Any:
    kept = _kept(run)
    return None if run.is_unread(own.checkpointing) else kept


@checkpointing.written
def _(mode: Any, run: Cells, wishes: Wishes) -> Wishes:
    if mode not in ("full", "none"):
        raise CannotEdit("only full activation checkpointing has a key of its own in torchtune")
    said: dict[Any, Any] = {own.checkpointing: mode == "full"}
    offloads = run[own.offload_activations] or wishes.get(f.checkpointing.offload) == "cpu"
    if run[own.ac_mode] is not None and mode == "full" and not offloads:
        return {own.ac_mode: "full", own.checkpointing: False}
    if run[own.ac_mode] is not None:
        said[own.ac_mode] = (
            None  # offloading demands the switch, beside which the mode counts for nothing
        )
    if mode == "none" and run[own.offload_activations]:
        # Offloading demands checkpointing (recipes raise otherwise).
        said[own.offload_activations] = False
    return said


@training.derive(f.checkpointing.every_n)
def every_nth(run: Cells) -> Any:
    option = run[own.ac_option] or ""
    return int(option) if _kept(run) == "every_n" and option.isdecimal() else None


training.constant(f.checkpointing.reentrant, False, "torch checkpoint_wrapper: NO_REENTRANT")


@training.derive(f.checkpointing.offload, f.offload.activations)
def activations(run: Cells) -> Any:
    device = "cpu" if run[own.offload_activations] else "none"
    return {f.checkpointing.offload: device, f.offload.activations: device}


@training.derive(
    f.offload.keeps_shared, f.offload.takes_loss,
    source="torchtune 0.6.1 training/_activation_offloading.py, recipes/full_finetune_single_device.py _loss_step",
)  # fmt: skip
def hooks(run: Cells) -> Any:
    """Around the model's forward pass alone; every tensor that is saved goes, each time."""
    return (
        {f.offload.keeps_shared: False, f.offload.takes_loss: False}
        if run[own.offload_activations]
        else None
    )


@activations.written
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    offloads, dims = to_cpu(device, "torchtune offloads activations"), run[f.model.dims]
    if offloads and dims is not None and dims.vision is not None:
        raise CannotEdit("torchtune cannot offload activations of multimodal models")
    said: dict[Any, Any] = {own.offload_activations: offloads}
    if offloads and not run[own.checkpointing]:
        said[own.checkpointing] = True
    return said


# -- sequences -------------------------------------------------------------------------------------

# torchtune 0.1.0 and 0.2.1 torchtune/datasets: max_seq_len of builders that have a default for it.
_CUT_BY_BUILDER = {
    "alpaca_dataset": 512,
    "alpaca_cleaned_dataset": 512,
    "slimorca_dataset": 1024,
    "stack_exchanged_paired_dataset": 1024,
}


@training.default(f.seq.max_len, source="torchtune 0.2.1 torchtune/datasets: max_seq_len")
def cut_by_builder(run: Cells) -> Any:
    return _CUT_BY_BUILDER.get(_short(run[own.dataset])) if _cuts_by_builder(run) else None


def _cuts_by_builder(run: Cells) -> bool:
    """Whether a release before 0.3 runs: a pin says so, or else a checkpointer by the name that it had in such
    (torchtune 0.2.1 utils/__init__.py, from 0.3.0 on training/__init__.py)."""
    has_moved = run.made(CUTS_BY_TOKENIZER)
    if has_moved is None:
        return (run[own.checkpointer] or "").startswith("torchtune.utils.")
    return not has_moved


@training.written(f.seq.max_len)
def _(length: Any, run: Cells, wishes: Wishes) -> Wishes:
    if _cuts_by_builder(run) and not run.says(f.seq.max_len):
        raise CannotEdit(
            "before torchtune 0.3 data sets cut samples, each by an argument of its own"
        )
    return {f.seq.max_len: length}


@training.derive(f.seq.unbounded, source="TT/torchtune/data: null never truncates")
def unbounded(run: Cells) -> Any:
    return True if run[f.seq.max_len] is None and not run.is_unread(f.seq.max_len) else None


@training.derive(
    f.seq.pad,
    source="padded_collate_sft pads to the longest of the batch; packs are filled up",
)
def padding(run: Cells) -> Any:
    return "longest" if run[f.seq.packing] in (None, "none") else "max_len"


# torchtune 0.6.1 torchtune/datasets/*.py: the set that a builder of text samples loads where no source is given.
_SOURCES = {
    "alpaca_dataset": "tatsu-lab/alpaca",
    "alpaca_cleaned_dataset": "yahma/alpaca-cleaned",
    "grammar_dataset": "liweili/c4_200m",
    "samsum_dataset": "Samsung/samsum",
    "slimorca_dataset": "Open-Orca/SlimOrca-Dedup",
    "stack_exchange_paired_dataset": "lvwerra/stack-exchange-paired",
}


@training.derive(
    f.data.sets, source="TT/torchtune/datasets/_sft.py SFTDataset: load_dataset(source, **kwargs)"
)
def sets(run: Cells) -> Any:
    builder = (run[own.dataset] or "").rpartition(".")[2]
    source = run[own.source] or _SOURCES.get(builder)
    return (set_or_file(source, run[own.data_files]),) if source else None


# -- loss ------------------------------------------------------------------------------------------

LINEAR_LOSS = "torchtune.modules.loss.LinearCrossEntropyLoss"


def _is_chunked(run: Cells) -> bool:
    loss = _short(run[own.loss])
    return loss in ("LinearCrossEntropyLoss", "LinearGRPOLoss") or "ChunkedOutput" in loss


@training.derive(f.loss.logits_materialised)
def logits(run: Cells) -> Any:
    if run[own.loss] is None:
        return None
    return "chunked" if _is_chunked(run) else "full"


@logits.written
def _(kind: Any, run: Cells, wishes: Wishes) -> Wishes:
    if kind not in ("fused", "chunked"):
        raise CannotEdit("torchtune's losses work in chunks or on all logits")
    if run[f.objective.kind] != "sft":
        raise CannotEdit("torchtune has a chunked loss for supervised fine-tuning only")
    if run[own.loss] == LINEAR_LOSS:
        raise CannotEdit("the loss works in chunks already")
    return {own.loss: LINEAR_LOSS}


@training.default(f.loss.chunks, source="torchtune 0.7.0 modules/loss: num_output_chunks")
def chunks(run: Cells) -> Any:
    return 8 if _is_chunked(run) else None


@training.derive(f.loss.algorithm)
def algorithm(run: Cells) -> Any:
    """A linear loss projects the hidden states itself, one chunk after the other."""
    projects = _is_chunked(run) and _short(run[own.loss]).startswith("Linear")
    return "head_chunks" if projects else None


@training.derive(f.loss.outputs_kept, source=f"{RECIPES}: del outputs")
def keeps_outputs(run: Cells) -> Any:
    return None if run[own.loss] is None else not run.has(FREES_OUTPUTS)


@training.derive(f.loss.upcast_fp32)
def compiled_loss(run: Cells) -> Any:
    """Recipes compile the loss of one chunk with its upcast: no float32 copy is ever stored.

    torchtune's README (memory table) has 4.6 GiB for a compiled QLoRA of 3B at 2 x 4096 tokens,
    less than such a copy of its logits on top of the weights.
    """
    if not _is_chunked(run) or not run[f.compile.enabled]:
        return None
    return None if run[own.compile_loss] is False else False


@training.default(
    f.loss.upcast_fp32, source="torchtune 0.7.0 modules/transformer.py:687: output.float()"
)
def upcasts(run: Cells) -> Any:
    return None if run[own.loss] is None else True


# -- evaluating ------------------------------------------------------------------------------------


@training.derive(f.eval.enabled, f.eval.strategy)
def evaluation(run: Cells) -> Any:
    evaluates = run[f.eval.every] is not None
    return {f.eval.enabled: evaluates, f.eval.strategy: "steps" if evaluates else "no"}


training.always(f.eval.keeps_logits, False, f"{RECIPES}: validate sums the loss")


training.takes(f.batch.eval_micro, f.batch.micro, RECIPES)


training.constant(f.data.workers, 0, f"{RECIPES}: StatefulDataLoader without workers")
training.cannot_say("torchtune loads data in the training process", f.data.workers)

# -- saving ----------------------------------------------------------------------------------------


@training.derive(f.save.strategy)
def save_strategy(run: Cells) -> Any:
    return "epoch" if run[f.save.every] is None else "steps"


training.constant(f.save.keep, "all", "torchtune 0.7.0 training/checkpointing: keeps every one")


@training.derive(f.save.save_only_model)
def leaves_optimizer(run: Cells) -> Any:
    """All but the last checkpoint of a run carry the optimizer (_checkpoint_client.py)."""
    return run[own.epochs] == 1 and run[f.save.every] is None


@leaves_optimizer.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wanted and run[f.save.every] is None and is_adapter_run(run):
        return {own.adapter_only: True}
    raise CannotEdit("torchtune saves the optimizer with every checkpoint but the last")


@training.derive(f.save.contents)
def saved(run: Cells) -> Any:
    adapters = is_adapter_run(run)
    parts = {
        "model": not (adapters and run[own.adapter_only]),
        "adapter": adapters,
        "optimizer": not run[f.save.save_only_model],
    }
    return tuple(part for part, is_saved in parts.items() if is_saved)


@training.derive(f.save.format)
def save_format(run: Cells) -> Any:
    is_of_hub = (run[own.checkpointer] or "").endswith("FullModelHFCheckpointer")
    return "safetensors" if is_of_hub else "bin"


@training.derive(
    f.save.full_gather,
    source="training/_distributed.py gather_cpu_state_dict: whole on rank 0's CPU; of one device v.cpu()",
)
def gathers_to_save(run: Cells) -> Any:
    if run[f.parallel.backend] not in ("fsdp1", "fsdp2", "none"):
        return None
    return not (run[own.checkpointer] or "").endswith("DistributedCheckpointer")


# What is laid out for the Hub's classes in another way: queries and keys, whose halves rotate together there
# (models/convert_weights.py tune_to_hf), and of Llama 4 both projections upwards of the experts, which become one
# (models/llama4/_convert_weights.py llama4_tune_to_hf). The dictionary before stays until that after it is whole.
_REWRITTEN = {"llama": ("q", "k"), "mistral": ("q", "k"), "llama4": ("experts",)}


@training.derive(
    f.save.rewritten, source="torchtune bd2a0fc7 training/checkpointing/_checkpointer.py"
)
def rewrites_to_save(run: Cells) -> Any:
    dims = run[f.model.dims]
    is_of_hub = (run[own.checkpointer] or "").endswith("FullModelHFCheckpointer")
    writes_adapter = is_adapter_run(run) and run[own.adapter_only]
    if not is_of_hub or dims is None or writes_adapter:
        return None
    return _REWRITTEN.get(dims.arch or "")
