"""Shell scripts: which commands run with which options and environment, and edits of them.

Only what stands in the script counts: variables, arrays and here-documents are followed as
long as their values are plain; the rest is ``UNKNOWN``. What the grammar could not parse is
neither reported nor changed.
"""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from oomlint.documents import base
from oomlint.documents.base import UNKNOWN, Command, Entry, Fact, Literal, Mapping, Node, Scalar
from oomlint.documents.shell_commands import (
    CommandReader,
    ShellEntry,
    ShellMapping,
    ShellScalar,
    ShellSequence,
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
from oomlint.documents.shell_names import SBATCH_SHORT, SHELLS, WRAPPERS
from oomlint.documents.text import Edit, Source, Span
from oomlint.errors import CannotEdit, ParseError

if TYPE_CHECKING:
    from tree_sitter import Node as Syntax

_REFERENCE = re.compile(r"\$\{?[!#]?([A-Za-z_]\w*)", re.ASCII)
_SBATCH = re.compile(
    r"[ \t]*#SBATCH[ \t]+(--?)([A-Za-z][\w-]*)(?:(=|[ \t]+)([^\s#][^\r\n]*?))?[ \t]*$"
)
_SAFE_WORD = re.compile(r"[\w@%+=:,./\-]+", re.ASCII)
_NO_OPTION_NEXT = re.compile(r"""(?:[ \t]|\\\r?\n)+[\w./+'"$~]""")
_ENV_WORD = re.compile(r"([A-Za-z_]\w*)=", re.ASCII)
_BRANCHES = frozenset(
    {
        "if_statement", "while_statement", "for_statement", "c_style_for_statement",
        "case_statement", "select_statement",
    }
)  # fmt: skip
# Nested statements; people stop at ten, and each level costs a walk over what it holds.
_DEEPEST = 60


@dataclass(frozen=True, eq=False)
class ShellDocument:
    """A script as read; implements :class:`oomlint.documents.base.Document`."""

    source: Source
    commands: tuple[Command, ...] = ()
    sbatch: Mapping = field(default_factory=lambda: ShellMapping(Span(0, 0), {}, style="sbatch"))
    """``#SBATCH`` directives, keys folded like options, one-letter ones to their long names."""
    facts: tuple[Fact, ...] = ()
    dotted_keys: ClassVar[bool] = True
    """``--a.b 1`` is one option, not an option ``a`` that holds ``b``."""

    # -- edits ------------------------------------------------------------------------

    def set_value(self, node: Node, value: Literal) -> list[Edit]:
        """Replace a value where it stands, keeping its quotes.

        Raises:
            CannotEdit: the value depends on the run, or cannot be written in that place.
        """
        if node.locked:
            raise CannotEdit(node.locked)
        if isinstance(node, ShellSequence):
            return self._set_sequence(node, value)
        if not isinstance(node, ShellScalar):
            raise CannotEdit("only single values of a script can be set")
        if node.span.start == node.span.end and node.value is True:
            if value is True:
                return []
            text = " " + _spelled(value, node.style, "True")
            _check_safe_words(text, node.quote, node.forbidden)
            return [self._edit(node.span.start, node.span.end, text)]
        old = self.source.text[node.span.start : node.span.end]
        return [self._edit(node.span.start, node.span.end, _rewritten(node, old, value))]

    def add_entry(
        self, mapping: Mapping, key: str, value: Literal, *, after: str | None = None
    ) -> list[Edit]:
        """Add an option, an override or an environment assignment to a command."""
        if not isinstance(mapping, ShellMapping):
            raise CannotEdit("this is no command's mapping")
        if key in mapping.entries and mapping.style != "environment":
            raise CannotEdit(f"{key} is there already")
        if mapping.style == "environment":
            text = f"{key}={_quoted_word(_spelled(value, 'environment', ''))}{mapping.prefix_gap}"
            _check_allowed(text, mapping.container.forbidden if mapping.container else "")
            return [self._edit(mapping.prefix_at, mapping.prefix_at, text)]
        if mapping.style == "sbatch":
            return self._add_directive(mapping, key, value)
        return self._add_words(mapping, key, value, after)

    def remove_entry(self, mapping: Mapping, key: str) -> list[Edit]:
        """Delete an option with its values and its continuation line."""
        entry = _entry(mapping, key)
        if isinstance(mapping, ShellMapping) and mapping.style == "sbatch":
            line = self.source.position(entry.span.start)[0]
            starts = self.source.line_starts
            end = starts[line] if line < len(starts) else len(self.source.text)
            return [self._edit(starts[line - 1], end, "")]
        earlier = [e for e in mapping.duplicates if e.key == key and isinstance(e, ShellEntry)]
        return [self._without(each) for each in (*earlier, entry)]

    def _without(self, entry: ShellEntry) -> Edit:
        if entry.container is None:
            raise CannotEdit(f"{entry.key} is set elsewhere in the script")
        if entry.stuck:
            raise CannotEdit(f"{entry.key} cannot be removed: {entry.stuck}")
        box = entry.container.span
        start, end = max(entry.span.start, box.start), min(entry.span.end, box.end)
        before = self._gap_before(start, entry.container)
        if before > box.start or start == box.start:
            start = before
        after = end
        while start == box.start and after < box.end and self.source.text[after] in " \t\r\n\\":
            after += 1
        return self._edit(start, after, "")

    def rename_entry(self, mapping: Mapping, key: str, new_key: str) -> list[Edit]:
        """Write another name in the style (dashes or underscores) of the old one."""
        entry = _entry(mapping, key)
        if any(other.key == key for other in mapping.duplicates):
            raise CannotEdit(f"{key} is given more than once")
        if entry.stuck:
            raise CannotEdit(f"{key} cannot be renamed: {entry.stuck}")
        old = self.source.text[entry.key_span.start : entry.key_span.end]
        dashes = len(old) - len(old.lstrip("-"))
        written = new_key
        if dashes:
            dashed = "-" in old[dashes:] and "_" not in old
            name = new_key.replace("_", "-") if dashed else new_key
            written = ("-" if len(new_key) == 1 else "--") + name
        return [self._edit(entry.key_span.start, entry.key_span.end, written)]

    def append_item(self, sequence: base.Sequence, value: Literal) -> list[Edit]:
        """Add a value after the last one of an option that takes several."""
        if sequence.locked:
            raise CannotEdit(sequence.locked)
        last = sequence.items[-1]
        if not isinstance(last, ShellScalar) or not isinstance(sequence, ShellSequence):
            raise CannotEdit("only the values of an option can be added to")
        end = min(
            sequence.span.end,
            sequence.container.span.end if sequence.container else sequence.span.end,
        )
        text = " " + _quoted_word(_spelled(value, "flag", ""))
        if last.splits:
            _check_safe_words(text, last.quote, last.forbidden)
        _check_allowed(text, last.forbidden)
        return [self._edit(end, end, text)]

    # -- how edits are written --------------------------------------------------------

    def _edit(self, start: int, end: int, replacement: str) -> Edit:
        return Edit(self.source.path, start, end, replacement)

    def _set_sequence(self, node: ShellSequence, value: Literal) -> list[Edit]:
        if not isinstance(value, (list, tuple)) or not value:
            raise CannotEdit("an option with several values needs at least one")
        words = [_quoted_word(_spelled(item, "flag", "")) for item in value]
        first = node.items[0]
        text = " ".join(words)
        if isinstance(first, ShellScalar):
            if first.splits:
                _check_safe_words(text, first.quote, first.forbidden)
            _check_allowed(text, first.forbidden)
        return [self._edit(node.span.start, node.span.end, text)]

    def _gap_before(self, offset: int, container: Container) -> int:
        """Start of the blanks and line breaks that separate a word from the one before."""
        text, start = self.source.text, container.span.start
        needs_backslash = container.kind == "command"
        while offset > start:
            if text[offset - 1] in " \t":
                offset -= 1
                continue
            line = offset
            if text[line - 1] == "\n":
                line -= 2 if text[line - 2 : line] == "\r\n" else 1
                if line > start and text[line - 1] == "\\":
                    offset = line - 1
                    continue
                if not needs_backslash:
                    offset = line
                    continue
            break
        return offset

    def _gap(self, entry: ShellEntry) -> str:
        assert entry.container is not None
        return self.source.text[
            self._gap_before(entry.span.start, entry.container) : entry.span.start
        ]

    def _add_words(
        self, mapping: ShellMapping, key: str, value: Literal, after: str | None
    ) -> list[Edit]:
        siblings = sorted(
            (e for e in mapping.entries.values() if isinstance(e, ShellEntry)), key=_place
        )
        own = [e for e in siblings if e.container is mapping.container]
        anchor = mapping.entries.get(after) if after is not None else None
        if anchor is None and own:
            anchor = own[-1]
        if not isinstance(anchor, ShellEntry) or not _takes_followers(anchor):
            anchor = None
        container = anchor.container if anchor else mapping.container
        assert container is not None
        gaps = [self._gap(e) for e in siblings if e.container is container]
        gap = self._usual_gap(gaps, anchor)
        end = min(anchor.span.end, container.span.end) if anchor else mapping.words_end
        words = self._entry_words(mapping, siblings, key, value)
        if value is True and not re.search(r"[= ]", words) and self._word_follows(end):
            words += " True"  # or the next word would become its value
        _check_allowed(words, container.forbidden)
        if container.kind in ("value", "heredoc"):
            _check_safe_words(words, '"' if container.kind == "value" else "", container.forbidden)
        if anchor is not None and container.kind == "array" and "\n" in gap:
            comment = re.compile(r"[ \t]+#[^\r\n]*").match(self.source.text, end)
            end = comment.end() if comment else end
        return [self._edit(end, end, gap + words)]

    def _word_follows(self, offset: int) -> bool:
        """Whether a word comes after ``offset`` that is not plainly an option."""
        return _NO_OPTION_NEXT.match(self.source.text, offset) is not None

    def _usual_gap(self, gaps: list[str], anchor: ShellEntry | None) -> str:
        """What stands before each option: a blank, or a continued line and its indentation."""
        lines = [gap for gap in gaps if "\n" in gap]
        own = self._gap(anchor) if anchor else ""
        if "\n" in own:
            return own
        if lines and 2 * len(lines) >= len(gaps):
            return lines[-1]
        return " "

    def _entry_words(
        self, mapping: ShellMapping, siblings: list[ShellEntry], key: str, value: Literal
    ) -> str:
        if mapping.style == "assignment":
            return f"{key}={_quoted_word(_spelled(value, 'assignment', ''))}"
        written = [self.source.text[e.key_span.start : e.key_span.end] for e in siblings]
        dashed = sum("-" in key.lstrip("-") for key in written)
        scored = sum("_" in key for key in written)
        name = "--" + (key.replace("_", "-") if dashed > scored else key)
        if len(key) == 1:
            name = "-" + key
        values = [e.value for e in siblings if isinstance(e.value, Scalar)]
        if value is True:
            bare = any(v.value is True for v in values)
            spelled = next((v.value for v in values if v.value in _BOOLEAN_WORDS), None)
            if bare or spelled is None:
                return name
            return f"{name}{self._joint(siblings)}{'true' if spelled.islower() else 'True'}"
        if isinstance(value, (list, tuple)):
            items = " ".join(_quoted_word(_spelled(item, "flag", "")) for item in value)
            return f"{name} {items}"
        lower = any(v.value in ("true", "false") for v in values)
        text = _quoted_word(_spelled(value, "flag", "true" if lower else "True"))
        return f"{name}{self._joint(siblings)}{text}"

    def _joint(self, siblings: list[ShellEntry]) -> str:
        """``=`` where the options are mostly written ``--key=value``."""
        text = self.source.text
        joined = sum(text[e.key_span.end : e.key_span.end + 1] == "=" for e in siblings)
        valued = sum(isinstance(e.value, Scalar) and e.value.value is not True for e in siblings)
        return "=" if 2 * joined > valued else " "

    def _add_directive(self, mapping: ShellMapping, key: str, value: Literal) -> list[Edit]:
        if not mapping.entries:
            raise CannotEdit("the script has no #SBATCH lines to add to")
        last = max(mapping.entries.values(), key=_place)
        end = self.source.line_span(self.source.position(last.span.start)[0]).end
        name = key.replace("_", "-")
        text = f"{self.source.newline}#SBATCH --{name}={_spelled(value, 'environment', '')}"
        return [self._edit(end, end, text)]


_BOOLEAN_WORDS = ("True", "False", "true", "false")


def _place(entry: Entry) -> int:
    return entry.span.start


def _entry(mapping: Mapping, key: str) -> ShellEntry:
    entry = mapping.entries.get(key)
    if not isinstance(entry, ShellEntry):
        raise CannotEdit(f"{key} is not set here")
    return entry


def _takes_followers(entry: ShellEntry) -> bool:
    """Whether another word can be written after the entry."""
    if entry.stuck or entry.container is None:
        return False
    # An unquoted value of a variable is one word and stays one.
    box = entry.container
    return box.kind != "value" or entry.span.end != box.span.end or box.quoted


def _spelled(value: Literal, style: str, old: str) -> str:
    """The value as the program should read it."""
    if isinstance(value, bool):
        lower = old.islower() if old.lower() in ("true", "false") else style == "assignment"
        return str(value).lower() if lower else str(value)
    if value is None:
        if style == "assignment":
            return "null"
        raise CannotEdit("a command line has no way to write None")
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)) and style == "assignment":
        return "[" + ",".join(_spelled(item, style, "") for item in value) + "]"
    if isinstance(value, (list, tuple)):
        raise CannotEdit("several values cannot stand where one stood")
    if isinstance(value, dict):
        return json.dumps(value)
    raise CannotEdit(f"{type(value).__name__} cannot be written on a command line")


