"""Folds the many spellings of a GPU's name to a key and a memory size."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from msgspec import Struct

# Words that tell the maker, the form factor or the memory, and never which GPU it is.
_NOISE: Final = frozenset(
    "nvidia tesla geforce quadro amd instinct radeon huawei intel habana hl npu "
    "sxm sxm2 sxm3 sxm4 sxm5 sxm6 pcie pcie4 pcie5 hbm2 hbm2e hbm3 hbm3e oam ac "
    "generation graphics server workstation edition data center gpu".split()
)


class Folded(Struct, frozen=True):
    """``key`` is the name without maker, form factor and size (``a100``, ``rtx6000ada``);
    ``gigabytes`` the size as spelled; ``mig`` a MIG profile (``3g.40gb``)."""

    key: str
    gigabytes: int | None
    mig: str | None


@cache
def _mig() -> re.Pattern[str]:
    return re.compile(r"(?:^|[-_ ])mig[-_ ]?(?P<profile>\d+g\.\d+gb)", re.IGNORECASE)


@cache
def _size() -> re.Pattern[str]:
    return re.compile(r"(\d{1,4})(?:gb?|gib)")


def fold_gpu(text: str) -> Folded:
    """The key of any common spelling: nvidia-smi names, Kubernetes ``gpu.product`` labels,
    SLURM gres types, names that clouds and people use."""
    mig = None
    found = _mig().search(text)
    if found:
        mig = found["profile"].lower()
        text = text[: found.start()]
    text = text.lower().replace("max-q", " ")
    words = [w for w in re.split(r"[^a-z0-9]+", text) if w]
    gigabytes = None
    kept = []
    for word in words:
        size = _size().fullmatch(word)
        if size and len(words) > 1:
            gigabytes = int(size[1])
        elif word not in _NOISE:
            kept.append(word)
    key = "".join(kept)
    joined = re.fullmatch(r"(.*[a-z]\d+[a-z]?)[ _-]?(\d{2,3})g(?:b|ib)?", key)
    if gigabytes is None and joined and len(words) > 1:
        key, gigabytes = joined[1], int(joined[2])
    return Folded(key, gigabytes, mig)
