"""The walk down a stack: its stops are enough, whatever layers keep and whatever is asked."""

from __future__ import annotations

from itertools import groupby, product

import pytest

from oomlint.memory import skeleton
from oomlint.memory.layers import Regime, layer_profile
from oomlint.memory.walk import LayerGroup, walk
from oomlint.plan.model import ModelDims

PATTERNS = {
    "one kind": "a" * 32,
    "windows": "aaaaab" * 8,
    "a last window": ("aaaaab" * 6)[:-2],
    "irregular": "ababacababacababcabab",
}


def groups_of(pattern: str) -> tuple[LayerGroup, ...]:
    """A block, hence a profile, for every letter and length, as in a skeleton."""
    made = {}
    groups = []
    for letter, members in groupby(pattern):
        key = (letter, len(list(members)))
        if key not in made:
            width = 1024 * (1 + ord(letter) - ord("a"))
            model = skeleton(
                ModelDims(layers=key[1], hidden=512, heads=8, ffn=width, vocab=1000, norm="rms")
            )
            assert model is not None
            block = model.blocks[0]
            made[key] = LayerGroup(
                block, key[1], layer_profile(model, block, Regime()), block.numel
            )
        groups.append(made[key])
    return tuple(groups)


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_no_layer_is_higher_than_the_stops(pattern: str) -> None:
    groups = groups_of(pattern)
    found = walk(groups, windows=True)
    layers = [
        (kind, number, group)
        for group, kind in zip(reversed(groups), reversed(found.order), strict=True)
        for number in range(int(group.layers))
    ]
    for kept, grads in product(
        ([3.0, 7.0, 2.0, 5.0, 1.0, 4.0], [1.0, 0.5, 9.0, 2.0, 3.0, 1.0]), (0.0, 1e-6, 1e-4)
    ):
        alive = dict.fromkeys(set(found.order), -1e30)
        below, made = 0.0, 0.0
        for kind, _, group in layers:
            alive[kind] = max(alive[kind], made * grads - below)
            below += kept[kind]
            made += group.profile.trained
        seen = dict.fromkeys(set(found.order), -1e30)
        for stop in found.stops:
            here = stop.trained * grads - sum(n * kept[k] for k, n in enumerate(stop.above))
            seen[stop.kind] = max(seen[stop.kind], here)
        assert seen == pytest.approx(alive)


def test_a_repeating_pattern_has_few_stops() -> None:
    short, long = (walk(groups_of("aaab" * n), windows=False) for n in (4, 40))
    assert len(short.stops) == len(long.stops) <= 8
    assert long.totals == (120, 40)
    assert long.trained == pytest.approx(10 * short.trained)


def test_a_walk_is_found_once_for_all_plans_with_the_same_layers() -> None:
    groups = groups_of("aaab" * 4)
    assert walk(groups, windows=True) is walk((*groups,), windows=True)
    assert walk(groups, windows=True) is not walk(groups, windows=False)
