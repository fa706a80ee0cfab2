"""What torchtune's recipes make of a config: sharding, the model, what is trained and its dtypes.

Read from torchtune 0.7.0 (bd2a0fc7, 2026-04-23); ``TT`` below is the root of that checkout.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.common.offloading import to_cpu
from oomlint.dialects.common.world import batch, world
from oomlint.dialects.machine.meaning import launch_one_process
from oomlint.dialects.meaning import Meaning, Sourced, Wishes
from oomlint.dialects.torchtune.keys import ARGUMENTS, RECIPES, header, own
from oomlint.dialects.torchtune.models import (
    bare_builder,
    decoder_params,
    dims_of_arguments,
    has_adapters,
    lora_targets,
    quantizes,
)
from oomlint.dialects.torchtune.recipes import is_alone, recipes
from oomlint.dialects.torchtune.training import training
from oomlint.errors import CannotEdit
from oomlint.models.given import with_members
from oomlint.plan.fields import f
from oomlint.plan.library_changes import LibraryChange

meaning = Meaning(recipes, training, world, launch_one_process, batch)

_F = f.parallel.fsdp

# -- sharding --------------------------------------------------------------------------------------

SHARDS_WITH_FSDP2 = LibraryChange(
    "torchtune", (0, 3), "recipes shard with FSDP1",
    "torchtune 0.2.1 and 0.3.0 recipes/full_finetune_distributed.py _setup_model",
)  # fmt: skip
_SHARDS = "torchtune 0.7.0 torchtune/training/_distributed.py shard_model"


@meaning.derive(_F.version, source=_SHARDS)
def version(run: Cells) -> Any:
    if is_alone(run) is not False:
        return None
    return 2 if run.has(SHARDS_WITH_FSDP2) else 1


@meaning.derive(f.parallel.backend, source=_SHARDS)
def backend(run: Cells) -> Any:
    """Distributed recipes shard with FSDP whatever the rank count; there is no DDP."""
    alone = is_alone(run)
    if alone is not False:
        return "none" if alone else None
    return "fsdp2" if run[_F.version] == 2 else "fsdp1"


@meaning.derive(_F.strategy)
def strategy(run: Cells) -> Any:
    if is_alone(run) is not False:
        return None
    if not run[_F.reshard_after_forward]:
        return "grad_op"
    return "hybrid" if (run[f.parallel.dp_replicate] or 1) > 1 else "full"


@meaning.derive(_F.wrap)
def wraps(run: Cells) -> Any:
    if is_alone(run) is not False:
        return None
    layers = {name.rpartition(".")[2] for name in run[own.sharded_layers] or ()}
    wraps_ends = {"tok_embeddings", "output"} <= layers and run[_F.version] == 2
    return "ends" if wraps_ends else "transformer"


@meaning.derive(_F.state_dict, _F.sync_every_micro, f.load.meta_init, source=RECIPES)
def sharded_run(run: Cells) -> Any:
    if is_alone(run) is not False:
        return None
    return {
        _F.state_dict: Sourced("full", "gather_cpu_state_dict"),
        # No recipe calls set_requires_gradient_sync: every micro batch is reduced.
        _F.sync_every_micro: True,
        # The model is built on the meta device; files are mapped, not read (_setup_model).
        f.load.meta_init: True,
    }


@meaning.derive(f.offload.params, f.offload.optimizer, source=_SHARDS)
def offloading(run: Cells) -> Any:
    if is_alone(run) is not False:
        return None
    device = "cpu" if run[_F.cpu_offload] else "none"
    return {f.offload.params: device, f.offload.optimizer: device}


@offloading.written
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    said = {_F.cpu_offload: to_cpu(device, "torchtune offloads")}
    if run[f.parallel.backend] not in ("fsdp1", "fsdp2"):
        raise CannotEdit("torchtune's single-device recipes cannot offload to the CPU")
    return said


meaning.cannot_say(
    "torchtune knows no DeepSpeed; its distributed recipes always shard with FSDP2",
    f.parallel.zero.stage,
)
meaning.cannot_say("torchtune knows no DeepSpeed", f.load.zero3_init)
# Its recipes refuse dtype=fp16 (TT/recipes/lora_finetune_single_device.py, "full fp16 training is not supported").
meaning.cannot_say("torchtune trains in bf16 or fp32, never in fp16", f.precision.compute)
meaning.cannot_say("torchtune gathers the whole model on rank 0 to save it", _F.state_dict)
meaning.cannot_say("torchtune maps checkpoint files into memory as it is", f.load.cpu_ram_efficient)
meaning.cannot_say("torchtune has no switch for pinned memory", f.offload.pin_memory)

# -- the model -------------------------------------------------------------------------------------


@meaning.fact(f.model.dims, f.model.arch)
def dims_of_builder(run: Cells) -> Any:
    """Dimensions that stand in the file as arguments of a family's own builder."""
    builder = run[own.builder]
    if builder is None or run.known.model(run[f.model.id]) is not None:
        return None
    dims = dims_of_arguments(builder, {name: run[field] for name, field in ARGUMENTS.items()})
    if dims is None:
        return None
    source = f"the arguments of {bare_builder(builder)} in the file"
    return {
        f.model.dims: Sourced(with_members(dims, run.known.options), source),
        f.model.arch: Sourced(dims.arch, source),
    }


