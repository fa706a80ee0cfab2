"""What Axolotl makes of its keys about the model, its dtypes and where it lies.

Read from axolotl 067b021c (2026-07-24); ``AX`` below is ``src/axolotl``.
"""

from __future__ import annotations

import re
from typing import Any

from oomlint.dialects.accelerate.meaning import chosen, distributed_type
from oomlint.dialects.axolotl.keys import FSDP_CONFIG, own
from oomlint.dialects.axolotl.libraries import libraries
from oomlint.dialects.axolotl.releases import OWN_FSDP2, STACKS_EXPERTS
from oomlint.dialects.axolotl.training import training
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import backend, is_adapter_run
from oomlint.dialects.common.fields import asked, fsdp, shared
from oomlint.dialects.common.generation import check_precomputed_reference
from oomlint.dialects.common.precision import precision, quantizes_experts
from oomlint.dialects.common.quantization import quantization
from oomlint.dialects.common.sharding import sharding
from oomlint.dialects.common.world import batch, world
from oomlint.dialects.deepspeed.meaning import deepspeed_json
from oomlint.dialects.machine.fields import launch
from oomlint.dialects.machine.launcher_keys import TORCHRUN
from oomlint.dialects.machine.launcher_meaning import launcher_of
from oomlint.dialects.machine.meaning import launch_all_visible
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

meaning = Meaning(
    training,
    libraries,
    world,
    launch_all_visible,
    sharding,
    chosen,
    backend,
    quantization,
    precision,
    deepspeed_json,
    batch,
)

meaning.constant(f.env.expandable_segments, True, "AX/utils/__init__.py:84 sets it")

# -- sharding --------------------------------------------------------------------------------------

_F = f.parallel.fsdp


@meaning.derive(f.parallel.expert_shard)
def shares_experts(run: Cells) -> Any:
    """AX/integrations/expert_parallel/plugin.py:275-320: ep x dp_shard x cp is the world."""
    return run[f.parallel.dp_shard] or 1 if (run[f.parallel.ep] or 1) > 1 else None


@meaning.derive(fsdp.enabled)
def shards(run: Cells) -> Any:
    has_config = run.has_block_of(FSDP_CONFIG)
    return True if run[own.fsdp] or has_config or (run[f.parallel.dp_shard] or 1) > 1 else None


# transformers 5.23 training_args.py _process_fsdp_args: words of the list, the later ones first.
_STRATEGIES = {
    "hybrid_shard_zero2": "hybrid_grad_op",
    "hybrid_shard": "hybrid",
    "no_shard": "no_shard",
    "shard_grad_op": "grad_op",
}


@meaning.derive(_F.strategy)
def strategy(run: Cells) -> Any:
    words = run[own.fsdp] or ()
    return next((strategy for word, strategy in _STRATEGIES.items() if word in words), None)


@meaning.derive(_F.wrap)
def wraps(run: Cells) -> Any:
    if not run[fsdp.enabled]:
        return None
    is_wrapped = "auto_wrap" in (run[own.fsdp] or ()) or run[_F.wrap_classes]
    return "transformer" if is_wrapped else None


@meaning.derive(_F.cpu_offload)
def offloads(run: Cells) -> Any:
    return True if "offload" in (run[own.fsdp] or ()) else None


@offloads.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    """Accelerate shards, and offloads, nothing of a process that no launcher of ranks started (1.15 state.py
    AcceleratorState: FSDP goes with MULTI_GPU alone), which is what ``accelerate launch`` starts for one GPU."""
    if wanted and _is_alone(run):
        raise CannotEdit("Accelerate does not apply FSDP to the one process that Axolotl starts")
    return {_F.cpu_offload: wanted}


def _is_alone(run: Cells) -> bool:
    """Whether one process starts without ranks: Accelerate sets them where it, or its config, is told of several or of
    FSDP (1.15 commands/launch.py launch_command), and torchrun always."""
    if run[f.parallel.world] != 1 or launcher_of(run) is TORCHRUN:
        return False
    chosen_type = distributed_type(run)
    return chosen_type == "no" or (chosen_type is None and run[launch.config_file] is None)


@meaning.derive(
    shared.refused,
    source="transformers 4.36 to 5.23 trainer.py __init__: Using fsdp only works in distributed training; AX/core/builders/"
    "base.py hands it cfg.fsdp_config",
)
def shards_one_process(run: Cells) -> Any:
    if not run[fsdp.enabled] or not _is_alone(run):
        return None
    return "transformers refuses FSDP in one process without a rank; leave it out on one GPU"


@meaning.derive(f.load.zero3_init)
def opens_zero_init(run: Cells) -> Any:
    return True if run[f.parallel.zero.stage] == 3 else None


meaning.cannot_say("Axolotl turns on zero.Init by itself under ZeRO-3", f.load.zero3_init)


