"""What LitGPT makes of its keys about dtypes, a step, evaluating and saving.

Read from litgpt 26857050 (2026-06-29); ``LG`` below is its ``litgpt`` package.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.common.fields import DTYPES
from oomlint.dialects.kinds import OPTIMIZER_KINDS
from oomlint.dialects.litgpt.keys import SOURCE, own
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

training = Meaning()

_P = f.precision

# -- dtypes ----------------------------------------------------------------------------------------

training.constant(
    own.precision, "bf16-mixed", f"{SOURCE} utils.py:363: bf16-mixed on GPUs that have bfloat16"
)


@training.derive(
    *DTYPES, f.load.dtype, _P.gathered, f.trainable.adapter_dtype, f.quant.compute_dtype
)
def dtypes(run: Cells) -> Any:
    """Lightning Fabric: ``-true`` makes everything that dtype, ``-mixed`` keeps fp32 under
    autocast; adapters are like the rest (fabric/plugins/precision). FSDP gathers fp32 under
    ``-mixed``, and sums unsharded gradients in it, however narrow what is stored
    (lightning-fabric 2.0.3 to 2.5 plugins/precision/fsdp.py mixed_precision_config)."""
    said = run[own.precision]
    if said is None:
        return None
    name, _, kind = said.partition("-")
    half = {"bf16": "bf16", "16": "fp16"}.get(name)
    mixed = kind == "mixed"
    stored = run[own.cast] or ("fp32" if mixed or half is None else half)
    frozen = {"bnb4": "nf4", "bnb8": "int8"}.get(str(run[f.quant.method]), stored)
    shards = run[f.parallel.backend] in ("fsdp1", "fsdp2")
    return {
        f.load.dtype: stored,
        _P.param: frozen,
        _P.grad: stored,
        _P.master: "none",
        # Under quantization LitGPT takes bitsandbytes' PagedAdamW, whose states are float32.
        _P.optim_state: "fp32" if frozen != stored else stored,
        _P.compute: half or "fp32",
        _P.gathered: "fp32" if shards and mixed else None,
        _P.autocast: mixed,
        _P.logits: half or "fp32",
        _P.comm: half or "fp32" if shards else None,
        f.trainable.adapter_dtype: stored if is_adapter_run(run) else None,
        f.quant.compute_dtype: stored if frozen != stored else None,
    }


@training.written(_P.param, f.load.dtype)
def _(dtype: Any, run: Cells, wishes: Wishes) -> Wishes:
    spelled = {"bf16": "bf16-true", "fp16": "16-true", "fp32": "32-true"}.get(dtype)
    if spelled is None:
        raise CannotEdit(f"LitGPT cannot hold weights in {dtype}")
    return {own.precision: spelled}


training.follows(_P.optim_state)

# -- optimizer -------------------------------------------------------------------------------------

_OPTIMIZERS = {
    "AdamW": "adamw",
    "Adam": "adamw",
    "SGD": "sgd",
    "RMSprop": "rmsprop",
    "Adafactor": "adafactor",
    "AdamW8bit": "adamw8bit",
    "PagedAdamW": "paged_adamw",
    "PagedAdamW8bit": "paged_adamw8bit",
    "Lion": "lion",
    "Lion8bit": "lion8bit",
    "GaLoreAdamW": "galore",
    "GaLoreAdamW8bit": "galore",
}


@training.derive(f.optimizer.name)
def name_of_optimizer(run: Cells) -> Any:
    return run[own.optimizer] or run[own.optimizer_class]


@training.override(f.optimizer.name, f.optimizer.kind, source="LG/utils.py:619")
def pages(run: Cells) -> Any:
    """What LitGPT takes whenever it quantizes."""
    if run[f.quant.method] not in ("bnb4", "bnb8"):
        return None
    return {
        f.optimizer.name: "bitsandbytes.optim.PagedAdamW",
        f.optimizer.kind: "paged_adamw",
    }


@training.derive(f.optimizer.kind, f.optimizer.fused, f.optimizer.foreach)
def optimizer(run: Cells) -> Any:
    name = run[f.optimizer.name]
    if name is None or run[f.quant.method] in ("bnb4", "bnb8"):
        return None
    short = name.rpartition(".")[2]
    native = "." not in name or name.startswith("torch.optim.")
    # LG/pretrain.py asks for fused kernels on CUDA; fine-tuning leaves torch's choice, foreach.
    fused = native and (run[own.command] == "pretrain" or bool(run[own.fused]))
    return {
        f.optimizer.kind: _OPTIMIZERS.get(short, OPTIMIZER_KINDS.get(short.lower(), "other")),
        f.optimizer.fused: fused,
        f.optimizer.foreach: native and not fused,
    }


_CLASS_OF = {
    "adamw": "torch.optim.AdamW",
    "adafactor": "torch.optim.Adafactor",
    "adamw8bit": "bitsandbytes.optim.AdamW8bit",
    "paged_adamw": "bitsandbytes.optim.PagedAdamW",
    "paged_adamw8bit": "bitsandbytes.optim.PagedAdamW8bit",
    "lion": "bitsandbytes.optim.Lion",
    "lion8bit": "bitsandbytes.optim.Lion8bit",
}


@training.written(f.optimizer.kind)
def _(kind: Any, run: Cells, wishes: Wishes) -> Wishes:
    name = _CLASS_OF.get(kind)
    if name is None:
        raise CannotEdit(f"no optimizer that LitGPT is used with is {kind}")
    if run[f.quant.method] in ("bnb4", "bnb8"):
        raise CannotEdit("LitGPT takes bitsandbytes' PagedAdamW whenever it quantizes")
    if name.startswith("bitsandbytes.") and run[f.parallel.backend] == "fsdp2":
        raise CannotEdit("bitsandbytes' optimizers do not work on FSDP2's sharded tensors")
    if name.startswith("bitsandbytes.") and run[own.fused] is not None:
        raise CannotEdit("it takes no fused: remove optimizer.init_args.fused with it")
    if kind == "adafactor" and run[own.betas] is not None:
        raise CannotEdit("Adafactor takes no betas: remove optimizer.init_args.betas with it")
    # A mapping without init_args stops the run (litgpt 0.5.13 utils.py instantiate_torch_optimizer: KeyError), so that a
    # class goes where there is one already, and is else said by its name alone.
    return {own.optimizer_class if run[own.optimizer_class] else own.optimizer: name}


training.cannot_say(
    "LitGPT takes fused kernels when it pretrains, and has no key for them", f.optimizer.fused
)

# -- activations and the loss ----------------------------------------------------------------------


@training.derive(
    f.checkpointing.mode,
    f.checkpointing.reentrant,
    f.checkpointing.source,
    source=f"{SOURCE}: strategy",
)
def checkpointing(run: Cells) -> Any:
    """Blocks are checkpointed where several GPUs fine-tune, and nowhere else."""
    ranks = run[f.parallel.world]
    if ranks is None:
        return None
    mode = "full" if ranks > 1 and run[own.command] != "pretrain" else "none"
    return {
        f.checkpointing.mode: mode,
        f.checkpointing.reentrant: False,
        f.checkpointing.source: "fsdp" if mode == "full" else None,
    }


@training.written(f.checkpointing.mode)
def _(mode: Any, run: Cells, wishes: Wishes) -> Wishes:
    if mode == run[f.checkpointing.mode]:
        return {}
    raise CannotEdit(
        "LitGPT has no key for activation checkpointing: it checkpoints when several devices "
        "fine-tune, and never on one"
    )


training.always(f.checkpointing.offload, "none", f"{SOURCE}: no activation offloading")
training.cannot_say(
    "LitGPT has no activation offloading", f.offload.activations, f.checkpointing.offload
)
training.always(f.loss.outputs_kept, True, "LG: logits live until backward")
# Every precision plugin hands on outputs in the default dtype, which is float32.
training.always(
    f.loss.upcast_fp32, True, "lightning 2.6 fabric/plugins/precision/half.py convert_output"
)
training.cannot_say("LitGPT has no key for the loss", f.loss.logits_materialised)


def _chunks_head(run: Cells) -> bool:
    """Only LoRA and adapters project 128 tokens at a time."""
    return run[own.command] in ("lora", "adapter", "adapter_v2")


@training.derive(f.loss.logits_materialised)
def logits(run: Cells) -> Any:
    return "chunked" if _chunks_head(run) else "full"


@training.derive(f.loss.chunks, source="lm_head_chunk_size")
def chunks(run: Cells) -> Any:
    length = run[f.seq.max_len]
    return -(-length // 128) if length and _chunks_head(run) else None


@training.derive(f.compile.enabled, source="LG/pretrain.py")
def compiles(run: Cells) -> Any:
    return run[own.command] == "pretrain"


# -- evaluating and saving -------------------------------------------------------------------------

training.always(f.eval.enabled, True, SOURCE)
training.always(f.eval.strategy, "steps", SOURCE)
training.always(f.eval.on_start, True, "LG: two batches verify settings")
training.always(f.eval.keeps_logits, False, SOURCE)
training.always(f.save.strategy, "steps", SOURCE)
training.always(f.save.format, "bin", SOURCE)
training.constant(f.save.keep, "all", "LG: a folder for every step")


training.takes(f.batch.eval_micro, f.batch.micro)


@training.derive(f.save.contents, f.save.save_only_model, source="LG: fabric.save(state)")
def saved(run: Cells) -> Any:
    adapters = is_adapter_run(run)
    contents = ("adapter",) if adapters else ("model", "optimizer")
    return {f.save.contents: contents, f.save.save_only_model: adapters}


@training.derive(f.save.full_gather, source='LG: state_dict_type="full"')
def gathers_to_save(run: Cells) -> Any:
    return True if (run[f.parallel.world] or 1) > 1 and not is_adapter_run(run) else None


training.cannot_say(
    "LitGPT saves the whole training state at every interval", f.save.save_only_model
)
training.cannot_say("LitGPT evaluates with train.micro_batch_size", f.batch.eval_micro)
