"""How long the samples of public data sets are, in tokens.

A catalogue of facts: each line of ``data/lengths.jsonl`` is a set under the names that configs call it by,
with the mean of its samples, how far they scatter, the longest and how many there are, where that is
published and when. Tokens are those of Qwen's tokenizers; ``part`` says what was counted, whole samples or
prompts alone.
"""

from __future__ import annotations

import os
from functools import cache
from math import log, sqrt
from typing import Literal

from msgspec import Struct
from msgspec.json import decode


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
    part: Literal["sample", "prompt"] = "sample"

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
def of_texts() -> tuple[Lengths, ...]:
    """Those whose whole samples were counted, where they differ in length."""
    return tuple(each for each in catalogue() if each.part == "sample" and each.deviation > 0)


@cache
def _by_name() -> dict[str, Lengths]:
    return {name: each for each in catalogue() for name in each.names}


def find(name: str) -> Lengths | None:
    """The lengths of the set of a name, however its letters are cased; ``None`` of one that is unknown."""
    return _by_name().get(name.lower())
