"""What torchtitan's trainer makes of its configs: the model, parallelism and dtypes.

Read from torchtitan b5bcd76c (2026-08-21) and v0.1.0 to v0.2.2; ``TN`` below is its package.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.block import Block
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import shared
from oomlint.dialects.common.offloading import to_cpu
from oomlint.dialects.common.world import batch, world
from oomlint.dialects.machine.meaning import launch_one_process
from oomlint.dialects.meaning import Left, Meaning, Said, Sourced, Wishes
from oomlint.dialects.setting import Origin
from oomlint.dialects.torchtitan.batches import batches
from oomlint.dialects.torchtitan.keys import CONFIG, PARALLELIZE, is_registry, own
from oomlint.dialects.torchtitan.models import Flavor, family_of, flavor_of
from oomlint.dialects.torchtitan.ranks import ranks, ranks_of_shard, stages
from oomlint.dialects.torchtitan.training import training
from oomlint.errors import CannotEdit
from oomlint.models.given import with_members
from oomlint.plan.fields import f

meaning = Meaning(training, batches, ranks, world, launch_one_process, batch)

# -- the model -------------------------------------------------------------------------------------

meaning.constant(own.name, "llama3", f"{CONFIG} Model")
meaning.constant(own.flavor, "debugmodel", f"{CONFIG} Model")


@meaning.said(f.model.id)
def shrunk(run: Cells, field: Any, said: Said) -> Said:
    """The debug flavor of its transformers' models shrinks whatever model of the Hub is named."""
    is_debug = (run[own.flavor] or "").startswith("debug")
    return None if is_debug and "transformers" in (run[own.name] or "") else said


def _flavor(run: Cells) -> Flavor | None:
    """What torchtitan builds itself, where no model of the Hub is named; whose config is not here, of that nobody knows
    which that is."""
    if run.says(f.model.id):
        return None
    if run.known.missing and not (run.mentions(own.name) or run.mentions(own.flavor)):
        return None
    found = flavor_of(run[own.name] or "", run[own.flavor] or "")
    return None if found is None or found.dims is None else found


@meaning.derive(f.model.id)
def model_of_flavor(run: Cells) -> Any:
    found = _flavor(run)
    return None if found is None else Sourced(found.id, found.source)


@meaning.fact(f.model.dims, f.model.arch)
def dims_of_flavor(run: Cells) -> Any:
    found = _flavor(run)
    if found is None or found.dims is None:
        # A family that is not counted is named all the same: then no prediction says which.
        is_new = bool(run[own.name]) and family_of(run[own.name]) is None
        return {f.model.arch: run[own.name]} if is_new and not run.says(f.model.id) else None
    dims = with_members(found.dims, run.known.options)
    return {
        f.model.dims: Sourced(dims, found.source),
        f.model.arch: Sourced(found.dims.arch, found.source),
    }


@meaning.fact(f.model.native_quant)
def form_of_weights(run: Cells) -> Any:
    """However the checkpoint of the same name is stored."""
    found = _flavor(run)
    return None if found is None or found.id is None else Sourced("none", found.source)


@meaning.derive(f.model.attn_impl)
def attention(run: Cells) -> Any:
    found, asked = _flavor(run), run[own.attention]
    if asked:
        return "flex" if "flex" in asked else "flash2" if "varlen" in asked else "sdpa"
    return "sdpa" if found is None else found.attention


meaning.cannot_say(
    "the kernel of attention is part of the model's flavor in torchtitan", f.model.attn_impl
)


@meaning.derive(f.model.from_scratch)
def from_scratch(run: Cells) -> Any:
    return run[own.initial_load] is None


meaning.always(f.load.meta_init, True, "torchtitan train.py: meta device")
meaning.always(f.objective.kind, "pretrain", "torchtitan train.py")
meaning.always(f.objective.ref_model, "none", "torchtitan train.py")
meaning.always(f.quant.method, "none", "torchtitan trains no quantized weights")
meaning.cannot_say("torchtitan trains no quantized weights", f.quant.method)
meaning.cannot_say("torchtitan builds its models on the meta device", f.load.cpu_ram_efficient)


def _adds_adapters(run: Cells) -> bool:
    return "LoRAConverter" in (run[own.converters] or ())


@meaning.derive(f.trainable.method)
def method(run: Cells) -> Any:
    return "lora" if _adds_adapters(run) else None


meaning.constant(f.trainable.method, "full", "torchtitan train.py: all parameters")
meaning.cannot_say("torchtitan's configs train the whole model", f.trainable.method)


