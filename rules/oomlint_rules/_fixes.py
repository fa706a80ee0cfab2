"""Proposals that several rules make."""

from __future__ import annotations

from oomlint.dialects.table import Origin
from oomlint.rule import Applicability, Proposal, RemoveKey


def removal(
    title: str, origin: Origin | None, applicability: Applicability = Applicability.SAFE
) -> tuple[Proposal, ...]:
    """The proposal to delete the key that a value comes from; none where no file says it."""
    if origin is None or origin.block is None or origin.entry is None:
        return ()
    return (Proposal(title, (RemoveKey(origin.block, origin.entry),), applicability),)
