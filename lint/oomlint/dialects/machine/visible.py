"""The GPUs that a command sees."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile

from oomlint.dialects.block import Block
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import machine
from oomlint.dialects.machine.fields import scene
from oomlint.dialects.machine.launcher_keys import DEEPSPEED_LAUNCHER
from oomlint.plan.fields import f

# By what DeepSpeed's own launcher is told which GPUs to take; 1 node and -1 say nothing.
_SELECTS = ("include", "i", "exclude", "e", "num_gpus", "num_accelerators", "num_nodes")


def shown_gpus(run: Cells) -> tuple[int, ...] | None:
    """The GPUs that a command is to take, where its environment, or DeepSpeed's launcher, lists them by number. That launcher
    looks at the environment only where it is not told itself (DeepSpeed 0.18 launcher/runner.py main: "Detected
    VISIBLE_DEVICES=... but ignoring it because one or several of --include/--exclude/--num_gpus/--num_nodes cl args were
    used")."""
    shown = str(run[f.env.cuda_visible_devices] or "")
    told = run.once(_told_to_deepspeed)
    if told:
        host, _, shown = (told.get("include") or told.get("i") or "").partition(":")
        if host != "localhost":
            return None
    parts = [part.strip() for part in shown.split(",")]
    return tuple(map(int, parts)) if all(part.isdigit() for part in parts) else None


def starts_by_deepspeed(run: Cells) -> bool:
    """Whether DeepSpeed's launcher starts the ranks."""
    return run.has_block_of(DEEPSPEED_LAUNCHER)


def _told_to_deepspeed(blocks: list[Block]) -> Mapping[str, str]:
    """The options that tell DeepSpeed's launcher which GPUs to take."""
    told = {
        key: str(block.value(block.mapping.entries[key].value))
        for block in blocks
        if block.table is DEEPSPEED_LAUNCHER
        for key in _SELECTS
        if key in block.mapping.entries
    }
    return {k: v for k, v in told.items() if v != "-1" and (k, v) != ("num_nodes", "1")}


def visible_gpus(run: Cells) -> int | None:
    """How many GPUs of a node a command counts: those that ``CUDA_VISIBLE_DEVICES`` names up to the first that the
    machine has not (torch 2.0 and 2.9 cuda/__init__.py _device_count_nvml: ``if val >= raw_cnt: return idx``), else those
    that its job or container asks for, however many more the machine has; ``None`` where nobody says. A list that begins
    with one that is not there leaves none to count, and is taken as it stands.

    Slurm and containers show a job the devices that it was given (gres.conf(5), "AutoDetect";
    docker run(1), "--gpus").
    """
    shown, there = run[f.env.cuda_visible_devices], run[machine.gpus_per_node]
    if shown is not None:
        return listed(shown, there) or listed(shown)
    return _asked(run, there)


def named_gpus(run: Cells) -> int | None:
    """The same as DeepSpeed's launcher counts them, which looks for each that is named, and stops if one is not there
    (DeepSpeed 0.18 launcher/runner.py parse_resource_filter)."""
    shown = listed(run[f.env.cuda_visible_devices])
    return _asked(run, run[machine.gpus_per_node]) if shown is None else shown


def _asked(run: Cells, there: int | None) -> int | None:
    asked = run[scene.gpus_per_node]
    return asked if there is None or asked is None else min(asked, there)


def listed(devices: str | None, there: int | None = None) -> int | None:
    """How many GPUs a value of ``CUDA_VISIBLE_DEVICES`` leaves visible, of a machine that has so many."""
    if devices is None:
        return None
    # CUDA stops at the first id that it cannot use, such as -1.
    ids = (part.strip() for part in str(devices).split(","))
    return len(list(takewhile(lambda name: _is_there(name, there), ids)))


def _is_there(name: str, there: int | None) -> bool:
    if not name or name.startswith("-"):
        return False
    return there is None or not name.isdigit() or int(name) < there
