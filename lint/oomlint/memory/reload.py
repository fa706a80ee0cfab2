"""What a checkpoint takes while the engine that is there reads it back."""

from __future__ import annotations

from msgspec import Struct

from oomlint.memory.facts import Facts, facts_of
from oomlint.memory.states import state_bytes_of
from oomlint.plan import Plan
from oomlint.plan.fields import f as fields

_ON_GPU = {
    fields.offload.optimizer: "none",
    fields.offload.params: "none",
    fields.parallel.fsdp.cpu_offload: False,
}


class ReadBack(Struct, frozen=True):
    """Bytes of a node's RAM. ``kept``: of the optimizer, for one rank or, where the first reads for
    all, of all; ``read``: what the ranks of a node hold of it at once; ``serial``: what is left of that if one
    rank reads after the other, where that can be asked for."""

    kept: float
    read: float
    serial: float | None
    first_reads_all: bool = False


def read_back_of(f: Facts) -> ReadBack | None:
    """What DeepSpeed and FSDP read to go on from a checkpoint; ``None`` where nothing of a size is
    known to be read into RAM.

    DeepSpeed edaa7221 runtime/engine.py:4682: each rank reads its own partition onto the CPU, all
    of them at the same time unless ``pipeline_loading_checkpoint`` is set. Accelerate 16cb6eb8
    utils/fsdp_utils.py:381: under FULL_STATE_DICT the first rank reads all of it; shards
    are read in place.
    """
    plan = f.plan
    if f.model is None or plan.trainable.method not in ("full", "freeze"):
        return None
    states = state_bytes_of(facts_of(plan.with_values(_ON_GPU)))
    kept = states.master + states.optimizer
    ranks, world = plan.parallel.gpus_per_node or 1, plan.parallel.world or 1
    if plan.parallel.backend == "zero" and plan.parallel.zero.stage in (1, 2, 3):
        serial = kept if plan.parallel.zero.stage == 3 and ranks > 1 else None
        return ReadBack(kept, kept if plan.parallel.zero.serial_load else kept * ranks, serial)
    if plan.parallel.backend in ("fsdp1", "fsdp2") and plan.parallel.fsdp.state_dict == "full":
        whole = kept * world / max(1, plan.parallel.dp_replicate or 1)
        return ReadBack(whole, whole, None, first_reads_all=True)
    return None


def beside_on_gpu_of(f: Facts) -> float:
    """Bytes of a GPU that the states which are read take beside those that stay there.

    DeepSpeed made its states by a step before training until 0.13.2 (stage_1_and_2.py and stage3.py
    initialize_optimizer_states), and torch's load_state_dict builds all that it loads before it lets
    the old ones go. Several ranks of the Trainer read their states onto their own GPUs, where
    torch copied them until 2.1 (torch 2.0.1 and 2.1.0 optim/optimizer.py load_state_dict; transformers
    4.28 trainer.py _load_optimizer_and_scheduler).
    """
    ranks = f.ranks
    if not f.plan.load.resume:
        return 0.0
    if ranks.backend == "zero" and f.plan.parallel.zero.stage:
        return state_bytes_of(f).optimizer if f.older("deepspeed", (0, 13, 2)) else 0.0
    is_replicated = ranks.backend == "ddp" and ranks.world > 1
    return state_bytes_of(f).optimizer if is_replicated and f.older("torch", (2, 1)) else 0.0


def read_back(plan: Plan) -> ReadBack | None:
    """What going on from a checkpoint of this run reads into the RAM of a node: see
    :func:`read_back_of`."""
    try:
        return read_back_of(facts_of(plan))
    except OverflowError:
        return None  # sizes of hundreds of digits


def beside_on_gpu(plan: Plan) -> float:
    """Bytes of a GPU that reading a checkpoint takes beside the states: see :func:`beside_on_gpu_of`."""
    try:
        f = facts_of(plan)
        return 0.0 if f.model is None else beside_on_gpu_of(f)
    except OverflowError:
        return 0.0
