"""What the statements of a training script and of its command line come to, each of which may speak
of the other: options take the place of a script's defaults, and arguments that a script writes out
itself of options that it never reads.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping as MappingABC, Sequence
from typing import Any

from msgspec.structs import replace

from oomlint.dialects.block import Block
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.declared import declared_options, declares_own, stored_options
from oomlint.dialects.entries import plain_value
from oomlint.dialects.kinds import BadValue
from oomlint.dialects.machine.fields import launch
from oomlint.dialects.machine.launcher_keys import PLAIN
from oomlint.dialects.machine.launcher_meaning import launcher_of
from oomlint.dialects.meaning import Left, Meaning, Said
from oomlint.dialects.setting import Origin, Setting
from oomlint.dialects.table import Table
from oomlint.dialects.trainer.call_arguments import is_decided
from oomlint.dialects.trainer.fields import hf
from oomlint.dialects.trainer.reaching import is_on, is_reached
from oomlint.dialects.trainer.tables import (
    ADAPTER,
    DEFAULTS,
    EARLY_FROM_PRETRAINED,
    FROM_PRETRAINED,
)
from oomlint.documents.base import (
    RANKS,
    UNKNOWN,
    Node,
    PythonDocument,
    Scalar,
    ShellDocument,
    parser_of,
)
from oomlint.documents.python.nodes import PythonScalar, guards_of, option_of
from oomlint.documents.python.plain_values import arithmetic
from oomlint.documents.text import Span
from oomlint.plan.fields import f

idle_flags = Meaning()
"""Flags of a command line that never reach the arguments which a script writes out itself."""
options = Meaning()
"""Options that a script's own calls refer to."""

# -- flags that nothing reads ----------------------------------------------------------------------

# Classes that HfArgumentParser fills from the command line.
_ARGUMENTS = re.compile(r"(?:TrainingArguments|Config)$")


def _parses_arguments(blocks: list[Block]) -> bool:
    return any(map(_is_parsed, blocks))


def _is_parsed(block: Block) -> bool:
    declared = parser_of(block.document)
    return declared is not None and any(map(_ARGUMENTS.search, declared.bases))


@idle_flags.said(if_any=True)
def written_out(run: Cells, field: Any, said: Said) -> Said:
    """``TrainingArguments(per_device_train_batch_size=2)`` stays 2 whatever a flag says, or a file in
    its place, unless the script has HfArgumentParser read that class from them; what the trainer's
    own call says stays anyway."""
    if not isinstance(said, Setting) or not said.shadowed:
        return said
    block = said.origin.block
    if block is None or not (is_command(block) or _is_in_place(block)):
        return said
    calls = ("trainer",) if run.once(_parses_arguments) else ("trainer", "training")
    written = next((s for s in said.shadowed if _is_written_out(s, calls)), None)
    if written is None:
        return said
    return replace(written, shadowed=tuple(s for s in said.shadowed if s is not written))


@idle_flags.said(f.seq.max_len)
def read_by_nobody(run: Cells, field: Any, said: Said) -> Said:
    """What a command line, or a file in its place, says of a length counts for nothing if the script declares the option
    and neither reads it nor has a library that does."""
    idle = run.once(_idle)
    while idle and isinstance(said, Setting) and _is_one_of(idle, said.origin):
        said = said.shadowed[0] if said.shadowed else None
    return said


def _idle(blocks: list[Block]) -> frozenset[str]:
    parsers = {id(block.document): parser_of(block.document) for block in blocks}.values()
    return frozenset[str]().union(*(parser.idle for parser in parsers if parser is not None))


def _is_one_of(names: frozenset[str], origin: Origin) -> bool:
    block, entry = origin.block, origin.entry
    if block is None or entry is None or not (is_command(block) or _is_in_place(block)):
        return False
    return block.table.section == "training" and entry.key.replace("-", "_") in names


