"""From a proposal in canonical terms to edits in whatever file the value came from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping as MappingABC
from dataclasses import dataclass
from typing import Any

from oomlint.dialects.table import Block
from oomlint.documents.text import Edit
from oomlint.errors import CannotEdit
from oomlint.rule import (
    Applicability,
    Proposal,
    ReadyEdits,
    RemoveKey,
    RenameKey,
    SetFields,
    Wish,
)
from oomlint.run import Run


@dataclass(frozen=True, slots=True, eq=False)
class Fix:
    """Edits that carry out a proposal.

    ``expected`` are the settings (own fields of the dialect) that the files say after the
    edits; everything else must read as before. ``reason`` says why a fix is only shown.
    """

    title: str
    applicability: Applicability
    edits: tuple[Edit, ...]
    predicted_bytes_after: int | None = None
    expected: MappingABC[str, Any] | None = None
    reason: str | None = None


def make_fix(run: Run, proposal: Proposal, resource: str | None) -> Fix | None:
    """The fix for a proposal, or ``None`` where it can neither be written nor usefully shown.

    Edits that some file cannot take safely turn the fix into one that is only displayed,
    with the reason.
    """
    edits: list[Edit] = []
    expected: dict[str, Any] = {}
    applicability = proposal.applicability
    try:
        for wish in proposal.wishes:
            edits += _edits_for(run, wish, expected)
    except CannotEdit as error:
        return Fix(proposal.title, Applicability.DISPLAY, (), reason=str(error))
    if not edits:
        applicability = Applicability.DISPLAY
    return Fix(
        proposal.title,
        applicability,
        tuple(sorted(set(edits))),
        _after(run, proposal, resource),
        expected,
    )


def _edits_for(run: Run, wish: Wish, expected: dict[str, Any]) -> list[Edit]:
    if isinstance(wish, SetFields):
        return _set_fields(run, wish.values, expected)
    if isinstance(wish, RenameKey):
        stray = wish.key
        new_key = wish.new_key.rpartition(".")[2]
        if new_key in stray.mapping.entries:
            raise CannotEdit(f"{new_key} is already set")
        return stray.block.document.rename_entry(stray.mapping, stray.entry.key, new_key)
    if isinstance(wish, RemoveKey):
        return wish.block.document.remove_entry(wish.block.mapping, wish.entry.key)
    assert isinstance(wish, ReadyEdits)
    return list(wish.edits)


def _set_fields(run: Run, values: MappingABC[str, Any], expected: dict[str, Any]) -> list[Edit]:
    by_block: dict[int, tuple[Block, dict[str, Any]]] = {}
    for name, value in run.what_if(values).wished.items():
        expected[name] = value
        block = _home(run, name)
        by_block.setdefault(id(block), (block, {}))[1][name] = value
    edits = [edit for block, wanted in by_block.values() for edit in block.write(wanted)]
    return list(_joined(edits))


def _joined(edits: list[Edit]) -> Iterable[Edit]:
    """Insertions at one offset as a single edit, in the order in which they were made."""
    insertions: dict[tuple[str, int], str] = {}
    for edit in edits:
        if edit.start == edit.end:
            at = (edit.path, edit.start)
            insertions[at] = insertions.get(at, "") + edit.replacement
        else:
            yield edit
    for (path, offset), text in insertions.items():
        yield Edit(path, offset, offset, text)


def _home(run: Run, field: str) -> Block:
    """The block that says a field now, else the one of highest precedence that can."""
    origin = run.origin(field)
    if origin is not None and origin.kind == "explicit" and origin.block is not None:
        return origin.block
    block = run.block_with(field)
    if block is None:
        raise CannotEdit(f"no file of this run has a key for {field}")
    return block


def _after(run: Run, proposal: Proposal, resource: str | None) -> int | None:
    """The predicted peak once the proposal is applied, of the resource that the finding names."""
    values: dict[str, Any] = {}
    for wish in proposal.wishes:
        if isinstance(wish, SetFields):
            values.update(wish.values)
    if not values:
        return None
    estimate = run.what_if(values).estimate
    return estimate.host.peak_bytes if resource == "host" else estimate.gpu.peak_bytes
