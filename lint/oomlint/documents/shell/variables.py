"""The variables of a shell script while it runs: what each holds, and which are exported."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping as MappingABC, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace

from oomlint.documents.base import UNKNOWN, Entry
from oomlint.documents.shell.bindings import GIVEN_NAMES, given_bindings, retold
from oomlint.documents.shell.commands import value_of
from oomlint.documents.shell.expand import Expander, PrintedBy
from oomlint.documents.shell.names import known_environment
from oomlint.documents.shell.nodes import ShellEntry, ShellMapping, ShellScalar
from oomlint.documents.shell.syntax import (
    ShellTree,
    Text,
    assigned_names,
    heredoc_expands,
    heredoc_of_cat,
    prefix_is_cut,
)
from oomlint.documents.shell.words import (
    Chunk,
    Container,
    Expansion,
    Field,
    Variable,
    file_of,
)
from oomlint.documents.text import Source, Span

if TYPE_CHECKING:
    from tree_sitter import Node as Syntax

_POSITIONAL = ("@", "#", *"123456789")
_NOWHERE = Span(0, 0)
# ``declare -A``, and one item of what that is given.
_ASSOCIATIVE = re.compile(r"-\w*A\w*")
_BARE = re.compile(r"[\w./:@%+,=~^-]+")
_ITEM = re.compile(
    r"""\[(?:(?P<quote>["'])(?P<quoted>[^"'$`\\]*)(?P=quote)|(?P<bare>[^]"'$`\\]+))\]="""
)
# Where a script reads what it was started with.
TAKES_ARGUMENTS = re.compile(r"\$(?:[@*1-9]|\{[@*1-9])|\bgetopts\b")


def reads(text: str, name: str) -> bool:
    """Whether a script reads a variable, or starts programs that do."""
    return name in _READ_BY_ALL or re.search(rf"\$\{{?{name}\b", text) is not None


def needs(text: str, name: str) -> bool:
    """Whether a script reads a variable that it gives no value itself, and no program knows."""
    if name in known_environment() or not re.search(rf"\$\{{?{name}\b", text):
        return False
    asked = rf"\$\{{{name}:?\?"
    given = rf"(?m)^\s*(?:export\s+|local\s+|readonly\s+)?{name}=|\$\{{{name}:?[-=+]"
    return re.search(asked, text) is not None or re.search(given, text) is None


# CUDA reads it in every program that computes on a GPU.
_READ_BY_ALL = frozenset({"CUDA_VISIBLE_DEVICES"})


class Variables:
    """What the variables of a script hold at the point that a reader has come to."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.held = given_bindings(source)
        self.exports: set[str] = set()
        self.export_all = False
        self.uses: MappingABC[str, int] = {}
        """How often each is read in the whole script."""
        self.printed_by: PrintedBy = _no_function
        """What a function of the script prints."""
        self._entries: dict[int, tuple[Variable, ShellEntry]] = {}

    def expander(self, script: ShellTree) -> Expander:
        return Expander(script.text, self.held, self.printed_by)

    # -- changes ----------------------------------------------------------------------

    def forget(self, names: set[str]) -> None:
        """Nobody knows any more what they hold."""
        for name in names:
            if name in self.held:
                self.held[name] = replace(self.held[name], chunks=None, fields=None, items=None)
            else:
                self.held[name] = Variable(name, _NOWHERE, _NOWHERE)

    def box(self, script: ShellTree, span: Span, name: str) -> Container:
        """The text at ``span`` as the value of a variable."""
        text = self.source.text
        quoted = span.end - span.start >= 2 and text[span.start] in "\"'"
        inside = Span(span.start + 1, span.end - 1) if quoted else span
        shared = self.uses.get(name, 0) > 1 or name in self.exports
        return Container("value", inside, shared, script.text.forbidden, quoted)

    def assign(self, script: ShellTree, node: Syntax, *, exported: bool) -> Variable | None:
        name_node = node.child_by_field_name("name")
        if not script.sound(node) or name_node is None or name_node.type != "variable_name":
            if not (name_node is not None and self._assign_item(script, node, name_node)):
                self.forget(assigned_names(script, node))
            return None
        name = script.text.of(name_node)
        if exported:
            self.exports.add(name)
        binding = self.binding(script, node, name_node, name)
        self.held[name] = binding
        return binding

    def _assign_item(self, script: ShellTree, node: Syntax, name_node: Syntax) -> bool:
        """``models["small"]=…`` of an associative array: whether that was understood."""
        index = name_node.child_by_field_name("index")
        holder = name_node.child_by_field_name("name")
        name = "" if holder is None else script.text.of(holder)
        known = self.held.get(name)
        key = None if index is None else self.expander(script).known(index)
        if not script.sound(node) or known is None or known.items is None or key is None:
            return False
        item = self.binding(script, node, name_node, name)
        if any(child.type == "+=" for child in node.children):
            return False
        self.held[name] = replace(known, items={**known.items, key: item})
        return True

    def _assign_items(self, script: ShellTree, node: Syntax) -> bool:
        """``declare -A models=([small]=… [large]=…)``: whether that was understood."""
        name_node, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if not script.sound(node) or name_node is None or value is None or value.type != "array":
            return False
        name = script.text.of(name_node)
        items: dict[str, Variable] = {}
        for child in value.named_children:
            if child.type == "comment":
                continue
            span = script.text.span(child)
            key = _ITEM.match(script.text.of(child))
            chunks = None if key is None else self._value_of_item(script, child, key.end(), name)
            if key is None or chunks is None:
                return False
            items[key["quoted"] or key["bare"]] = Variable(name, span, span, chunks)
        place = script.text.span(node)
        self.held[name] = Variable(name, script.text.span(name_node), place, items=items)
        return True

    def _value_of_item(
        self, script: ShellTree, node: Syntax, behind: int, name: str
    ) -> Field | None:
        """What stands behind ``[small]=``: one word that is quoted or an expansion, or a bare one, of which the grammar
        makes pieces."""
        span = script.text.span(node)
        place = Span(span.start + behind, span.end)
        box = self.box(script, place, name)
        bare = script.text.written(place)
        if _BARE.fullmatch(bare):
            return (Chunk(bare, (Expansion(box, place, place),)),)
        parts = [
            each for each in node.named_children if script.text.span(each).start >= place.start
        ]
        return self.expander(script).value(parts[0], box) if len(parts) == 1 else None

    def binding(self, script: ShellTree, node: Syntax, name_node: Syntax, name: str) -> Variable:
        """What an assignment makes the variable hold."""
        text = script.text
        key_span, span = text.span(name_node), text.span(node)
        appends = any(child.type == "+=" for child in node.children)
        earlier = self.held.get(name)
        value = node.child_by_field_name("value")
        expander = self.expander(script)
        if value is not None and value.type == "array":
            box = Container(
                "array", _inside(text.span(value)), self.uses.get(name, 0) > 1, text.forbidden
            )
            elements = [child for child in value.named_children if child.type != "comment"]
            fields = expander.elements(elements, box)
            if appends:
                if earlier is None or earlier.fields is None:
                    return Variable(name, key_span, span)
                fields = (*earlier.fields, *fields)
            return Variable(name, key_span, span, fields=fields)
        chunks: Field
        if value is None:
            chunks = (
                Chunk(
                    "",
                    (
                        Expansion(
                            self.box(script, Span(span.end, span.end), name),
                            Span(span.end, span.end),
                            Span(span.end, span.end),
                        ),
                    ),
                ),
            )
        else:
            body = heredoc_of_cat(value)
            if body is not None:
                chunks = self.heredoc(script, body, name)
            else:
                chunks = expander.value(value, self.box(script, text.span(value), name))
        if appends:
            if earlier is None or earlier.chunks is None:
                return Variable(name, key_span, span)
            chunks = (*earlier.chunks, *chunks)
        return Variable(name, key_span, span, chunks)

    def heredoc(self, script: ShellTree, redirect: Syntax, name: str) -> Field:
        """The text of a here-document as the value of a variable."""
        body = next((c for c in redirect.children if c.type == "heredoc_body"), None)
        shared = self.uses.get(name, 0) > 1
        if body is None:
            span = script.text.span(redirect)
            box = Container("heredoc", span, shared, script.text.forbidden)
            return (Chunk(None, (Expansion(box, span, span),)),)
        box = Container("heredoc", script.text.span(body), shared, script.text.forbidden)
        expander = self.expander(script)
        return expander.heredoc(body, box, expands=heredoc_expands(script, redirect))

    def declare(self, script: ShellTree, node: Syntax) -> None:
        """``export``, ``declare``, ``local`` and ``readonly``."""
        words = [script.text.of(child) for child in node.children]
        exports = words[0] == "export" or any(re.fullmatch(r"-\w*x\w*", w) for w in words[1:])
        if "-n" in words[1:] and words[0] == "export":
            exports = False
        is_associative = any(_ASSOCIATIVE.fullmatch(word) for word in words[1:])
        for child in node.named_children:
            if child.type == "variable_assignment":
                if not (is_associative and self._assign_items(script, child)):
                    self.assign(script, child, exported=exports)
            elif child.type == "variable_name" and is_associative:
                name, span = script.text.of(child), script.text.span(child)
                self.held[name] = Variable(name, span, span, items={})
            elif child.type == "variable_name" and exports:
                self.exports.add(script.text.of(child))

    def read(
        self, script: ShellTree, node: Syntax, texts: Sequence[str | None], heredoc: Syntax | None
    ) -> None:
        """The command ``read``, whose words are ``texts``."""
        names = [t for t in texts[1:] if t and not t.startswith("-") and t.isidentifier()]
        if heredoc is not None and len(names) == 1:
            span = script.text.span(node)
            chunks = self.heredoc(script, heredoc, names[0])
            self.held[names[0]] = Variable(names[0], span, span, chunks)
            return
        self.forget(set(names))
        if len(names) == 1 and any(t and re.fullmatch(r"-\w*a", t) for t in texts):
            self._read_list(script, node, names[0])

    def _read_list(self, script: ShellTree, node: Syntax, name: str) -> None:
        """``IFS=, read -ra NAMES <<< "$LIST"``."""
        here = next((c for c in node.children if c.type == "herestring_redirect"), None)
        expander = self.expander(script)
        text = expander.known(here.named_children[0]) if here and here.named_children else None
        separators = " \t\n"
        for child in node.named_children:
            value = child.child_by_field_name("value")
            if child.type == "variable_assignment" and value is not None:
                separators = expander.known(value) or separators
        if text is not None and here is not None:
            box = Container("array", script.text.span(here), shared=True)
            step = Expansion(box, box.span, box.span)
            words = [w for w in re.split("[" + re.escape(separators) + "]", text) if w]
            fields = tuple((Chunk(word, (step,)),) for word in words)
            self.held[name] = Variable(name, box.span, box.span, fields=fields)

    def print_into(self, script: ShellTree, node: Syntax, texts: Sequence[str | None]) -> None:
        """``printf -v NAME FORMAT ARGUMENT…`` with a place for each argument."""
        name, known = texts[0] if texts else None, [text for text in texts if text is not None]
        if not name or not name.isidentifier():
            return
        pieces = re.split(r"%[sd]", known[1]) if len(known) == len(texts) > 1 else []
        span = script.text.span(node)
        if len(pieces) != len(known) - 1 or "%" in "".join(pieces):
            self.forget({name})
            return
        text = pieces[0] + "".join(a + b for a, b in zip(known[2:], pieces[1:], strict=True))
        step = Expansion(Container("value", span, shared=True), span, span)
        self.held[name] = Variable(name, span, span, (Chunk(text, (step,)),))

    def take_in(self, others: Variables, place: Span) -> None:
        """Those of another script that this one sources at ``place``; edits of them belong to
        whoever reads that."""
        step = Expansion(Container("value", place, shared=True, sourced=True), place, place)
        for key, binding in others.held.items():
            if key in GIVEN_NAMES:
                continue
            fields = binding.fields
            told = None if fields is None else [_of_file(f, others, place) for f in fields]
            known = None if told is None or None in told else tuple(t for t in told if t)
            self.held[key] = Variable(key, place, place, retold(binding.chunks, step), known)
            if self.export_all:
                self.exports.add(key)
        self.exports |= others.exports

    # -- scopes -----------------------------------------------------------------------

    @contextmanager
    def kept(self) -> Iterator[None]:
        """What is set meanwhile stays inside, as in a subshell."""
        before, exported = dict(self.held), set(self.exports)
        yield
        self.held, self.exports = before, exported

    @contextmanager
    def apart(self) -> Iterator[None]:
        """The same, while a word is expanded against the variables as they stand."""
        held, exported = self.held, set(self.exports)
        self.held = dict(held)
        try:
            yield
        finally:
            self.held, self.exports = held, exported

    def start_with(self, arguments: Sequence[str | None]) -> None:
        """``$1`` and so on are what somebody else's command hands to the script: its own text is
        changed there, and stands here for the place that takes them in."""
        if not arguments:
            return
        taken = TAKES_ARGUMENTS.search(self.source.text)
        place = Span(*taken.span()) if taken is not None else _NOWHERE
        step = Expansion(Container("value", place, shared=True), place, place)
        self._take(tuple((Chunk(text, (step,)),) for text in arguments))

    def inherit(self, variables: Sequence[tuple[str, str | None]]) -> None:
        """What the environment holds in which somebody else's command starts the script; each stands
        for the place that reads it first."""
        for name, text in variables:
            read = re.search(rf"\$\{{?{name}\b", self.source.text)
            place = Span(*read.span()) if read is not None else _NOWHERE
            step = Expansion(Container("value", place, shared=True), place, place)
            self.held[name] = Variable(name, place, place, (Chunk(text, (step,)),))
            self.exports.add(name)

    @property
    def arguments(self) -> tuple[Field, ...] | None:
        """``$1`` and so on, as far as anybody says what they are."""
        held = self.held.get("@")
        return None if held is None else held.fields

    def shift(self, count: int) -> None:
        """``shift``: the first arguments are done with."""
        arguments = self.arguments
        if arguments is not None:
            self._take(arguments[count:])

    def _take(self, arguments: tuple[Field, ...]) -> None:
        """Make these the arguments, each standing where its word does."""
        place = arguments[0][0].path[0].word if arguments and arguments[0] else _NOWHERE
        step = Expansion(Container("value", place, shared=True), place, place)
        for key in _POSITIONAL:
            self.held.pop(key, None)
        for number, field in enumerate(arguments[:9], 1):
            word = field[0].path[0].word if field else place
            self.held[str(number)] = Variable(str(number), word, word, field)
        self.held["@"] = self.held["*"] = Variable("@", place, place, fields=arguments)
        self.held["#"] = Variable("#", place, place, (Chunk(str(len(arguments)), (step,)),))

    @contextmanager
    def called_with(self, arguments: Sequence[Field]) -> Iterator[None]:
        """``$1`` and so on are the arguments of a function."""
        before = {key: self.held.get(key) for key in _POSITIONAL}
        for key in _POSITIONAL:
            self.held.pop(key, None)
        for number, field in enumerate(arguments[:9], 1):
            place = field[0].path[0].word
            self.held[str(number)] = Variable(str(number), place, place, field)
        self.held["@"] = Variable("@", _NOWHERE, _NOWHERE, fields=tuple(arguments))
        step = Expansion(Container("value", _NOWHERE, shared=True), _NOWHERE, _NOWHERE)
        self.held["#"] = Variable("#", _NOWHERE, _NOWHERE, (Chunk(str(len(arguments)), (step,)),))
        yield
        for key, binding in before.items():
            self.held.pop(key, None)
            if binding is not None:
                self.held[key] = binding

    # -- what a command sees ----------------------------------------------------------

    def environment(
        self,
        span: Span,
        box: Container,
        prefix: list[Variable],
        program: Syntax,
        node: Syntax,
        text: Text,
    ) -> ShellMapping:
        """The environment of a command: what is exported, and its own ``prefix``."""
        entries: dict[str, Entry] = {}
        for name, binding in self.held.items():
            everything = self.export_all and name not in GIVEN_NAMES
            if (name in self.exports or everything) and binding.fields is None:
                if id(binding) not in self._entries:
                    entry = self._entry(binding, None)
                    self._entries[id(binding)] = (binding, entry)
                entries[name] = self._entries[id(binding)][1]
        own: list[str] = []
        for binding in prefix:
            entries.pop(binding.name, None)
            entries[binding.name] = self._entry(binding, box)
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

    def _entry(self, binding: Variable, box: Container | None) -> ShellEntry:
        if binding.chunks:
            value = value_of(self.source.text, binding.chunks, 0, "environment")
        else:
            place = binding.span
            value = ShellScalar(
                place, UNKNOWN, locked="its value is only known when the script runs"
            )
        return ShellEntry(binding.name, binding.key_span, value, binding.span, container=box)


def _no_function(_name: str, _arguments: Sequence[str]) -> None:
    return None


def _of_file(field: Field, others: Variables, place: Span) -> Field | None:
    """An element of another script's array, which may have it from a third."""
    file = file_of(field) or others.source.path
    return retold(field, Expansion(Container("value", place, shared=True, file=file), place, place))


def _inside(span: Span) -> Span:
    return Span(span.start + 1, max(span.start + 1, span.end - 1))
