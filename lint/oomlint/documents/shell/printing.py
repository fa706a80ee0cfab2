"""What a function of a script prints where ``$(...)`` calls it: ``GPUS="$(count_devices "$DEVICES")"``.

A function that picks the cards, or counts them, is a handful of assignments, tests, loops and ``echo``. Its statements are
followed one by one, strictly: after one that is not understood nothing is said of what it prints.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from oomlint.documents.shell.branches import Conditions, arms, matching_item
from oomlint.documents.shell.machine import asked_by_variable
from oomlint.documents.shell.rounds import words_of_loop
from oomlint.documents.shell.syntax import ShellTree, is_test
from oomlint.documents.shell.values import output_of
from oomlint.documents.shell.words import Chunk, Container, Expansion, Variable, field_text

if TYPE_CHECKING:
    from tree_sitter import Node as Syntax

    from oomlint.documents.shell.reader import Reader

# Calls within calls, and statements of all calls of a script: people count a handful of cards.
_DEEPEST_CALL = 8
_MOST_STATEMENTS = 2_000
# ``[ -n "${CUDA_VISIBLE_DEVICES:-}" ]``: whether whoever starts the script has set it.
_ASKED = re.compile(r"""-[nz]\s+"?\$\{?([A-Za-z_]\w*)(?::?-)?\}?(?=["\s\]])""", re.ASCII)
# What goes there is not what ``$(...)`` takes; complaints are not, either, wherever they go.
_TO_OTHERS = re.compile(r"1?>\s*&2|1?>>?\s*/dev/(?:stderr|null|tty)|&>>?\s*/dev/null")
_COMPLAINTS = re.compile(r"2>>?\s*(?:/dev/null|\S+)")
_STEP = re.compile(
    r"\(\(\s*(?:(?P<name>\w+)\s*\+\+|\+\+\s*(?P<before>\w+)|(?P<sum>\w+)\s*\+=\s*(?P<by>\d+))\s*\)\)"
)


class _NotKnownError(Exception):
    """Only running tells what a statement comes to."""


def printed_by(reader: Reader, name: str, arguments: Sequence[str]) -> str | None:
    """What a function prints, of arguments that are known, without the ends of line behind it; ``None`` where that is not
    known, or where the script has no such function."""
    if name not in reader.functions or reader.calls_within >= _DEEPEST_CALL:
        return None
    reader.calls_within += 1
    call = _Call(reader)
    try:
        with reader.variables.apart():
            call.run(name, arguments)
    except _NotKnownError:
        return None
    finally:
        reader.calls_within -= 1
    return "".join(call.printed).rstrip("\n")


class _Call:
    """A call of a function, in a shell of its own."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.printed: list[str] = []

    def run(self, name: str, arguments: Sequence[str]) -> None:
        script, body = self._reader.functions[name]
        if not script.sound(body):
            raise _NotKnownError
        fields = [(self._chunk(script, body, text),) for text in arguments]
        with self._reader.variables.called_with(fields):
            self._each(script, body)

    def _each(self, script: ShellTree, node: Syntax) -> bool:
        return self._all(script, node.named_children)

    def _all(self, script: ShellTree, statements: Sequence[Syntax]) -> bool:
        """Follow statements up to one that returns; whether one does."""
        return any(self._returns(script, each) for each in statements)

    def _returns(self, script: ShellTree, node: Syntax) -> bool:
        """Follow a statement; whether it returns."""
        self._reader.followed += 1
        if node.type == "comment":
            return False
        follow = _FOLLOWED.get(node.type)
        if follow is None or self._reader.followed > _MOST_STATEMENTS:
            raise _NotKnownError
        return follow(self, script, node)

    def _chunk(self, script: ShellTree, node: Syntax, text: str) -> Chunk:
        span = script.text.span(node)
        return Chunk(text, (Expansion(Container("value", span, shared=True), span, span),))

    # -- variables ----------------------------------------------------------------------

    def _assigned(self, script: ShellTree, node: Syntax) -> bool:
        for each in [node] if node.type == "variable_assignment" else node.named_children:
            self._reader.variables.assign(script, each, exported=False)
        return False

    def _declared(self, script: ShellTree, node: Syntax) -> bool:
        self._reader.variables.declare(script, node)
        return False

    def _group(self, script: ShellTree, node: Syntax) -> bool:
        """``{ …; }``, or ``((count++))``, which is not told apart from it but by what stands there."""
        written = script.text.of(node).strip()
        if not written.startswith("(("):
            return self._each(script, node)
        step = _STEP.fullmatch(written)
        name = step and (step["name"] or step["before"] or step["sum"])
        number = self._reader.variables.expander(script).number(name) if name else None
        if step is None or not name or number is None:
            raise _NotKnownError
        text = str(number + int(step["by"] or 1))
        span = script.text.span(node)
        chunks = (self._chunk(script, node, text),)
        self._reader.variables.held[name] = Variable(name, span, span, chunks)
        return False

    # -- branches and loops ---------------------------------------------------------------

    def _holds(self, script: ShellTree, condition: Syntax) -> bool:
        variables = self._reader.variables
        asked = {
            name
            for name in _ASKED.findall(script.text.of(condition))
            if not asked_by_variable(name)
        }
        reads = self._reader.text_of
        held = Conditions(script.text, variables.expander(script), asked, reads).holds(condition)
        if held is None:
            raise _NotKnownError
        return held

    def _if(self, script: ShellTree, node: Syntax) -> bool:
        for condition, body in arms(node):
            if condition is None or self._holds(script, condition):
                return self._all(script, body)
        return False

    def _case(self, script: ShellTree, node: Syntax) -> bool:
        item = matching_item(script, node, self._reader.variables.expander(script))
        if item is None:
            raise _NotKnownError
        patterns = item.children_by_field_name("value")
        return self._all(script, [each for each in item.named_children if each not in patterns])

    def _list(self, script: ShellTree, node: Syntax) -> bool:
        """``[ … ] && echo … || echo …``."""
        operands: list[tuple[str, Syntax]] = []
        while node.type == "list":
            operands.append((node.children[1].type, node.children[-1]))
            node = node.children[0]
        held = True
        for sign, operand in [("&&", node), *reversed(operands)]:
            if held == (sign == "&&"):
                held = not is_test(script, operand) or self._holds(script, operand)
                if not is_test(script, operand) and self._returns(script, operand):
                    return True
        return False

    def _for(self, script: ShellTree, node: Syntax) -> bool:
        variable, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        values = words_of_loop(self._reader, script, node, variable)
        if variable is None or body is None or values is None:
            raise _NotKnownError
        name, key = script.text.of(variable), script.text.span(variable)
        for value in values:
            self._reader.variables.held[name] = Variable(name, key, key, value)
            if self._each(script, body):
                return True
        return False

    # -- commands -------------------------------------------------------------------------

    def _redirected(self, script: ShellTree, node: Syntax) -> bool:
        body = node.child_by_field_name("body")
        written = [script.text.of(each) for each in node.children_by_field_name("redirect")]
        if body is None or not written:
            raise _NotKnownError
        if any(map(_TO_OTHERS.fullmatch, written)):
            return False
        if not all(map(_COMPLAINTS.fullmatch, written)):
            raise _NotKnownError
        return self._returns(script, body)

    def _piped(self, script: ShellTree, node: Syntax) -> bool:
        text = self._reader.variables.expander(script).printed(node)
        if text is None:
            raise _NotKnownError
        self.printed.append(f"{text}\n")
        return False

    def _tested(self, script: ShellTree, node: Syntax) -> bool:
        return False

    def _command(self, script: ShellTree, node: Syntax) -> bool:
        box = Container("command", script.text.span(node))
        words = self._reader.words(script, node, box, is_cut=False)[2]
        texts = [field_text(word) for word in words]
        program = texts[0] if texts else None
        if program in ("return", "exit"):
            return True
        if program == "read":
            self._reader.variables.read(script, node, texts, None)
            return False
        if program in ("true", ":"):
            return False
        known = [text for text in texts if text is not None]
        if program is None or len(known) < len(texts):
            raise _NotKnownError
        if program in self._reader.functions:
            text = printed_by(self._reader, program, known[1:])
        else:
            text = output_of(known, None) if program in ("echo", "printf") else None
        if text is None:
            raise _NotKnownError
        ends = program == "printf" or (
            program == "echo" and known[1:2] in (["-n"], ["-ne"], ["-en"])
        )
        self.printed.append(text if ends else f"{text}\n")
        return False


_FOLLOWED: dict[str, Callable[[_Call, ShellTree, Syntax], bool]] = {
    "command": _Call._command,
    "redirected_statement": _Call._redirected,
    "pipeline": _Call._piped,
    "variable_assignment": _Call._assigned,
    "variable_assignments": _Call._assigned,
    "declaration_command": _Call._declared,
    "test_command": _Call._tested,
    "list": _Call._list,
    "if_statement": _Call._if,
    "case_statement": _Call._case,
    "for_statement": _Call._for,
    "compound_statement": _Call._group,
}
