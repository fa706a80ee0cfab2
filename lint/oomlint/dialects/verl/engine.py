"""Which of verl's trainers runs, and upon which backend."""

from __future__ import annotations

from typing import Literal

from oomlint.dialects.cells import Cells
from oomlint.dialects.verl.keys import VERL_PPO, VERL_SFT, own
from oomlint.plan.fields import f


def running_trainer(run: Cells) -> Literal["ppo", "sft", "engine"]:
    if run.has_block_of(VERL_PPO):
        return "ppo"
    return "sft" if run.has_block_of(VERL_SFT) else "engine"


def is_megatron(run: Cells) -> bool:
    strategy = run[own.strategy]
    if strategy is not None:
        return strategy == "megatron"
    names = (run[own.config_name], run[own.model_engine], run[own.engine])
    if any("megatron" in name for name in names if isinstance(name, str)):
        return True
    return run.says(f.parallel.tp) or run.says(f.parallel.pp)


def fsdp_version(run: Cells) -> Literal[1, 2]:
    return 2 if run[own.strategy] == "fsdp2" else 1
