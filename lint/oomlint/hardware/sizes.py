"""Amounts of memory as people write them."""

from __future__ import annotations

import re
from typing import Final

from oomlint.errors import UsageError

_POWERS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_PATTERN: Final = (
    r"\s*(?P<number>[0-9]{1,15}(?:\.[0-9]{1,6})?)\s*(?P<prefix>[kmgtp]?)(?P<unit>ib|b|i)?\s*"
)


# No machine that trains has less; who writes "512" means gibibytes.
_LEAST = 2**20


def parse_bytes(text: str) -> int:
    """``"512GiB"``, ``"2TB"``, ``"64G"``, ``"1.5TiB"``, ``"68719476736"`` as bytes.

    Every prefix is a power of 1024, with or without the ``i``: memory is sold, and written
    in SLURM's ``--mem``, docker's ``--memory`` and cloud consoles, in such units whatever
    the letters say (a "2 TB" server has 32 x 64 GiB). A bare number is bytes. Raises
    :class:`~oomlint.errors.UsageError` for anything else, and for less than a MiB.
    """
    found = re.fullmatch(_PATTERN, text, re.IGNORECASE)
    if found is None:
        raise UsageError(f"{text!r} is no amount of memory; write it like 512GiB or 1.5TiB")
    unit: int = 1024 ** _POWERS[found["prefix"].lower()]
    amount = round(float(found["number"]) * unit)
    if amount < _LEAST:
        hint = "" if found["prefix"] or amount <= 0 else f": did you mean {found['number']}GiB?"
        raise UsageError(f"{text!r} is no amount of memory that a machine can have{hint}")
    return amount
