"""What llama-recipes makes of its options, and how it says a wish.

Read from llama-cookbook 0e003351 (2025-10-27) and the llama-recipes wheels 0.0.1 to 0.0.4;
``LC`` below is ``src/llama_cookbook``.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.common.fields import fsdp
from oomlint.dialects.common.offloading import to_cpu
from oomlint.dialects.common.world import batch, world
from oomlint.dialects.llama_recipes.keys import (
    FSDP_SOURCE,
    LLAMA_RECIPES,
    OLD_LLAMA_RECIPES,
    own,
)
from oomlint.dialects.machine.fields import env_
from oomlint.dialects.machine.launcher_keys import PLAIN
from oomlint.dialects.machine.launcher_meaning import launcher_of
from oomlint.dialects.machine.meaning import launch_one_process
from oomlint.dialects.machine.visible import visible_gpus
from oomlint.dialects.meaning import Left, Meaning, Said, Sourced, Wishes
from oomlint.dialects.releases import SDPA
from oomlint.dialects.setting import Origin
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f
from oomlint.plan.library_changes import LibraryChange

without_launcher = Meaning()
"""What holds where no launcher says otherwise; it is asked after them."""

LOADS_16_BIT = LibraryChange(
    "llama-recipes",
    (0, 0, 3),
    "weights become fp32 as they are loaded, which takes twice the memory",
    "llama-recipes 0.0.2 finetuning.py:132 and 0.0.3 finetuning.py:126",
)
FIRST_RANK_BY_VARIABLES = LibraryChange(
    "llama-recipes",
    (0, 0, 3),
    "--low_cpu_fsdp alone lets only the first rank read the model",
    "llama-recipes 0.0.2 and 0.0.3 finetuning.py; pull request 572",
)
NO_PREPARING = LibraryChange(
    "llama-recipes",
    (0, 0, 3),
    "prepare_model_for_kbit_training makes what is not quantized fp32",
    "llama-recipes 0.0.2 finetuning.py:147 and 0.0.3 finetuning.py",
)
SAVES_ADAPTER_ALONE = LibraryChange(
    "llama-recipes",
    (0, 0, 4),
    "saving an adapter under FSDP gathers the whole model on every GPU",
    "llama-recipes 0.0.3 utils/train_utils.py:238 and 0.0.4 utils/train_utils.py:239",
)

meaning = Meaning(world, launch_one_process, without_launcher, batch)

_SCRIPT = "llama-cookbook 0e003351 finetuning.py"
_F, _P = f.parallel.fsdp, f.precision


def _is_old(run: Cells) -> bool:
    """Whether the script is that of 2023, which loaded weights in fp32."""
    return run.has_block_of(OLD_LLAMA_RECIPES)


def _is_quantized(run: Cells) -> bool:
    return run[f.quant.method] not in (None, "none")


def _check_shards(run: Cells, what: str) -> None:
    """Whether the run uses FSDP.

    Raises:
        CannotEdit: it does not, and ``what`` the script does comes with it.
    """
    if not run[own.fsdp]:
        raise CannotEdit(f"llama-recipes {what} only under --enable_fsdp")


# -- ranks and sharding ----------------------------------------------------------------------------


@meaning.derive(f.parallel.backend, source=_SCRIPT)
def backend(run: Cells) -> Any:
    """Without FSDP every process trains a model of its own: there is no DDP in the script."""
    if run[own.fsdp]:
        return "fsdp1"
    return "device_map_pp" if _spreads(run) else "none"


@backend.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.fsdp: True} if wanted == "fsdp1" else {}


def _spreads(run: Cells) -> bool:
    """Whether one process lays its quantized weights on all GPUs that it sees."""
    is_alone = launcher_of(run) is PLAIN and not run[own.fsdp]
    return is_alone and _is_quantized(run) and (visible_gpus(run) or 1) > 1


@meaning.derive(f.parallel.gpus_per_node, f.parallel.dp, source=f"{_SCRIPT}: device_map")
def gpus_of_one_process(run: Cells) -> Any:
    if not _spreads(run):
        return None
    return {f.parallel.gpus_per_node: visible_gpus(run), f.parallel.dp: 1}


@meaning.derive(f.load.device_map, source=f"{_SCRIPT}: device_map")
def device_map(run: Cells) -> Any:
    return "auto" if _is_quantized(run) and not run[own.fsdp] else None


@without_launcher.derive(f.parallel.gpus_per_node, source=_SCRIPT)
def one_process(run: Cells) -> Any:
    return None if run[own.fsdp] or _is_quantized(run) else 1


@meaning.derive(f.parallel.unapplied)
def unapplied(run: Cells) -> Any:
    """Processes that nothing joins."""
    if run[own.fsdp] or not run.says(f.parallel.gpus_per_node):
        return None
    return "processes" if run.get(f.parallel.gpus_per_node, 1) > 1 else None


@meaning.derive(fsdp.enabled)
def shards(run: Cells) -> Any:
    return run[own.fsdp] or None


_ALWAYS_OF_FSDP = {
    _F.version: 1,
    _F.wrap: "transformer",
    _F.limit_all_gathers: True,
    _F.backward_prefetch: "pre",
    _F.forward_prefetch: False,
}


@meaning.derive(*_ALWAYS_OF_FSDP, source=f"{_SCRIPT}: FSDP(...)")
def always_of_fsdp(run: Cells) -> Any:
    return _ALWAYS_OF_FSDP if run[own.fsdp] else None


_FSDP_DEFAULTS = {_F.strategy: "full", _F.state_dict: "sharded", _F.cpu_offload: False}


@meaning.default(*_FSDP_DEFAULTS, source=FSDP_SOURCE)
def fsdp_defaults(run: Cells) -> Any:
    return _FSDP_DEFAULTS if run[own.fsdp] else None


@meaning.derive(_F.reshard_after_forward)
def reshards(run: Cells) -> Any:
    return run[_F.strategy] != "grad_op" if run[own.fsdp] else None


@meaning.derive(_F.sync_module_states, source=f"{_SCRIPT}: FSDP(...)")
def first_rank_sends_states(run: Cells) -> Any:
    return run[own.low_cpu] if run[own.fsdp] else None


@meaning.derive(_F.use_orig_params, source=f"{_SCRIPT}: FSDP(...)")
def keeps_parameters_apart(run: Cells) -> Any:
    return bool(run[own.use_peft] or run[own.freeze_llm]) if run[own.fsdp] else None


@meaning.derive(f.parallel.dp_shard)
def sharding_group(run: Cells) -> Any:
    return run[own.sharding_group] or None if run[own.fsdp] and run[own.hsdp] else None


@meaning.derive(f.offload.params, f.offload.optimizer, source=_SCRIPT)
def offloading(run: Cells) -> Any:
    """FSDP keeps both in one place."""
    device = "cpu" if run[own.fsdp] and run[_F.cpu_offload] else "none"
    return {f.offload.params: device, f.offload.optimizer: device}


@offloading.written
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    _check_shards(run, "offloads to the CPU")
    return {_F.cpu_offload: to_cpu(device, "llama-recipes offloads")}


# -- loading ---------------------------------------------------------------------------------------

# What makes transformers itself read on the first rank of a node alone (transformers 4.57
# modeling_utils.py is_fsdp_enabled); llama-cookbook 0e003351 docs/multi_gpu.md names both.
_EFFICIENT_LOADING = (env_.use_fsdp, env_.fsdp_efficient)


@meaning.derive(f.load.cpu_ram_efficient)
def first_rank_reads(run: Cells) -> Any:
    if not run[own.fsdp] or not run[own.low_cpu]:
        return False
    return all(run[variable] for variable in _EFFICIENT_LOADING) or not _needs_variables(run)


def _needs_variables(run: Cells) -> bool:
    """Whether the version leaves the reading to transformers. Where no pin tells, the command
    does: the package's later name and the later folder of the script are newer than the change.
    """
    made = run.made(FIRST_RANK_BY_VARIABLES)
    if made is not None:
        return made
    for block in run.blocks:
        if block.table is LLAMA_RECIPES:
            text = block.document.source.text[block.anchor.start : block.anchor.end]
            return "llama_cookbook" in text or "getting-started/" in text
    return False


@first_rank_reads.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    """The variables alone would leave the other ranks without weights."""
    if not wanted:
        return {}
    _check_shards(run, "reads the model on one rank")
    if _is_old(run):
        # llama-recipes 2023 llama_finetuning.py: verify_latest_nightly, which asks for torch's nightly build.
        raise CannotEdit("llama_finetuning.py takes --low_cpu_fsdp from no release of torch")
    return dict.fromkeys((own.low_cpu, *_EFFICIENT_LOADING), True)


@meaning.derive(
    f.load.per_rank_host_copies,
    source="every rank calls from_pretrained; with --low_cpu_fsdp only the first "
    "(llama-recipes 0.0.1 finetuning.py:80)",
)
def copies(run: Cells) -> Any:
    return 1 if run[own.fsdp] and not run[f.load.cpu_ram_efficient] else None


@meaning.derive(f.load.dtype)
def loads(run: Cells) -> Any:
    if _is_old(run):
        return Sourced("fp32", "llama-recipes 0.0.1: no torch_dtype")
    made = run.made(LOADS_16_BIT)
    if made is False:
        return Sourced("fp32", LOADS_16_BIT.source)
    if run[own.fp16]:
        return Sourced("fp16", f"{_SCRIPT}:173")
    return None if made is None else Sourced("bf16", f"{_SCRIPT}:173")


@meaning.assume(
    f.load.dtype,
    why="llama-recipes 0.0.3 and later load weights in bf16; before they became fp32, which takes "
    "twice the memory",
)
def loads_as_the_newest_do(_run: Cells) -> Any:
    return "bf16"


# -- what is trained -------------------------------------------------------------------------------


@meaning.derive(f.trainable.method)
def method(run: Cells) -> Any:
    if not run[own.use_peft]:
        freezes = run[own.freeze_layers] or run[own.freeze_llm]
        return "freeze" if run[own.fsdp] and freezes else "full"
    if run[own.peft_method] == "lora":
        return "qlora" if run[f.quant.method] == "bnb4" else "lora"
    return "adapter" if run[own.peft_method] == "llama_adapter" else "other"


@method.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.use_peft: True} if wanted == "lora" else {}


@meaning.said(f.trainable.r, f.trainable.alpha, f.trainable.dropout, f.trainable.targets)
def of_adapters(run: Cells, field: Any, said: Said) -> Said:
    """Options of LoRA count only with ``--use_peft``, and so do their defaults."""
    return said if run[own.use_peft] else Left(Origin("default", source=_SCRIPT))


@meaning.derive(f.trainable.last_layers)
def last_layers(run: Cells) -> Any:
    dims = run[f.model.dims]
    freezes = run[f.trainable.method] == "freeze" and run[own.freeze_layers]
    if not freezes or dims is None or not dims.layers:
        return None
    return max(0, dims.layers - run.get(own.frozen_layers, 1))


@meaning.default(f.quant.double, source="llama-cookbook 0e003351 configs/quantization.py")
def double_quantization(run: Cells) -> Any:
    return False if run[f.quant.method] == "bnb4" else None


@meaning.derive(
    f.quant.storage_dtype,
    f.quant.compute_dtype,
    source="llama-cookbook 0e003351 configs/quantization.py, finetuning.py:141",
)
def four_bit(run: Cells) -> Any:
    """Under FSDP the packed weights are stored in the dtype that computes, whatever is asked."""
    if run[f.quant.method] != "bnb4":
        return None
    storage = None if run[own.fsdp] else run[own.quant_storage]
    return {f.quant.storage_dtype: storage or "bf16", f.quant.compute_dtype: "bf16"}


@meaning.derive(f.quant.prepares_kbit, source=_SCRIPT)
def prepares_kbit(run: Cells) -> Any:
    if not _is_quantized(run):
        return None
    return _is_old(run) or not run.has(NO_PREPARING, noted=False)


@meaning.written(f.quant.method)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wanted == "bnb8" and run[own.fsdp]:
        raise CannotEdit("FSDP in llama-recipes cannot shard 8-bit weights")
    adapter = {own.use_peft: True} if wanted in ("bnb4", "bnb8") else {}
    return {f.quant.method: wanted, **adapter}


# -- dtypes ----------------------------------------------------------------------------------------

# LC/finetuning.py and LC/utils/fsdp_utils.py get_policies: there is no autocast but with
# ``--use_fp16``; FSDP's own mixed precision casts what it gathers.
_UPCASTS = "peft 0.21.2 mapping_func.py:110: adapters become fp32"

meaning.always(_P.master, "none", _SCRIPT)


def _is_pure(run: Cells) -> bool:
    return run[own.fsdp] and run[own.pure_bf16]


def _stored(run: Cells) -> str | None:
    """The dtype of weights that are not packed."""
    return "bf16" if _is_pure(run) and not _is_quantized(run) else run[f.load.dtype]


def _cast(run: Cells) -> str | None:
    """What FSDP's mixed precision casts to."""
    if not run[own.fsdp] or _is_pure(run) or not run[own.mixed_precision]:
        return None
    return "fp16" if run[own.fp16] else "bf16"


