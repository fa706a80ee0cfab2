"""Records on which stream each request of sharded steps is made: ``python streams.py SIMULATOR FOLDER``.

The steps are those of the simulator's ``shard.py``, on fake CUDA tensors and a fake process group: three of Llama-3-8B with
six of its layers, under FSDP1 and FSDP2. A line of a file is one event: a request (its number, bytes, stream), a free, a
stream that works on a block (``record_stream``), an event that is recorded, and one that the CPU waits for (FSDP1's limit on
gathers). ``python -m benchmarks.allocator.streams FOLDER`` replays them.
"""

from __future__ import annotations

import contextlib
import gc
import json
import sys
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

LAYERS = 6
_COMMON: Mapping[str, Any] = {
    "model": "llama-3-8b", "regime": "pure_bf16", "attn": "sdpa", "gc": True, "optimizer": "adamw_fused", "micro_batch": 1,
    "seq_len": 2048, "method": "full", "lora": None, "world": 8, "mp_policy": "accelerate", "nsteps": 3,
}  # fmt: skip
_FSDP1: Mapping[str, Any] = {
    **_COMMON, "strategy": "fsdp1", "wrap": "transformer", "sharding": "FULL_SHARD", "autocast": True, "reshard": None,
}  # fmt: skip
_FSDP2: Mapping[str, Any] = {
    **_COMMON, "strategy": "fsdp2", "wrap": "accelerate1.15", "reshard": True,
}  # fmt: skip
_CHANGES: Mapping[str, Mapping[str, Any]] = {
    "core": {},
    "no checkpointing": {"gc": False, "seq_len": 1024},
    "8,192 tokens": {"seq_len": 8192},
    "foreach": {"optimizer": "adamw_foreach"},
    "fp32 reduction": {"mp_policy": "fp32reduce"},
    "two ranks": {"world": 2},
}
CASES: Mapping[str, Mapping[str, Any]] = {
    **{f"FSDP1, {name}": {**_FSDP1, **change} for name, change in _CHANGES.items()},
    "FSDP1, SHARD_GRAD_OP": {**_FSDP1, "sharding": "SHARD_GRAD_OP"},
    **{f"FSDP2, {name}": {**_FSDP2, **change} for name, change in _CHANGES.items()},
    "FSDP2, the rest in the root": {**_FSDP2, "wrap": "root"},
    "FSDP2, no reshard": {**_FSDP2, "reshard": False},
    "FSDP2, no reshard, no checkpointing": {
        **_FSDP2,
        "reshard": False,
        "gc": False,
        "seq_len": 1024,
    },
}


class Log:
    """The events so far, the number of each storage that is alive, and the streams that the program has entered."""

    def __init__(self) -> None:
        self.events: list[list[Any]] = []
        self.numbers: dict[int, int] = {}
        self.entered: list[Any] = []

    def made(self, key: int, size: int, phase: str) -> None:
        self.numbers[key] = len(self.events)
        self.events.append(["made", len(self.events), size, self.entered[-1].number, phase])

    def freed(self, key: int) -> None:
        if key in self.numbers:
            self.events.append(["freed", self.numbers.pop(key)])

    def used(self, tensor: Any, stream: Any) -> None:
        number = self.numbers.get(tensor.untyped_storage()._cdata)
        if number is not None:
            self.events.append(["used", number, stream.number])

    @contextlib.contextmanager
    def within(self, stream: Any) -> Iterator[None]:
        self.entered.append(stream or self.entered[-1])
        try:
            yield
        finally:
            self.entered.pop()


def tell_streams_apart(fake: Any, log: Log) -> None:
    """Put streams and events that are logged in the place of the simulator's stubs."""
    import torch

    class Stream(fake.St):  # type: ignore[name-defined, misc]
        made = 0

        def __init__(self, *_: Any, **__: Any) -> None:
            self.number = self.stream_id = Stream.made
            Stream.made += 1

    class Event(fake.Ev):  # type: ignore[name-defined, misc]
        made = 0

        def __init__(self, *_: Any, **__: Any) -> None:
            Event.made += 1
            self.number = Event.made

        def record(self, stream: Any = None) -> Any:
            log.events.append(["event", self.number, (stream or log.entered[-1]).number])
            return self

        def synchronize(self) -> None:
            log.events.append(["waited", self.number])

    log.entered.append(Stream())
    install = fake.install

    def installed() -> None:
        install()
        cuda: Any = torch.cuda
        cuda.Stream, cuda.Event, cuda.stream = Stream, Event, log.within
        cuda.current_stream = torch.accelerator.current_stream = lambda *_, **__: log.entered[-1]
        cuda.default_stream = lambda *_, **__: log.entered[0]
        torch.Tensor.record_stream = lambda tensor, stream: log.used(tensor, stream)  # type: ignore

    fake.install = installed


def recorder(base: type[Any], log: Log) -> type[Any]:
    """The simulator's tracker, which says as well what is made, freed and resized."""

    class Recorder(base):  # type: ignore[misc, valid-type]
        def add(self, storage: Any) -> None:
            fresh = storage._cdata not in self.live
            super().add(storage)
            if fresh and self.live.get(storage._cdata):
                log.made(storage._cdata, self.live[storage._cdata], self.phase)

        def _watch(self, storage: Any, key: int) -> None:
            super()._watch(storage, key)
            died = self.refs[key].__callback__

            def told(reference: Any) -> None:
                if key in self.live:
                    log.freed(key)
                died(reference)

            self.refs[key] = weakref.ref(storage, told)

        def resized(self, storage: Any) -> None:
            key = storage._cdata
            before = self.live.get(key)
            super().resized(storage)
            if before == self.live.get(key):
                return
            if before:
                log.freed(key)
            if self.live.get(key) and key not in log.numbers:
                log.made(key, self.live[key], self.phase)

    return Recorder


def leave_out_shapes(simulator: Any, sharding: Any) -> None:
    """What DTensor asks of whole fake tensors, to learn a shape, is on no GPU."""
    asked = sharding.ShardingPropagator._propagate_tensor_meta_non_cached

    def unseen(self: Any, *args: Any, **kwargs: Any) -> Any:
        tracker = simulator._TR["t"]
        if tracker is None:
            return asked(self, *args, **kwargs)
        before, tracker.pause = tracker.pause, True
        try:
            return asked(self, *args, **kwargs)
        finally:
            tracker.pause = before

    sharding.ShardingPropagator._propagate_tensor_meta_non_cached = unseen


def main(simulator: str, folder: str) -> int:
    # The simulator registers its CUDA guard before anything else imports torch.
    sys.path.insert(0, simulator)
    import shard
    import torch.distributed.tensor._sharding_prop as sharding

    log = Log()
    tell_streams_apart(shard.fakecuda, log)
    leave_out_shapes(shard, sharding)
    shard.STracker = recorder(shard.STracker, log)
    for name, case in CASES.items():
        log.events.clear()
        log.numbers.clear()
        shard.run(case, LAYERS)
        gc.enable()
        gc.collect()
        said = {"name": name, "case": case, "layers": LAYERS, "events": log.events}
        (Path(folder) / f"{name}.json").write_text(json.dumps(said), encoding="utf-8")
        print(name, len(log.events), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
