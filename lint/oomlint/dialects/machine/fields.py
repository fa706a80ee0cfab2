"""What launchers, schedulers, containers and variables say that the plan has no field for.

``scene`` is the machine that they ask for, whoever says it; ``machine`` of
:mod:`oomlint.dialects.common.fields` the one that the user names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.plan.fields import Private

if TYPE_CHECKING:
    from oomlint.dialects.machine.skypilot_keys import Accelerators
    from oomlint.dialects.machine.slurm_keys import Gres

USUAL_NODE = 8
"""How many GPUs a node is taken to have that nobody describes: as most machines that have several."""


class launch(Private, prefix="launch"):  # noqa: N801  a namespace of fields, read like ``f``
    """What starts the ranks.

    ``total_processes``: over all nodes; ``most_per_node``: on the fullest, where nodes are not
    alike. ``machines``: nodes as Accelerate counts them. ``listed_hosts``: pairs of a host and its
    number of slots, ``None`` where the list leaves it open. ``one_process``: a program that no
    launcher starts uses one GPU; false where it spreads over every visible GPU by itself
    (transformers' Trainer). ``unseen``: what decides the ranks and stands in no file, such as a
    cluster to which the command is handed; it is never read. ``by_ray``: whether Ray finds places for the ranks.
    ``pool``: GPUs that Ray is asked for in all, by groups of workers that share none with each other, where one node is
    to have them.
    """

    total_processes: int
    most_per_node: int
    machines: int
    config_file: str
    gpu_ids: str
    multi_gpu: bool
    include: str
    exclude: str
    hostfile: str
    listed_hosts: tuple[tuple[str, int | None], ...]
    hosts: str
    map_by: str
    one_process: bool
    by_ray: bool
    pool: int
    unseen: str


class scene(Private, prefix="scene"):  # noqa: N801
    """The machine that a scheduler's or container's file asks for.

    ``gpu_names``: spellings of one GPU in tiers, the most telling first: what they mean is for the
    hardware catalogue to say; where the spellings of a tier mean several GPUs, nothing is known.
    ``ram_limit``: who limits the RAM of a node: ``slurm``, ``container``, or ``slurm default`` where
    the script leaves it to the site. ``instance``: the name of a cloud's machine type.
    """

    nodes: int
    gpus_per_node: int
    gpu_names: tuple[tuple[str, ...], ...]
    ram_limit: str
    instance: str


class slurm(Private, prefix="slurm"):  # noqa: N801
    """Directives and options of Slurm; amounts of memory in GiB. ``gpu``: the type of GPU that one
    of them names."""

    nodes: int
    gres: Gres
    gpus_per_node: Gres
    gpus: Gres
    gpus_per_task: Gres
    tasks_per_node: int
    tasks: int
    cpus_per_task: int
    mem: float
    mem_per_cpu: float
    mem_per_gpu: float
    constraint: str
    gpu: str


class k8s(Private, prefix="k8s"):  # noqa: N801
    """A pod of Kubernetes; amounts of memory in GiB."""

    nodes: int
    replicas: int
    gpus: int
    gpu: str
    instance: str
    memory: float
    shm: float
    shm_medium: str


class docker(Private, prefix="docker"):  # noqa: N801
    """A container that ``docker run`` or compose starts; amounts of memory in GiB."""

    gpus: int
    memory: float
    shm: float
    ipc: str
    memlock: str
    privileged: bool


class sky(Private, prefix="sky"):  # noqa: N801
    """A task of SkyPilot."""

    accelerators: Accelerators
    instance: str
    nodes: int


class sagemaker(Private, prefix="sagemaker"):  # noqa: N801
    """A training job of SageMaker. ``transformers`` and ``torch``: the releases in its container."""

    instance: str
    nodes: int
    transformers: str
    torch: str


class beaker(Private, prefix="beaker"):  # noqa: N801
    """A job of Beaker: what each of its nodes has."""

    nodes: int
    gpus: int


class env_(Private, prefix="env"):  # noqa: N801
    """Variables of the launch that the plan has no field for."""

    nnodes: int
    nproc_per_node: int
    use_fsdp: bool
    fsdp_efficient: bool


class colab(Private, prefix="colab"):  # noqa: N801
    """What a notebook says of the machine that Colab runs it on."""

    gpu: str