def _is_written_out(setting: Setting, calls: tuple[str, ...]) -> bool:
    """Whether such a call of a script says the value, and not by an option of its command line."""
    origin = setting.origin
    if origin.block is None or origin.entry is None or not _is_script(origin.block):
        return False
    value = origin.entry.value
    is_plain = isinstance(value, Scalar) and not option_of(value)
    return origin.block.table.section in calls and is_plain


def is_command(block: Block) -> bool:
    return isinstance(block.document, ShellDocument)


def _is_in_place(block: Block) -> bool:
    """Whether a file takes the place of a command line's options."""
    return block.table.section == "training" and not _is_script(block)


def _is_script(block: Block) -> bool:
    return isinstance(block.document, PythonDocument)


# -- options of the command line -------------------------------------------------------------------


def options_of(blocks: list[Block]) -> MappingABC[str, Node]:
    """What the command line and the files in its place say, over the script's defaults."""
    found: dict[str, Node] = {}
    for block in blocks:
        is_listed = block.table.section in ("options", "defaults")
        if is_listed or is_command(block) or _is_in_place(block):
            found.update((name, entry.value) for name, entry in block.mapping.entries.items())
    for name, stored in stored_options(blocks).items():
        given = found.get(name)
        if isinstance(given, Scalar) and given.value in (True, UNKNOWN):
            value = stored.value if given.value is True else UNKNOWN
            found[stored.destination] = Scalar(given.span, value, locked=_STORED.format(name))
    for name, whole in _abbreviated(blocks, found):
        found.setdefault(whole, found[name])
    return found


def _abbreviated(blocks: list[Block], found: MappingABC[str, Node]) -> Iterator[tuple[str, str]]:
    """Options that a command writes as far as tells them apart, each with its whole name, as argparse takes them
    (CPython 3.12 argparse.py _get_option_tuples). Of a parser with a library's options as well nothing is said."""
    if not declares_own(blocks):
        return
    names = declared_options(blocks)
    for name in found.keys() - names:
        whole = [each for each in names if each.startswith(name)]
        if len(whole) == 1:
            yield name, whole[0]


_STORED = "--{} stores it"
# Of TrainingArguments: off where a command line does not set them.
_OFF = {
    name: Scalar(Span(0, 0), False) for name in ("gradient_checkpointing", "bf16", "fp16", "tf32")
}


def is_launched(blocks: list[Block]) -> bool:
    return any(map(is_command, blocks))


def switches_of(blocks: list[Block]) -> MappingABC[str, Node]:
    """What is known of the switches that branches of a script ask for."""
    defaults = {
        name: entry.value
        for block in blocks
        if block.table.section == "switches"
        for name, entry in block.mapping.entries.items()
    }
    return {**(_OFF if is_launched(blocks) else {}), **defaults, **options_of(blocks)}


def _reached(blocks: list[Block]) -> tuple[Table, ...]:
    switches = switches_of(blocks)
    return tuple(block.table for block in blocks if is_reached(block.mapping, switches))


def reaches(run: Cells, *tables: Table) -> bool:
    """Whether a call that one of these tables reads is made, by the switches around it."""
    reached = run.once(_reached)
    return any(table is each for each in reached for table in tables)


def _has_several_ranks(run: Cells) -> bool | None:
    """A plain command is one process; a launcher's number may be unknown."""
    if launcher_of(run) is PLAIN and run[launch.total_processes] is None:
        return False
    ranks = run[f.parallel.world]
    return None if ranks is None else ranks > 1


_COMPARED: MappingABC[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda value, words: value in words,
    "not in": lambda value, words: value not in words,
    "holds": lambda value, word: word in value,
    "lacks": lambda value, word: word not in value,
}


def _holds(node: PythonScalar, given: MappingABC[str, Node]) -> bool | None:
    """Whether the option that decides on a value is on, or compares as the script asks."""
    if node.compared is None:
        is_given = node.option in given or node.unset is UNKNOWN
        return is_on(node.option, given) if is_given else bool(node.unset)
    written = given.get(node.option)
    value = node.unset if written is None else plain_value(written, "yaml12")
    sign, other = node.compared
    try:
        return None if value is UNKNOWN else _COMPARED[sign](value, other)
    except TypeError:
        return None


