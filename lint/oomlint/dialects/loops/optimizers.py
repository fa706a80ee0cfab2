"""Classes of optimizers in canonical terms."""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import uses_deepspeed
from oomlint.dialects.common.fields import shared
from oomlint.dialects.deepspeed.keys import ds
from oomlint.dialects.loops.fields import loop
from oomlint.dialects.meaning import Meaning
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

optimizers = Meaning()

# torch 2.9 optim; bitsandbytes 0.48 optim; torchao 0.14 optim; DeepSpeed edaa7221 ops/adam; apex
# optimizers; transformers 5.23 optimization.py. Of AdamW and Adam the states are the same.
KINDS = {
    "AdamW": "adamw", "Adam": "adamw", "FusedAdam": "adamw", "DeepSpeedCPUAdam": "adamw",
    "CPUAdam": "adamw", "AdamW32bit": "adamw", "Adam32bit": "adamw",
    "AdamW8bit": "adamw8bit", "Adam8bit": "adamw8bit", "AdamWFp8": "adamw8bit",
    "AdamW4bit": "adamw4bit",
    "PagedAdamW": "paged_adamw", "PagedAdam": "paged_adamw",
    "PagedAdamW32bit": "paged_adamw", "PagedAdam32bit": "paged_adamw",
    "PagedAdamW8bit": "paged_adamw8bit", "PagedAdam8bit": "paged_adamw8bit",
    "AnyPrecisionAdamW": "anyprecision_adamw", "Adafactor": "adafactor", "SGD": "sgd",
    "Lion": "lion", "Lion32bit": "lion", "Lion8bit": "lion8bit", "PagedLion": "paged_lion",
    "PagedLion32bit": "paged_lion", "PagedLion8bit": "paged_lion8bit", "RMSprop": "rmsprop", "Adagrad": "adagrad",
    "AdEMAMix": "ademamix", "Muon": "muon", "Lomo": "lomo", "AdaLomo": "adalomo", "CAME": "came",
    "Shampoo": "shampoo", "Lamb": "lamb", "LAMB": "lamb", "FusedLamb": "lamb", "FusedLAMB": "lamb",
    "AdamWScheduleFree": "schedule_free", "RAdamScheduleFree": "schedule_free",
    "SGDScheduleFree": "momentum_sgd",
}  # fmt: skip
_OF_TORCH = frozenset({"AdamW", "Adam", "SGD", "Adagrad", "RMSprop"})
_STAND_IN = "DummyOptim"


@optimizers.derive(f.optimizer.kind)
def kind(run: Cells) -> Any:
    name = run[loop.optimizer]
    of_config = run[ds.optimizer] if uses_deepspeed(run) else None
    if of_config is not None and name in (None, _STAND_IN):
        # accelerate 1.15 utils/deepspeed.py DummyOptim; DeepSpeed makes the optimizer itself.
        return of_config
    if name is None or name == _STAND_IN:
        return None
    found = KINDS.get(name, "other")
    if run[loop.bits] == 8 and found in ("adamw", "lion", "paged_adamw", "paged_lion"):
        return f"{found}8bit"
    return found


@optimizers.derive(
    shared.stops, source="accelerate 0.12.0 and 1.14.0 accelerator.py _prepare_deepspeed"
)
def refused_beside_config(run: Cells) -> Any:
    """Accelerate takes one optimizer, that of the script or that of the DeepSpeed config, of which the script then
    prepares a stand-in."""
    if run[loop.kind] != "accelerate" or not uses_deepspeed(run):
        return None
    made, configured = run[loop.optimizer], run[ds.optimizer]
    if made in (None, _STAND_IN) or configured is None:
        return None
    return "Accelerate refuses the script's optimizer beside that of the DeepSpeed config"


@optimizers.assume(f.optimizer.kind, why="which optimizer is made is not said here: most are AdamW")
def likely(run: Cells) -> Any:
    return None if run.is_unread(loop.optimizer) else "adamw"


@optimizers.written(f.optimizer.kind)
def _(wanted: Any, run: Cells, wishes: Any) -> Any:
    raise CannotEdit("the script itself has to make another optimizer")


optimizers.takes(f.optimizer.name, loop.optimizer)


@optimizers.default(f.optimizer.fused, f.optimizer.foreach, source="torch 2.9 optim/adamw.py")
def variant(run: Cells) -> Any:
    """torch steps all parameters at once (foreach) unless it is told otherwise."""
    if run[loop.optimizer] is None:
        return None
    fused = run.stated(f.optimizer.fused) is not None
    return {
        f.optimizer.fused: False,
        f.optimizer.foreach: run[loop.optimizer] in _OF_TORCH and not fused,
    }


optimizers.follows(f.precision.optim_state)
