"""``optim`` of transformers' Trainer in canonical terms.

Read from transformers 5.23 (``HF`` below is ``src/transformers``).
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.deepspeed.keys import ds
from oomlint.dialects.kinds import OPTIMIZER_KINDS
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.dialects.trainer.fields import hf
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

optimizers = Meaning()


@optimizers.override(f.optimizer.name)
def adafactor(run: Cells) -> Any:
    return "adafactor" if run[hf.adafactor] else None


def _of_json(run: Cells) -> str | None:
    """HF/integrations/deepspeed.py deepspeed_optim_sched: the JSON's optimizer wins."""
    own = run[ds.optimizer]
    return own if run[f.parallel.backend] == "zero" else None


@optimizers.derive(f.optimizer.kind)
def kind(run: Cells) -> Any:
    name = run[f.optimizer.name]
    if name is None:
        return None
    own = _of_json(run)
    return own if own is not None else OPTIMIZER_KINDS.get(name, "other")


@optimizers.derive(
    f.optimizer.fused, f.optimizer.foreach, f.optimizer.in_backward, f.optimizer.paged
)
def variant(run: Cells) -> Any:
    name = run[f.optimizer.name]
    if name is None:
        return None
    # DeepSpeed makes its own fused Adam unless it is asked for torch's (runtime/engine.py _configure_basic_optimizer).
    is_deepspeeds = _of_json(run) == "adamw" and not run[ds.torch_adam]
    return {
        f.optimizer.fused: name.endswith("_fused") or is_deepspeeds,
        # torch.optim.AdamW takes foreach where it is not told to fuse.
        f.optimizer.foreach: name in ("adamw_torch", "adamw_hf"),
        # HF/trainer_optimizer.py:164: a hook steps each parameter as soon as its gradient is there.
        f.optimizer.in_backward: name.endswith("_layerwise"),
        f.optimizer.paged: str(run[f.optimizer.kind]).startswith("paged_"),
    }


@optimizers.derive(f.optimizer.groups, source="HF/trainer.py create_optimizer")
def groups(run: Cells) -> Any:
    """Norms and biases have no decay and a group of their own; DeepSpeed's own optimizer gets all
    parameters as one (HF/integrations/deepspeed.py deepspeed_optim_sched). Adapters have no norms."""
    if run[f.optimizer.name] is None:
        return None
    is_one = _of_json(run) is not None or run[f.trainable.method] not in ("full", "freeze")
    return 1 if is_one else 2


@optimizers.derive(f.optimizer.rank)
def rank(run: Cells) -> Any:
    """``rank`` of ``optim_args``: ``"rank=64, update_proj_gap=100"``."""
    if run[f.optimizer.name] is None:
        return None
    for part in str(run[hf.optim_args] or "").split(","):
        key, _, value = part.partition("=")
        if key.strip() == "rank" and value.strip().isdigit():
            return int(value)
    return None


# -- wishes ----------------------------------------------------------------------------------------

# The names of HF/training_args.py OptimizerNames that fixes propose.
OPTIMIZER_NAMES = {
    "adamw": "adamw_torch_fused",
    "adamw8bit": "adamw_8bit",
    "adamw4bit": "adamw_torch_4bit",
    "paged_adamw": "paged_adamw_32bit",
    "paged_adamw8bit": "paged_adamw_8bit",
    "adafactor": "adafactor",
    "lion": "lion_32bit",
    "lion8bit": "lion_8bit",
    "paged_lion": "paged_lion_32bit",
    "paged_lion8bit": "paged_lion_8bit",
    "sgd": "sgd",
}


def _check_own(run: Cells) -> None:
    if _of_json(run) is not None:
        raise CannotEdit("the optimizer is set in the DeepSpeed config; change it there")


def _check_offloaded(wanted: Any, run: Cells, wishes: Wishes) -> None:
    """accelerate 1.6 utils/deepspeed.py map_pytorch_optim_to_deepspeed: of what is offloaded DeepSpeedCPUAdam
    takes the place, whatever optimizer it was."""
    offloaded = (
        wishes[f.offload.optimizer] if f.offload.optimizer in wishes else run[f.offload.optimizer]
    )
    if wanted != "adamw" and offloaded not in (None, "none") and run[f.parallel.backend] == "zero":
        raise CannotEdit("DeepSpeed's own Adam takes the place of an optimizer that is offloaded")


@optimizers.written(f.optimizer.kind)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    _check_own(run)
    _check_offloaded(wanted, run, wishes)
    if wanted not in OPTIMIZER_NAMES:
        raise CannotEdit(f"the Trainer has no optimizer for {wanted}")
    return {f.optimizer.name: OPTIMIZER_NAMES[wanted]}


@optimizers.written(f.optimizer.fused, f.optimizer.foreach)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if f.optimizer.kind in wishes:
        return {}  # the kind decides
    _check_own(run)
    if run[f.optimizer.kind] != "adamw":
        raise CannotEdit("only AdamW has a fused variant here")
    fused = wishes.get(f.optimizer.fused) or wishes.get(f.optimizer.foreach) is False
    return {f.optimizer.name: "adamw_torch_fused" if fused else "adamw_torch"}


optimizers.follows(f.precision.optim_state)
