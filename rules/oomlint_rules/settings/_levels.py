"""Keys of a DeepSpeed config that stand one level too high or too low."""

from __future__ import annotations

from oomlint.dialects.reading import StrayKey


def other_level(stray: StrayKey) -> str | None:
    """The path at which DeepSpeed would know a stray key, if it would at another level."""
    table = stray.block.table
    if table.section != "deepspeed":
        return None
    outer, _, key = stray.path.rpartition(".")
    if outer:
        return key if key in table.legal_keys else None
    inner = f"zero_optimization.{key}"
    return inner if inner in table.legal_keys else None
