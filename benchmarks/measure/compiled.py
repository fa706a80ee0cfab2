"""Measures what chunked losses hold whose chunk torch compiles: ``python benchmarks/measure/compiled.py``.

    pip install torch          # and a C++ compiler, which Inductor asks for

The head's projection and the cross entropy of torchtune's chunks, forward and backward on the CPU, every allocation
as torch's profiler tells it. ``logits``: the projections of all chunks, then their losses, of which the loss alone is
compiled (CEWithChunkedOutputLoss); ``head``: projection and loss of one chunk after the other, compiled together
(LinearCrossEntropyLoss). In bytes a token and a word of the vocabulary, the head's weight aside; its size in the
same unit stands at the end, since gradients of it come on top.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

TOKENS, VOCAB = 512, 8000
EACH = TOKENS * VOCAB


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """torchtune bd2a0fc7 modules/loss/ce_chunked_output_loss.py compute_cross_entropy."""
    return F.cross_entropy(logits.float(), labels, reduction="sum")


def measured(
    hidden_size: int, chunks: int, *, compiled: bool, trained: bool, head: bool
) -> tuple[float, float, float]:
    """What is kept for backward, and the highest instants of loss and backward."""
    weight = torch.randn(VOCAB, hidden_size, dtype=torch.bfloat16, requires_grad=trained)
    hidden = torch.randn(TOKENS, hidden_size, dtype=torch.bfloat16, requires_grad=True)
    labels = torch.randint(0, VOCAB, (TOKENS,))

    def projected(part: Tensor, wanted: Tensor) -> Tensor:
        return cross_entropy(F.linear(part, weight), wanted)

    of_chunk: Callable[[Tensor, Tensor], Tensor] = projected if head else cross_entropy
    if compiled:
        torch._dynamo.reset()
        of_chunk = torch.compile(of_chunk)

    def loss() -> Tensor:
        parts = list(hidden.chunk(chunks))
        if not head:
            parts = [F.linear(part, weight) for part in parts]
        return sum(map(of_chunk, parts, labels.chunk(chunks)), start=torch.zeros(()))

    for _ in range(2):  # compiles, and compiles the backward pass
        loss().backward()
        hidden.grad = weight.grad = None
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as forward:
        found = loss()
    at_loss, kept = highest(forward)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as backward:
        found.backward()
    above, _ = highest(backward)
    return kept / EACH, at_loss / EACH, (kept + above) / EACH


def highest(seen: Any) -> tuple[int, int]:
    """The most bytes that were allocated at once, and those that stayed."""
    alive = most = 0
    events = seen.profiler.kineto_results.experimental_event_tree()
    for _, size in sorted(_allocations(events)):
        alive += size
        most = max(most, alive)
    return most, alive


def _allocations(events: Any) -> Iterator[tuple[int, int]]:
    """When, and how many bytes; less than nothing where they are freed."""
    for event in events:
        if str(event.tag).endswith("Allocation"):
            yield event.start_time_ns, event.extra_fields.alloc_size
        yield from _allocations(event.children)


def main() -> None:
    print(f"torch {torch.__version__}", file=sys.stderr)
    for size, chunks, head, compiled, trained in product(
        (64, 1024), (1, 8), (False, True), (False, True), (False, True)
    ):
        found = measured(size, chunks, compiled=compiled, trained=trained, head=head)
        kept, at_loss, backward = found
        print(
            f"{'head  ' if head else 'logits'} chunks {chunks} {'compiled' if compiled else 'eager   '} "
            f"{'trained' if trained else 'frozen '}: kept {kept:6.3f}  loss {at_loss:6.3f}  "
            f"backward {backward:6.3f}  (weight {2 * VOCAB * size / EACH:.3f})"
        )


if __name__ == "__main__":
    main()
