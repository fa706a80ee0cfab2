"""What LLaMA-Factory's second configuration makes of its keys.

Read from LLaMA-Factory ff6d4d12; ``V1`` below is ``src/llamafactory/v1``. It has a trainer
of its own: no autocast, full fine-tuning in fp32 storage, FSDP2 with a mixed precision
policy, or DeepSpeed through accelerate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import backend, is_adapter_run
from oomlint.dialects.common.fields import asked, fsdp, shared
from oomlint.dialects.common.precision import precision
from oomlint.dialects.common.quantization import quantization
from oomlint.dialects.common.world import batch
from oomlint.dialects.deepspeed.meaning import deepspeed_json
from oomlint.dialects.llamafactory.launching import launching
from oomlint.dialects.llamafactory.loading import loading
from oomlint.dialects.llamafactory.v1_keys import ARGUMENTS, v1
from oomlint.dialects.meaning import Bounds, Meaning, Wishes
from oomlint.dialects.setting import Setting
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

meaning = Meaning(launching, backend, quantization, loading, precision, deepspeed_json, batch)

_F, _P = f.parallel.fsdp, f.precision


@meaning.requires
def releases(run: Cells) -> Iterator[Bounds]:
    """LLaMA-Factory 0.9.3 has no ``src/llamafactory/v1``, 0.9.4 has."""
    yield "llamafactory", (0, 9, 4), ()


# -- what is trained -------------------------------------------------------------------------------

_LORA = "V1/plugins/model_plugins/peft.py LoraParams"


@meaning.derive(f.trainable.method)
def method(run: Cells) -> Any:
    return run[v1.peft] or "full"


@meaning.override(f.trainable.method)
def adapters_on_packed_weights(run: Cells) -> Any:
    return "qlora" if run[v1.peft] == "lora" and run[f.quant.method] == "bnb4" else None


@meaning.derive(f.trainable.r, source=_LORA)
def rank(run: Cells) -> Any:
    return run[v1.lora_rank] or 8 if run[v1.peft] == "lora" else None


@meaning.default(f.trainable.alpha, f.trainable.dropout, source=_LORA)
def adapter_defaults(run: Cells) -> Any:
    if run[v1.peft] != "lora":
        return None
    return {f.trainable.alpha: 16.0, f.trainable.dropout: 0.05}


@meaning.derive(f.trainable.targets)
def targets(run: Cells) -> Any:
    if run[v1.peft] != "lora":
        return None
    named = run[v1.targets]
    return "all_linear" if named in (None, ("all",)) else named


@meaning.derive(
    f.trainable.by_name, source="V1/plugins/model_plugins/peft.py _find_all_linear_modules"
)
def finds_layers_itself(run: Cells) -> Any:
    """It hands PEFT the names of the linear layers that it found."""
    return True if run[f.trainable.targets] == "all_linear" else None


@meaning.derive(f.trainable.last_layers)
def last_layers(run: Cells) -> Any:
    return abs(run.get(v1.freeze_layers, 2)) if run[v1.peft] == "freeze" else None


@meaning.derive(asked.bits)
def requested_bits(run: Cells) -> Any:
    bits = run[v1.quant_bits]
    return 4 if bits is None and run[v1.quant] == "bnb" else bits


@meaning.written(f.quant.method)
def _(method: Any, run: Cells, wishes: Wishes) -> Wishes:
    if method not in ("bnb4", "bnb8") or run[v1.peft] != "lora":
        raise CannotEdit("LLaMA-Factory quantizes for LoRA only, to 4 or 8 bit")
    return {v1.quant: "bnb", v1.quant_bits: 4 if method == "bnb4" else 8}


@meaning.derive(
    f.quant.double,
    f.quant.storage_dtype,
    f.quant.compute_dtype,
    source="V1/plugins/model_plugins/quantization.py BnbParams",
)
def nf4(run: Cells) -> Any:
    """fp16 is its default."""
    if run[f.quant.method] != "bnb4":
        return None
    return {
        f.quant.double: run.get(v1.double_quant, True),
        f.quant.storage_dtype: "fp16",
        f.quant.compute_dtype: "fp16",
    }


@meaning.derive(f.objective.kind)
def objective(run: Cells) -> Any:
    return {"orpo": "orpo", "simpo": "simpo", "sigmoid": "dpo"}.get(run[v1.pref_loss] or "", "sft")


@meaning.derive(f.objective.pairs_per_sample)
def pairs(run: Cells) -> Any:
    return 1 if run[f.objective.kind] == "sft" else 2


@meaning.derive(f.objective.ref_model)
def reference_model(run: Cells) -> Any:
    if run[f.objective.kind] != "dpo":
        return "none"
    return "shared_adapter_off" if run[v1.peft] == "lora" else "copy"


# -- sharding --------------------------------------------------------------------------------------


@meaning.derive(f.parallel.ulysses)
def shares_heads(run: Cells) -> Any:
    return run[v1.cp] if run[v1.cp_mode] == "ulysses" else None


@meaning.derive(f.parallel.cp)
def shares_contexts(run: Cells) -> Any:
    return run[v1.cp] if run[v1.cp_mode] != "ulysses" else None


_ENGINE = "V1/plugins/trainer_plugins/distributed/fsdp2.py FSDP2Engine"


def _shards(run: Cells) -> bool:
    return (run[v1.dist] or "").startswith("fsdp")


@meaning.derive(fsdp.enabled, _F.version, _F.wrap, _F.state_dict, source=_ENGINE)
def sharding(run: Cells) -> Any:
    if not _shards(run):
        return None
    return {
        fsdp.enabled: True,
        _F.version: 2,
        _F.wrap: "transformer",
        _F.state_dict: "sharded",
    }


@meaning.derive(_F.reshard_after_forward, source=_ENGINE)
def reshards(run: Cells) -> Any:
    return run.get(v1.reshard, True) if _shards(run) else None


@meaning.derive(_F.strategy, source=_ENGINE)
def strategy(run: Cells) -> Any:
    if not _shards(run):
        return None
    reshards = run.get(v1.reshard, True)
    if (run[f.parallel.dp_replicate] or 1) > 1:
        return "hybrid" if reshards else "hybrid_grad_op"
    return "full" if reshards else "grad_op"


@meaning.derive(_F.cpu_offload, f.offload.params, f.offload.optimizer, source=_ENGINE)
def offloading(run: Cells) -> Any:
    """Parameters and states go together."""
    if not _shards(run):
        return None
    offloads = bool(run[v1.offload])
    device = "cpu" if offloads else "none"
    return {_F.cpu_offload: offloads, f.offload.params: device, f.offload.optimizer: device}


@meaning.derive(f.offload.pin_memory, source=_ENGINE)
def pins_memory(run: Cells) -> Any:
    return run.get(v1.pin_memory, True) if _shards(run) and run[v1.offload] else None


def _said_under_fsdp(field: Any, say: Callable[[Any], Wishes]) -> None:
    """A field that ``dist_config`` says for FSDP2; DeepSpeed has a file of its own."""

    @meaning.written(field)
    def write(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
        return say(wanted) if run[fsdp.enabled] else {field: wanted}


def _say_offload(device: Any) -> Wishes:
    return {v1.offload: True} if device == "cpu" else {}


_said_under_fsdp(f.offload.params, _say_offload)
_said_under_fsdp(f.offload.optimizer, _say_offload)
_said_under_fsdp(f.offload.pin_memory, lambda pins: {v1.pin_memory: pins})
_said_under_fsdp(_F.reshard_after_forward, lambda reshards: {v1.reshard: reshards})
_said_under_fsdp(_F.strategy, lambda wanted: {v1.reshard: True} if wanted == "full" else {})

# -- dtypes ----------------------------------------------------------------------------------------


def _is_under_deepspeed(run: Cells) -> bool:
    return run[f.parallel.backend] == "zero"


@meaning.derive(shared.amp)
def amp(run: Cells) -> Any:
    return "bf16" if _is_under_deepspeed(run) and run[v1.bf16] else "no"


@meaning.derive(shared.loads, source="V1/core/model_engine.py")
def loads(run: Cells) -> Any:
    """Full fine-tuning casts the model to fp32; nothing autocasts."""
    casts = run[f.trainable.method] == "full" and not _is_under_deepspeed(run)
    return "fp32" if casts else run[f.load.dtype]


@meaning.derive(_P.grad, _P.optim_state, source="FreezeParams.cast_trainable_params_to_fp32")
def trained_layers(run: Cells) -> Any:
    if run[f.trainable.method] != "freeze" or _is_under_deepspeed(run):
        return None
    return {_P.grad: "fp32", _P.optim_state: "fp32"}


@meaning.derive(_P.compute, _P.comm, _P.logits, source=_ENGINE)
def policy_of_fsdp(run: Cells) -> Any:
    if not run[fsdp.enabled] or _is_under_deepspeed(run):
        return None
    half = "bf16" if run[v1.bf16] else "fp32"
    return {_P.compute: half, _P.comm: half, _P.logits: half}


# -- a step ----------------------------------------------------------------------------------------

_TRAINER = "V1/core/base_trainer.py"


@meaning.derive(f.checkpointing.mode)
def checkpointing(run: Cells) -> Any:
    on = run[v1.checkpointing]
    return None if on is None else "full" if on else "none"


@checkpointing.written
def _(mode: Any, run: Cells, wishes: Wishes) -> Wishes:
    if mode not in ("full", "none"):
        raise CannotEdit("LLaMA-Factory checkpoints every layer or none")
    return {v1.checkpointing: mode == "full"}


meaning.always(f.checkpointing.reentrant, False, f"{_TRAINER}:92")
meaning.always(f.checkpointing.offload, "none", _TRAINER)
# The logits in whole, then in fp32.
meaning.always(f.loss.logits_materialised, "full", f"{_TRAINER} compute_log_probs")
meaning.always(f.loss.upcast_fp32, True, f"{_TRAINER} compute_log_probs")
meaning.constant(f.optimizer.name, "adamw", f"{_TRAINER}:209 torch.optim.AdamW")


@meaning.derive(f.optimizer.kind, f.optimizer.fused, f.optimizer.foreach)
def optimizer(run: Cells) -> Any:
    is_muon = run[f.optimizer.name] == "muon"
    return {
        f.optimizer.kind: "muon" if is_muon else "adamw",
        f.optimizer.fused: False,
        f.optimizer.foreach: not is_muon,
    }


@meaning.derive(f.seq.packing, f.seq.pad)
def sequences(run: Cells) -> Any:
    if (run[v1.batching] or "").endswith("padding_free"):
        return {f.seq.packing: "varlen", f.seq.pad: "padding_free"}
    return {f.seq.packing: "none", f.seq.pad: "longest"}


meaning.constant(f.seq.truncation, "cut", "V1/core/rendering")
meaning.always(f.eval.enabled, False, "V1 trainers do not evaluate")
meaning.always(f.eval.strategy, "no", "V1 trainers do not evaluate")

# -- the batch -------------------------------------------------------------------------------------


def _stated_batch(run: Cells) -> int | None:
    """The global batch where the file says one; else it follows from accumulation."""
    said = run.said(f.batch.global_)
    return said.value if isinstance(said, Setting) else None


@meaning.derive(f.batch.grad_accum, source="V1/core/utils/batching")
def accumulation(run: Cells) -> Any:
    """As many micro batches as the global batch needs."""
    total, micro, dp = _stated_batch(run), run[f.batch.micro], run[f.parallel.dp]
    return max(1, total // (micro * dp)) if total is not None and micro and dp else None


@meaning.default(f.batch.grad_accum, source=f"{ARGUMENTS}: DP size x micro batch size")
def no_accumulation(run: Cells) -> Any:
    return 1 if _stated_batch(run) is None else None


@accumulation.written
def _(steps: Any, run: Cells, wishes: Wishes) -> Wishes:
    """The global batch is what the file says; where it says none, nothing accumulates."""
    dp = run[f.parallel.dp]
    if dp is None:
        raise CannotEdit("global_batch_size depends on the number of ranks: use --gpus")
    micro = wishes.get(f.batch.micro) or run[f.batch.micro] or 1
    return {f.batch.global_: micro * steps * dp}


# -- saving ----------------------------------------------------------------------------------------


@meaning.derive(f.save.strategy)
def save_strategy(run: Cells) -> Any:
    return "steps" if run[f.save.every] else "epoch" if run[v1.save_epochs] else "end"


meaning.always(f.save.format, "dcp", "V1/plugins/trainer_plugins/distributed/fsdp2.py:140")


@meaning.derive(f.save.full_gather)
def gathers_to_save(run: Cells) -> Any:
    return bool(run[v1.save_as_hf])


@meaning.derive(f.save.contents)
def saved(run: Cells) -> Any:
    contents: tuple[str, ...] = ("adapter",) if is_adapter_run(run) else ("model",)
    is_final = run[f.save.strategy] == "end"
    return contents if is_final else (*contents, "optimizer", "scheduler", "rng")
