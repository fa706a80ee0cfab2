"""Cells of a run that no file describes, or that blocks alone do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from oomlint.dialects.block import Block
from oomlint.dialects.cells import Cells
from oomlint.dialects.given import Given
from oomlint.dialects.meaning import Meaning
from oomlint.dialects.surroundings import Surroundings
from oomlint.dialects.whole import whole


def cells_of(
    meaning: Meaning,
    said: Mapping[Any, Any] | None = None,
    blocks: Iterable[Block] = (),
    versions: Mapping[str, str] | None = None,
    hardware: Any = None,
) -> Cells:
    """Cells in which options say ``said``; ``None`` leaves a field to others (``"auto"``)."""
    pinned = {package: (version, "a test") for package, version in (versions or {}).items()}
    known = Surroundings({}, hardware, lambda _name: None, pinned, {})
    given = Given((block, block.read()) for block in blocks).with_options(said or {}, "a test")
    return Cells(given, whole(meaning), known)
