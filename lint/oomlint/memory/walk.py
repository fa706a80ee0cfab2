"""Where in a stack of layers backward can be highest: found once a model, whatever the batch.

Backward walks the stack from the top. What is alive at a layer adds up from the gradients of the
layers above, the activations of those below, and windows around it. The first two change by the
same amounts from layer to layer of a repeating pattern, so that of all layers that meet the same
windows only the first and the last can be the highest.
"""

from __future__ import annotations

from functools import lru_cache
from operator import attrgetter

from msgspec import Struct

from oomlint.memory.layers import LayerProfile
from oomlint.memory.parameters import DecoderBlock


class LayerGroup(Struct, frozen=True):
    """Equal layers that follow one another: how many, their profile, and their unit's elements."""

    block: DecoderBlock
    layers: float
    profile: LayerProfile
    size: float = 0.0


class Stop(Struct, frozen=True):
    """One layer of the stack.

    ``number`` is its own among the equal ``layers`` around it, from the top; ``top`` says that it
    is the highest of all. ``trained`` and ``sizes`` are the trained elements and the units'
    elements of the layers above, ``above`` how many layers of each kind they are. ``next_size`` is
    the unit of the group below, ``None`` below the last.
    """

    kind: int
    size: float
    layers: float
    number: float
    top: bool
    trained: float
    sizes: float
    above: tuple[float, ...]
    next_size: float | None

    @property
    def is_last(self) -> bool:
        """Whether the layer below is of another group."""
        return self.number == self.layers - 1


class Walk(Struct, frozen=True):
    """The kinds of layers from the bottom up, how many of each, and the stops from the top down."""

    kinds: tuple[LayerProfile, ...]
    totals: tuple[float, ...]
    order: tuple[int, ...]
    stops: tuple[Stop, ...]
    trained: float
    sizes: float


_WINDOWS = attrgetter("size", "top", "next_size")


@lru_cache(maxsize=256)
def walk(groups: tuple[LayerGroup, ...], *, windows: bool) -> Walk:
    """The walk down ``groups``, which come from the bottom up; found once for all plans that have the same.

    With ``windows`` the first layer of a group, its last one and the topmost of all meet windows
    of their own.
    """
    kinds: dict[LayerProfile, int] = {}
    order = tuple(kinds.setdefault(g.profile, len(kinds)) for g in groups)
    totals = [0.0] * len(kinds)
    for group, kind in zip(groups, order, strict=True):
        totals[kind] += group.layers
    above = [0.0] * len(kinds)
    trained = sizes = 0.0
    stops: dict[tuple[object, ...], list[Stop]] = {}
    below = [None, *[g.size for g in groups[:-1]]]
    top = True
    for group, kind, next_size in zip(
        reversed(groups), reversed(order), reversed(below), strict=True
    ):
        for index in _telling(group.layers, windows, top):
            passed = (*above[:kind], above[kind] + index, *above[kind + 1 :])
            stop = Stop(
                kind, group.size, group.layers, index, top and index == 0,
                trained + group.profile.trained * index, sizes + group.size * index,
                passed, next_size if index == group.layers - 1 else group.size,
            )  # fmt: skip
            # One place in the pattern: what is met there is the same each time, and the places
            # of a repeating pattern lie on one line.
            met = (kind, group.layers, index, *(_WINDOWS(stop) if windows else ()))
            stops.setdefault(met, []).append(stop)
        top = False
        above[kind] += group.layers
        trained += group.profile.trained * group.layers
        sizes += group.size * group.layers
    telling = [stop for alike in stops.values() for stop in _outermost(alike)]
    telling.sort(key=lambda stop: sum(stop.above))
    return Walk(tuple(kinds), tuple(totals), order, tuple(telling), trained, sizes)


@lru_cache(maxsize=1024)
def _telling(count: float, windows: bool, top: bool) -> tuple[float, ...]:
    """The numbers, from the top, of those of ``count`` equal layers that can be the highest."""
    chosen = {0.0, count - 1}
    if windows:
        chosen |= {count - 2} | ({1.0} if top else set())
    return tuple(sorted(index for index in chosen if 0 <= index <= max(0.0, count - 1)))


def _outermost(alike: list[Stop]) -> list[Stop]:
    """The ends of stops that lie on one line; all of them where they do not."""
    if len(alike) <= 2:
        return alike
    first, last = _position(alike[0]), _position(alike[-1])
    length = sum(last) - sum(first)
    for stop in alike[1:-1]:
        here = _position(stop)
        share = (sum(here) - sum(first)) / length if length else 0.0
        for at, low, high in zip(here, first, last, strict=True):
            if abs(at - low - share * (high - low)) > 1e-6 * max(1.0, abs(high)):
                return alike
    return [alike[0], alike[-1]]


def _position(stop: Stop) -> tuple[float, ...]:
    return (stop.trained, stop.sizes, *stop.above)
