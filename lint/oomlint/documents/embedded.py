"""Shell commands inside YAML: a block of script, a string, or a list of words.

The command is read from a text as long as the YAML file, in which everything else is blank.
So every span is one of the file itself, and an edit of the command is an edit of the YAML, as
far as the quoting around it permits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping as MappingABC, Sequence as SequenceABC

from msgspec import Struct
from msgspec.structs import replace

from oomlint.documents import base
from oomlint.documents.base import Command, Fact, Literal, Mapping, Node, Scalar, ShellDocument
from oomlint.documents.shell.document import ShellScript, parse_shell
from oomlint.documents.shell.files import WrittenFile
from oomlint.documents.text import Edit, Source, Span
from oomlint.documents.yaml.document import YamlDocument
from oomlint.documents.yaml.nodes import FILLED_IN
from oomlint.errors import CannotEdit

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# Means the same to YAML and to a shell.
_WORD_LIKE = re.compile(r"""[\w@%+=:,./\-]+|"[\w@%+=:,./\- ]*"|'[\w@%+=:,./\- ]*'""", re.ASCII)
_PLAIN_SAFE = re.compile(r"[\w@%+=./\- ]*", re.ASCII)
_HEADER = re.compile(r"[|>][^\r\n]*(?:\r\n|\r|\n)")
# All of a text, piece by piece: what is quoted, line breaks, other characters.
_QUOTED_OR_BREAK = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|\\?\r?\n|\\?\r|.""", re.DOTALL)
# What a YAML loader would not take for text: a list of arguments must hold text only.
_NOT_TEXT = re.compile(r"[-+.]?\d[\d._eE+-]*|true|false|yes|no|on|off|null|~", re.IGNORECASE)
_ESCAPED = "the command is quoted in a way that only a person should change"


class _Piece(Struct, frozen=True, eq=False):
    """A YAML scalar that is the script, or one word of it; ``text`` stands at ``span``."""

    span: Span
    text: str
    style: str
    """The character that opens the scalar, or nothing where it is plain."""
    locked: str | None = None
    """Why nothing may be changed in it: it does not stand in the file as it is."""
    is_environment: bool = False
    """Whether the file gives it to the process, as no line of a script does."""


class EmbeddedShell(ShellDocument, frozen=True, eq=False):
    """A command in a YAML file, which is its ``source``."""

    host: YamlDocument
    shell: ShellScript
    pieces: tuple[_Piece, ...]
    words: base.Sequence | None = None
    """The list whose items are the last words of the command."""

    @property
    def commands(self) -> tuple[Command, ...]:
        return self.shell.commands

    @property
    def facts(self) -> tuple[Fact, ...]:
        """What a block of script shows; cures are for script files."""
        if self.words is not None or not all(piece.locked is None for piece in self.pieces):
            return ()
        given = [piece.span for piece in self.pieces if piece.is_environment]
        return tuple(
            replace(fact, mend=())
            for fact in self.shell.facts
            if not any(each.start <= fact.location.span.start < each.end for each in given)
        )

    @property
    def files(self) -> MappingABC[str, WrittenFile]:
        """Configs that the command writes itself."""
        return self.shell.files

    def set_value(self, node: Node, value: Literal) -> list[Edit]:
        edits = self.shell.set_value(node, value)
        return self._guarded(edits if self.words is None else [_joined(edit) for edit in edits])

    def add_entry(
        self, mapping: Mapping, key: str, value: Literal, *, after: str | None = None
    ) -> list[Edit]:
        if self.words is None:
            return self._guarded(self.shell.add_entry(mapping, key, value, after=after))
        (edit,) = self.shell.add_entry(mapping, key, value)
        if edit.start < max(piece.span.end for piece in self.pieces):
            raise CannotEdit("the command is a list, and the option belongs in the middle of it")
        name, _, argument = edit.replacement.strip().partition(" ")
        if " " in argument:
            raise CannotEdit("several values cannot be added to a list of words at once")
        return self.host.append_item(self.words, f"{name}={argument}" if argument else name)

    def remove_entry(self, mapping: Mapping, key: str) -> list[Edit]:
        self._must_be_script()
        return self._guarded(self.shell.remove_entry(mapping, key))

    def rename_entry(self, mapping: Mapping, key: str, new_key: str) -> list[Edit]:
        return self._guarded(self.shell.rename_entry(mapping, key, new_key))

    def append_item(self, sequence: base.Sequence, value: Literal) -> list[Edit]:
        self._must_be_script()
        return self._guarded(self.shell.append_item(sequence, value))

    def _must_be_script(self) -> None:
        if self.words is not None:
            raise CannotEdit("the command is a list of words; change it by hand")

    def _guarded(self, edits: list[Edit]) -> list[Edit]:
        """The edits, if what they write means the same inside the YAML scalar.

        Raises:
            CannotEdit: it would not.
        """
        for edit in edits:
            self._check(edit)
        return edits

    def _check(self, edit: Edit) -> None:
        piece = next(
            (p for p in self.pieces if p.span.start <= edit.start <= edit.end <= p.span.end), None
        )
        if piece is None:
            raise CannotEdit("the place is not part of the command")
        if piece.locked:
            raise CannotEdit(piece.locked)
        text, old = edit.replacement, self.source.text[edit.start : edit.end]
        if piece.style and all(t[:1] == t[-1:] == piece.style for t in (text, old)):
            text = text[1:-1]  # with its quotes
        if self.words is not None and " " in text and " " not in old:
            raise CannotEdit("several words cannot take the place of one in a list of words")
        if piece.style == "|":
            _check_block(text, _indent(self.source.text, piece.span))
        elif "\n" in text or "\r" in text:
            raise CannotEdit("the command stands on one line")
        elif piece.style:
            _check_quoted(text, piece.style)
        else:
            is_whole = (edit.start, edit.end) == (piece.span.start, piece.span.end)
            _check_plain(text, old if is_whole else None)


