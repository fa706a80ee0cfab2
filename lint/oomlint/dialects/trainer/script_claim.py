"""The claim on one run of a script: its calls as blocks, in rising precedence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from msgspec.structs import replace

from oomlint.dialects.base import Claim, Dialect
from oomlint.dialects.block import Block
from oomlint.dialects.common.config_values import with_files
from oomlint.dialects.machine.colab import machine_of_notebook
from oomlint.dialects.machine.own_devices import devices_of_script
from oomlint.dialects.machine.ray_train import ray_workers
from oomlint.dialects.table import Table
from oomlint.dialects.trainer.adapter_calls import adapts_as_told
from oomlint.dialects.trainer.call_arguments import is_of_library
from oomlint.dialects.trainer.own_classes import of_library
from oomlint.dialects.trainer.script import OF_TRAINING, ScriptRun
from oomlint.dialects.trainer.tables import (
    ASSIGNED,
    DEFAULTS,
    EARLY_FROM_PRETRAINED,
    FROM_PRETRAINED,
    FROZEN_TOWER,
    LOADED_SETS,
    LOADING_TRAINER_CALL,
    SCALED_PICTURES,
    TOLD_OF_ADAPTER,
    TRAINER_CALL,
    WITH_REFERENCE,
)
from oomlint.documents.base import (
    Call,
    Document,
    Entry,
    Mapping,
    PythonDocument,
    Scalar,
    Sequence as Items,
)
from oomlint.documents.python.nodes import PythonScalar
from oomlint.documents.text import Span

# TRL 1.16 trainer/dpo_trainer.py and kto_trainer.py, and what is made of them.
_COMPARES = re.compile(r"(DPO|KTO)Trainer$")


def script_claim(
    dialect: Dialect,
    document: Document,
    run: ScriptRun,
    config_table: Table,
    *,
    model_table: Table | None = None,
) -> Claim:
    """The claim on one run of a script; blocks in rising precedence. It is named after the
    line of its trainer where the script has several. ``model_table`` reads the call that loads
    the model, where that is not transformers' own."""
    blocks: list[Block] = []
    if run.config is None:
        blocks += _option_defaults(document)
    if run.model is not None:
        early = run.config is not None and run.model.order < run.config.order
        table = model_table or (EARLY_FROM_PRETRAINED if early else FROM_PRETRAINED)
        blocks.append(_block(document, run.model, table))
    blocks += [_block(document, call, table) for call, table in run.others]
    if run.config is not None:
        is_plain = of_library(run.config.callee, run.own).endswith("TrainingArguments")
        made = PlainArguments if is_plain else Block
        table = _as_of_class(config_table, run, document)
        blocks.append(_block(document, run.config, table, made))
    if run.trainer is not None:
        table = LOADING_TRAINER_CALL if run.model is None else TRAINER_CALL
        if _COMPARES.search(run.trainer.callee):
            table = WITH_REFERENCE[table.name]
        if adapts_as_told(run.trainer, document):
            table = TOLD_OF_ADAPTER[table.name]
        blocks.append(_block(document, run.trainer, table))
    blocks += (Block(document, s.arguments, ASSIGNED, s.span) for s in assigned_in(document))
    blocks += (*_told_of_vision(document), *_loaded_sets(document))
    blocks += (*machine_of_notebook(document), *ray_workers(document), *devices_of_script(document))
    # Without a config call the arguments come from a command line: no run of its own.
    name = ""
    centre = run.trainer or run.config
    if run.among > 1 and centre is not None:
        line, _ = document.source.position(centre.span.start)
        name = f"{document.source.path}:{line}"
    kind: Literal["aside", "run"] = "aside" if run.config is None else "run"
    merges = kind == "aside" and any(f.kind == "merges-adapter" for f in document.facts)
    return Claim(dialect, kind, document, tuple(with_files(blocks)), name=name, merges=merges)


def _as_of_class(table: Table, run: ScriptRun, document: Document) -> Table:
    """The table of a run's arguments, as far as the class of these is the library's. One that is derived from it has fields
    of its own; of one that only bears its name (``from src.sft import SFTConfig``) nobody knows what it takes, nor since when."""
    assert run.config is not None
    if run.config.callee in run.own:
        return replace(table, ignores_unknown=None)
    if is_of_library(run.config, document):
        return table
    return replace(table, ignores_unknown=None, strict_under=(), renamed=(), refusal=None)


class PlainArguments(Block, frozen=True, eq=False):
    """A call of transformers' own class. A library's trainer may make arguments of its own class of them, and has
    defaults for what that has more (TRL 0.24 sft_trainer.py: ``SFTConfig(**dict_args)``); Python refuses it in this
    call."""

    def refuses_new(self, field: str, blocks: Iterable[Block]) -> str | None:
        key = self.table.by_field[field].key
        return None if key in OF_TRAINING else f"TrainingArguments has no argument {key}"


def assigned_in(document: Document) -> Sequence[Call]:
    """The statements of a script that change its training arguments."""
    return document.assigned if isinstance(document, PythonDocument) else ()


def _option_defaults(document: Document) -> Iterator[Block]:
    """Defaults that the script's own dataclasses give the options of its command line."""
    defaults = document.option_defaults if isinstance(document, PythonDocument) else None
    if defaults is not None:
        first = next(iter(defaults.entries.values()))
        yield Block(document, defaults, DEFAULTS, first.value.span)


def _loaded_sets(document: Document) -> Iterator[Block]:
    """The data sets that a script loads, where these are all that it can train on."""
    for fact in document.facts:
        if fact.kind == "loads-sets":
            at = fact.location.span
            said = {"path": fact.detail["names"], "keys": fact.detail["keys"]}
            entries = {
                key: Entry(key, at, Items(at, tuple(Scalar(at, word) for word in words)), at)
                for key, words in said.items()
                if words
            }
            yield Block(document, Mapping(at, entries), LOADED_SETS, at)


def _told_of_vision(document: Document) -> Iterator[Block]:
    """What a script says by switching off the gradients of the vision encoder, and by telling the processor how large
    pictures may be."""
    said = {
        "freezes-tower": (FROZEN_TOWER, "the script's own code freezes it"),
        "scales-pictures": (
            SCALED_PICTURES, "the script's own code says how large pictures may be",
        ),
    }  # fmt: skip
    for fact in document.facts:
        if fact.kind in said:
            table, locked = said.pop(fact.kind)
            at, value = fact.location.span, fact.detail.get("pixels", True)
            told = PythonScalar(at, value, option=fact.detail.get("option", ""))
            entry = Entry(table.rows[0].key, at, told, at)
            mapping = Mapping(at, {entry.key: entry}, locked=locked)
            yield Block(document, mapping, table, at, locked=locked)


def _block(document: Document, call: Call, table: Table, kind: type[Block] = Block) -> Block:
    start = call.span.start
    return kind(document, call.arguments, table, Span(start, start + len(call.callee)))