def leads_there(
    choices: Sequence[tuple[PythonScalar, bool]], given: MappingABC[str, Node]
) -> bool | None:
    """Whether options lead through branches of a script, each a choice with the side to take; ``None`` where it is not known."""
    held = [
        None if holds is None else holds is side
        for node, side in choices
        for holds in (None if node.option == RANKS else _holds(node, given),)
    ]
    if False in held:
        return False
    return None if None in held else True


def _left_open(blocks: list[Block]) -> MappingABC[Any, Origin]:
    """Arguments of a script's calls that are options without a default: ``r=args.rank``, which is ``None`` until the
    command line gives one."""
    return {
        row.field: Origin("explicit", block, row, entry)
        for block in blocks
        if _is_script(block)
        for row in block.table.rows
        for entry in map(block.find, (row.key, *row.aliases))
        if entry is not None and option_of(entry.value) and block.value(entry.value) is None
    }


@options.said(unsaid=_left_open)
def chosen(run: Cells, field: Any, said: Said) -> Said:
    """Values that an option decides on (``dtype=torch.bfloat16 if args.bf16 else None``), or the
    number of processes: ``device_map={"": local_rank} if world_size != 1 else "auto"``."""
    origin = said.origin if isinstance(said, Setting) else said
    if said is None:  # by the defaults of the options
        origin = run.once(_left_open).get(field)
    if not isinstance(origin, Origin) or origin.entry is None or origin.row is None:
        return said
    node = origin.entry.value
    if not is_decided(node):
        return said
    is_run = run.once(is_launched)
    given = run.once(options_of) if is_run else {}
    while isinstance(node, PythonScalar) and node.either is not None:
        if not is_run and (node.option == RANKS or node.unset is UNKNOWN):
            return said  # nobody starts it, and the option has no default
        holds = _has_several_ranks(run) if node.option == RANKS else _holds(node, given)
        if holds is None:
            return origin if node.option in given else said
        node = node.either[not holds]
    raw = _with_options(node, given)
    if isinstance(said, Setting) and raw == said.value:
        return said  # by the defaults of the options
    return origin if raw is UNKNOWN else _read(run, field, origin, raw, None)


@options.said(unsaid=_left_open)
def given_by_option(run: Cells, field: Any, said: Said) -> Said:
    """``--batch_size 2`` wins over the default that the script gives its option, over none too."""
    if isinstance(said, Left):
        return said
    given = run.once(options_of)
    said = said or (run.once(_left_open).get(field) if given else None)
    if said is None:
        return None
    origin = said.origin if isinstance(said, Setting) else said
    if origin.row is None:
        return said
    if given and origin.entry is not None and _is_computed(origin.entry.value):
        raw = _with_options(origin.entry.value, given)
    else:
        option = option_given(origin, given)
        if option is None:
            return None if origin is run.once(_left_open).get(field) else said
        raw = plain_value(option, "yaml12")
    if raw is UNKNOWN:
        return origin
    return _read(run, field, origin, raw, said if isinstance(said, Setting) else None)


def option_naming(blocks: list[Block], field: Any) -> Setting | None:
    """What an option of the command line says that a call of the script takes for a field which names a file
    (``deepspeed=args.config_path``), where it stands on the line."""
    given = options_of(blocks) if is_launched(blocks) else {}
    for origin in _in_scripts(blocks, field) if given else ():
        node = option_given(origin, given)
        for block in reversed(blocks) if isinstance(node, Scalar) else ():
            entries = block.mapping.entries.values()
            entry = next((each for each in entries if each.value is node), None)
            if entry is not None and isinstance(block.value(entry.value), str):
                found = Origin("explicit", block, origin.row, entry)
                return Setting(block.value(entry.value), found, (), block.level)
    return None


