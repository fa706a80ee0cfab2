"""What Unsloth's classes make of their arguments: what is loaded, adapted and quantized.

Read from unsloth 015bdef0 (2026-08-22; ``U`` below is ``unslothai/unsloth unsloth/``) and
unsloth_zoo 2026.10.9 (``Z``).
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.block import Block
from oomlint.dialects.cells import Cells
from oomlint.dialects.machine.meaning import launch_one_process
from oomlint.dialects.machine.named_hardware import gpu_named
from oomlint.dialects.meaning import NOTHING, Meaning, Sourced, Wishes
from oomlint.dialects.trainer.custody import custody
from oomlint.dialects.trainer.fields import hf, script
from oomlint.dialects.trainer.own_ways import own_ways
from oomlint.dialects.trainer.scripts import calls
from oomlint.dialects.trl.training import trainers
from oomlint.dialects.unsloth.keys import CLI, FAST_PEFT, SEVEN, WRAPPER, is_for_language, unsloth
from oomlint.dialects.unsloth.releases import ADAPTS_HEAD, SAVES_MODULES
from oomlint.dialects.unsloth.training import training
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

meaning = Meaning(custody, own_ways, training, calls, trainers, launch_one_process)

# -- the width of the weights ----------------------------------------------------------------------


@meaning.derive(hf.load_4bit, source="U models/loader.py FastModel.from_pretrained")
def loads_4bit(run: Cells) -> Any:
    is_wider = run[unsloth.full] or run[unsloth.load_16bit] or run[unsloth.load_8bit]
    return bool(run[unsloth.load_4bit]) and not is_wider


@meaning.derive(hf.load_8bit, source="U models/loader.py FastModel.from_pretrained")
def loads_8bit(run: Cells) -> Any:
    return bool(run[unsloth.load_8bit]) and not run[unsloth.full]


@meaning.derive(f.quant.double, source="unsloth models/llama.py:2620")
def quantizes_twice(run: Cells) -> Any:
    return loads_4bit(run) or None


@meaning.derive(
    f.quant.skip_modules, source="unsloth_zoo 2026.10.9 peft_utils.py SKIP_QUANTIZATION_MODULES"
)
def skips_towers(run: Cells) -> Any:
    """By their names: Qwen's tower has another."""
    return ("lm_head", "merger", "vision_tower") if loads_4bit(run) or loads_8bit(run) else None


@meaning.override(f.quant.requested_bits)
def asks_for_nothing(run: Cells) -> Any:
    """Unsloth loads its own copy of a model that comes quantized (U models/mapper.py): nothing is
    quantized twice."""
    return NOTHING


@meaning.override(
    f.quant.method,
    f.quant.quantises_moe_experts,
    source="unsloth models/mapper.py: gpt-oss-20b-unsloth-bnb-4bit",
)
def own_copy(run: Cells) -> Any:
    """gpt-oss in 4 bit is bitsandbytes', experts included, by the name of the original or of the copy: they become
    lists of linear layers (unsloth_zoo 2026.1.3 temporary_patches/gpt_oss.py)."""
    is_copied = run[f.model.native_quant] == "mxfp4" or run[f.model.arch] == "gpt_oss"
    if not is_copied or not run[hf.load_4bit]:
        return None
    return {f.quant.method: "bnb4", f.quant.quantises_moe_experts: True}


@meaning.written(f.quant.method)
def _(method: Any, run: Cells, wishes: Wishes) -> Wishes:
    if method not in ("bnb4", "bnb8"):
        raise CannotEdit(f"Unsloth has no switch for {method} quantization")
    if run[unsloth.full]:
        raise CannotEdit("full fine-tuning does not quantize; drop full_finetuning first")
    if method == "bnb8":
        return {unsloth.load_4bit: False, unsloth.load_8bit: True}
    off = {switch: False for switch in (unsloth.load_8bit, unsloth.load_16bit) if run[switch]}
    return {**off, unsloth.load_4bit: True}


# -- adapters --------------------------------------------------------------------------------------


def _wraps(blocks: list[Block]) -> bool:
    """Whether a call adds an adapter, as the command line always does."""
    return any(block.table in (FAST_PEFT, CLI) for block in blocks)


