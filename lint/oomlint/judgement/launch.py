"""Whether anything says how a run is launched, of which its own files leave the model whole."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from oomlint.dialects.block import Block
from oomlint.dialects.machine.fields import launch, scene
from oomlint.dialects.machine.launcher_keys import PLAIN
from oomlint.dialects.machine.launcher_meaning import launcher_of
from oomlint.dialects.machine.slurm_meaning import is_asked
from oomlint.dialects.machine.visible import shown_gpus, starts_by_deepspeed
from oomlint.hardware import usual_limit
from oomlint.memory import state_bytes
from oomlint.plan.fields import ZERO_3, f
from oomlint.runs.documented_launches import IN_COMMENT
from oomlint.runs.run import Run

SHARDED: Mapping[Any, Any] = {f.parallel.backend: "zero", **ZERO_3}
"""What a launcher says that shards a model whole."""


def sharding_is_open(run: Run) -> bool:
    """Whether a launcher or an Accelerate config that is not at hand may shard the model.

    Adapters are mostly trained on whole copies, so that it is open only where there is no room for
    one.
    """
    return (
        run.dialect.launcher_may_shard
        and run.plan.parallel.backend in (None, "ddp")
        and not any(claim.is_launched for claim in run.claims)
        and (run.plan.trainable.method in ("full", "freeze", None) or _is_too_large_to_copy(run))
    )


def sharded_by_its_launch(run: Run) -> Run | None:
    """The run as it would be if what launches it shards the model whole, where that is open and there are GPUs to share
    it among."""
    if not sharding_is_open(run) or (run.placed.plan.parallel.world or 1) < 2:
        return None
    return run.assuming(SHARDED)


def launch_is_unread(run: Run) -> bool:
    """The same of a config that no program here is seen to take: what starts it stands elsewhere, so that a
    whole copy on each GPU is nothing that anybody said."""
    return sharding_is_open(run) and not any(claim.is_program for claim in run.claims)


def says_ranks(run: Run) -> bool:
    """Whether files say how many ranks a node starts, each on a GPU of its own: not those that Accelerate counts
    over more machines than are known of, nor those on CPUs."""
    from oomlint.dialects.accelerate.keys import (
        own,  # few runs are asked, and others do not wait for the table
    )

    started = run.settings.get(f.parallel.gpus_per_node)
    machines, kind = run.settings.get(launch.machines), run.settings.get(own.distributed_type)
    is_said = started is not None and started.origin.kind in ("explicit", "derived")
    spans = machines is not None and machines.value > (run.plan.parallel.nodes or 1)
    return is_said and not spans and (kind is None or kind.value not in ("cpu", "xla"))


def only_suggests_ranks(run: Run) -> bool:
    """Whether but a comment of a config says for how many GPUs it is, or names the file that does: that starts nothing,
    and what does has a say in it."""
    origins = map(run.origin, (f.parallel.gpus_per_node, launch.total_processes))
    blocks = [each.block for each in origins if each is not None and each.block is not None]
    return any(each.table.section == "comment" or _is_only_shown(run, each) for each in blocks)


def _is_only_shown(run: Run, block: Block) -> bool:
    """Whether the file of a block takes part in a run because a line names it that a comment at the config's head shows,
    and nothing else starts the run. A number in that line itself is the config's own; such a file is there for others,
    too, which may each have their own."""
    lines = [each for claim in run.claims if claim.is_launched for each in claim.blocks]
    is_shown = bool(lines) and all(each.locked == IN_COMMENT for each in lines)
    return is_shown and block.path not in {claim.path for claim in run.claims if claim.is_launched}


def cards_missing(run: Run) -> int:
    """How many GPUs a run is started on that a node of the named machine does not have. The ranks without a card
    end the run before it takes any memory (torch.cuda.set_device: invalid device ordinal), so that what each of
    them would need says nothing of that machine."""
    hardware, ranks = run.parts.hardware, run.plan.parallel.gpus_per_node
    if hardware is None or ranks is None:
        return 0
    shown = shown_gpus(run.cells)
    # Which they are is a matter of the author's machine: who names one of so many GPUs may mean just those.
    cards = hardware.gpus_per_node if shown is None else min(hardware.gpus_per_node, len(shown))
    return ranks - cards if ranks > cards and says_ranks(run) else 0


def card_not_there(run: Run) -> int | None:
    """The first card that a run's environment lists and the named machine does not have, behind some that it has: CUDA
    leaves it out with all that follow, and the run is written for a machine with more. Of a list that begins with such a
    one nobody knows which cards were free."""
    hardware, named = run.parts.hardware, _cards_named(run)
    if hardware is None or not named or named[0] >= hardware.gpus_per_node:
        return None
    return card_not_among(run)


def card_not_among(run: Run) -> int | None:
    """The first of several cards that a run's environment lists and the named machine does not have, wherever in the list:
    as it stands the run sees fewer there, or none. Which single card one takes is the matter of a day."""
    hardware, named = run.parts.hardware, _cards_named(run)
    if hardware is None or len(named) < 2:
        return None
    return next((card for card in named if card >= hardware.gpus_per_node), None)


def _cards_named(run: Run) -> list[int]:
    shown = str(run.plan.env.cuda_visible_devices or "")
    return [int(part) for part in shown.split(",") if part.strip().isdigit()]


_DEGREES = ("tp", "pp", "cp", "ulysses", "dp_shard", "dp_replicate")


def mesh_of(run: Run) -> int:
    """How many processes the degrees of parallelism come to that files say, those of a mesh and how often it is copied
    (accelerate 1.15 parallelism_config.py total_size); 1 where none is said."""
    parallel = run.plan.parallel
    degrees = ((getattr(parallel, name), getattr(f.parallel, name)) for name in _DEGREES)
    return prod(size for size, field in degrees if size and size > 1 and run.is_explicit(field))


def mesh_too_large(run: Run) -> int:
    """How many processes its mesh is of, where the named machine has too few for one: it starts none."""
    hardware, nodes = run.parts.hardware, run.plan.parallel.nodes or 1
    mesh = mesh_of(run)
    return mesh if hardware is not None and mesh > hardware.gpus_per_node * nodes else 0


def slot_missing(run: Run) -> int | None:
    """The first GPU that DeepSpeed's launcher is to start a rank on and that a node of the named machine does not have: it
    looks for all of them before it starts any (DeepSpeed 0.18 launcher/runner.py parse_resource_filter)."""
    shown, hardware = shown_gpus(run.cells), run.parts.hardware
    if shown is None or hardware is None or not starts_by_deepspeed(run.cells):
        return None
    if len(shown) <= hardware.gpus_per_node:
        return None
    return next((number for number in shown if number >= hardware.gpus_per_node), None)


def sees_none(run: Run) -> str:
    """That a program which no launcher starts leaves itself several GPUs none of which the named machine has, in words:
    CUDA counts no further than to the first number that is not there (torch 2.9 cuda/__init__.py _device_count_nvml).
    Empty where there are some. One number alone may be any card of its author's, and a launcher says its ranks itself."""
    hardware = run.parts.hardware
    shown = None if hardware is None else shown_gpus(run.cells)
    if shown is None or hardware is None or len(shown) == 1:
        return ""
    if launcher_of(run.cells) not in (None, PLAIN) or shown[0] < hardware.gpus_per_node:
        return ""
    numbers = ",".join(map(str, shown))
    return f"it shows itself the GPUs {numbers} of a machine with {hardware.gpus_per_node}: it would see none of them"


