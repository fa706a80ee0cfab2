"""Parser events of a YAML text, and what a person reads where it cannot be parsed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NoReturn

from oomlint.documents.text import Source
from oomlint.errors import ParseError

MAX_DEPTH: Final = 100
_TEMPLATE_FILE: Final = r"\{\{|\{%"


def read_events(source: Source) -> list[Any]:
    from ruamel.yaml.error import YAMLError

    problems: list[ParseError] = []
    for events in (_fast_events, _thorough_events):
        try:
            return _bounded(source, events(source.text))
        except (YAMLError, RecursionError, ValueError, IndexError) as error:
            problems.append(_as_parse_error(source, error))
    raise problems[0]


def _bounded(source: Source, events: Iterable[Any]) -> list[Any]:
    collected: list[Any] = []
    depth = 0
    for event in events:
        collected.append(event)
        kind = type(event).__name__
        if kind in COLLECTION_STARTS:
            depth += 1
            if depth > MAX_DEPTH:
                fail(source, event.start_mark.index, f"nested more than {MAX_DEPTH} levels deep")
        elif kind in COLLECTION_ENDS:
            depth -= 1
    return collected


COLLECTION_STARTS: Final = frozenset({"MappingStartEvent", "SequenceStartEvent"})
COLLECTION_ENDS: Final = frozenset({"MappingEndEvent", "SequenceEndEvent"})


def _fast_events(text: str) -> Iterator[Any]:
    try:
        from ruamel.yaml.cyaml import CParser  # type: ignore[attr-defined, unused-ignore]
    except ImportError:
        yield from _thorough_events(text)
        return
    parser = CParser(text)
    while parser.check_event():
        yield parser.get_event()


def _thorough_events(text: str) -> Iterator[Any]:
    """libyaml refuses `[H100:8]`, which PyYAML and ruamel.yaml read as one word."""
    from ruamel.yaml import YAML

    yield from YAML(typ="safe", pure=True).parse(text)


_PLAIN_WORDS: Final = {
    "found character that cannot start any token": "a character that cannot stand here",
    "mapping values are not allowed in this context": "a colon that makes no sense here; check the indentation, or quote the value",
    "did not find expected key": "a key is expected here; check the indentation and the quotes",
    "did not find expected '-' indicator": "a list item (-) is expected here; check the indentation",
    "did not find expected node content": "a value is missing here",
    "could not find expected ':'": "a colon is missing after the key",
    "found unexpected end of stream": "the file ends inside a quoted text",
}


def _as_parse_error(source: Source, error: Exception) -> ParseError:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    position = getattr(error, "position", None)
    line = column = None
    if mark is not None:
        line, column = mark.line + 1, mark.column + 1
    elif isinstance(position, int):
        bad = getattr(error, "character", None)
        found = source.text.find(chr(bad)) if isinstance(bad, int) else -1
        line, column = source.position(found if found >= 0 else min(position, len(source.text)))
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    sentence = _PLAIN_WORDS.get(problem, problem)
    if mark is not None and source.text[mark.index : mark.index + 1] == "\t":
        sentence = "a tab where YAML allows only spaces"
    if re.search(_TEMPLATE_FILE, source.text):
        message = f"a template, not finished YAML ({sentence}); check the rendered file instead"
    else:
        message = f"not valid YAML: {sentence}"
    return ParseError(source.path, message, line=line, column=column)


def fail(source: Source, offset: int, message: str) -> NoReturn:
    line, column = source.position(min(offset, len(source.text)))
    raise ParseError(source.path, message, line=line, column=column)
