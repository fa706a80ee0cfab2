"""How many ranks torchtitan's scripts and configs mean: as launched, else what the degrees of
parallelism, a shipped file's comment or a usual node say.

Read from torchtitan b5bcd76c (2026-08-21) and v0.1.0 to v0.2.2.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import machine, shared
from oomlint.dialects.machine.fields import launch, scene
from oomlint.dialects.machine.launcher_meaning import launcher_of
from oomlint.dialects.machine.visible import visible_gpus
from oomlint.dialects.meaning import Meaning, Said, Sourced
from oomlint.dialects.setting import Setting
from oomlint.dialects.torchtitan.keys import header, own
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f

ranks = Meaning()

# A node of the clusters that torchtitan's own configs are for.
_USUAL_RANKS = 8


def ranks_of_shard(run: Cells) -> int:
    """Ranks that share one shard of the data-parallel dimension."""
    count = 1
    for degree in (f.parallel.dp_replicate, f.parallel.tp, f.parallel.pp, f.parallel.cp):
        count *= run[degree] or 1
    return count


def stages(run: Cells) -> int:
    """Ranks that a pipeline puts one behind the other."""
    return run[f.parallel.pp] or 1


def _explicit_ranks(run: Cells) -> int | None:
    """What the degrees multiply to where every one is given."""
    shard = run.said(f.parallel.dp_shard)
    return ranks_of_shard(run) * shard.value if isinstance(shard, Setting) else None


# -- as launched -----------------------------------------------------------------------------------


@ranks.derive(f.parallel.gpus_per_node, source="torchtitan run_train.sh: NGPU, 8 unless set")
def ranks_of_script(run: Cells) -> Any:
    if run[own.script] is None:
        return None
    count = run[own.ngpu]
    is_open = any(run.is_unread(x) or run.is_auto(x) for x in (own.ngpu, f.parallel.gpus_per_node))
    return None if is_open else count or _USUAL_RANKS


@ranks.default(f.env.expandable_segments, source="torchtitan run_train.sh sets PYTORCH_ALLOC_CONF")
def allocator_of_script(run: Cells) -> Any:
    return None if run[own.script] is None else True


# -- as the degrees say ----------------------------------------------------------------------------

_MAKE_UP_WORLD = "torchtitan distributed/parallel_dims.py: the degrees make up the world"


def _is_left_to_machine(run: Cells) -> bool:
    """Whether nobody launches the run, or with as many ranks as there are GPUs."""
    if launcher_of(run) is None:
        return not run.says(f.parallel.gpus_per_node)
    return run.is_auto(f.parallel.gpus_per_node) and visible_gpus(run) is None


def _fitting(run: Cells) -> tuple[int, int] | None:
    """Ranks of a node and nodes, whatever room the machine has beyond them."""
    total = _explicit_ranks(run)
    room = run[machine.gpus_per_node] or run[scene.gpus_per_node]
    if total is None or room is None or not _is_left_to_machine(run):
        return None
    per_node = min(total, room)
    return per_node, -(-total // per_node)


@ranks.derive(f.parallel.gpus_per_node, source=_MAKE_UP_WORLD)
def ranks_of_degrees(run: Cells) -> Any:
    found = _fitting(run)
    return None if found is None else found[0]


@ranks.derive(f.parallel.nodes, source=_MAKE_UP_WORLD)
def nodes_of_degrees(run: Cells) -> Any:
    found = _fitting(run)
    return None if found is None else found[1]


@ranks.derive(shared.stops, source="torchtitan distributed/parallel_dims.py _validate")
def copies_that_do_not_go_in(run: Cells) -> Any:
    """No shard is left where the mesh is copied more often than there are ranks."""
    total, copies = run[f.parallel.world], run[f.parallel.dp_replicate] or 1
    if total is None or copies <= 1 or total >= ranks_of_shard(run):
        return None
    return f"data_parallel_replicate_degree asks for {copies} copies, and there are {total} ranks"


# -- as nobody says --------------------------------------------------------------------------------


@ranks.said(header.ranks)
def suggested(run: Cells, field: Any, said: Said) -> Said:
    """Nobody has to use as many GPUs as the comment at the head of a file is about."""
    if not isinstance(said, Setting):
        return said
    origin = replace(said.origin, source="the comment at the head of the file says so")
    return Setting(said.value, origin, said.shadowed, Level.ASSUMED)


def _assumed_ranks(run: Cells) -> tuple[int, str]:
    """How many ranks there are in all, and why."""
    total = _explicit_ranks(run)
    if total is not None:
        return total, "the degrees of parallelism multiply to that many ranks"
    suggestion = run[header.ranks]
    if suggestion is not None:
        return suggestion, "the comment at the head of the file says so"
    rest = ranks_of_shard(run)
    total = -(-max(rest, _USUAL_RANKS) // rest) * rest
    return total, "run_train.sh starts 8 ranks unless NGPU says otherwise"


def _usual_nodes(total: int) -> int:
    return max(1, total // _USUAL_RANKS)


@ranks.assume(f.parallel.gpus_per_node)
def usual_ranks(run: Cells) -> Any:
    if run.is_auto(f.parallel.gpus_per_node):
        return None
    total, why = _assumed_ranks(run)
    said = run.said(f.parallel.nodes)
    told = said.value if isinstance(said, Setting) else run[machine.nodes] or run[scene.nodes]
    return Sourced(max(1, total // (told or _usual_nodes(total))), why)


@ranks.default(f.parallel.nodes)
def usual_nodes(run: Cells) -> Any:
    """Of ranks that nobody tells."""
    per_node = f.parallel.gpus_per_node
    if run[launch.total_processes] is not None or run.said(per_node) is not None:
        return None
    found = run.setting(per_node)
    if found is None or found.origin.kind != "assumed":
        return None
    total, why = _assumed_ranks(run)
    return Sourced(_usual_nodes(total), why)
