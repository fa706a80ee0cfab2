"""Whether the engine that writes answers on the same GPU can start at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Any

from msgspec import Struct

from oomlint.memory.rollout import least_engine_weights
from oomlint.plan import Plan
from oomlint.plan.fields import f

# Of a card, beside the weights: less caches a few answers only.
_CACHE = 0.1
# Heads and vocabularies divide by these (vllm config/model.py verify_with_parallel_config).
_PARTS = (2, 4, 8)


class EngineShare(Struct, frozen=True):
    """Bytes of each card: what an engine's own copy of the weights takes at the least, and what it may take in all."""

    weights: float
    allowed: float

    @property
    def is_too_small(self) -> bool:
        return self.weights >= self.allowed


def engine_share(plan: Plan, card: int | None) -> EngineShare | None:
    """The share of a card of so many bytes that an engine may take; ``None`` where one of the two is not known."""
    share, weights = plan.objective.rollout.gpu_mem_util, least_engine_weights(plan)
    if not card or share is None or weights is None:
        return None
    return EngineShare(weights, share * card)


def starves_engine(plan: Plan, card: int | None) -> bool:
    """Whether the share of a card of so many bytes that an engine may take does not hold its own copy of the weights.

    It then stops before the first step: vLLM with "No available memory for the cache blocks" (0.6.6
    worker/worker.py:491, of V1 v1/worker/gpu_worker.py:175; 0.8.5 to 0.11.0 v1/core/kv_cache_utils.py
    check_enough_kv_cache_memory), SGLang with "Not enough memory" (0.3.6 to 0.5.5 model_executor/model_runner.py
    init_memory_pool), whose share is of what is free before it loads, which is less than the card.
    """
    found = engine_share(plan, card)
    return found is not None and found.is_too_small


def feeding(plan: Plan, card: int | None, ranks: int) -> Iterator[tuple[str, Mapping[Any, Any]]]:
    """What lets a starved engine start, in words and in fields, the mildest first: its weights shared among more of the
    ranks, or the share of the card that they need, rounded up to a twentieth."""
    rollout, engine = plan.objective.rollout, engine_share(plan, card)
    if engine is None or rollout.gpu_mem_util is None:
        return
    for parts in _PARTS:
        if parts > (rollout.tp or 1) and ranks % parts == 0:
            title = f"share the engine's weights among {parts} GPUs"
            yield title, {f.objective.rollout.tp: parts}
    share = rollout.gpu_mem_util * engine.weights / engine.allowed
    least = ceil((share + _CACHE) * 20) / 20
    if least < 1:
        yield f"give the engine {least:.0%} of the card", {f.objective.rollout.gpu_mem_util: least}
