"""The launch lines of a script: what takes them apart is imported where there are any."""

from __future__ import annotations

from oomlint.dialects.machine.launch import Launch
from oomlint.documents.base import Document


def launches(document: Document) -> tuple[Launch, ...]:
    """Every command of a shell script that starts a program.

    A dozen dialects ask, so the answer is kept with the document, and goes with it.
    """
    if not document.commands:
        return ()
    kept: dict[str, tuple[Launch, ...]] = vars(document)
    if "launches" not in kept:
        from oomlint.dialects.machine.launchers import launch_lines

        kept["launches"] = tuple(launch_lines(document))
    return kept["launches"]