def _quoted_word(text: str) -> str:
    """``text`` as one shell word."""
    if _SAFE_WORD.fullmatch(text):
        return text
    if "'" not in text:
        return f"'{text}'"
    return f'"{_in_double_quotes(text)}"'


def _in_double_quotes(text: str) -> str:
    return re.sub(r'([\\"$`])', r"\\\1", text)


def _rewritten(node: ShellScalar, old: str, value: Literal) -> str:
    text = _spelled(value, node.style, old.strip("\"'"))
    if node.style == "sbatch":
        if not _SAFE_WORD.fullmatch(text):
            raise CannotEdit(f"{text!r} cannot stand in a #SBATCH line")
        return text
    if node.splits and (node.quote or not _SAFE_WORD.fullmatch(text)):
        _check_safe_words(text, node.quote, node.forbidden)
        if not _SAFE_WORD.fullmatch(text):
            raise CannotEdit(f"{text!r} would become several words where the variable is used")
    if node.quote == '"':
        written = _in_double_quotes(text)
    elif node.quote == "'":
        if "'" in text:
            raise CannotEdit("a single quote cannot be written inside single quotes")
        written = text
    elif len(old) >= 2 and old[0] == old[-1] == '"':
        written = f'"{_in_double_quotes(text)}"'
    elif len(old) >= 2 and old[0] == old[-1] == "'" and "'" not in text:
        written = f"'{text}'"
    else:
        written = _quoted_word(text)
    _check_allowed(written, node.forbidden)
    return written


