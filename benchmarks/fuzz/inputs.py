"""Inputs by number: what is changed at random, and what is then tried with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from benchmarks.fuzz.mutate import mutated
from benchmarks.fuzz.seeds import Seed, words
from benchmarks.fuzz.targets import Target
from benchmarks.fuzz.trial import attempted, trouble
from msgspec import Struct

HARDWARE = (None, "8xA100-80GB", "2x8xH100-80GB", "T4-16GB")


class Input(Struct, frozen=True):
    """Changed bytes. ``attempt`` says what is wrong with them, or with a smaller version."""

    label: str
    data: bytes
    attempt: Callable[[bytes], str | None]


Subject = Callable[[Random, int], Input]
"""What is fuzzed: makes the input of a number."""


def of_projects(
    every: Sequence[Seed], keys: Sequence[str], *, seconds: float, fix_every: int
) -> Subject:
    """Small projects of which one file is changed; each ``fix_every``-th is fixed too."""

    def subject(random: Random, number: int) -> Input:
        start = random.choice(every)
        name = random.choice(sorted(start.files))
        data = mutated(random, start.files[name], keys)
        hardware = start.hardware or random.choice(HARDWARE)
        fix = number % fix_every == 0

        def attempt(data: bytes) -> str | None:
            return trouble({**start.files, name: data}, hardware, fix=fix, seconds=seconds)

        return Input(f"{start.name}, {name}, {hardware}", data, attempt)

    return subject


def of_target(name: str, target: Target, *, seconds: float) -> Subject:
    """The texts of one reader."""
    every, keys = target.seeds(), words()

    def subject(random: Random, number: int) -> Input:
        data = mutated(random, random.choice(every), keys)
        return Input(name, data, lambda data: attempted(partial(target.run, data), seconds))

    return subject
