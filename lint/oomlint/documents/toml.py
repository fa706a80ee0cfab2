"""TOML documents: values from tomllib, spans from an own scan, and edits as splices.

The standard library checks the text and reads every value; the scan here only finds where
they stand, so it may take valid TOML for granted.
"""

from __future__ import annotations

import math
import re
from typing import Final, TypeAlias

from msgspec import Struct, field

from oomlint.documents.base import DataDocument, Entry, Literal, Mapping, Node, Scalar, Sequence
from oomlint.documents.brackets import Brackets, Splice
from oomlint.documents.scalars import double_quoted
from oomlint.documents.text import Edit, Source, Span
from oomlint.errors import CannotEdit, ParseError
from oomlint.validation.toml import loads

# Guards against files built to exhaust a reader; no training config comes near them.
_MAX_CHARACTERS: Final = 2**20
_MAX_DEPTH: Final = 100

_TRIVIA: Final = re.compile(r"(?:[ \t\r\n]+|#[^\r\n]*)*")
_BETWEEN_ITEMS: Final = re.compile(rf"{_TRIVIA.pattern}(?:,{_TRIVIA.pattern})?")
_KEY_PART: Final = re.compile(r"[A-Za-z0-9_-]+|\"(?:[^\"\\]|\\.)*\"|'[^']*'")
_DOT: Final = re.compile(r"[ \t]*\.[ \t]*")
_STRING: Final = re.compile(
    r'"""(?:[^\\]|\\[\s\S])*?"{3,5}|\'\'\'[\s\S]*?\'{3,5}|"(?:[^"\\]|\\.)*"|\'[^\']*\''
)
_BARE_VALUE: Final = re.compile(r"[^,\]}#\r\n]+")
# Valid tokens that Python's own int and float read as TOML has it, and strings without escapes:
# to have tomllib read each again costs ten times as much.
_DECIMAL: Final = re.compile(r"[+-]?[0-9][0-9_]*")
_FLOAT: Final = re.compile(r"[+-]?(?:[0-9][0-9_]*(?:\.[0-9_]+)?(?:[eE][+-]?[0-9_]+)?|inf|nan)")
_PLAIN_STRING: Final = re.compile(r"\"[^\"\\]*\"|'[^']*'")
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_TEMPLATED: Final = re.compile(r"\$\{|\{\{|\{%")
_ERROR_PLACE: Final = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


class _Table(Struct):
    """A table while it is read: headers and dotted keys may add to it in several places."""

    start: int
    end: int
    header_end: int | None = None
    own: list[str] = field(default_factory=list)
    keys: dict[str, tuple[Span, _Item]] = field(default_factory=dict)
    spans: dict[str, Span] = field(default_factory=dict)


_Item: TypeAlias = "Node | _Table | list[_Table]"
_Key: TypeAlias = "tuple[str, Span]"


class _Place(Struct, frozen=True):
    """How a node is written: ``own`` are the keys that have a line ``key = value``."""

    is_inline: bool = False
    header_end: int | None = None
    own: tuple[str, ...] = ()


_NOWHERE_ELSE: Final = _Place()


