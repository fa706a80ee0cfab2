"""Where the roles of a run of AReaL stand, and what trains them."""

from __future__ import annotations

from oomlint.dialects.areal.allocation import Allocation, served, trained
from oomlint.dialects.areal.keys import own
from oomlint.dialects.cells import Cells
from oomlint.plan.fields import f


def place_of(run: Cells) -> Allocation | None:
    """Where the role that trains stands."""
    found: Allocation | None = run[own.place]
    return found or trained(run[own.mode] or ())


def serving_of(run: Cells) -> Allocation | None:
    """Where the engine stands that writes answers."""
    found: Allocation | None = run[own.serving]
    return found or served(run[own.mode] or ())


def _backend(run: Cells) -> str:
    place = place_of(run)
    return place.backend if place is not None else "fsdp"


def is_megatron(run: Cells) -> bool:
    return _backend(run) == "megatron"


def is_rl(run: Cells) -> bool:
    return run[f.objective.kind] in ("grpo", "ppo")


def shares_cards(run: Cells) -> bool:
    """Whether the actor is put where the engine is that writes answers."""
    return bool(run[own.target] == "rollout")