def gpus_of_job(run: Run) -> int | None:
    """How many GPUs of a node Slurm is asked for, where a node of the named machine has fewer: no job begins
    (Slurm 24.05 slurm_errno.h ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE, "Requested node configuration is not available")."""
    asked, hardware = run.settings.get(scene.gpus_per_node), run.parts.hardware
    if asked is None or hardware is None or asked.value is None or not is_asked(run.cells):
        return None
    return int(asked.value) if asked.value > hardware.gpus_per_node else None


def pool_too_large(run: Run) -> int | None:
    """How many GPUs Ray is asked for, where the named machine has fewer: the last group of workers never starts."""
    asked, hardware = run.settings.get(launch.pool), run.parts.hardware
    if asked is None or hardware is None or not asked.value:
        return None
    return int(asked.value) if asked.value > hardware.world else None


def why_not_to_start(run: Run) -> str:
    """Why the named machine does not start a run, in words; empty where it may."""
    asked, hardware = gpus_of_job(run), run.parts.hardware
    if asked is not None and hardware is not None:
        return f"a job with {asked} GPUs a node, of which this machine has {hardware.gpus_per_node}"
    missing = cards_missing(run)
    if not missing and (pool := pool_too_large(run)) is not None and hardware is not None:
        return f"{pool} GPUs for Ray's workers, of which this machine has {hardware.world}"
    if not missing:
        return sees_none(run)
    ranks = run.plan.parallel.gpus_per_node or 0
    return f"{ranks} processes a node, for which this machine has {ranks - missing} GPUs"


def hangs_on_launch(run: Run, field: Any) -> bool:
    """Whether it is by that launch alone that a field is not known."""
    return field == f.parallel.backend and launch_is_unread(run)


def _is_too_large_to_copy(run: Run) -> bool:
    """Whether a GPU (an H100-80GB where nobody says which) cannot hold the model's states."""
    states, limit = state_bytes(run.intended.placed.plan), run.limits.gpu_bytes
    limit = usual_limit() if limit is None else limit
    return states is not None and states.total > limit