class TomlDocument(DataDocument, frozen=True, eq=False):
    root: Mapping
    _places: dict[Node, _Place]

    @property
    def roots(self) -> tuple[Node, ...]:
        return (self.root,)

    def set_value(self, node: Node, value: Literal) -> list[Edit]:
        place = self._editable(node)
        if isinstance(node, Mapping) and not place.is_inline:
            raise CannotEdit("a table with lines of its own cannot be replaced")
        return self._edits([(node.span.start, node.span.end, _emit(value))])

    def add_entry(
        self, mapping: Mapping, key: str, value: Literal, *, after: str | None = None
    ) -> list[Edit]:
        place = self._editable(mapping)
        if key in mapping.entries:
            raise CannotEdit(f"{key} is already there")
        if mapping is self.root and isinstance(value, dict) and value:
            return self._add_table(key, value)
        line = f"{_emit_key(key)} = {_emit(value)}"
        if place.is_inline:
            index = place.own.index(after) if after in place.own else len(place.own) - 1
            brackets = self._brackets(mapping, place)
            return self._edits(brackets.insert(line, index) if place.own else brackets.fill(line))
        if place.own:
            neighbour = mapping.entries[after if after in place.own else place.own[-1]]
            indent = self.source.indent(neighbour.span.start)
            end = self.source.line_end(neighbour.span.end)
        elif place.header_end is not None:
            indent, end = "", self.source.line_end(place.header_end)
        else:
            raise CannotEdit("the table has no header and no line of its own to add to")
        return self._edits([(end, end, self.source.newline + indent + line)])

    def remove_entry(self, mapping: Mapping, key: str) -> list[Edit]:
        place = self._editable(mapping)
        entry = self._own(mapping, place, key)
        if place.is_inline:
            return self._edits(self._brackets(mapping, place).delete(place.own.index(key)))
        starts = self.source.line_starts
        last = self.source.position(entry.span.end)[0]
        following = starts[last] if last < len(starts) else len(self.source.text)
        start = starts[self.source.position(entry.span.start)[0] - 1]
        return self._edits([(start, following, "")])

    def rename_entry(self, mapping: Mapping, key: str, new_key: str) -> list[Edit]:
        entry = self._own(mapping, self._editable(mapping), key)
        if new_key in mapping.entries:
            raise CannotEdit(f"{new_key} is already there")
        return self._edits([(entry.key_span.start, entry.key_span.end, _emit_key(new_key))])

    def append_item(self, sequence: Sequence, value: Literal) -> list[Edit]:
        place = self._editable(sequence)
        if not place.is_inline:
            raise CannotEdit("tables cannot be appended to a list of tables")
        brackets = self._brackets(sequence, place)
        if not sequence.items:
            return self._edits(brackets.fill(_emit(value)))
        return self._edits(brackets.insert(_emit(value), len(sequence.items) - 1))

    def _add_table(self, key: str, value: dict[str, Literal]) -> list[Edit]:
        """A table of its own at the end of the file, where no other table can take it in."""
        text, newline = self.source.text, self.source.newline
        lines = [f"[{_emit_key(key)}]"]
        lines += [f"{_emit_key(str(name))} = {_emit(item)}" for name, item in value.items()]
        before = newline if not text or text.endswith("\n") else newline * 2
        end = len(text)
        return self._edits([(end, end, before + newline.join(lines) + newline)])

    def _editable(self, node: Node) -> _Place:
        if node.locked:
            raise CannotEdit(node.locked)
        if node not in self._places:
            raise CannotEdit("this value is not written in the file")
        return self._places[node]

    def _own(self, mapping: Mapping, place: _Place, key: str) -> Entry:
        if key not in mapping.entries:
            raise CannotEdit(f"{key} is not there")
        if key not in place.own:
            raise CannotEdit(f"{key} is a table or part of a dotted key")
        return mapping.entries[key]

    def _brackets(self, node: Mapping | Sequence, place: _Place) -> Brackets:
        parts = (
            [node.entries[key].span for key in place.own]
            if isinstance(node, Mapping)
            else [item.span for item in node.items]
        )
        text = self.source.text
        return Brackets(
            self.source, node.span.start, node.span.end - 1, parts, lambda at: _skip(text, at)
        )

    def _edits(self, splices: list[Splice]) -> list[Edit]:
        return [Edit(self.source.path, *splice) for splice in splices]


def parse_toml(source: Source) -> TomlDocument:
    """Read a TOML 1.0 file.

    Raises:
        ParseError: tomllib refuses it, or it is too large or too deeply nested.
    """
    if len(source.text) > _MAX_CHARACTERS:
        raise ParseError(source.path, "too large for a training config (over a million characters)")
    try:
        loads(source.text)
    except ValueError as error:
        raise _as_parse_error(source, str(error)) from None
    return _Scanner(source).document()


def _as_parse_error(source: Source, message: str) -> ParseError:
    place = _ERROR_PLACE.search(message)
    line = column = None
    if place is not None:
        message = message[: place.start()]
        end = source.position(len(source.text))
        line, column = (int(place[1]), int(place[2])) if place[1] else end
    return ParseError(source.path, f"not valid TOML: {message}", line=line, column=column)


