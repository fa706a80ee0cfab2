"""LightningCLI: YAML that names the classes which Lightning trains, and the lines that hand it over.

Read from lightning 2.6.6 (7f0c3436cd) ``lightning/pytorch/cli.py`` and jsonargparse 4.40: ``python train.py fit --config FILE
--trainer.devices=4``. A class is made from ``class_path`` with ``init_args``; what it makes of them stands in the project, where
it may load a language model or anything else: that alone makes a run of ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping as MappingABC, Sequence
from typing import Any

from msgspec.structs import replace

from oomlint.dialects.base import Claim, Dialect, Reference
from oomlint.dialects.block import Block, OverrideBlock
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import ref
from oomlint.dialects.entries import plain_value
from oomlint.dialects.kinds import BOOLEAN, NUMBER, Kind
from oomlint.dialects.loops.dialect import Loops
from oomlint.dialects.loops.fields import loop
from oomlint.dialects.loops.keys import CENTRE, CLASS, OPTIMIZER, WRAPPING, unwritable
from oomlint.dialects.loops.lightning import DEEPSPEED_STRATEGY, FSDP_STRATEGY, TRAINER
from oomlint.dialects.loops.meaning import meaning
from oomlint.dialects.machine.launch import Launch
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.table import Row, Table
from oomlint.dialects.trainer.tables import FROM_PRETRAINED
from oomlint.documents import SHELL_SUFFIXES, YAML_SUFFIXES
from oomlint.documents.base import (
    UNKNOWN,
    Document,
    Entry,
    Mapping,
    Scalar,
    Sequence as Items,
    roots,
)
from oomlint.documents.text import Location
from oomlint.plan.fields import f

_TRAINER = "trainer"
# Arguments of Lightning's Trainer that others' files do not have under that name (PL/trainer/trainer.py).
_OF_TRAINER = frozenset(
    {
        "strategy", "devices", "accelerator", "precision", "accumulate_grad_batches", "num_nodes",
        "num_sanity_val_steps", "limit_val_batches", "max_epochs", "max_steps",
    }
)  # fmt: skip
_PATH, _ARGUMENTS = "class_path", "init_args"
# Sections whose classes the project defines.
_CLASSES = ("model", "data")
_STRATEGIES = {
    "FSDPStrategy": "fsdp", "DeepSpeedStrategy": "deepspeed", "DDPStrategy": "ddp", "SingleDeviceStrategy": "single_device",
}  # fmt: skip
_CLASS_OF_STRATEGY = Kind(
    lambda raw: _STRATEGIES.get(str(raw).rpartition(".")[2], "other"), unwritable
)
_GIVEN = Kind(lambda raw: True if raw else None, unwritable)
_POLICY = Kind(lambda raw: "transformer" if raw else "none", WRAPPING.write)

_S = f"{_TRAINER}.strategy.{_ARGUMENTS}."


def _below(prefix: str, table: Table, *keys: str) -> Iterator[Row]:
    """Rows of a call's arguments, where they stand in the file."""
    for row in table.rows:
        if row.key in keys:
            yield Row(f"{prefix}{row.key}", row.field, row.kind, row.default, source=row.source)


CLI = Table(
    name="LightningCLI config",
    rows=(
        *_below(f"{_TRAINER}.", TRAINER, "strategy", "precision", "devices", "num_nodes", "accumulate_grad_batches"),
        Row(f"{_TRAINER}.gradient_clip_val", f.optimizer.clip_norm, NUMBER),
        Row(f"{_TRAINER}.strategy.{_PATH}", loop.strategy, _CLASS_OF_STRATEGY),
        *(replace(row, default=None) for row in _below(_S, DEEPSPEED_STRATEGY, "stage", "offload_optimizer", "offload_parameters")),
        *_below(_S, DEEPSPEED_STRATEGY, "config"),
        *_below(_S, FSDP_STRATEGY, "cpu_offload"),
        Row(f"{_S}auto_wrap_policy", f.parallel.fsdp.wrap, _POLICY),
        Row(f"{_S}activation_checkpointing_policy", loop.checkpoints, _GIVEN),
        Row(f"optimizer.{_PATH}", loop.optimizer, next(_below("", OPTIMIZER, CLASS)).kind),
        Row("optimizer.init_args.fused", f.optimizer.fused, BOOLEAN),
    ),
    known_prefixes=("",),
    section="training",
)  # fmt: skip


_OPTIONS = replace(CLI, name="LightningCLI options", section="script")
"""The same on a command line, where they are the Trainer's own: those of other loops mean what calls make of them."""


