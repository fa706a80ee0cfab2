"""What ms-swift makes of its keys: what it trains, quantized or not, in which types.

Read from ms-swift 3602360a (4.6.0.dev0, 2026-08-22); ``SW`` below is ``swift/``.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.common.fields import asked
from oomlint.dialects.machine.meaning import launch_one_process
from oomlint.dialects.meaning import Meaning, Sourced, Wishes
from oomlint.dialects.ms_swift.keys import BASE, MODEL, OLD, QUANT, TUNER, has_old_keys, own
from oomlint.dialects.ms_swift.ranks import ranks, spreading
from oomlint.dialects.ms_swift.samples import samples
from oomlint.dialects.ms_swift.training import training
from oomlint.dialects.ms_swift.weights import command_of_run, weights
from oomlint.dialects.trainer.fields import hf
from oomlint.dialects.trainer.training_arguments import training_arguments
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

meaning = Meaning(
    training, weights, samples, spreading, ranks, training_arguments, launch_one_process
)


@meaning.derive(own.is_old)
def is_old(run: Cells) -> Any:
    version = run.version("ms-swift")
    return has_old_keys(run) if version is None else version < (3,)


@meaning.derive(f.objective.loss)
def loss_type(run: Cells) -> Any:
    named = run[own.loss_type]
    return ",".join(named) if named else None


# -- what is trained -------------------------------------------------------------------------------


@meaning.default(own.tuner, source=f"{BASE}:94")
def tuner(run: Cells) -> Any:
    """Up to 2.6 it was full for ``swift pt``."""
    return "full" if command_of_run(run) == "pt" and run[own.is_old] else "lora"


@meaning.default(f.model.vision.freeze_tower)
def freezes_tower(run: Cells) -> Any:
    """2.x trained the vision tower unless it was told not to; 3.0 and later freeze it."""
    return Sourced(False, OLD) if run[own.is_old] else Sourced(True, TUNER)


@meaning.override(f.model.vision.freeze_tower)
def trains_tower(run: Cells) -> Any:
    return False if run[own.tuner] == "lora_llm" else None


@meaning.derive(f.trainable.method)
def method(run: Cells) -> Any:
    tuner = run[own.tuner]
    if tuner is None:
        return None
    if tuner == "full":
        # SW/callbacks/lisa.py: a few layers at a time, beside embedding, head and norms.
        return "layerwise" if run[own.lisa_layers] else "full"
    if tuner == "llamapro":
        return "freeze"
    if tuner in ("adapter", "other"):
        return "adapter"
    if run[own.dora]:
        return "dora"
    if tuner == "oft":
        return "oft"
    return "qlora" if run[f.quant.method] == "bnb4" else "lora"


@method.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wanted not in ("lora", "qlora", "dora", "full"):
        raise CannotEdit(f"ms-swift has no tuner for {wanted}")
    return {own.tuner: "full" if wanted == "full" else "lora"}


@meaning.derive(f.trainable.last_layers)
def last_layers(run: Cells) -> Any:
    if run[own.tuner] == "llamapro":
        return run[own.new_blocks]
    return run[own.lisa_layers] if run[f.trainable.method] == "layerwise" else None


@meaning.override(f.model.dims, source="ms-swift 2.1.0 tuners/llamapro.py prepare_model")
def with_new_blocks(run: Cells) -> Any:
    """LLaMA-Pro adds blocks to the model, and trains them alone."""
    dims, added = run[f.model.dims], run[own.new_blocks]
    if run[own.tuner] != "llamapro" or dims is None or not added or not dims.layers:
        return None
    unknown = dict.fromkeys((n for n in dims.__struct_fields__ if n.startswith("params_")), None)
    return replace(dims, layers=dims.layers + added, **unknown)


@meaning.derive(f.trainable.params)
def trained_by_lisa(run: Cells) -> Any:
    active, dims = run[own.lisa_layers], run[f.model.dims]
    if run[f.trainable.method] != "layerwise" or not active or dims is None:
        return None
    if not (dims.params_total and dims.layers and dims.vocab and dims.hidden):
        return None
    ends = dims.vocab * dims.hidden * (1 if dims.tie_embeddings else 2)
    layer = max(0, dims.params_total - ends) // dims.layers
    return ends + min(active, dims.layers) * layer


def _trains_vectors(run: Cells) -> bool:
    return run[f.trainable.method] == "adapter"


@meaning.derive(f.trainable.r, source="IA3, ReFT, VeRA and FourierFT train a few vectors a layer")
def vectors(run: Cells) -> Any:
    return 1 if _trains_vectors(run) else None


@meaning.derive(f.trainable.targets)
def layers_with_vectors(run: Cells) -> Any:
    return "all_linear" if _trains_vectors(run) else None


@meaning.written(f.trainable.r)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.lora_rank: wanted}


# -- quantized weights -----------------------------------------------------------------------------

_ON_THE_FLY = ("hqq", "eetq", "fp8_weight")


@meaning.derive(f.quant.requested_bits)
def requested_bits(run: Cells) -> Any:
    """SW/arguments/base_args/quant_args.py:46: the bits alone do nothing since 3.0."""
    return run[own.quant_bits] if run[own.quant_method] is not None or run[own.is_old] else None


@meaning.derive(asked.bits)
def bits_of_bitsandbytes(run: Cells) -> Any:
    is_stored_whole = run[f.model.native_quant] in (None, "none")
    if run[own.quant_method] in _ON_THE_FLY or not is_stored_whole:
        return None
    return run[f.quant.requested_bits]


@meaning.derive(asked.method)
def method_on_the_fly(run: Cells) -> Any:
    named = run[own.quant_method]
    return named if named in _ON_THE_FLY else None


@meaning.derive(f.quant.bits)
def bits_on_the_fly(run: Cells) -> Any:
    bits = run[f.quant.requested_bits]
    return float(bits) if run[asked.method] is not None and bits is not None else None


@meaning.default(f.quant.double, source=f"{QUANT}:42")
def double(run: Cells) -> Any:
    return True if run[f.quant.method] == "bnb4" else None


@meaning.derive(
    f.quant.skip_modules,
    source="SW/arguments/base_args/quant_args.py:99 get_modules_to_not_convert",
)
def skips_towers(run: Cells) -> Any:
    """A multimodal model's tower and aligner keep their width, whatever the tower's name is."""
    if run[asked.bits] is None:
        return None
    return ("lm_head", "vision_model", "vision_tower", "visual", "vpm")


meaning.always(
    f.quant.prepares_kbit,
    False,
    "SW/pipelines/train/tuner.py never calls peft's prepare_model_for_kbit_training",
)


@meaning.written(f.quant.method)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    bits = {"bnb4": 4, "bnb8": 8}.get(wanted)
    if bits is None:
        raise CannotEdit(f"ms-swift quantizes with bitsandbytes here, not to {wanted}")
    if run[own.tuner] == "full":
        raise CannotEdit("full-parameter training takes no quantized weights (tuner_type)")
    if run[f.model.native_quant] not in (None, "none"):
        raise CannotEdit("the checkpoint is quantized already")
    named = {} if run[own.is_old] else {own.quant_method: "bnb"}
    return {own.quant_bits: bits, **named}


# -- dtypes ----------------------------------------------------------------------------------------


@meaning.derive(hf.bf16, hf.fp16, source=f"{MODEL} _init_mixed_precision")
def mixed_precision(run: Cells) -> Any:
    """It follows from the weights: fp16 for fp16 and fp32 weights (SW model_args.py)."""
    half = _half(run)
    return None if half is None else {hf.bf16: half == "bf16", hf.fp16: half == "fp16"}


def _half(run: Cells) -> str | None:
    loaded = run[f.load.dtype]
    if loaded == "fp32":
        return "no" if run[own.is_old] and run[own.dtype] != "fp16" else "fp16"
    return loaded if loaded in (None, "fp16") else "bf16"


@meaning.derive(
    f.trainable.adapter_dtype,
    f.precision.grad,
    f.precision.optim_state,
    source="ms-swift 3602360a tuners/peft.py",
)
def adapters(run: Cells) -> Any:
    """peft makes adapters fp32 unless ``lora_dtype`` names another dtype."""
    said = run[own.lora_dtype]
    if said is None or not is_adapter_run(run) or run[f.parallel.backend] == "zero":
        return None
    # SW/pipelines/train/tuner.py: trainable fp16 parameters become fp32.
    dtype = "fp32" if said == "fp16" else said
    return dict.fromkeys(
        (f.trainable.adapter_dtype, f.precision.grad, f.precision.optim_state), dtype
    )


@meaning.written(f.load.dtype, f.precision.compute)
def _(dtype: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.dtype: dtype}


@meaning.written(f.precision.param)
def _(dtype: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.dtype: "bf16"} if dtype == "bf16" else {}
