"""New and vanished arguments of a Python call, written by LibCST and returned as one splice.

LibCST knows where commas, comments and line breaks belong; it is given the text of one call
or dict alone, and what it changes in it becomes the smallest edit that does the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias

import libcst as cst
from msgspec import Struct

from oomlint.errors import CannotEdit

_Element: TypeAlias = cst.Arg | cst.BaseDictElement
_Space: TypeAlias = cst.BaseParenthesizableWhitespace
_BARE_RETURN = re.compile(r"\r(?!\n)")
_NONE = cst.SimpleWhitespace("")
_BLANK = cst.SimpleWhitespace(" ")


def with_argument(text: str, key: str, value: str, after: str | None, newline: str) -> str:
    """The call or dict ``text`` with one more argument or entry, after the one named."""
    expression = _parsed(text)
    row = _Row.of(expression)
    content = cst.parse_expression(value)
    added: _Element
    if isinstance(expression, cst.Call):
        equal = next((a.equal for a in expression.args if a.keyword is not None), None)
        if not isinstance(equal, cst.AssignEqual):
            equal = cst.AssignEqual(_NONE, _NONE)
        added = cst.Arg(content, cst.Name(key), equal)
    else:
        quote = _quote_of_keys(expression)
        added = cst.DictElement(cst.SimpleString(f"{quote}{key}{quote}"), content)
    row.insert(_position(row.elements, after), added)
    return _code(row.back_into(expression), newline)


def without_argument(text: str, key: str, newline: str) -> str:
    """The call or dict ``text`` without one of its arguments or entries."""
    expression = _parsed(text)
    row = _Row.of(expression)
    row.remove(_index(row.elements, key))
    return _code(row.back_into(expression), newline)


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


class _Row(Struct):
    """Elements between brackets and the space around them; calls and dicts keep it in
    different places."""

    lead: _Space
    elements: list[_Element]
    tails: list[_Space]
    """Before each comma: a comment may stand between an element and its own."""
    gaps: list[_Space]
    """After each comma but a trailing one."""
    closing: _Space
    trailing: bool

    @classmethod
    def of(cls, expression: cst.Call | cst.Dict) -> _Row:
        """The elements of a call or dictionary, and the space between them."""
        elements: list[_Element]
        if isinstance(expression, cst.Call):
            lead, elements = expression.whitespace_before_args, list(expression.args)
        else:
            lead, elements = expression.lbrace.whitespace_after, list(expression.elements)
        commas = [e.comma for e in elements]
        gaps = [c.whitespace_after for c in commas[:-1] if isinstance(c, cst.Comma)]
        closing: _Space = _NONE
        last = commas[-1] if commas else None
        if isinstance(expression, cst.Dict):
            closing = expression.rbrace.whitespace_before
        elif isinstance(last, cst.Comma):
            closing = last.whitespace_after
        elif expression.args:
            closing = expression.args[-1].whitespace_after_arg
        tails = [_before_comma(element) for element in elements]
        return cls(lead, elements, tails, gaps, closing, isinstance(last, cst.Comma))

    def back_into(self, expression: cst.Call | cst.Dict) -> cst.Call | cst.Dict:
        """The call or dictionary with these elements, laid out as it was."""
        is_call = isinstance(expression, cst.Call)
        spaced: list[_Element] = []
        for index, element in enumerate(self.elements):
            comma: cst.Comma | cst.MaybeSentinel = cst.MaybeSentinel.DEFAULT
            tail = self.tails[index]
            if index < len(self.gaps):
                comma = cst.Comma(tail, self.gaps[index])
            elif self.trailing:
                comma = cst.Comma(tail, self.closing if is_call else _NONE)
            if isinstance(element, cst.Arg):
                last_bare = index == len(self.gaps) and not self.trailing
                after = self.closing if last_bare else _NONE
                spaced.append(element.with_changes(comma=comma, whitespace_after_arg=after))
            else:
                spaced.append(element.with_changes(comma=comma))
        if isinstance(expression, cst.Call):
            return expression.with_changes(args=spaced, whitespace_before_args=self.lead)
        return expression.with_changes(
            elements=spaced,
            lbrace=expression.lbrace.with_changes(whitespace_after=self.lead),
            rbrace=expression.rbrace.with_changes(whitespace_before=self.closing),
        )

    def insert(self, index: int, added: _Element) -> None:
        """Add an element in the place of a number, on a line of its own where the others have one."""
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
        self.tails.insert(index, _NONE)

    def remove(self, index: int) -> None:
        """Take out an element and the space that belongs to it."""
        del self.elements[index], self.tails[index]
        if not self.elements:
            self.lead = self.closing = _NONE
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
        return _plain(gap) if isinstance(gap, cst.ParenthesizedWhitespace) else _BLANK


def _before_comma(element: _Element) -> _Space:
    comma = element.comma
    return comma.whitespace_before if isinstance(comma, cst.Comma) else _NONE


def _plain(gap: cst.ParenthesizedWhitespace) -> cst.ParenthesizedWhitespace:
    return _uncommented(gap).with_changes(empty_lines=[])


def _uncommented(gap: cst.ParenthesizedWhitespace) -> cst.ParenthesizedWhitespace:
    line = gap.first_line.with_changes(comment=None, whitespace=_NONE)
    return gap.with_changes(first_line=line)


def _parted(gap: _Space, between: _Space) -> tuple[_Space, _Space]:
    """The space after an element, shared out between it and one that is put behind it: a
    comment on its line stays with it, all below goes after the newcomer."""
    if not isinstance(gap, cst.ParenthesizedWhitespace):
        return between, gap
    if isinstance(between, cst.ParenthesizedWhitespace):
        above: _Space = between.with_changes(first_line=gap.first_line)
    elif gap.first_line.comment is not None:
        above = gap.with_changes(empty_lines=[])
    else:
        above = between
    return above, _uncommented(gap)


def _joined(before: _Space, after: _Space, *, closes: bool = False) -> _Space:
    """The space that is left where an element stood between ``before`` and ``after``.

    The comment on the element's own line goes with it; comment lines above and below stay.
    """
    if not isinstance(after, cst.ParenthesizedWhitespace):
        return before if _has_comments(before) or not closes else after
    if not isinstance(before, cst.ParenthesizedWhitespace):
        return _uncommented(after) if closes or after.empty_lines else before
    lines = [*before.empty_lines, *after.empty_lines]
    target = after if closes else before
    return target.with_changes(first_line=before.first_line, empty_lines=lines)


def _has_comments(gap: _Space) -> bool:
    return isinstance(gap, cst.ParenthesizedWhitespace) and (
        gap.first_line.comment is not None or bool(gap.empty_lines)
    )


def _parsed(text: str) -> cst.Call | cst.Dict:
    if _BARE_RETURN.search(text):
        raise CannotEdit("a line ends in nothing but a carriage return")
    try:
        # In brackets a call may be broken over lines anywhere.
        expression = cst.parse_expression(f"({text}\n)")
    except (cst.ParserSyntaxError, RecursionError):
        raise CannotEdit("the call is too intricate to be rewritten") from None
    if not isinstance(expression, (cst.Call, cst.Dict)):
        raise CannotEdit("this is neither a call nor a dict")
    if isinstance(expression, cst.Call) and _is_lone_generator(expression):
        raise CannotEdit("the call has nothing but a generator, which goes with no argument")
    return expression.with_changes(lpar=(), rpar=())


def _is_lone_generator(call: cst.Call) -> bool:
    return (
        len(call.args) == 1
        and isinstance(call.args[0].value, cst.GeneratorExp)
        and not (call.args[0].value.lpar)
    )


def _code(node: cst.BaseExpression, newline: str) -> str:
    return cst.Module([], default_newline=newline).code_for_node(node)


def _key(element: _Element) -> str | None:
    if isinstance(element, cst.Arg):
        return element.keyword.value if element.keyword is not None else None
    if isinstance(element, cst.DictElement) and isinstance(element.key, cst.SimpleString):
        value = element.key.evaluated_value
        return value if isinstance(value, str) else None
    return None


def _quote_of_keys(expression: cst.Dict) -> str:
    for element in expression.elements:
        if isinstance(element, cst.DictElement) and isinstance(element.key, cst.SimpleString):
            return element.key.quote[:1]
    return '"'


def _index(elements: Sequence[_Element], key: str) -> int:
    for index in range(len(elements) - 1, -1, -1):
        if _key(elements[index]) == key:
            return index
    raise CannotEdit(f"{key} is not written out in this call")


def _position(elements: Sequence[_Element], after: str | None) -> int:
    """Where a new element goes: behind the one named, else last but before any ``**rest``."""
    if after is not None and any(_key(element) == after for element in elements):
        return _index(elements, after) + 1
    index = len(elements)
    while index and _unpacks(elements[index - 1]):
        index -= 1
    return index


def _unpacks(element: _Element) -> bool:
    if isinstance(element, cst.Arg):
        return element.star == "**"
    return isinstance(element, cst.StarredDictElement)
