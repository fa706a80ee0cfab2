"""New and vanished arguments of a Python call, returned as one splice.

``ast`` says what the elements of a call or dict are, ``tokenize`` where commas, comments and line breaks stand
between them; of the text of one call or dict alone, all that is not the change stays as it is. Both are loaded by
then: to load a parser of concrete syntax takes longer than to read forty scripts, and whether a fix can be written is
asked for each that is shown.
"""

from __future__ import annotations

import ast
import re
import tokenize
import warnings
from collections.abc import Sequence
from io import StringIO
from itertools import accumulate
from operator import attrgetter
from typing import Final, TypeAlias

from msgspec import Struct

from oomlint.errors import CannotEdit

_BARE_RETURN = r"\r(?!\n)"
# White space that does not end a line.
_ON_A_LINE = r"(?:[ \t\f]|\\\r?\n)*"
_TO_LINE_END = rf"{_ON_A_LINE}(#[^\r\n]*)?(\r?\n)"
_EQUAL_SIGN = r"\w+(\s*=\s*)"
_KEY_QUOTE = r"[\s(]*[rRuU]?(['\"])"
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
_NO_ELEMENT = frozenset(
    (
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    )
)
_TOO_INTRICATE = "the call is too intricate to be rewritten"
_UNPACKED: Final = 0
_Key: TypeAlias = "str | int | None"
"""The name of an argument or the key of an entry; ``_UNPACKED`` of a mapping that is, ``None`` of all else."""


def with_argument(text: str, key: str, value: str, after: str | None) -> str:
    """The call or dict ``text`` with one more argument or entry, after the one named.

    Raises:
        CannotEdit: it is written so that none can be added.
    """
    expression = _parsed(text)
    keys = _keys(expression)
    row = _row(text, len(keys))
    if isinstance(expression, ast.Call):
        added = f"{key}{_said_like(row, keys, _EQUAL_SIGN, '=')}{value}"
    else:
        quote = _said_like(row, keys, _KEY_QUOTE, '"')
        added = f"{quote}{key}{quote}: {value}"
    row.insert(_position(keys, after), added)
    return row.written()


def without_argument(text: str, key: str) -> str:
    """The call or dict ``text`` without one of its arguments or entries.

    Raises:
        CannotEdit: it is not written out there.
    """
    keys = _keys(_parsed(text))
    row = _row(text, len(keys))
    row.remove(_index(keys, key))
    return row.written()


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


# -- a call or dict as a row of elements ---------------------------------------------------------


class _Row(Struct):
    """The texts of elements between brackets, and the space around them."""

    opening: str
    """All up to the elements' bracket, that included."""
    lead: str
    texts: list[str]
    tails: list[str]
    """Before each comma: a comment may stand between an element and its own."""
    gaps: list[str]
    """After each comma but a trailing one."""
    trailing: bool
    closing: str
    bracket: str

    def written(self) -> str:
        parts = [self.opening, self.lead]
        for index, (text, tail) in enumerate(zip(self.texts, self.tails, strict=True)):
            parts += (text, tail, *((",", self.gaps[index]) if index < len(self.gaps) else ()))
        return "".join((*parts, "," if self.trailing else "", self.closing, self.bracket))

    def insert(self, index: int, added: str) -> None:
        between = self._separator(index)
        if self.texts and index == 0:
            self.gaps.insert(0, between)
        elif index < len(self.texts):
            self.gaps[index - 1], below = _parted(self.gaps[index - 1], between)
            self.gaps.insert(index, below)
        elif self.texts:
            above, self.closing = _parted(self.closing, between)
            self.gaps.append(above)
        self.texts.insert(index, added)
        self.tails.insert(index, "")

    def remove(self, index: int) -> None:
        del self.texts[index], self.tails[index]
        if not self.texts:
            self.lead = self.closing = ""
            self.trailing = False
        elif index == 0:
            self.lead = _joined(self.lead, self.gaps.pop(0))
        elif index < len(self.texts):
            self.gaps[index - 1] = _joined(self.gaps[index - 1], self.gaps.pop(index))
        else:
            self.closing = _joined(self.gaps.pop(), self.closing, closes=True)
            if not self.trailing and _Lines.of(self.tails[-1]) is None:
                self.tails[-1] = ""  # which stood before the comma that is gone

    def _separator(self, index: int) -> str:
        """What stands between elements near ``index``, without comments."""
        gap = self.lead
        if self.gaps:
            gap = self.gaps[min(max(index - 1, 0), len(self.gaps) - 1)]
        lines = _Lines.of(gap)
        return " " if lines is None else lines.newline + lines.last


