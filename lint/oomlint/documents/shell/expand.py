"""Expansion of shell words against the variables known at that point, without running anything."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from oomlint.documents.shell.branches import Conditions, arms
from oomlint.documents.shell.machine import asked_by_program, asked_by_variable
from oomlint.documents.shell.perhaps import options_among
from oomlint.documents.shell.syntax import PLACEHOLDER, Text
from oomlint.documents.shell.values import arithmetic, operated, output_of
from oomlint.documents.shell.words import (
    Chunk,
    Container,
    Expansion,
    Field,
    Variable,
    field_question,
    field_text,
    held_text,
)
from oomlint.documents.text import Span

if TYPE_CHECKING:
    from tree_sitter import Node

_BLANKS = re.compile(r"[ \t\r\n]+")
_ASSIGNS_DEFAULT = frozenset({":=", "="})
_DEFAULT = frozenset({":-", "-"}) | _ASSIGNS_DEFAULT
_ALTERNATIVE = frozenset({":+", "+"})
_PLAIN = frozenset({"word", "number", "variable_name", "extglob_pattern", "regex"})
_EXPANSIONS = frozenset(
    {"simple_expansion", "expansion", "command_substitution", "arithmetic_expansion"}
)
_OPERATION = re.compile(
    r"\$\{(?P<length>#?)(?P<name>[A-Za-z_]\w*|\d)(?:\[(?P<index>[^\]]*)\])?(?P<operation>.*)\}",
    re.DOTALL,
)
_PLAIN_NAME = re.compile(r"\$\{?([A-Za-z_]\w*)\}?")
_ARGUMENT = re.compile(r"\$(\d)")
_ECHOES_LIST = re.compile(r'echo\s+"\$\{\w+\[\*\]\}"')
_NUMBER_NAME = re.compile(r"\$?\{?\b([A-Za-z_]\w*)\b\}?|\$\{?(\#)\}?")
# Numbers with leading zeros keep their width, which those of a run's settings never have.
_SEQUENCE = re.compile(r"\{(-?(?!0\d)\d{1,9})\.\.(-?(?!0\d)\d{1,9})(?:\.\.(-?\d{1,9}))?\}")
_LONGEST_SEQUENCE = 100
_LIST = re.compile(r"\{[\w.+:/-]+(?:,[\w.+:/-]+)+\}")
_LONGEST_PIPELINE = 8
# bash(1), "QUOTING": inside double quotes a backslash keeps its meaning before these only.
_ESCAPED_IN_DOUBLE_QUOTES = re.compile(r'\\(\r?\n|[$`"\\])')
_ESCAPED_IN_HEREDOC = re.compile(r"\\(\r?\n|[$`\\])")
_ESCAPED_BARE = re.compile(r"\\(\r?\n|.)", re.DOTALL)

# A word of more pieces, or one that passes more variables, is no setting: left unknown.
_MOST_CHUNKS = 20_000
_LONGEST_PATH = 40


class _Break:
    """Marks the end of one word in a run of chunks."""


_BREAK = _Break()
_Piece = Chunk | _Break


PrintedBy = Callable[[str, Sequence[str]], str | None]
"""What a function of the script prints, by its name and its arguments; ``None`` where that is not known."""


class Expander:
    """Expands words of one syntax tree against the variables known at that point."""

    def __init__(self, text: Text, bindings: dict[str, Variable], printed_by: PrintedBy) -> None:
        self.text = text
        self.bindings = bindings
        self._printed_by = printed_by

    def words(self, node: Node, container: Container) -> list[Field]:
        """The words that an argument becomes: none, one, or several."""
        place = _Place(container, self.text.span(node), splits=True)
        fields: list[list[Chunk]] = [[]]
        for count, piece in enumerate(self._pieces(node, place)):
            if count > _MOST_CHUNKS:
                return [(Chunk(None, (place.step(place.word),), many=True),)]
            if isinstance(piece, _Break):
                fields.append([])
            else:
                fields[-1].append(piece)
        return [tuple(field) for field in fields if field]

    def elements(self, nodes: Sequence[Node], container: Container) -> tuple[Field, ...]:
        """The words of an array. The grammar ends one behind the ``$`` of ``[0]*$N+[1]*$M``."""
        found: list[Field] = []
        end = -1
        for node in nodes:
            span = self.text.span(node)
            if found and span.start == end and self.text.full[end - 1] == "$":
                found[-1] = self._rejoined(found[-1], span)
            else:
                found += self.words(node, container)
            end = span.end
        return tuple(found)

    def _rejoined(self, before: Field, span: Span) -> Field:
        """What the grammar cut in two, with the values of its variables."""
        first = before[0].path[0]
        whole = Span(first.span.start, span.end)
        written = self.text.full[whole.start : whole.end]
        names = {match[1]: self.bindings.get(match[1]) for match in _PLAIN_NAME.finditer(written)}
        texts = {name: None if b is None else held_text(b) for name, b in names.items()}
        known = None not in texts.values()
        text = _PLAIN_NAME.sub(lambda match: texts[match[1]] or "", written) if known else None
        return (Chunk(text, (replace(first, span=whole, word=whole),)),)

    def value(self, node: Node, container: Container) -> Field:
        """The value that an assignment stores: expanded, never split into words."""
        place = _Place(container, self.text.span(node))
        chunks: list[Chunk] = []
        for piece in self._pieces(node, place):
            # How the elements of an array join in a plain assignment is IFS's affair.
            if isinstance(piece, _Break) or len(chunks) > _MOST_CHUNKS:
                return (Chunk(None, (place.step(place.word),)),)
            chunks.append(piece)
        return tuple(chunks)

    def heredoc(self, node: Node, container: Container, *, expands: bool) -> Field:
        """The body of a here-document as one value."""
        span = self.text.span(node)
        place = _Place(container, span)
        if not expands:
            return (self._literal(span, place),)
        pieces = self._quoted(node, span, place, _ESCAPED_IN_HEREDOC)
        chunks = (piece for piece in pieces if isinstance(piece, Chunk))
        return tuple(part for chunk in chunks for part in self._with_arguments(chunk, place))

    def _with_arguments(self, chunk: Chunk, place: _Place) -> Iterator[Chunk]:
        """A piece of a here-document with ``$1`` and so on in it, which the grammar takes for text there."""
        text = chunk.text or ""
        span = chunk.path[-1].span
        if "$" not in text or len(text) != span.end - span.start:
            yield chunk
            return
        cursor = 0
        for match in _ARGUMENT.finditer(text):
            if match.start() > cursor:
                yield chunk.part(cursor, match.start())
            here = place.step(Span(span.start + match.start(), span.start + match.end()))
            binding = self.bindings.get(match[1])
            if binding is None or binding.chunks is None:
                yield Chunk(None, (here,), absent=binding is None)
            else:
                told = _referred(binding.chunks, here, splits=False)
                yield from (piece for piece in told if isinstance(piece, Chunk))
            cursor = match.end()
        if cursor < len(text):
            yield chunk.part(cursor, len(text))

    # -- pieces of one word -----------------------------------------------------------

    def _pieces(self, node: Node, place: _Place) -> Iterator[_Piece]:
        kind = node.type
        span = self.text.span(node)
        if kind in _PLAIN and not node.named_child_count:
            yield from self._unescaped(span, place, _ESCAPED_BARE)
        elif place.splits and kind in ("concatenation", "brace_expression") and self._braces(span):
            yield from self._words_of(span, place)
        elif kind in ("concatenation", "command_name"):
            for child in node.children:
                yield from self._pieces(child, place)
        elif kind in ("raw_string", "string"):
            yield from self._text(node, place)
        elif kind in ("simple_expansion", "expansion"):
            yield from self._expansion(node, place)
        elif kind == "brace_expression" or not node.is_named:
            yield self._literal(span, place)
        elif kind == "arithmetic_expansion":
            yield from self._computed(*self._sum(node), span, place)
        elif kind == "command_substitution":
            yield from self._substituted(node, span, place)
        else:  # <(...), $'...': not read
            yield self._unknown(span, place)

    def _braces(self, span: Span) -> list[str]:
        """What ``{2..5}`` and ``{a,b}`` become (bash(1), "Brace Expansion"); no word of anything else."""
        written = self.text.written(span)
        listed, counted = _LIST.fullmatch(written), _SEQUENCE.fullmatch(written)
        if listed is not None:
            return written[1:-1].split(",")
        if counted is None:
            return []
        first, last, step = (int(part or 1) for part in counted.groups())
        by = max(abs(step), 1) if last >= first else -max(abs(step), 1)
        numbers = range(first, last + (1 if by > 0 else -1), by)
        return [str(number) for number in numbers[: _LONGEST_SEQUENCE + 1]]

    def _words_of(self, span: Span, place: _Place) -> Iterator[_Piece]:
        """Such words. With something before or behind it each has that as well: not read."""
        words = self._braces(span)
        if span != place.word or len(words) > _LONGEST_SEQUENCE:
            yield self._unknown(span, place)
            return
        for word in words:
            yield _BREAK
            yield Chunk(word, (place.step(span),))
        yield _BREAK

    def _literal(self, span: Span, place: _Place) -> Chunk:
        written = self.text.written(span)
        blank = not place.quote and PLACEHOLDER.search(written)
        return Chunk(None if blank else written, (place.step(span),))

    def _unknown(self, span: Span, place: _Place) -> Chunk:
        return Chunk(None, (place.step(span),), many=place.splits)

    def _unescaped(self, span: Span, place: _Place, escape: re.Pattern[str]) -> Iterator[Chunk]:
        written = self.text.written(span)
        if len(written) != span.end - span.start:  # backslashes of the script around this one
            text = escape.sub(lambda match: match[1].strip("\r\n"), written)
            yield Chunk(text, (place.step(span),))
            return
        cursor = span.start
        for match in escape.finditer(self.text.full, span.start, span.end):
            if match.start() > cursor:
                yield self._literal(Span(cursor, match.start()), place)
            escaped = match.group(1)
            if escaped not in ("\n", "\r\n"):
                yield Chunk(escaped, (place.step(Span(*match.span())),))
            cursor = match.end()
        if cursor < span.end:
            yield self._literal(Span(cursor, span.end), place)

    def _quoted(
        self, node: Node, inside: Span, place: _Place, escape: re.Pattern[str]
    ) -> Iterator[_Piece]:
        """Text with expansions in it. Gaps between the children are text too: the grammar
        drops blanks there."""
        cursor = inside.start
        for child in node.named_children:
            if child.type in ("string_content", "heredoc_content"):
                continue
            span = self.text.span(child)
            if span.start > cursor:
                yield from self._unescaped(Span(cursor, span.start), place, escape)
            yield from self._pieces(child, place)
            cursor = span.end
        if inside.start == inside.end:
            yield self._literal(inside, place)
        elif cursor < inside.end:
            yield from self._unescaped(Span(cursor, inside.end), place, escape)

    # -- variables --------------------------------------------------------------------

    def _text(self, node: Node, place: _Place) -> Iterator[_Piece]:
        """What stands in quotes."""
        inside = self.text.inside(node)
        if node.type == "raw_string":
            yield self._literal(inside, place.quoted("'"))
        else:
            yield from self._quoted(node, inside, place.quoted('"'), _ESCAPED_IN_DOUBLE_QUOTES)

    def _substituted(self, node: Node, span: Span, place: _Place) -> Iterator[_Piece]:
        """What a command inside the script prints."""
        outcomes = self._outcomes(node)
        if len(outcomes) > 1:
            yield from self._perhaps(outcomes, span, place)
            return
        question = asked_by_program(_inside_substitution(self.text.of(node)))
        yield from self._computed(outcomes[0] if outcomes else None, question, span, place)

    def _default(self, name: str, sign: str, pieces: list[_Piece], span: Span) -> list[_Piece]:
        """What stands in the place of a variable that is not there; some signs give it to the variable, too."""
        if sign in _ASSIGNS_DEFAULT:
            chunks = tuple(piece for piece in pieces if isinstance(piece, Chunk))
            self.bindings[name] = Variable(name, span, span, chunks)
        return pieces

    def _expansion(self, node: Node, place: _Place) -> Iterator[_Piece]:
        span = self.text.span(node)
        here = place.step(span)
        parsed = self._parameter(node)
        if parsed is None:
            yield from self._computed(self._operation(node), "", span, place)
            return
        name, whole_array, sign, other, binding = parsed
        held = None if binding is None else held_text(binding)
        if sign in _ALTERNATIVE and other is not None:
            if held:
                yield from self._other_words(other, here, place)
            elif binding is not None and held is None:
                yield Chunk(None, (here,), many=True)
        elif binding is None and other is not None:
            yield from self._default(name, sign, list(self._other_words(other, here, place)), span)
        elif binding is not None and whole_array and binding.fields is not None:
            yield from _each_field(binding.fields, here)
        elif binding is not None and not whole_array and binding.chunks is not None:
            if other is not None and held == "":
                yield from self._other_words(other, here, place)
            else:
                yield from _referred(binding.chunks, here, splits=place.splits)
        elif binding is None and asked_by_variable(name):
            yield Chunk(None, (here,), asks=asked_by_variable(name))
        else:
            several = place.splits or whole_array or name in ("@", "*")
            yield Chunk(None, (here,), many=several, absent=binding is None and name.isdigit())

    def _other_words(self, node: Node, here: Expansion, place: _Place) -> Iterator[_Piece]:
        """The words after ``:-`` or ``:+``, which stand in a text of their own."""
        box = Container(
            "value",
            self.text.span(node),
            forbidden=here.container.forbidden + "{}\"'$`\\",
        )
        pieces = self._pieces(node, _Place(box, box.span))
        chunks = [piece for piece in pieces if isinstance(piece, Chunk)]
        yield from _referred(chunks, here, splits=place.splits)

    def _parameter(self, node: Node) -> tuple[str, bool, str, Node | None, Variable | None] | None:
        """Name, whether all elements of an array are meant, what else the expansion may stand for, behind which sign, and
        what the variable holds, or the item of an associative array."""
        children = [child for child in node.children if child.type not in ("$", "${", "}")]
        if not children:
            return None
        head, *rest = children
        whole_array, index = False, None
        if head.type == "subscript":
            whole_array = self.text.of(head).endswith(("[@]", "[*]"))
            index = head.child_by_field_name("index")
            if not head.named_child_count or not (whole_array or index):
                return None
            head = head.named_children[0]
        if head.type not in ("variable_name", "special_variable_name"):
            return None
        name = self.text.of(head)
        binding = self.bindings.get(name)
        if index is not None and not whole_array:
            if (
                binding is None
                or binding.items is None
                or (rest and rest[0].type in _ASSIGNS_DEFAULT)
            ):
                return None
            binding = self._item(binding, index)
        whole_array = whole_array or name in ("@", "*")
        if not rest:
            return name, whole_array, "", None, binding
        if rest[0].type in _DEFAULT | _ALTERNATIVE and len(rest) == 2:
            return name, whole_array, rest[0].type, rest[1], binding
        return None

    def _item(self, holder: Variable, index: Node) -> Variable | None:
        """The item of an associative array under a key; nothing under a key that nobody gave it."""
        key = self.known(index)
        if key is None:
            return Variable(holder.name, holder.key_span, holder.span)
        return None if holder.items is None else holder.items.get(key)

    # -- what is computed -------------------------------------------------------------

    def _computed(
        self, text: str | None, question: str, span: Span, place: _Place
    ) -> Iterator[_Piece]:
        """``question`` is what the machine is asked where the text is not known."""
        if text is None and question:
            yield Chunk(None, (place.step(span),), asks=question)
        elif text is None:
            yield self._unknown(span, place)
        else:
            chunk = Chunk(text, (place.step(span),), proposed=self._is_proposed(span))
            yield from _split(chunk) if place.splits else (chunk,)

    def _is_proposed(self, span: Span) -> bool:
        """Whether what is computed there comes of a variable that only a comment sets."""
        names = re.findall(r"[A-Za-z_]\w*", self.text.written(span))
        found = (self.bindings[name].chunks for name in names if name in self.bindings)
        return any(chunk.proposed for chunks in found for chunk in chunks or ())

    def known(self, node: Node) -> str | None:
        """The text that a node expands to as one word, if it is known."""
        box = Container("value", self.text.span(node))
        return field_text(self.value(node, box))

    def _sum(self, node: Node) -> tuple[str | None, str]:
        """The value of ``$((...))``, or the question about the machine that it comes to."""
        terms = [self._term(child) for child in node.children[1:-1]]
        known = [term for term in terms if term is not None]
        if len(known) < len(terms):
            return None, ""
        expression = " ".join(known)
        value = arithmetic(expression)
        asks = value is None and any(term.isidentifier() for term in expression.split())
        return (None if value is None else str(value)), (f"( {expression} )" if asks else "")

    def number(self, expression: str) -> int | None:
        """What an expression comes to, as written between ``((`` and ``))``, where quotes are none of it (bash(1),
        "ARITHMETIC EVALUATION")."""
        expression = expression.replace('"', "")
        names = {match[1] or match[2] for match in _NUMBER_NAME.finditer(expression)}
        held = {name: self.bindings.get(name) for name in names}
        texts = {name: None if b is None else held_text(b) for name, b in held.items()}
        if None in texts.values():
            return None
        said = _NUMBER_NAME.sub(lambda match: f" {texts[match[1] or match[2]]} ", expression)
        return arithmetic(said)

    def _term(self, node: Node) -> str | None:
        """Part of an expression as plain numbers, signs and questions about the machine."""
        if node.type == "variable_name":
            name = self.text.of(node)
            binding = self.bindings.get(name)
            if binding is None:
                return asked_by_variable(name) or None
            return None if binding.chunks is None else _term_of(binding.chunks)
        if node.type in _EXPANSIONS:
            return _term_of(self.value(node, Container("value", self.text.span(node))))
        if not node.child_count:
            return self.text.of(node)
        terms = [self._term(child) for child in node.children]
        known = [term for term in terms if term is not None]
        return " ".join(known) if len(known) == len(terms) else None

    def _operation(self, node: Node) -> str | None:
        """``${#list[@]}``, ``${list[0]}``, ``${name%.*}`` and their like."""
        match = _OPERATION.fullmatch(self.text.of(node))
        binding = self.bindings.get(match["name"]) if match else None
        if match is None or binding is None:
            return None
        index, operation = match["index"], match["operation"]
        if match["length"]:
            if index in ("@", "*") and binding.fields is not None:
                certain = not any(chunk.many for field in binding.fields for chunk in field)
                return str(len(binding.fields)) if certain and not operation else None
            held = self._held(binding, index)
            return str(len(held)) if held is not None and not operation else None
        held = self._held(binding, index)
        if held is None or not operation:
            return held
        return operated(held, operation)

    def _held(self, binding: Variable, index: str | None) -> str | None:
        if binding.fields is None:
            known = binding.chunks is not None and index in (None, "0")
            return field_text(binding.chunks or ()) if known else None
        number = int(index or 0) if (index or "0").isdigit() else self.number(index or "0")
        if number is None or not 0 <= number < len(binding.fields):
            return None
        before = binding.fields[: number + 1]
        certain = not any(chunk.many for field in before for chunk in field)
        return field_text(before[-1]) if certain else None

    def _output(self, node: Node) -> str | None:
        """What ``$(...)`` prints, for small programs over known words."""
        statements = node.named_children
        if len(statements) == 2:
            return self._joined(*statements)
        found = self._printed(statements[0], None) if len(statements) == 1 else None
        return None if found is None else found.rstrip("\n")

    def _outcomes(self, node: Node) -> tuple[str, ...]:
        """What ``$(...)`` may print: several texts where a test decides of which nobody knows whether it holds, none
        where it is not known at all."""
        output = self._output(node)
        if output is not None:
            return (output,)
        found = self._may_print(node.named_children[0]) if node.named_child_count == 1 else ()
        return () if None in found else tuple(dict.fromkeys(text or "" for text in found))

    def _may_print(self, node: Node) -> Sequence[str | None]:
        """Of ``if [ … ]; then echo --flag; fi``, ``[ … ] && echo --flag`` and ``[ … ] && echo --flag || echo --other``."""
        if node.type == "if_statement":
            ways = [*arms(node), (None, [])]
        elif node.type == "list":
            first, sign, last = node.children[0], node.children[1].type, node.children[-1]
            if sign == "||" and first.type == "list" and first.children[1].type == "&&":
                ways = [(first.children[0], [first.children[-1]]), (None, [last])]
            elif sign == "&&" and first.type != "list":
                ways = [(first, [last]), (None, [])]
            else:
                return ()
        else:
            return ()
        conditions = Conditions(self.text, self, set(), lambda _name: None)
        found: list[str | None] = []
        for condition, statements in ways:
            holds = True if condition is None else conditions.holds(condition)
            if holds is not False:
                found.append(self._all_printed(statements))
            if holds:
                break
        return found

    def _all_printed(self, statements: Sequence[Node]) -> str | None:
        printed = [self._printed(each, None) for each in statements if each.type != "comment"]
        known = [text for text in printed if text is not None]
        return "".join(known).rstrip("\n") if len(known) == len(printed) else None

    def _perhaps(self, outcomes: Sequence[str], span: Span, place: _Place) -> Iterator[_Piece]:
        """The options that one of several outputs may have, without their values. None of it is edited."""
        step = Expansion(Container("value", span, shared=True), span, span)
        for option in options_among(word for text in outcomes for word in text.split()):
            chunk = Chunk(f" {option} ", (step,))
            yield from _split(chunk) if place.splits else (chunk,)
            yield Chunk(None, (step,))
        space = Chunk(" ", (step,))
        yield from _split(space) if place.splits else (space,)
        yield Chunk(None, (step,), many=True)

    def _joined(self, assignment: Node, command: Node) -> str | None:
        """``IFS=,; echo "${list[*]}"``: bash(1), "Arrays", joins by the first character of IFS."""
        value = assignment.child_by_field_name("value")
        is_separator = self.text.of(assignment).startswith("IFS=")
        if assignment.type != "variable_assignment" or value is None or not is_separator:
            return None
        separator, written = self.known(value), self.text.of(command)
        words = self._texts(command) if _ECHOES_LIST.fullmatch(written) else None
        return None if words is None or not separator else separator[0].join(words[1:])

    def printed(self, node: Node) -> str | None:
        """What a small program, or several in a row, prints of words that are known."""
        return self._printed(node, None)

    def _printed(self, node: Node, given: str | None) -> str | None:
        if node.type == "redirected_statement":
            body = node.child_by_field_name("body")
            given = self._here_string(node.children_by_field_name("redirect"), given)
            return self._printed(body, given) if body is not None else None
        if node.type == "pipeline":
            for number, part in enumerate(node.named_children):
                given = self._printed(part, given)
                if given is None or number > _LONGEST_PIPELINE:
                    return None
            return given
        if node.type == "list" and self.text.of(node).startswith("cd "):
            # `cd somewhere && pwd`: where that is
            first, last = node.named_children[0], node.named_children[-1]
            first = first.child_by_field_name("body") or first  # cd somewhere &>/dev/null
            words = self._texts(first) if self.text.of(last).startswith("pwd") else None
            operands = [word for word in words or () if word != "--"]
            return operands[1] if len(operands) == 2 else None
        if node.type != "command":
            return None
        words = self._texts(node)
        given = self._here_string(node.named_children, given)
        if not words:
            return None
        printed = self._printed_by(words[0], words[1:]) if given is None else None
        return output_of(words, given) if printed is None else printed

    def _here_string(self, nodes: Iterable[Node], given: str | None) -> str | None:
        """What a program reads: the last here-string among nodes, or what it is given otherwise."""
        for node in nodes:
            if node.type == "herestring_redirect" and node.named_child_count:
                given = self.known(node.named_children[0])
        return given

    def _texts(self, command: Node) -> list[str] | None:
        texts: list[str] = []
        box = Container("command", self.text.span(command))
        for child in command.named_children:
            if child.type.endswith("_redirect"):
                continue
            for field in self.words(child, box):
                text = field_text(field)
                if text is None:
                    return None
                texts.append(text)
        return texts


class _Place(Struct, frozen=True):
    """Where a word is being expanded: its text, the quotes around, whether blanks split."""

    container: Container
    word: Span
    quote: str = ""
    splits: bool = False

    def step(self, span: Span) -> Expansion:
        return Expansion(self.container, span, self.word, self.quote)

    def quoted(self, quote: str) -> _Place:
        return replace(self, quote=quote, splits=False)


def _term_of(field: Field) -> str | None:
    return field_text(field) or field_question(field) or None


def _inside_substitution(written: str) -> str:
    """The command of ``$(...)`` or of backquotes."""
    return written[2:-1] if written.startswith("$(") else written[1:-1]


def _each_field(fields: Sequence[Sequence[Chunk]], here: Expansion) -> Iterator[_Piece]:
    """The fields of an array, as words of their own."""
    yield _BREAK
    for field in fields:
        for chunk in field:
            yield replace(chunk, path=(here, *chunk.path))
        yield _BREAK


def _referred(chunks: Sequence[Chunk], here: Expansion, *, splits: bool) -> Iterator[_Piece]:
    """A variable's chunks as seen from a place that refers to it."""
    if any(len(chunk.path) >= _LONGEST_PATH for chunk in chunks):
        yield Chunk(None, (here,), many=splits)
        return
    if not splits:
        for chunk in chunks:
            yield replace(chunk, path=(here, *chunk.path))
        return
    pieces = [piece for chunk in chunks for piece in _split(chunk)]
    several = any(isinstance(piece, _Break) for piece in pieces)
    for piece in pieces:
        if isinstance(piece, _Break):
            yield piece
            continue
        first, *deeper = piece.path
        if several:
            first = replace(first, word=first.span)
        yield replace(
            piece,
            path=(here, first, *deeper),
            splits=True,
            many=piece.text is None and not piece.asks,
        )


def _split(chunk: Chunk) -> Iterator[_Piece]:
    if chunk.text is None:
        yield chunk
        return
    cursor = 0
    for match in _BLANKS.finditer(chunk.text):
        if match.start() > cursor:
            yield chunk.part(cursor, match.start())
        yield _BREAK
        cursor = match.end()
    if cursor < len(chunk.text):
        yield chunk.part(cursor, len(chunk.text))
