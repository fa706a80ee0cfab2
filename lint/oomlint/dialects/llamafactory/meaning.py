"""What LLaMA-Factory makes of its keys about the model, its dtypes and what of it is trained.

Read from LLaMA-Factory ff6d4d12 (2026-08-18); ``LF`` below is ``src/llamafactory``. Allowed
are transformers 4.55 to 5.8, whose defaults hold.
"""

from __future__ import annotations

import re
from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import asked, fsdp, shared
from oomlint.dialects.llamafactory.bridge import bridge
from oomlint.dialects.llamafactory.data_sets import data_sets
from oomlint.dialects.llamafactory.keys import lf
from oomlint.dialects.llamafactory.launching import launching
from oomlint.dialects.llamafactory.libraries import libraries
from oomlint.dialects.llamafactory.loading import loading
from oomlint.dialects.llamafactory.releases import LOADS_ONTO_GPU
from oomlint.dialects.llamafactory.training import training
from oomlint.dialects.meaning import NOTHING, Meaning, Said, Wishes
from oomlint.dialects.setting import Origin
from oomlint.dialects.trainer.fields import hf
from oomlint.dialects.trainer.training_arguments import training_arguments
from oomlint.documents.base import Scalar
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

meaning = Meaning(
    bridge,
    data_sets,
    training,
    libraries,
    launching,
    loading,
    training_arguments,
)

_P = f.precision

# -- objective -------------------------------------------------------------------------------------

_KINDS = {
    "pt": "pretrain",
    "sft": "sft",
    "rm": "rm",
    "ppo": "ppo",
    "dpo": "dpo",
    "kto": "kto",
    "orpo": "orpo",
}


@meaning.derive(f.objective.kind)
def objective(run: Cells) -> Any:
    stage, loss = run[lf.stage], run[lf.pref_loss]
    return loss if stage == "dpo" and loss in ("orpo", "simpo") else _KINDS.get(stage)


@meaning.derive(f.objective.loss)
def preference_loss(run: Cells) -> Any:
    return run[lf.pref_loss] if run[lf.stage] in ("dpo", "kto") else None


@meaning.derive(
    f.objective.pairs_per_sample,
    source="LF/data/collator.py PairwiseDataCollatorWithPadding",
)
def pairs(run: Cells) -> Any:
    """Chosen and rejected in one batch."""
    return 2 if run[f.objective.kind] in ("dpo", "orpo", "simpo", "rm") else 1


@meaning.derive(f.objective.ref_model, source="LF/train/trainer_utils.py create_ref_model")
def reference_model(run: Cells) -> Any:
    """LoRA turns its adapter off instead of keeping a copy."""
    if run[f.objective.kind] not in ("dpo", "kto", "ppo") and not run[lf.asft]:
        return "none"
    is_alone = run[lf.ref_model] is None and _finetuning_type(run) == "lora"
    return "shared_adapter_off" if is_alone else "copy"


@meaning.derive(f.objective.ref_dtype)
def reference_dtype(run: Cells) -> Any:
    if run[f.objective.ref_model] != "copy":
        return None
    return {4: "nf4", 8: "int8"}.get(run[lf.ref_bits] or 0)


@meaning.derive(f.objective.reward_model)
def reward_model(run: Cells) -> Any:
    is_whole = run[f.objective.kind] == "ppo" and run[lf.reward_type] == "full"
    return run[lf.reward_model] if is_whole else None


# -- what is trained -------------------------------------------------------------------------------


def _finetuning_type(run: Cells) -> Any:
    """What the key says, whatever the weights under it are stored in."""
    return run.base(f.trainable.method)


@meaning.said(f.trainable.method)
def of_own_stage(run: Cells, field: Any, said: Said) -> Said:
    """A stage that LLaMA-Factory does not have is one of the project's own copy, which may freeze what it will."""
    stage = run.said(lf.stage)
    if not isinstance(stage, Origin) or stage.block is None or stage.entry is None:
        return said
    named = stage.entry.value
    if not isinstance(named, Scalar) or not isinstance(named.value, str):
        return (
            said  # which stage it is only running tells, and each trains what finetuning_type says
        )
    return Origin("explicit", stage.block, source=f"{named.value} is no stage of LLaMA-Factory's")


