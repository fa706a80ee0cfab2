"""The lengths of data that lies in a project, by its characters.

No tokenizer is at hand, so that a sample is rather taken to be longer than it is: the characters of a token are
those of English text under Llama 2, whose vocabulary is small (3.17; Llama 3 has 3.94: "The Llama 3 Herd of
Models", arXiv 2407.21783, section 3.2), each digit is a token of its own (arXiv 2307.09288, section 2.1), and
so is each character beyond ASCII, or each of its bytes where the vocabulary is small.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import sqrt
from typing import Any

import msgspec

from oomlint.datasets import TEMPLATE, Lengths

_CHARACTERS = 3.17
# What a sample has beside its text, and whose tokens its text does not tell.
_BESIDE = frozenset("image images video videos audio audios pixel_values input_ids".split())


def lengths_in(data: bytes, name: str, *, is_small: bool) -> Lengths | None:
    """The lengths of the samples of a JSON or JSON Lines file; ``None`` where it does not hold samples of text.
    ``is_small``: of the vocabulary that they are to be read with."""
    try:
        samples = _samples(data)
        tokens = [
            TEMPLATE + sum(_tokens(text, is_small) for text in _texts(each)) for each in samples
        ]
    except (ValueError, _NotText, RecursionError):
        return None
    if not tokens:
        return None
    mean = sum(tokens) / len(tokens)
    deviation = sqrt(sum((each - mean) ** 2 for each in tokens) / len(tokens))
    return Lengths(
        (name,), mean, deviation, max(tokens), len(tokens), "en", name, "", by_vocabulary=True
    )


class _NotText(Exception):
    """A sample has more than text."""


def _samples(data: bytes) -> list[Any]:
    """The samples of a file: a list of objects, or an object a line."""
    if data.lstrip()[:1] == b"[":
        found = msgspec.json.decode(data)
    else:
        found = [msgspec.json.decode(line) for line in data.splitlines() if line.strip()]
    if not all(isinstance(each, dict) for each in found):
        raise _NotText
    return list(found)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key in _BESIDE and inner:
                raise _NotText
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _tokens(text: str, is_small: bool) -> int:
    digits = len(re.findall(r"[0-9]", text))
    plain = len(re.findall(r"[\x00-\x7f]", text))
    wide = len(text.encode("utf-8", "replace")) - plain if is_small else len(text) - plain
    return round((plain - digits) / _CHARACTERS) + digits + wide
