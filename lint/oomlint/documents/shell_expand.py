"""Shell words after expansion, each character still tied to where it stands in the file.

A word of a command may come from its own text, from a variable's definition, from an
array's element or from a here-document. :class:`Chunk` remembers the whole way: one
:class:`Step` for each text that the characters passed through, the command first and the
place where they are really written last. Edits choose the step at which to splice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from oomlint.documents.text import Span

if TYPE_CHECKING:
    from tree_sitter import Node

CONTINUATION = re.compile(r"\\\r?\n")
_BLANKS = re.compile(r"[ \t\r\n]+")
_SIMPLE_DEFAULT = frozenset({":-", "-", ":=", "="})
# bash(1), "QUOTING": inside double quotes a backslash keeps its meaning before these only.
_ESCAPED_IN_DOUBLE_QUOTES = re.compile(r'\\(\r?\n|[$`"\\])')
_ESCAPED_IN_HEREDOC = re.compile(r"\\(\r?\n|[$`\\])")
_ESCAPED_BARE = re.compile(r"\\(\r?\n|.)", re.DOTALL)

# A word of more pieces, or one that passes more variables, is no setting: left unknown.
_MOST_CHUNKS = 20_000
_LONGEST_PATH = 40


@dataclass(frozen=True, slots=True, eq=False)
class Container:
    """A stretch of text that holds shell words: a command, an array, a variable's value.

    ``forbidden`` are characters that cannot be written in it because of quotes around it.
    """

    kind: Literal["command", "array", "value", "heredoc"]
    span: Span
    variable: str | None = None
    shared: bool = False
    """Defines a variable that is read in more than one place, or that is exported."""
    forbidden: str = ""
    quoted: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """``span`` is the characters' own place in ``container``, or that of the expansion that
    brings them; ``word`` is the word around it, ``quote`` the quotes around ``span``."""

    container: Container
    span: Span
    word: Span
    quote: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Characters with one origin. ``text`` is ``None`` where nobody can know it."""

    text: str | None
    path: tuple[Step, ...]
    splits: bool = False
    """On its way to the command the text passes an unquoted expansion: blanks would split it."""
    many: bool = False
    """Unknown, and it may stand for no word at all or for several."""

    def part(self, start: int, end: int) -> Chunk:
        """The characters ``[start, end)`` of a chunk that is written verbatim."""
        *outer, last = self.path
        assert self.text is not None
        if len(self.text) == last.span.end - last.span.start:
            span = Span(last.span.start + start, last.span.start + end)
        else:
            span = last.span
        return replace(self, text=self.text[start:end], path=(*outer, replace(last, span=span)))


Field = tuple[Chunk, ...]


def field_text(field: Iterable[Chunk]) -> str | None:
    """The word's text, or ``None`` if a part of it is unknown."""
    pieces: list[str] = []
    for chunk in field:
        if chunk.text is None:
            return None
        pieces.append(chunk.text)
    return "".join(pieces)


def from_character(field: Field, start: int) -> Field:
    """What is left of a word from character ``start`` on."""
    cursor = 0
    for index, chunk in enumerate(field):
        if cursor == start:
            return field[index:]
        length = len(chunk.text or "")
        if chunk.text is not None and start < cursor + length:
            return (chunk.part(start - cursor, length), *field[index + 1 :])
        cursor += length
    return ()


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """What a variable holds: ``chunks`` of a plain one, ``fields`` of an array, or neither."""

    name: str
    key_span: Span
    span: Span
    chunks: tuple[Chunk, ...] | None = None
    fields: tuple[Field, ...] | None = None
    exported: bool = False


@dataclass(slots=True)
class Text:
    """The text that a syntax tree was made from, and the way back to the file's offsets."""

    full: str
    data: bytes
    offsets: Sequence[int]
    """Code point in the file for each byte of ``data``, and one more for its end."""
    forbidden: str = ""

    def span(self, node: Node) -> Span:
        return Span(self.offsets[node.start_byte], self.offsets[node.end_byte])

    def of(self, node: Node) -> str:
        span = self.span(node)
        return self.full[span.start : span.end]