def _exports(run: Cells) -> bool:
    """Whether the model is merged and written: what trains leaves that to another command, whatever it names a folder for
    it (LF/train/tuner.py: run_exp never asks for export_dir)."""
    return not run[lf.trains] and bool(run[lf.export_dir])


@meaning.override(f.trainable.method)
def method(run: Cells) -> Any:
    said = run[f.trainable.method]
    if _exports(run) and not run[lf.adapters]:
        return "none"
    if run[lf.dora] and said in ("lora", "oft"):
        return "dora"
    return "qlora" if said == "lora" and run[f.quant.method] == "bnb4" else None


@method.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    """LF finetuning_args.py: LoRA together with GaLore, APOLLO or BAdam is refused."""
    if wanted != "full" and (run[lf.galore] or run[lf.apollo] or run[lf.badam]):
        raise CannotEdit("LLaMA-Factory trains no adapter with GaLore, APOLLO or BAdam")
    return {f.trainable.method: wanted}


@meaning.derive(f.trainable.r)
def rank(run: Cells) -> Any:
    own = {"lora": lf.lora_rank, "oft": lf.oft_rank}.get(_finetuning_type(run))
    return None if own is None else run[own] or None


@rank.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {lf.lora_rank if run[lf.oft_rank] in (None, 0) else f.trainable.r: wanted}


@meaning.default(f.trainable.alpha, source="LF finetuning_args.py:585")
def alpha(run: Cells) -> Any:
    rank = run[lf.lora_rank] if _finetuning_type(run) == "lora" else None
    return 2 * rank if rank else None


@meaning.derive(f.trainable.targets)
def targets(run: Cells) -> Any:
    own = {"lora": lf.lora_target, "oft": lf.oft_target}.get(_finetuning_type(run))
    named = None if own is None else run[own]
    return "all_linear" if named == ("all",) else named


@meaning.written(f.trainable.targets)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if _finetuning_type(run) != "lora":
        raise CannotEdit("only LoRA's layers are listed so")
    return {lf.lora_target: ("all",) if wanted == "all_linear" else tuple(wanted)}


@meaning.derive(f.trainable.by_name, source="LF/model/model_utils/misc.py find_all_linear_modules")
def finds_layers_itself(run: Cells) -> Any:
    """It hands PEFT the names of the linear layers that it found."""
    return True if run[f.trainable.targets] == "all_linear" else None


@meaning.default(f.trainable.modules_to_save, source="LF/model/adapter.py")
def resized_vocabulary(run: Cells) -> Any:
    """A resized vocabulary trains its embedding and head."""
    is_resized = _finetuning_type(run) in ("lora", "oft") and run[lf.resize_vocab]
    return ("embed_tokens", "lm_head") if is_resized else None


@meaning.derive(f.trainable.last_layers)
def last_layers(run: Cells) -> Any:
    """Negative: as many layers from the front."""
    layers = run[lf.freeze_layers] if _finetuning_type(run) == "freeze" else None
    return None if layers is None else abs(layers)


@meaning.derive(f.trainable.names, source="LF/model/adapter.py:99")
def trained_names(run: Cells) -> Any:
    """Parts of layers, and modules outside of them, are trained by their names; whole layers need
    no names."""
    layers, dims = run[f.trainable.last_layers], run[f.model.dims]
    parts, extra = run[lf.freeze_modules] or (), run[lf.freeze_extra] or ()
    if layers is None or dims is None or not dims.layers or not (extra or "all" not in parts):
        return None
    count = min(layers, dims.layers)
    first = dims.layers - count if (run[lf.freeze_layers] or 0) > 0 else 0
    numbers = "|".join(map(str, range(first, first + count)))
    inside = (rf".*\.(?:{numbers})\.{'' if part == 'all' else re.escape(part)}" for part in parts)
    return (*inside, *(f".*{re.escape(name)}" for name in extra))


@meaning.derive(f.parallel.fsdp.isolates_trainable, source="LF/model/adapter.py:106")
def trains_whole_layers(run: Cells) -> Any:
    """Of such a layer only the modules that are named are trained."""
    if _finetuning_type(run) != "freeze":
        return None
    return "all" in (run[lf.freeze_modules] or ())


