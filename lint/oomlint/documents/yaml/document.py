"""YAML documents: nodes with exact spans from parser events, and edits as splices.

The text is read through ruamel.yaml's events, not its composed nodes, so that an alias
keeps a place of its own; nothing is ever dumped. Plain scalars keep their text, because
what ``1e-5`` or ``no`` means depends on the framework's loader (see ``scalars``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from oomlint.documents.base import DataDocument, Literal, Mapping, Node, Scalar, Sequence
from oomlint.documents.brackets import Brackets, Splice
from oomlint.documents.scalars import double_quoted, emit, json_of_yaml, single_quoted
from oomlint.documents.text import Edit, Source, Span
from oomlint.documents.yaml.events import read_events
from oomlint.documents.yaml.nodes import (
    BLOCK_HEADER,
    CORE_TAG,
    STYLES,
    Anchor,
    NodeBuilder,
    NodeContext,
    Style,
    short_tag,
    skip,
)
from oomlint.errors import CannotEdit, ParseError

# Guards against files built to exhaust a reader; no training config comes near them.
_MAX_CHARACTERS: Final = 2**20


class YamlDocument(DataDocument, frozen=True, eq=False):
    """``roots`` has one node per document of the file; none for an empty file."""

    roots: tuple[Node, ...]
    _places: dict[Node, NodeContext]
    _anchors: tuple[Anchor, ...]
    _block_scalars: dict[int, tuple[int, str]]
    """End of a block scalar's last line of text → (start of the line after it, chomping)."""

    def set_value(self, node: Node, value: Literal) -> list[Edit]:
        place = self._editable(node)
        if place.lacks_colon:
            raise CannotEdit("the key has no colon and so no value to replace")
        if isinstance(node, Scalar):
            return self._edits(self._set_scalar(node, place, value))
        self._keep_anchors(node.span)
        if place.style == "block":
            if place.is_root:
                raise CannotEdit("this is the whole document")
            return self._edits(self._replace_block(node.span, place, emit(value)))
        if place.style == "pair":
            raise CannotEdit("a pair inside a list cannot be replaced")
        return self._edits([(node.span.start, node.span.end, emit(value))])

    def add_entry(
        self, mapping: Mapping, key: str, value: Literal, *, after: str | None = None
    ) -> list[Edit]:
        place = self._editable(mapping)
        if any(part.entry is not None and part.entry.key == key for part in place.parts):
            raise CannotEdit(f"{key} is already there")
        index = self._index_of(place, after) if after is not None else None
        if index is None:
            index = len(place.parts) - 1
        if place.style == "block":
            lines: Iterable[str] = self._entry_lines(key, value, 0)
            if isinstance(value, bool) and _spells_in_capitals(mapping):
                lines = (f"{emit(key)}: {value}",)
            return self._edits(self._insert_lines(place, index, lines))
        spelled = self._as_beside(place, index, key, value)
        return self._edits(self._insert_flow(mapping, place, index, spelled))

    def remove_entry(self, mapping: Mapping, key: str) -> list[Edit]:
        place = self._editable(mapping)
        index = self._own_index(mapping, place, key)
        part = place.parts[index]
        if key in place.merged:
            raise CannotEdit(f"without it, {key} would take its value from the merge key")
        if any(entry.key == key for entry in mapping.duplicates):
            raise CannotEdit(f"{key} is given twice; without this one the other would count")
        self._keep_anchors(Span(part.start, part.end))
        if place.style == "flow":
            return self._edits(self._brackets(mapping, place).delete(index))
        if place.style == "pair":
            raise CannotEdit("a pair inside a list cannot be taken apart")
        if len(place.parts) == 1:
            if place.is_root:
                return self._edits([(part.start, part.end, "{}")])
            return self._edits(self._replace_block(mapping.span, place, "{}"))
        return self._edits(self._delete_lines(place, index))

    def _as_beside(self, place: NodeContext, index: int, key: str, value: Literal) -> str:
        """An entry of braces as its neighbour spells its key: among those in double quotes, which are JSON, it is JSON."""
        beside = place.parts[index].entry if place.parts else None
        style = "plain" if beside is None else STYLES.get(self.source.text[beside.key_span.start])
        if style == "double":
            return f"{double_quoted(key)}: {json_of_yaml(value)}"
        return f"{_requoted(style or 'plain', key)}: {emit(value)}"

    def rename_entry(self, mapping: Mapping, key: str, new_key: str) -> list[Edit]:
        place = self._editable(mapping)
        if new_key in mapping.entries:
            raise CannotEdit(f"{new_key} is already there")
        part = place.parts[self._own_index(mapping, place, key)]
        entry = part.entry
        if entry is None or not part.editable_key:
            raise CannotEdit("the key is not a plain or quoted string")
        if any(other.key == key for other in mapping.duplicates):
            raise CannotEdit(f"{key} is given twice")
        if key in place.merged:
            raise CannotEdit(f"{key} would then take its value from the merge key")
        span = entry.key_span
        spelled = _requoted(STYLES.get(self.source.text[span.start], "plain"), new_key)
        return self._edits([(span.start, span.end, spelled)])

    def append_item(self, sequence: Sequence, value: Literal) -> list[Edit]:
        place = self._editable(sequence)
        if place.style == "block":
            lines = self._item_lines(value, 0)
            return self._edits(self._insert_lines(place, len(place.parts) - 1, lines))
        return self._edits(self._insert_flow(sequence, place, len(place.parts) - 1, emit(value)))

    # -- scalars ------------------------------------------------------------------

    def _set_scalar(self, node: Scalar, place: NodeContext, value: Literal) -> list[Splice]:
        _check_tag(place.tag, value)
        text = self.source.text
        if place.style == "empty":
            end = place.head
            rest = text[end : self.source.line_end(end)]
            return [(end, end + len(rest) if not rest.strip() else end, " " + emit(value))]
        spelled = _requoted(place.style, value)
        if isinstance(value, bool) and node.plain and node.value in ("True", "False"):
            spelled = str(value)  # every loader reads the capital spelling alike
        if place.style == "literal":
            header = BLOCK_HEADER.match(text, node.span.start)
            spelled += (header and header["comment"]) or ""
        return [(node.span.start, node.span.end, spelled)]

    # -- block collections --------------------------------------------------------

    def _replace_block(self, span: Span, place: NodeContext, spelled: str) -> list[Splice]:
        """Put one line of text where a block collection stands, keeping the header's comment."""
        header_end = self.source.line_end(place.head)
        self._block_end_is_safe(span.end)
        last = self.source.line_end(span.end) if span.end > header_end else span.end
        if span.start > header_end:
            return [(place.head, place.head, " " + spelled), (header_end, last, "")]
        return [(span.start, last, spelled)]

    def _insert_lines(self, place: NodeContext, index: int, lines: Iterable[str]) -> list[Splice]:
        indent = " " * self._column(place.parts[0].start)
        newline = self.source.newline
        end = place.parts[index].end
        self._block_end_is_safe(end)
        raw_end, chomping = self._block_scalars.get(end, (end, ""))
        body = newline.join(indent + line for line in lines)
        if chomping == "+":
            return [(raw_end, raw_end, body + newline)]
        line_end = self.source.line_end(end)
        if skip(self.source.text, end) < line_end:
            raise CannotEdit("something else stands on the same line")
        line_end = self._past_comments(line_end, len(indent))
        return [(line_end, line_end, newline + body)]

    def _past_comments(self, line_end: int, column: int) -> int:
        """The end of the last of the comment lines below that are indented deeper than ``column``: they
        belong to what stands above."""
        text = self.source.text
        while True:
            start = self.source.next_line(line_end)
            if start == line_end or start >= len(text):
                return line_end
            end = self.source.line_end(start)
            words = text[start:end].lstrip(" ")
            if not words.startswith("#") or end - start - len(words) <= column:
                return line_end
            line_end = end

    def _delete_lines(self, place: NodeContext, index: int) -> list[Splice]:
        text, part = self.source.text, place.parts[index]
        end = self.source.line_end(part.end)
        if skip(text, part.end) < end:
            raise CannotEdit("something else stands on the same line")
        raw_end, chomping = self._block_scalars.get(part.end, (end, ""))
        following = raw_end if chomping == "+" else self.source.next_line(end)
        start = self.source.line_start(part.start)
        lead = text[start : part.start]
        if not lead.strip(" "):
            return [(start, following, "")]
        # The first entry of a list item shares its line with the dash.
        second = place.parts[index + 1].start
        if self.source.line_start(second) == following:
            return [(part.start, second, "")]
        return [(start + len(lead.rstrip()), end, "")]

    def _block_end_is_safe(self, end: int) -> None:
        raw_end, chomping = self._block_scalars.get(end, (end, "-"))
        at_end_of_file = raw_end == len(self.source.text)
        if chomping != "-" and at_end_of_file and not self.source.text.endswith(("\n", "\r")):
            raise CannotEdit("the file ends inside a block of text; end it with a new line first")

    def _entry_lines(self, key: str, value: Literal, column: int) -> Iterator[str]:
        lead = " " * column + emit(key) + ":"
        if isinstance(value, dict) and value:
            yield lead
            for name, item in value.items():
                yield from self._entry_lines(name, item, column + self._mapping_step)
        elif isinstance(value, (list, tuple)) and value:
            yield lead
            for item in value:
                yield from self._item_lines(item, column + self._sequence_step)
        else:
            yield f"{lead} {emit(value)}"

    def _item_lines(self, value: Literal, column: int) -> Iterator[str]:
        if isinstance(value, dict) and value:
            lines = [
                line
                for name, item in value.items()
                for line in self._entry_lines(name, item, column + 2)
            ]
            yield " " * column + "- " + lines[0][column + 2 :]
            yield from lines[1:]
        else:
            yield " " * column + "- " + emit(value)

    @property
    def _mapping_step(self) -> int:
        return self._usual_step(Mapping, default=2)

    @property
    def _sequence_step(self) -> int:
        return self._usual_step(Sequence, default=2)

    def _usual_step(self, kind: type[Mapping] | type[Sequence], *, default: int) -> int:
        """By how many columns this file indents block mappings or lists below their key."""
        steps = Counter(
            self._column(place.parts[0].start) - self._column(place.outer)
            for node, place in self._places.items()
            if isinstance(node, kind) and place.style == "block" and place.outer is not None
        )
        return max(steps, key=steps.__getitem__, default=default)

    # -- flow collections ---------------------------------------------------------

    def _insert_flow(
        self, node: Mapping | Sequence, place: NodeContext, index: int, piece: str
    ) -> list[Splice]:
        if place.style != "flow":
            raise CannotEdit("a pair inside a list cannot be extended")
        brackets = self._brackets(node, place)
        return brackets.insert(piece, index) if place.parts else brackets.fill(piece)

    def _brackets(self, node: Mapping | Sequence, place: NodeContext) -> Brackets:
        return Brackets(
            self.source,
            node.span.start,
            node.span.end - 1,
            [Span(part.start, part.end) for part in place.parts],
            lambda offset: skip(self.source.text, offset),
        )

    # -- helpers ------------------------------------------------------------------

    def _editable(self, node: Node) -> NodeContext:
        if node.locked:
            raise CannotEdit(node.locked)
        place = self._places.get(node)
        if place is None:
            raise CannotEdit("this value is not written in the file")
        return place

    def _index_of(self, place: NodeContext, key: str) -> int | None:
        found = None
        for index, part in enumerate(place.parts):
            if part.entry is not None and part.entry.key == key:
                found = index
        return found

    def _own_index(self, mapping: Mapping, place: NodeContext, key: str) -> int:
        index = self._index_of(place, key)
        if index is None or key not in mapping.entries:
            where = "comes from a merge key (<<)" if key in mapping.entries else "is not there"
            raise CannotEdit(f"{key} {where}")
        return index

    def _keep_anchors(self, span: Span) -> None:
        """Refuse to drop text with an anchor that is used outside of it."""
        for anchor in self._anchors:
            if anchor.offset in span and any(use not in span for use in anchor.uses):
                line = self.source.position(next(u for u in anchor.uses if u not in span))[0]
                raise CannotEdit(f"it holds an anchor that line {line} refers to")

    def _edits(self, splices: Iterable[Splice]) -> list[Edit]:
        edits = []
        for start, end, replacement in splices:
            # Quotes and brackets may touch a comment (`"x"# c`); a bare value would swallow it.
            touches = replacement.strip() and self.source.text[end : end + 1] == "#"
            edits.append(Edit(self.source.path, start, end, replacement + (" " if touches else "")))
        return edits

    def _column(self, offset: int) -> int:
        return self.source.position(offset)[1] - 1


