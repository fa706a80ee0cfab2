"""How many ranks a launcher starts, on how many nodes: what each of them makes of its options.

What a file says counts first, then what is derived here, then what the hardware would allow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import wraps
from itertools import takewhile
from typing import Any

from oomlint.dialects.accelerate.flags import flags_first
from oomlint.dialects.block import Block
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import fsdp, machine, ref
from oomlint.dialects.machine.beaker import beaker_ranks, is_beaker_job
from oomlint.dialects.machine.fields import USUAL_NODE, launch, scene
from oomlint.dialects.machine.kubernetes_meaning import kubeflow
from oomlint.dialects.machine.launch import Launch, place
from oomlint.dialects.machine.launcher_keys import (
    ACCELERATE_LAUNCHER,
    COLOSSALAI_RUN,
    DEEPSPEED_LAUNCHER,
    MPIRUN,
    PLAIN,
    SRUN,
    TORCHRUN,
)
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.machine.rank_option import rank_option
from oomlint.dialects.machine.ray_train import WORKERS
from oomlint.dialects.machine.slurm_meaning import states_tasks, tasks_per_node
from oomlint.dialects.machine.visible import named_gpus, visible_gpus
from oomlint.dialects.meaning import Compute, Derivation, Meaning, Said, Sourced
from oomlint.dialects.setting import Origin, Setting
from oomlint.dialects.table import Table
from oomlint.dialects.trainer.fields import hf
from oomlint.documents.base import UNKNOWN, Entry, Scalar
from oomlint.plan.fields import f

ranks = Meaning(flags_first, beaker_ranks, rank_option)


def launcher_of(run: Cells) -> Table | None:
    """The launcher's table, :data:`PLAIN` for a bare program, ``None`` without a launch line."""
    block = _launcher_block(run)
    return None if block is None else block.table


def _launcher_block(run: Cells) -> Block | None:
    return next(reversed(run.blocks_in("launcher")), None)


def _under(launcher: Table, *fields: Any, source: str = "") -> Callable[[Compute], Derivation]:
    """A derivation that holds for runs of one launcher."""

    def decorator(compute: Compute) -> Derivation:
        @wraps(compute)
        def asked(run: Cells) -> Any:
            return compute(run) if launcher_of(run) is launcher else None

        return ranks.derive(*fields, source=source)(asked)

    return decorator


@ranks.derive(f.env.expandable_segments)
def expandable_segments(run: Cells) -> Any:
    setting = run[f.env.alloc_conf]
    if setting is None:
        return None
    return "expandable_segments:true" in str(setting).lower().replace(" ", "")


# -- torchrun --------------------------------------------------------------------------------------

_TORCHRUN = "torch 2.9 distributed/run.py: one process on one node unless told otherwise"


@_under(TORCHRUN, f.parallel.gpus_per_node, source=_TORCHRUN)
def ranks_of_torchrun(run: Cells) -> Any:
    run[launch.unseen]
    return visible_gpus(run) if run.is_auto(f.parallel.gpus_per_node) else 1


@_under(TORCHRUN, f.parallel.nodes, source=_TORCHRUN)
def nodes_of_torchrun(run: Cells) -> Any:
    run[launch.unseen]
    return 1


# -- lists of hosts --------------------------------------------------------------------------------

_Hosts = dict[str, int | None]
"""Hosts, and their slots where a file says how many."""


@ranks.said(launch.listed_hosts)
def hosts_of_missing_file(run: Cells, field: Any, said: Said) -> Said:
    """A list of hosts that is named and not at hand says what we do not see."""
    if said is not None:
        return said
    named = run.said(launch.hostfile)
    return named.origin if isinstance(named, Setting) else named


@ranks.assume(f.parallel.nodes, why="the hosts stand in a file of the cluster: one is counted")
def nodes_of_missing_file(run: Cells) -> Any:
    table = launcher_of(run)
    is_open = table in (MPIRUN, COLOSSALAI_RUN) or (
        table is DEEPSPEED_LAUNCHER and run[launch.listed_hosts] is None
    )
    return 1 if is_open and run[launch.hostfile] is not None else None