@meaning.derive(
    f.load.device_map,
    source="AX/utils/config/__init__.py normalize_config, AX/loaders/model.py _set_device_map_config",
)
def onto_its_own_gpu(run: Cells) -> Any:
    """Each of several ranks loads straight onto its GPU, unless what shards the model places it."""
    world = run[f.parallel.world]
    if world is None or world == 1:
        return None
    shards = run[fsdp.enabled] or run[f.parallel.zero.stage] == 3 or (run[f.parallel.tp] or 1) > 1
    return "none" if shards else "single"


meaning.cannot_say("Axolotl maps the ranks to GPUs by itself", f.load.device_map)

# -- objective -------------------------------------------------------------------------------------


@meaning.derive(f.objective.kind)
def reward(run: Cells) -> Any:
    return "rm" if run[own.process_reward_model] or run[own.reward_model] else None


meaning.constant(f.objective.kind, "sft", "no rl key: supervised fine-tuning")


@meaning.derive(f.objective.pairs_per_sample)
def pairs(run: Cells) -> Any:
    if run[own.process_reward_model]:
        # TRL's PRMTrainer labels the steps of one answer: a classifier of tokens, and no pairs.
        return 1
    return 2 if run[f.objective.kind] in ("dpo", "orpo", "simpo", "rm") else None


@meaning.derive(f.objective.ref_model)
def reference_model(run: Cells) -> Any:
    if run[f.objective.kind] not in ("dpo", "kto"):
        return "none"
    if run[own.precompute_ref]:
        return "precomputed"
    return "shared_adapter_off" if is_adapter_run(run) else "copy"


@reference_model.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    check_precomputed_reference(wanted, run)
    return {own.precompute_ref: True}


# -- what is trained -------------------------------------------------------------------------------


@meaning.derive(f.quant.requested_bits, asked.bits)
def requested_bits(run: Cells) -> Any:
    bits = 4 if run[own.load_in_4bit] else 8 if run[own.load_in_8bit] else None
    return {f.quant.requested_bits: bits, asked.bits: bits}


@meaning.derive(asked.method)
def requested_method(run: Cells) -> Any:
    return "gptq" if run[own.gptq] else None


def _trains_nvfp4(run: Cells) -> bool:
    """AX/integrations/kernels trains adapters on NVFP4 experts as they are stored."""
    return run[f.model.native_quant] == "nvfp4" and run[asked.bits] is None


@meaning.derive(f.quant.method)
def stored_as_it_is(run: Cells) -> Any:
    return "nvfp4" if _trains_nvfp4(run) else None


@stored_as_it_is.written
def _(method: Any, run: Cells, wishes: Wishes) -> Wishes:
    """AX/utils/schemas/peft.py:202: 4 bit goes with ``adapter: qlora``, and only with that."""
    if method not in ("bnb4", "bnb8", "none"):
        raise CannotEdit(f"Axolotl has no switch for {method}")
    if not is_adapter_run(run):
        raise CannotEdit("Axolotl quantizes weights only under an adapter")
    if method == "bnb4" and run[f.load.cpu_ram_efficient]:
        _check_loading_on_one_rank(run)
    wanted = {
        own.load_in_4bit: method == "bnb4",
        own.load_in_8bit: method == "bnb8",
        f.trainable.method: "qlora" if method == "bnb4" else "lora",
    }
    return {field: value for field, value in wanted.items() if run[field] != value}


@meaning.override(f.quant.quantises_moe_experts)
def experts_are_packed(run: Cells) -> Any:
    return True if _trains_nvfp4(run) else None


@meaning.derive(f.quant.double, f.quant.storage_dtype, source="AX/loaders/model.py:712-735")
def nf4(run: Cells) -> Any:
    """nf4, double quantization, storage in the compute dtype."""
    if run[f.quant.method] != "bnb4":
        return None
    return {f.quant.double: True, f.quant.storage_dtype: "bf16"}


@meaning.override(f.trainable.method)
def method(run: Cells) -> Any:
    said = run[f.trainable.method]
    if not is_adapter_run(run):
        return "freeze" if run[own.unfrozen] else None
    return "dora" if said == "lora" and run[own.dora] else None


@method.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wanted not in ("lora", "qlora") or is_adapter_run(run):
        return {f.trainable.method: wanted}
    if run[own.onebit]:
        # AX/utils/schemas/validation.py:621 check_onebitllms_lora
        raise CannotEdit("models of one bit (use_onebitllms) take no adapter")
    # AX/utils/schemas/peft.py names no rank and no targets by itself.
    return {
        f.trainable.method: wanted,
        f.trainable.r: wishes.get(f.trainable.r, 16),
        f.trainable.alpha: wishes.get(f.trainable.alpha, 32),
        own.target_linear: True,
    }


