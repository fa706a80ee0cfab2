"""torch's caching allocator, replayed: what a sequence of requests and frees makes it reserve.

Every rule names the function of c10/cuda/CUDACachingAllocator.cpp that it follows, as it stands at pytorch 001074d2
(mid 2024); the sizes are those of every release from 1.13 to 2.13 (torch/include/c10/core/AllocatorConfig.h). CUDA graphs,
private pools and the asynchronous backend are left out.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from math import inf

from msgspec import Struct

MIB = 1 << 20
_SMALLEST = 512
_SMALL, _SMALL_SEGMENT = MIB, 2 * MIB
_LARGE_SEGMENT, _LARGE_FROM, _LARGE_UNIT = 20 * MIB, 10 * MIB, 2 * MIB


class OutOfMemory(Exception):
    """The driver has no segment to give, even after the cache was emptied."""


class Settings(Struct, frozen=True):
    """What PYTORCH_CUDA_ALLOC_CONF and the card say, in bytes.

    ``divisions`` are the sixteen entries of ``roundup_power2_divisions`` from 1 MiB on, 0 where there is none.
    ``limit`` is what the driver has to give, or the share that ``set_per_process_memory_fraction`` allows, which is also
    what ``garbage_collection`` is a share of and works under alone.
    """

    limit: float = inf
    expandable: bool = False
    max_split: float = inf
    max_non_split_rounding: int = 20 * MIB
    """A setting since torch 2.6, before that a constant of the same size."""
    garbage_collection: float = 0.0
    fraction_set: bool = False
    divisions: tuple[int, ...] = (0,) * 16


class Block:
    """A range of a segment; free ones lie in their pool's list, unmapped ones in another."""

    __slots__ = (
        "address", "born", "expandable", "free", "mapped", "next", "pending", "pool", "previous",
        "requested", "size", "stream", "users",
    )  # fmt: skip

    def __init__(self, size: int, address: int, pool: _Pool, stream: int) -> None:
        self.size = size
        self.address = address
        self.pool = pool
        self.stream = stream
        self.requested = 0
        self.free = True
        self.mapped = True
        self.expandable: _Range | None = None
        self.previous: Block | None = None
        self.next: Block | None = None
        self.users: set[int] = set()
        self.pending = 0
        self.born = 0

    @property
    def is_split(self) -> bool:
        return self.previous is not None or self.next is not None

    @property
    def is_idle(self) -> bool:
        """Free, and no stream is still working on it."""
        return self.free and not self.pending and not self.users


class _Range(Struct):
    """The address range of an expandable segment, mapped in units."""

    size: int
    unit: int


class _Pool:
    """The free blocks of one size class by stream, smallest first, lowest address on ties."""

    def __init__(self, *, small: bool) -> None:
        self.small = small
        self.free: dict[int, list[tuple[int, int, Block]]] = {}
        self.unmapped: dict[int, list[tuple[int, Block]]] = {}
        self.searches = 0

    def add(self, block: Block) -> None:
        block.born = self.searches
        insort(self.free.setdefault(block.stream, []), (block.size, block.address, block))

    def drop(self, block: Block) -> None:
        blocks = self.free[block.stream]
        del blocks[bisect_left(blocks, (block.size, block.address))]

    def blocks(self) -> list[Block]:
        return [block for blocks in self.free.values() for _, _, block in blocks]


