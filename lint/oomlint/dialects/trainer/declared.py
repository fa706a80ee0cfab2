"""Options that a script's parser has, as far as that is known: no other may be written.

HfArgumentParser, TrlParser and argparse stop at an option that nobody declares (transformers 5.23
hf_argparser.py:354), so that a fix that adds one keeps the run from starting.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.table import Block, Row
from oomlint.dialects.trainer.arguments import SEQ2SEQ_ARGUMENTS, TRAINING_ARGUMENTS
from oomlint.dialects.trainer.fields import hf
from oomlint.dialects.trainer.keys import MODEL_ROWS
from oomlint.dialects.trl.keys import CONFIG_ROWS, MODEL_CONFIG_ROWS

if TYPE_CHECKING:
    from oomlint.documents.python.options import Options

_ARGUMENTS = (*TRAINING_ARGUMENTS, *SEQ2SEQ_ARGUMENTS)


def is_refused(field: Any, run: Cells) -> bool:
    """Whether a new option for a field would stop a run's script, or nothing shows that it would not."""
    block = run.block_with(field)
    if block is None or run.says(field) or not _is_of_a_project(block):
        return False
    row = block.table.by_field[field]
    parsers = run.given.once(_parsers)
    if row.key in run.given.once(declared_options):
        return False
    bases = frozenset[str]().union(*(parser.bases for parser in parsers))
    if any(row.key in _keys(_rows_of(base)) for base in bases):
        return False
    if parsers and all(parser.is_whole for parser in parsers):
        return True
    if row in MODEL_CONFIG_ROWS:
        return bool(parsers) or not run.says(hf.use_peft)
    # Known scripts' tables give a default to each of these rows that the script declares.
    return row in MODEL_ROWS


def declared_options(blocks: list[Block]) -> frozenset[str]:
    """The options that the scripts of a run declare, as far as they are here."""
    return frozenset[str]().union(*(parser.names for parser in _parsers(blocks)))


def _parsers(blocks: list[Block]) -> tuple[Options, ...]:
    documents = {id(block.document): block.document for block in blocks}.values()
    found = (getattr(document, "options", None) for document in documents)
    return tuple(each for each in found if each is not None and (each.names or each.bases))


def _is_of_a_project(block: Block) -> bool:
    """Whether it is the command line of a script that may have any options."""
    table = block.table
    is_training = table.section == "training" and table.ignores_unknown is None
    return is_training and hasattr(block.document, "commands")


def _rows_of(base: str) -> tuple[Row, ...]:
    """The rows of a library's class of options, by its qualified name."""
    package, _, name = base.rpartition(".")
    if name.endswith("TrainingArguments"):
        return _ARGUMENTS
    if package.partition(".")[0] != "trl" or not name.endswith("Config"):
        return ()
    return MODEL_CONFIG_ROWS if name == "ModelConfig" else (*_ARGUMENTS, *CONFIG_ROWS)


def _keys(rows: Iterable[Row]) -> frozenset[str]:
    return frozenset(row.key for row in rows)