# AX/utils/freeze.py LayerNamePattern: rows of a parameter in brackets behind its pattern, of which
# gradients are made whole, and dots that stand for themselves.
_ROWS = r"\[\d*(?::\d*)?\]$"
_DOT = r"\.(?!\+)"


@meaning.derive(f.trainable.names, _F.isolates_trainable)
def unfrozen(run: Cells) -> Any:
    """AX/loaders/model.py freezes by the names of parameters, within blocks too."""
    said = run[own.unfrozen]
    if not said or is_adapter_run(run):
        return None
    return {f.trainable.names: _patterns(said), _F.isolates_trainable: False}


def _patterns(said: Any) -> tuple[str, ...] | None:
    """The patterns of ``unfrozen_parameters`` as Python's ``re`` takes them."""
    listed = [said] if isinstance(said, str) else said
    if not isinstance(listed, list | tuple) or not all(isinstance(x, str) for x in listed):
        return None
    return tuple(re.sub(_DOT, r"\\.", re.sub(_ROWS, "", pattern)) for pattern in listed)


@meaning.derive(f.trainable.targets)
def targets(run: Cells) -> Any:
    if not is_adapter_run(run):
        return None
    modules = run[own.target_modules]
    if run[own.target_linear] or modules == ("all-linear",):
        return "all_linear"
    return modules or "peft_default"


@meaning.written(f.trainable.targets)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wanted == "all_linear":
        return {own.target_linear: True}
    finds = {own.target_linear: False} if run.says(own.target_linear) else {}
    return {**finds, own.target_modules: tuple(wanted)}


@meaning.derive(
    f.trainable.by_name, source="axolotl 0.19.0 loaders/adapter.py find_all_linear_names"
)
def finds_layers_itself(run: Cells) -> Any:
    """lora_target_linear hands PEFT the names of the linear layers that it found; all-linear is PEFT's own word."""
    return True if is_adapter_run(run) and run[own.target_linear] else None


# -- dtypes ----------------------------------------------------------------------------------------


@meaning.default(own.bf16, source="AX/utils/schemas/config.py:559: auto")
def bf16(run: Cells) -> Any:
    """ "auto", and a key that is absent, are true on a GPU that has bfloat16, unless fp16 is asked
    for."""
    return "no" if run[own.fp16] else "amp"


@meaning.derive(shared.amp)
def amp(run: Cells) -> Any:
    """AX/core/builders/base.py _configure_precision_settings: "full" trains without autocast."""
    if run[own.bf16] == "amp" or (run[own.bfloat16] and run[own.bf16] != "full"):
        return "bf16"
    return "fp16" if run[own.fp16] and run[own.bf16] == "no" else "no"


@meaning.derive(f.load.dtype, shared.loads)
def loads(run: Cells) -> Any:
    """AX/utils/config resolve_dtype and AX/loaders/model.py:611: the model is *loaded* in the
    training dtype, so full fine-tuning without sharding is pure 16 bit."""
    if run[own.bf16] != "no" or run[own.bfloat16]:
        dtype = "bf16"
    elif run[own.fp16] or run[own.float16] or run[own.load_in_8bit]:
        dtype = "fp16"
    else:
        dtype = "fp32"
    if quantizes_experts(run):
        run.has(STACKS_EXPERTS)
    return {f.load.dtype: dtype, shared.loads: dtype}


@meaning.derive(fsdp.keeps_dtype)
def shards_as_loaded(run: Cells) -> Any:
    """AX/monkeypatch/accelerate/fsdp2.py shards what was loaded as it is."""
    return run[f.parallel.backend] == "fsdp2" and run.has(OWN_FSDP2)


@meaning.written(f.load.cpu_ram_efficient)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wanted and (run[own.load_in_4bit] or run[f.quant.quantises_moe_experts]):
        _check_loading_on_one_rank(run)
    return {f.load.cpu_ram_efficient: wanted}


def _check_loading_on_one_rank(run: Cells) -> None:
    """axolotl 0.19 utils/schemas/validation.py:1266: what one rank quantizes to 4 bits has another shape than
    what FSDP2 expects on the others, which then wait for each other without end. So do they where experts are quantized
    as they are loaded (axolotl 067b021c docs/expert_quantization.qmd, "Limitations")."""
    if run[f.parallel.backend] == "fsdp2":
        what = (
            "experts that it quantizes" if run[f.quant.quantises_moe_experts] else "4-bit weights"
        )
        raise CannotEdit(f"under FSDP2 Axolotl loads {what} on every rank")


@meaning.written(f.precision.compute)
def _(half: Any, run: Cells, wishes: Wishes) -> Wishes:
    if half not in ("bf16", "fp16"):
        raise CannotEdit(f"Axolotl has no mixed precision in {half}")
    said: dict[Any, Any] = {own.bf16: "amp" if half == "bf16" else "no"}
    if half == "fp16" or run[own.fp16]:
        said[own.fp16] = half == "fp16"
    return said
