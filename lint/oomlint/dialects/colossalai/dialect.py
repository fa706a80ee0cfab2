"""Colossal-AI's applications: the command lines of ColossalChat's and Colossal-LLaMA's trainers.

Read from ColossalAI 4f9953be (0.5.0, 2026-04-09). PPO and GRPO are recognised and left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from oomlint.dialects.base import Claim, Dialect, Reference
from oomlint.dialects.block import Block
from oomlint.dialects.colossalai.keys import LORA, TABLES
from oomlint.dialects.colossalai.meaning import meaning
from oomlint.dialects.colossalai.signature import program_of_line
from oomlint.dialects.machine.launch import Launch
from oomlint.dialects.machine.launches import launches
from oomlint.documents import SHELL_SUFFIXES
from oomlint.documents.base import Document, Mapping, root_of

_LORA_FILE = "colossalai-lora"


def _adapters(launch: Launch) -> Iterator[Reference]:
    entry = launch.flag("lora_config")
    if entry is not None:
        yield from launch.reference(entry.value, _LORA_FILE)


class ColossalAi(Dialect):
    name = "colossalai"
    markers = (b"plugin", b"colossalai run")
    markers_prove = False
    suffixes = SHELL_SUFFIXES
    meaning = meaning

    def recognise(self, document: Document) -> Iterable[Claim]:
        for launch in launches(document):
            program = program_of_line(launch)
            table = TABLES.get(program or "")
            if table is not None:
                blocks = (*launch.blocks, launch.program_block(table))
                references = (*launch.scene_references, *_adapters(launch))
                yield Claim(self, "run", document, blocks, references)
            elif program is not None:
                yield Claim(self, "aside", document, ())


class ColossalAiLora(Dialect):
    """Read only where ``--lora_config`` names it."""

    name = _LORA_FILE
    suffixes = (".json",)

    def recognise(self, document: Document) -> Iterable[Claim]:
        return ()

    def adopt(self, document: Document) -> Claim | None:
        root = root_of(document)
        if not isinstance(root, Mapping):
            return None
        return Claim(self, "part", document, (Block(document, root, LORA, root.span),))