@ranks.derive(launch.total_processes, launch.most_per_node)
def ranks_of_unlike_hosts(run: Cells) -> Any:
    """One for each slot of the hosts, where they have not the same number of them."""
    table = launcher_of(run)
    if table is DEEPSPEED_LAUNCHER:
        hosts, source = _taking_part(run), _DEEPSPEED
    elif table is MPIRUN:
        hosts, source = _listed(run), _MPIRUN
    else:
        return None
    slots = list((hosts or {}).values())
    known = [number for number in slots if number]
    if len(set(slots)) < 2 or not known or None in slots:
        return None
    if run.says(f.parallel.gpus_per_node):
        return None
    return {
        launch.total_processes: Sourced(sum(known), source),
        launch.most_per_node: Sourced(max(known), source),
    }


def _listed(run: Cells) -> _Hosts | None:
    listed = run[launch.listed_hosts]
    return None if listed is None else dict(listed)


def _alike(slots: Iterable[int | None]) -> int | None:
    """The number of slots that all hosts have."""
    numbers = set(slots)
    return numbers.pop() if len(numbers) == 1 else None


# -- deepspeed -------------------------------------------------------------------------------------

_DEEPSPEED = "DeepSpeed edaa7221 launcher/runner.py:86: every visible GPU of every host"


@_under(DEEPSPEED_LAUNCHER, f.parallel.nodes, source=_DEEPSPEED)
def nodes_of_deepspeed(run: Cells) -> Any:
    hosts = _taking_part(run)
    if hosts is not None:
        return len(hosts) or None
    included = _hosts_of(run[launch.include])
    if included:
        return len(included)
    return 1 if run[launch.hostfile] is None else None


@_under(DEEPSPEED_LAUNCHER, f.parallel.gpus_per_node, source=_DEEPSPEED)
def ranks_of_deepspeed(run: Cells) -> Any:
    hosts = _taking_part(run)
    if hosts is not None:
        return _alike(hosts.values())
    included = _hosts_of(run[launch.include])
    if included:
        counts = {len(slots) for slots in included.values()} - {0}
        return _alike(counts)
    return None if run[launch.exclude] else named_gpus(run)


def _taking_part(run: Cells) -> _Hosts | None:
    """Hosts of a hostfile and their GPUs, as far as the options let them take part
    (DeepSpeed edaa7221 launcher/runner.py parse_inclusion_exclusion and main)."""
    chosen = _listed(run)
    if chosen is None:
        return None
    included = _hosts_of(run[launch.include])
    if included:
        chosen = {h: len(included[h]) or n for h, n in chosen.items() if h in included}
    for host, slots in _hosts_of(run[launch.exclude]).items():
        if host in chosen:
            chosen[host] = (chosen[host] or 0) - len(slots) if slots else 0
    chosen = {host: slots for host, slots in chosen.items() if slots != 0}
    if run.says(f.parallel.nodes):
        chosen = dict(list(chosen.items())[: run.base(f.parallel.nodes)])
    return chosen


def _hosts_of(text: str | None) -> dict[str, tuple[str, ...]]:
    """Hosts of ``worker-0@worker-1:0,2``, and which of their GPUs; of all of them none is named."""
    hosts: dict[str, tuple[str, ...]] = {}
    for part in filter(None, (text or "").split("@")):
        host, _, slots = part.partition(":")
        hosts[host] = tuple(slot for slot in slots.split(",") if slot)
    return hosts


@_under(DEEPSPEED_LAUNCHER, f.parallel.unapplied)
def launched_to_shard(run: Cells) -> Any:
    """The launcher shards nothing by itself: somebody has to name a config or a stage."""
    run[launch.include]  # its options are the place to point at
    asks = (ref.deepspeed, f.parallel.zero.stage, fsdp.enabled, hf.fsdp_words)
    return None if any(map(run.mentions, asks)) else "launcher"


