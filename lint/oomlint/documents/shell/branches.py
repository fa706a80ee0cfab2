"""Which branch of a script runs: tests of values that are known.

A script is read as if it was started without arguments: ``$#`` is 0 and ``$1`` empty, so that
what it would fill in for them is what counts.
"""

from __future__ import annotations

import fnmatch
import glob
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from oomlint.documents.shell.values import compared
from oomlint.documents.shell.words import Container, field_question, held_text

if TYPE_CHECKING:
    from tree_sitter import Node as Syntax

    from oomlint.documents.shell.expand import Expander
    from oomlint.documents.shell.syntax import ShellTree, Text

_ARGUMENT_LOOP = re.compile(r"\$#|\$\{?#|getopts?\b|\$\{?[1@]\b")
_QUIETLY = ("-q", "-qE", "-Eq", "-qs", "-sq", "-qsE")
_ONE_VARIABLE = re.compile(r'"?\$\{?([A-Za-z_]\w*|\d)(?::?[-+]\s*\w?)?\}?"?')
# What holds of any number from one on.
_COUNT_IS = {
    ("-le", "0"): False, ("-lt", "1"): False, ("-eq", "0"): False,
    ("-gt", "0"): True, ("-ge", "1"): True, ("-ne", "0"): True,
}  # fmt: skip


def reads_arguments(script: ShellTree, condition: Syntax | None) -> bool:
    """Whether a loop goes through the script's own arguments, of which there are none."""
    return condition is not None and bool(_ARGUMENT_LOOP.search(script.text.of(condition)))


def gives_up(script: ShellTree, statements: list[Syntax]) -> bool:
    """Whether statements end the script: without arguments it would not run at all."""
    return any(re.search(r"\bexit\b", script.text.of(node)) for node in statements)


def matching_item(script: ShellTree, node: Syntax, expander: Expander) -> Syntax | None:
    """The item of a ``case`` whose pattern fits a known value."""
    subject = node.child_by_field_name("value")
    value = expander.known(subject) if subject is not None else None
    if value is None:
        return None
    for item in node.named_children:
        if item.type != "case_item":
            continue
        patterns = script.text.of(item).partition(")")[0].lstrip("( \t").split("|")
        if any("$" in pattern for pattern in patterns):
            return None
        if any(fnmatch.fnmatchcase(value, p.strip().strip("\"'")) for p in patterns):
            return item
    return None