def _in_scripts(blocks: list[Block], field: Any) -> Iterator[Origin]:
    """Where calls of a script are given a field, the one that counts first."""
    for block in filter(_is_script, reversed(blocks)):
        row = block.table.by_field.get(field)
        entry = None if row is None else block.find(row.key)
        if entry is not None:
            yield Origin("explicit", block, row, entry)


def _is_decided(node: Node) -> bool:
    """Whether a value is one of two, between which an option decides."""
    return isinstance(node, PythonScalar) and node.either is not None


def _is_computed(node: Node) -> bool:
    return isinstance(node, PythonScalar) and node.computed is not None


def _with_options(node: Node, given: MappingABC[str, Node]) -> Any:
    """What arithmetic on options comes to with those of the command line in place of their defaults."""
    if isinstance(node, PythonScalar) and node.computed is not None:
        operation, left, right = node.computed
        return arithmetic(operation, _with_options(left, given), _with_options(right, given))
    written = given.get(option_of(node))
    return plain_value(node if written is None else written, "yaml12")


def _read(run: Cells, field: Any, origin: Origin, raw: Any, earlier: Setting | None) -> Said:
    """What a value of the command line means where a call refers to it."""
    assert origin.row is not None
    try:
        value = None if raw is None else origin.row.kind.read(raw)
    except BadValue:
        return origin
    if value is None:
        return None if earlier is None else earlier
    shadowed = () if earlier is None else (earlier, *earlier.shadowed)
    return Setting(value, Origin("derived", run.block_with(field)), shadowed)


_OPTION = re.compile(r"\w+\.(\w+)$")


def option_given(origin: Origin, given: MappingABC[str, Node]) -> Node | None:
    """The command line's value for an argument that a script writes as ``args.name``."""
    if origin.entry is None or origin.block is None or not _is_script(origin.block):
        return None
    value = origin.entry.value
    if not given or not isinstance(value, Scalar) or is_decided(value):
        return None  # what an option decides on is no value of its own: see chosen
    option = option_of(value)
    if option:  # known by its default, also where no object holds it (fire, typer)
        return given.get(option)
    text = origin.block.document.source.text
    # A name that stands for the option may be what the call is given: model = args.model.
    spans = (span for span in (value.via, value.span) if span is not None)
    matches = (_OPTION.match(text[span.start : span.end]) for span in spans)
    match = next(filter(None, matches), None)
    return given.get(match.group(1)) if match else None


# -- options that mean nothing ---------------------------------------------------------------------

_QUANTIZE = ("load_in_4bit", "load_in_8bit", "quantization_config")
_QUANTIZED_BY = (hf.load_4bit, hf.load_8bit, hf.bits)


def _unused(blocks: list[Block]) -> frozenset[Any]:
    """Fields whose options the script's own calls do without: a model that is loaded without a word
    of quantization, an adapter behind no switch."""
    return frozenset(_fields_unused(blocks))


def _fields_unused(blocks: list[Block]) -> Iterator[Any]:
    loaders = [b.mapping for b in blocks if b.table in (FROM_PRETRAINED, EARLY_FROM_PRETRAINED)]
    if loaders and not any(m.open_ended or set(_QUANTIZE) & set(m.entries) for m in loaders):
        yield from _QUANTIZED_BY
    adapters = [block.mapping for block in blocks if block.table is ADAPTER]
    if adapters and not any(map(guards_of, adapters)):
        yield hf.use_peft


@options.said(*_QUANTIZED_BY, hf.use_peft)
def of_unused(run: Cells, field: Any, said: Said) -> Said:
    """A script that loads its model without a word of quantization loads it whole, whatever the
    command line asks for; where no switch stands before an adapter, only its default means nothing."""
    if not isinstance(said, Setting) or said.origin.block is None:
        return said
    block = said.origin.block
    is_asked = field in _QUANTIZED_BY and (is_command(block) or _is_in_place(block))
    is_idle = block.table is DEFAULTS or is_asked
    return None if is_idle and field in run.once(_unused) else said
