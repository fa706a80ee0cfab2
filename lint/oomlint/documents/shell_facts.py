"""Habits in shell scripts that cost a run its settings: lost lines, lost variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from oomlint.documents.base import Command, Fact
from oomlint.documents.text import Source

if TYPE_CHECKING:
    from oomlint.documents.shell import Script


def facts_of(
    source: Source, scripts: Sequence[Script], commands: Sequence[Command]
) -> tuple[Fact, ...]:
    """All facts of a script, in the order in which they stand."""
    return ()
