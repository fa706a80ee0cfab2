"""The canonical plan: what one training run will do, in no framework's spelling.

Every leaf is a plain value; ``None`` means *unknown*, and arithmetic that meets an
unknown must widen its bounds or say what it assumed, never guess in silence. Where a
value came from (a file and span, a framework's default, a derivation) is kept beside
the plan, in :class:`oomlint.runs.run.Run`, so that the estimate can stay pure arithmetic.

Units: sizes that end in ``_bytes`` are bytes, ``_elems`` elements, ``_gib`` GiB (2**30
bytes); sequence lengths are tokens; batch sizes are samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from math import isfinite
from typing import Any, TypeAlias

from msgspec import field
from msgspec.structs import replace

from oomlint.plan.model import (
    Load,
    Mla,
    Model,
    ModelDims,
    Moe,
    Precision,
    Quant,
    Section,
    Trainable,
    VisionTower,
)
from oomlint.plan.training import (
    Batch,
    Checkpointing,
    Compile,
    Data,
    Device,
    Env,
    Eval,
    Host,
    Loss,
    Objective,
    Offload,
    Optimizer,
    Parallel,
    Save,
    Seq,
)


class Plan(Section, frozen=True, kw_only=True):
    """One training run in canonical terms."""

    name: str | None = None
    framework: str | None = None
    model: Model = Model()
    objective: Objective = Objective()
    load: Load = Load()
    trainable: Trainable = Trainable()
    quant: Quant = Quant()
    precision: Precision = Precision()
    optimizer: Optimizer = Optimizer()
    parallel: Parallel = Parallel()
    offload: Offload = Offload()
    batch: Batch = Batch()
    seq: Seq = Seq()
    checkpointing: Checkpointing = Checkpointing()
    loss: Loss = Loss()
    compile: Compile = Compile()
    eval: Eval = Eval()
    save: Save = Save()
    data: Data = Data()
    host: Host = Host()
    device: Device = Device()
    env: Env = Env()
    versions: Mapping[str, str] = field(default_factory=dict)
    total_steps: int | None = None

    def get(self, path: Any) -> Any:
        """The leaf at a dotted path such as ``"parallel.zero.stage"``; ``None`` is unknown."""
        value: Any = self
        for part in _route(path):
            if value is None:
                return None
            value = getattr(value, part)
        return value

    def with_values(self, changes: Mapping[Any, Any]) -> Plan:
        """A copy in which the dotted paths of ``changes`` have new values."""
        changed: Plan = _with_values(self, [(_route(path), 0, v) for path, v in changes.items()])
        return changed


_PYTHON_NAME = {"global": "global_", "async": "async_"}


@cache
def _route(path: str) -> tuple[str, ...]:
    """The attributes that lead to a dotted path."""
    return tuple(_PYTHON_NAME.get(part, part) for part in path.split("."))


_Change: TypeAlias = tuple[tuple[str, ...], int, Any]
"""A route, how much of it has been gone, and the value at its end."""


def _with_values(node: Any, changes: list[_Change]) -> Any:
    """Every node is copied once, however many of its leaves change."""
    own: dict[str, Any] = {}
    inner: dict[str, list[_Change]] = {}
    for route, gone, value in changes:
        head, gone = route[gone], gone + 1
        if gone < len(route):
            inner.setdefault(head, []).append((route, gone, value))
        else:
            own[head] = value
            inner.pop(head, None)
    for head, below in inner.items():
        child = own.get(head, getattr(node, head))
        if child is None:
            child = _WHERE_NONE[head]()
        own[head] = _with_values(child, below)
    return replace(node, **own)


# The records that a plan may lack.
_WHERE_NONE = {"dims": ModelDims, "moe": Moe, "mla": Mla, "vision": VisionTower}


@cache
def leaf_paths() -> frozenset[str]:
    """Every dotted path of the plan, in public spelling; containers are not leaves."""
    return frozenset(_walk_paths(Plan, ""))


def _walk_paths(cls: type, prefix: str) -> Iterator[str]:
    for _, public, default in _public_names(cls):
        if default is None:
            yield prefix + public
        else:
            yield from _walk_paths(type(default), f"{prefix}{public}.")


def plan_to_dict(node: Any) -> dict[str, Any]:
    """The plan as nested plain values in public spelling; unknown leaves are left out."""
    out: dict[str, Any] = {}
    kind: Any = type(node)
    for name, public, default in _public_names(kind):
        value = getattr(node, name)
        if value is None or value is default:
            continue
        if type(value) is float and not isfinite(value):  # JSON has no word for it
            continue
        if type(value) in _PLAIN:
            out[public] = value
            continue
        if isinstance(value, Section):
            value = plan_to_dict(value)
        elif isinstance(value, Mapping):
            value = dict(value)
        elif isinstance(value, tuple):
            value = list(value)
        if value != {}:
            out[public] = value
    return out


_PLAIN = frozenset({str, int, float, bool})


@cache
def _public_names(cls: type[Section]) -> tuple[tuple[str, str, Any], ...]:
    """A record's fields, their public names, and for those that are records their defaults."""
    plain = cls()
    defaults = (getattr(plain, name) for name in cls.__struct_fields__)
    return tuple(
        (name, public, default if isinstance(default, Section) else None)
        for name, public, default in zip(
            cls.__struct_fields__, cls.__struct_encode_fields__, defaults, strict=True
        )
    )
