"""Looking for many words at once in text that holds hardly any of them.

A log of a gigabyte is searched for two hundred words. Most of its lines say what others have said, but
for their numbers: each such shape is searched once. In what is left most words share a piece with others
("ut of memory"), and where the piece is missing, none of them needs to be looked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

# Shorter pieces occur everywhere, longer ones are shared by few.
_SHORTEST, _LONGEST = 6, 12
# What tells lines of one shape apart: counts, times, sizes, addresses and hashes.
_NUMBERS = b"0123456789abcdef"
_LINE_ENDS = bytes.maketrans(b"\r", b"\n")
# Of a log that never repeats itself not all shapes are kept, and no long ones: 2 MB at most.
_MOST_SHAPES, _LONGEST_SHAPE = 4096, 512


class Sieve:
    """Says which of a set of words occur in the blocks of logs, one block after another."""

    def __init__(self, words: Iterable[bytes]) -> None:
        self._words = tuple(dict.fromkeys(words))
        self._shapes_of = {word: _shapes(word) for word in self._words}
        self._needles = Needles(shape for shapes in self._shapes_of.values() for shape in shapes)
        self._known: dict[bytes, tuple[bytes, ...]] = {}

    def within(self, data: bytes, start: int, end: int) -> tuple[bytes, ...]:
        """The words that occur in ``data`` between two offsets, in the order in which they came."""
        found = self._found(_shapes(data[start:end]))
        return tuple(
            word
            for word in self._words
            if found.issuperset(self._shapes_of[word]) and data.find(word, start, end) >= 0
        )

    def _found(self, shapes: frozenset[bytes]) -> frozenset[bytes]:
        """The shapes of words that occur in shapes of lines."""
        news = shapes.difference(self._known)
        joined = b"\n".join(news)
        of_news = tuple(self._needles.within(joined, 0, len(joined)))
        seen = frozenset(w for shape in shapes - news for w in self._known[shape])
        if len(self._known) + len(news) > _MOST_SHAPES:
            self._known.clear()
        if len(news) <= _MOST_SHAPES:
            for shape in news:
                if len(shape) <= _LONGEST_SHAPE:
                    self._known[shape] = tuple(word for word in of_news if word in shape)
        return seen.union(of_news)


def _shapes(data: bytes) -> frozenset[bytes]:
    return frozenset(data.translate(_LINE_ENDS, _NUMBERS).split(b"\n"))


class Needles:
    """A set of words; says which of them occur."""

    def __init__(self, words: Iterable[bytes]) -> None:
        self._groups = tuple(_grouped(dict.fromkeys(words)))

    def within(self, data: bytes, start: int, end: int) -> Iterator[bytes]:
        """The words that occur in ``data`` between two offsets."""
        for piece, words in self._groups:
            if data.find(piece, start, end) >= 0:
                for word in words:
                    if word == piece or data.find(word, start, end) >= 0:
                        yield word


def _grouped(words: Iterable[bytes]) -> Iterator[tuple[bytes, tuple[bytes, ...]]]:
    """Words by a piece that they share, the pieces that most share first."""
    left = set(words)
    pieces = {word: _pieces(word) for word in left}
    while left:
        shared = Counter(piece for word in left for piece in pieces[word])
        piece, _ = max(shared.items(), key=lambda item: (item[1], len(item[0]), item[0]))
        members = tuple(sorted(word for word in left if piece in pieces[word]))
        yield piece, members
        left.difference_update(members)


def _pieces(word: bytes) -> frozenset[bytes]:
    if len(word) <= _SHORTEST:
        return frozenset((word,))
    return frozenset(
        word[start : start + length]
        for length in range(_SHORTEST, min(_LONGEST, len(word)) + 1)
        for start in range(len(word) - length + 1)
    )
