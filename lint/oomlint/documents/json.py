"""JSON documents, read as leniently as DeepSpeed reads them, and edits as splices.

DeepSpeed loads its config with hjson (runtime/config.py: comments, trailing commas, bare
words), Transformers and Accelerate load the same file with ``json.load``. So the reader
accepts both and records where the strict one would stop.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import Any, Final, NoReturn

from oomlint.documents.base import DataDocument, Entry, Literal, Mapping, Node, Scalar, Sequence
from oomlint.documents.brackets import Brackets, Splice
from oomlint.documents.text import Edit, Source, Span
from oomlint.errors import CannotEdit, ParseError

# Guards against files built to exhaust a reader; no training config comes near them.
_MAX_CHARACTERS: Final = 4 * 2**20
_MAX_DEPTH: Final = 100

_TRIVIA: Final = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|#[^\r\n]*|/\*[\s\S]*?\*/)*")
# DeepSpeed's own page writes sizes so (docs/_pages/config-json.md: "allgather_bucket_size": 5e8), and pydantic, which
# reads them, takes a float without a fraction for a whole number (pydantic 2, docs/concepts/conversion_table.md): where a
# file does, a large round number is written likewise.
_EXPONENT: Final = r":\s*[0-9]+[eE]\+?[0-9]+\s*[,}\r\n]"
_LARGE: Final = 100_000
_BLANK: Final = re.compile(r"[ \t\r\n]*")
_STRING: Final = re.compile(r'"(?:[^"\\\r\n]|\\.)*"')
_LITERAL: Final = re.compile(
    r"(?:(?P<number>-?(?:0|[1-9][0-9]*)(?P<fraction>\.[0-9]+)?(?P<exponent>[eE][-+]?[0-9]+)?)"
    r"|(?P<word>true|false|null|NaN|-?Infinity))(?=[ \t]*(?:[,}\]\r\n#]|//|/\*|\Z))"
)
_WORDS: Final[dict[str, Any]] = {
    "true": True,
    "false": False,
    "null": None,
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
}
# What only Hjson has, which few files are written in.
_SINGLE_QUOTED: Final = r"'(?:[^'\\\r\n]|\\.)*'"
_TEXT_BLOCK: Final = r"'''[\s\S]*?'''"
_BARE_KEY: Final = r"[^\s{}\[\],:\"'#/]+"
_BARE_STRING: Final = r"(?!/\*)[^\s{}\[\],:\"'][^\r\n]*"
_CONTROL: Final = re.compile(r"[\x00-\x1f]")
_TEMPLATED: Final = re.compile(r"\$\{|\{\{|\{%")
_COLON: Final = r"[ \t]*:[ \t]*"

# How files of a tokenizer begin that hold its tokens, by the ends of their names: tokens with their numbers
# (vocab_files_names in transformers 4.57, models/gpt2/tokenization_gpt2.py; ADDED_TOKENS_FILE and FULL_TOKENIZER_FILE in
# its tokenization_utils_base.py), or what tokenizers 0.22 writes first (tokenizers/src/tokenizer/serialization.rs).
_TOKENS = r'\s*\{(?:\s*"(?:[^"\\]|\\.)*"\s*:\s*[0-9]+\s*,){8}'
_TOKENIZERS = {
    "vocab.json": _TOKENS,
    "added_tokens.json": _TOKENS,
    "tokenizer.json": r'\s*\{\s*"version"\s*:\s*"[^"]*"\s*,\s*"truncation"\s*:',
}
_BEGINNING = 2000


class JsonDocument(DataDocument, frozen=True, eq=False):
    """``relaxed_at`` is the first place that ``json.load`` would refuse, ``None`` if it reads all."""

    root: Node
    relaxed_at: Span | None
    _bare: frozenset[Node]
    """Strings without quotes: they run to the end of the line, so no comma can follow them."""

    @property
    def roots(self) -> tuple[Node, ...]:
        return (self.root,)

    @property
    def relaxed(self) -> bool:
        return self.relaxed_at is not None

    def set_value(self, node: Node, value: Literal) -> list[Edit]:
        _check_lock(node)
        spelled = self._spell(value, self._indent_at(node.span.start))
        return self._edits([(node.span.start, node.span.end, spelled)])

    def add_entry(
        self, mapping: Mapping, key: str, value: Literal, *, after: str | None = None
    ) -> list[Edit]:
        _check_lock(mapping)
        if key in mapping.entries:
            raise CannotEdit(f"{key} is already there")
        entries = _in_file_order(mapping)
        index = len(entries) - 1
        if after is not None and after in mapping.entries:
            index = entries.index(mapping.entries[after])
        colon = re.fullmatch(_COLON, self._between(entries[index])) if entries else None
        lead = _dumps(key) + (colon.group() if colon else ": ")
        return self._insert(mapping, [entry.value for entry in entries], index, lead, value)

    def remove_entry(self, mapping: Mapping, key: str) -> list[Edit]:
        _check_lock(mapping)
        entry = self._own(mapping, key)
        entries = _in_file_order(mapping)
        brackets = self._brackets(mapping, [item.span for item in entries])
        return self._edits(brackets.delete(entries.index(entry)))

    def rename_entry(self, mapping: Mapping, key: str, new_key: str) -> list[Edit]:
        _check_lock(mapping)
        span = self._own(mapping, key).key_span
        if new_key in mapping.entries:
            raise CannotEdit(f"{new_key} is already there")
        return self._edits([(span.start, span.end, _dumps(new_key))])

    def append_item(self, sequence: Sequence, value: Literal) -> list[Edit]:
        _check_lock(sequence)
        return self._insert(sequence, list(sequence.items), len(sequence.items) - 1, "", value)

    def _insert(
        self, node: Mapping | Sequence, values: list[Node], index: int, lead: str, value: Literal
    ) -> list[Edit]:
        if not values:
            return self._edits(self._fill(node, lead, value))
        if values[index] in self._bare:
            raise CannotEdit("the text before it has no quotes and would swallow a comma")
        parts = (
            [entry.span for entry in _in_file_order(node)]
            if isinstance(node, Mapping)
            else [item.span for item in node.items]
        )
        brackets = self._brackets(node, parts)
        indent = self._indent_at(parts[index].start)
        return self._edits(brackets.insert(lead + self._spell(value, indent), index))

    def _fill(self, node: Mapping | Sequence, lead: str, value: Literal) -> list[Splice]:
        brackets = self._brackets(node, [])
        outer = self._indent_at(node.span.start)
        if not self._has_lines:
            return brackets.fill(lead + self._spell(value, outer))
        newline, inner = self.source.newline, outer + self._step
        piece = lead + self._spell(value, inner)
        return brackets.fill(f"{newline}{inner}{piece}{newline}{outer}")

    def _brackets(self, node: Mapping | Sequence, parts: list[Span]) -> Brackets:
        return Brackets(self.source, node.span.start, node.span.end - 1, parts, self._skip)

    def _skip(self, offset: int) -> int:
        match = _TRIVIA.match(self.source.text, offset)
        return match.end() if match else offset

    def _own(self, mapping: Mapping, key: str) -> Entry:
        entry = mapping.entries.get(key)
        if entry is None:
            raise CannotEdit(f"{key} is not there")
        if any(other.key == key for other in mapping.duplicates):
            raise CannotEdit(f"{key} is given twice; without this one the other would count")
        return entry

    def _between(self, entry: Entry) -> str:
        return self.source.text[entry.key_span.end : entry.value.span.start]

    def _spell(self, value: Literal, indent: str) -> str:
        """The value as JSON; non-empty dicts get lines of their own where the file has lines."""
        if isinstance(value, dict) and value and self._has_lines:
            inner = indent + self._step
            newline = self.source.newline
            lines = [
                f"{inner}{_dumps(str(key))}: {self._spell(item, inner)}"
                for key, item in value.items()
            ]
            return "{" + newline + ("," + newline).join(lines) + newline + indent + "}"
        if type(value) is int and value >= _LARGE and re.search(_EXPONENT, self.source.text):
            return _with_exponent(value) or _dumps(value)
        return _dumps(value)

    @property
    def _has_lines(self) -> bool:
        return (
            self.source.position(self.root.span.start)[0]
            != self.source.position(self.root.span.end)[0]
        )

    @property
    def _step(self) -> str:
        """One step of this file's indentation; two spaces where it shows none."""
        root = self.root
        children = list(root.entries.values()) if isinstance(root, Mapping) else []
        for entry in children:
            indent = self._indent_at(entry.span.start)
            if indent:
                return indent.removeprefix(self._indent_at(root.span.start)) or "  "
        return "  "

    def _indent_at(self, offset: int) -> str:
        start = self.source.line_starts[self.source.position(offset)[0] - 1]
        line = self.source.text[start:offset]
        return line[: len(line) - len(line.lstrip(" \t"))]

    def _edits(self, splices: list[Splice]) -> list[Edit]:
        return [Edit(self.source.path, *splice) for splice in splices]


