"""What OpenRLHF's trainers make of their options about ranks, the model and its dtypes.

Read from OpenRLHF 3c3be623 (0.11.0, 2026-08-13) and the tags v0.3.8 to v0.10.4; ``OR`` below is
``openrlhf/``. DeepSpeed trains every model; its config is made up from options
(OR/utils/deepspeed/deepspeed_utils.py), no file is read.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import backend, is_adapter_run
from oomlint.dialects.common.fields import asked, deepspeed, shared
from oomlint.dialects.common.precision import precision
from oomlint.dialects.common.quantization import quantization
from oomlint.dialects.common.world import batch, express_global_batch, world
from oomlint.dialects.deepspeed.meaning import deepspeed_json
from oomlint.dialects.machine.meaning import launch_one_process
from oomlint.dialects.meaning import Left, Meaning, Said, Sourced, Wishes
from oomlint.dialects.openrlhf.keys import ACTOR, STRATEGY, own
from oomlint.dialects.openrlhf.objectives import objectives
from oomlint.dialects.openrlhf.programs import defaults_of, is_dotted, program_of, reinforces
from oomlint.dialects.openrlhf.training import training
from oomlint.dialects.setting import Origin
from oomlint.errors import CannotEdit
from oomlint.plan.fields import below, f

meaning = Meaning(
    objectives,
    training,
    world,
    launch_one_process,
    backend,
    quantization,
    precision,
    deepspeed_json,
    batch,
)

# -- ranks and batches -----------------------------------------------------------------------------


@meaning.derive(f.parallel.gpus_per_node)
def gpus_of_actor(run: Cells) -> Any:
    """Ray starts the actor's processes; its GPUs are counted per node (OR/trainer/ray)."""
    return run[own.actor_gpus] or 8 if program_of(run) == "ppo_ray" else None


@meaning.derive(f.parallel.nodes)
def nodes_of_actor(run: Cells) -> Any:
    return run[own.actor_nodes] or 1 if program_of(run) == "ppo_ray" else None


@meaning.written(f.offload.optimizer)
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    if (run[f.parallel.tp] or 1) > 1 and device == "cpu":
        raise CannotEdit(
            "nothing says that DeepSpeed's AutoTP trains with its optimizer in host RAM"
        )
    return {f.offload.optimizer: device}


@meaning.default(f.batch.micro)
def micro_batch(run: Cells) -> Any:
    if is_dotted(run):
        size = 1 if reinforces(run) or program_of(run) == "rm" else 8
    else:
        size = 4 if reinforces(run) else 8
    return Sourced(size, defaults_of(run))


@micro_batch.written
def _(micro: Any, run: Cells, wishes: Wishes) -> Wishes:
    if run[own.dynamic_batch]:
        raise CannotEdit("batches are filled by tokens here (max_tokens_per_gpu)")
    return {f.batch.micro: micro}


@meaning.derive(f.batch.grad_accum, source=f"{STRATEGY}/deepspeed.py:112")
def accumulation(run: Cells) -> Any:
    """Ring attention and TP ranks share samples."""
    micro, dp, total = run[f.batch.micro], run[f.parallel.dp], run[own.batch]
    return max(1, total // (micro * dp)) if micro and dp and total else None


@accumulation.written
def _(steps: Any, run: Cells, wishes: Wishes) -> Wishes:
    unknown = "the batch size counts all GPUs, whose number is not known"
    return express_global_batch(steps, run, wishes, own.batch, unknown)


meaning.takes(f.batch.eval_micro, f.batch.micro)
meaning.cannot_say("OpenRLHF evaluates with the training micro batch", f.batch.eval_micro)

# -- sharding --------------------------------------------------------------------------------------

_Z = f.parallel.zero

meaning.always(deepspeed.enabled, True, STRATEGY)
meaning.cannot_say("OpenRLHF uses DeepSpeed, not FSDP", *below(f.parallel.fsdp))

for _field, _value in (
    (_Z.reduce_bucket_elems, 500_000_000),
    (_Z.allgather_bucket_elems, 500_000_000),
    (_Z.prefetch_elems, 50_000_000),
    (_Z.persistence_threshold, 100_000),
    (_Z.max_live_params, 1_000_000_000),
    (_Z.max_reuse_distance, 1_000_000_000),
    (_Z.sub_group_elems, 1_000_000_000),
    (_Z.contiguous_grads, True),
    (_Z.gather16_on_save, False),
):
    meaning.constant(_field, _value, f"{STRATEGY}/deepspeed_utils.py: auto, so DeepSpeed's own")
meaning.constant(f.offload.pin_memory, True, f"{STRATEGY}/deepspeed_utils.py")


@meaning.written(_Z.gather16_on_save)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wanted is not True:
        raise CannotEdit("OpenRLHF gathers parameters itself to save them")
    return {}


@meaning.written(f.offload.params)
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    if device != "none":
        raise CannotEdit("OpenRLHF offloads Adam only (adam_offload)")
    return {}


@meaning.derive(f.offload.idle)
def idle_model(run: Cells) -> Any:
    """OR/cli/train_ppo_ray.py:348: between its turns the trained model leaves the GPU."""
    return "cpu" if run[own.sleep] else "none"


@meaning.default(f.load.zero3_init, source=ACTOR)
def opens_zero_init(run: Cells) -> Any:
    """HfDeepSpeedConfig opens zero.Init under stage 3."""
    return run[_Z.stage] == 3


meaning.always(f.load.device_map, "none", STRATEGY)

# -- what is trained -------------------------------------------------------------------------------


@meaning.derive(f.quant.requested_bits, asked.bits)
def requested_bits(run: Cells) -> Any:
    bits = 4 if run[own.load_4bit] else None
    return {f.quant.requested_bits: bits, asked.bits: bits}


@meaning.written(f.quant.method)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wanted != "bnb4" or not is_adapter_run(run):
        raise CannotEdit("OpenRLHF loads in 4 bit for LoRA only")
    return {own.load_4bit: True}


@meaning.derive(f.trainable.method)
def method(run: Cells) -> Any:
    rank = run[own.lora_rank]
    if not rank:
        return None if rank is None else "full"
    return "qlora" if run[f.quant.method] == "bnb4" else "lora"


@method.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wanted not in ("lora", "qlora"):
        raise CannotEdit(f"OpenRLHF trains everything or LoRA, not {wanted}")
    return {own.lora_rank: wishes.get(f.trainable.r, run[own.lora_rank] or 16)}


@meaning.derive(f.trainable.r)
def rank(run: Cells) -> Any:
    return run[own.lora_rank] or None


@rank.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.lora_rank: wanted}