@meaning.derive(_P.param, source=_SCRIPT)
def parameters(run: Cells) -> Any:
    packed = {"bnb4": "nf4", "bnb8": "int8"}.get(run[f.quant.method] or "")
    return packed if packed and is_adapter_run(run) else _stored(run)


@meaning.derive(_P.grad)
def gradients(run: Cells) -> Any:
    if is_adapter_run(run):
        return Sourced("fp32", _UPCASTS)
    return Sourced(_stored(run), _SCRIPT)


@meaning.derive(f.trainable.adapter_dtype, source=_UPCASTS)
def adapters(run: Cells) -> Any:
    return "fp32" if is_adapter_run(run) else None


@meaning.derive(_P.compute, source=_SCRIPT)
def compute(run: Cells) -> Any:
    return _cast(run) or ("fp16" if run[own.fp16] else _stored(run))


@meaning.derive(_P.comm, source=_SCRIPT)
def communication(run: Cells) -> Any:
    return _cast(run) or _stored(run) if run[own.fsdp] else None


@meaning.derive(_P.autocast, source=_SCRIPT)
def autocast(run: Cells) -> Any:
    return bool(run[own.fp16])


meaning.takes(_P.logits, _P.compute)


# -- optimizer -------------------------------------------------------------------------------------


def _is_anyprecision(run: Cells) -> bool:
    return run.get(f.optimizer.name, "").lower() == "anyprecision" and run[own.pure_bf16]