def parse_json(source: Source) -> JsonDocument:
    """Read JSON as ``json.load`` or hjson would.

    Not read: hjson's objects without braces.

    Raises:
        ParseError: neither would read it, or it is too large or too deeply nested.
    """
    if len(source.text) > _MAX_CHARACTERS:
        raise ParseError(source.path, "too large for a training config (over 4 million characters)")
    return _Scanner(source).document()


def is_tokenizer(source: Source) -> bool:
    """Whether a text is the tokens of a tokenizer, some megabytes of words of which none is a setting."""
    return any(
        source.path.endswith(name) and re.match(beginning, source.text[:_BEGINNING])
        for name, beginning in _TOKENIZERS.items()
    )


def is_json_lines(source: Source) -> bool:
    """Whether a text is records of data, one a line, as training sets are kept under ``.json`` too: its first two
    lines are an object each. A config is one object, over whatever lines."""
    lines = (line for line in source.text.splitlines() if line.strip())
    first = list(islice(lines, 2))
    return len(first) == 2 and all(_is_object(line) for line in first)


def _is_object(line: str) -> bool:
    try:
        return isinstance(parse_json(Source("", line)).root, Mapping)
    except ParseError:
        return False


def _check_lock(node: Node) -> None:
    if node.locked:
        raise CannotEdit(node.locked)


