"""Real training steps, request by request, and what torch's allocator makes of them.

``steps/*.json.gz`` were recorded by ``benchmarks/measure/trace.py``, which says what is in them.
"""

from __future__ import annotations

import gzip
import json
import math
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.allocator.caching import Block, CachingAllocator, OutOfMemory, Settings
from msgspec import Struct

FOLDER = Path(__file__).parent / "steps"
# Bytes a token and fixed ones; or the number of the request that is freed.
Event: TypeAlias = "tuple[float, int] | int"
_SMALL = 1 << 20
_NEAR = 2**30 // 10


class Steps(Struct, frozen=True):
    """A recorded run: the model is loaded, the first step makes the optimizer's states, all others are alike."""

    case: Mapping[str, Any]
    load: list[Event]
    first: list[Event]
    next: list[Event]


def recorded(name: str) -> Steps:
    """The steps that were recorded under a name."""
    found = json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))
    return Steps(found["case"], found["load"], found["first"], found["next"])


def names() -> list[str]:
    """Everything that was recorded."""
    return sorted(path.name.removesuffix(".json.gz") for path in FOLDER.glob("*.json.gz"))


class Replay:
    """A run that goes on step by step, each with samples of its own length."""

    def __init__(self, steps: Steps, settings: Settings | None = None) -> None:
        self.steps = steps
        self.allocator = CachingAllocator(settings)
        self._held: dict[int, Block] = {}
        self._numbers = {part: self._first_number(part) for part in ("load", "first", "next")}
        self._play("load", 0)
        self._started = False

    @property
    def stays(self) -> int:
        """Bytes that are allocated between steps."""
        return self.allocator.allocated

    def step(self, length: int) -> None:
        self._play("next" if self._started else "first", length)
        self._started = True

    def _first_number(self, part: str) -> int:
        before = {"load": (), "first": ("load",), "next": ("load", "first")}[part]
        return sum(
            not isinstance(event, int) for name in before for event in getattr(self.steps, name)
        )

    def _play(self, part: str, length: int) -> None:
        number, held, allocator = self._numbers[part], self._held, self.allocator
        for event in getattr(self.steps, part):
            if isinstance(event, int):
                block = held.pop(event, None)
                if block is not None:
                    allocator.free(block)
                continue
            size = int(event[0] * length + event[1])
            # Small requests have a pool of their own.
            if size > _SMALL:
                held[number] = allocator.malloc(size)
            number += 1


def replayed(
    name: str, lengths: Iterable[int], settings: Settings | None = None
) -> tuple[CachingAllocator, int]:
    """The allocator after steps of these lengths, and the bytes that stay between steps."""
    run = Replay(recorded(name), settings)
    for length in lengths:
        run.step(length)
    return run.allocator, run.stays


def survived(name: str, lengths: list[int]) -> float:
    """Bytes that the driver must have for a run to live, to a tenth of a GiB: what it allocates, and the
    segments of which parts are in use when the card is full."""
    free, _ = replayed(name, lengths)
    dies, lives = free.allocated_peak, free.reserved_peak
    while lives - dies > _NEAR:
        middle = (dies + lives) // 2
        try:
            replayed(name, lengths, Settings(limit=middle))
        except OutOfMemory:
            dies = middle
        else:
            lives = middle
    return lives


def drawn(mean: float, deviation: float, limit: int, steps: int, seed: int) -> list[int]:
    """Log-normal lengths of samples that are cut at a limit."""
    scatter = math.sqrt(math.log(1 + (deviation / mean) ** 2))
    middle = math.log(mean) - scatter**2 / 2
    draw = random.Random(seed)
    return [max(16, min(limit, int(draw.lognormvariate(middle, scatter)))) for _ in range(steps)]
