"""How many ranks a launcher starts, on how many nodes: what each of them makes of its options."""

from __future__ import annotations

import re
from typing import Any

from oomlint.dialects.accelerate.effects import prefer_flags
from oomlint.dialects.draft import Draft
from oomlint.dialects.machine.environments import finish_scene
from oomlint.dialects.machine.launcher_keys import (
    ACCELERATE_LAUNCHER,
    DEEPSPEED_LAUNCHER,
    LISTED_HOSTS,
    MPIRUN,
    PLAIN,
    SRUN,
    TORCHRUN,
)
from oomlint.dialects.machine.scene import visible_gpus
from oomlint.dialects.table import Table


def launcher_of(draft: Draft) -> Table | None:
    """The launcher's table, :data:`PLAIN` for a bare program, ``None`` without a launch line."""
    found = [block.table for block in draft.blocks if block.table.section == "launcher"]
    return found[-1] if found else None


def settle(draft: Draft, field: str, value: Any, source: str, *inputs: str) -> None:
    """A launcher's value where no file says one: it beats what the hardware would allow."""
    if value is None or draft.is_unknown(field):
        return
    setting = draft.settings.get(field)
    if setting is not None and setting.origin.kind != "catalog":
        return
    draft.forget(field)
    draft.derive(field, value, *inputs, source=source)


def finish_launch(draft: Draft, *, one_process: bool = True) -> None:
    """Ranks per node and nodes as the launcher starts them, before ``law.finish_world``.

    Args:
        one_process: a program that no launcher starts uses one GPU; false where it spreads
            over every visible GPU by itself (transformers' Trainer).
    """
    expandable = draft.get("env.alloc_conf")
    if expandable is not None:
        on = "expandable_segments:true" in str(expandable).lower().replace(" ", "")
        draft.derive("env.expandable_segments", on, "env.alloc_conf")
    finish_scene(draft)
    table = launcher_of(draft)
    seen = visible_gpus(draft)
    if table is TORCHRUN:
        source = "torch 2.9 distributed/run.py: one process on one node unless told otherwise"
        if "parallel.gpus_per_node" in draft.auto:
            settle(draft, "parallel.gpus_per_node", seen, source, "env.cuda_visible_devices")
        else:
            settle(draft, "parallel.gpus_per_node", 1, source)
        settle(draft, "parallel.nodes", 1, source)
    elif table is DEEPSPEED_LAUNCHER:
        _finish_deepspeed_launcher(draft, seen)
    elif table is ACCELERATE_LAUNCHER:
        _finish_accelerate_launcher(draft, seen)
    elif table is MPIRUN:
        _finish_mpirun(draft)
    elif table is SRUN:
        from oomlint.dialects.machine.slurm import tasks_per_node

        tasks = tasks_per_node(draft)
        if tasks is not None and (tasks > 1 or one_process):
            source = "srun(1): as many processes as the job has tasks"
            settle(draft, "parallel.gpus_per_node", tasks, source, "slurm.tasks_per_node")
    elif table is PLAIN:
        source = "no launcher: one process"
        settle(draft, "parallel.nodes", 1, source)
        if one_process:
            settle(draft, "parallel.gpus_per_node", 1, source)
        else:
            settle(draft, "parallel.gpus_per_node", seen, source, "env.cuda_visible_devices")


def _finish_deepspeed_launcher(draft: Draft, seen: int | None) -> None:
    source = "DeepSpeed edaa7221 launcher/runner.py:86: every visible GPU of every host"
    named = ("ref.deepspeed", "parallel.zero.stage", "fsdp.enabled", "hf.fsdp_words")
    if not any(draft.says(name) or draft.is_unknown(name) for name in named):
        draft.derive("parallel.unapplied", "launcher", "launch.include")
    include = draft.get("launch.include")
    hosts = _included(str(include)) if include is not None else {}
    listed = draft.get(LISTED_HOSTS)
    if listed is not None:
        _settle_hosts(draft, _chosen(draft, dict(listed), hosts), source)
    elif hosts:
        settle(draft, "parallel.nodes", len(hosts), source, "launch.include")
        counts = {len(slots) for slots in hosts.values()} - {0}
        if len(counts) == 1:
            settle(draft, "parallel.gpus_per_node", counts.pop(), source, "launch.include")
    elif seen is not None and not draft.get("launch.exclude"):
        settle(draft, "parallel.gpus_per_node", seen, source, "env.cuda_visible_devices")
    if listed is not None:
        return
    if not hosts and draft.get("launch.hostfile") is None:
        settle(draft, "parallel.nodes", 1, source)
    elif not hosts:
        draft.assume("parallel.nodes", 1, _HOSTS_ELSEWHERE)