def _check_block(text: str, indent: int) -> None:
    lines = re.split(r"\r\n|\r|\n", text)[1:]
    if any(line[:indent].strip(" ") or len(line) < indent for line in lines if line):
        raise CannotEdit("the new line would leave the block of text")


def _check_quoted(text: str, quote: str) -> None:
    if (quote == '"' and set(text) & {'"', "\\"}) or (quote == "'" and "'" in text):
        raise CannotEdit("the value cannot be written inside the quotes around the command")


def _check_plain(text: str, whole: str | None) -> None:
    """``whole``: what the text takes the place of, where that is all of a scalar."""
    if not _PLAIN_SAFE.fullmatch(text):
        raise CannotEdit("the value needs quotes that the YAML text does not have")
    if whole is not None and _NOT_TEXT.fullmatch(text) and not _NOT_TEXT.fullmatch(whole):
        raise CannotEdit("without quotes YAML would not take the value for text")


def _joined(edit: Edit) -> Edit:
    """A value put behind a bare flag, as one word with it: ``--bf16=False``."""
    is_new = edit.start == edit.end and edit.replacement.startswith(" ")
    return Edit(edit.path, edit.start, edit.end, f"={edit.replacement[1:]}") if is_new else edit


def embedded_script(
    host: YamlDocument,
    script: Scalar,
    variables: MappingABC[str, Node] | None = None,
    *,
    is_one_command: bool = False,
) -> EmbeddedShell:
    """The script that a YAML scalar holds.

    Args:
        variables: the environment that the same file gives it, as far as it stands before.
        is_one_command: what reads the file splits the text into words itself: a line break between them is a blank.

    Raises:
        ParseError: it is nested too deeply to be read.
    """
    piece = _piece(host.source.text, script)
    if is_one_command:
        piece = _on_one_line(host.source.text, piece)
    return _document(host, [piece], None, variables or {})


def embedded_words(host: YamlDocument, lists: Iterable[base.Sequence]) -> EmbeddedShell | None:
    """The command whose words are the items of lists; ``None`` where an item is no text.

    Raises:
        ParseError: as above.
    """
    pieces: list[_Piece] = []
    last: base.Sequence | None = None
    for last in lists:
        for item in last.items:
            if not isinstance(item, Scalar):
                return None
            pieces.append(_word(host.source.text, item))
    return _document(host, pieces, last, {}) if pieces else None


def _document(
    host: YamlDocument,
    pieces: SequenceABC[_Piece],
    words: base.Sequence | None,
    variables: MappingABC[str, Node],
) -> EmbeddedShell:
    text = host.source.text
    ordered = sorted(pieces, key=lambda piece: piece.span.start)
    if ordered != list(pieces):
        # `args` before `command`: the words cannot be read in place, in their order.
        joined = " ".join(piece.text for piece in pieces)
        span = Span(ordered[0].span.start, ordered[-1].span.end)
        why = "the words stand in another order than the command; change them by hand"
        ordered = [_Piece(span, joined[: span.end - span.start], "", why)]
    first, end = ordered[0].span.start, ordered[-1].span.end
    definitions = list(_definitions(text, first, variables, ordered))
    parts: list[str] = []
    cursor = 0
    for definition in definitions:
        parts.append(_blank(text[cursor : definition.span.start], keep_lines=True))
        parts.append(definition.text)
        cursor = definition.span.end
    parts.append(_blank(text[cursor:first], keep_lines=True))
    cursor = first
    for piece in ordered:
        parts.append(_blank(text[cursor : piece.span.start], keep_lines=False))
        room = piece.span.end - piece.span.start
        parts.append(piece.text.ljust(room)[:room])
        cursor = piece.span.end
    parts.append(_blank(text[end:], keep_lines=True))
    shell = parse_shell(Source(host.source.path, "".join(parts)))
    return EmbeddedShell(host.source, host, shell, (*ordered, *definitions), words)