_FREEZES = {
    f.model.vision.freeze_tower: "vision",
    lf.freeze_projector: "projector",
    lf.freeze_language: "llm",
}


@meaning.derive(f.trainable.frozen)
def frozen(run: Cells) -> Any:
    return tuple(part for switch, part in _FREEZES.items() if run[switch]) or None


# -- pictures --------------------------------------------------------------------------------------


@meaning.derive(
    f.model.vision.max_tiles,
    source="LF/data/mm_plugin.py InternVLPlugin, MMPluginMixin._get_mm_inputs",
)
def tiles(run: Cells) -> Any:
    """InternVL sees a picture once unless it is to be cropped, whatever its own processor would do; Gemma 3 pans over one
    only where it is told to."""
    dims = run[f.model.dims]
    arch = None if dims is None else dims.arch
    if arch == "internvl":
        return 12 if run[lf.crops] else 1
    return 4 if arch == "gemma3" and run[lf.pans] else None


# -- quantization ----------------------------------------------------------------------------------

_QUANTIZATION = "LF/model/model_utils/quantization.py configure_quantization"


meaning.takes(f.quant.requested_bits, lf.quant_bits)


@meaning.derive(f.quant.method, f.quant.dequantised_on_load, source=_QUANTIZATION)
def dequantised(run: Cells) -> Any:
    """Such checkpoints are dequantized on loading."""
    if run[f.model.native_quant] not in ("mxfp4", "fp8", "fp8_block", "fp8_weight"):
        return None
    return {f.quant.method: "none", f.quant.dequantised_on_load: True}


def _bits(run: Cells) -> int | None:
    """ "`quantization_bit` will not affect on the PTQ-quantized models." """
    return run[lf.quant_bits] if run[f.model.native_quant] in (None, "none") else None


@meaning.derive(asked.bits, source=_QUANTIZATION)
def asked_bits(run: Cells) -> Any:
    return _bits(run)


@meaning.derive(asked.method, f.quant.bits, source=_QUANTIZATION)
def other_methods(run: Cells) -> Any:
    bits = _bits(run)
    if bits is None or run[lf.quant_method] not in ("hqq", "eetq"):
        return None
    return {asked.method: run[lf.quant_method], f.quant.bits: float(bits)}


@meaning.derive(f.quant.double, f.quant.compute_dtype, f.quant.storage_dtype, source=_QUANTIZATION)
def nf4(run: Cells) -> Any:
    if run[f.quant.method] != "bnb4":
        return None
    half = "fp16" if run[hf.fp16] else "bf16"
    return {
        f.quant.double: run[lf.double_quant],
        f.quant.compute_dtype: half,
        f.quant.storage_dtype: half,
    }


meaning.always(
    f.quant.prepares_kbit,
    False,
    "LF/model/adapter.py never calls peft's prepare_model_for_kbit_training",
)


@meaning.written(f.quant.method)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    bits = {"bnb4": 4, "bnb8": 8}.get(wanted)
    if bits is None:
        raise CannotEdit(f"LLaMA-Factory cannot quantize to {wanted} here")
    if run[f.trainable.method] not in ("lora", "qlora", "dora", "oft"):
        raise CannotEdit("LLaMA-Factory quantizes for LoRA or OFT only (finetuning_type)")
    if run[f.model.native_quant] not in (None, "none"):
        raise CannotEdit("the checkpoint is quantized already; quantization_bit has no effect")
    if run[lf.pissa]:
        raise CannotEdit("LLaMA-Factory refuses pissa_init on a quantized model")
    if bits == 8 and (run[f.parallel.zero.stage] == 3 or run[fsdp.enabled]):
        raise CannotEdit("only 4-bit models can be sharded with ZeRO-3 or FSDP")
    return {lf.quant_bits: bits}


# -- dtypes ----------------------------------------------------------------------------------------

_ADAPTER = "LLaMA-Factory ff6d4d12 src/llamafactory/model/adapter.py:338"


def _upcasts_trained(run: Cells) -> bool:
    """LF/model/adapter.py:338-355: what is trained becomes fp32, unless the run is pure bf16,
    uses BAdam, or shards a model that is not quantized with ZeRO-3."""
    if run[lf.pure_bf16] or run[lf.badam]:
        return False
    return run[f.parallel.zero.stage] != 3 or run[lf.quant_bits] is not None


