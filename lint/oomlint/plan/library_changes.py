"""What libraries do otherwise from one release on, where that moves memory.

A :class:`LibraryChange` stands beside the row or the effect that it decides. Where a run's project pins
the library, the pin tells which side of the change it is on; where nobody does, the newest release
is taken and the change stays open: see ``Run.alternatives``.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from msgspec import Struct

Release = tuple[int, ...]
"""Numbers of a version, major first."""


class LibraryChange(Struct, frozen=True):
    """One difference between the releases of a library.

    ``since`` is the first release with what is true today. ``before`` completes "before trl 1.6
    ..." for a reader, and ``after``, where the newest release is not what is taken, "from 1.6 on
    ...". ``was`` is the earlier default, where the change is one of a default. ``source`` says
    where both sides were read.
    """

    package: str
    since: Release
    before: str
    source: str
    was: Any = None
    after: str = ""

    @property
    def release(self) -> str:
        """The first release with the change: ``1.6``."""
        return ".".join(map(str, self.since))

    @property
    def last_without(self) -> str:
        """A version below the change and above all that came before, for resolving with."""
        numbers = list(self.since)
        while len(numbers) > 1 and not numbers[-1]:
            numbers.pop()
        numbers[-1] -= 1
        return ".".join(map(str, (*numbers, _LAST)))


# Above every minor version and patch that a library of ours has had.
_LAST = 9999


@lru_cache(maxsize=256)
def release_of(version: str | None) -> Release | None:
    """The numbers of a version: ``(1, 10, 0)`` of ``1.10.0.dev0``; ``None`` where there are none."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", version or "")
    return None if found is None else tuple(map(int, found[1].split(".")))


# -- those that the arithmetic itself knows ------------------------------------------------------

STACKED_EXPERTS = LibraryChange(
    "transformers",
    (5, 0),
    "experts are linear layers of their own, which bitsandbytes quantizes",
    "transformers 4.57 and 5.0 models/mixtral/modeling_mixtral.py",
)
TRANSLATED_EXPERTS = LibraryChange(
    "peft",
    (0, 19),
    "adapters named after the layers of single experts reach no stack of them",
    "peft 0.18.1 and 0.19.1 tuners/tuners_utils.py inject_adapter",
)
ADDED_IN_PLACE = LibraryChange(
    "peft",
    (0, 21),
    "a second tensor as large as the stack of experts holds what adapters add to it",
    "peft 0.20.0 and 0.21.2 tuners/lora/layer.py ParamWrapper._activate_lora",
)
NARROW_LOGITS = LibraryChange(
    "transformers",
    (4, 46),
    "models return their logits in fp32",
    "transformers 4.45 and 4.46 models/llama/modeling_llama.py",
)
SHIFTED_LABELS = LibraryChange(
    "transformers",
    (4, 49),
    "the loss cuts a shifted copy from the fp32 logits",
    "transformers 4.48.3 and 4.49.0 loss/loss_utils.py ForCausalLMLoss",
)
LAST_LOGITS = LibraryChange(
    "transformers",
    (4, 45),
    "generation begins with the logits of every token of the prompts",
    "transformers 4.44.2 and 4.45.0 generation/utils.py _sample, models/llama/modeling_llama.py",
)
PACKED_BY_ONE_RANK = LibraryChange(
    "transformers",
    (4, 45),
    "every rank keeps the packed weights in RAM that rank 0 alone is to load",
    "transformers 4.44.2 and 4.45.2 modeling_utils.py _load_state_dict_into_meta_model",
)
# Own RAM of a process that loads 2.9 GiB of four files in their dtype: 3.3 GiB with 4.37.2, 3.4 with 4.42.4, 1.4 with
# 4.43.4 and 4.44.2, where the first file alone stays mapped, and none with 4.45.2, 4.46.3, 4.49.0, 4.57.1 and 5.23.0; of
# releases since, 4.50.3 took 1.9.
MAPPED_WEIGHTS = LibraryChange(
    "transformers",
    (4, 45),
    "every rank copies the weights out of their memory-mapped files",
    "measured: benchmarks/measure/loading.py",
)
FLATTENED_ON_HOST = LibraryChange(
    "deepspeed",
    (0, 18, 7),
    "every rank under ZeRO 1 or 2 flattens what it trains in RAM",
    "DeepSpeed v0.9.5, v0.14.0 and v0.18.7 runtime/zero/stage_1_and_2.py __init__",
)
