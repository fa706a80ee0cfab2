"""Variables of a shell script: those that it finds, and those that single words set."""

from __future__ import annotations

import re

from msgspec.structs import replace

from oomlint.documents.shell.machine import SCHEDULER_VARIABLES
from oomlint.documents.shell.words import (
    Binding,
    Chunk,
    Container,
    Field,
    Step,
    field_text,
    from_character,
)
from oomlint.documents.text import Source, Span

_ENV_WORD = re.compile(r"([A-Za-z_]\w*)=", re.ASCII)


UNSET = Binding("", Span(0, 0), Span(0, 0))
GIVEN_NAMES = frozenset({"PWD", "HOME", "0", "#", "BASH_SOURCE", *SCHEDULER_VARIABLES})


def given_bindings(source: Source) -> dict[str, Binding]:
    """What every script finds: it is started without arguments, where it lies or in a folder
    that nobody knows, from which its paths lead on all the same. Slurm gives a job its size."""
    nowhere = Span(0, 0)

    def held(text: str | None, asks: str = "") -> tuple[Chunk, ...]:
        box = Container("value", nowhere, shared=True)
        return (Chunk(text, (Step(box, nowhere, nowhere),), asks=asks),)

    texts = {"PWD": ".", "HOME": "~", "0": source.path, "#": "0"}
    bindings = {name: Binding(name, nowhere, nowhere, held(t)) for name, t in texts.items()}
    itself = held(source.path)
    bindings["BASH_SOURCE"] = Binding("BASH_SOURCE", nowhere, nowhere, fields=(itself,))
    if "#SBATCH" in source.text:
        for name, asks in SCHEDULER_VARIABLES.items():
            bindings[name] = Binding(name, nowhere, nowhere, held(None, asks))
    return bindings


def retold(chunks: Field | None, step: Step) -> Field | None:
    """A value of another file as one that stands at ``step``."""
    text = None if chunks is None else field_text(chunks)
    return None if text is None else (Chunk(text, (step,)),)


def behind_option(words: Field) -> Field:
    """What stands behind ``--wrap=``, or the whole word."""
    option = re.match(r"--[\w-]+=", words[0].text or "")
    return from_character(words, option.end()) if option else words


def assignment_word(words: Field) -> Binding | None:
    """The variable that a word ``A=1`` sets, where a program takes such words."""
    match = _ENV_WORD.match(words[0].text or "")
    if match is None:
        return None
    step = words[0].path[-1]
    start = step.span.start + match.end()
    chunks = from_character(words, match.end()) or (words[0].part(match.end(), match.end()),)
    value = tuple(
        replace(
            chunk,
            path=(
                replace(chunk.path[0], word=Span(start, chunk.path[0].word.end)),
                *chunk.path[1:],
            ),
        )
        for chunk in chunks
    )
    key = Span(step.span.start, step.span.start + match.end(1))
    return Binding(match.group(1), key, step.word, value)
