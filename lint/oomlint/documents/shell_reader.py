"""Walks a shell script as it runs: variables, branches, functions, scripts within scripts."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from oomlint.documents.base import UNKNOWN, Command, Entry
from oomlint.documents.shell_commands import (
    CommandReader,
    ShellEntry,
    ShellMapping,
    ShellScalar,
    common_level,
    value_of,
)
from oomlint.documents.shell_expand import (
    CONTINUATION,
    Binding,
    Chunk,
    Container,
    Expander,
    Field,
    Step,
    Text,
    field_text,
    from_character,
    prefix_is_cut,
)
from oomlint.documents.shell_names import SHELLS, WRAPPERS
from oomlint.documents.text import Source, Span

if TYPE_CHECKING:
    from tree_sitter import Node as Syntax

_REFERENCE = re.compile(r"\$\{?[!#]?([A-Za-z_]\w*)", re.ASCII)
_ENV_WORD = re.compile(r"([A-Za-z_]\w*)=", re.ASCII)
_BRANCHES = frozenset(
    {
        "if_statement", "while_statement", "for_statement", "c_style_for_statement",
        "case_statement", "select_statement",
    }
)  # fmt: skip
# Nested statements; people stop at ten, and each level costs a walk over what it holds.
_DEEPEST = 60


@dataclass(frozen=True, slots=True, eq=False)
class Script:
    """One syntax tree: the file's own, or that of a script quoted in it."""

    text: Text
    root: Syntax
    damaged: tuple[tuple[int, int], ...] = ()
    """First and last row of each stretch that could not be parsed."""

    def sound(self, node: Syntax) -> bool:
        """Whether a node is free of errors, and so are the lines that it stands on: a
        command may have lost its arguments to the error behind it."""
        if node.has_error:
            return False
        first, last = node.start_point.row, node.end_point.row
        return not any(start <= last and first <= end for start, end in self.damaged)


def _damaged_rows(root: Syntax) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    stack = [root] if root.has_error else []
    while stack:
        node = stack.pop()
        if node.type == "ERROR":
            found.append((node.start_point.row, node.end_point.row))
        elif node.has_error:
            stack += node.children
    return tuple(found)


