"""The rules of torch's caching allocator, one by one, with numbers worked out by hand.

Each names the function of c10/cuda/CUDACachingAllocator.cpp whose rule it is.
"""

from __future__ import annotations

import pytest
from benchmarks.allocator.caching import (
    MIB,
    CachingAllocator,
    OutOfMemory,
    Settings,
    round_size,
    segment_size,
)


def reserved(*, settings: Settings | None = None, sizes: list[int]) -> int:
    allocator = CachingAllocator(settings)
    for size in sizes:
        allocator.malloc(size)
    return allocator.reserved


def test_sizes_are_rounded_to_512_bytes() -> None:
    assert [round_size(n) for n in (1, 512, 513, 1000)] == [512, 512, 1024, 1024]


def test_divisions_round_to_parts_of_a_power_of_two() -> None:
    # roundup_power2_divisions:4 makes 1200 bytes 1280 (CUDAAllocatorConfig.h's own example, in MiB).
    quarters = (4,) * 16
    assert round_size(1200 * MIB, quarters) == 1280 * MIB
    assert round_size(1024 * MIB, quarters) == 1024 * MIB
    only_from_512_mib = (0,) * 9 + (4,) * 7
    assert round_size(300 * MIB + 1, only_from_512_mib) == 300 * MIB + 512
    assert round_size(600 * MIB, only_from_512_mib) == 640 * MIB


def test_segments_are_of_three_sizes() -> None:
    assert segment_size(512) == 2 * MIB
    assert segment_size(MIB) == 2 * MIB
    assert segment_size(MIB + 512) == 20 * MIB
    assert segment_size(10 * MIB) == 10 * MIB
    assert segment_size(11 * MIB) == 12 * MIB


def test_small_and_large_blocks_have_pools_of_their_own() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.malloc(30 * MIB))
    allocator.malloc(MIB)
    assert allocator.reserved == 32 * MIB


def test_the_smallest_block_that_fits_is_taken_the_lowest_of_equals() -> None:
    allocator = CachingAllocator()
    large, low, high = (allocator.malloc(n * MIB) for n in (40, 20, 20))
    for block in (high, large, low):
        allocator.free(block)
    assert allocator.malloc(20 * MIB).address == low.address
    assert allocator.reserved == 80 * MIB


def test_a_remainder_of_one_mib_is_not_split() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.malloc(20 * MIB))
    whole = allocator.malloc(19 * MIB)
    assert whole.size == 20 * MIB
    assert allocator.allocated == 20 * MIB
    allocator.free(whole)
    assert allocator.malloc(19 * MIB - 512).size == 19 * MIB - 512


def test_neighbours_merge_when_they_are_free() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.malloc(60 * MIB))
    blocks = [allocator.malloc(20 * MIB) for _ in range(3)]
    for index in (0, 2, 1):
        allocator.free(blocks[index])
    assert allocator.malloc(60 * MIB).size == 60 * MIB
    assert allocator.reserved == 60 * MIB


def test_a_stream_never_takes_the_blocks_of_another() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.malloc(40 * MIB, stream=1))
    allocator.malloc(40 * MIB, stream=0)
    assert allocator.reserved == 80 * MIB
    allocator.malloc(40 * MIB, stream=1)
    assert allocator.reserved == 80 * MIB


def test_a_block_that_another_stream_uses_waits_for_it() -> None:
    allocator = CachingAllocator()
    block = allocator.malloc(40 * MIB)
    allocator.record_stream(block, 1)
    allocator.free(block)
    assert allocator.allocated == 0
    assert allocator.active == 40 * MIB
    allocator.malloc(40 * MIB)
    assert allocator.reserved == 80 * MIB
    allocator.reach(1)
    assert allocator.active == 40 * MIB
    allocator.malloc(40 * MIB)
    assert allocator.reserved == 80 * MIB


def test_a_full_card_gets_whole_segments_back_and_no_parts() -> None:
    allocator = CachingAllocator(Settings(limit=100 * MIB))
    first, second = allocator.malloc(40 * MIB), allocator.malloc(40 * MIB)
    allocator.free(first)
    allocator.malloc(60 * MIB)
    assert (allocator.retries, allocator.reserved) == (1, 100 * MIB)
    # Of a segment that is used in part nothing goes back.
    allocator.free(second)
    allocator.malloc(4 * MIB)
    with pytest.raises(OutOfMemory):
        allocator.malloc(38 * MIB)