meaning.constant(
    f.trainable.target_params, "none", "torchtitan b5bcd76c components/lora.py: linear layers alone"
)


@meaning.default(
    f.trainable.r, f.trainable.targets, source="torchtitan b5bcd76c components/lora.py"
)
def adapter_defaults(run: Cells) -> Any:
    return {f.trainable.r: 8, f.trainable.targets: "all_linear"} if _adds_adapters(run) else None


# -- parallelism -----------------------------------------------------------------------------------

_F = f.parallel.fsdp


@meaning.derive(
    f.parallel.dp_shard,
    source="torchtitan distributed/parallel_dims.py: -1 takes the leftover ranks",
)
def shards_over_rest(run: Cells) -> Any:
    total = run[f.parallel.world]
    return None if total is None else max(1, total // ranks_of_shard(run))


@meaning.derive(f.parallel.sp)
def sequence_parallel(run: Cells) -> Any:
    return (run[f.parallel.tp] or 1) > 1 and run[own.sequence_parallel] is not False


@meaning.derive(f.parallel.etp)
def splits_experts(run: Cells) -> Any:
    """Without expert parallelism experts are split over the tensor-parallel ranks."""
    return run[own.etp] if (run[f.parallel.ep] or 1) > 1 else None


@meaning.default(f.parallel.pp_schedule, source=f"{CONFIG} Parallelism")
def schedule(run: Cells) -> Any:
    return "1F1B" if stages(run) > 1 else None


_MULTI_STAGE = ("interleaved", "loopedbfs", "zbv", "dualpipev")


@meaning.derive(f.parallel.vpp)
def stages_of_rank(run: Cells) -> Any:
    """Schedules with several stages a rank take two (distributed/pipeline_parallel.py)."""
    is_multi = (run[f.parallel.pp_schedule] or "").lower().startswith(_MULTI_STAGE)
    if stages(run) == 1 or not is_multi:
        return None
    dims, each = run[f.model.dims], run[own.stage_layers]
    if each and dims is not None and dims.layers:
        return max(1, round((dims.layers + 2) / (each * stages(run))))
    return 2


# -- sharding --------------------------------------------------------------------------------------


@meaning.derive(f.parallel.backend, source=PARALLELIZE)
def backend(run: Cells) -> Any:
    """``parallelize_fn``: tensor parallelism, then FSDP2 over what is left of the ranks."""
    replicas, shard = run[f.parallel.dp_replicate] or 1, run[f.parallel.dp_shard]
    if is_registry(run) or shard is None or shard > 1 or (run[f.parallel.cp] or 1) > 1:
        return "fsdp2"
    return "ddp" if replicas > 1 else "none"


def _shards(run: Cells) -> bool:
    return run[f.parallel.backend] == "fsdp2"


@meaning.said(_F.cpu_offload)
def offloads_what_it_shards(run: Cells, field: Any, said: Said) -> Said:
    return said if _shards(run) else Left(Origin("derived", source=PARALLELIZE))


@meaning.derive(_F.version, _F.wrap, _F.state_dict, source=f"{PARALLELIZE} apply_fsdp")
def second_version(run: Cells) -> Any:
    if not _shards(run):
        return None
    saved = Sourced("sharded", "torchtitan checkpoint: DCP")
    return {_F.version: 2, _F.wrap: "ends", _F.state_dict: saved}


meaning.cannot_say("torchtitan always saves sharded", _F.state_dict)


@meaning.derive(_F.strategy)
def strategy(run: Cells) -> Any:
    if not _shards(run):
        return None
    return "hybrid" if (run[f.parallel.dp_replicate] or 1) > 1 else "full"


meaning.cannot_say("torchtitan shards by the degrees of data parallelism", _F.strategy)


@meaning.derive(_F.reshard_after_forward)
def reshards(run: Cells) -> Any:
    """ "default" keeps parameters between the micro batches of a pipeline."""
    if not _shards(run):
        return None
    policy = run[own.reshard]
    return policy == "always" or (policy == "default" and stages(run) == 1)


@reshards.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.reshard: "always" if wanted else "never"}


@meaning.derive(_F.sync_every_micro)
def syncs(run: Cells) -> Any:
    """torch.distributed.pipelining reduces after the last micro batch; train.py after each."""
    return stages(run) == 1 if _shards(run) else None


@meaning.derive(f.offload.params, f.offload.optimizer, source=PARALLELIZE)
def offloading(run: Cells) -> Any:
    if not _shards(run):
        return None
    device = "cpu" if run[_F.cpu_offload] else "none"
    return {f.offload.params: device, f.offload.optimizer: device}