def _chosen(
    draft: Draft, listed: dict[str, int | None], included: dict[str, tuple[str, ...]]
) -> dict[str, int | None]:
    """Hosts of a hostfile and their GPUs, as far as the options let them take part
    (DeepSpeed edaa7221 launcher/runner.py parse_inclusion_exclusion and main)."""
    chosen = dict(listed)
    if included:
        chosen = {h: len(included[h]) or n for h, n in listed.items() if h in included}
    for host, slots in _included(str(draft.get("launch.exclude") or "")).items():
        if host in chosen:
            chosen[host] = (chosen[host] or 0) - len(slots) if slots else 0
    chosen = {host: slots for host, slots in chosen.items() if slots != 0}
    if draft.says("parallel.nodes"):
        chosen = dict(list(chosen.items())[: draft.get("parallel.nodes")])
    return chosen


def _settle_hosts(draft: Draft, hosts: dict[str, int | None], source: str) -> None:
    """One rank for each slot of the hosts."""
    slots = set(hosts.values())
    counts = [number for number in hosts.values() if number]
    settle(draft, "parallel.nodes", len(hosts) or None, source, LISTED_HOSTS)
    if len(slots) == 1:
        settle(draft, "parallel.gpus_per_node", slots.pop(), source, LISTED_HOSTS)
    elif counts and None not in slots and not draft.says("parallel.gpus_per_node"):
        draft.derive("launch.total_processes", sum(counts), LISTED_HOSTS, source=source)
        draft.derive("launch.most_per_node", max(counts), LISTED_HOSTS, source=source)


_HOSTS_ELSEWHERE = "the hosts stand in a file of the cluster: one is counted"


def _finish_mpirun(draft: Draft) -> None:
    source = "mpirun(1): a process for each slot of its hosts"
    slots = [part.partition(":")[2] for part in str(draft.get("launch.hosts") or "").split(",")]
    per_node = re.fullmatch(r"ppr:(\d+):(?:node|machine)(?::.*)?", str(draft.get("launch.map_by")))
    if draft.get("launch.hosts") is not None:
        settle(draft, "parallel.nodes", len(slots), source, "launch.hosts")
        if len(set(slots)) == 1 and slots[0].isdigit():
            settle(draft, "parallel.gpus_per_node", int(slots[0]), source, "launch.hosts")
    if draft.get(LISTED_HOSTS) is not None:
        each = {slots for _, slots in draft.get(LISTED_HOSTS)}
        if draft.get("launch.total_processes") is None or len(each) > 1:
            _settle_hosts(draft, dict(draft.get(LISTED_HOSTS)), source)
        else:  # as many of the hosts as the processes need
            settle(draft, "parallel.gpus_per_node", each.pop(), source, LISTED_HOSTS)
    if per_node:
        settle(draft, "parallel.gpus_per_node", int(per_node[1]), source, "launch.map_by")
    total, each = draft.get("launch.total_processes"), draft.get("parallel.gpus_per_node")
    if total and each and total % each == 0:
        settle(draft, "parallel.nodes", total // each, source, "launch.total_processes")
    elif draft.get("launch.hostfile") is not None:
        draft.assume("parallel.nodes", 1, _HOSTS_ELSEWHERE)


def _included(text: str) -> dict[str, tuple[str, ...]]:
    """Hosts of ``worker-0@worker-1:0,2``, and which of their GPUs; of all of them none is named."""
    hosts: dict[str, tuple[str, ...]] = {}
    for part in filter(None, text.split("@")):
        host, _, slots = part.partition(":")
        hosts[host] = tuple(slot for slot in slots.split(",") if slot)
    return hosts


def _finish_accelerate_launcher(draft: Draft, seen: int | None) -> None:
    prefer_flags(draft)
    source = "accelerate 16cb6eb8 commands/launch.py: processes are shared among the machines"
    settle(draft, "parallel.nodes", draft.get("launch.machines"), source, "launch.machines")
    if draft.get("launch.total_processes") is not None or draft.is_unknown(
        "launch.total_processes"
    ):
        return
    source = "accelerate 16cb6eb8 commands/launch.py: one process for each visible GPU"
    ids = draft.get("launch.gpu_ids")
    if ids is not None and str(ids) != "all":
        seen = len([part for part in str(ids).split(",") if part.strip()])
    machines = draft.get("launch.machines") or 1
    if seen is not None:
        draft.derive(
            "launch.total_processes", seen * machines, "env.cuda_visible_devices", source=source
        )
