"""Shell scripts: which commands run with which options and environment, and edits of them.

Only what stands in the script counts: variables, arrays and here-documents are followed as
long as their values are plain; the rest is ``UNKNOWN``. What the grammar could not parse is
neither reported nor changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Mapping as MappingABC,
    Sequence as SequenceABC,
)
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import field
from msgspec.structs import replace

from oomlint.documents import base
from oomlint.documents.base import (
    Command,
    Entry,
    Fact,
    Literal,
    Mapping,
    Node,
    Scalar,
    ShellDocument,
)
from oomlint.documents.shell.commands import CommandReader
from oomlint.documents.shell.names import BARE_OPTIONS, SBATCH_SHORT
from oomlint.documents.shell.nodes import ShellEntry, ShellMapping, ShellScalar, ShellSequence
from oomlint.documents.shell.syntax import CONTINUATION, MOST_CHARACTERS, Unparsable
from oomlint.documents.shell.words import Container, Variable, field_text
from oomlint.documents.text import Edit, Source, Span
from oomlint.errors import CannotEdit, ParseError

if TYPE_CHECKING:
    from oomlint.documents.shell.files import WrittenFile

_SBATCH = re.compile(r"[ \t]*#SBATCH[ \t]")
# Slurm 24.05, "Heterogeneous Job Support"; `packjob` up to 19.05.
_NEXT_COMPONENT = re.compile(r"[ \t]*#SBATCH[ \t]+(?:het|pack)job\b")
_DIRECTIVE = re.compile(
    r"""(?<!\S)(--?)([A-Za-z][\w-]*)(?:(?:=|[ \t]+)("[^"]*"|'[^']*'|[^\s#-]\S*))?"""
)
_SAFE_WORD = re.compile(r"[\w@%+=:,./\-]+", re.ASCII)
_NO_OPTION_NEXT = re.compile(r"""(?:[ \t]|\\\r?\n)+[\w./+'"$~]""")


class ShellScript(ShellDocument, frozen=True, eq=False):
    """A script as read."""

    commands: tuple[Command, ...] = ()
    sbatch: Mapping = field(default_factory=lambda: ShellMapping(Span(0, 0), {}, style="sbatch"))
    """``#SBATCH`` directives, keys folded like options, one-letter ones to their long names; of a
    heterogeneous job those of the component that runs the script itself, the first."""
    components: tuple[Mapping, ...] = ()
    """The directives of every component of a heterogeneous job."""
    facts: tuple[Fact, ...] = ()
    files: MappingABC[str, WrittenFile] = field(default_factory=dict)
    """Configs that the script writes itself, by the name that it gives them."""
    made: frozenset[str] = frozenset()
    """Names of all files that its commands write, whatever stands in them."""
    sourced: tuple[str, ...] = ()
    """Paths of other files whose variables it takes in."""
    held: MappingABC[str, Variable] = field(default_factory=dict)
    """What its variables hold at its end."""

    @cached_property
    def arrays(self) -> tuple[Mapping, ...]:
        """What the arrays of options that it leaves behind hold, for who sources it."""
        return tuple(_options_in(self.source.text, self.held.values()))

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
            return [self._without_directive(mapping, entry)]
        earlier = [e for e in mapping.duplicates if e.key == key and isinstance(e, ShellEntry)]
        return [self._without(each) for each in (*earlier, entry)]

    def _without_directive(self, mapping: Mapping, entry: ShellEntry) -> Edit:
        """Delete a ``#SBATCH`` option, and its line if it has no other."""
        line = self.source.position(entry.span.start)[0]
        place = self.source.line_span(line)
        others = (*mapping.entries.values(), *mapping.duplicates)
        if any(other is not entry and other.span.start in place for other in others):
            return self._edit(entry.span.start - 1, entry.span.end, "")
        starts = self.source.line_starts
        end = starts[line] if line < len(starts) else len(self.source.text)
        return self._edit(place.start, end, "")

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
        if siblings and all(e.container is not None and e.container.sourced for e in siblings):
            raise CannotEdit("all its options are of another script, which this one sources")
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
        is_switch = value is True and key not in BARE_OPTIONS
        if is_switch and not re.search(r"[= ]", words) and self._word_follows(end):
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
            if bare or spelled is None or key in BARE_OPTIONS:
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