def _check_safe_words(text: str, quote: str, forbidden: str) -> None:
    """Words that go into quoted text or an unquoted expansion must need no quotes."""
    plain = CONTINUATION.sub(" ", text)
    if not all(_SAFE_WORD.fullmatch(word) for word in plain.split()):
        raise CannotEdit("the value needs quotes, and its place is inside quotes already")
    _check_allowed(text, forbidden + quote)


def _check_allowed(text: str, forbidden: str) -> None:
    if forbidden and any(mark in forbidden for mark in CONTINUATION.sub("", text)):
        raise CannotEdit("the value cannot be written inside the quotes around the command")


# -- reading ------------------------------------------------------------------------------


def parse_shell(source: Source) -> ShellDocument:
    """Read a script.

    Raises:
        ParseError: it is nested too deeply to be read.
    """
    from oomlint.documents.shell_facts import facts_of

    try:
        reader = _Reader(source)
        reader.run()
        return replace(
            ShellDocument(source),
            commands=tuple(reader.commands),
            sbatch=_directives(source),
            facts=facts_of(source, reader.scripts, reader.commands),
        )
    except RecursionError:
        raise ParseError(source.path, "the script is nested too deeply to be read") from None


def _directives(source: Source) -> ShellMapping:
    """The ``#SBATCH`` lines before the first command; Slurm reads no later ones (sbatch(1))."""
    entries: dict[str, Entry] = {}
    lost: list[Entry] = []
    for line in range(1, len(source.line_starts) + 1):
        span = source.line_span(line)
        text = source.text[span.start : span.end]
        if text.strip() and not text.lstrip().startswith("#"):
            break
        match = _SBATCH.match(text)
        if not match:
            continue
        dashes, name, _, value = match.groups()
        key = SBATCH_SHORT.get(name, name) if dashes == "-" else name.replace("-", "_")
        shift = span.start
        key_span = Span(shift + match.start(1), shift + match.end(2))
        if value is None:
            node = ShellScalar(
                Span(key_span.end, key_span.end), True,
                locked="the directive has no value", style="sbatch",
            )  # fmt: skip
        else:
            place = Span(shift + match.start(4), shift + match.end(4))
            node = ShellScalar(place, value.strip("\"'"), plain=True, style="sbatch")
        if key in entries:
            lost.append(entries.pop(key))
        entries[key] = ShellEntry(key, key_span, node, span)
    end = max((e.span.end for e in entries.values()), default=0)
    return ShellMapping(Span(0, end), entries, tuple(lost), style="sbatch")


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


class _Reader:
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
