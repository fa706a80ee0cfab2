"""Which runs several rules are about."""

from __future__ import annotations

from oomlint.dialects.block import Block
from oomlint.dialects.machine.fields import launch
from oomlint.dialects.machine.launcher_keys import PLAIN
from oomlint.plan.fields import f
from oomlint.plan.training import REINFORCING
from oomlint.runs.run import Run

UNDER_ZERO_3 = {f.parallel.backend: ("zero",), f.parallel.zero.stage: (3,)}
"""For ``Where(plan=…)``: DeepSpeed shards parameters, too."""

ADAPTERS = frozenset({"lora", "dora", "qlora", "oft", "adapter"})
"""Methods that train what is small beside the model."""

RAY_TRAINERS = ("verl", "easyr1", "openrlhf", "slime", "nemo-rl", "roll")
"""Frameworks that start their ranks by Ray, where they do not train by themselves."""


def ray_starts(run: Run) -> bool:
    """Whether Ray starts the ranks. Supervised training torchrun or deepspeed starts in verl (trainer/fsdp_sft_trainer.py),
    and whatever else than reinforces in OpenRLHF (cli/train_dpo.py and the like), as its first PPO (0.1 to 0.5
    cli/train_ppo.py); the others start it by Ray as well (NeMo-RL 0.3 examples/run_sft.py, slime 0.1 train_async.py,
    ROLL 0.1 pipeline/sft/sft_pipeline.py)."""
    placed = run.settings.get(launch.by_ray)
    if placed is not None and placed.value:
        return True
    kind = run.plan.objective.kind
    if run.framework not in RAY_TRAINERS:
        return False
    if run.framework == "openrlhf":
        return kind in REINFORCING and starts_alone(run)
    return run.framework != "verl" or kind != "sft"


def starts_alone(run: Run) -> bool:
    """Whether whatever starts a run starts one process of it: no launcher takes part."""
    blocks = (block for block, _ in run.parts.blocks if block.table.section == "launcher")
    return all(block.table is PLAIN for block in blocks)


def other_reader(run: Run, block: Block | None) -> str:
    """What may read a file instead of the framework, and take what that would refuse, in words; empty where nothing is
    known to."""
    return ("" if block is None else block.doubt) or run.parts.find_other_reader()


def unstarted(run: Run, block: Block) -> str:
    """That nothing here starts the framework with a config, in words; empty where something does, or the user named it, and
    of a file that the config names.

    What strangers' repositories hold against a framework in such files is mostly another program's: of 11 values that were
    told as errors none was refused (draws 14 to 35, ``python -m benchmarks.strangers.record``)."""
    root = run.parts.root
    if root is None or root.path != block.path or not run.parts.find_unstarted():
        return ""
    return f"nothing here starts {block.table.reader} with it: another program may read it"


def may_take(doubt: str) -> tuple[str, ...]:
    """What is said beside a refusal by a framework, where something else may read the file."""
    return (f"{doubt}, and may take it",) if doubt else ()