def _definitions(
    text: str, first: int, variables: MappingABC[str, Node], script: SequenceABC[_Piece]
) -> Iterator[_Piece]:
    """``NAME=value`` for each variable, its value where it stands in the YAML text.

    The name goes before it, where the YAML text has the key and more: there is always room.
    """
    free = 0
    for name, node in sorted(variables.items(), key=lambda item: item[1].span):
        if not isinstance(node, Scalar) or not _NAME.fullmatch(name):
            continue
        lead, span = f"\n{name}=", node.span
        start = span.start - len(lead)
        if (
            start < free
            or span.end >= first
            or not _WORD_LIKE.fullmatch(text, span.start, span.end)
        ):
            continue
        used = re.compile(rf"\$\{{?{name}\b")
        elsewhere = len(used.findall(text)) > sum(len(used.findall(p.text)) for p in script)
        why = node.locked or ("it is used elsewhere in the file too" if elsewhere else None)
        free = span.end + 1
        whole = Span(start, free)
        assignment = f"{lead}{text[span.start : span.end]}\n"
        yield _Piece(whole, assignment, _style(text, span), why, is_environment=True)


def _blank(text: str, *, keep_lines: bool) -> str:
    return re.sub(r"[^\r\n]" if keep_lines else r"[\s\S]", " ", text)


def _style(text: str, span: Span) -> str:
    opening = text[span.start : span.start + 1]
    return opening if opening and opening in "|>'\"" else ""


def _piece(text: str, node: Scalar) -> _Piece:
    """A scalar as a script."""
    style, span = _style(text, node.span), node.span
    if style in ("'", '"'):
        span = Span(span.start + 1, max(span.start + 1, span.end - 1))
    elif style:
        header = _HEADER.match(text, span.start)
        span = Span(header.end() if header else span.end, span.end)
    decoded = str(node.value)
    raw = text[span.start : span.end]
    aligned = _aligned(raw, decoded)
    # `${NAME}` is the shell's own here.
    free = node.locked is None or (node.locked == FILLED_IN and "{{" not in raw and "{%" not in raw)
    if free and aligned is not None:
        return _Piece(span, aligned, style)
    return _Piece(span, decoded, style, _ESCAPED if free else node.locked)


def _on_one_line(text: str, piece: _Piece) -> _Piece:
    """A piece without the line breaks outside quotes, and without the backslashes by which somebody meant these to go on; what
    YAML folds has them in the file alone."""
    raw = text[piece.span.start : piece.span.end]
    written = raw if len(raw) == len(piece.text) else piece.text
    parts = [
        piece.text[match.start() : match.end()]
        if match[0][0] in "'\""
        else " " * len(match[0])
        if match[0][-1] in "\r\n"
        else piece.text[match.start()]
        for match in _QUOTED_OR_BREAK.finditer(written)
    ]
    return replace(piece, text="".join(parts))


def _word(text: str, node: Scalar) -> _Piece:
    """A scalar as one word: its own quotes keep it together, else quotes in the blanks around."""
    piece = _piece(text, node)
    value = str(node.value)
    if re.fullmatch(r"[\w@%+=:,./\-]+", value, re.ASCII):
        return piece
    if piece.style in ("'", '"') and not piece.locked and not set(value) & set("$`\\!'\""):
        return replace(piece, span=node.span, text=text[node.span.start : node.span.end])
    quoted = "'" + value.replace("'", " ") + "'"
    around = Span(node.span.start - (not piece.style), node.span.end + (not piece.style))
    # Room for two quotes: those of the YAML text, or the blanks on both sides of a plain word.
    return _Piece(around, quoted, piece.style, piece.locked or _ESCAPED)


def _aligned(raw: str, decoded: str) -> str | None:
    """``raw`` with blanks for what YAML drops or folds; ``None`` where the two do not match."""
    out: list[str] = []
    at = 0
    for index, character in enumerate(raw):
        wanted = decoded[at : at + 1]
        if character == wanted:
            out.append(character)
            at += 1
        elif character == "\r" and wanted == "\n" and raw[index + 1 : index + 2] == "\n":
            out.append(character)
        elif character in "\r\n" and wanted == " ":
            out.append(" ")
            at += 1
        elif character in " \t\r\n":
            out.append(" ")
        else:
            return None
    return "".join(out) if not decoded[at:].strip() else None


def _indent(text: str, span: Span) -> int:
    """The indentation of a block of text: that of its first line with something in it."""
    for line in _lines(text[span.start : span.end]):
        if line.strip():
            return len(line) - len(line.lstrip(" "))
    return 0


def _lines(text: str) -> Iterator[str]:
    yield from re.split(r"\r\n|\r|\n", text)
