"""What a checkpoint takes in the RAM of a node when the running engine reads it back."""

from __future__ import annotations

from msgspec import Struct

from oomlint.judgement import Peak, judge_host, settled
from oomlint.memory import read_back
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib


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
    known to be read into RAM."""
    training = judge_host(run, phase="train")
    plan = settled(run).plan
    back = read_back(plan)
    if training is None or back is None:
        return None
    ranks = plan.parallel.gpus_per_node or 1
    words = f"each of {ranks} ranks reads its partition of the optimizer, {gib(back.kept)}"
    if back.first_reads_all:
        words = f"the first rank reads the optimizer states of all, {gib(back.kept)}"
    return Reload(back.read, back.serial, words, training)