# -- colossalai run --------------------------------------------------------------------------------

_COLOSSALAI = "ColossalAI 4f9953be colossalai/cli/launcher/run.py: one node unless hosts are named"


@_under(COLOSSALAI_RUN, f.parallel.nodes, source=_COLOSSALAI)
def nodes_of_colossalai(run: Cells) -> Any:
    """The hosts of a file, or of the line, that are let take part; ``--num_nodes`` takes the first of the file's."""
    listed, named = _listed(run), run[launch.hosts]
    if listed is None and run[launch.hostfile] is not None:
        return run[launch.machines]
    hosts = list(listed or ()) or [part for part in (named or "").split(",") if part]
    included, excluded = (
        [part for part in (run[field] or "").split(",") if part]
        for field in (launch.include, launch.exclude)
    )
    taking_part = [h for h in hosts if (not included or h in included) and h not in excluded]
    most = run[launch.machines] if listed else None
    return len(taking_part[:most]) or 1


# -- accelerate ------------------------------------------------------------------------------------

_ACCELERATE = "accelerate 16cb6eb8 commands/launch.py"


@_under(
    ACCELERATE_LAUNCHER,
    f.parallel.nodes,
    source=f"{_ACCELERATE}: processes are shared among the machines",
)
def nodes_of_accelerate(run: Cells) -> Any:
    return run[launch.machines]


@_under(
    ACCELERATE_LAUNCHER,
    launch.total_processes,
    source=f"{_ACCELERATE}: one process for each visible GPU",
)
def ranks_of_accelerate(run: Cells) -> Any:
    ids = run[launch.gpu_ids]
    if ids is None or ids == "all":
        seen = visible_gpus(run)
    else:
        seen = len([part for part in ids.split(",") if part.strip()])
    return None if seen is None else seen * (run[launch.machines] or 1)


# -- mpirun ----------------------------------------------------------------------------------------

_MPIRUN = "mpirun(1): a process for each slot of its hosts"


@_under(MPIRUN, f.parallel.gpus_per_node, source=_MPIRUN)
def ranks_of_mpirun(run: Cells) -> Any:
    slots = _named_slots(run)
    if slots and len(set(slots)) == 1 and slots[0].isdigit():
        return int(slots[0])
    each = _alike((_listed(run) or {}).values())
    if each is not None:
        return each
    mapped = re.fullmatch(r"ppr:(\d+):(?:node|machine)(?::.*)?", run[launch.map_by] or "")
    return int(mapped[1]) if mapped else None


@_under(MPIRUN, f.parallel.nodes, source=_MPIRUN)
def nodes_of_mpirun(run: Cells) -> Any:
    slots = _named_slots(run)
    if slots is not None:
        return len(slots)
    hosts, total = _listed(run), run[launch.total_processes]
    if hosts is not None and (total is None or len(set(hosts.values())) > 1):
        return len(hosts)
    # As many of the hosts as the processes need.
    each = _gpus_of_node(run)
    return total // each if total and each and total % each == 0 else None


def _named_slots(run: Cells) -> list[str] | None:
    """Of each host that ``--host`` names, the text of its number of slots."""
    hosts = run[launch.hosts]
    return None if hosts is None else [part.partition(":")[2] for part in hosts.split(",")]


def _gpus_of_node(run: Cells) -> int | None:
    """Processes of one node before those of all are shared among the nodes."""
    said = run.said(f.parallel.gpus_per_node)
    if said is not None:
        return said.value if isinstance(said, Setting) else None
    each: int | None = ranks_of_mpirun(run)
    return each or run[machine.gpus_per_node] or run[scene.gpus_per_node]


# -- Ray Train --------------------------------------------------------------------------------------


