"""Keys of Kubernetes' objects: what a pod may use, where it lands, and how many of it there are.

Meanings from the Kubernetes API reference 1.31, Kubeflow training operator 1.8
(``pytorch_types.go``) and trainer 2.0 (``trainjob_types.go``).
"""

from __future__ import annotations

import math
from typing import Any

from oomlint.dialects.kinds import TEXT, Kind
from oomlint.dialects.machine.fields import k8s
from oomlint.dialects.machine.memory_sizes import read_gib
from oomlint.dialects.table import Row, Table
from oomlint.plan.fields import f


def _read_quantity(raw: Any) -> float | None:
    """GiB of ``64Gi``, ``64G`` (10**9 bytes) or bytes."""
    return read_gib(raw, decimal=True)


def _write_quantity(value: Any) -> str:
    whole = float(value).is_integer()
    return f"{int(value)}Gi" if whole else f"{math.ceil(value * 1024)}Mi"


def read_number(raw: Any) -> int | None:
    text = str(raw).strip()
    return int(text) if text.isdigit() and len(text) < 7 and int(text) else None


_QUANTITY = Kind(_read_quantity, _write_quantity)
_NUMBER = Kind(read_number)

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi", "huawei.com/Ascend910")


def _resources(prefix: str) -> tuple[Row, ...]:
    names = [f"{prefix}.{level}." for level in ("limits", "requests")]
    gpus = [name + gpu for name in names for gpu in GPU_RESOURCES]
    return (
        Row(gpus[0], k8s.gpus, _NUMBER, aliases=tuple(gpus[1:])),
        Row(f"{prefix}.limits.memory", k8s.memory, _QUANTITY),
    )


_EVERYTHING_ELSE = ("",)

CONTAINER = Table(
    name="container",
    rows=_resources("resources"),
    known_prefixes=_EVERYTHING_ELSE,
    section="scheduler",
)

# trainer 2.0 pkg/apis/trainer/v1alpha1/trainjob_types.go Trainer.
TRAINER = Table(
    name="trainer",
    rows=(
        *_resources("resourcesPerNode"),
        Row("numNodes", k8s.nodes, _NUMBER),
        Row("numProcPerNode", f.parallel.gpus_per_node, _NUMBER),
    ),
    known_prefixes=_EVERYTHING_ELSE,
    section="scheduler",
)

# Labels that cloud providers, NVIDIA's GPU feature discovery and autoscalers put on nodes.
_GPU_LABELS = (
    "nvidia.com/gpu.product",
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "eks.amazonaws.com/instance-gpu-name",
    "gpu.nvidia.com/class",
    "gpu.nvidia.com/model",
    "amd.com/gpu.product-name",
    "accelerator",
)
_INSTANCE_LABELS = (
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance_type",
)

SELECTOR = Table(
    name="nodeSelector",
    rows=(
        Row(_GPU_LABELS[0], k8s.gpu, TEXT, aliases=_GPU_LABELS[1:]),
        Row(_INSTANCE_LABELS[0], k8s.instance, TEXT, aliases=_INSTANCE_LABELS[1:]),
    ),
    known_prefixes=_EVERYTHING_ELSE,
    section="scheduler",
)

SHARED_MEMORY = Table(
    name="emptyDir",
    rows=(Row("medium", k8s.shm_medium, TEXT), Row("sizeLimit", k8s.shm, _QUANTITY)),
    known_prefixes=_EVERYTHING_ELSE,
    section="scheduler",
)

# What says how many pods of a kind there are; a Deployment's replicas know nothing of each other.
JOB = Table(
    name="job",
    rows=(
        Row("parallelism", k8s.nodes, _NUMBER),
        Row("nprocPerNode", f.parallel.gpus_per_node, _NUMBER, aliases=("slotsPerWorker",)),
    ),
    known_prefixes=_EVERYTHING_ELSE,
    section="scheduler",
)
REPLICAS = Table(
    name="replicas",
    rows=(Row("replicas", k8s.replicas, _NUMBER),),
    known_prefixes=_EVERYTHING_ELSE,
    section="scheduler",
)

# GKE's names of GPUs where they are not those of the cards (cloud.google.com/kubernetes-engine,
# "About GPUs in GKE"): the first A100 there is the one of 40 GB.
GKE_NAMES = {
    "nvidia-tesla-a100": "A100-40GB",
    "nvidia-h100-mega-80gb": "H100-80GB",
    "nvidia-tesla-v100": "V100-16GB",
}
