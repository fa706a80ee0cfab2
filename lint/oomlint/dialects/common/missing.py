"""What a file would say that is named and not at hand."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from oomlint.dialects.cells import Cells
from oomlint.dialects.setting import Origin, Setting


def at_missing_file(run: Cells, field: Any) -> Origin | None:
    """Where a field names a file that is not at hand: whatever that would have said is unread, not at its default."""
    named = run.said(field)
    if not isinstance(named, Setting) or named.value not in run.known.missing:
        return None
    return replace(named.origin, source=f"{named.value} is not at hand")
