"""New and vanished arguments of a Python call, or entries of a dict, written where its commas, comments and line breaks belong.

Python's own tokenizer tells where the elements between two brackets and the space around them stand. Each keeps its text to
the letter; what changes becomes the smallest edit that does the same.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from itertools import accumulate

from msgspec import Struct
from msgspec.structs import replace

from oomlint.errors import CannotEdit

_BARE_RETURN = re.compile(r"\r(?!\n)")
# Space on a line, what goes on behind a backslash included, a comment, and the end of the line.
_LINE = re.compile(r"((?:\\\r?\n|[ \f\t])*)(#[^\r\n]*)?(\r?\n)")
_QUOTE = re.compile(r"[rRuU]?([\"'])")
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
_TRIVIA = frozenset(
    {
        tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
)  # fmt: skip


def with_argument(text: str, key: str, value: str, after: str | None) -> str:
    """The call or dict ``text`` with one more argument or entry, after the one named."""
    row = _Row.of(text)
    if row.is_call:
        equal = next((each.equal for each in row.elements if each.equal), "=")
        added = f"{key}{equal}{value}"
    else:
        quote = next((each.quote for each in row.elements if each.quote), '"')
        added = f"{quote}{key}{quote}: {value}"
    row.insert(_position(row.elements, after), _Element(added))
    return row.text()


def without_argument(text: str, key: str) -> str:
    """The call or dict ``text`` without one of its arguments or entries."""
    row = _Row.of(text)
    row.remove(_index(row.elements, key))
    return row.text()


def smallest_splice(old: str, new: str) -> tuple[int, int, str]:
    """``(start, end, replacement)`` that turns ``old`` into ``new``."""
    start = 0
    most = min(len(old), len(new))
    while start < most and old[start] == new[start]:
        start += 1
    tail = 0
    while tail < most - start and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return start, len(old) - tail, new[start : len(new) - tail]


# -- space between elements ------------------------------------------------------------------------


class _Line(Struct, frozen=True):
    """What is left of a line behind an element, or a line of its own."""

    space: str
    comment: str
    end: str


class _Space(Struct, frozen=True):
    """Space and comments, over several lines or none."""

    lines: tuple[_Line, ...] = ()
    last: str = ""
    """What stands on the line of what comes next."""

    @classmethod
    def of(cls, text: str) -> _Space:
        lines, place = [], 0
        while (match := _LINE.match(text, place)) is not None:
            lines.append(_Line(match[1], match[2] or "", match[3]))
            place = match.end()
        return cls(tuple(lines), text[place:])

    @property
    def has_comments(self) -> bool:
        """Whether a comment stands in it, or a line that is left empty."""
        return bool(self.lines) and (bool(self.lines[0].comment) or len(self.lines) > 1)

    def text(self) -> str:
        lines = (f"{line.space}{line.comment}{line.end}" for line in self.lines)
        return f"{''.join(lines)}{self.last}"

    def plain(self) -> _Space:
        """The same without comments and lines of their own."""
        return replace(self.uncommented(), lines=self.uncommented().lines[:1])

    def uncommented(self) -> _Space:
        """The same without what stands behind the element on its own line."""
        first, *others = self.lines
        return replace(self, lines=(_Line("", "", first.end), *others))


_BLANK = _Space(last=" ")


def _parted(gap: _Space, between: _Space) -> tuple[_Space, _Space]:
    """The space after an element, shared out between it and one that is put behind it: a
    comment on its line stays with it, all below goes after the newcomer."""
    if not gap.lines:
        return between, gap
    if between.lines:
        above = replace(between, lines=(gap.lines[0], *between.lines[1:]))
    elif gap.lines[0].comment:
        above = replace(gap, lines=gap.lines[:1])
    else:
        above = between
    return above, gap.uncommented()


def _joined(before: _Space, after: _Space, *, closes: bool = False) -> _Space:
    """The space that is left where an element stood between ``before`` and ``after``.

    The comment on the element's own line goes with it; comment lines above and below stay.
    """
    if not after.lines:
        return before if before.has_comments or not closes else after
    if not before.lines:
        return after.uncommented() if closes or len(after.lines) > 1 else before
    lines = (*before.lines, *after.lines[1:])
    return replace(after if closes else before, lines=lines)


# -- elements between brackets ---------------------------------------------------------------------


class _Element(Struct):
    """An argument or an entry as it is written; of one that is added nothing more is asked."""

    text: str
    key: str | None = None
    is_unpacked: bool = False
    """Whether it is ``**rest``."""
    equal: str = ""
    """Of a keyword argument the sign, with the space around it."""
    quote: str = ""
    """Of a key that is a string."""


class _Row(Struct):
    """Elements between brackets and the space around them, with what stands before and behind."""

    is_call: bool
    head: str
    lead: _Space
    elements: list[_Element]
    tails: list[_Space]
    """Before each comma: a comment may stand between an element and its own."""
    gaps: list[_Space]
    """After each comma but a trailing one."""
    closing: _Space
    trailing: bool
    foot: str

    @classmethod
    def of(cls, text: str) -> _Row:
        expression = _parsed(text)
        opening, parts, end = _split(text)
        spaces, place = [], opening
        for part in parts:
            spaces.append(_Space.of(text[place : part.start]))
            place = part.end if part.comma is None else part.comma + 1
        if isinstance(expression, ast.Call):
            elements = [_argument(text, part) for part in parts]
        else:
            elements = [_entry(text, *both) for both in zip(parts, expression.keys, strict=True)]
        # Of brackets with nothing between them all space leads.
        spaces.append(_Space.of(text[place:end]))
        lead, *gaps = spaces
        return cls(
            is_call=isinstance(expression, ast.Call),
            head=text[:opening],
            lead=lead,
            elements=elements,
            tails=[_Space.of(text[part.end : part.comma or part.end]) for part in parts],
            closing=gaps.pop() if gaps else _Space(),
            gaps=gaps,
            trailing=bool(parts) and parts[-1].comma is not None,
            foot=text[end:],
        )

    def text(self) -> str:
        parts = [self.head, self.lead.text()]
        for index, element in enumerate(self.elements):
            parts.append(element.text)
            if index < len(self.gaps):
                parts += (self.tails[index].text(), ",", self.gaps[index].text())
            elif self.trailing:
                parts += (self.tails[index].text(), ",")
        return "".join((*parts, self.closing.text(), self.foot))

    def insert(self, index: int, added: _Element) -> None:
        between = self._separator(index)
        if self.elements and index == 0:
            self.gaps.insert(0, between)
        elif index < len(self.elements):
            self.gaps[index - 1], below = _parted(self.gaps[index - 1], between)
            self.gaps.insert(index, below)
        elif self.elements:
            above, self.closing = _parted(self.closing, between)
            self.gaps.append(above)
        self.elements.insert(index, added)
        self.tails.insert(index, _Space())

    def remove(self, index: int) -> None:
        del self.elements[index], self.tails[index]
        if not self.elements:
            self.lead = self.closing = _Space()
            self.trailing = False
        elif index == 0:
            self.lead = _joined(self.lead, self.gaps.pop(0))
        elif index < len(self.elements):
            self.gaps[index - 1] = _joined(self.gaps[index - 1], self.gaps.pop(index))
        else:
            self.closing = _joined(self.gaps.pop(), self.closing, closes=True)

    def _separator(self, index: int) -> _Space:
        """What stands between elements near ``index``, without comments."""
        gap = self.lead
        if self.gaps:
            gap = self.gaps[min(max(index - 1, 0), len(self.gaps) - 1)]
        return gap.plain() if gap.lines else _BLANK


def _index(elements: Sequence[_Element], key: str) -> int:
    for index in range(len(elements) - 1, -1, -1):
        if elements[index].key == key:
            return index
    raise CannotEdit(f"{key} is not written out in this call")


def _position(elements: Sequence[_Element], after: str | None) -> int:
    """Where a new element goes: behind the one named, else last but before any ``**rest``."""
    if after is not None and any(element.key == after for element in elements):
        return _index(elements, after) + 1
    index = len(elements)
    while index and elements[index - 1].is_unpacked:
        index -= 1
    return index


# -- reading ---------------------------------------------------------------------------------------


class _Token(Struct, frozen=True):
    """A token that is no space and no comment, and where in the text it stands."""

    kind: int
    string: str
    start: int
    end: int

    def is_sign(self, sign: str) -> bool:
        return self.kind == tokenize.OP and self.string == sign

    @property
    def opens(self) -> bool:
        return self.kind == tokenize.OP and self.string in _OPENING

    @property
    def closes(self) -> bool:
        return self.kind == tokenize.OP and self.string in _CLOSING


class _Part(Struct, frozen=True):
    """What stands between two commas, or a comma and a bracket."""

    tokens: list[_Token]
    comma: int | None
    """Where the comma stands that follows."""

    @property
    def start(self) -> int:
        return self.tokens[0].start

    @property
    def end(self) -> int:
        return self.tokens[-1].end


def _parsed(text: str) -> ast.Call | ast.Dict:
    if _BARE_RETURN.search(text):
        raise CannotEdit("a line ends in nothing but a carriage return")
    try:
        # In brackets a call may be broken over lines anywhere.
        expression = ast.parse(f"({text}\n)", mode="eval").body
    except (SyntaxError, RecursionError, MemoryError):
        raise CannotEdit("the call is too intricate to be rewritten") from None
    if not isinstance(expression, (ast.Call, ast.Dict)):
        raise CannotEdit("this is neither a call nor a dict")
    if isinstance(expression, ast.Call) and _is_lone_generator(expression):
        raise CannotEdit("the call has nothing but a generator, which goes with no argument")
    return expression


def _tokens_of(text: str) -> Iterator[_Token]:
    """Those of an expression, which may be broken over lines."""
    bracketed = f"({text}\n)"
    lines = io.StringIO(bracketed, newline="")
    # Of each line where it begins in the text, which is in brackets here.
    begins = [-1, *accumulate(map(len, lines), initial=-1)]
    lines.seek(0)
    for kind, string, start, end, _ in tokenize.generate_tokens(lines.readline):
        if kind not in _TRIVIA:
            first, last = (begins[line] + column for line, column in (start, end))
            if 0 <= first < len(text):
                yield _Token(kind, string, first, last)


def _split(text: str) -> tuple[int, list[_Part], int]:
    """Where the space in an expression's last brackets begins, the parts that stand in them, and where it ends."""
    tokens = list(_tokens_of(text))
    opening = _opening(tokens)
    parts: list[_Part] = []
    waiting: list[_Token] = []
    depth = lambdas = 0
    for token in tokens[opening + 1 : -1]:
        depth += token.opens - token.closes
        if depth == 0:
            lambdas += token.string == "lambda"
            if token.is_sign(":") and lambdas:
                lambdas -= 1
            elif token.is_sign(",") and not lambdas:
                parts.append(_Part(waiting, token.start))
                waiting = []
                continue
        waiting.append(token)
    if waiting:
        parts.append(_Part(waiting, None))
    return tokens[opening].end, parts, tokens[-1].start


def _opening(tokens: Sequence[_Token]) -> int:
    """The place of the bracket that the last token closes."""
    opened: list[int] = []
    last = 0
    for place, token in enumerate(tokens):
        if token.opens:
            opened.append(place)
        elif token.closes:
            last = opened.pop()
    return last


def _is_lone_generator(call: ast.Call) -> bool:
    """Whether the call's brackets are those of a generator as well."""
    made = [each for each in call.args if isinstance(each, ast.GeneratorExp)]
    return any(_end(each) == _end(call) for each in made)


def _end(node: ast.expr) -> tuple[int | None, int | None]:
    return node.end_lineno, node.end_col_offset


def _argument(text: str, part: _Part) -> _Element:
    written = text[part.start : part.end]
    first, *others = part.tokens
    if len(others) > 1 and others[0].is_sign("="):
        return _Element(written, first.string, equal=text[first.end : others[1].start])
    return _Element(written, is_unpacked=first.is_sign("**"))


def _entry(text: str, part: _Part, key: ast.expr | None) -> _Element:
    written = text[part.start : part.end]
    name = key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None
    quote = _QUOTE.match(written) if name is not None else None
    return _Element(written, name, is_unpacked=key is None, quote=quote[1] if quote else "")
