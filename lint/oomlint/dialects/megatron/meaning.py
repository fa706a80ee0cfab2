"""What Megatron-LM makes of its options, and how they say a wish.

Read from Megatron-LM d98e8a64 (2026-08-22), core_v0.7.0 and v2.5.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import uses_deepspeed
from oomlint.dialects.common.fields import DTYPES, shared
from oomlint.dialects.common.precision import precision
from oomlint.dialects.deepspeed.meaning import deepspeed_alone, deepspeed_json
from oomlint.dialects.meaning import Meaning, Said, Wishes
from oomlint.dialects.megatron.dimensions import dimensions
from oomlint.dialects.megatron.fields import ARGUMENTS, mg
from oomlint.dialects.megatron.own_options import own_options
from oomlint.dialects.megatron.parallel import degrees, global_batch, limits
from oomlint.dialects.megatron.ranks import ranks
from oomlint.dialects.megatron.training import training
from oomlint.dialects.setting import Setting
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

options = Meaning(training, dimensions, degrees, global_batch, limits)
"""What the options mean, whoever starts the ranks."""
meaning = Meaning(own_options, options, ranks, deepspeed_json, deepspeed_alone, precision)

# -- the model -------------------------------------------------------------------------------------


@options.derive(mg.act)
def activation(run: Cells) -> Any:
    return "relu2" if run[mg.squared_relu] else None


@options.derive(mg.bias)
def has_bias(run: Cells) -> Any:
    return not run[mg.no_bias]


@options.derive(mg.groups)
def groups(run: Cells) -> Any:
    number, grouped = run[mg.query_groups], run[mg.grouped]
    if number and grouped is not False:
        return number
    return 1 if grouped else None  # arguments.py: --num-query-groups 1


@options.derive(mg.other)
def other_model(run: Cells) -> Any:
    """Several towers, or a hybrid stack that no pattern lists."""
    return _has_towers(run) or (not run[mg.pattern] and run.mentions(mg.hybrid))


def _has_towers(run: Cells) -> bool:
    return run.mentions(mg.language_model)


@options.said(f.seq.max_len)
def length_of_image(run: Cells, field: Any, said: Said) -> Said:
    """``seq_length`` is the image's where there are several towers (Megatron-LM
    examples/multimodal/model.py:81)."""
    if isinstance(said, Setting) and said.origin.kind == "option":
        return said
    return None if _has_towers(run) else said


@options.derive(
    f.seq.max_len,
    source="Megatron-LM examples/multimodal/model.py: the language model's own length",
)
def length_of_language_model(run: Cells) -> Any:
    return run[mg.decoder_len] if _has_towers(run) else None


@length_of_language_model.written
def _(length: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {mg.decoder_len if _has_towers(run) else f.seq.max_len: length}


options.always(f.objective.ref_model, "none", ARGUMENTS)
options.always(f.trainable.method, "full", ARGUMENTS)
options.always(f.quant.method, "none", ARGUMENTS)
options.always(f.seq.packing, "concat", "Megatron-core GPTDataset")
options.always(f.seq.pad, "none", "Megatron-core GPTDataset")


@options.derive(f.objective.kind)
def objective(run: Cells) -> Any:
    return "sft" if run[mg.finetune] else "pretrain"


@options.derive(f.model.from_scratch)
def starts_from_nothing(run: Cells) -> Any:
    """A folder in a variable is taken for the one that the run saves to and goes on from."""
    return not run.otherwise(mg.load, "")


# -- sharding --------------------------------------------------------------------------------------

_F = f.parallel.fsdp
_FULLY = "Megatron-core distributed/torch_fully_sharded_data_parallel.py"


def _shards_fully(run: Cells) -> bool:
    """Weights too, by torch's FSDP2 or Megatron's own copy of it."""
    if uses_deepspeed(run):
        return False
    if run[mg.torch_fsdp2]:
        return True
    return bool(run[mg.megatron_fsdp]) and run[mg.strategy] == "optim_grads_params"


@options.derive(f.parallel.backend, source=ARGUMENTS)
def backend(run: Cells) -> Any:
    if uses_deepspeed(run):
        return "zero"
    return "fsdp2" if _shards_fully(run) else "megatron"


@options.derive(
    _F.version,
    _F.wrap,
    _F.state_dict,
    _F.sync_every_micro,
    _F.cpu_offload,
    source=_FULLY,
)
def fully_sharded(run: Cells) -> Any:
    if not _shards_fully(run):
        return None
    return {
        _F.version: 2,
        _F.wrap: "transformer",
        _F.state_dict: "sharded",
        _F.sync_every_micro: False,
        _F.cpu_offload: False,
    }


@options.derive(_F.reshard_after_forward, _F.strategy, source=_FULLY)
def reshards(run: Cells) -> Any:
    if not _shards_fully(run):
        return None
    frees = not run[mg.keeps_params]
    return {_F.reshard_after_forward: frees, _F.strategy: "full" if frees else "grad_op"}


@options.override(f.parallel.megatron.dist_optimizer)
def shards_optimizer(run: Cells) -> Any:
    if not run[mg.megatron_fsdp] or uses_deepspeed(run) or _shards_fully(run):
        return None
    return True if run[mg.strategy] in ("optim", "optim_grads") else None


options.cannot_say("Megatron saves every rank's part by itself", _F.state_dict)

# -- dtypes ----------------------------------------------------------------------------------------

_P = f.precision
_VALIDATE = f"{ARGUMENTS} validate_args"


def _half(run: Cells) -> str:
    return "bf16" if run[mg.bf16] else "fp16" if run[mg.fp16] else "fp32"


@options.derive(shared.amp, shared.loads)
def under_deepspeed(run: Cells) -> Any:
    if not uses_deepspeed(run):
        return None
    half = _half(run)
    return {shared.amp: "no" if half == "fp32" else half, shared.loads: half}


@options.derive(*DTYPES, f.load.dtype, source=_VALIDATE)
def dtypes(run: Cells) -> Any:
    """16-bit weights with an fp32 copy in the optimizer."""
    if uses_deepspeed(run):
        return None
    half, grads = _half(run), _gradients(run)
    is_aware = run[f.parallel.megatron.precision_aware_optim]
    state, master = "fp32", "fp32"
    if is_aware:
        first, second = run[mg.exp_avg], run[mg.exp_avg_sq]
        state = first if first == second else "fp32"
        master = run[mg.main_params]
    return {
        _P.param: half,
        _P.grad: grads,
        _P.master: "none" if half == "fp32" else master,
        _P.optim_state: state,
        _P.compute: half,
        _P.comm: grads,
        _P.logits: half,
        _P.autocast: False,
        f.load.dtype: half,
    }


def _gradients(run: Cells) -> str:
    """bf16 gradients are summed in fp32 unless ``--grad-reduce-in-bf16`` says otherwise
    (arguments.py validate_args)."""
    half = _half(run)
    if half == "bf16" and not run[mg.bf16_grads]:
        return run[mg.main_grads]
    return "fp32" if run[mg.fp32_grads] else half


@options.derive(_P.fp8_train)
def fp8(run: Cells) -> Any:
    if uses_deepspeed(run):
        return None
    return "te" if run[mg.fp8] else "none"


options.follows(_P.optim_state)

# -- optimizer -------------------------------------------------------------------------------------

_OPTIMIZERS = {"adam": "adamw", "sgd": "momentum_sgd", "lion": "lion"}


@options.derive(f.optimizer.kind)
def optimizer(run: Cells) -> Any:
    name = (run[f.optimizer.name] or "").lower()
    return "muon" if "muon" in name else _OPTIMIZERS.get(name, "other")


@optimizer.written
def _(kind: Any, run: Cells, wishes: Wishes) -> Wishes:
    if kind not in ("adamw", "momentum_sgd"):
        raise CannotEdit(f"Megatron has no optimizer for {kind}")
    return {f.optimizer.name: "adam" if kind == "adamw" else "sgd"}


options.always(f.optimizer.fused, True, "Megatron-core: TE or apex FusedAdam")


@options.override(f.offload.optimizer)
def offloaded_by_fork(run: Cells) -> Any:
    """Megatron-DeepSpeed's ``--cpu-optimizer``."""
    return "cpu" if run[mg.cpu_optimizer] else None


@offloaded_by_fork.written
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    if device != "cpu" or run[f.optimizer.kind] != "adamw":
        raise CannotEdit("Megatron offloads Adam's states to the CPU, or nothing")
    if run[f.parallel.megatron.precision_aware_optim]:
        return {f.offload.optimizer: "cpu"}
    # arguments.py: "The optimizer cpu offload must be used in conjunction with
    # --use-precision-aware-optimizer".
    return {f.offload.optimizer: "cpu", f.parallel.megatron.precision_aware_optim: True}


options.always(f.offload.params, "none", ARGUMENTS)
