"""How wide an element of each kind is, in bytes."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from oomlint.memory.ranks import Ranks
from oomlint.memory.result import Assume
from oomlint.memory.trained import Trained, is_adapted
from oomlint.plan import Plan
from oomlint.plan.fields import f as fields
from oomlint.plan.model import BYTES_PER_ELEMENT

# Policies of these gather parameters in the dtype of computing, or one of their own.
_GATHERING = ("fsdp1", "fsdp2", "zero", "megatron")
_TORCH = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


class BytesPer(Struct, frozen=True, gc=False):
    """Bytes an element."""

    weight: float
    """As parameters are stored."""
    compute: float
    """As matrix products take them; at least 2."""
    stream: float
    """What modules see and hand on."""
    grad: float
    optim_state: float
    master: float
    """Of copies of the weights in more bits; 0 where there are none."""
    adapter: float
    """Of adapters; 0 where nobody says it and there are none."""
    trained: float
    """Of what is trained beside a frozen model, on the mean."""


def bytes_per_element(plan: Plan, ranks: Ranks, assume: Assume) -> BytesPer:
    """The widths of a plan, as if copies of whole modules beside adapters were as wide as these."""
    p, t = plan.precision, plan.trainable
    weight = width(_stored(plan, assume)) or 2.0
    said = width(p.compute)
    compute = max(2.0, weight if said is None else said)
    storage = weight if weight >= 2 else compute
    adapter = width(t.adapter_dtype)
    grad, state = width(p.grad), width(p.optim_state)
    if grad is None:
        grad = (adapter or 4.0) if is_adapted(plan) else storage
    gathers = ranks.backend in _GATHERING and p.compute is not None
    trained = adapter or (grad if is_adapted(plan) else 0.0)
    return BytesPer(
        weight=weight,
        compute=compute,
        stream=(width(p.gathered) or compute) if gathers else storage,
        grad=grad,
        optim_state=grad if state is None else state,
        master=width(p.master) or 0.0,
        adapter=trained,
        trained=trained,
    )


def with_saved_copies(bytes_per: BytesPer, plan: Plan, trained: Trained) -> BytesPer:
    """Copies of whole modules that keep the base's dtype beside adapters of another: widths are the mean of both.
    Gradients and torch's optimizer states are as wide as their parameter."""
    own = width(plan.trainable.saved_dtype)
    if own is None or not trained.lora or not trained.numel:
        return bytes_per
    copies = trained.saved_numel / trained.numel
    return replace(
        bytes_per,
        trained=bytes_per.trained + copies * (own - bytes_per.trained),
        grad=bytes_per.grad + copies * (own - bytes_per.grad),
        optim_state=bytes_per.optim_state + copies * (own - bytes_per.optim_state),
    )


def width(dtype: str | None) -> float | None:
    """Bytes an element of a dtype; ``None`` where it is not known."""
    return BYTES_PER_ELEMENT.get(dtype) if dtype is not None else None


def _stored(plan: Plan, assume: Assume) -> str:
    """The dtype of parameters: what is said of them, else of loading, else PyTorch's own."""
    if plan.precision.param is not None:
        return plan.precision.param
    load: str | None = plan.load.dtype
    if load == "auto":
        load = _TORCH.get(plan.model.ckpt_dtype or "bfloat16", plan.model.ckpt_dtype or "bf16")
    if load is not None and load in BYTES_PER_ELEMENT:
        return load
    why = "PyTorch creates parameters in fp32"
    return str(assume(fields.precision.param, "fp32", why))
