"""Adapters on experts whose weights are stacked in one parameter: which stacks of which layers carry them.

PEFT reaches a parameter in two ways: by its own name in ``target_parameters``, and, on transformers 5, by the names
that single experts' layers had before, which it translates (peft 0.21.2 utils/transformers_weight_conversion.py).
What it makes of both was counted on the meta device (``tests/memory/test_stacked_adapters.py``).
"""

from __future__ import annotations

from functools import lru_cache
from itertools import groupby

from msgspec import Struct
from msgspec.structs import replace

from oomlint.memory.parameters import DecoderBlock, DecoderStructure
from oomlint.memory.traits import ROLE_NAMES
from oomlint.models.architectures import translated_expert_layers
from oomlint.plan.model import Trainable


class StackedAdapters(Struct, frozen=True):
    """How many times the rank the adapters on the stacks have: on gate and up in one, and on down."""

    up: int = 0
    down: int = 0
    router: bool = False
    """Whether the router, which is a parameter too, carries one."""
    layers: frozenset[int] | None = None
    """The layers that are named; ``None`` where all are meant."""
    taken: frozenset[str] = frozenset()
    """Names that mean the stacks alone, though other layers have them too."""

    def __bool__(self) -> bool:
        return bool(self.up or self.down or self.router)


NONE = StackedAdapters()


def stacked_adapters(t: Trainable, model: DecoderStructure, *, translates: bool) -> StackedAdapters:
    """The adapters that a run puts on stacks of experts of ``model``; ``translates``: PEFT takes names of single experts' layers
    for them."""
    if t.target_params == "none":
        return NONE
    if t.target_params == "experts":
        return StackedAdapters(up=1, down=1)
    named = _named(t.target_params or ())
    names = translated_expert_layers(model.arch) if translates else None
    return named if names is None else _translated(t, model, names, named)


def _named(parameters: tuple[str, ...]) -> StackedAdapters:
    """What ``target_parameters`` name: a parameter whose path ends so (peft 0.21.2 tuners/tuners_utils.py
    _inject_parameters)."""
    paths = [name.split(".") for name in parameters]
    numbers = [{int(part) for part in path if part.isdecimal()} for path in paths]
    last = {path[-1] for path in paths}
    return StackedAdapters(
        up=int("gate_up_proj" in last),
        down=int("down_proj" in last),
        router=any(path[-2:] in (["gate", "weight"], ["router", "weight"]) for path in paths),
        layers=frozenset().union(*numbers) if numbers and all(numbers) else None,
    )


def _translated(
    t: Trainable, model: DecoderStructure, names: tuple[str, str, str], named: StackedAdapters
) -> StackedAdapters:
    """Names of single experts' layers as PEFT translates them (_convert_peft_config_moe): gate and up, which are one
    parameter now, get twice the rank together, and no other layer of these names an adapter."""
    gate, up, down = names
    if t.targets == "all_linear" and t.by_name:
        # Only what is a linear layer was found: a dense layer's, a shared expert's.
        roles = {layer.role for block in model.blocks for layer in block.linears}
        wanted = frozenset().union(*(ROLE_NAMES.get(role, ()) for role in roles)) & set(names)
    elif t.targets == "all_linear":
        wanted = frozenset({*names, "gate"})
    elif isinstance(t.targets, tuple):
        wanted = frozenset(target.rsplit(".", 1)[-1] for target in t.targets)
    else:
        return named
    found = wanted & {*names, "gate"}
    return StackedAdapters(
        up=2 if {gate, up} <= found else named.up,
        down=1 if down in found else named.down,
        router="gate" in found or named.router,
        layers=None if found else named.layers,
        taken=found,
    )


def ends_of(on: StackedAdapters, model: DecoderStructure) -> int:
    """Adapter elements a rank of all stacks, and of routers that are parameters."""
    return sum(b.count * _ends_of(on, model, b) for b in model.blocks)


def _ends_of(on: StackedAdapters, model: DecoderStructure, block: DecoderBlock) -> int:
    if not block.experts or block.plain_experts:
        return 0
    hidden, ffn = model.hidden, block.moe_ffn
    inner = (block.expert_matrices(hidden) - 1) * ffn
    router = hidden + block.experts if on.router else 0
    return block.experts * (on.up * (hidden + inner) + on.down * (ffn + hidden)) + router


@lru_cache(maxsize=256)
def with_named_layers(model: DecoderStructure, layers: frozenset[int]) -> DecoderStructure:
    """``model`` in which the experts of no other layers than the named carry adapters."""
    plain: dict[tuple[DecoderBlock, int], DecoderBlock] = {}
    blocks: list[DecoderBlock] = []
    below = 0
    for block in model.blocks:
        places = range(below, below + block.count)
        below = places.stop
        if not block.experts or layers.issuperset(places):
            blocks.append(block)
            continue
        for is_named, run in groupby(places, key=layers.__contains__):
            count = sum(1 for _ in run)
            # Equal runs are one object, by which profiles are kept.
            known = plain.setdefault(
                (block, count), replace(block, count=count, plain_experts=True)
            )
            blocks.append(replace(block, count=count) if is_named else known)
    return replace(model, blocks=tuple(blocks))
