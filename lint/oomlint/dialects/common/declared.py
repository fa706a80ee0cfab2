"""Options that a parser has, of a script's own or of the release of a framework, as far as that is known: no other
may be written.

HfArgumentParser, TrlParser and argparse stop at an option that nobody declares (transformers 5.23
hf_argparser.py:354), so that a fix that adds one keeps the run from starting.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from oomlint.dialects.block import Block
from oomlint.dialects.blocks import documents_of
from oomlint.dialects.cells import Cells
from oomlint.dialects.table import Row
from oomlint.dialects.trainer.arguments import SEQ2SEQ_ARGUMENTS, TRAINING_ARGUMENTS, TRANSFORMERS
from oomlint.dialects.trainer.fields import hf
from oomlint.documents import JSON_SUFFIXES, YAML_SUFFIXES, kind_of
from oomlint.documents.base import ShellDocument, parser_of
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

if TYPE_CHECKING:
    from oomlint.documents.python.options import ScriptOptions
    from oomlint.documents.python.parsers import Stored

_ARGUMENTS = (*TRAINING_ARGUMENTS, *SEQ2SEQ_ARGUMENTS)
_PASSED_ON = frozenset((row.key, row.field) for row in _ARGUMENTS)
"""Keys that frameworks over the Trainer have by its name hand to its arguments."""


def check_options(fields: Iterable[Any], run: Cells) -> None:
    """See that a run's command line may be given an option for each field: whatever dialect wrote the
    wish, its files are changed only after this.

    Raises:
        CannotEdit: the script would stop at one, or nothing shows that it would not.
    """
    for field in fields:
        block = run.block_with(field)
        if block is not None and not run.says(field):
            check_option(block, block.table.by_field[field], run)


def check_option(block: Block, row: Row, run: Cells) -> None:
    """See that a block may be given the key of a row: the release that reads it has it, and so does the script, if it
    is a command line, or a file in its place.

    Raises:
        CannotEdit: the script would stop at it, or nothing shows that it would not.
    """
    for spans in (block.table.spans, TRANSFORMERS if (row.key, row.field) in _PASSED_ON else None):
        if spans is not None:
            pinned, objective = run.version(spans.package), str(run[f.objective.kind] or "")
            why = spans.why_not(row.key, pinned, block.mapping.paths(), objective)
            if why is not None:
                raise CannotEdit(why)
    if _is_of_script(block) and _is_refused(row, block, run):
        raise CannotEdit("nothing shows that the script has an option for it")
    if _is_file_of_script(block) and _is_unparsed(row, run):
        raise CannotEdit(f"the script that reads it declares no {row.key}")
    if _is_file_of_script(block) and _is_unheard_of(row, block, run):
        raise CannotEdit(f"nothing shows that the script which reads it declares {row.key}")


def _is_refused(row: Row, block: Block, run: Cells) -> bool:
    parsers = run.once(_parsers)
    if row.key in run.once(declared_options):
        return False
    if row.key in _library_keys(parsers):
        return False
    if parsers and all(parser.is_whole for parser in parsers):
        return True
    if block.table.ignores_unknown is not None:
        return False  # the program is the framework's, and its table has that parser's options
    from oomlint.dialects.trainer.keys import MODEL_ROWS
    from oomlint.dialects.trl.keys import MODEL_CONFIG_ROWS  # most runs have no script

    if row in MODEL_CONFIG_ROWS:
        return bool(parsers) or not run.says(hf.use_peft)
    # Known scripts' tables give a default to each of these rows that the script declares.
    return row in MODEL_ROWS


def _is_unparsed(row: Row, run: Cells) -> bool:
    """Whether a script that takes its arguments from a file stops at a key, as none of its classes has it:
    HfArgumentParser.parse_yaml_file (transformers 5.23 hf_argparser.py:418), TrlParser and the H4ArgumentParser of
    alignment-handbook, which is made of it. Nothing is known of one whose classes were not all read."""
    parsers = run.once(_parsers)
    known = _library_keys(parsers)
    if not known or not all(parser.is_whole for parser in parsers):
        return False
    names = {row.key, *row.aliases, row.key.partition(".")[0]}
    return row.key not in known and names.isdisjoint(run.once(declared_options))


def _is_unheard_of(row: Row, block: Block, run: Cells) -> bool:
    """Whether a file of arguments that no command here hands to a script would get a key which only some scripts
    declare: all of them parse transformers' own arguments, and each has names of its own for its model. A
    framework's config is no such file: its table has all keys."""
    from oomlint.dialects.trainer.keys import MODEL_ROWS

    is_whole = block.table.ignores_unknown is not None
    return not is_whole and row in MODEL_ROWS and not run.once(_parsers)


def declared_options(blocks: list[Block]) -> frozenset[str]:
    """The options that the scripts of a run declare, as far as they are here."""
    return frozenset[str]().union(*(parser.names for parser in _parsers(blocks)))


def declares_own(blocks: Sequence[Block]) -> bool:
    """Whether the script's parser is its own: it declares options, and none by a class of transformers."""
    parsers = _parsers(blocks)
    return any(parser.names for parser in parsers) and not _library_keys(parsers)


def stored_options(blocks: Sequence[Block]) -> dict[str, Stored]:
    """What options of the scripts of a run do that have no value: ``--no_x`` makes ``x`` false."""
    return {name: stored for parser in _parsers(blocks) for name, stored in parser.stored.items()}


def _parsers(blocks: Sequence[Block]) -> tuple[ScriptOptions, ...]:
    found = map(parser_of, documents_of(blocks))
    return tuple(each for each in found if each is not None and (each.names or each.bases))


def _is_of_script(block: Block) -> bool:
    """Whether it is what a command line says to a script, not to a launcher or the shell."""
    return block.table.section == "training" and isinstance(block.document, ShellDocument)


def _is_file_of_script(block: Block) -> bool:
    """Whether it is a file that says what a script's command line otherwise would."""
    suffixes = (*YAML_SUFFIXES, *JSON_SUFFIXES)
    return block.table.section == "training" and kind_of(block.path) in suffixes


def _rows_of(base: str) -> tuple[Row, ...]:
    """The rows of a library's class of options, by its qualified name."""
    package, _, name = base.rpartition(".")
    if name.endswith("TrainingArguments"):
        return _ARGUMENTS
    if package.partition(".")[0] != "trl" or not name.endswith("Config"):
        return ()
    from oomlint.dialects.trl.keys import CONFIG_ROWS, MODEL_CONFIG_ROWS

    return MODEL_CONFIG_ROWS if name == "ModelConfig" else (*_ARGUMENTS, *CONFIG_ROWS)


def _library_keys(parsers: Iterable[ScriptOptions]) -> frozenset[str]:
    """The options that libraries' classes give the parsers which are made of them."""
    bases = frozenset[str]().union(*(parser.bases for parser in parsers))
    return frozenset(row.key for base in bases for row in _rows_of(base))
