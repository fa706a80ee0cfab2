"""SkyPilot tasks: the accelerators they ask for and the training in their ``run`` script.

Keys from SkyPilot 0.10 docs ``reference/yaml-spec``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from oomlint.dialects.base import Claim, Dialect
from oomlint.dialects.draft import Draft
from oomlint.dialects.kinds import POSITIVE, TEXT, BadValue, Kind
from oomlint.dialects.machine.fields import sky
from oomlint.dialects.machine.scene import GPU_NAMES, INSTANCE, provide_counts
from oomlint.dialects.table import Block, Row, Table
from oomlint.documents.base import Document, Mapping


class Accelerators(NamedTuple):
    """What is asked for, the same on each node."""

    name: str
    number: int


def _read_accelerators(raw: Any) -> Accelerators | None:
    """``H100``, ``A100-80GB:8``, ``{A100: 8}``; of a choice of several, nothing."""
    if isinstance(raw, dict):
        # YAML takes `{L4:8}` for a key without a value.
        pairs = [name if count is None else f"{name}:{count}" for name, count in raw.items()]
    elif isinstance(raw, list):
        pairs = [str(item) for item in raw]
    else:
        pairs = [str(raw)]
    if len(pairs) != 1:
        return None
    found = re.fullmatch(r"([\w-]+?)(?::(\d{1,4})(?:\.0)?)?", pairs[0].strip())
    return Accelerators(found[1], int(found[2] or 1)) if found else None


def _read_nodes(raw: Any) -> int | None:
    try:
        number: int = POSITIVE.read(raw)
    except BadValue:
        return None
    return number


TASK = Table(
    name="task",
    rows=(
        Row("resources.accelerators", sky.accelerators, Kind(_read_accelerators)),
        Row("resources.instance_type", sky.instance, TEXT),
        Row("num_nodes", sky.nodes, Kind(_read_nodes)),
    ),
    known_prefixes=("",),
    section="scheduler",
)

# SkyPilot's catalogue calls the smaller of two cards by the plain name (catalogs v8).
PLAIN_NAMES = {"A100": "A100-40GB", "V100": "V100-16GB"}


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


def finish_skypilot(draft: Draft) -> None:
    """Provide the nodes that the task asks for; memory is theirs, not a limit."""
    if not any(block.table is TASK for block in draft.blocks):
        return
    asked: Accelerators | None = draft.get("sky.accelerators")
    nodes = draft.get("sky.nodes", 1)
    number = None if asked is None else asked.number
    provide_counts(draft, nodes, number, "SkyPilot", "sky.nodes", "sky.accelerators")
    if asked is not None:
        name = PLAIN_NAMES.get(asked.name, asked.name)
        draft.fact(GPU_NAMES, ((name,),), "SkyPilot", "sky.accelerators")
    draft.fact(INSTANCE, draft.get("sky.instance"), "SkyPilot", "sky.instance")