@offloading.written
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    said = {_F.cpu_offload: to_cpu(device, "torchtitan offloads")}
    if not _shards(run):
        raise CannotEdit("CPU offload is FSDP2's, which takes more than one rank")
    return said


meaning.cannot_say("torchtitan knows no DeepSpeed; it shards with FSDP2", f.parallel.zero.stage)
meaning.cannot_say("torchtitan knows no DeepSpeed", f.load.zero3_init)

# -- dtypes ----------------------------------------------------------------------------------------

_P = f.precision
_AMP = "torchtitan v0.2.2 distributed/utils.py maybe_enable_amp"

meaning.always(_P.master, "none", _AMP)


@meaning.derive(_P.param, _P.grad, f.load.dtype, source=_AMP)
def stored(run: Cells) -> Any:
    """Parameters stay in ``training.dtype``; FSDP2's policy gathers and computes in another."""
    return dict.fromkeys((_P.param, _P.grad, f.load.dtype), run[own.dtype])


@meaning.written(_P.param)
def _(dtype: Any, run: Cells, wishes: Wishes) -> Wishes:
    if dtype not in ("bf16", "fp32"):
        raise CannotEdit("torchtitan trains in bf16 or fp32")
    return {own.dtype: dtype}


@meaning.derive(f.trainable.adapter_dtype)
def adapters(run: Cells) -> Any:
    return run[own.dtype] if run[f.trainable.method] == "lora" else None


@meaning.derive(_P.compute, _P.logits, _P.autocast, source=_AMP)
def computed(run: Cells) -> Any:
    """Without FSDP2 autocast does it, except under tensor or pipeline parallelism, where nobody
    does."""
    dtype, wanted = run[own.dtype], run[own.compute]
    autocast = not _shards(run) and wanted != dtype
    if autocast and (run[f.parallel.tp] or 1) * stages(run) > 1:
        autocast, wanted = False, dtype
    return {_P.compute: wanted, _P.logits: wanted, _P.autocast: autocast}


@meaning.written(_P.compute)
def _(dtype: Any, run: Cells, wishes: Wishes) -> Wishes:
    if dtype not in ("bf16", "fp32"):
        raise CannotEdit("torchtitan computes in bf16 or fp32")
    return {own.compute: dtype}


@meaning.derive(_P.optim_state, source=_AMP)
def states(run: Cells) -> Any:
    return "bf16" if run[own.implementation] == "fused_opt_states_bf16" else run[own.dtype]


meaning.follows(_P.optim_state)


@meaning.derive(_P.fp8_train)
def trains_in_fp8(run: Cells) -> Any:
    converters = " ".join(run[own.converters] or ()).lower()
    is_low = run[own.float8] or any(word in converters for word in ("float8", "mx", "nvfp4"))
    return "torchao" if is_low else "none"


# Oldest card with float8: compute capability 8.9.
_FLOAT8_FROM = (8, 9)


@meaning.derive(
    shared.refused,
    source="torchtitan 90c889e97 torchtitan/float8.py and v0.1.0 components/quantization/float8.py: from 8.9 on; torchao "
    "0.5.0 float8/float8_tensor_parallel.py: Expecting module to be Float8Linear",
)
def shares_what_is_no_float8(run: Cells) -> Any:
    """On older cards torchtitan leaves layers as they are, with a warning, and shares them by torchao's float8 classes,
    which refuse them; from v0.1.0 on it stops by itself. One rank's are not shared, and those of rows not so."""
    asks = run[own.float8] or "float8" in " ".join(run[own.converters] or ())
    if not asks or (run[f.parallel.tp] or 1) == 1 or run.once(_has_other_float8):
        return None
    hardware = run.known.hardware
    if hardware is None or hardware.gpu.vendor != "NVIDIA" or not hardware.gpu.compute_capability:
        return None
    capability = tuple(map(int, hardware.gpu.compute_capability.split(".")))
    if capability >= _FLOAT8_FROM:
        return None
    return f"tensor parallelism of float8 layers does not start on {hardware.gpu.name}, which has no float8"


def _has_other_float8(blocks: list[Block]) -> bool:
    """Whether float8 is emulated, scaled by rows, or asked for by a key from before it was shared among ranks."""
    keys = (
        "float8.emulate",
        "float8.recipe_name",
        "training.fp8_linear",
        "training.enable_fp8_linear",
    )
    return any(block.find(key) is not None for block in blocks for key in keys)
