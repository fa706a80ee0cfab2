"""Where a run says a field, or would: the block that a wish for it is written to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oomlint.dialects.block import Block, OverrideBlock
from oomlint.dialects.common.fields import ref
from oomlint.dialects.setting import Origin
from oomlint.documents.base import ShellDocument
from oomlint.errors import CannotEdit
from oomlint.runs.run import Run


def home_of(run: Run, field: Any, *, removes: bool, near: Iterable[Any] = ()) -> Block:
    """The block that says a field now, in force or not, else the one of highest precedence
    that can, or, of several of one file, one that says what is wished with it (``near``). What a file says that
    cannot be written, a command line can say otherwise, but not take back."""
    setting = run.settings.get(field)
    origins = [s.origin for s in (setting, *setting.shadowed)] if setting is not None else []
    if removes and sum(origin.kind == "explicit" for origin in origins) > 1:
        raise CannotEdit(f"{field} is set in several places, and all of them would have to go")
    for origin in (*origins, run.origin(field)):
        if origin is not None and origin.kind == "explicit" and origin.block is not None:
            if not removes and _is_default_of_command(run, origin.block):
                return _given_instead(run, origin, field)
            is_overridden = origin.block.locked and not removes
            return _overriding(run, origin.block) if is_overridden else origin.block
    block = _naming_config(run) if field == ref.deepspeed else run.block_with(field)
    if block is None:
        raise CannotEdit(f"no file of this run has a key for {field}")
    if block.locked and not removes:
        return _overriding(run, block)
    return _with_its_wishes(run, block, field, near) or _beside_its_kin(run, block, field, near)


def _naming_config(run: Run) -> Block | None:
    """The block of highest precedence that names a DeepSpeed config to the program: one that is named to the launcher
    counts only where that is told to start DeepSpeed, too."""
    blocks = [block for block, _ in run.parts.blocks if block.table.section != "launcher"]
    return next((b for b in reversed(blocks) if b.can_write(ref.deepspeed)), None)


def _is_default_of_command(run: Run, block: Block) -> bool:
    """Whether a script says something as the default of an option, and is started by a command line that may give
    the option: whoever else starts it keeps the default."""
    return block.table.section == "defaults" and any(map(_gives_options, run.parts.blocks))


def _gives_options(each: tuple[Block, Any]) -> bool:
    return isinstance(each[0].document, ShellDocument) and each[0].table.section == "training"


def _given_instead(run: Run, origin: Origin, field: Any) -> Block:
    """The command line that gives an option in place of its default, by the name that the script has for it.

    Raises:
        CannotEdit: its table has no such option.
    """
    for other, reading in reversed(run.parts.blocks):
        row = other.table.by_field.get(field)
        is_open = row is not None and row.key == origin.key and not other.locked
        if is_open and _gives_options((other, reading)) and other.can_write(field):
            return other
    name = "" if origin.block is None else origin.block.path.rpartition("/")[2]
    raise CannotEdit(f"it is a default in {name}, which others may start, too")


def _with_its_wishes(run: Run, block: Block, field: Any, near: Iterable[Any]) -> Block | None:
    """The block of the same file that says other fields of one wish: a method of recomputing stands with its
    granularity, not in the group below."""
    for other in near:
        setting = run.settings.get(other)
        origin = None if setting is None else setting.origin
        if origin is None or origin.kind != "explicit" or origin.block in (None, block):
            continue
        home = origin.block
        assert home is not None
        if home.path == block.path and home.can_write(field) and not home.locked:
            return home
    return None


def _beside_its_kin(run: Run, block: Block, field: Any, near: Iterable[Any]) -> Block:
    """What a launcher's option says stands in the config that the launcher reads, where that has the section for it
    and is the run's alone, or is copied for what else is wished (``near``)."""
    settings = filter(None, map(run.settings.get, near))
    changed = {each.origin.block.path for each in settings if each.origin.block is not None}
    if not isinstance(block.document, ShellDocument):
        return block
    for other, _ in reversed(run.parts.blocks):
        row = other.table.by_field.get(field)
        if (
            row is None
            or other is block
            or other.locked
            or isinstance(other.document, ShellDocument)
        ):
            continue
        section = row.key.rpartition(".")[0]
        is_free = other.path not in run.parts.shared or other.path in changed
        if section and other.find(section) is not None and is_free:
            return other
    return block


def _overriding(run: Run, locked: Block) -> Block:
    """Where a command line, or the end of a chain, may say otherwise than a file that cannot be written."""
    if locked.heir is not None:
        return locked.heir
    overrides = (
        block
        for block, _ in run.parts.blocks
        if isinstance(block, OverrideBlock) and block.table is locked.table and not block.locked
    )
    return next(overrides, locked)
