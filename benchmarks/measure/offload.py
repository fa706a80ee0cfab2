"""Activations moved to the host by TRL's own hooks, with streams that do nothing.

On a GPU the copies run beside the computation; how long a tensor stays on the card meanwhile is decided by the
order of events that the hooks record, which is the same here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


class _Stream:
    """Stands for a CUDA stream on which everything is done as soon as it is asked for."""

    def wait_event(self, *_: Any) -> None:
        pass

    def wait_stream(self, *_: Any) -> None:
        pass

    def record_event(self) -> object:
        return object()

    def synchronize(self) -> None:
        pass


@contextlib.contextmanager
def _on(_: Any) -> Iterator[None]:
    yield


def context(model: Any) -> Any:
    """The context manager that TRL puts around a training step (``activation_offloading``)."""
    torch.cuda.default_stream = lambda *_: _Stream()
    torch.cuda.Stream = _Stream  # type: ignore[misc,assignment]
    torch.cuda.stream = _on  # type: ignore[assignment]
    torch.Tensor.record_stream = lambda *_: None  # type: ignore[assignment]
    torch.accelerator.current_accelerator = lambda *_, **__: torch.device("cuda")
    # Fake tensors have no addresses; their storages have.
    torch.UntypedStorage.data_ptr = lambda self: self._cdata  # type: ignore[assignment]
    from trl.models.activation_offloading import get_act_offloading_ctx_manager

    return get_act_offloading_ctx_manager(model, use_pin_memory=False)


def held(manager: Any) -> int:
    """Bytes that the hooks hold on the host at this moment."""
    return sum(
        entry[0].untyped_storage().nbytes() for entry in manager.tracker.values() if entry[1]
    )
