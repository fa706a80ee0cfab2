"""What torch's caching allocator reserves for a training step: ``python -m benchmarks.allocator``.

A replica of the large pool of c10/cuda/CUDACachingAllocator.cpp replays steps of a decoder with
activation checkpointing, once with batches of one length and once with lengths drawn from a
log-normal distribution, and prints reserved over allocated. The shares in
``oomlint/memory/allocator.py`` are read off this table.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

_MIB = 1 << 20


@dataclass(slots=True)
class _Block:
    size: int
    free: bool = True


class Pool:
    """Best fit over all segments; a segment is never given back."""

    def __init__(self) -> None:
        self.segments: list[list[_Block]] = []
        self.reserved = 0
        self.allocated = 0
        self.peak = 0

    def take(self, size: int) -> tuple[list[_Block], _Block]:
        size = -(-size // 512) * 512
        best: tuple[list[_Block], _Block] | None = None
        for segment in self.segments:
            for block in segment:
                if (
                    block.free
                    and block.size >= size
                    and (best is None or block.size < best[1].size)
                ):
                    best = segment, block
        if best is None:
            whole = -(-size // (2 * _MIB)) * 2 * _MIB if size >= 10 * _MIB else 20 * _MIB
            segment = [_Block(whole)]
            self.segments.append(segment)
            self.reserved += whole
            best = segment, segment[0]
        segment, block = best
        if block.size - size > _MIB:
            segment.insert(segment.index(block) + 1, _Block(block.size - size))
            block.size = size
        block.free = False
        self.allocated += block.size
        self.peak = max(self.peak, self.allocated)
        return best

    def give(self, *taken: tuple[list[_Block], _Block]) -> None:
        for segment, block in taken:
            block.free = True
            self.allocated -= block.size
            at = next(i for i, b in enumerate(segment) if b is block)
            if at + 1 < len(segment) and segment[at + 1].free:
                block.size += segment.pop(at + 1).size
            if at and segment[at - 1].free:
                segment[at - 1].size += block.size
                del segment[at]


@dataclass(frozen=True, slots=True)
class Decoder:
    vocab: int
    hidden: int
    layers: int
    ffn: int


def step(pool: Pool, m: Decoder, tokens: int, *, logits: bool) -> None:
    """Forward and backward of half-precision weights with every layer checkpointed."""
    h, i, v = 2 * m.hidden * tokens, 2 * m.ffn * tokens, 2 * m.vocab * tokens
    kept = []
    for _ in range(m.layers):
        kept.append(pool.take(h))
        norm = [pool.take(s) for s in (2 * h, h, h)]
        heads = [pool.take(h) for _ in range(4)]
        pool.give(*norm)
        mixed = [pool.take(i) for _ in range(3)]
        pool.give(*heads, *mixed)
    if logits:
        half, wide, logs = pool.take(v), pool.take(2 * v), pool.take(2 * v)
        pool.give(wide, half)
        first, second = pool.take(2 * v), pool.take(2 * v)
        pool.give(first, logs)
        grad = pool.take(v)
        pool.give(second, grad)
    for _ in range(m.layers):
        again = [pool.take(s) for s in (2 * h, h, h, 2 * h, h, h, h, h, h, i, i, i)]
        grads = [pool.take(s) for s in (i, i, h)]
        pool.give(*again, *grads, kept.pop())


def ratio(m: Decoder, lengths: list[int], *, logits: bool) -> float:
    """Reserved over the most that was allocated after steps of these lengths."""
    pool = Pool()
    for tokens in lengths:
        step(pool, m, tokens, logits=logits)
    return pool.reserved / pool.peak


def main() -> None:
    models = {
        "hidden 4096, vocabulary 32k": Decoder(32_000, 4096, 32, 11_008),
        "hidden 3584, vocabulary 152k": Decoder(151_936, 3584, 28, 18_944),
        "hidden 8192, vocabulary 128k": Decoder(128_256, 8192, 40, 28_672),
    }
    print(f"{'model':<30}{'length':>7}{'logits':>8}{'one length':>12}{'varied':>8}")
    for name, m in models.items():
        for cap in (1024, 4096):
            for logits in (False, True):
                draw = random.Random(0)
                varied = [
                    max(16, min(cap, int(draw.lognormvariate(5.1 if cap == 1024 else 6.5, 0.7))))
                    for _ in range(60)
                ]
                one = ratio(m, [cap] * 4, logits=logits)
                many = ratio(m, varied, logits=logits)
                print(f"{name:<30}{cap:>7}{'yes' if logits else 'no':>8}{one:>12.2f}{many:>8.2f}")


if __name__ == "__main__":
    main()
