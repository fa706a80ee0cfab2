"""Training arguments that a script changes once it has them: ``training_args.bf16 = True``.

Such a statement counts whatever the command line says. One behind a switch that nobody can tell
leaves open what holds.
"""

from __future__ import annotations

from collections.abc import Mapping as MappingABC
from typing import Any

from oomlint.dialects.block import Block
from oomlint.dialects.cells import Cells
from oomlint.dialects.kinds import BadValue
from oomlint.dialects.meaning import Meaning, Said
from oomlint.dialects.setting import Origin, Setting
from oomlint.dialects.table import Row
from oomlint.dialects.trainer.reaching import is_reached
from oomlint.dialects.trainer.statements import switches_of
from oomlint.dialects.trainer.tables import ARGUMENTS, ASSIGNED
from oomlint.documents.base import UNKNOWN, Entry, Name
from oomlint.documents.python.nodes import guards_of

assigned = Meaning()
"""What a script makes of its training arguments by statements of its own."""

_NAMES = ARGUMENTS.names


def _statements(blocks: list[Block]) -> MappingABC[Any, list[tuple[Block, Row, Entry]]]:
    found: dict[Any, list[tuple[Block, Row, Entry]]] = {}
    for block in blocks:
        if block.table is ASSIGNED:
            for key, entry in block.mapping.entries.items():
                row = _NAMES.get(key)
                if row is not None:
                    found.setdefault(row.field, []).append((block, row, entry))
    return found


@assigned.said(unsaid=_statements)
def changed(run: Cells, field: Any, said: Said) -> Said:
    """What the last statement makes of it that is reached; unread where one may be reached that says
    something else."""
    for block, row, entry in run.once(_statements).get(field, ()):
        holds = _holds(run, block)
        if holds is False:
            continue
        origin = Origin("explicit", block, row, entry)
        value = _value(block, row, entry)
        if holds is None:
            is_same = isinstance(said, Setting) and value is not UNKNOWN and said.value == value
            said = said if is_same else origin
        elif value is UNKNOWN:
            said = origin
        elif value is None:
            said = None
        else:
            said = Setting(value, origin, (said,) if isinstance(said, Setting) else ())
    return said


def _holds(run: Cells, block: Block) -> bool | None:
    """Whether a statement is reached; ``None`` where a test around it does not tell."""
    switches = run.once(switches_of)
    if not is_reached(block.mapping, switches):
        return False
    is_open = block.mapping.open_ended or any(
        name not in switches for name, _ in guards_of(block.mapping)
    )
    return None if is_open else True


def _value(block: Block, row: Row, entry: Entry) -> Any:
    raw = block.value(entry.value)
    if raw is UNKNOWN or (isinstance(raw, Name) and not row.kind.names):
        return UNKNOWN
    try:
        return None if raw is None else row.kind.read(raw)
    except BadValue:
        return UNKNOWN