def _packs(run: Cells) -> bool:
    return run[f.seq.packing] not in (None, "none")


@meaning.derive(f.model.attn_impl)
def attention(run: Cells) -> Any:
    """Packed samples attend within themselves by a block mask (modules/attention_utils.py)."""
    if run[own.builder] is None:
        return None
    return "flex" if _packs(run) else "sdpa"


meaning.cannot_say(
    "torchtune computes attention with PyTorch's own kernels; there is no key", f.model.attn_impl
)

# -- objective -------------------------------------------------------------------------------------


@meaning.derive(f.objective.kind)
def objective(run: Cells) -> Any:
    if run[f.objective.teacher] is not None:
        return "distill"
    loss = (run[own.loss] or "").rpartition(".")[2]
    if loss.startswith(("DPO", "RSO", "IPO")) or _compares_answers(run, loss):
        return "dpo"
    if loss.startswith("PPO") or run[f.objective.reward_model] is not None:
        return "ppo"
    return "grpo" if "GRPO" in loss else "sft"


def _compares_answers(run: Cells, loss: str) -> bool:
    """The recipe tells of losses such as SimPO's; a cross entropy compares nothing."""
    if "CrossEntropy" in loss or loss.startswith("CEWith"):
        return False
    return "dpo" in (run[own.recipe] or run[header.recipe] or "")


@meaning.derive(f.objective.pairs_per_sample)
def pairs(run: Cells) -> Any:
    return 2 if run[f.objective.kind] == "dpo" else None


@meaning.derive(f.objective.ref_model)
def reference_model(run: Cells) -> Any:
    frozen = "shared_adapter_off" if _adds_adapters(run) else "copy"
    kind = run[f.objective.kind]
    return frozen if kind == "dpo" else "copy" if kind in ("ppo", "grpo") else "none"


@meaning.derive(f.objective.ref_dtype)
def reference_dtype(run: Cells) -> Any:
    return run[own.dtype] if run[f.objective.ref_model] == "copy" else None


# -- what is trained -------------------------------------------------------------------------------


def _adds_adapters(run: Cells) -> bool:
    return has_adapters(run[own.builder] or "")


def _quantizes(run: Cells) -> bool:
    """NF4 stores the frozen layers below adapters."""
    if not _adds_adapters(run):
        return False
    return quantizes(run[own.builder]) or bool(run[own.quantize_base])


@meaning.derive(f.trainable.method)
def method(run: Cells) -> Any:
    if run[own.builder] is None:
        return None
    if not _adds_adapters(run):
        return "full"
    return "dora" if run[own.dora] else "qlora" if _quantizes(run) else "lora"


@meaning.default(
    f.trainable.r,
    f.trainable.alpha,
    f.trainable.dropout,
    source="torchtune 0.7.0 models/llama3_1/_model_builders.py:83",
)
def adapter_defaults(run: Cells) -> Any:
    if not _adds_adapters(run):
        return None
    return {f.trainable.r: 8, f.trainable.alpha: 16.0, f.trainable.dropout: 0.0}


# transformers' Phi-3 fuses what torchtune keeps apart.
_FUSED_IN_PHI3 = {"q_proj": "qkv_proj", "v_proj": "qkv_proj", "gate_proj": "gate_up_proj"}


