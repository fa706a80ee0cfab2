"""Slurm gives the job less RAM than it needs.

## What it finds

`#SBATCH --mem`, `--mem-per-gpu` or `--mem-per-cpu` (times the CPUs of a node's tasks) below
the RAM that the run is predicted to need on a node while loading, training or saving. Where a
script asks for GPUs and leaves RAM to the site, and the need is large, that is said too.

## Why it runs out of memory

Slurm puts a job into a cgroup with that limit. The limit counts for the job's processes
together, with their page cache and pinned buffers, however much RAM the node has: eight ranks
that each read a 13 billion parameter checkpoint in fp32 hold 8 × 48 = 388 GiB, and
`--mem-per-cpu=6G` with 32 CPUs is 192. The kernel kills a process; Slurm reports "Detected 1
oom-kill event(s)". Without any of these options a site's `DefMemPerCPU` counts, often 4 GiB
for each CPU asked for.

## How to fix it

Ask for what the run needs, or for all of the node with `--mem=0` (with `--exclusive`, where
the site wants that). Or lower the need: load once per node (ZeRO stage 3, FSDP's efficient
loading), offload less.

## When not to

Where the site does not enforce the limit (`ConstrainRAMSpace=no` in its cgroup.conf).

## Sources

* sbatch(1) and slurm.conf(5) of Slurm 24.05: `--mem` is in MiB unless a unit stands there
* https://github.com/foundation-model-stack/fms-fsdp/issues/113: 13B on 8 GPUs with
  `--mem-per-cpu=6G --cpus-per-task=32`
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.dialects.machine.fields import scene
from oomlint.judgement import judge_host
from oomlint.linting.rule import Applicability, Example, Finding, Proposal, Rule, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import example, line
from oomlint_rules.launch._limits import enough, limited_by, too_low

_TRAINER = line(
    """
    deepspeed --num_gpus 8 run_clm.py --deepspeed ds.json --do_train
    --model_name_or_path Qwen/Qwen2.5-7B --dataset_name tatsu-lab/alpaca
    --torch_dtype bfloat16 --bf16 --per_device_train_batch_size 1
    --gradient_accumulation_steps 8 --num_train_epochs 1 --output_dir out
    """
)
_RECIPE = (
    "srun torchrun --nnodes 1 --nproc_per_node 8 -m llama_recipes.finetuning --enable_fsdp"
    " --model_name meta-llama/Llama-2-13b-hf --batch_size_training 1 --context_length 1024\n"
)
_DS = (
    '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"},'
    ' "train_micro_batch_size_per_gpu": "auto"}\n'
)


def _job(*directives: str, launch: str = _TRAINER) -> dict[str, str]:
    lines = "".join(f"#SBATCH {line}\n" for line in ("--nodes=1", "--gres=gpu:8", *directives))
    return {"job.sh": f"#!/bin/bash\n{lines}\n{launch}", "ds.json": _DS}


# A default of 4 GiB a CPU gives a job of eight tasks no more than that.
_NOTEWORTHY = 64 * 2**30


class SlurmMemTooSmall(Rule, code="OOM707", fixes=Applicability.SAFE, cost=1):
    summary = "Slurm gives the job less RAM than it needs"
    only_where = (Where(said=(scene.ram_limit,)),)

    bad = (
        example(_job("--mem=64G"), _job("--mem=168G")),
        example(_job("--ntasks-per-node=1", "--cpus-per-task=32", "--mem-per-cpu=2G", launch=_RECIPE), _job("--ntasks-per-node=1", "--cpus-per-task=32", "--mem-per-cpu=8448M", launch=_RECIPE), why="2 GiB times 32 CPUs"),
        example(_job(), _job(), why="what a site gives by default is for the site to say"),
    )  # fmt: skip
    good = (
        example(_job("--mem=512G")),
        example(_job("--mem=0")),
        example(_job("--exclusive")),
        Example(
            files=_job("--mem=64G"), host_memory="512GiB", why="the user says how much there is"
        ),
        example({"train.sh": _TRAINER, "ds.json": _DS}, why="no job of Slurm's"),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        who = limited_by(run)
        found = judge_host(run) if who in ("slurm", "slurm default") else None
        if found is None:
            return
        asks = "ask Slurm for {} a node"
        if found.limit is not None and found.severity is not None:
            says = "Slurm gives the job only {} of a node's RAM"
            yield from too_low(self, run, found, says=says, asks=asks)
        elif who == "slurm default" and found.predicted >= _NOTEWORTHY:
            wish = enough(run, found)
            title = asks.format(f"{wish[f.host.ram_gib]:.0f} GiB")
            yield self.info(
                run,
                "the job asks Slurm for no RAM and gets the site's default",
                at=(f.parallel.gpus_per_node, f.host.ram_gib),
                details=(
                    f"the run {found.sentence.split(' of host RAM')[0]} on each node",
                    "the default is DefMemPerCPU or DefMemPerNode",
                ),
                confidence="low",
                resource="host",
                predicted=found.predicted,
                proposals=[Proposal.set(title, wish, Applicability.DISPLAY)],
            )
