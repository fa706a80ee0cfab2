"""Containers: what their options mean to a run, and docker compose files.

Options of ``docker run`` from docker's CLI reference 27, of compose from the Compose
Specification. Where scripts say ``docker run`` is told in ``docker_run.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from msgspec.structs import replace

from oomlint.dialects.base import Claim, Dialect, Reference
from oomlint.dialects.block import Block
from oomlint.dialects.machine.containers_keys import DEVICES, SERVICE
from oomlint.documents.base import Document, Entry, Mapping, Node, Scalar
from oomlint.documents.text import Location, Span


class Compose(Dialect):
    name = "compose"
    # Services are everywhere; those with GPUs say so in one of these ways.
    markers = (b"driver: nvidia", b"capabilities:", b"runtime: nvidia", b"gpus:", b"shm_size:")
    markers_prove = False
    suffixes = (".yaml", ".yml")

    def recognise(self, document: Document) -> Iterable[Claim]:
        from oomlint.dialects.machine.commands import child, claims_in, command_of
        from oomlint.documents.yaml.document import YamlDocument

        if not isinstance(document, YamlDocument) or not document.roots:
            return
        services = child(document.roots[0], "services")
        for entry in services.entries.values() if isinstance(services, Mapping) else ():
            service = entry.value
            if not isinstance(service, Mapping):
                continue
            entrypoint, own = child(service, "entrypoint"), child(service, "command")
            # Compose Specification, "command": a string is split into words as a shell does it, which runs no shell.
            read = partial(command_of, document, is_one_command=True)
            command = read(own if entrypoint is None else entrypoint)
            if entrypoint is not None and own is not None:
                command = read(entrypoint, own) or read(own)
            if command is None:
                continue
            blocks = tuple(_service_blocks(document, service, entry.key_span))
            environment = _environment(service)

            def scene(
                claim: Claim,
                blocks: tuple[Block, ...] = blocks,
                environment: Mapping = environment,
            ) -> Iterator[Block]:
                from oomlint.dialects.machine.launcher_keys import ENVIRONMENT

                if environment.entries:
                    yield Block(document, environment, ENVIRONMENT, claim.anchor.span)
                yield from blocks

            variables = tuple(_env_files(document, service))
            for claim in claims_in(command, scene, _mounts(service)):
                yield replace(claim, references=(*variables, *claim.references))


def _service_blocks(document: Document, service: Mapping, anchor: Span) -> Iterator[Block]:
    from oomlint.dialects.machine.commands import child, items_of

    yield Block(document, service, SERVICE, anchor)
    for device in items_of(child(service, "deploy", "resources", "reservations", "devices")):
        if isinstance(device, Mapping):
            yield Block(document, device, DEVICES, device.span)


def _environment(service: Mapping) -> Mapping:
    """``environment`` as a mapping; of its other form, a list of texts, nothing can be edited."""
    from oomlint.dialects.machine.commands import child, items_of, text_of

    given = child(service, "environment")
    if isinstance(given, Mapping):
        return given
    entries: dict[str, Entry] = {}
    for item in items_of(given):
        name, equals, value = text_of(item).partition("=")
        if equals:
            scalar = Scalar(item.span, value, locked="it stands in a text with its name")
            entries[name] = Entry(name, item.span, scalar, item.span)
    return Mapping(service.span, entries)


def _env_files(document: Document, service: Mapping) -> Iterator[Reference]:
    """``env_file``: a path, a list of paths, or of mappings with one (Compose Specification)."""
    from oomlint.dialects.machine.commands import child, items_of

    given = child(service, "env_file")
    for item in (given,) if isinstance(given, Scalar) else items_of(given):
        path = child(item, "path") if isinstance(item, Mapping) else item
        if path is not None:
            yield from env_file(document, path)


def _mounts(service: Mapping) -> dict[str, str]:
    """Folders that are bound into the container: ``./configs:/configs:ro`` or its long form."""
    from oomlint.dialects.machine.commands import child, items_of, text_of

    found: dict[str, str] = {}
    for volume in items_of(child(service, "volumes")):
        source, _, rest = text_of(volume).partition(":")
        target = rest.partition(":")[0]
        if isinstance(volume, Mapping):
            source, target = text_of(child(volume, "source")), text_of(child(volume, "target"))
        if source.startswith((".", "/", "~")) and target.startswith("/"):
            found[target] = source
    return found


def env_file(document: Document, node: Node) -> Iterator[Reference]:
    """It is often kept out of a repository, as it holds passwords."""
    if isinstance(node, Scalar) and isinstance(node.value, str):
        where = Location(document.source.path, node.span)
        yield Reference(node.value, where, "env-file", optional=True)
