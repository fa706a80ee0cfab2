"""Walks a shell script as it runs: variables, branches, functions, scripts within scripts."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from oomlint.documents.base import Command
from oomlint.documents.shell.bindings import (
    UNSET,
    assignment_word,
    behind_option,
    retold,
)
from oomlint.documents.shell.branches import (
    Conditions,
    arms,
    gives_up,
    matching_item,
    reads_arguments,
)
from oomlint.documents.shell.commands import (
    PYTHON,
    CommandReader,
    common_level,
)
from oomlint.documents.shell.files import (
    COPYING,
    WrittenFile,
    content_of,
    copied_names,
    written_names,
    written_source,
)
from oomlint.documents.shell.folders import Folders, OwnFolder
from oomlint.documents.shell.names import SHELLS, WRAPPERS
from oomlint.documents.shell.perhaps import may_hold
from oomlint.documents.shell.syntax import (
    COUNTING,
    HIDDEN_IN_HEREDOC,
    HIDDEN_IN_QUOTES,
    ShellTree,
    Unparsable,
    assigned_names,
    count_uses,
    counted_names,
    heredoc_expands,
    is_test,
    misread,
    parse_script,
    prefix_is_cut,
)
from oomlint.documents.shell.variables import Variables
from oomlint.documents.shell.words import (
    Chunk,
    Container,
    Expansion,
    Field,
    Variable,
    field_text,
    held_text,
)
from oomlint.documents.text import Source, Span

if TYPE_CHECKING:
    from tree_sitter import Node as Syntax
_BRANCHES = frozenset(
    {
        "if_statement", "while_statement", "for_statement", "c_style_for_statement",
        "case_statement", "select_statement",
    }
)  # fmt: skip
# Nested statements; people stop at ten, and each level costs a walk over what it holds.
_DEEPEST = 60
# Rounds of loops that are followed, in all.
_NAME = re.compile(r"\$\{?([A-Za-z_]\w*)", re.ASCII)
_MOST_ROUNDS = 48
# Layers of the deepest models whose scripts count them are some hundred.
_MOST_COUNTED = 256
_COUNTS = re.compile(r"[<>]|-(?:l[te]|g[te]|ne)\b")
_COUNTED = re.compile(
    r"for\s*\(\(\s*(?P<name>\w+)\s*=(?P<first>[^;]+);\s*(?P=name)\s*(?P<sign><=?)(?P<last>[^;]+);"
    r"\s*(?:(?P=name)\s*\+\+|\+\+\s*(?P=name)|(?P=name)\s*\+=\s*1)\s*\)\)"
)
_GETOPTS = re.compile(
    r"""getopts\s+(?P<quote>["']?)(?P<letters>[:\w]+)(?P=quote)\s+(?P<name>\w+)"""
)
# The longest of some 600 training scripts of public projects has 270 commands (llm-foundry
# scripts/train/benchmarking/sweep.sh).
_MOST_COMMANDS = 5000
# Calls of functions that are followed, of each and in all: an ablation calls its "train" two dozen times,
# and what evaluates after each of these.
_MOST_CALLS = 32
_MOST_CALLED = 128


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
        self._statements(script, script.root)
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

    def _statements(self, script: ShellTree, node: Syntax) -> None:
        for child in node.named_children:
            self._statement(script, child)

    def _statement(self, script: ShellTree, node: Syntax) -> None:
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
            self._statements(script, node)

    def _unsound(self, script: ShellTree, node: Syntax) -> None:
        self.variables.forget(assigned_names(script, node))

    def _plain_command(self, script: ShellTree, node: Syntax) -> None:
        self._command(script, node, ())
        self.variables.forget(counted_names(script, node))

    def _counted(self, script: ShellTree, node: Syntax) -> None:
        self._statements(script, node)
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
        held = self._conditions(script, operands).holds(node) if is_test(script, node) else None
        tested = is_test(script, node)
        self._statement(script, node)
        for operator, operand in reversed(operands):
            if held is not None:
                runs = held == (operator == "&&")
                if runs:
                    self._statement(script, operand)
                    held = True
            elif operator == "||" or tested:
                self._perhaps(script, [operand])
            else:
                self._statement(script, operand)
                tested = is_test(script, operand)

    def _conditions(self, script: ShellTree, guarded: Iterable[tuple[str, Syntax]]) -> Conditions:
        names = {name for _, node in guarded for name in assigned_names(script, node)}
        return Conditions(script.text, self.variables.expander(script), names, self._text_of)

    def _text_of(self, name: str) -> str | None:
        """The text of a file that the script looks into, if it is here."""
        found = self.find(name)
        if found is not None and found.path not in self.sourced:
            self.sourced.append(found.path)
        return None if found is None else found.text

    def _branch(self, script: ShellTree, node: Syntax) -> None:
        if node.type == "for_statement":
            self._loop(script, node)
        elif node.type == "c_style_for_statement" and self._counts(script, node):
            pass
        elif node.type == "if_statement":
            self._if(script, node)
        elif node.type == "case_statement":
            item = matching_item(script, node, self.variables.expander(script))
            if item is not None:
                self._statements(script, item)
            else:
                self._any_of(script, node, [[child] for child in node.named_children])
        elif node.type == "while_statement" and reads_arguments(
            script, node.child_by_field_name("condition")
        ):
            if self._take_arguments(script, node):
                return
            # Arguments that have no default must be given: nobody knows them.
            names, held = assigned_names(script, node), self.variables.held
            is_started = "@" in held  # whoever starts it may choose any of them
            self.variables.forget(
                {n for n in names if is_started or held_text(held.get(n, UNSET)) == ""}
            )
        elif not self._first_round(script, node):
            self.variables.forget(assigned_names(script, node))
            self._any_of(script, node, [[child] for child in node.named_children])

    def _first_round(self, script: ShellTree, node: Syntax) -> bool:
        """Read what a ``while`` that counts runs at first, as things stand before it; whether it is known to
        run. What later rounds make of its variables nobody knows; of a loop without a count (``while true``) a
        later round may be the one that is meant: it tries again with less."""
        condition, body = node.child_by_field_name("condition"), node.child_by_field_name("body")
        is_while = script.text.of(node).startswith("while")
        if not is_while or condition is None or body is None:
            return False
        if not _COUNTS.search(script.text.of(condition)):
            return False
        if not self._conditions(script, ()).holds(condition):
            return False
        self._statements(script, body)
        self.is_left = False
        self.variables.forget(assigned_names(script, node))
        return True

    def _take_arguments(self, script: ShellTree, node: Syntax) -> bool:
        """Run a loop that takes the script's arguments apart, as long as each round uses some up;
        whether it can be told what comes of that."""
        condition, body = node.child_by_field_name("condition"), node.child_by_field_name("body")
        before, left = dict(self.variables.held), self.variables.arguments
        asked = None if condition is None else _GETOPTS.fullmatch(script.text.of(condition).strip())
        if asked is not None and left is not None and body is not None:
            if self._take_options(script, asked["letters"], asked["name"], left, body):
                return True
            self.variables.held = before
            return False
        while left is not None and condition is not None and body is not None:
            goes_on = self._conditions(script, ()).holds(condition)
            if goes_on is False:
                return True
            self.is_left = False
            if goes_on:
                self._statements(script, body)
            if self.is_left:
                return True
            rest = self.variables.arguments
            if rest is None or len(rest) >= len(left):
                break
            left = rest
        self.variables.held = before
        return False

    def _take_options(
        self, script: ShellTree, letters: str, name: str, left: Sequence[Field], body: Syntax
    ) -> bool:
        """Run the loop of a ``getopts`` for each option among the arguments (POSIX.1-2017, "getopts");
        whether all of them are told apart."""
        at = 0
        while at < len(left):
            option = field_text(left[at])
            if option is None:
                return False
            if not option.startswith("-") or option in ("-", "--"):
                break
            letter, path = option[1:], left[at][0].path
            value: Field = ()
            if len(letter) != 1 or letter not in letters.replace(":", ""):
                return False
            if f"{letter}:" in letters:
                at += 1
                if at >= len(left):
                    return False
                value = left[at]
            self._hold(name, (Chunk(letter, path),))
            self._hold("OPTARG", value)
            self._statements(script, body)
            at += 1
        place = script.text.span(body)
        step = Expansion(Container("value", place, shared=True), place, place)
        self._hold("OPTIND", (Chunk(str(at + 1), (step,)),))
        return True

    def _hold(self, name: str, value: Field) -> None:
        place = value[0].path[0].word if value else Span(0, 0)
        self.variables.held[name] = Variable(name, place, place, value)

    def _any_of(
        self, script: ShellTree, node: Syntax, groups: list[list[Syntax]], *, one_runs: bool = False
    ) -> None:
        """Read groups of statements of which nobody knows whether they run; with ``one_runs``, one of
        them does. A variable that holds the same whichever it is stays known."""
        outcomes: list[Mapping[str, Variable]] = [] if one_runs else [dict(self.variables.held)]
        for group in groups:
            before = dict(self.variables.held)
            with self.folders.kept():
                for child in group:
                    if child.type in _STATEMENT_PARTS or child.type not in _WORD_TYPES:
                        self._statement(script, child)
            outcomes.append(self.variables.held)
            self.variables.held = before
        names = assigned_names(script, node)
        self.variables.forget(names)
        self.variables.held.update(may_hold(names, outcomes))
        self.variables.held.update(_alike(names, outcomes))

    def _if(self, script: ShellTree, node: Syntax) -> None:
        conditions = self._conditions(script, [("", node)])
        open_groups: list[list[Syntax]] = []
        held: bool | None = None
        for condition, body in arms(node):
            held = True if condition is None else conditions.holds(condition)
            if held is False:
                continue
            if held and not open_groups:
                if condition is not None:
                    self._statement(script, condition)
                for child in body:
                    self._statement(script, child)
                if condition is not None and gives_up(script, body):
                    self.variables.forget(set(_NAME.findall(script.text.of(condition))))
                return
            open_groups.append(body if condition is None else [condition, *body])
            if held:
                break
        if open_groups:
            self._any_of(script, node, open_groups, one_runs=held is True)

    def _perhaps(self, script: ShellTree, nodes: list[Syntax]) -> None:
        before = dict(self.variables.held)
        names: set[str] = set()
        for node in nodes:
            names |= assigned_names(script, node)
            with self.folders.kept():
                self._statement(script, node)
        outcomes = (before, self.variables.held)
        self.variables.held = dict(before)
        self.variables.forget(names)
        self.variables.held.update(may_hold(names, outcomes))
        self.variables.held.update(_alike(names, outcomes))

    def _loop(self, script: ShellTree, node: Syntax) -> None:
        """A ``for`` over known words runs once for each; of others one round is read."""
        names = assigned_names(script, node)
        variable = node.child_by_field_name("variable")
        body = node.child_by_field_name("body")
        values = self._loop_values(script, node, variable)
        if body is None:
            self.variables.forget(names)
            return
        if variable is None or not values or self.rounds + len(values) > _MOST_ROUNDS:
            self.variables.forget(names)
            self._any_of(script, node, [[body]])
            return
        name, key = script.text.of(variable), script.text.span(variable)
        for value in values:
            self.rounds += 1
            self.variables.held[name] = Variable(name, key, value[0].path[-1].word, value)
            self._statement(script, body)
        if len(values) > 1:
            self.variables.forget(names)

    def _counts(self, script: ShellTree, node: Syntax) -> bool:
        """Run ``for ((i=0; i<N; i++))`` where it does nothing but set variables; whether it could."""
        header, body = _COUNTED.match(script.text.of(node)), node.child_by_field_name("body")
        if header is None or body is None or _holds_command(body):
            return False
        expander = self.variables.expander(script)
        first, last = expander.number(header["first"]), expander.number(header["last"])
        if first is None or last is None or last - first > _MOST_COUNTED:
            return False
        name, span = header["name"], script.text.span(node)
        step = Expansion(Container("value", span, shared=True), span, span)
        for number in range(first, last + (header["sign"] == "<=")):
            chunks = (Chunk(str(number), (step,)),)
            self.variables.held[name] = Variable(name, span, span, chunks)
            self._statement(script, body)
        return True

    def _loop_values(self, script: ShellTree, node: Syntax, variable: Syntax | None) -> list[Field]:
        """The words that a loop goes over; none where one of them is not known."""
        found: list[Field] = []
        expander = self.variables.expander(script)
        if variable is None:
            return []
        for value in node.children_by_field_name("value"):
            box = self.variables.box(script, script.text.span(value), script.text.of(variable))
            words = expander.words(value, box)
            if any(field_text(word) is None for word in words):
                return []
            found += words
        return found

    def _isolated(self, script: ShellTree, node: Syntax) -> None:
        """A subshell, or a function that is called from elsewhere: its variables stay inside."""
        with self.variables.kept(), self.folders.kept():
            self._statements(script, node)

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
            self._statement(script, body)
        for redirect in redirects:  # `cat <<EOF | bash`, `cmd <<EOF && other`
            for child in redirect.named_children:
                if child.type in ("pipeline", "list", "command"):
                    self._statement(script, child)

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
        prefix, program, fields = self._words(script, node, box, is_cut=cut)
        if not fields or program is None:
            return
        first = field_text(fields[0])
        if first is not None and first.startswith("-"):
            return  # the rest of a command that lost its continuation: see the facts
        if first == "eval" and len(fields) == 2 and self._quoted_script(fields[1:], script):
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
        self._consequences(script, node, fields, redirects)

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

    def _words(
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

    def _consequences(
        self, script: ShellTree, node: Syntax, fields: list[Field], redirects: tuple[Syntax, ...]
    ) -> None:
        """What a command does to the script itself: defines, sources, runs quoted text."""
        texts = [field_text(words) for words in fields]
        program = (texts[0] or "").rsplit("/", 1)[-1]
        heredoc = next((r for r in redirects if r.type == "heredoc_redirect"), None)
        if self._changes_state(script, node, program, fields, heredoc):
            pass
        elif program in self.functions:
            self._call(program, fields[1:])
        elif program in ("source", ".") and len(texts) > 1 and texts[1]:
            self._source(script, node, texts[1])
        elif heredoc is not None and (program in SHELLS or program in ("sbatch", "ssh")):
            if program == "sbatch":
                self.batches.append(script.text.span(heredoc))
            self._heredoc_script(script, heredoc)
        elif program == "printf" and texts[1:2] == ["-v"]:
            self.variables.print_into(script, node, texts[2:])
        elif program in COPYING:
            self.made.update(map(posixpath.normpath, copied_names(texts)))
        elif program in ("cat", "echo", "printf", "tee"):
            self._written(script, node, fields, redirects)
        self._runs_other(script, texts, fields)

    def _changes_state(
        self,
        script: ShellTree,
        node: Syntax,
        program: str,
        fields: list[Field],
        heredoc: Syntax | None,
    ) -> bool:
        """Whether a command is one that changes variables, the folder or the loop that it is in; if so, it has."""
        texts = [field_text(words) for words in fields]
        if program == "set" and (set(texts) & {"-a", "allexport"} or "-ea" in texts):
            self.variables.export_all = "+o" not in texts
        elif program == "shift":
            count = texts[1] if len(texts) > 1 else "1"
            self.variables.shift(int(count) if count and count.isdigit() else 0)
        elif program == "break":
            self.is_left = True
        elif program in Folders.PROGRAMS:
            span = script.text.span(node)
            written = self.source.text[span.start : span.end]
            self.folders.change(
                program,
                texts[1:],
                is_to_own=self.own_folder.is_in(written),
                is_plain=not {"$", "`"} & set(written),
            )
        elif program == "read":
            self.variables.read(script, node, texts, heredoc)
        elif program == "export":  # taken for a program after a line of assignments
            for words in fields[1:]:
                binding = assignment_word(words)
                if binding is not None:
                    self.variables.held[binding.name] = binding
                    self.variables.exports.add(binding.name)
        else:
            return False
        return True

    def _runs_other(self, script: ShellTree, texts: list[str | None], fields: list[Field]) -> None:
        for number, text in enumerate(texts):
            if text is None:
                continue
            name = text.rsplit("/", 1)[-1]
            if name in SHELLS and texts[number + 1 : number + 2] in (["-c"], ["-lc"], ["-ic"]):
                self._quoted_script(fields[number + 2 : number + 3], script)
                return
            if name in _TAKE_A_COMMAND and not number:
                handed = [behind_option(words) for words in fields[1:]]
                read = [self._quoted_script([words], script) for words in handed if words]
                if any(read):
                    return
            before = (texts[number - 1] or "").rsplit("/", 1)[-1] if number else ""
            runs_it = not number or before in SHELLS or before == "sbatch"
            if text in self.jobs and runs_it:
                owner, heredoc = self.jobs.pop(text)
                if "sbatch" in texts[:number]:
                    self.batches.append(owner.text.span(heredoc))
                self._heredoc_script(owner, heredoc)
                return

    def _call(self, name: str, arguments: list[Field]) -> None:
        """Run a function: its arguments are ``$1`` and so on while it runs."""
        self.calls[name] = self.calls.get(name, 0) + 1
        if self.calls[name] > _MOST_CALLS or sum(self.calls.values()) > _MOST_CALLED:
            return
        owner, body = self.functions[name]
        with self.variables.called_with(arguments):
            self._statements(owner, body)

    def _source(self, script: ShellTree, node: Syntax, name: str) -> None:
        """Take in the variables of another file; edits of them belong to whoever reads that."""
        other = self.find(name)
        if other is None or len(self.sourced) >= _MOST_SOURCED:
            return
        self.sourced.append(other.path)
        reader = Reader(other, self.find)
        reader.sourced = self.sourced
        reader.run()
        self.variables.take_in(reader.variables, script.text.span(node))

    def _written(
        self, script: ShellTree, node: Syntax, fields: list[Field], redirects: tuple[Syntax, ...]
    ) -> None:
        """``cat > job.sh <<EOF``: a script is read where it is run, a config where it is named."""
        heredoc = next((r for r in redirects if r.type == "heredoc_redirect"), None)
        expander = self.variables.expander(script)
        for name in written_names(script, expander, fields, redirects):
            self.made.add(name)
            if heredoc is not None:
                self.jobs[name] = self.jobs["./" + name] = (script, heredoc)
            if not script.text.forbidden:
                content = content_of(script, expander, fields, heredoc)
                text = written_source(self.source, content[0], name) if content else None
                if content is not None and text is not None:
                    file = WrittenFile(self.source, text.source, content[1], text.too_long)
                    self._note_file(name.removeprefix("./"), file, node)

    def _note_file(self, name: str, file: WrittenFile, node: Syntax) -> None:
        """Of several texts of a file the last counts, of those of one command, which a loop or a function repeats, the
        first: with it the program is started first."""
        if self.writes.get(name) != node.start_byte:
            self.files[name] = file
        self.writes[name] = node.start_byte

    def _heredoc_script(self, script: ShellTree, heredoc: Syntax) -> None:
        body = next((c for c in heredoc.children if c.type == "heredoc_body"), None)
        if body is None or script.text.forbidden:
            return
        expands = heredoc_expands(script, heredoc)
        hidden = HIDDEN_IN_HEREDOC if expands else None
        self._nested(script.text.span(body), "$`" if expands else "", hidden)

    def _quoted_script(self, fields: list[Field], script: ShellTree) -> bool:
        """Read a script in quotes, where one place holds all of it; whether it did."""
        chunks = [chunk for words in fields for chunk in words]
        if not chunks or script.text.forbidden:
            return False
        level = common_level(chunks)
        steps = [chunk.path[level] for chunk in chunks]
        container, quote = steps[0].container, steps[0].quote
        if container.shared or not (quote or container.kind == "heredoc"):
            return False
        if container.kind in ("value", "heredoc"):
            span = container.span
        else:
            span = Span(min(s.span.start for s in steps), max(s.span.end for s in steps))
        inner = self.source.text[span.start : span.end]
        if not re.search(r"\s", inner):
            return False
        hidden = {"'": None, '"': HIDDEN_IN_QUOTES}.get(quote, HIDDEN_IN_HEREDOC)
        self._nested(span, {"'": "'", '"': '"$`\\'}.get(quote, "$`"), hidden)
        return True

    def _nested(self, span: Span, forbidden: str, hidden: re.Pattern[str] | None = None) -> None:
        inner = self._parse(span, forbidden, hidden)
        with self.variables.kept(), self.folders.kept():
            self._statements(inner, inner.root)


def _holds_command(node: Syntax) -> bool:
    return node.type == "command" or any(map(_holds_command, node.named_children))


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
    **dict.fromkeys(_BRANCHES, Reader._branch),
    **dict.fromkeys(COUNTING, Reader._counted),
}
# Programs to which a command is handed in quotes, to be run elsewhere.
_TAKE_A_COMMAND = frozenset({"ssh", "pdsh", "tmux", "screen", "sbatch", "script", "su", "watch"})
_MOST_SOURCED = 8
_STATEMENT_PARTS = frozenset({"do_group", "elif_clause", "else_clause", "case_item"})
_WORD_TYPES = frozenset(
    {
        "word", "number", "string", "raw_string", "concatenation", "variable_name", "expansion",
        "simple_expansion", "command_substitution", "comment",
    }
)  # fmt: skip


def _alike(
    names: set[str], outcomes: Sequence[Mapping[str, Variable]]
) -> Iterator[tuple[str, Variable]]:
    """Variables that hold the same text in all outcomes of a branch, or Python wherever that lies: what it
    runs is the same; so is a model that lies in a folder, or else on the hub. No single place says it, so that none is
    edited."""
    for name in names:
        found = [each.get(name) for each in outcomes]
        last = found[-1] if found else None
        texts = {None if each is None else held_text(each) for each in found}
        is_python = all(PYTHON.match(text or "") for text in texts)
        if last is None or None in texts:
            continue
        on_hub = _on_hub({text for text in texts if text})
        last = next((each for each in found if each and held_text(each) == on_hub), last)
        if len(texts) == 1 or is_python or on_hub:
            step = Expansion(Container("value", last.span, shared=True), last.span, last.span)
            yield name, replace(last, chunks=retold(last.chunks, step))


_ID = re.compile(
    r"(?!(?:\w+_)?(?:models?|checkpoints?|ckpts?|weights|pretrained|cache|data|outputs?)/)[A-Za-z0-9][\w.-]*/[\w.-]+"
)


def _on_hub(texts: set[str]) -> str | None:
    """The id among the spellings of one model: ``org/name`` beside folders that are called ``name``."""
    ids = [text for text in texts if _ID.fullmatch(text)]
    names = {text.rstrip("/").rpartition("/")[2] for text in texts}
    are_paths = all("/" in text for text in texts)
    return ids[0] if len(ids) == len(names) == 1 < len(texts) and are_paths else None