@meaning.derive(f.optimizer.kind, f.optimizer.fused, f.optimizer.foreach, source=_SCRIPT)
def optimizer(run: Cells) -> Any:
    is_anyprecision = _is_anyprecision(run)
    return {
        f.optimizer.kind: "anyprecision_adamw" if is_anyprecision else "adamw",
        f.optimizer.fused: False,
        f.optimizer.foreach: not is_anyprecision,
    }


@meaning.written(f.optimizer.kind)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wanted == "adamw":
        return {f.optimizer.name: "AdamW"}
    if wanted == "anyprecision_adamw" and run[own.fsdp]:
        return {f.optimizer.name: "anyprecision", own.pure_bf16: True}
    raise CannotEdit(f"llama-recipes has AdamW and AnyPrecision AdamW only, not {wanted}")


@meaning.derive(_P.optim_state, source=f"{_SCRIPT}: optim.AdamW or AnyPrecisionAdamW")
def states(run: Cells) -> Any:
    return "bf16" if _is_anyprecision(run) else run[_P.grad]


@states.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if f.optimizer.kind not in wishes:
        raise CannotEdit("optimizer states follow the parameters")
    return {}


# -- activations and sequences ---------------------------------------------------------------------

_CHECKPOINTS_PREPARED = "peft 0.6 to 0.21 utils/other.py: prepare_model_for_kbit_training(use_gradient_checkpointing=True)"


