"""From expanded words to a :class:`Command`: program, options, overrides, environment."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from oomlint.documents import base
from oomlint.documents.base import UNKNOWN, Command, Scalar, last_wins
from oomlint.documents.shell.names import (
    LAUNCHERS,
    PAIRED_OPTIONS,
    WRAPPERS,
    is_bare,
    is_subcommand,
    operands_of,
)
from oomlint.documents.shell.nodes import ShellEntry, ShellMapping, ShellScalar, ShellSequence
from oomlint.documents.shell.words import (
    Chunk,
    Container,
    Expansion,
    Field,
    field_question,
    field_text,
    file_of,
    from_character,
)
from oomlint.documents.text import Span

_FLAG = re.compile(r"(--?)([A-Za-z_][\w.\-/]*)(=)?", re.ASCII)
_ASSIGNMENT = re.compile(r"(\+{0,2})([A-Za-z_][\w.\-/@\[\]]*)=", re.ASCII)
_SHORT = re.compile(r"-[A-Za-z]", re.ASCII)
_SHORT_WITH_DIGITS = re.compile(r"-([nNGc])(\d+)$")
# The last three are quoted where the line is another program's to run: `submit.py -- a \&\& b`.
_SEPARATORS = ("--", "\\", "&&", "||", ";")
# What a line of usage ends in: further options, not a value.
_AND_SO_ON = ("...", "…")
_WRAPPER_OPTIONS_WITH_VALUE = ("-n", "-u", "-C", "-g", "-a")
PYTHON = re.compile(r"(?:.*/)?python[\d.]*$")


class Word(Struct, frozen=True, eq=False):
    """One word of a command: its characters and its text, ``None`` if unknown."""

    chunks: Field
    text: str | None

    @property
    def base(self) -> str:
        """The last part of a path, whatever the folder is; nothing where that is not known either."""
        if self.text is not None:
            return self.text.replace("\\", "/").rpartition("/")[2]
        _, slash, last = (self.chunks[-1].text or "").rpartition("/")
        return last if slash else ""

    @property
    def tail(self) -> str:
        """What follows the first folders of a path, where those are not known."""
        return "" if self.text is not None else (self.chunks[-1].text or "").partition("/")[2]


class CommandReader:
    """Reads the words of one command; ``fields`` come from :class:`Expander.words`."""

    def __init__(self, source_text: str, container: Container, fields: Sequence[Field]) -> None:
        self.source_text = source_text
        self.container = container
        self.words = [Word(field, field_text(field)) for field in fields]
        self.origins = _Origins(self.words)

    def read(self, span: Span, environment: ShellMapping) -> Command:
        """Split the words into program, options and overrides."""
        plain: list[Scalar] = []
        flags: list[ShellEntry] = []
        assignments: list[ShellEntry] = []
        open_ended = False
        # Until the script's name a launcher's own options stand, each with one value at most.
        launching, launcher, operands = True, "", 0
        number = self._program()
        while number < len(self.words):
            word = self.words[number]
            lead = _known_prefix(word.chunks)
            if flag := _FLAG.match(lead):
                taken, entry = self._flag(number, flag, launcher if launching else None)
                flags.append(entry)
                # `-m module` names the program; both readings are of use.
                if launching and entry.key in ("m", "module") and taken == 2:
                    module = replace(self._value(number + 1, 0, "word"), order=number + 1)
                    plain.append(module)
                    launcher = module.value if isinstance(module.value, str) else ""
                    launching = launcher in LAUNCHERS
                number += taken
                continue
            if plain and (assigned := _ASSIGNMENT.match(lead)):
                assignments.append(self._assignment(number, assigned))
            elif plain and (_may_be_many(word) or word.text in _AND_SO_ON):
                open_ended = True
            elif word.text in _SEPARATORS:
                following = self.words[number + 1 : number + 2]
                base = following[0].base if following else ""
                # `submit.py --gpus 8 -- torchrun train.py`: a line of its own begins.
                launching = launching or base in LAUNCHERS or bool(PYTHON.match(base))
            else:
                open_ended = open_ended or _may_be_many(word)
                name = word.base
                value = self._value(number, 0, "word")
                plain.append(replace(value, order=number, base=name, tail=word.tail))
                if name in LAUNCHERS:
                    launcher, operands = (name, operands_of(name)) if launching else (launcher, 0)
                elif operands and not is_subcommand(launcher, name):
                    operands -= 1
                elif not PYTHON.match(name) and not is_subcommand(launcher, name):
                    launching = launching and self._may_launch(number)
            number += 1
        end = _last_word_end(self.words, self.container, span)
        # An override after a bare option would be taken for its value: overrides follow words.
        steps = [scalar.via or scalar.span for scalar in plain]
        overrides_end = max((place.end for place in steps if place.end <= end), default=end)
        return Command(
            span=span,
            words=tuple(plain),
            flags=_mapping(flags, span, "flag", self.container, end, open_ended),
            assignments=_mapping(
                assignments, span, "assignment", self.container, overrides_end, open_ended
            ),
            environment=environment,
        )

    def _may_launch(self, number: int) -> bool:
        """Whether a program that only running tells (``$LAUNCHER``) has a script behind it: it may start that, and the
        options up to there are then its own, with one value each at most."""
        word, behind = self.words[number], self.words[number + 1 :]
        return not (word.text or word.base) and any(
            (each.text or each.base).endswith(".py") for each in behind
        )

    def _program(self) -> int:
        """Index of the program's word: ``nohup``, ``env A=1`` and the like go before it."""
        number, wrapped = 0, False
        while number < len(self.words):
            text = self.words[number].text or ""
            if text in WRAPPERS:
                wrapped = True
            elif wrapped and text.startswith("-"):
                number += text in _WRAPPER_OPTIONS_WITH_VALUE
            elif not _sets_variable(self.words[number], wrapped=wrapped):
                break
            number += 1
        return number

    def _flag(
        self, number: int, match: re.Match[str], launcher: str | None
    ) -> tuple[int, ShellEntry]:
        """An option with its values; how many words they are. ``launcher`` is the program whose
        option it is, ``None`` behind the name of the script."""
        word = self.words[number]
        key = match.group(2).replace("-", "_")
        key_span, key_stuck = self._part_span(word.chunks, 0, match.end(2))
        value: base.Node
        taken = 1
        digits = _SHORT_WITH_DIGITS.match(word.text or "")
        if word.text is None and _SHORT.fullmatch(_known_prefix(word.chunks)):
            # `-n$RANKS`, of what only running tells
            value = self._value(number, 2, "flag")
        elif digits and launcher is not None:
            key = digits.group(1)
            key_span, key_stuck = self._part_span(word.chunks, 0, 2)
            value = self._value(number, 2, "flag")
        elif match.group(3):
            value = self._value(number, match.end(), "flag")
        else:
            most = None
            if launcher is not None:
                most = 0 if is_bare(launcher, key) else 2 if key in PAIRED_OPTIONS else 1
            last = self._values_end(number + 1, most)
            taken = last - number
            if taken == 1:
                value = self._bare(word)
            elif taken == 2:
                value = self._value(number + 1, 0, "flag")
            else:
                items = [self._value(index, 0, "flag") for index in range(number + 1, last)]
                span, container, stuck = self._extent(range(number + 1, last))
                value = ShellSequence(span, tuple(items), stuck, container=container)
        span, container, stuck = self._extent(range(number, number + taken))
        return taken, ShellEntry(
            key, key_span, value, span,
            container=container, stuck=stuck or key_stuck, order=number, file=file_of(word.chunks),
        )  # fmt: skip

    def _values_end(self, number: int, most: int | None) -> int:
        """Index of the first word that is no value of the option before ``number``."""
        start = number
        while number < len(self.words) and (most is None or number - start < most):
            word = self.words[number]
            lead = _known_prefix(word.chunks)
            if _FLAG.match(lead) or word.text in _SEPARATORS:
                break
            if number > start and (_ASSIGNMENT.match(lead) or _may_be_many(word)):
                break
            if number > start and word.text in _AND_SO_ON:
                break
            # No launcher takes a script as the value of an option: the option is a switch.
            if most is not None and lead.endswith(".py"):
                break
            number += 1
        return number

    def _assignment(self, number: int, match: re.Match[str]) -> ShellEntry:
        key_span, key_stuck = self._part_span(
            self.words[number].chunks, match.start(2), match.end(2)
        )
        value = _without_own_quotes(self._value(number, match.end(), "assignment"))
        span, container, stuck = self._extent(range(number, number + 1))
        return ShellEntry(
            match.group(2), key_span, value, span,
            container=container, stuck=stuck or key_stuck, order=number, lead=match.group(1),
        )  # fmt: skip

    def _bare(self, word: Word) -> ShellScalar:
        """The value of an option that stands alone: ``True``, where a value would go."""
        last = word.chunks[-1]
        step = last.path[-1]
        # In a variable's value it goes before the closing quote; without quotes it cannot go.
        inside = step.container.kind in ("value", "heredoc")
        end = step.span.end if inside else step.word.end
        locked = None
        if any(s.container.shared for s in last.path[1:]):
            locked = _SHARED
        elif step.container.kind == "value" and not step.quote:
            locked = "the variable's value has no quotes to take a second word"
        return ShellScalar(
            Span(end, end),
            True,
            locked=locked,
            quote=step.quote if inside else "",
            splits=True,
            forbidden=step.container.forbidden,
        )

    def _part_span(self, chunks: Field, start: int, end: int) -> tuple[Span, str | None]:
        """Where characters ``[start, end)`` of a word are written, if in one piece."""
        cursor = 0
        for chunk in chunks:
            if chunk.text is None:
                break
            length = len(chunk.text)
            if cursor <= start and end <= cursor + length:
                step = chunk.part(start - cursor, end - cursor).path[-1]
                shared = any(s.container.shared for s in chunk.path[1:])
                return step.span, _SHARED if shared else None
            cursor += length
        return chunks[0].path[0].word, "the name is put together from several pieces"

    def _value(self, number: int, start: int, style: str) -> ShellScalar:
        """The value in word ``number`` from character ``start`` on."""
        chunks = self.words[number].chunks
        alone = range(number, number + 1)

        def mixed(step: Expansion) -> bool:
            return self.origins.shared_place(step, alone)

        value = value_of(self.source_text, chunks, start, style, mixed)
        word = self.words[number]
        # ``--model $MODELS/Qwen2.5-7B``: the folder alone is not known.
        return replace(value, tail=word.tail) if value.value is UNKNOWN and word.tail else value

    def _extent(self, numbers: range) -> tuple[Span, Container, str | None]:
        """The words' span in the innermost text that holds all of them."""
        chunks = [chunk for number in numbers for chunk in self.words[number].chunks]
        level = common_level(chunks)
        steps = [chunk.path[level] for chunk in chunks]
        span = Span(min(s.word.start for s in steps), max(s.word.end for s in steps))
        stuck = None
        if any(step.container.shared for step in chunks[0].path[1 : level + 1]):
            stuck = _SHARED
        elif any(self.origins.shared_word(step, numbers) for step in steps):
            stuck = "the words come from one variable together with others"
        return span, steps[0].container, stuck