def test_blocks_that_come_back_while_waiting_serve_nobody() -> None:
    # pytorch issue 189504: after the wait only the driver is asked again.
    allocator = CachingAllocator(Settings(limit=60 * MIB))
    allocator.free(allocator.malloc(60 * MIB))
    kept, used = allocator.malloc(20 * MIB), allocator.malloc(40 * MIB)
    allocator.record_stream(used, 1)
    allocator.free(used)
    with pytest.raises(OutOfMemory):
        allocator.malloc(40 * MIB)
    assert kept.size == 20 * MIB
    assert allocator.malloc(40 * MIB).size == 40 * MIB


def test_blocks_above_the_largest_split_stay_whole() -> None:
    settings = Settings(max_split=100 * MIB)
    allocator = CachingAllocator(settings)
    allocator.free(allocator.malloc(200 * MIB))
    allocator.malloc(50 * MIB)
    assert allocator.reserved == 250 * MIB
    # 20 MiB of rounding at most.
    allocator.malloc(180 * MIB)
    assert allocator.reserved == 430 * MIB
    assert allocator.malloc(181 * MIB).size == 200 * MIB


def test_oversize_blocks_go_back_before_all_others() -> None:
    allocator = CachingAllocator(Settings(limit=300 * MIB, max_split=100 * MIB))
    for block in [allocator.malloc(200 * MIB), allocator.malloc(50 * MIB)]:
        allocator.free(block)
    allocator.malloc(120 * MIB)
    assert (allocator.reserved, allocator.retries) == (170 * MIB, 0)


def test_garbage_is_collected_by_age_above_a_share_of_the_limit() -> None:
    settings = Settings(limit=200 * MIB, fraction_set=True, garbage_collection=0.5)
    allocator = CachingAllocator(settings)
    old, young = allocator.malloc(80 * MIB), allocator.malloc(60 * MIB)
    allocator.free(old)
    allocator.free(young)
    allocator.free(allocator.malloc(60 * MIB))
    assert allocator.reserved == 140 * MIB
    # 40 MiB too much. At the next search the first was free for two, the second for one: 1.5 in the mean.
    allocator.malloc(90 * MIB)
    assert (allocator.reserved, allocator.retries) == (150 * MIB, 0)
    plain = CachingAllocator(Settings(limit=200 * MIB))
    for block in [plain.malloc(80 * MIB), plain.malloc(60 * MIB)]:
        plain.free(block)
    plain.malloc(90 * MIB)
    assert (plain.reserved, plain.retries) == (90 * MIB, 1)


def test_expandable_segments_grow_by_pages_of_20_mib() -> None:
    growing = Settings(expandable=True)
    assert reserved(sizes=[33 * MIB, 30 * MIB]) == 64 * MIB
    assert reserved(settings=growing, sizes=[33 * MIB]) == 40 * MIB
    assert reserved(settings=growing, sizes=[33 * MIB, 30 * MIB]) == 80 * MIB


def test_a_longer_tensor_grows_out_of_a_shorter_ones_pages() -> None:
    allocator = CachingAllocator(Settings(expandable=True))
    for size in (40, 60, 80, 100):
        allocator.free(allocator.malloc(size * MIB))
    assert allocator.reserved == 100 * MIB
    classic = CachingAllocator()
    for size in (40, 60, 80, 100):
        classic.free(classic.malloc(size * MIB))
    assert classic.reserved == 280 * MIB


def test_pages_inside_a_free_block_go_back_one_by_one() -> None:
    allocator = CachingAllocator(Settings(expandable=True))
    first, second = allocator.malloc(50 * MIB), allocator.malloc(20 * MIB)
    assert allocator.reserved == 80 * MIB
    allocator.free(first)
    allocator.empty_cache()
    # Two pages of 20 MiB lie wholly in the first 50; the third is shared with what is in use.
    assert allocator.reserved == 40 * MIB
    allocator.free(second)
    allocator.empty_cache()
    assert allocator.reserved == 0


def test_counters_keep_their_peaks_apart() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.malloc(30 * MIB))
    allocator.empty_cache()
    allocator.malloc(25 * MIB + 1)
    assert allocator.reserved_peak == 30 * MIB
    assert allocator.reserved == 26 * MIB
    assert allocator.requested == 25 * MIB + 1
    assert allocator.allocated == 26 * MIB
