"""Models that a project makes itself: a run starts from what another one saves.

The script that trains with DPO names the folder that its SFT wrote. There is no ``config.json`` yet when
the files are linted, but the model has the dimensions of the one that the earlier run starts from. Such a
run is looked for in the same script, then in those of the same folder: further away a name like ``output``
says nothing. Commands that train nothing, and write a folder from a model that they are told, come behind those that
do; last the programs of the folder, by what they save, merge and download: where they do by default a command may
have them do otherwise. What both tell is assumed.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice

from msgspec.structs import replace

from oomlint.dialects.common.backend import ADAPTER_METHODS
from oomlint.documents import HELD_LANGUAGES, PYTHON_SUFFIXES, SHELL_SUFFIXES, kind_of
from oomlint.documents.base import PythonDocument
from oomlint.errors import FileError
from oomlint.files.workspace import Workspace
from oomlint.models.facts import ModelFacts
from oomlint.runs.documented_launches import LinkerReading
from oomlint.runs.merges import Saved, derived_facts, plain_folder, saved_by_commands
from oomlint.runs.run import Run

# A notebook is a program as well.
_PROGRAMS = (
    *PYTHON_SUFFIXES,
    *(kind for kind, held in HELD_LANGUAGES.items() if not set(PYTHON_SUFFIXES).isdisjoint(held)),
)
# A folder with more scripts than these is a collection of runs of one kind.
_MOST_SCRIPTS = 24
_MOST_LINES = 24
# A run may start from what one saved that started from what a third saved.
_LONGEST = 4
# Parts of a path that stand in any script.
_SAYS_LITTLE = 4
# What the weights of a checkpoint may be kept in.
_KEPT_IN = ("bf16", "fp16", "fp32")


class Lineage:
    """What the runs of a project save, by the script that starts them."""

    def __init__(self, workspace: Workspace, reading: LinkerReading) -> None:
        self.workspace = workspace
        self.reading = reading
        self.is_reading = False
        """Whether runs are being read for what they save: what they start from is asked later."""
        self._saved: dict[str, tuple[Saved, ...]] = {}

    def made(self, model: str, script: str) -> ModelFacts | None:
        """The facts of a model that a run beside ``script`` saves under this path."""
        return None if self.is_reading else self._made(model, script, _LONGEST)

    def _made(self, model: str, script: str, depth: int) -> ModelFacts | None:
        if not depth or not _is_path(model):
            return None
        for name in self._scripts(model, script):
            makers = [each for each in self._of(name) if _holds(each.folder, model)]
            longest = max((len(each.folder) for each in makers), default=0)
            known = [
                each.facts or self._made(each.start, name, depth - 1)
                for each in makers
                if len(each.folder) == longest
            ]
            if known:
                return _one_of(known)
        return None

    def _scripts(self, model: str, script: str) -> Iterator[str]:
        """The script itself, then those of its folder and its programs that say a part of the path."""
        yield script
        parts = [part.encode() for part in model.split("/") if len(part) >= _SAYS_LITTLE]
        beside = (
            name
            for suffix in (*SHELL_SUFFIXES, *_PROGRAMS)
            for name in self.workspace.beside(
                posixpath.join(posixpath.dirname(script), f"_{suffix}")
            )
            if name != script
        )
        for name in islice(beside, _MOST_SCRIPTS):
            data = self.workspace.read_or_none(name) or b""
            if any(part in data for part in parts):
                yield name

    def _of(self, script: str) -> tuple[Saved, ...]:
        if script not in self._saved:
            self.is_reading = True
            try:
                self._saved[script] = tuple(self._read(script))
            finally:
                self.is_reading = False
        return self._saved[script]

    def _read(self, script: str) -> Iterator[Saved]:
        if kind_of(script) in _PROGRAMS:
            yield from self._saved_by_program(script)
            return
        written: set[str] = set()
        for claim in islice(self.reading.launches(script), _MOST_LINES):
            run = self.reading.built(claim)
            folder, start = run.plan.save.dir, run.plan.model.id
            if folder and start and not _holds(folder, start):
                written.add(plain_folder(folder))
                yield Saved(run.name, plain_folder(folder), start, _kept(run))
        with suppress(FileError):
            document = self.workspace.document(script)
            for saved in () if document is None else saved_by_commands(document):
                if saved.folder not in written and not _holds(saved.folder, saved.start):
                    yield saved

    def _saved_by_program(self, name: str) -> Iterator[Saved]:
        with suppress(FileError):
            document = self.workspace.document(name)
            for fact in document.facts if isinstance(document, PythonDocument) else ():
                if fact.kind == "saves-model":
                    folder, start = plain_folder(fact.detail["folder"]), fact.detail["model"]
                    facts = derived_facts(name, start, is_adapter=fact.detail["adapter"])
                    if not _holds(folder, start):
                        yield Saved(name, folder, start, facts)


def _one_of(known: Sequence[ModelFacts | None]) -> ModelFacts | None:
    """The model that all of several runs are said to save under one name, if it is one."""
    first = known[0]
    if first is None or any(each is None or each.dims != first.dims for each in known):
        return None
    return first


def _kept(run: Run) -> ModelFacts | None:
    """The facts of what a run saves, where those of the model that it starts from are known."""
    base, plan = run.model, run.plan
    if base is None:
        return None
    source = f"{run.name} saves it, and starts from {base.id}: {base.source}"
    confidence = "derived" if base.confidence == "verified" else base.confidence
    if plan.trainable.method in ADAPTER_METHODS:
        return replace(
            base, confidence=confidence, source=source, saved_by=run.name, is_adapter=True
        )
    kept = plan.precision.param
    return replace(
        base,
        confidence=confidence,
        source=source,
        saved_by=run.name,
        native_quant="none",
        ckpt_dtype=kept if kept in _KEPT_IN else base.ckpt_dtype,
    )


def _is_path(model: str) -> bool:
    """Whether a name can be that of a folder which a run writes; a name of the Hub can."""
    return bool(model) and not any(sign in model for sign in "$<>{}") and "://" not in model


def _holds(folder: str, model: str) -> bool:
    """Whether a path is a folder that is written, or lies in it: ``out/checkpoint-500``."""
    kept, asked = plain_folder(folder), plain_folder(model)
    return kept not in (".", "/") and (asked == kept or asked.startswith(f"{kept}/"))