class Conditions:
    """Truth of the tests of one script; ``filled_in`` are variables that what the test guards
    would set, so that a test for an empty one asks whether to use a default. ``read`` gives the text
    of a file that lies here, ``None`` of others: what a test asks of those is not known."""

    def __init__(
        self,
        text: Text,
        expander: Expander,
        filled_in: set[str],
        read: Callable[[str], str | None],
    ) -> None:
        self.text = text
        self.expander = expander
        self.filled_in = filled_in
        self.read = read

    def holds(self, node: Syntax) -> bool | None:
        """Whether a condition is true; ``None`` where that is not known."""
        kind = node.type
        if kind == "redirected_statement":  # command -v nvidia-smi >/dev/null
            body = node.child_by_field_name("body")
            return None if body is None else self.holds(body)
        if kind == "compound_statement":
            return self._arithmetic(node)
        if kind in ("test_command", "parenthesized_expression", "negated_command"):
            inner = node.named_children
            held = self.holds(inner[0]) if len(inner) == 1 else None
            return _not(held) if kind == "negated_command" else held
        if kind == "unary_expression":
            return self._unary(node)
        if kind in ("binary_expression", "list"):
            return self._binary(node)
        if kind == "command":
            return self._command(node)
        if kind in ("string", "word", "simple_expansion", "expansion", "raw_string"):
            text = self._text(node)
            return None if text is None else bool(text)
        return None

    def _arithmetic(self, node: Syntax) -> bool | None:
        """``(( i < 3 ))``."""
        written = self.text.of(node).strip()
        is_sum = written.startswith("((") and written.endswith("))")
        number = self.expander.number(written[2:-2]) if is_sum else None
        return None if number is None else number != 0

    def _unary(self, node: Syntax) -> bool | None:
        sign, operand = self.text.of(node.children[0]), node.children[-1]
        if sign == "!":
            return _not(self.holds(operand))
        text = self._text(operand)
        if sign in ("-e", "-f"):
            return True if text and self.read(text) is not None else None
        if sign not in ("-z", "-n"):
            return None
        if text is None and self._counts(operand):
            return sign == "-n"
        return None if text is None else (not text) == (sign == "-z")

    def _binary(self, node: Syntax) -> bool | None:
        left, *_, right = node.children
        sign = self.text.of(node.children[1])
        if sign in ("&&", "-a", "||", "-o"):
            first, second = self.holds(left), self.holds(right)
            decides = sign in ("||", "-o")
            if decides in (first, second):
                return decides
            return None if None in (first, second) else not decides
        if len(node.children) > 3:  # a pattern of several parts: *"lora"*
            texts = self._text(left), self._pattern(node)
        else:
            texts = self._text(left), self._text(right)
        if texts[0] is None and texts[1] is not None and self._counts(left):
            return _COUNT_IS.get((sign, texts[1]))
        if texts[0] is None or texts[1] is None:
            return None
        return compared(texts[0], sign, texts[1])

    def _counts(self, node: Syntax) -> bool:
        """Whether a word is what the machine answers that is asked how many of something it has: it
        trains, so that it has some."""
        box = Container("value", self.text.span(node))
        return bool(field_question(self.expander.value(node, box)))

    def _pattern(self, node: Syntax) -> str | None:
        """What ``[[ … == *"lora"* ]]`` compares with, in the notation of ``fnmatch``: what is quoted
        stands for itself (Bash manual, 3.2.4.3). ``None`` where it has variables or groups."""
        parts = [self.text.of(child) for child in node.children[2:]]
        if any(re.search(r"[$`\\(]", part) for part in parts):
            return None
        return "".join(glob.escape(part[1:-1]) if part[0] in "\"'" else part for part in parts)

    def _command(self, node: Syntax) -> bool | None:
        words = [self._text(child) for child in node.named_children]
        known = [word for word in words if word is not None]
        if len(known) != len(words) or not known:
            return None
        match known:
            case ["true" | ":"]:
                return True
            case ["false"]:
                return False
            case ["test", "-z", text]:
                return not text
            case ["test", "-n", text]:
                return bool(text)
            case ["test", left, sign, right]:
                return compared(left, sign, right)
            case ["test", "-e" | "-f", name]:
                return True if self.read(name) is not None else None
            case ["command", "-v", "nvidia-smi"] | ["which" | "hash" | "type", "nvidia-smi"]:
                return True  # what trains has a driver
            case ["grep", flags, pattern, name] if flags in _QUIETLY:
                return self._is_found(pattern, name)
        return None

    def _is_found(self, pattern: str, name: str) -> bool | None:
        """``grep -q``: whether a line of a file has a match, of a pattern that says the same to Python
        as to grep (GNU grep 3.11, 3.6: basic expressions differ in what braces and the like are)."""
        text = self.read(name)
        if text is None or re.search(r"[\\[({+?|](?!s[*+])", pattern):
            return None
        try:
            return re.search(pattern, text, re.MULTILINE) is not None
        except re.error:
            return None

    def _text(self, node: Syntax) -> str | None:
        text = self.expander.known(node)
        if text is None:
            found = _ONE_VARIABLE.fullmatch(self.text.of(node))
            name = found[1] if found else ""
            binding = self.expander.bindings.get(name)
            if binding is not None:
                return held_text(binding)
            if name.isdigit() or name in self.filled_in:
                return ""
        return text


def _not(held: bool | None) -> bool | None:
    return None if held is None else not held


def arms(node: Syntax) -> Iterator[tuple[Syntax | None, list[Syntax]]]:
    """Condition and statements of each branch of an ``if``; ``else`` has no condition."""
    condition = node.child_by_field_name("condition")
    body = [
        child
        for child in node.named_children
        if child != condition and child.type not in ("elif_clause", "else_clause", "comment")
    ]
    yield condition, body
    for child in node.named_children:
        if child.type == "elif_clause":
            yield from _arms_of_elif(child)
        elif child.type == "else_clause":
            yield None, list(child.named_children)


def _arms_of_elif(node: Syntax) -> Iterator[tuple[Syntax | None, list[Syntax]]]:
    first, *body = node.named_children
    yield first, body
