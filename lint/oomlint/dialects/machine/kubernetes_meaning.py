"""What a pod may use, and what Kubeflow's Trainer starts in it.

Meanings from the Kubernetes API reference 1.31 and Kubeflow's trainer 2.0.
"""

from __future__ import annotations

import math
from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.machine.fields import k8s, scene
from oomlint.dialects.machine.kubernetes_keys import (
    CONTAINER,
    GKE_NAMES,
    REPLICAS,
    SHARED_MEMORY,
    TRAINER,
    read_number,
)
from oomlint.dialects.meaning import Meaning, Sourced, Wishes
from oomlint.dialects.table import Table
from oomlint.documents.base import Scalar
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

kubeflow = Meaning()
pod = Meaning(kubeflow)

# Docker's and containerd's default, which a pod has no other way to change than a volume.
_DEFAULT_SHM_GIB = 64 / 1024
_SOURCE = "Kubernetes"


def _has(run: Cells, *tables: Table) -> bool:
    return run.has_block_of(*tables)


def _is_pod(run: Cells) -> bool:
    return _has(run, CONTAINER, TRAINER)


# -- counts ----------------------------------------------------------------------------------------


def _nodes(run: Cells) -> int:
    return run[k8s.nodes] or _replicas(run) or 1


def _replicas(run: Cells) -> int | None:
    """Pods with GPUs in all, where every group says how many it has."""
    if run[k8s.replicas] is None:
        return None
    entries = [block.find("replicas") for block in run.blocks_of(REPLICAS)]
    texts = [
        str(entry.value.value) if entry is not None and isinstance(entry.value, Scalar) else ""
        for entry in entries
    ]
    counts = [count for text in texts if (count := read_number(text)) is not None]
    return sum(counts) if counts and len(counts) == len(texts) else None


# trainer 2.0 pkg/runtime/framework/plugins/torch/torch.go sets what torchrun reads.
_TRAINER = "Kubeflow Trainer starts torchrun"


@kubeflow.derive(f.parallel.nodes, source=_TRAINER)
def nodes_of_trainer(run: Cells) -> Any:
    return _nodes(run) if _has(run, TRAINER) else None


@kubeflow.derive(f.parallel.gpus_per_node, source=_TRAINER)
def ranks_of_trainer(run: Cells) -> Any:
    return run[k8s.gpus] if _has(run, TRAINER) else None


@pod.fact(scene.nodes, f.parallel.nodes, source=_SOURCE)
def nodes_of_pods(run: Cells) -> Any:
    return dict.fromkeys((scene.nodes, f.parallel.nodes), _nodes(run)) if _is_pod(run) else None


@pod.fact(scene.gpus_per_node, f.parallel.gpus_per_node, source=_SOURCE)
def gpus_of_pod(run: Cells) -> Any:
    if not _is_pod(run):
        return None
    return dict.fromkeys((scene.gpus_per_node, f.parallel.gpus_per_node), run[k8s.gpus])


# -- the machine -----------------------------------------------------------------------------------


@pod.fact(scene.gpu_names, source=_SOURCE)
def gpu_of_pod(run: Cells) -> Any:
    gpu = run[k8s.gpu] if _is_pod(run) else None
    return None if gpu is None else ((GKE_NAMES.get(gpu, gpu),),)


@pod.fact(scene.instance, source=_SOURCE)
def instance_of_pod(run: Cells) -> Any:
    return run[k8s.instance] if _is_pod(run) else None


@pod.fact(f.host.ram_gib, scene.ram_limit, source="the container's memory limit")
def ram_of_pod(run: Cells) -> Any:
    limit = run[k8s.memory] if _is_pod(run) else None
    return None if limit is None else {f.host.ram_gib: limit, scene.ram_limit: "container"}


@pod.fact(f.host.shm_gib)
def shared_memory_of_pod(run: Cells) -> Any:
    if not _has(run, CONTAINER):
        return None
    if not _has(run, SHARED_MEMORY):
        run[k8s.gpus]  # where the container is given GPUs is the place to point at
        return Sourced(_DEFAULT_SHM_GIB, "a container's /dev/shm has 64 MiB")
    sizes = [size for size in (run[k8s.shm], run[k8s.memory]) if size is not None]
    if run[k8s.shm_medium] != "Memory":
        return None
    return Sourced(min(sizes, default=None), "the volume at /dev/shm")


# -- wishes ----------------------------------------------------------------------------------------


def ram_as_limit(wanted: float, run: Cells) -> Wishes | None:
    """A wish for RAM as the limit of the container; ``None`` where no pod is described."""
    return {k8s.memory: math.ceil(wanted)} if _is_pod(run) else None


def shared_memory_as_volume(wanted: float, run: Cells) -> Wishes | None:
    """A wish for shared memory as the size of the pod's volume; ``None`` without a container.

    Raises:
        CannotEdit: the pod has no such volume.
    """
    if not _has(run, CONTAINER):
        return None
    if run[k8s.shm_medium] != "Memory":
        raise CannotEdit(
            "the pod needs a volume of its own: emptyDir with medium: Memory, mounted at /dev/shm"
        )
    return {k8s.shm: math.ceil(wanted)}
