"""What DeepSpeed's engine can train that plain data parallelism has trained so far."""

from __future__ import annotations

from collections.abc import Mapping as MappingABC
from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.deepspeed.keys import ds
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

# ZeRO steps on flat tensors in place of the parameters (DeepSpeed 0.19.8 runtime/zero/stage_1_and_2.py
# single_partition_of_fp32_groups, stage3.py fp32_partitioned_groups_flat): these work element by element, where others look at
# matrices (Muon, GaLore, APOLLO, Adafactor's moments of rows and columns) or at names of parameters (Adam-mini).
_BY_ELEMENT = (
    "adamw", "adamw8bit", "paged_adamw", "paged_adamw8bit", "lion", "lion8bit", "paged_lion", "paged_lion8bit",
    "sgd", "momentum_sgd", "rmsprop", "adagrad",
)  # fmt: skip
# Whatever else is offloaded becomes an Adam of DeepSpeed's (accelerate 1.15 utils/deepspeed.py map_pytorch_optim_to_deepspeed;
# Adagrad keeps its kind there, and is refused by DeepSpeed 0.19.8 runtime/engine.py _configure_optimizer).
_OFFLOADED = ("adamw", "lion")


def can_take_over(wishes: MappingABC[Any, Any], run: Cells) -> bool:
    """Whether a run goes on as it is, but for rounding, once DeepSpeed trains it with what is wished for. PPO steps
    several models by a loop of its own, and layers in 8 bits are set up for each engine by itself."""
    optimizer = wishes.get(f.optimizer.kind, run[f.optimizer.kind])
    offloads = wishes.get(f.offload.optimizer) not in (None, "none")
    takes_fp8 = run[f.precision.fp8_train] not in (None, "none")
    if run[f.objective.kind] == "ppo" or takes_fp8:
        return False
    return optimizer in (_OFFLOADED if offloads else _BY_ELEMENT)


def steps_in_host_ram(optimizer: str | None) -> bool:
    """Whether DeepSpeed steps an optimizer of this kind in host RAM as what it is."""
    return optimizer is None or optimizer in _OFFLOADED


def check_states(run: Cells) -> None:
    """See that states keep their width in host RAM: DeepSpeed's Adam of the host makes them in fp32 unless it is told
    otherwise (deepspeed 0.18.5 ops/adam/cpu_adam.py fp32_optimizer_states), which edaa7221 refuses beside states in bf16
    (runtime/base_optimizer.py).

    Raises:
        CannotEdit: they would not.
    """
    if run[ds.bf16_states]:
        raise CannotEdit(
            "bf16_optimizer_states keeps the optimizer's states in 16 bits, and they would be in 32"
        )
