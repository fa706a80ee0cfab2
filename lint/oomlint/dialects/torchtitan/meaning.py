"""What torchtitan's trainer makes of its configs: the model, parallelism, batches and dtypes.

Read from torchtitan b5bcd76c (2026-08-21) and v0.1.0 to v0.2.2; ``TN`` below is its package.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.world import batch, world
from oomlint.dialects.machine.meaning import launch_one_process
from oomlint.dialects.meaning import Left, Meaning, Said, Sourced, Wishes
from oomlint.dialects.table import Origin
from oomlint.dialects.torchtitan.keys import CONFIG, FIELDS, PARALLELIZE, is_registry, own
from oomlint.dialects.torchtitan.models import Flavor, flavor_of
from oomlint.dialects.torchtitan.ranks import degrees, ranks, ranks_of_shard
from oomlint.dialects.torchtitan.training import training
from oomlint.errors import CannotEdit
from oomlint.models.given import with_members
from oomlint.plan.fields import f

meaning = Meaning(training, ranks, world, launch_one_process, degrees, batch)

# -- the model -------------------------------------------------------------------------------------

meaning.constant(own.name, "llama3", f"{CONFIG} Model")
meaning.constant(own.flavor, "debugmodel", f"{CONFIG} Model")


def _named(run: Cells) -> tuple[str, str]:
    """Name and flavor of the model, empty where they cannot be read."""
    return run[own.name] or "", run[own.flavor] or ""


@meaning.said(f.model.id)
def shrunk(run: Cells, field: Any, said: Said) -> Said:
    """The debug flavor of its transformers' models shrinks whatever model of the Hub is named."""
    name, flavor = _named(run)
    return None if "transformers" in name and flavor.startswith("debug") else said


def _flavor(run: Cells) -> Flavor | None:
    """What torchtitan builds itself, where no model of the Hub is named."""
    if run.says(f.model.id):
        return None
    found = flavor_of(*_named(run))
    return None if found is None or found.dims is None else found


@meaning.derive(f.model.id)
def model_of_flavor(run: Cells) -> Any:
    found = _flavor(run)
    return None if found is None else Sourced(found.id, found.source)


@meaning.fact(f.model.dims, f.model.arch)
def dims_of_flavor(run: Cells) -> Any:
    found = _flavor(run)
    if found is None or found.dims is None:
        return None
    dims = with_members(found.dims, run.known.options)
    return {
        f.model.dims: Sourced(dims, found.source),
        f.model.arch: Sourced(found.dims.arch, found.source),
    }


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


def _stages(run: Cells) -> int:
    return run[f.parallel.pp] or 1


@meaning.default(f.parallel.pp_schedule, source=f"{CONFIG} Parallelism")
def schedule(run: Cells) -> Any:
    return "1F1B" if _stages(run) > 1 else None


_MULTI_STAGE = ("interleaved", "loopedbfs", "zbv", "dualpipev")


@meaning.derive(f.parallel.vpp)
def stages_of_rank(run: Cells) -> Any:
    """Schedules with several stages a rank take two (distributed/pipeline_parallel.py)."""
    is_multi = (run[f.parallel.pp_schedule] or "").lower().startswith(_MULTI_STAGE)
    if _stages(run) == 1 or not is_multi:
        return None
    dims, each = run[f.model.dims], run[own.stage_layers]
    if each and dims is not None and dims.layers:
        return max(1, round((dims.layers + 2) / (each * _stages(run))))
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
    return policy == "always" or (policy == "default" and _stages(run) == 1)


@reshards.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.reshard: "always" if wanted else "never"}


@meaning.derive(_F.sync_every_micro)
def syncs(run: Cells) -> Any:
    """torch.distributed.pipelining reduces after the last micro batch; train.py after each."""
    return _stages(run) == 1 if _shards(run) else None


@meaning.derive(f.offload.params, f.offload.optimizer, source=PARALLELIZE)
def offloading(run: Cells) -> Any:
    if not _shards(run):
        return None
    device = "cpu" if run[_F.cpu_offload] else "none"
    return {f.offload.params: device, f.offload.optimizer: device}


@offloading.written
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    if device not in ("cpu", "none"):
        raise CannotEdit("torchtitan offloads to the CPU or not at all")
    if not _shards(run):
        raise CannotEdit("CPU offload is FSDP2's, which takes more than one rank")
    return {_F.cpu_offload: device == "cpu"}


meaning.cannot_say("torchtitan knows no DeepSpeed; it shards with FSDP2", f.parallel.zero.stage)
meaning.cannot_say("torchtitan knows no DeepSpeed", f.load.zero3_init)

# -- batches ---------------------------------------------------------------------------------------

meaning.always(f.seq.packing, "concat", "torchtitan datasets fill up")
meaning.always(f.seq.pad, "none", "torchtitan datasets fill up")


def _counts_tokens(run: Cells) -> bool:
    """Newer configs count batches in tokens of a data-parallel rank (config/configs.py
    TrainingConfig)."""
    return is_registry(run) and not run.says(own.local_batch)


