"""Which cells were computed from which: what changes with a field."""

from __future__ import annotations

from collections.abc import Iterable, Mapping as MappingABC
from itertools import islice
from typing import Any

from oomlint.dialects.cell import BASE, FINAL, Cell


class Readers:
    """Of each field that is read by others those others: what changes with it.

    Cells are only added, and stay as they were computed. Those of a run that is a change of another are mostly the
    other's, and so is who reads whom; a field that is said to be read by one that has been computed anew, and no longer
    reads it, is but computed once more.
    """

    __slots__ = ("_cells", "_earlier", "_found", "_seen")

    def __init__(
        self, cells: MappingABC[str, dict[Any, Cell]], earlier: Readers | None = None
    ) -> None:
        self._cells = cells
        self._found: dict[Any, dict[Any, None]] = {}
        self._earlier: tuple[dict[Any, dict[Any, None]], ...] = ()
        # The first cells of each tier whose reads are known.
        self._seen = dict.fromkeys(cells, 0)
        if earlier is not None:
            self._earlier = (earlier._found, *earlier._earlier)
            self._seen = {tier: len(known) for tier, known in cells.items()}

    def of(self, cells: MappingABC[str, dict[Any, Cell]]) -> Readers:
        """Of cells that were taken over from these, all of which were looked at: the same, and nothing of them apart."""
        made = Readers(cells)
        made._found, made._earlier = self._found, self._earlier
        made._seen = {tier: len(known) for tier, known in cells.items()}
        return made

    def dependents(self, fields: Iterable[Any]) -> set[Any]:
        """The fields, and all that hang on them."""
        self._look()
        known = (self._found, *self._earlier)
        affected: set[Any] = set()
        todo = list(fields)
        while todo:
            field = todo.pop()
            if field not in affected:
                affected.add(field)
                for readers in known:
                    todo += readers.get(field, ())
        return affected

    def of_one(self, fields: Iterable[Any]) -> set[Any]:
        """What reads one of some fields itself."""
        self._look()
        known = (self._found, *self._earlier)
        return {reader for field in fields for found in known for reader in found.get(field, ())}

    def _look(self) -> None:
        """Note what cells read that have been added."""
        found, based = self._found, self._cells[BASE]
        for tier, cells in self._cells.items():
            # What was added stands last: of a change of a run some cells behind hundreds that it shares with it.
            for field, cell in islice(reversed(cells.items()), len(cells) - self._seen[tier]):
                if tier == FINAL and cell is based.get(field):
                    continue  # nothing is forced on it, as on most
                for read in cell.reads:
                    readers = found.get(read)
                    if readers is None:
                        found[read] = {field: None}
                    else:
                        readers[field] = None
            self._seen[tier] = len(cells)
