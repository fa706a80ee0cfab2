"""What a container that ``docker run`` or compose starts may use.

Options from docker's CLI reference 27 and the Compose Specification.
"""

from __future__ import annotations

import math
from typing import Any

from oomlint.dialects.block import Block
from oomlint.dialects.cells import Cells
from oomlint.dialects.machine.containers_keys import DOCKER_RUN, SERVICE
from oomlint.dialects.machine.fields import docker, scene
from oomlint.dialects.meaning import Meaning, Sourced, Wishes
from oomlint.plan.fields import f

container = Meaning()

# Without --ipc a container has shared memory of its own (docker's CLI reference, "--ipc").
_PRIVATE = (None, "private", "shareable")
# docker run(1): "If you omit the size entirely, the system uses 64m".
_DEFAULT_SHM_GIB = 64 / 1024


def _containers(run: Cells) -> list[Block]:
    return run.blocks_of(DOCKER_RUN, SERVICE)


def _may_say_more(containers: list[Block]) -> bool:
    """Whether options stand in a variable out of sight."""
    return any(block.mapping.open_ended for block in containers)


@container.fact(scene.gpus_per_node, f.parallel.gpus_per_node, source="docker")
def gpus_of_container(run: Cells) -> Any:
    if not _containers(run):
        return None
    return dict.fromkeys((scene.gpus_per_node, f.parallel.gpus_per_node), run[docker.gpus])


@container.fact(f.host.ram_gib, scene.ram_limit, source="the container's memory limit")
def ram_of_container(run: Cells) -> Any:
    limit = run[docker.memory] if _containers(run) else None
    return None if limit is None else {f.host.ram_gib: limit, scene.ram_limit: "container"}


@container.fact(f.host.shm_gib)
def shared_memory_of_container(run: Cells) -> Any:
    own = _containers(run)
    if not own:
        return None
    size = run[docker.shm]
    if size is not None:
        return Sourced(size, "the container's /dev/shm")
    hidden = run.is_unread(docker.shm) or run.is_unread(docker.ipc)
    if hidden or _may_say_more(own) or run[docker.ipc] not in _PRIVATE:
        return None
    run[docker.gpus]  # where the container is given GPUs is the place to point at
    why = "docker gives a container 64 MiB of /dev/shm unless told otherwise"
    return Sourced(_DEFAULT_SHM_GIB, why)


@container.fact(f.host.memlock)
def locked_memory_of_container(run: Cells) -> Any:
    own = _containers(run)
    if not own:
        return None
    said = run[docker.memlock]
    if said is not None:
        return Sourced(said, "the container's ulimit")
    if run[docker.privileged]:
        return Sourced("unlimited", "a privileged container has CAP_IPC_LOCK")
    if _may_say_more(own):
        return None
    run[docker.gpus]
    # getrlimit(2) and docker's CLI reference, "--ulimit": the daemon's own, a few MiB at most.
    why = "docker gives a container its daemon's ulimit -l, of at most some MiB"
    return Sourced("limited", why)


# -- wishes ----------------------------------------------------------------------------------------


def ram_as_option(wanted: float, run: Cells) -> Wishes | None:
    """A wish for RAM as the container's limit; ``None`` where no container is described."""
    return {docker.memory: math.ceil(wanted)} if _containers(run) else None


def shared_memory_as_option(wanted: float, run: Cells) -> Wishes | None:
    return {docker.shm: math.ceil(wanted)} if _containers(run) else None


def locked_memory_as_option(wanted: str, run: Cells) -> Wishes | None:
    return {docker.memlock: wanted} if _containers(run) else None
