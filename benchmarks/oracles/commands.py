"""The words of a command that starts a run, as its program would find them in ``sys.argv``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

from oomlint.dialects.machine.launch import Launch
from oomlint.dialects.machine.launches import launches
from oomlint.documents.base import Document, Entry, Node, Scalar, Sequence
from oomlint.runs.run import Run


def command_of(run: Run) -> dict[str, Any]:
    """``program`` and its ``argv`` of the line that starts a run, ``launcher`` and its
    ``launcher_argv``; nothing for a run that no line starts."""
    spans = {block.mapping.span for block, _ in run.parts.blocks}
    for claim in run.claims:
        for launch in launches(claim.document):
            if launch.flags.span in spans:
                return _taken_apart(claim.document, launch)
    return {}


def _taken_apart(document: Document, launch: Launch) -> dict[str, Any]:
    scene = launch.blocks[-1].mapping.entries.values() if launch.blocks else ()
    return {
        "program": launch.name,
        "argv": [
            *(str(word.value) for word in launch.arguments),
            *_words(document, launch.flags.entries.values(), "--{key}"),
            *_words(document, launch.command.assignments.entries.values(), "{key}="),
        ],
        "launcher": launch.launcher.name,
        "launcher_argv": [*_words(document, scene, "--{key}")],
    }


def _words(document: Document, entries: Any, spelling: str) -> Iterator[str]:
    """An option as it stands there; one that holds a variable with the value that we read."""
    for entry in entries:
        text = document.source.text[entry.span.start : entry.span.end]
        words = _literal(text)
        if words is not None:
            yield from words
            continue
        values = _values(entry)
        key = spelling.format(key=entry.key)
        if values is None:
            continue  # only the shell knows it; what we read of it is unknown too
        if key.endswith("="):
            yield key + values[0]
        else:
            yield from (key, *values)


def _literal(text: str) -> list[str] | None:
    """The words of a text, ``None`` where more than quotes makes them."""
    if re.search(r"[$`\\]", text):
        return None
    try:
        return shlex.split(text)
    except ValueError:
        return None  # a quote around several words ends elsewhere


def _values(entry: Entry) -> list[str] | None:
    node: Node = entry.value
    items = node.items if isinstance(node, Sequence) else (node,)
    values = [item.value for item in items if isinstance(item, Scalar)]
    if values == [True]:
        return []
    if len(values) < len(items) or not all(isinstance(v, (str, int, float)) for v in values):
        return None
    return [str(value).replace("~/", "/root/") for value in values]