def parse_yaml(source: Source) -> YamlDocument:
    """Read all documents of a YAML file.

    Raises:
        ParseError: the text is not YAML, is an unrendered template, refers to an anchor
            that does not exist, or is too large or too deeply nested for a config.
    """
    if len(source.text) > _MAX_CHARACTERS:
        raise ParseError(source.path, "too large for a training config (over a million characters)")
    if source.text.startswith("\ufeff"):  # libyaml skips it, and counts characters without it
        raise ParseError(source.path, "starts with two byte order marks", line=1, column=1)
    builder = NodeBuilder(source, read_events(source))
    roots = builder.roots()
    return YamlDocument(source, roots, builder.places, builder.anchors(), builder.block_scalars)


_TYPES_OF_TAG: Final[dict[str, tuple[type, ...]]] = {
    "str": (str,),
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
    "null": (type(None),),
}


def _check_tag(tag: str | None, value: Literal) -> None:
    if tag is None:
        return
    allowed = (str,) if tag == "!" else _TYPES_OF_TAG.get(tag.removeprefix(CORE_TAG), ())
    if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
        raise CannotEdit(f"its tag {short_tag(tag)} does not fit the value {emit(value)}")


def _requoted(style: Style, value: Literal) -> str:
    """The value as text; strings keep the quotes that stand there."""
    if isinstance(value, str):
        if style == "double":
            return double_quoted(value)
        if style == "single":
            return single_quoted(value) or double_quoted(value)
    return emit(value)


def _spells_in_capitals(mapping: Mapping) -> bool:
    """Whether the truth values of a mapping are Python's: ``True`` and ``False``."""
    spelled = [
        entry.value.value
        for entry in mapping.entries.values()
        if isinstance(entry.value, Scalar)
        and entry.value.plain
        and entry.value.value in ("true", "false", "True", "False")
    ]
    return bool(spelled) and all(str(each)[0].isupper() for each in spelled)
