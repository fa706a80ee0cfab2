"""How a run changes its DeepSpeed config where that is one that its framework ships, or comes by one."""

from __future__ import annotations

from collections.abc import Mapping as MappingABC
from typing import Any

from oomlint.dialects.accelerate.keys import own as acc
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import ref
from oomlint.dialects.deepspeed.engine import can_take_over
from oomlint.dialects.deepspeed.keys import DEEPSPEED
from oomlint.dialects.deepspeed.presets import Family, neighbour, preset_for, preset_of
from oomlint.dialects.machine.fields import launch
from oomlint.plan.fields import below, f


def swap_preset(
    wishes: MappingABC[Any, Any], run: Cells, family: Family | None = None
) -> dict[Any, Any]:
    """Wishes of a run whose DeepSpeed config is one that its framework ships: the run may name
    that one's neighbour instead, where one does just what is wished.

    Plain data parallelism makes way for one of a ``family``: where the framework keeps them in a folder that the
    project has, or that its other configs name, for one there, and else for one that is not here yet, which then is
    named without a folder (:mod:`oomlint.fix.new_files` finds its place).
    """
    own = dict(wishes)
    asked = {*below(f.parallel.zero), *below(f.offload)}
    wanted = {field: value for field, value in own.items() if field in asked}
    other = _neighbour(wanted, run) if run.mentions(ref.deepspeed) else None
    if family is not None and wanted and _is_plain(run, family) and can_take_over(own, run):
        other = _at_home(family.home, wanted, run) if family.home else None
        other = other or _not_here_yet(family, wanted, run)
    if other is None:
        return own
    kept = {name: value for name, value in own.items() if name not in wanted}
    return {**kept, ref.deepspeed: other}


def _neighbour(wanted: MappingABC[Any, Any], run: Cells) -> str | None:
    blocks = (block for block in run.blocks if block.table is DEEPSPEED)
    copy = next((block.copy for block in blocks if block.copy is not None), None)
    if copy is None:
        return None
    other = neighbour(str(run[ref.deepspeed]), wanted, run[f.precision.compute])
    # A project that brings some of these files along need not have all of them.
    is_here = copy.others is None or other is None or _name(other) in copy.others
    return other if is_here else None


def _is_plain(run: Cells, family: Family) -> bool:
    is_ddp = run[f.parallel.backend] == "ddp" and run[ref.deepspeed] is None
    return is_ddp and (run[f.quant.method] or "none") in family.partitioned


def _at_home(home: str, wanted: MappingABC[Any, Any], run: Cells) -> str | None:
    dtype = run[f.precision.compute]
    folders = run.known.shipped(home).items()
    found = (preset_for(folder, names, wanted, dtype) for folder, names in folders)
    return next(filter(None, found), None)


def _not_here_yet(family: Family, wanted: MappingABC[Any, Any], run: Cells) -> str | None:
    """Not where Accelerate's config says how the ranks share the model: that is changed there."""
    is_told = run.mentions(launch.config_file) or run[acc.distributed_type] is not None
    if is_told:
        return None
    return preset_of(family, wanted, run[f.precision.compute])


def _name(reference: str) -> str:
    return reference.rpartition("/")[2]