def _options_in(text: str, held: Iterable[Variable]) -> Iterator[Mapping]:
    """``ARGS=(--a 1 --b)`` as the options of a command."""
    for binding in held:
        first = field_text(binding.fields[0]) if binding.fields else None
        if binding.fields and first is not None and first.startswith("--"):
            box = Container("array", binding.span)
            nothing = ShellMapping(binding.span, {}, style="environment")
            yield CommandReader(text, box, binding.fields).read(binding.span, nothing).flags


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


def parse_shell(
    source: Source,
    find: Callable[[str], Source | None] = lambda _name: None,
    arguments: SequenceABC[str | None] = (),
    inherited: SequenceABC[tuple[str, str | None]] = (),
) -> ShellScript:
    """Read a script; ``find`` gives the files that it sources, ``arguments`` are the words that
    another one starts it with and ``inherited`` the variables, ``None`` where nobody knows one.

    Raises:
        ParseError: it is too long, nested too deeply or too broken to be read.
    """
    from oomlint.documents.shell.facts import facts_of
    from oomlint.documents.shell.reader import Reader

    if len(source.text) > MOST_CHARACTERS:
        raise ParseError(source.path, "too large for a script (over a million characters)")
    try:
        reader = Reader(source, find, arguments, inherited)
        reader.run()
        directives = _directives(source, reader.batches)
        return replace(
            ShellScript(source),
            commands=tuple(reader.commands),
            sbatch=directives[0],
            components=directives if len(directives) > 1 else (),
            facts=facts_of(source, reader.scripts, reader.commands),
            files=reader.files,
            made=frozenset(reader.made),
            sourced=tuple(reader.sourced),
            held=reader.variables.held,
        )
    except RecursionError:
        raise ParseError(source.path, "the script is nested too deeply to be read") from None
    except Unparsable as error:
        raise ParseError(source.path, f"the script has too many {error} to be read") from None


def _directives(source: Source, batches: SequenceABC[Span] = ()) -> tuple[ShellMapping, ...]:
    """The ``#SBATCH`` lines before the first command; Slurm reads no later ones (sbatch(1)).
    Where the file has none, those of the one job that it writes and hands in."""
    found = _directives_from(source, 1)
    if not found[0].entries and len(batches) == 1:
        return _directives_from(source, source.position(batches[0].start)[0] + 1)
    return found


def _directives_from(source: Source, first: int) -> tuple[ShellMapping, ...]:
    """The directives from a line on, for each component of the job."""
    components: list[tuple[dict[str, Entry], list[Entry]]] = [({}, [])]
    for line in range(first, len(source.line_starts) + 1):
        span = source.line_span(line)
        text = source.text[span.start : span.end]
        if text.strip() and not text.lstrip().startswith("#"):
            break
        if not _SBATCH.match(text):
            continue
        if _NEXT_COMPONENT.match(text):
            components.append(({}, []))
        entries, lost = components[-1]
        comment = re.search(r"\s#(?!SBATCH)", text)
        stop = comment.start() if comment else len(text)
        for match in _DIRECTIVE.finditer(text, 0, stop):
            entry = _directive(match, span.start)
            if entry.key in entries:
                lost.append(entries.pop(entry.key))
            entries[entry.key] = entry
    return tuple(
        ShellMapping(
            Span(0, max((e.span.end for e in entries.values()), default=0)),
            entries,
            tuple(lost),
            style="sbatch",
        )
        for entries, lost in components
    )


def _directive(match: re.Match[str], shift: int) -> ShellEntry:
    dashes, name, value = match.groups()
    key = SBATCH_SHORT.get(name, name) if dashes == "-" else name.replace("-", "_")
    key_span = Span(shift + match.start(1), shift + match.end(2))
    if value is None:
        place = Span(key_span.end, key_span.end)
        node = ShellScalar(place, True, locked="the directive has no value", style="sbatch")
    else:
        place = Span(shift + match.start(3), shift + match.end(3))
        node = ShellScalar(place, value.strip("\"'"), plain=True, style="sbatch")
    return ShellEntry(key, key_span, node, Span(shift + match.start(), shift + match.end()))