def _said_like(row: _Row, keys: Sequence[_Key], pattern: str, usual: str) -> str:
    """How the first element with a key writes what a pattern's group stands for."""
    first = next((text for text, key in zip(row.texts, keys, strict=True) if _is_said(key)), "")
    found = re.match(pattern, first)
    return usual if found is None else found[1]


def _is_said(key: _Key) -> bool:
    return isinstance(key, str)


def _index(keys: Sequence[_Key], key: str) -> int:
    for index in range(len(keys) - 1, -1, -1):
        if keys[index] == key:
            return index
    raise CannotEdit(f"{key} is not written out in this call")


def _position(keys: Sequence[_Key], after: str | None) -> int:
    """Where a new element goes: behind the one named, else last but before any ``**rest``."""
    if after is not None and after in keys:
        return _index(keys, after) + 1
    index = len(keys)
    while index and keys[index - 1] == _UNPACKED:
        index -= 1
    return index


# -- reading -------------------------------------------------------------------------------------


def _parsed(text: str) -> ast.Call | ast.Dict:
    if re.search(_BARE_RETURN, text):
        raise CannotEdit("a line ends in nothing but a carriage return")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the user's escapes, not about us
            expression = ast.parse(_bracketed(text), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise CannotEdit(_TOO_INTRICATE) from None
    if not isinstance(expression, (ast.Call, ast.Dict)):
        raise CannotEdit("this is neither a call nor a dict")
    if isinstance(expression, ast.Call) and _is_lone_generator(expression):
        raise CannotEdit("the call has nothing but a generator, which goes with no argument")
    return expression


def _bracketed(text: str) -> str:
    """In brackets a call may be broken over lines anywhere."""
    return f"({text}\n)"


def _is_lone_generator(call: ast.Call) -> bool:
    """Whether the brackets of a call are those of the generator in it."""
    if len(call.args) != 1 or call.keywords or not isinstance(call.args[0], ast.GeneratorExp):
        return False
    end = (call.args[0].end_lineno, call.args[0].end_col_offset)
    return end == (call.end_lineno, call.end_col_offset)


def _keys(expression: ast.Call | ast.Dict) -> list[_Key]:
    """The keys of what stands in a call or dict, in the order in which it is written."""
    if isinstance(expression, ast.Dict):
        return [_UNPACKED if key is None else _text_of(key) for key in expression.keys]
    arguments = sorted(
        (*expression.args, *expression.keywords), key=attrgetter("lineno", "col_offset")
    )
    return [
        (_UNPACKED if each.arg is None else each.arg) if isinstance(each, ast.keyword) else None
        for each in arguments
    ]


def _text_of(key: ast.expr) -> str | None:
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None


def _row(text: str, count: int) -> _Row:
    """A call or dict with so many elements.

    Raises:
        CannotEdit: others are found.
    """
    *before, last = _significant(text)
    open_at: list[int] = []
    for index, (word, _, _) in enumerate(before):
        if word in _OPENING:
            open_at.append(index)
        elif word in _CLOSING:
            open_at.pop()
    if len(open_at) != 1 or last[0] not in _CLOSING or last[2] != len(text):
        raise CannotEdit(_TOO_INTRICATE)
    opening, inside = before[open_at[0]], before[open_at[0] + 1 :]
    pieces, commas = _parted_by_commas(inside)
    if len(pieces) != count:
        raise CannotEdit(_TOO_INTRICATE)
    starts = [opening[2], *(comma + 1 for comma in commas)]
    spaces = [text[a:b] for a, (b, _) in zip(starts, pieces, strict=False)]
    trailing = bool(commas) and len(commas) == len(pieces)
    end = starts[-1] if trailing or not pieces else pieces[-1][1]
    rest = text[end : last[1]]
    return _Row(
        opening=text[: opening[2]],
        lead=spaces[0] if pieces else rest,
        texts=[text[a:b] for a, b in pieces],
        tails=[text[b:comma] for (_, b), comma in zip(pieces, commas, strict=False)]
        + ["" for _ in pieces[len(commas) :]],
        gaps=spaces[1:],
        trailing=trailing,
        closing=rest if pieces else "",
        bracket=text[last[1] :],
    )


_Token: TypeAlias = "tuple[str, int, int]"
"""An operator, or ``lambda``, or nothing in the place of any other word; and where it stands."""


def _significant(text: str) -> list[_Token]:
    """All of a text but its comments and its space."""
    lines = _bracketed(text).split("\n")
    starts = [-1, *(at - 1 for at in accumulate(len(line) + 1 for line in lines))]
    found: list[_Token] = []
    try:
        for token in tokenize.generate_tokens(StringIO(_bracketed(text), newline="\n").readline):
            if token.type not in _NO_ELEMENT:
                is_told = token.type == tokenize.OP or token.string == "lambda"
                start, end = (starts[row - 1] + column for row, column in (token.start, token.end))
                found.append((token.string if is_told else "", start, end))
    except (tokenize.TokenError, SyntaxError):
        raise CannotEdit(_TOO_INTRICATE) from None
    return found[1:-1]


def _parted_by_commas(tokens: Sequence[_Token]) -> tuple[list[tuple[int, int]], list[int]]:
    """Where elements begin and end, and where the commas stand that part them or follow the last."""
    pieces: list[tuple[int, int]] = []
    commas: list[int] = []
    depth = lambdas = 0
    for word, start, end in tokens:
        if word == "," and not depth and not lambdas:
            commas.append(start)
            continue
        depth += (word in _OPENING) - (word in _CLOSING)
        if not depth:  # what a lambda takes stands before its colon, parted by commas too
            lambdas += (word == "lambda") - (word == ":" and lambdas > 0)
        if len(pieces) == len(commas):
            pieces.append((start, end))
        else:
            pieces[-1] = (pieces[-1][0], end)
    return pieces, commas


# -- the space between elements ------------------------------------------------------------------


class _Lines(Struct, frozen=True):
    """Space that goes on over lines, which may hold comments."""

    first: str
    """What ends the first line."""
    newline: str
    has_remark: bool
    """Whether there is a comment on it."""
    middle: str
    """Whole lines below."""
    last: str
    """What the last line begins with."""

    @classmethod
    def of(cls, gap: str) -> _Lines | None:
        """``None`` of space on one line."""
        end = re.match(_TO_LINE_END, gap)
        if end is None:
            return None
        last = max(end.end(), gap.rfind("\n") + 1)
        return cls(end[0], end[2], end[1] is not None, gap[end.end() : last], gap[last:])

    @property
    def has_comments(self) -> bool:
        return self.has_remark or bool(self.middle)

    @property
    def uncommented(self) -> str:
        """Without what ends the first line."""
        return self.newline + self.middle + self.last


def _parted(gap: str, between: str) -> tuple[str, str]:
    """The space after an element, shared out between it and one that is put behind it: a
    comment on its line stays with it, all below goes after the newcomer."""
    lines, new = _Lines.of(gap), _Lines.of(between)
    if lines is None:
        return between, gap
    above = between
    if new is not None:
        above = lines.first + new.middle + new.last
    elif lines.has_remark:
        above = lines.first + lines.last
    return above, lines.uncommented


def _joined(before: str, after: str, *, closes: bool = False) -> str:
    """The space that is left where an element stood between ``before`` and ``after``.

    The comment on the element's own line goes with it; comment lines above and below stay.
    """
    above, below = _Lines.of(before), _Lines.of(after)
    if below is None:
        has_comments = above is not None and above.has_comments
        return before if has_comments or not closes else after
    if above is None:
        return below.uncommented if closes or below.middle else before
    last = below.last if closes else above.last
    return above.first + above.middle + below.middle + last
