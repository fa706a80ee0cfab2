"""What is certain to end a program before its first step, declared once: why, where, and what a key there is called now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import shared
from oomlint.dialects.ending import Ending
from oomlint.dialects.meaning import Meaning, Sourced


def declare_end(
    meaning: Meaning, find: Callable[[Cells], Ending | None], *, source: str, lately: bool = False
) -> None:
    """Declare what ``find`` finds of a run: of several ends the first counts, and what else is said is of that one.

    Args:
        lately: it ends with the newest release of a library, and not with others that the project allows.
    """
    why = shared.refused_lately if lately else shared.refused
    at = shared.refused_lately_at if lately else shared.refused_at

    def told(run: Cells) -> Ending | None:
        said = run[why]
        found = find(run) if said else None
        return found if found is not None and found.why == said else None

    @meaning.derive(why, source=source)
    def reason(run: Cells) -> Any:
        found = find(run)
        return None if found is None else Sourced(found.why, found.at.path)

    @meaning.derive(at)
    def place(run: Cells) -> Any:
        found = told(run)
        return None if found is None else found.at

    if lately:
        return

    @meaning.derive(shared.refused_when)
    def when(run: Cells) -> Any:
        found = told(run)
        return None if found is None else found.when

    @meaning.derive(shared.refused_name)
    def name(run: Cells) -> Any:
        found = told(run)
        return None if found is None else found.now or None
