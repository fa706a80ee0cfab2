"""Activations that wait in the RAM of a node for their backward pass.

The hooks of TRL and torchtune put each tensor that is saved into a pinned block of its own (trl 1.9 and torchtune 0.6
``OffloadActivations``). Measured with TRL's on fake tensors: ``tests/memory/data/steps.jsonl``, ``host_bytes``.
"""

from __future__ import annotations

from oomlint.memory.facts import Facts
from oomlint.memory.logits import logits_of
from oomlint.memory.step import offloads_activations, stack_of, takes_all_saved
from oomlint.memory.zero_offload import BLOCKS_OF_THEIR_OWN, power_of_two


def activations_away(f: Facts) -> tuple[float, float]:
    """Bytes that one rank holds on the host at the end of forward, and what rounding pinned blocks adds."""
    if not offloads_activations(f):
        return 0.0, 0.0
    offload, stack = f.plan.offload, stack_of(f)
    inputs = stack.checkpoint * stack.count
    whole = 0.0
    if takes_all_saved(f):
        for count, profile in zip(stack.walk.totals, stack.walk.kinds, strict=True):
            whole += count * profile.saved.at(stack.tokens, stack.scores)
            if not offload.keeps_shared:
                # What a second operation saves goes a second time.
                whole += count * profile.saved_twice.at(stack.tokens, stack.scores)
    whole *= 1 - stack.checkpoint
    logits = logits_of(f, stack.tokens).kept if offload.takes_loss else 0.0
    held = inputs * stack.inputs + whole + logits
    if offload.keeps_shared is None:  # no such hooks
        return held, 0.0
    lost = inputs * (power_of_two(stack.inputs) - stack.inputs) + power_of_two(logits) - logits
    return held, lost + whole * BLOCKS_OF_THEIR_OWN
