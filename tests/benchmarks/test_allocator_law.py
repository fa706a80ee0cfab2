"""The law of what torch reserves, against its allocator replayed over recorded steps."""

from __future__ import annotations

import pytest
from benchmarks.allocator.__main__ import predicted
from benchmarks.allocator.caching import Settings
from benchmarks.allocator.steps import drawn, names, recorded, replayed

GIB = 2**30


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("length", [1024, 8192])
def test_steps_of_one_length_reserve_what_the_law_says(name: str, length: int) -> None:
    allocator, _ = replayed(name, [length] * 3)
    law = predicted(name, length, one_length=True)
    assert law == pytest.approx(allocator.reserved_peak / GIB, rel=0.04)


def test_two_steps_bring_all_that_further_ones_of_the_same_length_reserve() -> None:
    two, _ = replayed("qwen2.5-7b-full-foreach", [4096] * 2)
    four, _ = replayed("qwen2.5-7b-full-foreach", [4096] * 4)
    assert two.reserved_peak == four.reserved_peak


def test_samples_that_mostly_reach_the_limit_pile_up_nothing() -> None:
    """Log-normal lengths of 3,000 tokens in the mean: cut at 1,024, nine of ten batches are as long as the
    longest, and the first of them brings nearly all that a run ever reserves."""
    name = "llama-2-7b-lora"
    cut, _ = replayed(name, drawn(3000, 3000, 1024, 20, 0))
    one, _ = replayed(name, [1024] * 3)
    assert cut.reserved_peak < 1.03 * one.reserved_peak
    spread, _ = replayed(name, drawn(3000, 3000, 8192, 20, 0))
    longest, _ = replayed(name, [8192] * 3)
    assert spread.reserved_peak > 1.03 * longest.allocated_peak


def test_growing_segments_leave_few_holes() -> None:
    allocator, _ = replayed("qwen2.5-7b-full-foreach", [8192] * 3, Settings(expandable=True))
    assert allocator.reserved_peak < 1.02 * allocator.allocated_peak


def test_a_recorded_step_gives_back_all_that_it_takes() -> None:
    for name in names():
        steps = recorded(name)
        requests = sum(not isinstance(event, int) for event in steps.next)
        assert requests == sum(isinstance(event, int) for event in steps.next), name