class _Scanner:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.text = source.text
        self.offset = 0
        self.places: dict[Node, _Place] = {}

    def document(self) -> TomlDocument:
        root = table = _Table(0, 0)
        self.offset = _skip(self.text, 0)
        while self.offset < len(self.text):
            if self.text[self.offset] == "[":
                table = self._header(root)
            else:
                self._pair(table, 0)
            self.offset = _skip(self.text, self.offset)
        node = self._frozen(root, 0)
        return TomlDocument(self.source, node, self.places)

    def _header(self, root: _Table) -> _Table:
        start = self.offset
        is_array = self.text.startswith("[[", start)
        self.offset = _skip(self.text, start + 1 + is_array)
        path = self._key()
        self.offset = _skip(self.text, self.offset) + 1 + is_array
        table = self._descend(root, path[:-1])
        name, span = path[-1]
        known = table.keys.get(name)
        if is_array:
            if known is None:
                known = table.keys[name] = (span, [])
            tables = known[1]
            assert isinstance(tables, list)
            tables.append(_Table(start, self.offset, self.offset))
            return tables[-1]
        if known is None or not isinstance(known[1], _Table):
            table.keys[name] = (span, _Table(start, self.offset))
        found = table.keys[name][1]
        assert isinstance(found, _Table)
        found.start, found.end, found.header_end = start, self.offset, self.offset
        return found

    def _descend(self, table: _Table, path: list[_Key]) -> _Table:
        for name, span in path:
            if name not in table.keys:
                table.keys[name] = (span, _Table(span.start, span.end))
            inner = table.keys[name][1]
            if isinstance(inner, list):
                inner = inner[-1]
            assert isinstance(inner, _Table)
            table = inner
        return table

    def _pair(self, table: _Table, depth: int) -> None:
        start = self.offset
        path = self._key()
        self.offset = _skip(self.text, _skip(self.text, self.offset) + 1)
        value = self._value(depth)
        owner = self._descend(table, path[:-1])
        name, span = path[-1]
        owner.keys[name] = (span, value)
        owner.spans[name] = Span(start, self.offset)
        if owner is table:
            table.own.append(name)
        table.end = owner.end = self.offset

    def _key(self) -> list[_Key]:
        path: list[_Key] = []
        while True:
            match = _KEY_PART.match(self.text, self.offset)
            assert match is not None
            part = match.group()
            if part[0] in "\"'":
                part = str(_read(part))
            path.append((part, Span(*match.span())))
            dot = _DOT.match(self.text, match.end())
            self.offset = dot.end() if dot else match.end()
            if dot is None:
                return path

    def _value(self, depth: int) -> Node:
        if depth > _MAX_DEPTH:
            line, column = self.source.position(self.offset)
            message = f"not valid TOML: nested more than {_MAX_DEPTH} levels deep"
            raise ParseError(self.source.path, message, line=line, column=column)
        start = self.offset
        character = self.text[start]
        if character == "[":
            return self._array(start, depth)
        if character == "{":
            return self._inline_table(start, depth)
        match = _STRING.match(self.text, start) or _BARE_VALUE.match(self.text, start)
        assert match is not None
        token = match.group().rstrip(" \t")
        self.offset = start + len(token)
        value = _read(token)
        is_templated = isinstance(value, str) and _TEMPLATED.search(value)
        locked = "it is filled in by a template" if is_templated else None
        node = Scalar(Span(start, self.offset), value, locked=locked)
        self.places[node] = _NOWHERE_ELSE
        return node

    def _array(self, start: int, depth: int) -> Sequence:
        items: list[Node] = []
        self.offset += 1
        while not self._closes("]"):
            items.append(self._value(depth + 1))
        node = Sequence(Span(start, self.offset), tuple(items))
        self.places[node] = _Place(is_inline=True)
        return node

    def _inline_table(self, start: int, depth: int) -> Mapping:
        table = _Table(start, start)
        self.offset += 1
        while not self._closes("}"):
            self._pair(table, depth + 1)
        table.end = self.offset
        node = self._frozen(table, depth)
        self.places[node] = _Place(is_inline=True, own=tuple(table.own))
        return node

    def _closes(self, bracket: str) -> bool:
        between = _BETWEEN_ITEMS.match(self.text, self.offset)
        assert between is not None
        self.offset = between.end()
        if self.text[self.offset] == bracket:
            self.offset += 1
            return True
        return False

    def _frozen(self, table: _Table, depth: int) -> Mapping:
        entries: dict[str, Entry] = {}
        end = table.end
        for key, (key_span, item) in table.keys.items():
            value = self._freeze(item, depth + 1)
            span = table.spans.get(key, value.span)
            entries[key] = Entry(key, key_span, value, span)
            end = max(end, span.end)
        node = Mapping(Span(table.start, end), entries)
        self.places[node] = _Place(header_end=table.header_end, own=tuple(table.own))
        return node

    def _freeze(self, item: _Item, depth: int) -> Node:
        if depth > _MAX_DEPTH:
            raise ParseError(self.source.path, f"tables nested more than {_MAX_DEPTH} levels deep")
        if isinstance(item, _Table):
            return self._frozen(item, depth)
        if isinstance(item, list):
            tables = tuple(self._frozen(table, depth) for table in item)
            node = Sequence(Span(tables[0].span.start, tables[-1].span.end), tables)
            self.places[node] = _Place()
            return node
        return item


def _read(token: str) -> str | int | float:
    """The value of a valid token; the standard library reads what is not plainly one of Python's."""
    if token in ("true", "false"):
        return token == "true"
    if _DECIMAL.fullmatch(token):
        return int(token)
    if _PLAIN_STRING.fullmatch(token):
        return token[1:-1]
    if _FLOAT.fullmatch(token):
        return float(token)
    value = loads(f"v = {token}")["v"]
    # A date: no setting of a training run is one.
    return value if isinstance(value, (str, int, float)) else token


def _skip(text: str, offset: int) -> int:
    match = _TRIVIA.match(text, offset)
    return match.end() if match else offset


def _emit_key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else double_quoted(key)


def _emit(value: Literal) -> str:
    """A value as TOML on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return double_quoted(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_emit, value)) + "]"
    if isinstance(value, dict):
        pairs = [f"{_emit_key(str(key))} = {_emit(item)}" for key, item in value.items()]
        return "{ " + ", ".join(pairs) + " }" if pairs else "{}"
    raise CannotEdit("TOML has no spelling for this value")
