"""Variables of a shell script: those that it finds, and those that single words set."""

from __future__ import annotations

import re

from msgspec.structs import replace

from oomlint.documents.shell.machine import SCHEDULER_VARIABLES
from oomlint.documents.shell.words import (
    Chunk,
    Container,
    Expansion,
    Field,
    Variable,
    field_text,
    from_character,
)
from oomlint.documents.text import Source, Span

# A line that is an assignment but for the sign of a comment before it, of a value that is plain.
_PROPOSAL = re.compile(
    r"""^[ \t]*\#+[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)=("[^"\n$`\\]+"|'[^'\n]+'|[^\s#$`;&|()"'\\<>]+)[ \t]*$""",
    re.MULTILINE | re.ASCII,
)
_ENV_WORD = re.compile(r"([A-Za-z_]\w*)=", re.ASCII)


UNSET = Variable("", Span(0, 0), Span(0, 0))
GIVEN_NAMES = frozenset({"PWD", "HOME", "0", "#", "BASH_SOURCE", *SCHEDULER_VARIABLES})


def given_bindings(source: Source) -> dict[str, Variable]:
    """What every script finds: it is started without arguments, where it lies or in a folder
    that nobody knows, from which its paths lead on all the same. Slurm gives a job its size."""
    nowhere = Span(0, 0)

    def held(text: str | None, asks: str = "") -> tuple[Chunk, ...]:
        box = Container("value", nowhere, shared=True)
        return (Chunk(text, (Expansion(box, nowhere, nowhere),), asks=asks),)

    texts = {"PWD": ".", "HOME": "~", "0": source.path, "#": "0"}
    bindings = {name: Variable(name, nowhere, nowhere, held(t)) for name, t in texts.items()}
    itself = held(source.path)
    bindings["BASH_SOURCE"] = Variable("BASH_SOURCE", nowhere, nowhere, fields=(itself,))
    if "#SBATCH" in source.text:
        for name, asks in SCHEDULER_VARIABLES.items():
            bindings[name] = Variable(name, nowhere, nowhere, held(None, asks))
    for name, text in _proposals(source.text).items():
        chunks = tuple(replace(chunk, proposed=True) for chunk in held(text))
        bindings.setdefault(name, Variable(name, nowhere, nowhere, chunks))
    return bindings


def _proposals(text: str) -> dict[str, str]:
    """What comments propose to set variables to that the script reads and nowhere sets, the first of
    several: ``# MODEL_VERSION="vicuna-v1-3-7b"`` (LLaVA c121f04 scripts/finetune.sh, which asks to
    uncomment one). Of one that has a default, or that is asked whether it is set, a comment tells no
    more than that it may be."""
    found: dict[str, str] = {}
    for match in _PROPOSAL.finditer(text) if "#" in text else ():
        name = match[1]
        if name in found or name not in text[: match.start()] + text[match.end() :]:
            continue
        lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
        code = "\n".join(lines)
        reads = re.search(rf"\$(?:{name}\b|\{{{name}\}})", code)
        is_set = re.search(rf"(?<![\w$-]){name}\+?=|\b(?:read|for|unset)\b[^\n]*\b{name}\b", code)
        is_asked = re.search(rf"\$\{{{name}(?::?[-+?=])|-[zn]\s+\"?\$\{{?{name}\b", code)
        if reads and not is_set and not is_asked:
            found[name] = match[2].strip("\"'")
    return found


def retold(chunks: Field | None, step: Expansion) -> Field | None:
    """A value of another file as one that stands at ``step``."""
    text = None if chunks is None else field_text(chunks)
    return None if text is None else (Chunk(text, (step,)),)


def behind_option(words: Field) -> Field:
    """What stands behind ``--wrap=``, or the whole word."""
    option = re.match(r"--[\w-]+=", words[0].text or "")
    return from_character(words, option.end()) if option else words


def assignment_word(words: Field) -> Variable | None:
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
    return Variable(match.group(1), key, step.word, value)
