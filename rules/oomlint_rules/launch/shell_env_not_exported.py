"""A variable that is set in the script and never reaches the training process.

## What it finds

Assignments in a shell script that a launch further down was meant to see and does not:
`CUDA_VISIBLE_DEVICES=0,1 && torchrun …`, `NPROC_PER_NODE=8; swift sft …`, or a line of its
own without `export`. It knows the variables that frameworks, torch, NCCL and CUDA read, and
is silent where the script exports the name elsewhere, uses its value itself, or says `set -a`.

## Why it runs out of memory

Without `export` a variable belongs to the shell alone. Then every card is visible, and a
process lands on one that another job fills; `PYTORCH_CUDA_ALLOC_CONF` does not reach the
allocator, which fragments as before; `NPROC_PER_NODE` is not read and one process trains
where eight were to share the states; `MAX_PIXELS` does not cap the images.

## How to fix it

`VAR=value command` on one line, or `export VAR=value`. The fix takes out the `&&` or `;`
where only that stands between the two, and writes `export` elsewhere.

## When not to

Where the job system exports everything that the script sets (`set -a` in a file that is
sourced first).

## Sources

* https://github.com/meta-llama/llama-cookbook/issues/556
  (`CUDA_VISIBLE_DEVICES=0,1 && torchrun …`)
* POSIX.1-2017, Shell Command Language, 2.9.1 Simple Commands and 2.14 `export`
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from oomlint.dialects.machine.visible import listed
from oomlint.documents.base import Fact
from oomlint.linting.rule import (
    Applicability,
    Finding,
    Severity,
    short,
)
from oomlint.runs.run import Run
from oomlint_rules._examples import LLAMA_FACTORY, example
from oomlint_rules._scripts import FactRule, mending

_RECIPE = (
    "torchrun --nnodes 1 --nproc_per_node 2 recipes/finetuning/finetuning.py --enable_fsdp"
    " --low_cpu_fsdp --use_peft --peft_method lora --model_name meta-llama/Meta-Llama-3-8B\n"
)
_CONSEQUENCES = {
    "CUDA_VISIBLE_DEVICES": "it sees every GPU of the machine",
    "HIP_VISIBLE_DEVICES": "it sees every GPU of the machine",
    "ASCEND_RT_VISIBLE_DEVICES": "it sees every NPU of the machine",
    "PYTORCH_CUDA_ALLOC_CONF": "torch's allocator runs with its defaults",
    "PYTORCH_ALLOC_CONF": "torch's allocator runs with its defaults",
    "NPROC_PER_NODE": "it starts as if the number of processes had not been given",
    "FORCE_TORCHRUN": "it starts without torchrun",
    "MAX_PIXELS": "images keep their default size limit",
    "VIDEO_MAX_PIXELS": "video frames keep their default size limit",
}

# Where what a run reports goes; it trains the same without.
_OF_LOGS = ("WANDB_", "MLFLOW_", "COMET_", "SWANLAB_", "NEPTUNE_")

# Variables of one framework's own launcher; torchrun and its like read none of them.
_SWIFT = frozenset({"ms-swift", "megatron-swift"})
_READ_BY = {
    "NPROC_PER_NODE": _SWIFT | {"llama-factory", "llama-factory-v1"},
    "NNODES": _SWIFT | {"llama-factory", "llama-factory-v1"},
    "FORCE_TORCHRUN": frozenset({"llama-factory", "llama-factory-v1"}),
}
# What starts the processes by itself asks for none of those.
_STARTS_ITSELF = frozenset({"torchrun", "accelerate", "deepspeed"})


class ShellEnvNotExported(
    FactRule, code="OOM702", fact="env-not-exported", fixes=Applicability.SAFE
):
    summary = "a variable that is set and not exported, so the training never sees it"

    bad = (
        example(
            {"train.sh": f"CUDA_VISIBLE_DEVICES=0,1 && {_RECIPE}"},
            {"train.sh": f"CUDA_VISIBLE_DEVICES=0,1 {_RECIPE}"},
        ),
        example(
            {"train.sh": f"CUDA_VISIBLE_DEVICES=5\n{_RECIPE}"},
            why="one card is not enough for the two processes: which of both is meant nobody knows",
        ),
        example(
            {"train.sh": f"WANDB_MODE=offline\n{_RECIPE}"}, why="a remark: the run trains the same"
        ),
        example(
            {
                "train.sh": (
                    "#!/bin/bash\n"
                    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True  # fewer holes\n"
                    "\n"
                    f"{_RECIPE}"
                )
            },
            {
                "train.sh": (
                    "#!/bin/bash\n"
                    "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True  # fewer holes\n"
                    "\n"
                    f"{_RECIPE}"
                )
            },
        ),
    )
    good = (
        example({"train.sh": f"CUDA_VISIBLE_DEVICES=0,1 {_RECIPE}"}),
        example({"train.sh": f"export CUDA_VISIBLE_DEVICES=0,1 && {_RECIPE}"}),
        example(
            {"train.sh": f"set -a\nCUDA_VISIBLE_DEVICES=0,1\n{_RECIPE}"},
            why="set -a exports what follows",
        ),
        example(
            {
                "train.sh": (
                    "NPROC_PER_NODE=2\n"
                    + _RECIPE.replace("--nproc_per_node 2", "--nproc_per_node $NPROC_PER_NODE")
                )
            },
            why="the script itself uses the value",
        ),
        example({"train.sh": f"NNODES=1\n{_RECIPE}"}, why="torchrun does not read it"),
        example(
            {"train.sh": "FORCE_TORCHRUN=1\ntorchrun src/train.py train.yaml\n"}
            | {"train.yaml": LLAMA_FACTORY},
            why="only llamafactory-cli asks for it, and torchrun is there already",
        ),
        example(
            {"train.sh": f"ACCELERATE_USE_DEEPSPEED=false\n{_RECIPE}"},
            why="without the line it is off, too",
        ),
    )

    def comes_of(self, fact: Fact, run: Run) -> Iterable[Finding]:
        name = fact.detail["name"]
        # What is off without the line, too, is not missed; a variable from outside stays exported.
        if fact.detail["value"].lower() == "false" or not _is_read(fact, run):
            return
        consequence = _CONSEQUENCES.get(name, "it runs as if the line were not there")
        joined = any(edit.start != edit.end for edit in fact.mend)
        title = f"set {name} for the command itself" if joined else f"export {name}"
        # Of the allocator's settings frameworks set some themselves, and engines refuse some (vLLM 0.8 with its sleep mode
        # refuses expandable segments): what a line that nobody missed would do nobody has seen.
        is_remark = name.startswith(_OF_LOGS) or name.endswith("ALLOC_CONF")
        hides = _hides_cards(fact, run)
        yield self.finding(
            run,
            Severity.INFO if is_remark else Severity.WARNING,
            f"{short(name, 36)} is not exported: the training command does not get it",
            at=fact,
            details=(consequence, *((hides,) if hides else ())),
            proposals=mending(title, fact, Applicability.DISPLAY if hides else Applicability.SAFE),
        )


def _hides_cards(fact: Fact, run: Run) -> str | None:
    """What speaks against a list of cards that the command would then get: it has fewer than the run starts on."""
    value, wanted = fact.detail["value"], run.plan.parallel.gpus_per_node
    if fact.detail["name"] != "CUDA_VISIBLE_DEVICES" or not re.fullmatch(r"[\d, ]+", value):
        return None
    hardware = run.parts.hardware
    shown = listed(value, None if hardware is None else hardware.gpus_per_node)
    if shown is None or wanted is None or shown >= wanted:
        return None
    return f"it would leave {shown} of the {wanted} GPUs that the run starts on: which of both is meant is not known"


def _is_read(fact: Fact, run: Run) -> bool:
    """Whether what the command starts would read the variable."""
    readers = _READ_BY.get(fact.detail["name"])
    return readers is None or (
        run.dialect.name in readers and fact.detail["program"] not in _STARTS_ITSELF
    )