_SHARED = "it comes from a variable that is used in several places"


class _Origins:
    """Which words of a command come from which place on the way to it."""

    def __init__(self, words: Sequence[Word]) -> None:
        self._by_span: dict[tuple[int, Span], set[int]] = {}
        self._by_word: dict[tuple[int, Span], set[int]] = {}
        for number, word in enumerate(words):
            for chunk in word.chunks:
                for step in chunk.path:
                    box = id(step.container)
                    self._by_span.setdefault((box, step.span), set()).add(number)
                    self._by_word.setdefault((box, step.word), set()).add(number)

    def shared_place(self, step: Expansion, numbers: range) -> bool:
        """Whether words other than ``numbers`` come from the same characters or reference."""
        return any(n not in numbers for n in self._by_span[id(step.container), step.span])

    def shared_word(self, step: Expansion, numbers: range) -> bool:
        """Whether words other than ``numbers`` come from the same word."""
        return any(n not in numbers for n in self._by_word[id(step.container), step.word])


# A text in quotes that reach the program, without escapes of a kind that its readers treat each in their way.
_IN_OWN_QUOTES = re.compile(r"""\s*(?:"([^"\\]*)"|'([^'\\]*)')\s*""")


def _without_own_quotes(value: ShellScalar) -> ShellScalar:
    """The value of ``key=value`` whose quotes the shell leaves (``key=\\"no\\"``): OmegaConf 2.3 (basecontainer.py
    merge_with_dotlist: yaml.load) and Hydra 1.3 (grammar/OverrideLexer.g4: QUOTED_VALUE) read what is inside, as text.
    """
    found = _IN_OWN_QUOTES.fullmatch(value.value) if isinstance(value.value, str) else None
    if found is None:
        return value
    return replace(value, value=found[1] if found[1] is not None else found[2], plain=False)


