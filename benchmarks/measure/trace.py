"""Records every request and free of real training steps: ``python trace.py SIMULATOR CASES.jsonl FOLDER``.

The steps are those of ``step.py``'s simulator on fake CUDA tensors: the model is loaded, a first step makes the
optimizer's states, the next one is what every further step is. Each is recorded at two lengths, so that the
size of a request is known at any: bytes a token, and fixed ones. What stays below 1 MiB at 8,192 tokens is left out, for
torch keeps it in a pool of its own. A file has three lists, ``load``, ``first`` and ``next``; a request is a pair of numbers,
a free the number of the request, counted from 0 through all three. ``python -m benchmarks.allocator`` replays them.
"""

from __future__ import annotations

import gc
import gzip
import json
import sys
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Case = Mapping[str, Any]
PARTS = ("load", "first", "next")
# torch's small pool (c10/cuda/CUDACachingAllocator.cpp kSmallSize), and the longest sample that is replayed.
_SMALL, _LONGEST = 1 << 20, 8192


def record(case: Case, length: int) -> dict[str, list[tuple[int, int]]]:
    """The requests and frees of a case: a number and its bytes, or -1 where it is freed."""
    import measure as simulator
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    class Recorder(simulator.Tracker):  # type: ignore[name-defined, misc]
        events: list[tuple[int, int]]
        made: int

        def add(self, storage: Any) -> None:
            key, size = storage._cdata, storage.nbytes()
            if key in self.live or not size:
                return
            number = self.made
            self.made += 1
            self.live[key] = size
            self.total += size
            self.events.append((number, size))

            def died(_: Any, key: int = key, number: int = number) -> None:
                if key in self.live:
                    self.total -= self.live.pop(key)
                    del self.refs[key]
                    self.events.append((number, -1))

            self.refs[key] = weakref.ref(storage, died)

    simulator.SDPA_KERNELS.clear()
    torch.nn.functional.scaled_dot_product_attention = simulator.cuda_like_sdpa
    gc.collect()
    gc.disable()
    tracker, found = Recorder(), {}
    tracker.events, tracker.made = [], 0
    with FakeTensorMode(allow_non_fake_inputs=False):
        model, _ = simulator.build(case, case.get("layers"))
        if case["method"] == "lora":
            model = simulator.apply_lora(model, case["lora"])
        model.train()
        if case["gc"]:
            model.gradient_checkpointing_enable(
                gradient_checkpointing_kwargs={"use_reentrant": False}
            )
            if case["method"] == "lora":
                model.enable_input_require_grads()
        for tensor in (*model.parameters(), *model.buffers()):
            tracker.add(tensor.untyped_storage())
        found["load"], tracker.events = tracker.events, []
        trained = [p for p in model.parameters() if p.requires_grad]
        with tracker:
            optimizer = simulator.make_opt(case["optimizer"], trained)
            for part in PARTS[1:]:
                ids = torch.zeros(case["micro_batch"], length, dtype=torch.long, device="cuda")
                labels = torch.zeros_like(ids)
                loss = model(input_ids=ids, labels=labels).loss
                tracker.phase = "backward"
                loss.backward()
                torch.nn.utils.clip_grad_norm_(trained, 1.0, foreach=True)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                del loss, ids, labels
                tracker.phase = "forward"
                gc.collect()
                found[part], tracker.events = tracker.events, []
    gc.enable()
    return found


def compact(short: Mapping[str, Any], long: Mapping[str, Any], lengths: tuple[int, int]) -> Any:
    """The two recordings as one, with numbers for sizes at any length."""
    numbers: dict[int, int] = {}
    found: dict[str, list[Any]] = {}
    for part in PARTS:
        events = found[part] = []
        for (number, low), (other, high) in zip(short[part], long[part], strict=True):
            if number != other:
                raise ValueError("the two lengths do not run the same operations")
            if low < 0:
                if number in numbers:
                    events.append(numbers.pop(number))
                continue
            slope = (high - low) / (lengths[1] - lengths[0])
            fixed = round(low - slope * lengths[0])
            if slope * _LONGEST + fixed > _SMALL:
                numbers[number] = sum(isinstance(e, list) for p in found.values() for e in p)
                events.append([round(slope, 3), fixed])
    return found


def main(simulator: str, cases: str, folder: str) -> int:
    # The simulator registers its CUDA guard before anything else imports torch.
    sys.path.insert(0, simulator)
    import measure
    import torch
    import transformers

    assert measure is not None
    for line in Path(cases).read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        lengths = (1024, 2048)
        found = compact(record(case, lengths[0]), record(case, lengths[1]), lengths)
        found["case"] = case
        found["versions"] = {"torch": torch.__version__, "transformers": transformers.__version__}
        text = json.dumps(found, separators=(",", ":"), sort_keys=True)
        place = Path(folder) / f"{case['id']}.json.gz"
        place.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
        print(case["id"], *(len(found[part]) for part in PARTS), flush=True)
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