@meaning.derive(shared.loads, source=_ADAPTER)
def loads(run: Cells) -> Any:
    is_cast = run[f.trainable.method] == "full" and _upcasts_trained(run)
    return "fp32" if is_cast else run[f.load.dtype]


@meaning.derive(f.load.cast, source=_ADAPTER)
def casts_where_loaded(run: Cells) -> Any:
    """Each parameter that is trained becomes fp32, on the GPU where a device map has put it (runs under ZeRO-2
    die of it: https://github.com/hiyouga/LLaMA-Factory/issues/4549)."""
    is_cast = run[f.trainable.method] in ("full", "freeze") and _upcasts_trained(run)
    return "fp32" if is_cast and run.has(LOADS_ONTO_GPU, noted=False) else None


@meaning.override(f.trainable.saved_dtype, source=_ADAPTER)
def saved_copies(run: Cells) -> Any:
    """What is trained becomes fp32, copies of whole modules with it."""
    upcasts = run[f.trainable.saved_dtype] is not None and _upcasts_trained(run)
    return "fp32" if upcasts else None


@meaning.derive(_P.param, _P.grad, _P.optim_state, source=_ADAPTER)
def trained_layers(run: Cells) -> Any:
    is_sharded = run[f.parallel.backend] == "zero" and run[f.parallel.zero.stage] != 0
    if run[f.trainable.method] != "freeze" or is_sharded:
        return None
    stored = run[f.load.dtype]
    trained = "fp32" if _upcasts_trained(run) else stored
    return {_P.param: stored, _P.grad: trained, _P.optim_state: trained}


@meaning.written(_P.param)
def _(dtype: Any, run: Cells, wishes: Wishes) -> Wishes:
    if dtype != "bf16":
        return {}
    if run[f.parallel.zero.stage] == 3:
        raise CannotEdit("LLaMA-Factory refuses pure_bf16 with ZeRO-3")
    return {lf.pure_bf16: True}


@meaning.derive(_P.logits)
def logits(run: Cells) -> Any:
    return "fp32" if run[lf.logits_fp32] else None


@logits.written
def _(dtype: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {lf.logits_fp32: dtype == "fp32"}


@meaning.derive(_P.fp8_train)
def trains_in_fp8(run: Cells) -> Any:
    engines = {"te": "te", "torchao": "torchao", "msamp": "msamp", "auto": "torchao"}
    engine = engines.get(run[lf.fp8_backend])
    return engine if run[lf.fp8] else None


# -- where the weights lie -------------------------------------------------------------------------


@meaning.override(f.load.low_cpu_mem, source="LF/model/patcher.py patch_config")
def loads_shards(run: Cells) -> Any:
    """ZeRO-3 counts where transformers knows of it when the model is loaded."""
    is_known = run[f.parallel.zero.stage] == 3 and run[f.load.zero3_init] is not False
    return False if is_known else None


@meaning.derive(f.load.device_map, source="LF/model/patcher.py patch_config")
def device_map(run: Cells) -> Any:
    """Loading straight onto the GPU, except for shards."""
    return "single" if run[f.load.low_cpu_mem] and not run[fsdp.enabled] else "none"


@meaning.derive(f.offload.layers)
def experts_on_cpu(run: Cells) -> Any:
    """LF/hparams/model_args.py: experts live and are computed on the CPU."""
    return "cpu" if run[lf.ktransformers] else None


@meaning.override(f.model.dims)
def model_of_experts_on_cpu(run: Cells) -> Any:
    """How much of the model is left on the GPU depends on kt-kernel's own weights, so nothing is
    predicted."""
    return NOTHING if run[lf.ktransformers] else None


@meaning.derive(f.save.merge, f.save.dtype, source="LF/train/tuner.py export_model")
def export(run: Cells) -> Any:
    """The whole model is loaded, merged and written; to quantize it GPTQModel spreads it as it
    sees fit."""
    if not _exports(run):
        return None
    dtype = run[lf.infer_dtype]
    return {
        f.save.merge: None if run[lf.export_bits] else "whole",
        f.save.dtype: "bf16" if dtype == "auto" else dtype,
    }
