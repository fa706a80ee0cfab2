"""Whether two names are one name, written otherwise: a slip, another spelling, a word cut short."""

from __future__ import annotations

import re

# A word needs so many letters for one of them to be a slip, or two: NET and NVL are two words, and so are
# comment and comet; of four letters one may be missing, but another one makes GPUS of CPUS.
_ONE_MISSING_FROM, _ONE_SLIP_FROM, _TWO_SLIPS_FROM = 4, 5, 9
# The fewest letters of a word that is cut short: len, seq.
_SHORTEST_CUT = 3


def is_misspelling(written: str, name: str) -> bool:
    """Whether ``written`` is ``name`` but for its spelling: joined or apart, in other case, cut short or written
    out, a letter off, or its words in another order. A word more or less makes another name."""
    first, second = _words(written), _words(name)
    if "".join(first) == "".join(second) or sorted(first) == sorted(second):
        return True
    return len(first) == len(second) and all(map(_are_alike, first, second))


def _words(name: str) -> list[str]:
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return [word.lower() for word in re.split(r"[^A-Za-z0-9]+", apart) if word]


def _are_alike(first: str, second: str) -> bool:
    if first == second:
        return True
    if any(map(str.isdigit, first + second)):
        return False
    short, long = sorted((first, second), key=len)
    if len(short) >= _SHORTEST_CUT and long.startswith(short):
        return True
    if len(short) >= _TWO_SLIPS_FROM:
        return distance(first, second, 2) <= 2
    least = _ONE_SLIP_FROM if len(short) == len(long) else _ONE_MISSING_FROM
    return len(short) >= least and distance(first, second, 1) <= 1


def distance(first: str, second: str, most: int) -> int:
    """Letters to add, drop, change or swap (Damerau-Levenshtein); ``most + 1`` if more."""
    before: list[int] = []
    row = list(range(len(second) + 1))
    for i, a in enumerate(first, 1):
        following = [i]
        for j, b in enumerate(second, 1):
            cost = min(row[j] + 1, following[-1] + 1, row[j - 1] + (a != b))
            if i > 1 and j > 1 and a == second[j - 2] and first[i - 2] == b:
                cost = min(cost, before[j - 2] + 1)
            following.append(cost)
        if min(following) > most:
            return most + 1
        before, row = row, following
    return row[-1]
