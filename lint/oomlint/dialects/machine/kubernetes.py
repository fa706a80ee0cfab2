"""Kubernetes: the container that trains, what it may use, and on which machine it lands.

Reads pods wherever they are nested (Job, Deployment, Kubeflow's PyTorchJob, MPIJob and
TrainJob, JobSet, RayJob). Meanings from the Kubernetes API reference 1.31, Kubeflow training
operator 1.8 (``pytorch_types.go``) and trainer 2.0 (``trainjob_types.go``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from oomlint.dialects.base import Claim, Dialect
from oomlint.dialects.block import Block
from oomlint.dialects.machine.commands import child, claims_in, command_of, items_of, text_of
from oomlint.dialects.machine.kubernetes_keys import (
    CONTAINER,
    GPU_RESOURCES,
    JOB,
    REPLICAS,
    SELECTOR,
    SHARED_MEMORY,
    TRAINER,
)
from oomlint.dialects.table import Table
from oomlint.documents.base import Document, Entry, Mapping, Node, Sequence
from oomlint.documents.yaml.document import YamlDocument


class _Pod(Struct, frozen=True):
    """A pod's description with what it is nested in, the outermost first."""

    spec: Mapping
    around: tuple[Mapping, ...] = ()


class Kubernetes(Dialect):
    name = "kubernetes"
    # What else is a pod's business is none of ours, nor whether it can be parsed.
    markers = tuple(name.encode() for name in GPU_RESOURCES)
    markers_prove = False
    suffixes = (".yaml", ".yml")

    def recognise(self, document: Document) -> Iterable[Claim]:
        if not isinstance(document, YamlDocument):
            return
        for root in document.roots:
            if isinstance(root, Mapping) and {"apiVersion", "kind"} <= set(root.entries):
                yield from _claims(document, root)


def _claims(document: YamlDocument, root: Mapping) -> Iterator[Claim]:
    trainer = child(root, "spec", "trainer")
    if text_of(child(root, "kind")) == "TrainJob" and isinstance(trainer, Mapping):
        yield from _container_claims(document, trainer, (_block(document, trainer, TRAINER),))
        return
    pods = list(_pods(root, ()))
    gpu_pods = [pod for pod in pods if any(_asks_for_gpus(c) for c in _containers(pod))]
    for pod in pods:
        for container in _containers(pod):
            # An MPI launcher, a Ray head: the GPUs are those of the workers.
            home = pod if _asks_for_gpus(container) or not gpu_pods else gpu_pods[-1]
            owner = container
            if home is not pod:
                owner = next(c for c in _containers(home) if _asks_for_gpus(c))
            blocks = tuple(_scene(document, root, home, owner, gpu_pods))
            found = list(_container_claims(document, container, blocks))
            yield from found
            if found:
                return  # the other replicas of a job run the same command
    entrypoint = child(root, "spec", "entrypoint")
    command = command_of(document, entrypoint)
    if command is not None and gpu_pods:
        owner = next(c for c in _containers(gpu_pods[-1]) if _asks_for_gpus(c))
        blocks = tuple(_scene(document, root, gpu_pods[-1], owner, gpu_pods))
        yield from claims_in(command, lambda claim: blocks)


def _container_claims(
    document: YamlDocument, container: Mapping, blocks: tuple[Block, ...]
) -> Iterator[Claim]:
    environment = _environment(container)
    words = (child(container, "command"), child(container, "args"))
    command = command_of(document, *words, variables=environment)
    if command is None:
        return

    def scene(claim: Claim) -> Iterator[Block]:
        from oomlint.dialects.machine.launcher_keys import ENVIRONMENT

        if environment.entries:
            yield Block(document, environment, ENVIRONMENT, claim.anchor.span)
        yield from blocks

    yield from claims_in(command, scene)


def _environment(container: Mapping) -> Mapping:
    """``env`` as a mapping from names to the values that stand there."""
    entries: dict[str, Entry] = {}
    for item in items_of(child(container, "env")):
        name, value = child(item, "name"), child(item, "value")
        if name is not None and value is not None:
            entries[text_of(name)] = Entry(text_of(name), name.span, value, item.span)
    return Mapping(container.span, entries)


def _block(document: YamlDocument, mapping: Mapping, table: Table) -> Block:
    first = next(iter(mapping.entries.values()), None)
    return Block(document, mapping, table, first.key_span if first else mapping.span)


def _pods(node: Node, around: tuple[Mapping, ...]) -> Iterator[_Pod]:
    """Every pod description below a node."""
    if isinstance(node, Sequence):
        for item in node.items:
            yield from _pods(item, around)
    elif isinstance(node, Mapping):
        if isinstance(child(node, "containers"), Sequence):
            yield _Pod(node, around)
            return
        for entry in node.entries.values():
            yield from _pods(entry.value, (*around, node))


def _containers(pod: _Pod) -> Iterator[Mapping]:
    for item in items_of(child(pod.spec, "containers")):
        if isinstance(item, Mapping):
            yield item


def _asks_for_gpus(container: Mapping) -> bool:
    levels = (child(container, "resources", level) for level in ("limits", "requests"))
    return any(child(level, gpu) is not None for level in levels for gpu in GPU_RESOURCES)


def _scene(
    document: YamlDocument, root: Mapping, pod: _Pod, container: Mapping, gpu_pods: list[_Pod]
) -> Iterator[Block]:
    yield _block(document, container, CONTAINER)
    selector = child(pod.spec, "nodeSelector")
    if isinstance(selector, Mapping):
        yield _block(document, selector, SELECTOR)
    required = _required_labels(pod.spec)
    if required.entries:
        yield _block(document, required, SELECTOR)
    volume = _shared_memory(pod.spec, container)
    if volume is not None:
        yield _block(document, volume, SHARED_MEMORY)
    if text_of(child(root, "kind")) in ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"):
        return
    for outer in pod.around:
        if JOB.names.keys() & outer.entries.keys():
            yield _block(document, outer, JOB)
    for other in gpu_pods:
        replicas = next((m for m in reversed(other.around) if "replicas" in m.entries), None)
        if replicas is not None:
            yield _block(document, replicas, REPLICAS)


def _required_labels(pod: Mapping) -> Mapping:
    """Labels that a node affinity demands with one value."""
    terms = child(
        pod, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution",
        "nodeSelectorTerms",
    )  # fmt: skip
    entries: dict[str, Entry] = {}
    if len(items_of(terms)) == 1:
        for rule in items_of(child(items_of(terms)[0], "matchExpressions")):
            key, values = child(rule, "key"), items_of(child(rule, "values"))
            if key is not None and len(values) == 1 and text_of(child(rule, "operator")) == "In":
                entries[text_of(key)] = Entry(text_of(key), key.span, values[0], rule.span)
    return Mapping(pod.span, entries)


def _shared_memory(pod: Mapping, container: Mapping) -> Mapping | None:
    """The volume that is mounted at ``/dev/shm``, or the whole container's where none is."""
    for mount in items_of(child(container, "volumeMounts")):
        if text_of(child(mount, "mountPath")).rstrip("/") != "/dev/shm":
            continue
        name = text_of(child(mount, "name"))
        for volume in items_of(child(pod, "volumes")):
            if text_of(child(volume, "name")) == name:
                inside = child(volume, "emptyDir")
                return inside if isinstance(inside, Mapping) else Mapping(volume.span, {})
        return Mapping(mount.span, {})
    if text_of(child(pod, "hostIPC")).lower() == "true":
        return Mapping(pod.span, {})
    return None