class LightningCli(Dialect):
    name = "lightning-cli"
    markers = (b"class_path", b" fit ")
    markers_prove = False
    suffixes = (*YAML_SUFFIXES, *SHELL_SUFFIXES)
    references = {ref.deepspeed: "deepspeed"}
    meaning = meaning

    def recognise(self, document: Document) -> Iterable[Claim]:
        for root in roots(document):
            if _is_config(root):
                yield self._file(document, root)
        for launch in launches(document):
            yield from self._launch(launch)

    def trains(self, run: Cells) -> bool:
        """The classes that a file names may train anything: it is a run of ours where one loads a model of language."""
        return run.has_block_of(FROM_PRETRAINED)

    def layered(self, claims: Sequence[Claim]) -> Iterable[Block]:
        """What a class takes from its arguments is what the file gives it."""
        given = {name: pair for claim in claims for name, pair in _given(claim)}
        for block in super().layered(claims):
            if block.document.source.path.endswith(".py"):
                yield from _filled_in(block, given)
            else:
                yield block

    def _file(self, document: Document, root: Mapping) -> Claim:
        at = root.entries[_TRAINER].key_span
        kind = Entry(CLASS, at, Scalar(at, "lightning", locked="it is the trainer of the file"), at)
        centre = Block(document, Mapping(at, {CLASS: kind}), CENTRE, at)
        blocks = (Block(document, root, CLI, at), centre)
        return Claim(
            self, "run", document, blocks, tuple(_modules(document, root)), framework="lightning"
        )

    def _launch(self, launch: Launch) -> Iterator[Claim]:
        config = launch.flag("config") or launch.flag("c")
        if config is None or [str(word.value) for word in launch.arguments] != ["fit"]:
            return
        value = config.value
        words = value.items if isinstance(value, Items) else (value,)
        files = tuple(
            replace(reference, decides=True)
            for word in words
            for reference in launch.reference(word, self.name)
        )
        options = OverrideBlock(launch.document, launch.flags, _OPTIONS, launch.anchor)
        references = (*launch.scene_references, *files)
        yield Claim(self, "launch", launch.document, (*launch.blocks, options), references)


def _is_config(root: Mapping) -> bool:
    trainer = root.section(_TRAINER)
    if trainer is None or not _OF_TRAINER & set(trainer.entries):
        return False
    return any(_class_of(root, section) for section in _CLASSES)


def _class_of(root: Mapping, section: str) -> str:
    made = root.section(section)
    entry = None if made is None else made.entries.get(_PATH)
    said = entry.value.value if entry is not None and isinstance(entry.value, Scalar) else None
    return said if isinstance(said, str) and "." in said else ""


def _modules(document: Document, root: Mapping) -> Iterator[Reference]:
    """The files of the classes, from the project's root or from its folder of sources."""
    where = Location(document.source.path, root.entries[_TRAINER].key_span)
    for section in _CLASSES:
        module, _, name = _class_of(root, section).rpartition(".")
        path = module.replace(".", "/") + ".py"
        for found in (path, f"src/{path}") if module else ():
            yield Reference(found, where, Loops.name, optional=True, claim=name, adopts=False)


def _given(claim: Claim) -> Iterator[tuple[str, tuple[Document, Entry]]]:
    """The arguments of the classes that a config names."""
    for root in roots(claim.document) if isinstance(claim.dialect, LightningCli) else ():
        for section in _CLASSES:
            made = root.section(section)
            arguments = None if made is None else made.section(_ARGUMENTS)
            for key, entry in () if arguments is None else arguments.entries.items():
                yield key, (claim.document, entry)


# ``model_name``, ``self.model_name`` and ``self.hparams.model_name`` are an argument of the class that is called so.
_ARGUMENT = re.compile(r"(?:self\.(?:hparams\.|_)?)?(\w+)")


def _filled_in(block: Block, given: MappingABC[str, tuple[Document, Entry]]) -> Iterator[Block]:
    """A block of a class without what it takes from its arguments, which stands in a block of the config's."""
    text = block.document.source.text
    taken: dict[str, tuple[Document, Entry]] = {}
    for key, entry in block.mapping.entries.items():
        span = entry.value.span
        named = _ARGUMENT.fullmatch(text[span.start : span.end])
        is_open = plain_value(entry.value, "yaml12") is UNKNOWN
        if is_open and named is not None and named[1] in given:
            taken[key] = given[named[1]]
    kept = {key: entry for key, entry in block.mapping.entries.items() if key not in taken}
    yield replace(block, mapping=replace(block.mapping, entries=kept)) if taken else block
    for key, (document, entry) in taken.items():
        said: Any = replace(entry, key=key)
        yield Block(document, Mapping(entry.span, {key: said}), block.table, entry.key_span)
