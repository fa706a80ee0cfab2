"""Over which ranks AReaL lays the role that trains.

Read from inclusionAI/AReaL 4aef98d8 (2026-05-21); ``AR`` below is its ``areal`` package.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from oomlint.dialects.areal.keys import SOURCE, own
from oomlint.dialects.areal.roles import is_megatron, place_of
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import machine
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

ranks = Meaning()

_ALLOC = f"{SOURCE} areal/api/alloc_mode.py"
_MEGATRON = f"{SOURCE} areal/engine/megatron_engine.py"


@ranks.derive(f.parallel.gpus_per_node, f.parallel.nodes, source=f"{_ALLOC}:152")
def cards(run: Cells) -> Any:
    """As many as the degrees come to: the cluster's size makes no engine larger."""
    place = place_of(run)
    if place is None:
        return None
    each = run[machine.gpus_per_node] or run[own.node_gpus]
    return {
        f.parallel.gpus_per_node: min(place.world, each),
        f.parallel.nodes: max(1, -(-place.world // each)),
    }


@ranks.derive(
    f.parallel.tp, f.parallel.pp, f.parallel.cp, f.parallel.ulysses, f.parallel.ep, f.parallel.etp, f.parallel.vpp,
    f.parallel.sp, f.parallel.pp_schedule, source=f"{_ALLOC}, {_MEGATRON}:1242",
)  # fmt: skip
def degrees(run: Cells) -> Any:
    """``c`` is Ulysses' for FSDP; sequences are split wherever tensors are."""
    place = place_of(run)
    if place is None:
        return None
    has_stages = place.pp > 1
    return {
        f.parallel.tp: place.tp,
        f.parallel.pp: place.pp,
        f.parallel.cp: place.cp if is_megatron(run) else 1,
        f.parallel.ulysses: 1 if is_megatron(run) else place.cp,
        f.parallel.ep: place.ep,
        f.parallel.etp: place.etp,
        f.parallel.vpp: run[own.vpp]
        if is_megatron(run) and has_stages and run[own.vpp] > 1
        else None,
        f.parallel.sp: place.tp > 1,
        f.parallel.pp_schedule: "1F1B" if has_stages else None,
    }


_LETTERS = {
    f.parallel.tp: "tp",
    f.parallel.pp: "pp",
    f.parallel.cp: "cp",
    f.parallel.ulysses: "cp",
    f.parallel.ep: "ep",
}


@ranks.written(*_LETTERS)
def _(count: Any, run: Cells, wishes: Wishes) -> Wishes:
    """The cards stay as many as they are."""
    place, dims = run[own.place], run[f.model.dims]
    if place is None:
        raise CannotEdit("no key says of the actor alone which degrees it has")
    sizes = {name: wishes[field] for field, name in _LETTERS.items() if field in wishes}
    wanted = replace(place, **sizes)
    if not is_megatron(run) and (wanted.pp > 1 or wanted.ep > 1):
        raise CannotEdit("FSDP has neither stages nor spread experts in AReaL")
    others = wanted.tp * wanted.pp * wanted.cp
    if place.world % others:
        raise CannotEdit("the cards that there are cannot be divided so")
    if dims is not None and dims.heads and dims.heads % wanted.tp:
        raise CannotEdit("the heads cannot be divided so")
    return {own.place: replace(wanted, dp=place.world // others)}


ranks.cannot_say(
    "AReaL splits sequences wherever it splits tensors",
    f.parallel.sp,
    f.parallel.etp,
    f.parallel.vpp,
)
