"""Configs that a script writes before it uses them: ``cat > ds.json <<EOF``.

Such a file is read from a text as long as the script, in which everything else is blank, so
that every span is one of the script itself.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, cast

from msgspec import Struct
from msgspec.structs import asdict, replace

from oomlint.documents.base import Document, Entry, Mapping, Node, Scalar
from oomlint.documents.json import JsonDocument, parse_json
from oomlint.documents.shell.expand import Expander
from oomlint.documents.shell.syntax import ShellTree, heredoc_expands
from oomlint.documents.shell.words import Container, Field, field_text
from oomlint.documents.text import Edit, Source
from oomlint.documents.yaml.document import YamlDocument, parse_yaml
from oomlint.errors import CannotEdit

if TYPE_CHECKING:
    from tree_sitter import Node as Syntax

YAML_ENDINGS = (".yaml", ".yml")
# What every dialect takes for a value that only the run can tell, as short as a variable can be.
_UNKNOWN_IN_YAML = "${"
_FILLED_IN = "the script fills the value in when it runs"


def written_names(
    script: ShellTree,
    expander: Expander,
    fields: Sequence[Field],
    redirects: Sequence[Syntax],
) -> Iterator[str]:
    """The files to which a command's output goes (``>`` and ``tee``)."""
    nested = [child for redirect in redirects for child in redirect.named_children]
    for redirect in (*redirects, *nested):
        if redirect.type != "file_redirect" or script.text.of(redirect).startswith(("2", "<")):
            continue
        target = redirect.child_by_field_name("destination")
        name = expander.known(target) if target is not None else None
        if name:
            yield name
    if fields and field_text(fields[0]) == "tee":
        for words in fields[1:]:
            name = field_text(words)
            if name and not name.startswith("-"):
                yield name


# cp(1), mv(1), ln(1) and install(1) of coreutils 9.4: the last word is where the others come to lie.
COPYING = frozenset({"cp", "mv", "ln", "install", "rsync"})


def copied_names(words: Sequence[str | None]) -> Iterator[str]:
    """The files that a copying command makes: what its last word names, and in that folder what is copied."""
    *copied, target = [word for word in words if not (word or "").startswith("-")]
    if target is None or len(copied) < 2:
        return
    yield target
    yield from (posixpath.join(target, posixpath.basename(name)) for name in copied[1:] if name)


def content_of(
    script: ShellTree, expander: Expander, fields: Sequence[Field], heredoc: Syntax | None
) -> tuple[Field, str] | None:
    """What a command writes, piece by piece where it stands, and the characters that cannot
    be written there."""
    if heredoc is not None:
        body = next((c for c in heredoc.children if c.type == "heredoc_body"), None)
        if body is None:
            return None
        expands = heredoc_expands(script, heredoc)
        box = Container("heredoc", script.text.span(body))
        return expander.heredoc(body, box, expands=expands), "$`\\" if expands else ""
    if field_text(fields[0]) not in ("echo", "printf"):
        return None
    words = [field for field in fields[1:] if not (field_text(field) or "").startswith("-")]
    if len(words) != 1:
        return None
    quote = words[0][0].path[0].quote
    return words[0], "'" if quote == "'" else "$`\\\"'"


class Content(Struct, frozen=True):
    """What a script writes into a file: the text in the places of the script, and what has no room in its own, by where
    that begins and ends."""

    source: Source
    too_long: tuple[tuple[int, int, str], ...] = ()


def written_source(host: Source, content: Field, name: str) -> Content | None:
    """The text of the file in the places of the script. A value that has no room where its
    variable stands is left out of the text of a YAML, and ``None`` comes back for what has no word for that."""
    unknown = _UNKNOWN_IN_YAML if name.lower().endswith(YAML_ENDINGS) else ""
    blank = host.blank
    parts: list[str] = []
    too_long: list[tuple[int, int, str]] = []
    cursor, opened = 0, False
    for start, end, value in _pieces(content):
        room = end - start
        if value is not None and unknown and len(value) > room:
            too_long.append((start, end, value))
            value = unknown
        elif value is None:
            value = unknown
        if len(value) > room or start < cursor:
            return None
        if value == '"' and room > 1:  # `\\"`: the blank goes outside of the quotes
            opened = not opened
            value = value.rjust(room) if opened else value
        parts += (blank[cursor:start], value.ljust(room))
        cursor = end
    parts.append(blank[cursor:])
    return Content(Source(host.path, "".join(parts)), tuple(too_long))