class Reader:
    """Walks a script in the order in which it runs."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.commands: list[Command] = []
        self.scripts: list[Script] = []
        self.bindings: dict[str, Binding] = {}
        self.exports: set[str] = set()
        self.export_all = False
        self.functions: dict[str, tuple[Script, Syntax]] = {}
        self.written: dict[str, tuple[Script, Syntax]] = {}
        self.uses: dict[str, int] = {}
        self.depth = 0
        self.entries: dict[int, tuple[Binding, ShellEntry]] = {}

    def run(self) -> None:
        script = self._parse(Span(0, len(self.source.text)), "")
        self.uses = _count_uses(script)
        self._statements(script, script.root)
        while self.functions:  # never called in this file: other scripts may
            _, (owner, body) = self.functions.popitem()
            self._isolated(owner, body)

    def _parse(self, span: Span, forbidden: str) -> Script:
        import tree_sitter_bash
        from tree_sitter import Language, Parser

        data, offsets = _bytes_of(self.source.text, span)
        tree = Parser(Language(tree_sitter_bash.language())).parse(data)
        text = Text(self.source.text, data, offsets, forbidden)
        script = Script(text, tree.root_node, _damaged_rows(tree.root_node))
        self.scripts.append(script)
        return script

    # -- statements -------------------------------------------------------------------

    def _statements(self, script: Script, node: Syntax) -> None:
        for child in node.named_children:
            self._statement(script, child)

    def _statement(self, script: Script, node: Syntax) -> None:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise RecursionError
        self._read_statement(script, node)
        self.depth -= 1

    def _read_statement(self, script: Script, node: Syntax) -> None:
        kind = node.type
        if kind == "ERROR":
            self._forget(_assigned_names(script, node))
        elif kind == "command":
            self._command(script, node, ())
        elif kind == "redirected_statement":
            self._redirected(script, node)
        elif kind in ("variable_assignment", "variable_assignments"):
            each = [node] if kind == "variable_assignment" else node.named_children
            for assignment in each:
                self._assign(script, assignment, exported=False)
        elif kind == "declaration_command":
            self._declaration(script, node)
        elif kind == "unset_command":
            for child in node.named_children:
                self._forget({script.text.of(child)})
        elif kind == "function_definition":
            name = node.child_by_field_name("name")
            body = node.child_by_field_name("body")
            if name is not None and body is not None:
                self.functions[script.text.of(name)] = (script, body)
        elif kind in _BRANCHES:
            self._branch(script, node)
        elif kind == "subshell":
            self._isolated(script, node)
        elif kind == "list":
            self._list(script, node)
        elif kind != "comment":
            self._statements(script, node)

    def _list(self, script: Script, node: Syntax) -> None:
        """``a && b || c``: after a test, or after ``||``, what follows may not run."""
        operands: list[tuple[str, Syntax]] = []
        while node.type == "list":
            operator = next((c.type for c in node.children if c.type in ("&&", "||")), "&&")
            operands.append((operator, node.named_children[-1]))
            node = node.named_children[0]
        self._statement(script, node)
        tested = _is_test(script, node)
        for operator, operand in reversed(operands):
            if operator == "||" or tested:
                self._perhaps(script, [operand])
            else:
                self._statement(script, operand)
                tested = _is_test(script, operand)

    def _branch(self, script: Script, node: Syntax) -> None:
        names = _assigned_names(script, node)
        if node.type == "for_statement":
            self._loop_variable(script, node)
        elif node.type != "if_statement" and node.type != "case_statement":
            self._forget(names)
        if node.type == "if_statement":
            groups: list[list[Syntax]] = [[]]
            for child in node.named_children:
                if child.type in ("elif_clause", "else_clause"):
                    groups.append([child])
                else:
                    groups[0].append(child)
        else:
            groups = [[child] for child in node.named_children]
        for group in groups:
            before = dict(self.bindings)
            for child in group:
                if child.type in _STATEMENT_PARTS or child.type not in _WORD_TYPES:
                    self._statement(script, child)
            self.bindings = before
        self._forget(names)

    def _perhaps(self, script: Script, nodes: list[Syntax]) -> None:
        before = dict(self.bindings)
        names: set[str] = set()
        for node in nodes:
            names |= _assigned_names(script, node)
            self._statement(script, node)
        self.bindings = before
        self._forget(names)

    def _loop_variable(self, script: Script, node: Syntax) -> None:
        names = _assigned_names(script, node)
        self._forget(names)
        variable = node.child_by_field_name("variable")
        values = node.children_by_field_name("value")
        if variable is None:
            return
        name = script.text.of(variable)
        self._forget({name})
        if len(values) == 1:
            span = script.text.span(values[0])
            box = self._value_box(script, span, name)
            expander = Expander(script.text, self.bindings)
            words = expander.words(values[0], box)
            if len(words) == 1 and field_text(words[0]) is not None:
                key = script.text.span(variable)
                self.bindings[name] = Binding(name, key, span, words[0])

    def _isolated(self, script: Script, node: Syntax) -> None:
        """A subshell, or a function that is called from elsewhere: its variables stay inside."""
        before, exported = dict(self.bindings), set(self.exports)
        self._statements(script, node)
        self.bindings, self.exports = before, exported

    # -- variables --------------------------------------------------------------------

    def _forget(self, names: set[str]) -> None:
        for name in names:
            if name in self.bindings:
                self.bindings[name] = replace(self.bindings[name], chunks=None, fields=None)
            else:
                self.bindings[name] = Binding(name, Span(0, 0), Span(0, 0))

    def _value_box(self, script: Script, span: Span, name: str) -> Container:
        text = self.source.text
        quoted = span.end - span.start >= 2 and text[span.start] in "\"'"
        inside = Span(span.start + 1, span.end - 1) if quoted else span
        shared = self.uses.get(name, 0) > 1 or name in self.exports
        return Container("value", inside, name, shared, script.text.forbidden, quoted)

    def _assign(self, script: Script, node: Syntax, *, exported: bool) -> Binding | None:
        name_node = node.child_by_field_name("name")
        if not script.sound(node) or name_node is None or name_node.type != "variable_name":
            self._forget(_assigned_names(script, node))
            return None
        name = script.text.of(name_node)
        if exported:
            self.exports.add(name)
        binding = self._binding(script, node, name_node, name)
        self.bindings[name] = binding
        return binding

    def _binding(self, script: Script, node: Syntax, name_node: Syntax, name: str) -> Binding:
        text = script.text
        key_span, span = text.span(name_node), text.span(node)
        appends = any(child.type == "+=" for child in node.children)
        earlier = self.bindings.get(name)
        value = node.child_by_field_name("value")
        expander = Expander(text, self.bindings)
        if value is not None and value.type == "array":
            box = Container(
                "array", _inside(text.span(value)), name, self.uses.get(name, 0) > 1, text.forbidden
            )
            fields = tuple(
                word
                for child in value.named_children
                if child.type != "comment"
                for word in expander.words(child, box)
            )
            if appends:
                if earlier is None or earlier.fields is None:
                    return Binding(name, key_span, span)
                fields = (*earlier.fields, *fields)
            return Binding(name, key_span, span, fields=fields)
        chunks: Field
        if value is None:
            chunks = (
                Chunk(
                    "",
                    (
                        Step(
                            self._value_box(script, Span(span.end, span.end), name),
                            Span(span.end, span.end),
                            Span(span.end, span.end),
                        ),
                    ),
                ),
            )
        else:
            body = _heredoc_of_cat(value)
            if body is not None:
                chunks = self._heredoc_value(script, body, name)
            else:
                chunks = expander.value(value, self._value_box(script, text.span(value), name))
        if appends:
            if earlier is None or earlier.chunks is None:
                return Binding(name, key_span, span)
            chunks = (*earlier.chunks, *chunks)
        return Binding(name, key_span, span, chunks)

    def _heredoc_value(self, script: Script, redirect: Syntax, name: str) -> Field:
        body = next((c for c in redirect.children if c.type == "heredoc_body"), None)
        shared = self.uses.get(name, 0) > 1
        if body is None:
            span = script.text.span(redirect)
            box = Container("heredoc", span, name, shared, script.text.forbidden)
            return (Chunk(None, (Step(box, span, span),)),)
        box = Container("heredoc", script.text.span(body), name, shared, script.text.forbidden)
        expander = Expander(script.text, self.bindings)
        return expander.heredoc(body, box, expands=_heredoc_expands(script, redirect))

    def _declaration(self, script: Script, node: Syntax) -> None:
        words = [script.text.of(child) for child in node.children]
        exports = words[0] == "export" or any(re.fullmatch(r"-\w*x\w*", w) for w in words[1:])
        if "-n" in words[1:] and words[0] == "export":
            exports = False
        for child in node.named_children:
            if child.type == "variable_assignment":
                self._assign(script, child, exported=exports)
            elif child.type == "variable_name" and exports:
                self.exports.add(script.text.of(child))

    # -- commands ---------------------------------------------------------------------

    def _redirected(self, script: Script, node: Syntax) -> None:
        body = node.child_by_field_name("body")
        redirects = tuple(node.children_by_field_name("redirect"))
        if body is None:
            return
        if body.type == "command":
            self._command(script, body, redirects)
        else:
            self._statement(script, body)
        for redirect in redirects:  # `cat <<EOF | bash`, `cmd <<EOF && other`
            for child in redirect.named_children:
                if child.type in ("pipeline", "list", "command"):
                    self._statement(script, child)

    def _command(self, script: Script, node: Syntax, redirects: tuple[Syntax, ...]) -> None:
        text = script.text
        if not script.sound(node) or _misread(text, node):
            self._forget(_assigned_names(script, node))
            return
        span = text.span(node)
        cut = prefix_is_cut(text, node)
        if cut:
            name = node.child_by_field_name("name")
            assert name is not None
            span = Span(text.span(name).start, span.end)
        redirects += tuple(c for c in node.children if c.type.endswith("_redirect"))
        box = Container("command", span, forbidden=text.forbidden)
        expander = Expander(text, self.bindings)
        fields: list[Field] = []
        prefix: list[Binding] = []
        program: Syntax | None = None
        for child in node.named_children:
            if child.type == "variable_assignment" and cut:
                self._assign(script, child, exported=False)
            elif child.type == "variable_assignment":
                name = child.child_by_field_name("name")
                if name is not None:
                    prefix.append(self._binding(script, child, name, text.of(name)))
            elif child.type.endswith("_redirect"):
                continue
            else:
                program = program or child
                fields += expander.words(child, box)
        if not fields or program is None:
            return
        first = field_text(fields[0])
        if first is not None and first.startswith("-"):
            return  # the rest of a command that lost its continuation: see the facts
        if first == "eval" and len(fields) == 2 and self._quoted_script(fields[1:], script):
            return
        prefix += self._env_words(fields)
        environment = self._environment(span, box, prefix, program, node, text)
        reader = CommandReader(self.source.text, box, fields)
        self.commands.append(reader.read(span, environment))
        self._consequences(script, node, fields, redirects)

    def _env_words(self, fields: list[Field]) -> list[Binding]:
        """The assignments of ``env A=1 program`` and of ``time A=1 program``."""
        found: list[Binding] = []
        wrapped = False
        for words in fields:
            text = field_text(words) or ""
            if (binding := _assignment_word(words)) is not None:
                found.append(binding)
            elif not (text in WRAPPERS or (wrapped and text.startswith("-"))):
                break
            wrapped = True
        return found if field_text(fields[0]) in WRAPPERS else []

    def _environment(
        self,
        span: Span,
        box: Container,
        prefix: list[Binding],
        program: Syntax,
        node: Syntax,
        text: Text,
    ) -> ShellMapping:
        entries: dict[str, Entry] = {}
        for name, binding in self.bindings.items():
            if (name in self.exports or self.export_all) and binding.fields is None:
                if id(binding) not in self.entries:
                    entry = self._environment_entry(binding, None)
                    self.entries[id(binding)] = (binding, entry)
                entries[name] = self.entries[id(binding)][1]
        own: list[str] = []
        for binding in prefix:
            entries.pop(binding.name, None)
            entries[binding.name] = self._environment_entry(binding, box)
            own.append(binding.name)
        at, gap = text.span(program).start, " "
        if text.of(program) in ("time", "sudo"):
            following = program.next_named_sibling
            at = text.span(following).start if following is not None else at
        elif prefix and not prefix_is_cut(text, node):
            assignments = [c for c in node.named_children if c.type == "variable_assignment"]
            gap = self.source.text[text.span(assignments[-1]).end : at] if assignments else " "
        return ShellMapping(
            span, entries, style="environment", container=box, prefix_at=at, prefix_gap=gap
        )

    def _environment_entry(self, binding: Binding, box: Container | None) -> ShellEntry:
        if binding.chunks:
            value = value_of(self.source.text, binding.chunks, 0, "environment")
        else:
            place = binding.span
            value = ShellScalar(
                place, UNKNOWN, locked="its value is only known when the script runs"
            )
        return ShellEntry(binding.name, binding.key_span, value, binding.span, container=box)

    def _consequences(
        self, script: Script, node: Syntax, fields: list[Field], redirects: tuple[Syntax, ...]
    ) -> None:
        """What a command does to the script itself: defines, sources, runs quoted text."""
        texts = [field_text(words) for words in fields]
        program = (texts[0] or "").rsplit("/", 1)[-1]
        heredoc = next((r for r in redirects if r.type == "heredoc_redirect"), None)
        if program == "set" and (set(texts) & {"-a", "allexport"} or "-ea" in texts):
            self.export_all = "+o" not in texts
        elif program == "read":
            names = [t for t in texts[1:] if t and not t.startswith("-") and t.isidentifier()]
            if heredoc is not None and len(names) == 1:
                name = names[0]
                chunks = self._heredoc_value(script, heredoc, name)
                self.bindings[name] = Binding(
                    name, script.text.span(node), script.text.span(node), chunks
                )
            else:
                self._forget(set(names))
        elif program == "export":  # taken for a program after a line of assignments
            for words in fields[1:]:
                binding = _assignment_word(words)
                if binding is not None:
                    self.bindings[binding.name] = binding
                    self.exports.add(binding.name)
        elif program in self.functions:
            owner, body = self.functions.pop(program)
            self._statements(owner, body)
        elif heredoc is not None and (program in SHELLS or program in ("sbatch", "ssh")):
            self._heredoc_script(script, heredoc)
        elif heredoc is not None and program == "cat":
            self._written_script(script, node, heredoc, redirects)
        self._runs_other(script, texts, fields)

    def _runs_other(self, script: Script, texts: list[str | None], fields: list[Field]) -> None:
        for number, text in enumerate(texts):
            if text is None:
                continue
            name = text.rsplit("/", 1)[-1]
            if (
                name in SHELLS
                and number + 2 < len(texts) + 0
                and texts[number + 1] in ("-c", "-lc")
            ):
                self._quoted_script(fields[number + 2 : number + 3], script)
                return
            before = (texts[number - 1] or "").rsplit("/", 1)[-1] if number else ""
            runs_it = not number or before in SHELLS or before == "sbatch"
            if text in self.written and runs_it:
                owner, heredoc = self.written.pop(text)
                self._heredoc_script(owner, heredoc)
                return

    def _written_script(
        self, script: Script, node: Syntax, heredoc: Syntax, redirects: tuple[Syntax, ...]
    ) -> None:
        """``cat > job.sh <<EOF``: read it where ``job.sh`` is run."""
        files = [r for r in (*redirects, *heredoc.named_children) if r.type == "file_redirect"]
        for redirect in files:
            target = redirect.child_by_field_name("destination")
            if target is not None:
                name = script.text.of(target).strip("\"'")
                self.written[name] = (script, heredoc)
                self.written["./" + name] = (script, heredoc)

    def _heredoc_script(self, script: Script, heredoc: Syntax) -> None:
        body = next((c for c in heredoc.children if c.type == "heredoc_body"), None)
        if body is None or script.text.forbidden:
            return
        expands = _heredoc_expands(script, heredoc)
        self._nested(script.text.span(body), "$`" if expands else "")

    def _quoted_script(self, fields: list[Field], script: Script) -> bool:
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
        if not re.search(r"\s", inner) or ("\\" in CONTINUATION.sub("", inner) and quote != "'"):
            return False
        self._nested(span, {"'": "'", '"': '"$`\\'}.get(quote, "$`"))
        return True

    def _nested(self, span: Span, forbidden: str) -> None:
        before, exported = dict(self.bindings), set(self.exports)
        inner = self._parse(span, forbidden)
        self._statements(inner, inner.root)
        self.bindings, self.exports = before, exported


_STATEMENT_PARTS = frozenset({"do_group", "elif_clause", "else_clause", "case_item"})
_WORD_TYPES = frozenset(
    {
        "word", "number", "string", "raw_string", "concatenation", "variable_name", "expansion",
        "simple_expansion", "command_substitution", "comment",
    }
)  # fmt: skip


def _assignment_word(words: Field) -> Binding | None:
    """The variable that a word ``A=1`` sets, where a program takes such words."""
    match = _ENV_WORD.match(words[0].text or "")
    if match is None:
        return None
    step = words[0].path[-1]
    start = step.span.start + match.end()
    chunks = from_character(words, match.end()) or (words[0].part(match.end(), match.end()),)
    value = tuple(
        replace(
            chunk,
            path=(
                replace(chunk.path[0], word=Span(start, chunk.path[0].word.end)),
                *chunk.path[1:],
            ),
        )
        for chunk in chunks
    )
    key = Span(step.span.start, step.span.start + match.end(1))
    return Binding(match.group(1), key, step.word, value)


def _inside(span: Span) -> Span:
    return Span(span.start + 1, max(span.start + 1, span.end - 1))


def _is_test(script: Script, node: Syntax) -> bool:
    return node.type == "test_command" or (
        node.type == "command" and script.text.of(node).startswith(("test ", "["))
    )


def _misread(text: Text, node: Syntax) -> bool:
    """Whether the grammar took two lines for one command, as it does after some pipelines,
    or cut one word in two."""
    cut = prefix_is_cut(text, node)
    words = [
        child
        for child in node.children
        if not child.type.endswith("_redirect")
        and not (cut and child.type == "variable_assignment")
    ]
    for first, second in itertools.pairwise(words):
        gap = text.full[text.span(first).end : text.span(second).start]
        if not gap or "\n" in CONTINUATION.sub("", gap):
            return True
    return False


def _heredoc_of_cat(value: Syntax) -> Syntax | None:
    """The here-document of ``$(cat <<EOF ...)``."""
    if value.type == "string" and value.named_child_count == 1:
        value = value.named_children[0]
    if value.type != "command_substitution" or value.named_child_count != 1:
        return None
    statement = value.named_children[0]
    redirects = statement.children_by_field_name("redirect")
    body = statement.child_by_field_name("body")
    if len(redirects) != 1 or body is None or (body.text or b"").strip() != b"cat":
        return None
    return redirects[0] if redirects[0].type == "heredoc_redirect" else None


def _heredoc_expands(script: Script, redirect: Syntax) -> bool:
    start = next((c for c in redirect.children if c.type == "heredoc_start"), None)
    return start is not None and not set(script.text.of(start)) & set("'\"\\")


def _assigned_names(script: Script, node: Syntax) -> set[str]:
    """Every variable that something inside ``node`` may set."""
    names: set[str] = set()
    stack = [node]
    while stack:
        current = stack.pop()
        if current.type == "variable_assignment":
            name = current.child_by_field_name("name")
            if name is not None:
                names.add(script.text.of(name).split("[")[0])
        elif current.type == "for_statement":
            variable = current.child_by_field_name("variable")
            if variable is not None:
                names.add(script.text.of(variable))
        elif current.type == "command" and script.text.of(current).startswith("read "):
            names |= {w for w in script.text.of(current).split()[1:] if w.isidentifier()}
        stack += current.named_children
    return names


def _count_uses(script: Script) -> dict[str, int]:
    """How often each variable is read in the file. Printing it, or building a list upon
    itself, does not count: whoever changes the definition changes these rightly."""
    text = script.text.full
    silent: list[Span] = []
    own: dict[str, int] = {}
    stack = [script.root]
    while stack:
        node = stack.pop()
        if node.type == "comment" or _only_prints(script, node):
            silent.append(script.text.span(node))
        elif node.type == "variable_assignment":
            name_node = node.child_by_field_name("name")
            value = node.child_by_field_name("value")
            if name_node is not None and value is not None:
                name = script.text.of(name_node)
                refs = _REFERENCE.findall(script.text.of(value))
                own[name] = own.get(name, 0) + refs.count(name)
        stack += node.named_children
    uses: dict[str, int] = {}
    silent.sort()
    index = 0
    for match in _REFERENCE.finditer(text):
        while index < len(silent) and silent[index].end <= match.start():
            index += 1
        if index < len(silent) and match.start() in silent[index]:
            continue
        uses[match.group(1)] = uses.get(match.group(1), 0) + 1
    return {name: count - own.get(name, 0) for name, count in uses.items()}


def _only_prints(script: Script, node: Syntax) -> bool:
    return node.type == "command" and script.text.of(node).startswith(("echo ", "printf "))


def _bytes_of(text: str, span: Span) -> tuple[bytes, Any]:
    """The text with plain line ends for the parser, and the file offset of each byte.

    The grammar knows no carriage return: a backslash before one would end the command.
    """
    piece = text[span.start : span.end]
    data = piece.replace("\r\n", "\n").encode("utf-8", "surrogatepass")
    if len(data) == len(piece):
        return data, range(span.start, span.end + 1)
    offsets: list[int] = []
    for offset, character in enumerate(piece, span.start):
        if character == "\r" and text[offset + 1 : offset + 2] == "\n" and offset + 1 < span.end:
            offsets.append(offset)  # for the one line feed that stands for both
        elif character != "\n" or not offsets or text[offset - 1] != "\r":
            offsets += [offset] * len(character.encode("utf-8", "surrogatepass"))
    offsets.append(span.end)
    return data, offsets