@meaning.derive(f.checkpointing.mode, source=f"{_SCRIPT}: FSDP only")
def checkpointing(run: Cells) -> Any:
    if run[f.quant.prepares_kbit]:
        return Sourced("full", _CHECKPOINTS_PREPARED)
    return run[own.fsdp_checkpointing] if run[own.fsdp] else "none"


@checkpointing.written
def _(mode: Any, run: Cells, wishes: Wishes) -> Wishes:
    _check_shards(run, "checkpoints activations")
    return {own.fsdp_checkpointing: mode}


@meaning.derive(
    f.checkpointing.source, f.checkpointing.reentrant, source="LC/policies: NO_REENTRANT"
)
def checkpointed_by(run: Cells) -> Any:
    if not run[own.fsdp]:
        return None
    return {f.checkpointing.source: "fsdp", f.checkpointing.reentrant: False}


meaning.always(f.checkpointing.offload, "none", _SCRIPT)


@meaning.derive(f.model.attn_impl)
def attention(run: Cells) -> Any:
    """transformers takes sdpa by itself since 4.36; before that only with this option."""
    if run[own.fast_kernels]:
        return "sdpa"
    return "eager" if _is_old(run) or run.made(SDPA) is False else "sdpa"


@attention.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wanted != "sdpa":
        raise CannotEdit(f"llama-recipes cannot ask for {wanted} attention")
    return {own.fast_kernels: True}


