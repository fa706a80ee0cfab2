"""Text files of lines whose meaning only the program that is given them knows.

Lists of hosts and of variables: their names say nothing, so they are read where a command names
them.
"""

from __future__ import annotations

from oomlint.documents.base import Document, Literal, Mapping, Node, Sequence
from oomlint.documents.text import Edit
from oomlint.errors import CannotEdit

_BY_HAND = "lines of this file are changed by hand"


class Lines(Document, frozen=True, eq=False):
    """Such a file."""

    def set_value(self, node: Node, value: Literal) -> list[Edit]:
        """Write another value in the place of one.

        Raises:
            CannotEdit: it is locked, or the new one is no plain word.
        """
        if node.locked:
            raise CannotEdit(node.locked)
        if not isinstance(value, (str, int, float)) or len(str(value).split()) != 1:
            raise CannotEdit(_BY_HAND)
        return [Edit(self.source.path, node.span.start, node.span.end, str(value))]

    def add_entry(
        self, mapping: Mapping, key: str, value: Literal, *, after: str | None = None
    ) -> list[Edit]:
        raise CannotEdit(_BY_HAND)

    def remove_entry(self, mapping: Mapping, key: str) -> list[Edit]:
        raise CannotEdit(_BY_HAND)

    def rename_entry(self, mapping: Mapping, key: str, new_key: str) -> list[Edit]:
        raise CannotEdit(_BY_HAND)

    def append_item(self, sequence: Sequence, value: Literal) -> list[Edit]:
        raise CannotEdit(_BY_HAND)
