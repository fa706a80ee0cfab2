"""Whether one GPU is to hold a model whose loader lays what it cannot hold into the host's RAM.

Of a single GPU ``device_map="auto"`` takes nine tenths of what is free, and gives the modules that it has no room for to the CPU
(accelerate 1.1.1 utils/modeling.py ``get_balanced_memory``, "we should avoid OOM"; transformers 4.57.0 modeling_utils.py
``_get_device_map``). The weights then do not run it out of memory. What training comes to, layers of which are fetched
for each pass and whose gradients belong to copies, is not reckoned here.
"""

from __future__ import annotations

from oomlint.memory import state_bytes
from oomlint.plan.fields import f
from oomlint.runs.run import Run

_LAYS_ANYWHERE = ("auto", "balanced")
_TAKEN = 0.9
_WHY = 'device_map="auto" lays what this GPU cannot hold of the weights into RAM, and training so is not reckoned'


def why_laid_in_ram(run: Run) -> str:
    """That the weights of a run are not all on its one GPU, in words; empty where they are, or something else is said of
    them."""
    placed = run.intended.placed
    plan, limit = placed.plan, run.limits.gpu_bytes
    lays = plan.load.device_map in _LAYS_ANYWHERE and run.is_explicit(f.load.device_map)
    is_alone = (plan.parallel.world or plan.parallel.gpus_per_node) == 1
    is_plain = plan.parallel.backend in (None, "none") and plan.quant.method in (None, "none")
    if limit is None or not (lays and is_alone and is_plain):
        return ""
    states = state_bytes(plan)
    return _WHY if states is not None and states.parameters > _TAKEN * limit else ""