def value_of(
    text: str,
    field: Field,
    start: int,
    style: str,
    mixed: Callable[[Expansion], bool] = lambda step: False,
) -> ShellScalar:
    """The value that ``field`` holds from character ``start`` on, and where to edit it.

    The place is the innermost one that serves this value alone: a variable's definition
    if it is read nowhere else, otherwise the word that refers to the variable. ``mixed``
    tells whether a place brings other words too.
    """
    chunks = from_character(field, start)
    if not chunks:  # `key=` with nothing after it
        step = field[-1].path[-1]
        inside = text[step.span.end : step.span.end + 1] == step.quote
        place = Span(step.span.end, step.span.end)
        return ShellScalar(
            place, "", plain=True, quote=step.quote if inside else "", splits=field[-1].splits,
            forbidden=step.container.forbidden, style=style,
        )  # fmt: skip
    level = common_level(chunks)
    for depth in range(1, level + 1):
        if chunks[0].path[depth].container.shared:
            level = depth - 1
            break
    steps = [chunk.path[level] for chunk in chunks]
    span, quote = _place_of(text, steps, _before_character(field, start, level))
    known = field_text(chunks)
    locked = None
    if known is None:
        locked = "its value is only known when the script runs"
    elif any(level < len(chunk.path) - 1 and mixed(chunk.path[level]) for chunk in chunks):
        locked = "it comes from a variable together with other words"
    via = chunks[0].path[0].word
    return ShellScalar(
        span,
        UNKNOWN if known is None else known,
        plain=known is not None,
        via=via if level > 0 else None,
        locked=locked,
        quote=quote,
        splits=level > 0 and any(chunk.splits for chunk in chunks),
        forbidden=steps[0].container.forbidden,
        style=style,
        asks=field_question(chunks),
        may_differ=any(chunk.proposed for chunk in chunks),
    )