@meaning.said(f.trainable.alpha, f.trainable.dropout)
def of_lora(run: Cells, field: Any, said: Said) -> Said:
    """Without a rank neither the options of LoRA nor their defaults count."""
    return Left(Origin("default", source=ACTOR)) if run[own.lora_rank] == 0 else said


@meaning.derive(f.trainable.targets)
def targets(run: Cells) -> Any:
    if not run[own.lora_rank]:
        return None
    named = run[own.targets]
    return "all_linear" if named == ("all-linear",) else named


def _is_qlora(run: Cells) -> bool:
    return run[f.trainable.method] == "qlora"


@meaning.default(f.quant.double, source=f"{ACTOR}:120")
def double_quantization(run: Cells) -> Any:
    return True if _is_qlora(run) else None


@meaning.derive(f.quant.compute_dtype, f.quant.prepares_kbit)
def nf4(run: Cells) -> Any:
    if not _is_qlora(run):
        return None
    return {f.quant.compute_dtype: "bf16", f.quant.prepares_kbit: False}


# -- dtypes and the optimizer ----------------------------------------------------------------------


def _dtype(run: Cells) -> str | None:
    said = run[own.dtype]
    if said is not None:
        return said
    if is_dotted(run) or run[own.bf16]:
        return "bf16"
    # Up to 0.9 nothing was 16 bit without --bf16: the checkpoint's own dtype was loaded.
    return None if run.is_unread(own.bf16) else "fp32"


@meaning.derive(f.load.dtype, source=f"{ACTOR}:113")
def loads(run: Cells) -> Any:
    return _dtype(run)


@meaning.derive(shared.amp)
def amp(run: Cells) -> Any:
    dtype = _dtype(run)
    return dtype if dtype in ("bf16", "fp16") else "no"


@meaning.derive(f.objective.ref_dtype)
def dtype_of_reference(run: Cells) -> Any:
    return _dtype(run) if run[f.objective.ref_model] == "copy" else None


@meaning.derive(
    f.optimizer.kind,
    f.optimizer.fused,
    f.optimizer.foreach,
    f.optimizer.groups,
    source="DeepSpeed FusedAdam or DeepSpeedCPUAdam",
)
def optimizer(run: Cells) -> Any:
    is_muon = run[f.optimizer.name] == "muon"
    return {
        f.optimizer.kind: "muon" if is_muon else "adamw",
        f.optimizer.fused: not is_muon,
        f.optimizer.foreach: False,
        # OpenRLHF 0.9 utils/deepspeed/deepspeed_utils.py get_optimizer_grouped_parameters: norms and biases
        # have no decay.
        f.optimizer.groups: 1 if run[f.trainable.method] == "lora" else 2,
    }


@meaning.written(f.optimizer.kind)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wanted not in ("adamw", "muon"):
        raise CannotEdit(f"OpenRLHF has Adam and Muon, not {wanted}")
    return {f.optimizer.name: "adam" if wanted == "adamw" else "muon"}


meaning.follows(f.precision.optim_state)