@meaning.derive(f.trainable.targets)
def targets(run: Cells) -> Any:
    if not _adds_adapters(run):
        return None
    names = lora_targets(
        run[own.lora_attn_modules], mlp=bool(run[own.lora_mlp]), output=bool(run[own.lora_output])
    )
    dims = run[f.model.dims]
    if names is None or dims is None or dims.arch != "phi3":
        return names
    fused = (_FUSED_IN_PHI3[name] for name in names if name in _FUSED_IN_PHI3)
    return tuple(dict.fromkeys((*names, *fused)))


@meaning.derive(f.model.vision.freeze_tower)
def freezes_tower(run: Cells) -> Any:
    is_frozen = not _adds_adapters(run) and run[own.encoder_trainable] == "frozen"
    return True if is_frozen else None


@meaning.derive(f.trainable.params)
def trained_beside_decoder(run: Cells) -> Any:
    """Decoders of vision models are frozen unless the file says otherwise."""
    builder = run[own.builder] or ""
    decoder = None if has_adapters(builder) else decoder_params(builder)
    if decoder is None or run[own.decoder_trainable] == "full":
        return None
    dims = run[f.model.dims]
    return None if dims is None or not dims.params_total else dims.params_total - decoder


@meaning.derive(f.quant.method)
def quantization(run: Cells) -> Any:
    return "nf4_torchao" if _quantizes(run) else "none"


@quantization.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wanted not in ("bnb4", "nf4_torchao"):
        raise CannotEdit("torchtune quantizes frozen weights to NF4 only")
    if not is_adapter_run(run):
        raise CannotEdit("torchtune quantizes weights only under LoRA adapters")
    return {own.quantize_base: True}


@meaning.derive(f.quant.double)
def quantizes_scalers(run: Cells) -> Any:
    """NF4Tensor.from_tensor: blocks of 64, block scalers quantized too (torchao
    dtypes/nf4tensor.py)."""
    return True if _quantizes(run) else None


@meaning.derive(f.quant.compute_dtype)
def dtype_of_quantized(run: Cells) -> Any:
    return run[own.dtype] if _quantizes(run) else None


# -- dtypes ----------------------------------------------------------------------------------------

# Neither autocast nor master weights (recipes/full_finetune_distributed.py: set_default_dtype
# around the model).
_ALL_IN_DTYPE = "torchtune 0.7.0 recipes: training.set_default_dtype(dtype), no autocast"
_P = f.precision

meaning.always(_P.master, "none", _ALL_IN_DTYPE)
meaning.always(_P.autocast, False, _ALL_IN_DTYPE)


@meaning.derive(f.load.dtype, _P.grad, _P.compute, _P.logits, source=_ALL_IN_DTYPE)
def dtypes(run: Cells) -> Any:
    return dict.fromkeys((f.load.dtype, _P.grad, _P.compute, _P.logits), run[own.dtype])


@meaning.derive(_P.param, source=_ALL_IN_DTYPE)
def stored(run: Cells) -> Any:
    return "nf4" if run[f.quant.method] == "nf4_torchao" else run[own.dtype]


@meaning.derive(_P.optim_state, source=_ALL_IN_DTYPE)
def states(run: Cells) -> Any:
    """bitsandbytes optim/optimizer.py init_state: 32-bit states are float32 whatever the
    weights."""
    is_bitsandbytes = (run[f.optimizer.name] or "").startswith("bitsandbytes.")
    if is_bitsandbytes and "8bit" not in (run[f.optimizer.kind] or ""):
        return "fp32"
    return run[own.dtype]


@meaning.derive(_P.comm, source="no MixedPrecisionPolicy")
def gathered(run: Cells) -> Any:
    return run[own.dtype] if run[f.parallel.backend] in ("fsdp1", "fsdp2") else None


@meaning.derive(f.trainable.adapter_dtype, source=_ALL_IN_DTYPE)
def adapters(run: Cells) -> Any:
    return run[own.dtype] if is_adapter_run(run) else None


@meaning.written(_P.param, f.load.dtype)
def _(dtype: Any, run: Cells, wishes: Wishes) -> Wishes:
    if dtype not in ("bf16", "fp32"):
        raise CannotEdit("torchtune trains in bf16 or fp32 only")
    return {own.dtype: dtype}


meaning.follows(_P.optim_state)
