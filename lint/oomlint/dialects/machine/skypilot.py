"""SkyPilot tasks: the accelerators they ask for and the training in their ``run`` script.

Keys from SkyPilot 0.10 docs ``reference/yaml-spec``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from oomlint.dialects.base import Claim, Dialect
from oomlint.dialects.block import Block
from oomlint.dialects.machine.skypilot_keys import TASK
from oomlint.documents.base import Document, Mapping


class SkyPilot(Dialect):
    name = "skypilot"
    markers = (b"accelerators:", b"instance_type:")
    markers_prove = False
    suffixes = (".yaml", ".yml")

    def recognise(self, document: Document) -> Iterable[Claim]:
        from oomlint.dialects.machine.commands import child, claims_in, command_of
        from oomlint.documents.yaml.document import YamlDocument

        if not isinstance(document, YamlDocument):
            return
        for root in document.roots:
            resources = child(root, "resources")
            if not isinstance(root, Mapping) or not isinstance(resources, Mapping):
                continue
            environment = child(root, "envs")
            known = environment if isinstance(environment, Mapping) else None
            command = command_of(document, child(root, "run"), variables=known)
            if command is None:
                continue
            block = Block(document, root, TASK, root.entries["resources"].key_span)

            def scene(
                claim: Claim, block: Block = block, environment: object = environment
            ) -> Iterator[Block]:
                from oomlint.dialects.machine.launcher_keys import ENVIRONMENT

                if isinstance(environment, Mapping):
                    yield Block(document, environment, ENVIRONMENT, claim.anchor.span)
                yield block

            yield from claims_in(command, scene, _mounts(root))


def _mounts(root: Mapping) -> dict[str, str]:
    """``file_mounts`` of local files; buckets are not here."""
    from oomlint.dialects.machine.commands import child, text_of

    given = child(root, "file_mounts")
    entries = given.entries if isinstance(given, Mapping) else {}
    sources = {inside: text_of(entry.value) for inside, entry in entries.items()}
    return {inside: path for inside, path in sources.items() if path and "://" not in path}