meaning.always(f.loss.logits_materialised, "full", "transformers' own causal loss")
meaning.cannot_say("llama-recipes has no fused or chunked loss", f.loss.logits_materialised)
meaning.constant(f.loss.upcast_fp32, True, "transformers 5.23 loss/loss_utils.py:61")


@meaning.derive(f.seq.max_len)
def length(run: Cells) -> Any:
    return run[own.context_length] if run[f.seq.packing] == "concat" else None


@length.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.context_length: wanted}


@meaning.derive(f.seq.pad, f.seq.unbounded)
def padding(run: Cells) -> Any:
    """Packed data come in equal chunks (LC/data/concatenator.py); else the samples of a batch are
    padded to its longest, and context_length cuts nothing (LC/utils/config_utils.py)."""
    if run[f.seq.packing] == "concat":
        return {f.seq.pad: "none"}
    return {f.seq.pad: "longest", f.seq.unbounded: True}


# -- evaluating and saving -------------------------------------------------------------------------


@meaning.derive(f.eval.strategy)
def evaluates(run: Cells) -> Any:
    return "epoch" if run[f.eval.enabled] else "no"


meaning.always(f.eval.keeps_logits, False, "LC/utils/train_utils.py evaluation: argmax")


@meaning.derive(f.save.strategy)
def saves(run: Cells) -> Any:
    if not run[own.save_model]:
        return "no"
    return "best" if run[f.eval.enabled] else "epoch"


@meaning.derive(f.save.contents)
def saved(run: Cells) -> Any:
    if is_adapter_run(run):
        return ("adapter",)
    with_states = run[own.fsdp] and not run[f.save.save_only_model]
    return ("model", "optimizer") if with_states else ("model",)


@meaning.derive(f.save.full_gather, f.save.format)
def gathers_to_save(run: Cells) -> Any:
    if not run[own.fsdp]:
        return None
    if is_adapter_run(run):
        return {f.save.full_gather: True} if run[f.save.gather_device] == "gpu" else None
    gathers = run[_F.state_dict] == "full"
    return {f.save.full_gather: gathers, f.save.format: "bin" if gathers else "distcp"}


@meaning.derive(f.save.gather_device, source=SAVES_ADAPTER_ALONE.source)
def gathers_where(run: Cells) -> Any:
    """peft asks a wrapped model for its whole state dict, which nothing tells to leave the GPU."""
    if not run[own.fsdp] or not is_adapter_run(run) or run[f.save.strategy] == "no":
        return None
    return None if run.has(SAVES_ADAPTER_ALONE, noted=False) else "gpu"


@meaning.derive(f.save.keep, source="LC/model_checkpointing: one folder, written again")
def keeps(run: Cells) -> Any:
    return None if run[_F.state_dict] == "full" else 1


@meaning.derive(f.total_steps)
def steps(run: Cells) -> Any:
    return run[own.max_steps] or None
