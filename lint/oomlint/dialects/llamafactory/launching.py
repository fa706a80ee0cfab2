"""The ranks that ``llamafactory-cli`` starts, and the allocator that it sets up for them.

Read from LLaMA-Factory ff6d4d12 (2026-08-18); ``LF`` below is ``src/llamafactory``.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import uses_deepspeed
from oomlint.dialects.common.fields import fsdp, shared
from oomlint.dialects.common.world import world
from oomlint.dialects.llamafactory.keys import CLI_ENVIRONMENT, lf, lf_env
from oomlint.dialects.llamafactory.releases import (
    EXPANDS_SEGMENTS,
    REFUSES_DATA_PARALLEL,
    STARTS_TORCHRUN,
)
from oomlint.dialects.machine.fields import env_, launch
from oomlint.dialects.machine.launcher_keys import PLAIN
from oomlint.dialects.machine.launcher_meaning import launcher_of
from oomlint.dialects.machine.meaning import launch_one_process
from oomlint.dialects.meaning import Meaning
from oomlint.plan.fields import f

launching = Meaning(world, launch_one_process)

_LAUNCHER = "LLaMA-Factory ff6d4d12 src/llamafactory/launcher.py"


def _is_by_cli(run: Cells) -> bool:
    return run.has_block_of(CLI_ENVIRONMENT)


def _starts_torchrun(run: Cells) -> bool:
    """LF/launcher.py:51-63: llamafactory-cli has torchrun start one process for each visible GPU,
    or NPROC_PER_NODE, on NNODES nodes."""
    return _is_by_cli(run) and launcher_of(run) is PLAIN and run.has(STARTS_TORCHRUN)


def _spans_gpus(run: Cells) -> bool:
    """Whether one process drives all GPUs that it sees: transformers' Trainer copies the model to
    them, unless it is quantized or something shards it."""
    if launcher_of(run) is not PLAIN or _starts_torchrun(run) or run.has(REFUSES_DATA_PARALLEL):
        return False
    is_packed = run[f.quant.method] in ("bnb4", "bnb8")
    return not (is_packed or uses_deepspeed(run) or run[fsdp.enabled])


@launching.derive(launch.one_process)
def takes_one_gpu(run: Cells) -> Any:
    return not (_starts_torchrun(run) or _spans_gpus(run))


@launching.derive(f.parallel.backend, source=REFUSES_DATA_PARALLEL.source)
def copies_to_gpus(run: Cells) -> Any:
    return "dp" if _spans_gpus(run) and (run[f.parallel.world] or 1) > 1 else None


@launching.derive(
    shared.refused,
    source="transformers 4.36 to 5.23 trainer.py __init__: Using fsdp only works in distributed training; "
    f"{_LAUNCHER}: one GPU gets no torchrun unless FORCE_TORCHRUN says so",
)
def shards_one_process(run: Cells) -> Any:
    is_alone = _is_by_cli(run) and launcher_of(run) is PLAIN and not run[lf_env.torchrun]
    if not run[fsdp.enabled] or not is_alone or run[f.parallel.world] != 1:
        return None
    return "transformers refuses FSDP in one process without a rank; leave it out on one GPU, or set FORCE_TORCHRUN=1"


@launching.derive(launch.total_processes)
def workers_of_ray(run: Cells) -> Any:
    return run[lf.ray_workers] if run[lf_env.ray] else None


@launching.derive(f.parallel.gpus_per_node, source=f"{_LAUNCHER}:60")
def ranks_of_torchrun(run: Cells) -> Any:
    if not _starts_torchrun(run) or run[launch.total_processes] is not None:
        return None
    return run[env_.nproc_per_node]


@launching.derive(f.parallel.nodes, source=f"{_LAUNCHER}:60")
def nodes_of_torchrun(run: Cells) -> Any:
    return run[env_.nnodes] if _starts_torchrun(run) else None


@launching.default(f.env.expandable_segments, source=f"{_LAUNCHER}:74")
def expands_segments(run: Cells) -> Any:
    """A config whose launch line is not at hand is started with llamafactory-cli, as a rule. It sets the allocator for
    the processes that it has torchrun start, and on one GPU it starts none (:51)."""
    if not _is_by_cli(run) and launcher_of(run) is not None:
        return None
    if run[f.parallel.world] == 1 and not run[lf_env.torchrun]:
        return None
    return True if run[lf_env.optim_torch] is not False and run.has(EXPANDS_SEGMENTS) else None
