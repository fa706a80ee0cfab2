"""Whether the engine that writes answers on the same GPU can start at all."""

from __future__ import annotations

from oomlint.memory.rollout import least_engine_weights
from oomlint.plan import Plan


def starves_engine(plan: Plan, card: int | None) -> bool:
    """Whether the share of a card of so many bytes that an engine may take does not hold its own copy of the weights.

    It then stops before the first step: vLLM with "No available memory for the cache blocks" (0.6.6
    worker/worker.py:491, of V1 v1/worker/gpu_worker.py:175; 0.8.5 to 0.11.0 v1/core/kv_cache_utils.py
    check_enough_kv_cache_memory), SGLang with "Not enough memory" (0.3.6 to 0.5.5 model_executor/model_runner.py
    init_memory_pool), whose share is of what is free before it loads, which is less than the card.
    """
    share, weights = plan.objective.rollout.gpu_mem_util, least_engine_weights(plan)
    if not card or share is None or weights is None:
        return False
    return weights >= share * card