@meaning.default(own.local_batch, source=f"{CONFIG} Training")
def local_batch(run: Cells) -> Any:
    return None if _counts_tokens(run) else 8


@meaning.default(own.tokens, source=f"{FIELDS} TrainingConfig")
def tokens_of_micro_batch(run: Cells) -> Any:
    return 16384 if _counts_tokens(run) else None


def _rows(run: Cells, local: int) -> int:
    """A pipeline cuts the local batch into micro batches; without one the whole batch is one."""
    if _stages(run) == 1:
        return local
    parts = run[own.pp_count]
    if parts is None and run.says(own.early) and not run.says(own.pp_rows):
        parts = run[f.parallel.pp]  # 2024's parallelisms/pipelining_utils.py
    return max(1, local // parts) if parts else run[own.pp_rows] or 1


@meaning.derive(f.batch.micro)
def micro_batch(run: Cells) -> Any:
    if not _counts_tokens(run):
        local = run[own.local_batch]
        return None if local is None else _rows(run, local)
    tokens, length = run[own.tokens], run[f.seq.max_len]
    return None if tokens is None or length is None else max(1, tokens // length)


@meaning.derive(f.batch.grad_accum)
def accumulation(run: Cells) -> Any:
    if _counts_tokens(run):
        return _steps_of_tokens(run)
    local, repeats = run[own.local_batch], _repeats(run, own.global_batch, own.local_batch)
    if local is None or repeats is None:
        return None
    return max(1, local // _rows(run, local)) * repeats


def _steps_of_tokens(run: Cells) -> int | None:
    repeats = _repeats(run, own.step_tokens, own.tokens)
    if repeats is None or run[own.step_tokens] is not None or _stages(run) == 1:
        return repeats
    return run[own.pp_count] or 1


def _repeats(run: Cells, whole: Any, part: Any) -> int | None:
    """How often all ranks take their part until the whole batch is through."""
    total, each = run[whole], run[part]
    if total is None:
        return None if run.is_unread(whole) else 1
    dp = run[f.parallel.dp]
    return max(1, total // (each * dp)) if each and dp else None


@meaning.derive(f.batch.eval_micro)
def eval_micro_batch(run: Cells) -> Any:
    return run[own.local_batch] or run[f.batch.micro]


@eval_micro_batch.written
def _(rows: Any, run: Cells, wishes: Wishes) -> Wishes:
    if is_registry(run):
        raise CannotEdit("the validator takes batches of the training's size")
    return {f.batch.eval_micro: rows}


@meaning.written(f.seq.max_len)
def _(length: Any, run: Cells, wishes: Wishes) -> Wishes:
    if run[own.tokens] is None:
        return {f.seq.max_len: length}
    rows = wishes.get(f.batch.micro) or run[f.batch.micro] or 1
    return {f.seq.max_len: length, own.tokens: rows * length}


@meaning.written(f.batch.micro, f.batch.grad_accum)
def _(_wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    """Micro batch and accumulation in torchtitan's terms: a local batch and a global one."""
    rows = wishes.get(f.batch.micro) or run[f.batch.micro] or 1
    steps = wishes.get(f.batch.grad_accum) or run[f.batch.grad_accum] or 1
    resizes = wishes.get(f.batch.micro) is not None
    if run[own.local_batch] is None:
        length = wishes.get(f.seq.max_len) or run[f.seq.max_len] or 1
        part = {own.tokens: rows * length} if resizes else {}
        return {**part, **_whole(run, own.step_tokens, steps, rows * steps * length)}
    if _stages(run) > 1:
        return _batch_of_pipeline(run, rows, steps, resizes=resizes)
    part = {own.local_batch: rows} if resizes else {}
    return {**part, **_whole(run, own.global_batch, steps, rows * steps)}


def _batch_of_pipeline(run: Cells, rows: int, steps: int, *, resizes: bool) -> dict[Any, Any]:
    if run[own.pp_count] is not None:
        raise CannotEdit("the pipeline's micro batches are counted, not sized, here")
    said: dict[Any, Any] = {own.pp_rows: rows} if resizes else {}
    if rows * steps != (run[f.batch.micro] or 0) * (run[f.batch.grad_accum] or 0):
        said[own.local_batch] = rows * steps
    return said


def _whole(run: Cells, field: Any, steps: int, of_rank: int) -> dict[Any, Any]:
    """The batch of all ranks, of whose each takes so much.

    Raises:
        CannotEdit: nobody says how many ranks there are.
    """
    dp, stated = run[f.parallel.dp], run[field]
    if stated is None and steps == 1:
        return {}
    if dp is not None and stated == of_rank * dp:
        return {}  # what the file says already: more steps follow from the smaller batch
    ranks = run.setting(f.parallel.gpus_per_node)
    if dp is None or (ranks is not None and ranks.origin.kind == "assumed"):
        raise CannotEdit("the global batch counts all ranks, whose number is not known")
    return {field: of_rank * dp}


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
    if autocast and (run[f.parallel.tp] or 1) * _stages(run) > 1:
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
