"""Wishes to keep something in the host's memory."""

from __future__ import annotations

from typing import Any

from oomlint.errors import CannotEdit


def to_cpu(device: Any, what: str) -> bool:
    """Whether a wish is for the CPU, of a framework that knows that place and no other.

    Args:
        what: who offloads, and what: ``TRL offloads activations``.

    Raises:
        CannotEdit: it is for another place.
    """
    if device not in ("cpu", "none"):
        raise CannotEdit(f"{what} to the CPU or not at all")
    return bool(device == "cpu")
