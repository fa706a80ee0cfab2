"""LoRA in forks of slime, which itself has none.

Read from radixark/miles 31f1ca96 (2026-08-21) miles/utils/arguments.py; Gen-Verse/OpenClaw-RL names its
options alike. slime would pass over them in silence, as over all that it does not know.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.adapters import checkpoint_layers
from oomlint.dialects.meaning import Meaning, Sourced, Wishes
from oomlint.dialects.slime.keys import ARGUMENTS, own
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

adapters = Meaning()

_FORK = "miles 31f1ca96 miles/utils/arguments.py add_lora_arguments"
_IS_FORK = "slime itself has no LoRA, so that a fork of it runs which has: miles, OpenClaw-RL"


def has_adapters(run: Cells) -> bool:
    return bool(run[own.rank])


@adapters.derive(f.trainable.method, source=ARGUMENTS)
def method(run: Cells) -> Any:
    """Which of the parameters patterns of Megatron's names leave, nothing here tells."""
    if run.is_unread(own.rank):
        return None
    if has_adapters(run):
        return Sourced("lora", _IS_FORK, is_assumed=True)
    is_part = run.mentions(own.trained) or run.mentions(own.frozen)
    return None if is_part else "full"


@method.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wanted != "full":
        raise CannotEdit("slime trains the whole model; LoRA is in forks of it alone")
    return {}


@adapters.derive(
    f.trainable.r, f.trainable.alpha, f.trainable.dropout, f.trainable.targets,
    f.trainable.adapter_dtype, source=_FORK,
)  # fmt: skip
def adapter(run: Cells) -> Any:
    if not has_adapters(run):
        return None
    named = run[own.targets] or ("all-linear",)
    targets = checkpoint_layers(named)
    return {
        f.trainable.r: run[own.rank],
        f.trainable.alpha: run.get(own.alpha, 16.0),
        f.trainable.dropout: run.get(own.dropout, 0.0),
        f.trainable.targets: "all_linear" if named == ("all-linear",) else targets,
        f.trainable.adapter_dtype: "bf16",
    }