class WrittenFile(Struct, frozen=True):
    """A config in a script: ``source`` is the script with all else blank, ``too_long`` what has no room in it."""

    host: Source
    source: Source
    forbidden: str
    too_long: tuple[tuple[int, int, str], ...] = ()

    def parsed(self, name: str) -> Document | None:
        """The document, by the ending of the file's name.

        Raises:
            ParseError: the text is not valid in its language.
        """
        lowered = name.lower()
        if lowered.endswith(YAML_ENDINGS):
            yaml = parse_yaml(self.source)
            for root in yaml.roots if self.too_long else ():
                self._fill(root)
            return _WrittenYaml(file=self, **asdict(yaml))
        if lowered.endswith(".json"):
            json = parse_json(self.source)
            return _WrittenJson(file=self, **asdict(json))
        return None

    def _fill(self, node: Node) -> None:
        """Put what has no room in the text into the mappings of a document that nobody has seen yet."""
        if not isinstance(node, Mapping):
            return
        for key, entry in node.entries.items():
            filled = self._filled(entry.value) if isinstance(entry.value, Scalar) else None
            if filled is not None:
                # A mapping is told from others by itself, so that it stays, with another value.
                cast("dict[str, Entry]", node.entries)[key] = replace(entry, value=filled)
            self._fill(entry.value)

    def _filled(self, scalar: Scalar) -> Scalar | None:
        """A value with all that the script puts into it; ``None`` where nothing of it was left out."""
        start, end = scalar.span.start, scalar.span.end
        text, held = self.source.text[start:end], False
        for first, last, value in reversed(self.too_long):
            if start <= first < end:  # blanks at the end are none of the value's
                text, held = text[: first - start] + value + text[last - start :], True
        if not held or "\n" in text or _UNKNOWN_IN_YAML in text:
            return None
        text = text.strip()
        if text[:1] in ("'", '"') and text[-1:] == text[:1] and len(text) > 1:
            text = text[1:-1]
        return replace(scalar, value=text, locked=_FILLED_IN)

    def checked(self, edits: list[Edit]) -> list[Edit]:
        """The edits, if they mean in the script what they mean in the file.

        Raises:
            CannotEdit: they do not.
        """
        for edit in edits:
            old = self.source.text[edit.start : edit.end]
            if old != self.host.text[edit.start : edit.end]:
                raise CannotEdit(_FILLED_IN)
            if set(edit.replacement) & set(self.forbidden):
                raise CannotEdit("the value cannot be written inside the quotes of the script")
        return edits


class _WrittenJson(JsonDocument, frozen=True, eq=False):
    file: WrittenFile

    def _edits(self, splices: list[tuple[int, int, str]]) -> list[Edit]:
        return self.file.checked(JsonDocument._edits(self, splices))


class _WrittenYaml(YamlDocument, frozen=True, eq=False):
    file: WrittenFile

    def _edits(self, splices: Iterable[tuple[int, int, str]]) -> list[Edit]:
        return self.file.checked(YamlDocument._edits(self, splices))


def _pieces(content: Field) -> Iterator[tuple[int, int, str | None]]:
    """Start, end and text of what stands in the script; of a variable all pieces together."""
    start, end = -1, -1
    text: str | None = ""
    for chunk in content:
        span = chunk.path[0].span
        if (span.start, span.end) != (start, end):
            if start >= 0:
                yield start, end, text
            start, end, text = span.start, span.end, ""
        text = None if text is None or chunk.text is None else text + chunk.text
    if start >= 0:
        yield start, end, text
