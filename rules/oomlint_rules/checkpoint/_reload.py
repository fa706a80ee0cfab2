"""What a checkpoint takes in the RAM of a node when the running engine reads it back."""

from __future__ import annotations

from msgspec import Struct

from oomlint.judgement import Peak, judge_host, settled
from oomlint.memory import state_bytes
from oomlint.plan.fields import f
from oomlint.rule import gib
from oomlint.run import Run

_ON_GPU = {
    f.offload.optimizer: "none",
    f.offload.params: "none",
    f.parallel.fsdp.cpu_offload: False,
}


class Reload(Struct, frozen=True):
    """``read``: bytes that the ranks of one node hold at once beside what training keeps;
    ``serial``: what is left of them if one rank reads after the other; ``words`` say who reads
    what."""

    read: float
    serial: float | None
    words: str
    training: Peak

    @property
    def need(self) -> float:
        return self.training.predicted + self.read


def reload_of(run: Run) -> Reload | None:
    """What DeepSpeed and FSDP read to go on from a checkpoint; ``None`` where nothing of a size is
    known to be read into RAM.

    DeepSpeed edaa7221 runtime/engine.py:4682: each rank reads its own partition onto the CPU, all
    of them at the same time unless ``pipeline_loading_checkpoint`` is set. Accelerate 16cb6eb8
    utils/fsdp_utils.py:381: under FULL_STATE_DICT the first rank reads all of it; shards
    are read in place.
    """
    training = judge_host(run, phase="train")
    probe = settled(run)
    plan = probe.plan
    states = state_bytes(probe.assuming(_ON_GPU).plan)
    if training is None or states is None or plan.trainable.method not in ("full", "freeze"):
        return None
    ranks, world = plan.parallel.gpus_per_node or 1, plan.parallel.world or 1
    kept = states.master + states.optimizer
    if plan.parallel.backend == "zero" and plan.parallel.zero.stage in (1, 2, 3):
        serial = kept if plan.parallel.zero.stage == 3 and ranks > 1 else None
        read = kept if plan.parallel.zero.serial_load else kept * ranks
        words = f"each of {ranks} ranks reads its partition of the optimizer, {gib(kept)}"
        return Reload(read, serial, words, training)
    if plan.parallel.backend in ("fsdp1", "fsdp2") and plan.parallel.fsdp.state_dict == "full":
        whole = kept * world / max(1, plan.parallel.dp_replicate or 1)
        words = f"the first rank reads the optimizer states of all, {gib(whole)}"
        return Reload(whole, None, words, training)
    return None