def _in_file_order(mapping: Mapping) -> list[Entry]:
    return sorted((*mapping.entries.values(), *mapping.duplicates), key=lambda entry: entry.span)


def _dumps(value: Literal) -> str:
    import json

    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        if not text.isprintable():
            text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        raise CannotEdit("JSON has no spelling for this value") from None
    return text


def _with_exponent(value: int) -> str | None:
    """``1e6`` of 1000000, ``12e5`` of 1200000; nothing of a number that is not round."""
    digits = str(value).rstrip("0")
    zeros = len(str(value)) - len(digits)
    return f"{digits}e{zeros}" if len(digits) <= 2 and zeros >= 5 else None


class _Scanner:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.text = source.text
        self.offset = 0
        self.relaxed_at = Span(0, 0) if source.has_bom else None
        self.bare: set[Node] = set()

    def document(self) -> JsonDocument:
        self._skip()
        if self.offset == len(self.text):
            self._fail(self.offset, "the file is empty")
        if self.text[self.offset] not in '{["' and not _LITERAL.match(self.text, self.offset):
            self._fail(self.offset, "expected { or [")
        root = self._value(0)
        self._skip()
        if self.offset != len(self.text):
            self._fail(self.offset, "text after the end of the value")
        return JsonDocument(self.source, root, self.relaxed_at, frozenset(self.bare))

    def _value(self, depth: int) -> Node:
        if depth > _MAX_DEPTH:
            self._fail(self.offset, f"nested more than {_MAX_DEPTH} levels deep")
        character = self.text[self.offset : self.offset + 1]
        if character == "{":
            return self._object(depth)
        if character == "[":
            return self._array(depth)
        return self._scalar(character)

    def _object(self, depth: int) -> Mapping:
        start = self.offset
        self.offset += 1
        entries: dict[str, Entry] = {}
        duplicates: list[Entry] = []
        while not self._closes("}", bool(entries)):
            key_start = self.offset
            key = self._key()
            key_span = Span(key_start, self.offset)
            self._skip()
            if self.text[self.offset : self.offset + 1] != ":":
                self._fail(self.offset, f"expected a colon after the key {key[:60]!r}")
            self.offset += 1
            self._skip()
            value = self._value(depth + 1)
            if key in entries:
                duplicates.append(entries.pop(key))
            entries[key] = Entry(key, key_span, value, Span(key_start, self.offset))
        return Mapping(Span(start, self.offset), entries, tuple(duplicates))

    def _array(self, depth: int) -> Sequence:
        start = self.offset
        self.offset += 1
        items: list[Node] = []
        while not self._closes("]", bool(items)):
            items.append(self._value(depth + 1))
        return Sequence(Span(start, self.offset), tuple(items))

    def _closes(self, bracket: str, has_parts: bool) -> bool:
        """Move past a comma, or past the closing bracket (then true)."""
        end = self.offset
        self._skip()
        comma = None
        if has_parts and self.text[self.offset : self.offset + 1] == ",":
            comma = self.offset
            self.offset += 1
            self._skip()
        if self.text[self.offset : self.offset + 1] == bracket:
            if comma is not None:
                self._relax(comma, comma + 1)
            self.offset += 1
            return True
        if self.offset >= len(self.text):
            self._fail(self.offset, f"the file ends before the closing {bracket}")
        if has_parts and comma is None:
            if not re.search(r"[\r\n]", self.text[end : self.offset]):
                self._fail(self.offset, f"expected a comma or {bracket}")
            self._relax(end, end)
        return False

    def _key(self) -> str:
        character = self.text[self.offset]
        if character == '"':
            return self._string()
        if character == "'":
            return self._single_quoted()
        match = re.compile(_BARE_KEY).match(self.text, self.offset)
        if match is None:
            self._fail(self.offset, f"expected a key, found {character!r}")
        self._relax(*match.span())
        self.offset = match.end()
        return match.group()

    def _scalar(self, character: str) -> Scalar:
        start = self.offset
        if character == '"':
            return self._quoted(start, self._string())
        if character == "'":
            if block := re.compile(_TEXT_BLOCK).match(self.text, start):
                self._relax(*block.span())
                self.offset = block.end()
                return Scalar(
                    Span(*block.span()), block.group()[3:-3].strip(), locked="it is a block of text"
                )
            return self._quoted(start, self._single_quoted())
        if match := _LITERAL.match(self.text, start):
            self.offset = match.end()
            return Scalar(Span(start, match.end()), self._literal(match))
        match = re.compile(_BARE_STRING).match(self.text, start)
        if match is None:
            self._fail(start, "a value is missing here")
        text = match.group().rstrip()
        self.offset = start + len(text)
        self._relax(start, self.offset)
        node = self._quoted(start, text)
        self.bare.add(node)
        return node

    def _quoted(self, start: int, value: str) -> Scalar:
        locked = "it is filled in by a template" if _TEMPLATED.search(value) else None
        return Scalar(Span(start, self.offset), value, locked=locked)

    def _literal(self, match: re.Match[str]) -> Any:
        if match["word"]:
            return _WORDS[match["word"]]
        if match["fraction"] or match["exponent"]:
            return float(match["number"])
        try:
            return int(match["number"])
        except ValueError:
            self._fail(match.start(), "the number has too many digits")

    def _string(self) -> str:
        match = _STRING.match(self.text, self.offset)
        if match is None:
            self._fail(self.offset, "the text that starts here has no closing quote on its line")
        if control := _CONTROL.search(self.text, *match.span()):
            self._relax(*control.span())
        return self._decode(match, match.group())

    def _single_quoted(self) -> str:
        match = re.compile(_SINGLE_QUOTED).match(self.text, self.offset)
        if match is None:
            self._fail(self.offset, "the text that starts here has no closing quote on its line")
        self._relax(*match.span())
        body = match.group()[1:-1].replace("\\'", "'")
        return self._decode(match, '"' + re.sub(r'(?<!\\)"', '\\"', body) + '"')

    def _decode(self, match: re.Match[str], literal: str) -> str:
        self.offset = match.end()
        if "\\" not in literal:
            return literal[1:-1]
        import json

        try:
            value = json.loads(literal, strict=False)
        except ValueError:
            self._fail(match.start(), "the text has an escape that JSON does not know")
        assert isinstance(value, str)
        return value

    def _skip(self) -> None:
        start = self.offset
        match = _TRIVIA.match(self.text, start)
        assert match is not None
        blank = _BLANK.match(self.text, start)
        assert blank is not None
        if blank.end() < match.end():
            self._relax(blank.end(), match.end())
        self.offset = match.end()

    def _relax(self, start: int, end: int) -> None:
        if self.relaxed_at is None or start < self.relaxed_at.start:
            self.relaxed_at = Span(start, end)

    def _fail(self, offset: int, message: str) -> NoReturn:
        line, column = self.source.position(min(offset, len(self.text)))
        raise ParseError(self.source.path, f"not valid JSON: {message}", line=line, column=column)
