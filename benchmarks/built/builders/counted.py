"""What every builder shares: a process group of one rank, and the counts of a model on the meta device."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any


def on_meta() -> AbstractContextManager[Any]:
    """Everything that is made, also what names a GPU as its place, has a shape and no memory."""
    import torch
    from torch.overrides import TorchFunctionMode

    class OnMeta(TorchFunctionMode):
        def __torch_function__(
            self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            given = dict(kwargs or {})
            if "device" in given:
                given["device"] = "meta"
            with torch.device("meta"):
                return func(*args, **given)

    return OnMeta()


def alone() -> None:
    """One rank by itself with a GPU by number: classes that ask for groups of ranks find one of each."""
    import torch
    import torch.distributed as dist

    torch.cuda.current_device = lambda: 0
    torch.cuda.get_device_properties = lambda *_device: SimpleNamespace(
        major=8, minor=0, multi_processor_count=108
    )

    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


def counts(model: Any, layers: int, heads: int | None, kv_heads: int | None) -> dict[str, Any]:
    """Parameters, each once, and those that get gradients."""
    parameters = {id(p): p for p in model.parameters()}.values()
    return {
        "class": type(model).__name__,
        "parameters": sum(p.numel() for p in parameters),
        "trained": sum(p.numel() for p in parameters if p.requires_grad),
        "layers": layers,
        "heads": heads,
        "kv_heads": kv_heads,
    }
