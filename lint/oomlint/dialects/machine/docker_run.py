"""``docker run`` in scripts: its options around a command, and what it starts in its container.

What follows the image is the command that runs inside (docker's CLI reference 27).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

from msgspec import Struct

from oomlint.dialects.base import Reference
from oomlint.dialects.block import Block
from oomlint.dialects.machine.containers import env_file
from oomlint.dialects.machine.containers_keys import DOCKER_RUN
from oomlint.dialects.machine.enclosing import Enclosing
from oomlint.documents.base import (
    UNKNOWN,
    Command,
    Document,
    Entry,
    HeldCode,
    Mapping,
    Node,
    Scalar,
)
from oomlint.documents.text import Source, Span

_RUNTIMES = frozenset({"docker", "nerdctl"})

# Options of `docker run` without a value (docker's CLI reference).
_BARE = frozenset(
    {
        "d", "detach", "i", "interactive", "t", "tty", "rm", "init", "privileged", "P",
        "publish-all", "no-healthcheck", "oom-kill-disable", "read-only", "sig-proxy", "q",
        "quiet", "disable-content-trust", "help", "use-api-socket",
    }
)  # fmt: skip
_WORD = re.compile(r"""(?:[^\s\\'"]|\\[^\r\n]|'[^']*'|"(?:[^"\\]|\\[\s\S])*")+""")
_PLAIN_VALUE = re.compile(r"[\w=:,.+\-/~@]+", re.ASCII)
_OPTION = re.compile(r"(--?)([A-Za-z][\w-]*)(=)?")


def is_docker_run(command: Command) -> bool:
    names = [str(word.value).rpartition("/")[2] for word in command.words[:3]]
    names = names[1:] if names[:1] == ["sudo"] else names
    return len(names) > 1 and names[0] in _RUNTIMES and "run" in names[1:3]


def docker_scene(document: Document, command: Command) -> Iterator[Block]:
    """The ``docker run`` around a command, as a block."""
    runs = _runs_of(document)
    for outer in runs.enclosing.around(command.span):
        options = runs.parts[outer.span].options
        if options is not None:
            yield Block(document, options, DOCKER_RUN, options.span)


def docker_environment(document: Document, command: Command) -> Mapping | None:
    """The variables that ``docker run -e NAME=value`` gives to what it starts."""
    for block in docker_scene(document, command):
        options = block.mapping
        given: dict[str, Entry] = {}
        for entry in (*options.duplicates, *options.entries.values()):
            text = str(entry.value.value) if isinstance(entry.value, Scalar) else ""
            name, equals, value = text.partition("=")
            if entry.key in ("e", "env") and equals:
                scalar = Scalar(entry.value.span, value, locked="it stands in a text with its name")
                given[name] = Entry(name, entry.value.span, scalar, entry.span)
        if given:
            return Mapping(options.span, given)
    return None


def docker_env_files(document: Document, command: Command) -> Iterator[Reference]:
    """The files of variables that ``docker run --env-file`` gives to what it starts."""
    for block in docker_scene(document, command):
        options = block.mapping
        for entry in (*options.duplicates, *options.entries.values()):
            if entry.key == "env-file" and isinstance(entry.value, Scalar):
                yield from env_file(document, entry.value)


def inner_commands(document: Document, command: Command) -> tuple[Command, ...]:
    """What a ``docker run`` starts in its container; spans are those of the same file."""
    return _runs_of(document).started_by(command)


class _Parts(Struct, frozen=True):
    """Of a ``docker run``: its options, and where the command behind its image begins."""

    options: Mapping | None
    start: int | None


class _Runs:
    """Every ``docker run`` of a script."""

    def __init__(self, document: Document) -> None:
        # Of a notebook the code alone: its pictures are long.
        text = (document.code if isinstance(document, HeldCode) else document.source).text
        is_any = any(name in text for name in _RUNTIMES)
        commands = document.commands if is_any else ()
        runs = [command for command in commands if is_docker_run(command)]
        self.enclosing = Enclosing(runs)
        self.parts = {run.span: _taken_apart(document.source, run.span) for run in runs}
        self._source = document.source

    def started_by(self, command: Command) -> tuple[Command, ...]:
        parts = self.parts.get(command.span)
        if parts is None or parts.start is None or not is_docker_run(command):
            return ()
        return self._inner.get(parts.start, ())

    @cached_property
    def _inner(self) -> dict[int, tuple[Command, ...]]:
        """By where they begin: read as if nothing stood before them, but what set variables."""
        from oomlint.documents.shell.document import parse_shell

        pieces, at = [], 0
        for run, parts in sorted(self.parts.items(), key=lambda item: item[0].start):
            if parts.start is not None and run.start >= at:
                pieces += [self._source.text[at : run.start], " " * (parts.start - run.start)]
                at = parts.start
        script = parse_shell(Source(self._source.path, "".join([*pieces, self._source.text[at:]])))
        found: dict[int, tuple[Command, ...]] = {}
        for command in script.commands:
            start = command.span.start
            found[start] = (*found.get(start, ()), command)
        return found


def _runs_of(document: Document) -> _Runs:
    """Kept with the document, as every command of a script asks."""
    kept: dict[str, _Runs] = vars(document)
    if "docker_runs" not in kept:
        kept["docker_runs"] = _Runs(document)
    return kept["docker_runs"]


def _taken_apart(source: Source, span: Span) -> _Parts:
    from oomlint.documents.shell.nodes import ShellEntry, ShellMapping
    from oomlint.documents.shell.words import Container

    words = list(_WORD.finditer(source.text, span.start, span.end))
    at = next((n for n, word in enumerate(words[:4]) if word[0] == "run"), None)
    if at is None:
        return _Parts(None, None)
    box = Container("command", span)
    entries: dict[str, Entry] = {}
    lost: list[Entry] = []
    run_end, number, open_ended = words[at].end(), at + 1, False
    while number < len(words):
        word = words[number]
        option = _OPTION.match(word[0])
        if option is None:
            following = words[number + 1][0] if number + 1 < len(words) else ""
            if word[0].startswith("$") and following.startswith("-"):
                number, open_ended = number + 1, True  # a variable that holds options
                continue
            break
        key, key_span = option[2], Span(word.start(), word.start() + option.end(2))
        bare = key in _BARE or (option[1] == "-" and set(key) <= _BARE)
        place, taken = Span(word.end(), word.end()), 1
        if option[3]:
            place = Span(word.start() + option.end(), word.end())
        elif not bare and number + 1 < len(words):
            value = words[number + 1]
            place, taken = Span(value.start(), value.end()), 2
        if key == "ulimit":  # given once for each limit
            key += "." + source.text[place.start : place.end].strip("\"'").partition("=")[0]
        whole = Span(word.start(), max(word.end(), place.end))
        if key in entries:
            lost.append(entries[key])
        entries[key] = ShellEntry(key, key_span, _value(source.text, place), whole, container=box)
        number += taken
    options = ShellMapping(
        Span(words[at].start(), run_end), entries, tuple(lost), None, open_ended,
        style="flag", container=box, words_end=run_end,
    )  # fmt: skip
    return _Parts(options, words[number + 1].start() if number + 1 < len(words) else None)


def _value(text: str, place: Span) -> Node:
    from oomlint.documents.shell.nodes import ShellScalar

    written = text[place.start : place.end]
    bare = written.strip("\"'")
    if _PLAIN_VALUE.fullmatch(bare):
        quoted = bare != written
        return ShellScalar(place, bare, plain=True, locked="it is in quotes" if quoted else None)
    return ShellScalar(
        place, UNKNOWN if written else True, locked="it is known when the script runs"
    )
