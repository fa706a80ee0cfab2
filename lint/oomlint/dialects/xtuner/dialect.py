"""xtuner: Python files of settings, and ``xtuner train``, which starts them.

Read from InternLM/xtuner v0.1.21 (2024-06-17) and v0.1.23; ``XT`` below is its ``xtuner`` package.
mmengine runs such a file and builds what its ``dict(type=…)`` name (XT/tools/train.py); here it is read
and never run. From v1.0 on xtuner is another program.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from oomlint.dialects.base import Claim, Dialect, Reference
from oomlint.dialects.block import Block
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import ref
from oomlint.dialects.deepspeed.fixes import swap_preset
from oomlint.dialects.machine.launch import Launch, place
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.meaning import Wishes, expressed, writable
from oomlint.dialects.xtuner.keys import COMMAND, XTUNER
from oomlint.dialects.xtuner.meaning import meaning
from oomlint.dialects.xtuner.shipped import shipped_config
from oomlint.documents import PYTHON_SUFFIXES, SHELL_SUFFIXES
from oomlint.documents.base import Document, Mapping, PythonDocument
from oomlint.documents.text import Location, Source, Span

# What a config of xtuner's has, in whatever order (XT/configs).
_SETS = re.compile(r"^model = dict\(", re.MULTILINE)
_TRAINS = re.compile(r"^(?:optim_wrapper|train_cfg|train_dataloader) = dict\(", re.MULTILINE)
_IMPORTS = re.compile(r"^from xtuner\.", re.MULTILINE)
# XT/model: what trains a language model alone. Others have a tower of pictures beside it.
_MODELS = frozenset({"SupervisedFinetune", "DPO", "ORPO", "RewardModel"})
# ``with read_base(): from .base import *`` (mmengine Config._parse_lazy_import).
_BASE = re.compile(r"^with read_base\(\):\n(?P<lines>(?:[ \t]+.*\n?)+)", re.MULTILINE)
_FROM = re.compile(r"from (\.+)([\w.]*) import")


class Xtuner(Dialect):
    name = "xtuner"
    markers = (b"xtuner",)
    markers_prove = False
    suffixes = (*PYTHON_SUFFIXES, *SHELL_SUFFIXES)
    only_marked = PYTHON_SUFFIXES
    references = {ref.deepspeed: "deepspeed"}
    launcher_may_shard = True
    meaning = meaning

    def recognise(self, document: Document) -> Iterable[Claim]:
        text = document.source.text
        if isinstance(document, PythonDocument) and _IMPORTS.search(text) and _SETS.search(text):
            yield from self._file(document)
        for launch in launches(document):
            claim = self._launch(launch)
            if claim is not None:
                yield claim

    def adopt(self, document: Document) -> Claim | None:
        """A file that another one builds upon, or that a launch line names."""
        if not isinstance(document, PythonDocument):
            return None
        block = _block(document)
        return None if block is None else Claim(self, "part", document, (block,), _bases(document))

    def preset(self, reference: Reference) -> Claim | None:
        """A config that xtuner brings along, by its name."""
        name = reference.path.removesuffix(".py")
        text = shipped_config(name)
        if text is None:
            return None
        from oomlint.documents.json import parse_json

        document = parse_json(Source(reference.path, text))
        root = document.root
        assert isinstance(root, Mapping)
        why = (
            f"{name} is a config that xtuner brings along; `xtuner copy-cfg` makes a copy to change"
        )
        anchor = root.entries["model"].key_span
        where = reference.location
        block = Block(document, root, XTUNER, anchor, locked=why, referred=where)
        return Claim(self, "part", document, (block,))

    def _file(self, document: Document) -> Iterator[Claim]:
        block = _block(document)
        if block is None:
            return
        references = _bases(document)
        is_other = _class_of(block.mapping) not in _MODELS and not references
        if is_other or not _TRAINS.search(document.source.text):
            yield Claim(self, "aside", document, ())
        else:
            yield Claim(self, "run", document, (block,), references)

    def _launch(self, launch: Launch) -> Claim | None:
        words = [word for word in launch.arguments if isinstance(word.value, str)]
        if launch.stem == "xtuner" and words:
            command, *words = words
            if command.value != "train":
                return Claim(self, "aside", launch.document, ())
        elif not launch.name.endswith("xtuner/tools/train.py"):
            return None
        if not words:
            return None
        document, path = launch.document, str(words[0].value)
        where = Location(document.source.path, place(words[0]))
        # A name without a suffix is that of a config which xtuner brings along.
        named = path.endswith(".py")
        config = Reference(path if named else f"{path}.py", where, self.name, optional=not named)
        blocks = (*launch.blocks, launch.program_block(COMMAND))
        changed = launch.command.assignments
        if changed.entries:
            why = "--cfg-options lays it over the config"
            blocks = (*blocks, Block(document, changed, XTUNER, launch.anchor, locked=why))
        references = (*launch.scene_references, config)
        return Claim(self, "launch", document, blocks, references)

    def express(self, changes: Wishes, run: Cells) -> dict[Any, Any]:
        return writable(swap_preset(expressed(changes, run), run), run, self.name)


def _block(document: Document) -> Block | None:
    from oomlint.documents.python.assignments import settings_of
    from oomlint.documents.python.document import PythonScript

    if not isinstance(document, PythonScript):
        return None
    settings = settings_of(document)
    first = settings.entries.get("model") or next(iter(settings.entries.values()), None)
    return None if first is None else Block(document, settings, XTUNER, first.key_span)


def _class_of(settings: Mapping) -> str:
    """The class that ``model = dict(type=…)`` names."""
    named = settings.said("model", "type")
    return "" if named is None else str(named).rpartition(".")[2]


def _bases(document: Document) -> tuple[Reference, ...]:
    """The files that a config builds upon, seen from its folder."""
    found = _BASE.search(document.source.text)
    if found is None:
        return ()
    where = Location(document.source.path, Span(found.start(), found.end()))
    return tuple(
        Reference("../" * (len(dots) - 1) + name.replace(".", "/") + ".py", where, Xtuner.name)
        for dots, name in _FROM.findall(found["lines"])
    )
