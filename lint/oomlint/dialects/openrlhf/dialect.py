"""OpenRLHF: the command lines of ``openrlhf.cli.train_*``, dotted options and flat ones of old.

Read from OpenRLHF 3c3be623 (0.11.0, 2026-08-13) and the tags v0.3.8 to v0.10.4. Options are
argparse's: unknown ones are refused, and switches have no value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from oomlint.dialects.base import Claim, Dialect, Reference
from oomlint.dialects.colossalai.signature import program_of_line
from oomlint.dialects.machine.launch import Launch
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.openrlhf.keys import TABLES
from oomlint.dialects.openrlhf.meaning import meaning
from oomlint.documents import SHELL_SUFFIXES
from oomlint.documents.base import Document
from oomlint.documents.text import Location

_MODULE = re.compile(r"(?:^|.*\.)openrlhf\.cli\.(\w+)$")
_OWN = frozenset(
    {
        "pretrain", "micro_train_batch_size", "zero_stage", "train_batch_size", "packing_samples",
        "ckpt_path", "adam_offload", "max_epochs",
    }
)  # fmt: skip


def _started_program(launch: Launch) -> str | None:
    """The part of ``openrlhf.cli`` that a command starts, behind ``ray job submit`` too."""
    for name in _modules(launch):
        found = _MODULE.match(name)
        if found:
            return found[1]
    # Before 0.4 the scripts lay in examples/.
    is_own = len(_OWN & set(launch.flags.entries)) >= 3 and program_of_line(launch) is None
    return launch.stem if launch.stem.startswith("train_") and is_own else None


def _modules(launch: Launch) -> Iterator[str]:
    """The words of a command as modules: one of them is started."""
    for word in (launch.name, *(str(word.value) for word in launch.arguments)):
        yield word.removesuffix(".py").replace("/", ".")


def _own_program(launch: Launch, program: str) -> Iterator[Reference]:
    """The file of the started program, in a project that carries its own OpenRLHF."""
    where = Location(launch.document.source.path, launch.anchor)
    for name in _modules(launch):
        if name.rpartition(".")[2] == program:
            yield Reference(name.replace(".", "/") + ".py", where, OpenRlhf.name, optional=True)


class OpenRlhf(Dialect):
    name = "openrlhf"
    packages = ("openrlhf",)
    markers = (b"openrlhf", b"micro_train_batch_size")
    suffixes = SHELL_SUFFIXES
    declares_all = True
    meaning = meaning

    def recognise(self, document: Document) -> Iterable[Claim]:
        for launch in launches(document):
            program = _started_program(launch)
            if program is None:
                continue
            dotted = any("." in key for key in launch.flags.entries)
            table = TABLES.get((program.removeprefix("train_"), dotted))
            if table is None or not program.startswith("train_"):
                yield Claim(self, "aside", document, ())
            else:
                blocks = (*launch.blocks, launch.program_block(table))
                references = (*launch.scene_references, *_own_program(launch, program))
                yield Claim(self, "run", document, blocks, references)
