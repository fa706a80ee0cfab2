"""What is wrong with JSON that a user hands to oomlint: every error, where it stands, what belongs there.

It is asked once something is known to be wrong, so that a file that is right costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from oomlint.documents.base import Mapping, Node, Sequence
from oomlint.documents.json import JsonDocument, parse_json
from oomlint.documents.text import Source
from oomlint.errors import FileError
from oomlint_schemas import load

if TYPE_CHECKING:
    from jsonschema import ValidationError

_TYPES = {
    "array": "a list",
    "boolean": "true or false",
    "integer": "a whole number",
    "null": "null",
    "number": "a number",
    "object": "an object",
    "string": "a text",
}


class Problem(Struct, frozen=True):
    """One thing wrong at a 1-based line and column; ``path`` leads to it, ``""`` is the file."""

    line: int
    column: int
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def problems(name: str, data: bytes) -> list[Problem]:
    """Where the JSON in a file departs from the schema ``name``, in the order of the file; none where
    it holds no JSON, of which its parser says more."""
    try:
        document = parse_json(Source.from_bytes(name, data))
    except FileError:
        return []
    if document.relaxed_at is not None:
        return []
    found = {
        _problem(document, path, message)
        for path, message in faults(load(name), _plain(document.root))
    }
    return sorted(found, key=lambda problem: (problem.line, problem.column, problem.message))


def faults(schema: dict[str, Any], value: Any) -> Iterator[tuple[list[str | int], str]]:
    """Where a value departs from a schema: the path there, and what is wrong."""
    from jsonschema import Draft202012Validator as Draft
    from jsonschema.validators import extend

    # To JSON Schema 3.0 is a whole number; to what reads the values it is none.
    types = Draft.TYPE_CHECKER.redefine("integer", lambda _, each: type(each) is int)
    reader = extend(Draft, type_checker=types)  # type: ignore[no-untyped-call]
    for error in reader(schema).iter_errors(value):
        yield from _faults(error)


def _plain(node: Node) -> Any:
    if isinstance(node, Mapping):
        return {key: _plain(entry.value) for key, entry in node.entries.items()}
    if isinstance(node, Sequence):
        return [_plain(item) for item in node.items]
    return node.value


def _faults(error: ValidationError) -> Iterator[tuple[list[str | int], str]]:
    error = _innermost(error)
    path, value, wanted = (
        list(error.absolute_path),
        _any(error.instance),
        _any(error.validator_value),
    )
    if error.validator == "additionalProperties":
        known = list(_any(error.schema)["properties"])
        for key in value:
            if key not in known:
                yield [*path, key], f"unknown key; {_hint(key, known)}"
        return
    if error.validator == "required":
        missing = [key for key in wanted if key not in value]
        yield path, f"lacks {', '.join(missing)}"
        return
    yield path, _expected(error)


def _any(value: Any) -> Any:
    """What jsonschema types as possibly unset; of an error it is always set."""
    return value


def _innermost(error: ValidationError) -> ValidationError:
    """Of alternatives the one that the value comes nearest to: what is inside an object that
    may be left out, say."""
    while error.context:
        error = max(error.context, key=lambda inner: len(inner.absolute_path))
    return error


def _expected(error: ValidationError) -> str:
    found = "an object" if isinstance(error.instance, dict) else _shown(error.instance)
    siblings: Iterable[ValidationError] = error.parent.context if error.parent else (error,)
    wanted, words = [], []
    for each in siblings:
        if each.absolute_path != error.absolute_path:
            continue
        if each.validator == "type":
            kinds = _any(each.validator_value)
            wanted += [_TYPES[kind] for kind in ([kinds] if isinstance(kinds, str) else kinds)]
        elif each.validator == "enum":
            words += [w if isinstance(w, str) else _shown(w) for w in _any(each.validator_value)]
    if words:
        wanted.insert(0, ("one of " if len(words) > 1 else "") + ", ".join(words))
    if not wanted:
        return error.message
    nearest = _nearest(str(error.instance), words)
    said = f"should be {' or '.join(wanted)}, not {found}"
    return f"{said}; did you mean {nearest}?" if nearest else said


def _shown(value: Any) -> str:
    import json

    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def _hint(key: str, known: list[str]) -> str:
    nearest = _nearest(key, known)
    return f"did you mean {nearest}?" if nearest else f"known here: {', '.join(sorted(known))}"


def _nearest(word: str, known: list[str]) -> str | None:
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, known, n=1, cutoff=0.6)), None)


def _problem(document: JsonDocument, path: list[str | int], message: str) -> Problem:
    node, start = document.root, document.root.span.start
    for step in path:
        if isinstance(node, Mapping) and step in node.entries:
            entry = node.entries[str(step)]
            node, start = entry.value, entry.key_span.start
        elif isinstance(node, Sequence):
            node = node.items[int(step)]
            start = node.span.start
    line, column = document.source.position(start)
    shown = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in path)
    return Problem(line, column, shown.removeprefix("."), message)