@meaning.derive(hf.use_peft)
def adapts(run: Cells) -> Any:
    if not (run.once(_wraps) or run[unsloth.full] or run[script.adapter]):
        return None
    return not run[unsloth.full]


@meaning.assume(hf.use_peft, why="no call adds an adapter: the checkpoint brings its own")
def goes_on(run: Cells) -> Any:
    """The name may be that of an adapter trained before."""
    return True


@meaning.default(hf.lora_targets, source=WRAPPER)
def targets(run: Cells) -> Any:
    """FastLanguageModel names seven modules; FastModel and FastVisionModel take every linear one
    of the towers that are trained (U models/vision.py:1858)."""
    if not run.once(_wraps) or run[unsloth.full]:
        return None
    return SEVEN if run.once(is_for_language) else ("all-linear",)


@meaning.override(
    f.trainable.targets,
    f.trainable.modules_to_save,
    source="unsloth 015bdef0 models/llama.py:3318",
)
def trained_ends(run: Cells) -> Any:
    """An embedding among the targets becomes a trained copy of it, and so did an output projection
    until it got an adapter like the rest."""
    named = run.base(f.trainable.targets)
    if named is None or isinstance(named, str) or not run.once(is_for_language):
        return None
    also = run.base(f.trainable.modules_to_save)
    saved = tuple(also or ())
    ends = tuple(name for name in ("embed_tokens", "lm_head") if name in named)
    if "lm_head" in ends and run.has(ADAPTS_HEAD):
        ends = ends[:-1]
    if not ends:
        return None
    return {
        f.trainable.targets: tuple(name for name in named if name not in ends),
        f.trainable.modules_to_save: (*saved, *(name for name in ends if name not in saved)),
    }


@meaning.override(f.trainable.modules_to_save)
def dropped(run: Cells) -> Any:
    """FastModel and FastVisionModel take the argument, and handed it to nobody before 2025.9."""
    named = run.base(f.trainable.modules_to_save)
    if not named or run.once(is_for_language) or run.has(SAVES_MODULES):
        return None
    return NOTHING


meaning.cannot_say("the script itself has to call get_peft_model", f.trainable.method)

# -- dtypes ----------------------------------------------------------------------------------------

meaning.always(script.model_object, True, "Unsloth's classes load the model")
meaning.always(f.load.device_map, "none", "U models/loader.py: one process loads to one GPU")


@meaning.derive(f.load.dtype)
def load_dtype(run: Cells) -> Any:
    said = run.otherwise(hf.load_dtype, "auto")
    return None if said == "auto" else said


@load_dtype.written
def _(dtype: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {hf.load_dtype: dtype}


@meaning.default(f.load.dtype)
def dtype_by_gpu(run: Cells) -> Any:
    """U models/llama.py FastLlamaModel.from_pretrained: without a dtype ``SUPPORTS_BFLOAT16`` decides."""
    name = run[f.device.type]
    gpu = None if name is None else gpu_named(name)
    if gpu is None:
        return None
    dtype = "bf16" if gpu.bf16 else "fp16"
    return Sourced(dtype, f"Unsloth takes {dtype} on {name} where no dtype is given")


@meaning.assume(f.load.dtype, why="Unsloth takes bf16 on GPUs from Ampere on, fp16 on older ones")
def usual_dtype(run: Cells) -> Any:
    return "bf16"


@meaning.override(f.load.dtype, source="unsloth models/vision.py:1256")
def trains_wide(run: Cells) -> Any:
    """Training all of a model in fp16 "uses more memory since we upcast weights to float32"."""
    return "fp32" if run[unsloth.full] and _mixes_all(run) else None


def _mixes_all(run: Cells) -> bool:
    return bool(run[unsloth.fp32]) or run.base(f.load.dtype) == "fp16"


@meaning.override(hf.bf16, hf.fp16, source="unsloth models/rl.py:2385")
def mixes_precision(run: Cells) -> Any:
    """``bf16 = is_bfloat16_supported()``: a flag that does not match is turned."""
    half = hf.fp16 if run.base(f.load.dtype) == "fp16" else hf.bf16
    mixed = not run[unsloth.full] or _mixes_all(run)
    return {flag: mixed and flag == half for flag in (hf.bf16, hf.fp16)}


meaning.cannot_say("Unsloth computes in the dtype that the model is loaded in", f.precision.compute)