class CachingAllocator:
    """One device's allocator; the counters are those of ``torch.cuda.memory_stats``."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.allocated = self.allocated_peak = 0
        self.active = self.active_peak = 0
        self.requested = self.requested_peak = 0
        self.reserved = self.reserved_peak = 0
        self.retries = 0
        self._small, self._large = _Pool(small=True), _Pool(small=False)
        self._events: dict[int, deque[Block]] = {}
        self._next_address = 0

    # What the program asks for.

    def malloc(self, size: int, stream: int = 0) -> Block:
        """A block of at least ``size`` bytes for ``stream`` (``malloc``)."""
        rounded = round_size(size, self.settings.divisions)
        pool = self._small if rounded <= _SMALL else self._large
        block = self._cached(pool, rounded, stream)
        if block is None:
            if self.settings.fraction_set and self.settings.garbage_collection:
                self._collect_garbage()
            block = self._new(pool, rounded, stream)
        if block is None and self._release_oversize(pool, rounded, stream):
            block = self._new(pool, rounded, stream)
        if block is None:
            self.empty_cache()
            self.retries += 1
            # The free blocks are not searched again: what came back meanwhile and is part of a segment
            # serves no one (pytorch issue 189504).
            block = self._new(pool, rounded, stream)
        if block is None:
            raise OutOfMemory(f"{segment_size(rounded)} bytes beside {self.reserved} reserved")
        return self._hand_out(block, rounded, size)

    def free(self, block: Block) -> None:
        """Give a block back (``free``): at once, or when the streams that used it are through."""
        block.free = True
        self.allocated -= block.size
        if not block.users:
            self._settle(block)
            return
        for stream in block.users:
            block.pending += 1
            self._events.setdefault(stream, deque()).append(block)
        block.users = set()

    @staticmethod
    def record_stream(block: Block, stream: int) -> None:
        """Say that ``stream`` works on the block (``recordStream``)."""
        if stream != block.stream:
            block.users.add(stream)

    def reach(self, stream: int) -> None:
        """The GPU has done all that ``stream`` was given (``process_events`` at the next malloc)."""
        for block in self._events.pop(stream, ()):
            block.pending -= 1
            if not block.pending:
                self._settle(block)

    def empty_cache(self) -> None:
        """Give back every segment that is one free block (``release_cached_blocks``)."""
        for stream in list(self._events):
            self.reach(stream)
        for pool in (self._large, self._small):
            for block in pool.blocks():
                if block.expandable is not None:
                    self._unmap(block)
                elif not block.is_split:
                    self._release(block)

    # Rules.

    def _cached(self, pool: _Pool, rounded: int, stream: int) -> Block | None:
        """Best fit among the free blocks of the stream (``get_free_block``)."""
        pool.searches += 1
        blocks = pool.free.get(stream)
        if not blocks:
            return None
        at = bisect_left(blocks, (rounded,))
        if at == len(blocks):
            return None
        block = blocks[at][2]
        if self.settings.expandable:
            # The end of a range, which may grow, is used last.
            while at + 1 < len(blocks) and _room(blocks[at + 1][2]) < _room(block):
                at += 1
                block = blocks[at][2]
        limit = self.settings.max_split
        if rounded < limit <= block.size:
            return None
        if rounded >= limit and block.size >= rounded + self.settings.max_non_split_rounding:
            return None
        del blocks[at]
        return block

    def _hand_out(self, block: Block, rounded: int, size: int) -> Block:
        """Cut what is not needed off the end (``should_split``, ``alloc_found_block``)."""
        remaining = block.size - rounded
        if block.pool.small or self.settings.expandable:
            splits = remaining >= _SMALLEST
        else:
            splits = rounded < self.settings.max_split and remaining > _SMALL
        if splits:
            rest = Block(remaining, block.address + rounded, block.pool, block.stream)
            rest.expandable = block.expandable
            _chain(block, rest, block.next)
            block.size = rounded
            block.pool.add(rest)
        block.free = False
        block.requested = size
        self.allocated += block.size
        self.active += block.size
        self.requested += size
        if self.allocated > self.allocated_peak:
            self.allocated_peak = self.allocated
        self.active_peak = max(self.active_peak, self.active)
        self.requested_peak = max(self.requested_peak, self.requested)
        return block

    def _settle(self, block: Block) -> None:
        """Merge a block with free neighbours and list it (``free_block``)."""
        self.active -= block.size
        self.requested -= block.requested
        self._merge(block, block.previous)
        self._merge(block, block.next)
        block.pool.add(block)

    @staticmethod
    def _merge(block: Block, other: Block | None) -> None:
        """Take a neighbour in (``try_merge_blocks``)."""
        if other is None or not other.is_idle or other.mapped != block.mapped:
            return
        if other.mapped:
            block.pool.drop(other)
        else:
            _forget_unmapped(other)
        if block.previous is other:
            block.address = other.address
            _chain(other.previous, block, block.next)
        else:
            _chain(block.previous, block, other.next)
        block.size += other.size

    def _new(self, pool: _Pool, rounded: int, stream: int) -> Block | None:
        """A new segment of the driver (``alloc_block``), or more pages of an expandable one."""
        size = segment_size(rounded)
        if self.reserved + size > self.settings.limit:
            return None
        if self.settings.expandable:
            return self._expanded(pool, rounded, stream)
        block = Block(size, self._addresses(size), pool, stream)
        self._reserve(size)
        return block

    def _addresses(self, size: int) -> int:
        start = self._next_address
        # Segments never touch.
        self._next_address += size + _LARGE_UNIT
        return start

    def _reserve(self, size: int) -> None:
        self.reserved += size
        self.reserved_peak = max(self.reserved_peak, self.reserved)

    def _release(self, block: Block) -> None:
        block.pool.drop(block)
        self.reserved -= block.size

    def _release_oversize(self, pool: _Pool, rounded: int, stream: int) -> bool:
        """Give back blocks that may not be split, until one as large as asked for would fit
        (``release_available_cached_blocks``)."""
        limit = self.settings.max_split
        if limit == inf or self.settings.expandable:
            return False
        key = max(rounded, int(limit))
        blocks = pool.free.get(stream, [])
        at = bisect_left(blocks, (key,))
        if at < len(blocks):
            self._release(blocks[at][2])
            return True
        released = 0
        while blocks and released < key and blocks[-1][0] >= limit:
            released += blocks[-1][0]
            self._release(blocks[-1][2])
        return released >= key

    def _collect_garbage(self) -> None:
        """Give back whole segments that were not used for long (``garbage_collect_cached_blocks``)."""
        wanted = self.reserved - self.settings.garbage_collection * self.settings.limit
        if wanted <= 0:
            return
        pool = self._large
        old = [b for b in pool.blocks() if not b.is_split and b.expandable is None]
        while old and wanted > 0:
            mean = sum(pool.searches - b.born for b in old) / len(old)
            for block in [b for b in old if pool.searches - b.born >= mean]:
                wanted -= block.size
                self._release(block)
                old.remove(block)

    # Expandable segments.

    def _expanded(self, pool: _Pool, rounded: int, stream: int) -> Block | None:
        """Map pages behind a free block until it is large enough (``try_allocate_expandable_block``)."""
        block = self._expandable_block(pool, rounded, stream)
        if not block.mapped:
            mapped = self._map(block, min(block.size, rounded))
            if mapped is None:
                return None
            block = mapped
        while block.size < rounded:
            behind = block.next
            assert behind is not None
            mapped = self._map(behind, min(rounded - block.size, behind.size))
            if mapped is None:
                return None
            block = mapped
        pool.drop(block)
        return block

    def _expandable_block(self, pool: _Pool, rounded: int, stream: int) -> Block:
        """The lowest unmapped block of the stream, or the free one before it (``find_expandable_block``)."""
        for _, unmapped in pool.unmapped.setdefault(stream, []):
            start = unmapped
            if unmapped.previous is not None and unmapped.previous.is_idle:
                start = unmapped.previous
            room, block = 0, start
            while room < rounded and block is not None and block.is_idle:
                room += block.size
                block = block.next  # type: ignore[assignment]
            if room >= rounded:
                return start
        unit = _SMALL_SEGMENT if pool.small else _LARGE_SEGMENT
        # One and an eighth of the device's memory; nothing here needs more than 2 TiB.
        size = int(min(self.settings.limit * 9 / 8, 1 << 41)) // unit * unit
        fresh = Block(size, self._addresses(size), pool, stream)
        fresh.expandable = _Range(size, unit)
        fresh.mapped = False
        _remember_unmapped(fresh)
        return fresh

    def _map(self, block: Block, size: int) -> Block | None:
        """Back the start of an unmapped block with whole units (``map_block``)."""
        assert block.expandable is not None
        unit = block.expandable.unit
        mapped = -(-size // unit) * unit
        if self.reserved + mapped > self.settings.limit:
            return None
        _forget_unmapped(block)
        block.mapped = True
        if mapped < block.size:
            rest = Block(block.size - mapped, block.address + mapped, block.pool, block.stream)
            rest.expandable = block.expandable
            rest.mapped = False
            _chain(block, rest, block.next)
            _remember_unmapped(rest)
            block.size = mapped
        self._reserve(mapped)
        self._merge(block, block.previous)
        self._merge(block, block.next)
        block.pool.add(block)
        return block

    def _unmap(self, block: Block) -> None:
        """Give the whole units inside a free block back (``unmap_block``)."""
        assert block.expandable is not None
        unit, start = block.expandable.unit, _start(block)
        first = start + -(-(block.address - start) // unit) * unit
        last = start + (block.address + block.size - start) // unit * unit
        if last <= first:
            return
        block.pool.drop(block)
        if first > block.address:
            before = Block(first - block.address, block.address, block.pool, block.stream)
            before.expandable = block.expandable
            _chain(block.previous, before, block)
            block.pool.add(before)
        behind = block.address + block.size - last
        if behind:
            after = Block(behind, last, block.pool, block.stream)
            after.expandable = block.expandable
            _chain(block, after, block.next)
            block.pool.add(after)
        block.address, block.size, block.mapped = first, last - first, False
        self._merge(block, block.previous)
        self._merge(block, block.next)
        self.reserved -= last - first
        _remember_unmapped(block)


def round_size(size: int, divisions: tuple[int, ...] = (0,) * 16) -> int:
    """What a request takes (``round_size``, ``roundup_power2_next_division``)."""
    if size < _SMALLEST:
        return _SMALLEST
    parts = divisions[min(15, max(0, size.bit_length() - 1 - 20))]
    if parts > 1 and size > _SMALLEST * parts:
        power = 1 << (size.bit_length() - 1)
        if size == power:
            return size
        unit = power // parts
        return -(-size // unit) * unit
    return -(-size // _SMALLEST) * _SMALLEST


def segment_size(rounded: int) -> int:
    """What the driver is asked for (``get_allocation_size``)."""
    if rounded <= _SMALL:
        return _SMALL_SEGMENT
    if rounded < _LARGE_FROM:
        return _LARGE_SEGMENT
    return -(-rounded // _LARGE_UNIT) * _LARGE_UNIT


def _room(block: Block) -> int:
    """How large a block is or may grow to be."""
    behind = block.next
    return block.size + (behind.size if behind is not None and not behind.mapped else 0)


def _chain(before: Block | None, block: Block, after: Block | None) -> None:
    block.previous, block.next = before, after
    if before is not None:
        before.next = block
    if after is not None:
        after.previous = block


def _start(block: Block) -> int:
    while block.previous is not None:
        block = block.previous
    return block.address


def _remember_unmapped(block: Block) -> None:
    blocks = block.pool.unmapped.setdefault(block.stream, [])
    insort(blocks, (block.address, block))


def _forget_unmapped(block: Block) -> None:
    blocks = block.pool.unmapped[block.stream]
    del blocks[bisect_left(blocks, (block.address,))]
