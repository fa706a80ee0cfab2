"""Walks a shell script as it runs: variables, branches, functions, scripts within scripts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from oomlint.documents.base import Command
from oomlint.documents.shell.bindings import assignment_word
from oomlint.documents.shell.branches import Conditions
from oomlint.documents.shell.choices import run_case, run_if
from oomlint.documents.shell.commands import CommandReader
from oomlint.documents.shell.effects import consequences, quoted_script
from oomlint.documents.shell.files import WrittenFile, written_names
from oomlint.documents.shell.folders import Folders, OwnFolder
from oomlint.documents.shell.names import WRAPPERS
from oomlint.documents.shell.outcomes import perhaps
from oomlint.documents.shell.printing import printed_by
from oomlint.documents.shell.rounds import run_counted, run_for, run_while
from oomlint.documents.shell.syntax import (
    COUNTING,
    ShellTree,
    Unparsable,
    assigned_names,
    count_uses,
    counted_names,
    is_test,
    misread,
    parse_script,
    prefix_is_cut,
)
from oomlint.documents.shell.variables import Variables
from oomlint.documents.shell.words import Container, Field, Variable, field_text
from oomlint.documents.text import Source, Span

if TYPE_CHECKING:
    from tree_sitter import Node as Syntax

# Nested statements; people stop at ten, and each level costs a walk over what it holds.
_DEEPEST = 60
# The longest of some 600 training scripts of public projects has 270 commands (llm-foundry
# scripts/train/benchmarking/sweep.sh).
_MOST_COMMANDS = 5000
# Files that are sourced, in all.
_MOST_SOURCED = 8


FindSource = Callable[[str], Source | None]
"""The text of another file, by the name that the script has for it."""


class Reader:
    """Walks a script in the order in which it runs."""

    def __init__(
        self,
        source: Source,
        find: FindSource = lambda _name: None,
        arguments: Sequence[str | None] = (),
        inherited: Sequence[tuple[str, str | None]] = (),
    ) -> None:
        self.source = source
        self.find = find
        self.commands: list[Command] = []
        self.scripts: list[ShellTree] = []
        self.variables = Variables(source)
        self.variables.start_with(arguments)
        self.variables.inherit(inherited)
        self.functions: dict[str, tuple[ShellTree, Syntax]] = {}
        self.calls: dict[str, int] = {}
        self.variables.printed_by = partial(printed_by, self)
        self.calls_within = 0
        """Calls of functions in ``$(...)`` that are being followed, each within the one before."""
        self.followed = 0
        """Statements of all of these."""
        self.batches: list[Span] = []
        """Here-documents that are handed to Slurm."""
        self.jobs: dict[str, tuple[ShellTree, Syntax]] = {}
        self.files: dict[str, WrittenFile] = {}
        self.writes: dict[str, int] = {}
        """Where in its text the command stands that wrote a file last."""
        self.made: set[str] = set()
        self.sourced: list[str] = []
        self.folders = Folders()
        self.own_folder = OwnFolder(source.text)
        self.depth = 0
        self.rounds = 0
        self.is_left = False
        """Whether the loop that is running was left by ``break``."""
        self.parsed: dict[Span, ShellTree] = {}

    def run(self) -> None:
        script = self._parse(Span(0, len(self.source.text)))
        self.variables.uses = count_uses(script)
        self.statements(script, script.root)
        for name, (owner, body) in list(self.functions.items()):
            if name not in self.calls:  # never called in this file: other scripts may
                self._isolated(owner, body)

    def _parse(
        self, span: Span, forbidden: str = "", hidden: re.Pattern[str] | None = None
    ) -> ShellTree:
        script = self.parsed.get(span)
        if script is None:
            script = parse_script(self.source.text, span, forbidden, hidden)
            self.parsed[span] = script
            self.scripts.append(script)
        return script

    # -- statements -------------------------------------------------------------------

    def statements(self, script: ShellTree, node: Syntax) -> None:
        for child in node.named_children:
            self.statement(script, child)

    def statement(self, script: ShellTree, node: Syntax) -> None:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise RecursionError
        self._read_statement(script, node)
        self.depth -= 1

    def _read_statement(self, script: ShellTree, node: Syntax) -> None:
        read = _STATEMENTS.get(node.type)
        if read is not None:
            read(self, script, node)
        elif node.type != "comment":
            self.statements(script, node)

    def _unsound(self, script: ShellTree, node: Syntax) -> None:
        self.variables.forget(assigned_names(script, node))

    def _plain_command(self, script: ShellTree, node: Syntax) -> None:
        self._command(script, node, ())
        self.variables.forget(counted_names(script, node))

    def _counted(self, script: ShellTree, node: Syntax) -> None:
        self.statements(script, node)
        self.variables.forget(counted_names(script, node))

    def _assigned(self, script: ShellTree, node: Syntax) -> None:
        for each in [node] if node.type == "variable_assignment" else node.named_children:
            self.variables.assign(script, each, exported=False)

    def _declared(self, script: ShellTree, node: Syntax) -> None:
        self.variables.declare(script, node)

    def _unset(self, script: ShellTree, node: Syntax) -> None:
        for child in node.named_children:
            self.variables.forget({script.text.of(child)})

    def _defined(self, script: ShellTree, node: Syntax) -> None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            self.functions[script.text.of(name)] = (script, body)

    def _list(self, script: ShellTree, node: Syntax) -> None:
        """``a && b || c``: after a test, or after ``||``, what follows may not run."""
        operands: list[tuple[str, Syntax]] = []
        while node.type == "list":
            operator = next((c.type for c in node.children if c.type in ("&&", "||")), "&&")
            operands.append((operator, node.named_children[-1]))
            node = node.named_children[0]
        held = self.conditions(script, operands).holds(node) if is_test(script, node) else None
        tested = is_test(script, node)
        self.statement(script, node)
        for operator, operand in reversed(operands):
            if held is not None:
                runs = held == (operator == "&&")
                if runs:
                    self.statement(script, operand)
                    held = True
            elif operator == "||" or tested:
                perhaps(self, script, [operand])
            else:
                self.statement(script, operand)
                tested = is_test(script, operand)

    def conditions(self, script: ShellTree, guarded: Iterable[tuple[str, Syntax]]) -> Conditions:
        names = {name for _, node in guarded for name in assigned_names(script, node)}
        return Conditions(script.text, self.variables.expander(script), names, self.text_of)

    def text_of(self, name: str) -> str | None:
        """The text of a file that the script looks into, if it is here."""
        found = self.find(name)
        if found is not None and found.path not in self.sourced:
            self.sourced.append(found.path)
        return None if found is None else found.text

    def _isolated(self, script: ShellTree, node: Syntax) -> None:
        """A subshell, or a function that is called from elsewhere: its variables stay inside."""
        with self.variables.kept(), self.folders.kept():
            self.statements(script, node)

    # -- commands ---------------------------------------------------------------------

    def _redirected(self, script: ShellTree, node: Syntax) -> None:
        body = node.child_by_field_name("body")
        redirects = tuple(node.children_by_field_name("redirect"))
        if body is None:
            return
        self.made.update(written_names(script, self.variables.expander(script), (), redirects))
        if body.type == "command":
            self._command(script, body, redirects)
        else:
            self.statement(script, body)
        for redirect in redirects:  # `cat <<EOF | bash`, `cmd <<EOF && other`
            for child in redirect.named_children:
                if child.type in ("pipeline", "list", "command"):
                    self.statement(script, child)

    def _command(self, script: ShellTree, node: Syntax, redirects: tuple[Syntax, ...]) -> None:
        text = script.text
        if not script.sound(node) or misread(text, node):
            self.variables.forget(assigned_names(script, node))
            return
        span = text.span(node)
        cut = prefix_is_cut(text, node)
        if cut:
            name = node.child_by_field_name("name")
            assert name is not None
            span = Span(text.span(name).start, span.end)
        redirects += tuple(c for c in node.children if c.type.endswith("_redirect"))
        box = Container("command", span, forbidden=text.forbidden)
        prefix, program, fields = self.words(script, node, box, is_cut=cut)
        if not fields or program is None:
            return
        first = field_text(fields[0])
        if first is not None and first.startswith("-"):
            return  # the rest of a command that lost its continuation: see the facts
        if first == "eval" and len(fields) == 2 and quoted_script(self, fields[1:], script):
            return
        prefix += self._env_words(fields)
        environment = self.variables.environment(span, box, prefix, program, node, text)
        if len(self.commands) >= _MOST_COMMANDS:
            raise Unparsable("commands")
        if first not in self.functions:  # what a function is given is a command where it runs it
            reader = CommandReader(self.source.text, box, fields)
            command = reader.read(span, environment)
            at = self.folders
            command = replace(command, folder=at.current, folder_is_open=at.is_open)
            self.commands.append(replace(command, folder_is_own=at.is_own and not at.is_open))
        consequences(self, script, node, fields, redirects)

    def _env_words(self, fields: list[Field]) -> list[Variable]:
        """The assignments of ``env A=1 program``, and those out of a variable."""
        found: list[Variable] = []
        wrapped = False
        for words in fields:
            text = field_text(words) or ""
            if (binding := assignment_word(words)) is not None:
                found.append(binding)
            elif not (text in WRAPPERS or (wrapped and text.startswith("-"))):
                break
            wrapped = True
        expanded = len(fields[0][0].path) > 1
        return found if expanded or field_text(fields[0]) in WRAPPERS else []

    def words(
        self, script: ShellTree, node: Syntax, box: Container, *, is_cut: bool
    ) -> tuple[list[Variable], Syntax | None, list[Field]]:
        """The variables before a command, its program, and all its words; ``is_cut``: the variables never reach it."""
        expander = self.variables.expander(script)
        prefix: list[Variable] = []
        program: Syntax | None = None
        fields: list[Field] = []
        for child in node.named_children:
            if child.type == "variable_assignment" and is_cut:
                self.variables.assign(script, child, exported=False)
            elif child.type == "variable_assignment":
                name = child.child_by_field_name("name")
                if name is not None:
                    known_as = script.text.of(name)
                    prefix.append(self.variables.binding(script, child, name, known_as))
            elif child.type != "comment" and not child.type.endswith("_redirect"):
                program = program or child
                fields += expander.words(child, box)
        return prefix, program, fields

    def source_file(self, script: ShellTree, node: Syntax, name: str) -> None:
        """Take in the variables of another file; edits of them belong to whoever reads that."""
        other = self.find(name)
        if other is None or len(self.sourced) >= _MOST_SOURCED:
            return
        self.sourced.append(other.path)
        reader = Reader(other, self.find)
        reader.sourced = self.sourced
        reader.run()
        self.variables.take_in(reader.variables, script.text.span(node))

    def nested(self, span: Span, forbidden: str, hidden: re.Pattern[str] | None = None) -> None:
        """Read a script that stands within this one and runs in a shell of its own."""
        inner = self._parse(span, forbidden, hidden)
        with self.variables.kept(), self.folders.kept():
            self.statements(inner, inner.root)


_STATEMENTS: dict[str, Callable[[Reader, ShellTree, Syntax], None]] = {
    "ERROR": Reader._unsound,
    "command": Reader._plain_command,
    "redirected_statement": Reader._redirected,
    "variable_assignment": Reader._assigned,
    "variable_assignments": Reader._assigned,
    "declaration_command": Reader._declared,
    "unset_command": Reader._unset,
    "function_definition": Reader._defined,
    "subshell": Reader._isolated,
    "list": Reader._list,
    "if_statement": run_if,
    "case_statement": run_case,
    "for_statement": run_for,
    "c_style_for_statement": run_counted,
    "while_statement": run_while,
    "select_statement": run_while,
    **dict.fromkeys(COUNTING, Reader._counted),
}
