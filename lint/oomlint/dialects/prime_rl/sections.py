"""Which sections of a config of prime-rl are on."""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.prime_rl.keys import own
from oomlint.plan.fields import f


def is_on(section: Any) -> bool:
    """A section is on where it is there, and ``"None"`` turns it off."""
    return section is not None and section != "None"


_SECTIONS = {
    own.lora: (f.trainable.r, f.trainable.alpha, f.trainable.dropout, own.targets, own.saved_modules),
    own.ac: (own.ac_mode, own.ac_every, own.ac_targets),
    own.ckpt: (own.interval, own.keep),
}  # fmt: skip


def has(run: Cells, section: Any) -> bool:
    """Whether a section is on: so is one that an option says a key of: ``--model.lora.rank 16``."""
    return is_on(run[section]) or (
        not run.says(section) and any(run.says(key) for key in _SECTIONS[section])
    )


def is_sft(run: Cells) -> bool:
    return run[own.kind] == "sft"


def steps_on_cpu(run: Cells) -> bool:
    """Whether states are stepped in RAM (``full_offload``)."""
    return is_on(run[own.full_offload])
