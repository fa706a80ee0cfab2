"""How long the samples of public data sets are, in tokens.

A catalogue of facts: each line of ``data/lengths.jsonl`` is a set under the names that configs call it by,
with the mean of its samples, how far they scatter, the longest and how many there are, where that is
published and when. Samples are whole, prompt and answer, and tokens those of Qwen's tokenizers. Most are of
ms-swift's tables, of those sets whose samples are text, and one of pictures of formulas with the tokens of a picture.
"""

from __future__ import annotations

import os
import re
from functools import cache
from math import log, sqrt
from typing import Literal

from msgspec import Struct
from msgspec.json import decode

# Tokens of a chat template around a sample: the shortest of most of ms-swift's sets has so many.
TEMPLATE = 26
# Below so many words a vocabulary is one like Llama 2's (32,000), which takes more tokens for the same text than
# Qwen's (152,000): of English as many more as Llama 3's (128,000) takes less, 3.94 to 3.17 characters a token
# (arXiv 2407.21783, section 3.2); of other languages nobody says.
_SMALL_VOCABULARY = 64_000
_MORE_TOKENS = 3.94 / 3.17
_FILE_ENDING = re.compile(r"\.(?:jsonl?|parquet|csv)$")
# `alpaca-gpt4-data-zh` is one set, `math` and `train-data` are many.
_TELLING = 2


def is_small(vocabulary: int) -> bool:
    return vocabulary < _SMALL_VOCABULARY


class Lengths(Struct, frozen=True):
    """The lengths of a data set's samples, in tokens."""

    names: tuple[str, ...]
    mean: float
    deviation: float
    longest: int
    samples: int
    language: Literal["en", "zh"]
    """Of which most of the text is; ``zh`` also where some of it is not English."""
    source: str
    date: str
    by_vocabulary: bool = False
    """Whether the vocabulary that it is read with was thought of already."""
    pictured: bool = False
    """Whether a sample has a picture, whose tokens are counted with it."""

    def longest_in(self, vocabulary: int) -> int | None:
        """Tokens of the longest sample in a vocabulary of so many words; ``None`` where it is not known how
        many the language takes."""
        if self.by_vocabulary or not is_small(vocabulary):
            return self.longest
        return round(self.longest * _MORE_TOKENS) if self.language == "en" else None

    @property
    def reached(self) -> float:
        """About the longest of them, one that is an outlier by far left out: the largest of so many values
        that scatter normally (Cramer 1946, section 28.6)."""
        tail = self.mean + self.deviation * sqrt(2 * log(max(2, self.samples)))
        return min(float(self.longest), tail)


@cache
def catalogue() -> tuple[Lengths, ...]:
    """Every data set that is known."""
    path = os.path.join(os.path.dirname(__file__), "data", "lengths.jsonl")
    with open(path, "rb") as file:
        return tuple(decode(line, type=Lengths) for line in file)


@cache
def texts() -> tuple[Lengths, ...]:
    """Those that are known of text alone, which others may be like."""
    return tuple(each for each in catalogue() if not each.pictured)


@cache
def _by_name() -> dict[str, Lengths]:
    return {name: each for each in catalogue() for name in each.names}


@cache
def _by_stem() -> dict[str, Lengths | None]:
    """By what is left of a name without its owner; ``None`` of what several sets are called."""
    found: dict[str, Lengths | None] = {}
    for each in catalogue():
        for stem in set(map(_stem_of, each.names)):
            found[stem] = None if stem in found else each
    return found


def _stem_of(name: str) -> str:
    """``alpaca-gpt4-data-zh`` of ``llm-wizard/alpaca-gpt4-data-zh`` and ``data/alpaca_gpt4_data_zh.json``."""
    stem = name.lower().rpartition("/")[2]
    return _FILE_ENDING.sub("", stem).replace("_", "-")


def find(name: str) -> Lengths | None:
    """The lengths of the set of a name, however its letters are cased, and whoever holds a copy of it under a
    name of several words; ``None`` of one that is unknown."""
    exact = _by_name().get(name.lower())
    if exact is not None:
        return exact
    stem = _stem_of(name)
    return _by_stem().get(stem) if stem.count("-") >= _TELLING else None