@ranks.assume(
    launch.machines, why="no file says how many GPUs a node of Ray's cluster has: as many workers share one"
)  # fmt: skip
def nodes_of_workers(run: Cells) -> Any:
    asked = run.has_block_of(WORKERS)
    total = run[launch.total_processes] if asked else None
    if total is None:
        return None
    each = run[machine.gpus_per_node] or USUAL_NODE
    return -(-total // each) if total > each else None


# -- srun, or nobody -------------------------------------------------------------------------------


@_under(
    SRUN,
    f.parallel.gpus_per_node,
    source="srun(1): as many processes as the job has tasks",
)
def ranks_of_srun(run: Cells) -> Any:
    run[launch.unseen]
    tasks = tasks_per_node(run)
    return tasks if tasks is not None and (tasks > 1 or run[launch.one_process]) else None


_ALONE = "no launcher: one process"
ranks.constant(launch.one_process, True, "a program takes one GPU unless it says otherwise")


@_under(PLAIN, f.parallel.nodes, source=_ALONE)
def node_of_program(run: Cells) -> Any:
    run[launch.unseen]
    return 1


@_under(PLAIN, f.parallel.gpus_per_node, source=_ALONE)
def ranks_of_program(run: Cells) -> Any:
    run[launch.unseen]
    return 1 if run[launch.one_process] else visible_gpus(run)


@ranks.said(launch.unseen)
def handed_on(run: Cells, field: Any, said: Said) -> Said:
    """Where the ranks are what a cluster or another program is told, out of sight.

    What follows from the command alone is then unread, whatever it is.
    """
    block = _launcher_block(run)
    if block is None:
        return None
    if block.table is SRUN:
        # sbatch(1): one task a node, but a job of several GPUs is rarely meant so.
        gpus = run[scene.gpus_per_node] or run[machine.gpus_per_node]
        is_told = gpus == 1 or states_tasks(run)
        return None if is_told else _told_by(block, lambda name: name == "srun")
    untold = _told_by(block, _is_untold)
    if untold is not None or block.table is not PLAIN or is_beaker_job(run):
        return untold
    return _told_by(block, _starts_elsewhere)


def _is_untold(name: str) -> bool:
    """Whether only running tells a program (``$LAUNCHER train.py``): it may be told more than stands on the line."""
    return name == str(UNKNOWN)


def _starts_elsewhere(name: str) -> bool:
    """Whether a program runs a command somewhere else, as often as it is told there."""
    return name in ("ray", "pdsh") or name.endswith(".py")


def _told_by(block: Block, decides: Callable[[str], bool]) -> Origin | None:
    """The word of a command, before the program that trains, by which the ranks are decided."""
    started = _launch_of(block)
    if started is None:
        return None
    for word in takewhile(lambda word: word is not started.program, started.command.words):
        if decides(str(word.value).replace("\\", "/").rpartition("/")[2]):
            return _origin(block, word)
    return None


def own_starter(run: Cells) -> Origin | None:
    """The console program of a package that a bare command starts: what it starts in turn, and how
    many of it, stands in that package's code."""
    block = _launcher_block(run)
    started = None if block is None or block.table is not PLAIN else _launch_of(block)
    if block is None or started is None or started.is_module or started.script is not None:
        return None
    return _origin(block, started.program)


def _launch_of(block: Block) -> Launch | None:
    found = (
        each for each in launches(block.document) if place(each.command.words[0]) == block.anchor
    )
    return next(found, None)


def _origin(block: Block, word: Scalar) -> Origin:
    at = place(word)
    written = block.document.source.text[at.start : at.end].strip("\"'")
    said = written if word.value is UNKNOWN else str(word.value)
    return Origin("explicit", block, entry=Entry(said, at, word, at))


# -- for dialects to include -----------------------------------------------------------------------

# What Kubeflow's Trainer tells torchrun comes before what torchrun takes where nobody tells it.
launch_one_process = Meaning(kubeflow, ranks)
launch_all_visible = Meaning(kubeflow, ranks)
launch_all_visible.always(
    launch.one_process, False, "the program spreads over every visible GPU by itself"
)
