"""Processes that start for a run of ms-swift, and the GPUs that each of them uses.

``SW`` below is ``swift/`` of ms-swift 3602360a.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import uses_deepspeed
from oomlint.dialects.common.fields import fsdp
from oomlint.dialects.machine.fields import env_, launch
from oomlint.dialects.machine.launcher_keys import PLAIN, TORCHRUN
from oomlint.dialects.machine.launcher_meaning import launcher_of
from oomlint.dialects.machine.visible import visible_gpus
from oomlint.dialects.meaning import Meaning
from oomlint.dialects.ms_swift.keys import env, own
from oomlint.dialects.setting import Setting
from oomlint.plan.fields import f

ranks = Meaning()
spreading = Meaning()
"""Layers of one process over several GPUs."""

_RANKS = "ms-swift 3602360a cli/main.py get_torchrun_args: NPROC_PER_NODE and NNODES start torchrun"
_RAY = "ms-swift 4.6.0 ray_utils/base.py _create_workers: WORLD_SIZE is the number of the group's ranks"
_SPREAD = "ms-swift 3602360a utils/env.py is_mp: more GPUs than processes spread the layers"


def _starts_torchrun(run: Cells) -> bool:
    """SW/cli/main.py use_torchrun: either variable is enough, whatever it holds. A launcher starts
    the ranks itself."""
    if launcher_of(run) not in (PLAIN, None):
        return False
    variables = (env_.nproc_per_node, env_.nnodes)
    return any(run.mentions(name) or run.is_auto(name) for name in variables)


@ranks.derive(f.parallel.gpus_per_node, source=_RANKS)
def processes(run: Cells) -> Any:
    if not _starts_torchrun(run):
        return None
    if run.is_auto(env_.nproc_per_node):
        return visible_gpus(run)
    said = run[env_.nproc_per_node]
    if said is None:
        return None if run.is_unread(env_.nproc_per_node) else 1
    # What stands in for a number that only running tells counts the GPUs of the machine.
    return said if run.says(env_.nproc_per_node) else min(said, visible_gpus(run) or said)


@ranks.derive(f.parallel.nodes, source=_RANKS)
def nodes(run: Cells) -> Any:
    if not _starts_torchrun(run):
        return None
    said = run[env_.nnodes]
    return None if run.is_unread(env_.nnodes) else said or 1


def _starts_workers(run: Cells) -> bool:
    """Whether Ray starts the ranks. ``is_mp`` does not count where it does (SW/arguments/sft_args.py)."""
    if not run[own.uses_ray]:
        return False
    return run[own.training_group] is not None or run.is_unread(own.training_group)


@ranks.derive(f.parallel.gpus_per_node, source=_RAY)
def workers(run: Cells) -> Any:
    group = run[own.training_group] if _starts_workers(run) else None
    return None if group is None else min(group.ranks, group.per_node)


@ranks.derive(f.parallel.nodes, source=_RAY)
def nodes_of_workers(run: Cells) -> Any:
    group = run[own.training_group] if _starts_workers(run) else None
    return None if group is None or not group.per_node else -(-group.ranks // group.per_node)


def _shards(run: Cells) -> bool:
    """DeepSpeed and FSDP refuse a model that is spread (SW/arguments/sft_args.py)."""
    return uses_deepspeed(run) or bool(run[fsdp.enabled])


@ranks.derive(launch.one_process)
def uses_one_gpu(run: Cells) -> Any:
    """One process shards over one GPU, and spreads over all that it sees."""
    return not _starts_torchrun(run) and not _starts_workers(run) and _shards(run)


@ranks.derive(own.gpus_per_rank, source=_SPREAD)
def gpus_of_process(run: Cells) -> Any:
    if launcher_of(run) is not TORCHRUN and not _starts_torchrun(run):
        return None
    started, seen = run.base(f.parallel.gpus_per_node), visible_gpus(run)
    if not started or not seen or seen <= started or seen % started:
        return None
    return None if run[env.single_device] or _shards(run) else seen // started


@ranks.override(f.parallel.gpus_per_node, source=_SPREAD)
def gpus_of_node(run: Cells) -> Any:
    started, each = run[f.parallel.gpus_per_node], run[own.gpus_per_rank]
    return started * each if started and each else None


# -- layers of one process over several GPUs (SW/model/utils.py) -----------------------------------


def _spreads(run: Cells) -> bool:
    return _holds_several(run) and not _is_placed(run)


def _holds_several(run: Cells) -> bool:
    """Whether a process has several GPUs that nothing shards over."""
    if _shards(run) or _starts_workers(run):
        return False
    is_alone = launcher_of(run) is PLAIN and not _starts_torchrun(run)
    if not is_alone and run[own.gpus_per_rank] is None:
        return False
    return (run[f.parallel.world] or 1) > 1


def _is_placed(run: Cells) -> bool:
    """Whether ``device_map`` puts the whole model on one of them."""
    placed = run.said(f.load.device_map)
    return isinstance(placed, Setting) and placed.value == "single"


@spreading.derive(f.parallel.backend, source=_SPREAD)
def backend(run: Cells) -> Any:
    """A model on one GPU of several is copied to the others (transformers 5.23 trainer.py:2666)."""
    if _spreads(run):
        return "device_map_pp"
    return "dp" if _is_placed(run) and _holds_several(run) else None


@spreading.derive(f.parallel.pp, source=_SPREAD)
def stages(run: Cells) -> Any:
    return run[own.gpus_per_rank] if _spreads(run) else None


@spreading.derive(f.parallel.dp, source=_SPREAD)
def replicas(run: Cells) -> Any:
    total = run[f.parallel.world]
    if total is None or not _spreads(run):
        return None
    each = run[own.gpus_per_rank]
    return total // each if each else 1


@spreading.derive(f.load.device_map, source=_SPREAD)
def spread_on_load(run: Cells) -> Any:
    return "auto" if _spreads(run) else None


@spreading.derive(
    f.load.device_map, source="ms-swift 3602360a model/utils.py get_default_device_map"
)
def device_map(run: Cells) -> Any:
    wrapper = run[f.parallel.backend]
    is_stage3 = wrapper == "zero" and run[f.parallel.zero.stage] == 3
    return "none" if is_stage3 or wrapper in ("fsdp1", "fsdp2") else "single"