def _place_of(text: str, steps: Sequence[Expansion], key: Expansion | None) -> tuple[Span, str]:
    """Where to write a value that is read from ``steps``, and the quote that it stands in there.
    ``key`` is what stands right before it in the same word: ``key=`` of an override."""
    word = Span(min(step.word.start for step in steps), max(step.word.end for step in steps))
    inner = Span(min(step.span.start for step in steps), max(step.span.end for step in steps))
    if key is None or key.container is not steps[0].container:
        return word, steps[0].quote if word.start == inner.start else ""
    if key.quote and text[key.span.end : key.span.end + 1] != key.quote:
        return Span(key.span.end, inner.end), key.quote
    return Span(key.span.end, word.end), ""


def _before_character(field: Field, start: int, level: int) -> Expansion | None:
    """The place of the character before ``start``, as seen at ``level`` of its way."""
    cursor = 0
    for chunk in field:
        length = len(chunk.text or "")
        if cursor < start <= cursor + length:
            part = chunk.part(0, start - cursor)
            return part.path[level] if level < len(part.path) else None
        cursor += length
    return None


def common_level(chunks: Sequence[Chunk]) -> int:
    """Index of the innermost step whose container all chunks share."""
    level = 0
    shortest = min(len(chunk.path) for chunk in chunks)
    for depth in range(shortest):
        first = chunks[0].path[depth].container
        if any(chunk.path[depth].container is not first for chunk in chunks):
            break
        level = depth
    return level


def _sets_variable(word: Word, *, wrapped: bool) -> bool:
    """Whether a word before the program is ``A=1``: behind ``env``, or out of a variable whose
    text a shell reads anew (``eval``, ``bash -c "$LAUNCHER $ARGS"``)."""
    expanded = len(word.chunks[0].path) > 1
    return (wrapped or expanded) and bool(_ASSIGNMENT.match(_known_prefix(word.chunks)))


def _known_prefix(field: Field) -> str:
    pieces: list[str] = []
    for chunk in field:
        if chunk.text is None:
            break
        pieces.append(chunk.text)
    return "".join(pieces)


def _may_be_many(word: Word) -> bool:
    """Whether nobody knows how many words this one stands for (``$ARGS``, ``"$@"``); below a folder
    stands one thing (``$STORE/models``)."""
    first, *others = word.chunks
    is_folder = bool(others) and (others[0].text or "").startswith("/")
    return first.text is None and not is_folder and any(chunk.many for chunk in word.chunks)


def _last_word_end(words: Sequence[Word], container: Container, span: Span) -> int:
    ends = [
        chunk.path[0].word.end
        for word in words
        for chunk in word.chunks
        if chunk.path[0].container is container
    ]
    return max(ends, default=span.end)


def _mapping(
    entries: Sequence[ShellEntry],
    span: Span,
    style: str,
    container: Container,
    words_end: int,
    open_ended: bool,
) -> ShellMapping:
    wins, lost = last_wins(entries)
    return ShellMapping(
        span, wins, lost, None, open_ended,
        style=style, container=container, words_end=words_end,
    )  # fmt: skip