def prefix_is_cut(text: Text, command: Node) -> bool:
    """Whether a command's leading assignments stand on a line of their own.

    The grammar takes ``A=1 B=2`` and the next line for one command; the shell does not.
    """
    assignments = [c for c in command.named_children if c.type == "variable_assignment"]
    program = command.child_by_field_name("name")
    if not assignments or program is None:
        return False
    gap = text.full[text.span(assignments[-1]).end : text.span(program).start]
    return "\n" in CONTINUATION.sub("", gap)


class _Break:
    """Marks the end of one word in a run of chunks."""


_BREAK = _Break()
_Piece = Chunk | _Break


class Expander:
    """Expands words of one syntax tree against the variables known at that point."""

    def __init__(self, text: Text, bindings: dict[str, Binding]) -> None:
        self.text = text
        self.bindings = bindings

    def words(self, node: Node, container: Container) -> list[Field]:
        """The words that an argument becomes: none, one, or several."""
        place = _Place(container, self.text.span(node), splits=True)
        fields: list[list[Chunk]] = [[]]
        for count, piece in enumerate(self._pieces(node, place)):
            if count > _MOST_CHUNKS:
                return [(Chunk(None, (place.step(place.word),), many=True),)]
            if isinstance(piece, _Break):
                fields.append([])
            else:
                fields[-1].append(piece)
        return [tuple(field) for field in fields if field]

    def value(self, node: Node, container: Container) -> Field:
        """The value that an assignment stores: expanded, never split into words."""
        place = _Place(container, self.text.span(node))
        chunks: list[Chunk] = []
        for piece in self._pieces(node, place):
            # How the elements of an array join in a plain assignment is IFS's affair.
            if isinstance(piece, _Break) or len(chunks) > _MOST_CHUNKS:
                return (Chunk(None, (place.step(place.word),)),)
            chunks.append(piece)
        return tuple(chunks)

    def heredoc(self, node: Node, container: Container, *, expands: bool) -> Field:
        """The body of a here-document as one value."""
        span = self.text.span(node)
        place = _Place(container, span)
        if not expands:
            return (self._literal(span, place),)
        pieces = self._quoted(node, span, place, _ESCAPED_IN_HEREDOC)
        return tuple(piece for piece in pieces if isinstance(piece, Chunk))

    # -- pieces of one word -----------------------------------------------------------

    def _pieces(self, node: Node, place: _Place) -> Iterator[_Piece]:
        kind = node.type
        span = self.text.span(node)
        if kind in ("word", "number", "variable_name") and not node.named_child_count:
            yield from self._unescaped(span, place, _ESCAPED_BARE)
        elif kind in ("concatenation", "command_name"):
            for child in node.children:
                yield from self._pieces(child, place)
        elif kind == "raw_string":
            yield self._literal(Span(span.start + 1, span.end - 1), place.quoted("'"))
        elif kind == "string":
            inside = Span(span.start + 1, span.end - 1)
            yield from self._quoted(node, inside, place.quoted('"'), _ESCAPED_IN_DOUBLE_QUOTES)
        elif kind in ("simple_expansion", "expansion"):
            yield from self._expansion(node, place)
        elif kind == "brace_expression" or not node.is_named:
            yield self._literal(span, place)
        else:  # $(...), $((...)), <(...), $'...': not read
            yield self._unknown(span, place)

    def _literal(self, span: Span, place: _Place) -> Chunk:
        return Chunk(self.text.full[span.start : span.end], (place.step(span),))

    def _unknown(self, span: Span, place: _Place) -> Chunk:
        return Chunk(None, (place.step(span),), many=place.splits)

    def _unescaped(self, span: Span, place: _Place, escape: re.Pattern[str]) -> Iterator[Chunk]:
        cursor = span.start
        for match in escape.finditer(self.text.full, span.start, span.end):
            if match.start() > cursor:
                yield self._literal(Span(cursor, match.start()), place)
            escaped = match.group(1)
            if escaped not in ("\n", "\r\n"):
                yield Chunk(escaped, (place.step(Span(*match.span())),))
            cursor = match.end()
        if cursor < span.end:
            yield self._literal(Span(cursor, span.end), place)

    def _quoted(
        self, node: Node, inside: Span, place: _Place, escape: re.Pattern[str]
    ) -> Iterator[_Piece]:
        """Text with expansions in it. Gaps between the children are text too: the grammar
        drops blanks there."""
        cursor = inside.start
        for child in node.named_children:
            if child.type in ("string_content", "heredoc_content"):
                continue
            span = self.text.span(child)
            if span.start > cursor:
                yield from self._unescaped(Span(cursor, span.start), place, escape)
            yield from self._pieces(child, place)
            cursor = span.end
        if inside.start == inside.end:
            yield self._literal(inside, place)
        elif cursor < inside.end:
            yield from self._unescaped(Span(cursor, inside.end), place, escape)

    # -- variables --------------------------------------------------------------------

    def _expansion(self, node: Node, place: _Place) -> Iterator[_Piece]:
        span = self.text.span(node)
        here = place.step(span)
        parsed = self._parameter(node)
        if parsed is None:
            yield self._unknown(span, place)
            return
        name, whole_array, default = parsed
        binding = self.bindings.get(name)
        if binding is None and default is not None:
            yield from self._default(default, here)
        elif binding is not None and whole_array and binding.fields is not None:
            yield _BREAK
            for field in binding.fields:
                for chunk in field:
                    yield replace(chunk, path=(here, *chunk.path))
                yield _BREAK
        elif binding is not None and not whole_array and binding.chunks is not None:
            if default is not None and field_text(binding.chunks) == "":
                yield from self._default(default, here)
            else:
                yield from _referred(binding.chunks, here, splits=place.splits)
        else:
            several = place.splits or whole_array or name in ("@", "*")
            yield Chunk(None, (here,), many=several)

    def _default(self, node: Node, here: Step) -> Iterator[_Piece]:
        """The words after ``:-``, which stand in a text of their own."""
        box = Container(
            "value",
            self.text.span(node),
            forbidden=here.container.forbidden + "{}\"'$`\\",
        )
        for piece in self._pieces(node, _Place(box, box.span)):
            if isinstance(piece, Chunk):
                yield replace(piece, path=(here, *piece.path), splits=True)
            else:
                yield piece

    def _parameter(self, node: Node) -> tuple[str, bool, Node | None] | None:
        """Name, whether all elements of an array are meant, and the default of an expansion."""
        children = [child for child in node.children if child.type not in ("$", "${", "}")]
        if not children:
            return None
        head, *rest = children
        whole_array = False
        if head.type == "subscript":
            if not self.text.of(head).endswith("[@]") or not head.named_child_count:
                return None
            whole_array = True
            head = head.named_children[0]
        if head.type not in ("variable_name", "special_variable_name"):
            return None
        if not rest:
            return self.text.of(head), whole_array, None
        if rest[0].type in _SIMPLE_DEFAULT and len(rest) == 2:
            return self.text.of(head), whole_array, rest[1]
        return None


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a word is being expanded: its text, the quotes around, whether blanks split."""

    container: Container
    word: Span
    quote: str = ""
    splits: bool = False

    def step(self, span: Span) -> Step:
        return Step(self.container, span, self.word, self.quote)

    def quoted(self, quote: str) -> _Place:
        return replace(self, quote=quote, splits=False)


def _referred(chunks: Sequence[Chunk], here: Step, *, splits: bool) -> Iterator[_Piece]:
    """A variable's chunks as seen from a place that refers to it."""
    if any(len(chunk.path) >= _LONGEST_PATH for chunk in chunks):
        yield Chunk(None, (here,), many=splits)
        return
    if not splits:
        for chunk in chunks:
            yield replace(chunk, path=(here, *chunk.path))
        return
    pieces = [piece for chunk in chunks for piece in _split(chunk)]
    several = any(isinstance(piece, _Break) for piece in pieces)
    for piece in pieces:
        if isinstance(piece, _Break):
            yield piece
            continue
        first, *deeper = piece.path
        if several:
            first = replace(first, word=first.span)
        yield replace(piece, path=(here, first, *deeper), splits=True, many=piece.text is None)


def _split(chunk: Chunk) -> Iterator[_Piece]:
    if chunk.text is None:
        yield chunk
        return
    cursor = 0
    for match in _BLANKS.finditer(chunk.text):
        if match.start() > cursor:
            yield chunk.part(cursor, match.start())
        yield _BREAK
        cursor = match.end()
    if cursor < len(chunk.text):
        yield chunk.part(cursor, len(chunk.text))
