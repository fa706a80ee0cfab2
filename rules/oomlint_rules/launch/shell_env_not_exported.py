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
sourced first). Where a list of GPUs names all of the machine, exporting it changes nothing, and the rule is
silent. Where it names fewer than the command asks for, the run would stop with it: that is a remark, without a fix. Where a
launcher starts as many processes as a line of its own names GPUs, and these are the first, they take them without it, too: a
remark. So is one of a variable that only moves how fast the CPUs compute (`OMP_NUM_THREADS`), and of NCCL's where one process
trains.

## Sources

* https://github.com/meta-llama/llama-cookbook/issues/556
  (`CUDA_VISIBLE_DEVICES=0,1 && torchrun …`)
* POSIX.1-2017, Shell Command Language, 2.9.1 Simple Commands and 2.14 `export`
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.documents.base import Fact
from oomlint.linting.rule import (
    Applicability,
    Finding,
    Proposal,
    Severity,
    short,
)
from oomlint.runs.run import Run
from oomlint_rules._examples import LLAMA_FACTORY, example
from oomlint_rules._scripts import FactRule, mending
from oomlint_rules._variables import (
    are_its_first,
    asked_for,
    is_whole_machine,
    listed,
    matters_not,
    seen_of,
)

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
    is_of_text = True

    bad = (
        example(
            {"train.sh": f"CUDA_VISIBLE_DEVICES=0,1 && {_RECIPE}"},
            {"train.sh": f"CUDA_VISIBLE_DEVICES=0,1 {_RECIPE}"},
        ),
        example(
            {"train.sh": f"CUDA_VISIBLE_DEVICES=0,1\n{_RECIPE}"},
            why="a remark: its two processes take GPUs 0 and 1 without it, too",
        ),
        example(
            {"train.sh": f"WANDB_MODE=offline\n{_RECIPE}"}, why="a remark: the run trains the same"
        ),
        example(
            {"train.sh": f"OMP_NUM_THREADS=8\n{_RECIPE}"}, why="a remark: it needs what it needs"
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
        example(
            {"train.sh": f"CUDA_VISIBLE_DEVICES=5\n{_RECIPE}"},
            why="a remark: with that one GPU its two processes would not start",
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
            {"train.sh": f"CUDA_VISIBLE_DEVICES=1,0\n{_RECIPE}"},
            on="2xA100-80GB",
            why="the machine has no other GPUs",
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
        title = f"{short(name, 36)} is not exported: the training command does not get it"
        shown = listed(name, fact.detail["value"])
        if shown and is_whole_machine(shown, run):
            return
        if shown and (seen := seen_of(shown, run)) < (asked := asked_for(run) or 1):
            details = (f"it asks for {asked} GPUs, and would see {seen} of them",)
            yield self.info(run, title, at=fact, details=details)
            return
        if are_its_first(shown, run) and not _is_joined(fact):
            details = (f"its {len(shown)} processes take just these GPUs without it",)
            yield self.info(run, title, at=fact, details=details, proposals=_mending(name, fact))
            return
        consequence = _CONSEQUENCES.get(name, "it runs as if the line were not there")
        yield self.finding(
            run,
            Severity.INFO if matters_not(name, run) else Severity.WARNING,
            title,
            at=fact,
            details=(consequence,),
            proposals=_mending(name, fact),
        )


def _mending(name: str, fact: Fact) -> Iterable[Proposal]:
    way = f"set {name} for the command itself" if _is_joined(fact) else f"export {name}"
    return mending(way, fact)


def _is_joined(fact: Fact) -> bool:
    """Whether ``&&`` or ``;`` alone stands between the variable and the command, which was meant to have it."""
    return any(edit.start != edit.end for edit in fact.mend)


def _is_read(fact: Fact, run: Run) -> bool:
    """Whether what the command starts would read the variable."""
    readers = _READ_BY.get(fact.detail["name"])
    return readers is None or (
        run.dialect.name in readers and fact.detail["program"] not in _STARTS_ITSELF
    )
