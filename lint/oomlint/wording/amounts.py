"""Amounts as people read them."""

from __future__ import annotations

from collections.abc import Sequence


def gib(size: float | None) -> str:
    """``68.4 GiB``; small sizes in MiB, unknown as such."""
    if size is None:
        return "an unknown amount"
    if abs(size) < 2**30:
        return f"{size / 2**20:.0f} MiB"
    value = size / 2**30
    return f"{value:.0f} GiB" if abs(value) >= 100 else f"{value:.1f} GiB"


def of_gib(size: float, limit: float) -> str:
    """``88.7 of 79.1 GiB``: a need and its limit in one unit."""
    return f"{gib(size).removesuffix(' GiB')} of {gib(limit)}"


def count(number: float) -> str:
    """Parameter counts as people say them: ``70.6B``, ``350M``."""
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if abs(number) >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:g}"


def percent(share: float) -> str:
    """``45 %``; what is nearly none or nearly all as such."""
    if share < 0.01:
        return "< 1 %"
    return "> 99 %" if share > 0.99 else f"{share * 100:.0f} %"


def enumerated(words: Sequence[str]) -> str:
    """``a, b and c``."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"
