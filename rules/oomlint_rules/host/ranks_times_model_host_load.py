"""Every rank of a node reads the whole checkpoint, and the node's RAM does not hold the copies.

## What it finds

Data-parallel runs (DDP, ZeRO stages 0 to 2) of which the ranks of one node, each with its own
copy of the model on the CPU, need more RAM while loading than the node has.

## Why it runs out of memory

Before ZeRO stage 3 every rank builds the whole model on its own and moves it to its GPU
afterwards: nine ranks of a 7B model in fp32 hold 9 × 28 GB. The process dies during *Loading
checkpoint shards* with exit code -9 (*Killing subprocess* in DeepSpeed's launcher), while
the same job on one GPU works. `low_cpu_mem_usage: false` doubles it (low-cpu-mem-usage-off).

## How to fix it

ZeRO stage 3, under which transformers builds the model sharded (the fix does it where
DeepSpeed is used already), or FSDP with `cpu_ram_efficient_loading`; `low_cpu_mem_usage:
true`; safetensors files, which the ranks share as mapped pages of the file cache; fewer
ranks a node.

## When not to

Where all files are safetensors much of what a rank holds is the file cache, which the kernel
can drop: hence never more than a warning.

## Sources

* https://github.com/hiyouga/LLaMA-Factory/issues/2158 (nine ranks, ZeRO-2),
  https://github.com/hiyouga/LLaMA-Factory/issues/2097
* DeepSpeed edaa7221 `runtime/zero/stage_1_and_2.py` (estimator: 4 bytes × parameters × GPUs
  of a node without `zero.Init`)
* transformers 4.57 `modeling_utils.py` (`low_cpu_mem_usage`)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from oomlint.judgement import settled
from oomlint.linting.rule import (
    Applicability,
    AskedLate,
    Finding,
    Proposal,
    Rule,
    Severity,
    Where,
)
from oomlint.plan.fields import ZERO_3, f
from oomlint.runs.run import Run
from oomlint_rules._examples import ONE_SAMPLE, axolotl, example, trl
from oomlint_rules._fixes import host_after
from oomlint_rules.host._ram import copies, judge_ram

_LAUNCH = (
    "accelerate launch --num_processes 8 --use_deepspeed --deepspeed_config_file ds.json trl/scripts/sft.py"
    " --config sft.yaml\n"
)
_SFT = trl(
    "Qwen/Qwen2.5-32B",
    "per_device_train_batch_size: 1\nmax_length: 2048\noutput_dir: out\n",
    "use_peft: true\nlora_r: 16\nlora_target_modules: all-linear\n",
)


def _json(stage: int) -> str:
    return (
        "{\n"
        f'  "zero_optimization": {{"stage": {stage}}},\n'
        '  "bf16": {"enabled": "auto"},\n'
        '  "train_micro_batch_size_per_gpu": "auto"\n'
        "}\n"
    )


# Two copies of a 32B model, eight of an 8B one: a workstation may lack that.
_NOTEWORTHY = 128 * 2**30


class RanksTimesModelHostLoad(Rule, code="OOM404", fixes=Applicability.SAFE, cost=3):
    summary = "every rank of a node reads the whole checkpoint into RAM"
    explains = ("model_copies",)
    only_where = (
        Where(plan={f.parallel.backend: ("ddp",)}),
        Where(plan={f.parallel.backend: ("zero",), f.parallel.zero.stage: (0, 1, 2)}),
    )

    bad = (
        example(
            {"train.sh": _LAUNCH, "sft.yaml": _SFT, "ds.json": _json(2)},
            {
                "ds.json": _json(3).replace(
                    '"stage": 3', '"stage": 3, "stage3_gather_16bit_weights_on_model_save": true'
                )
            },
            on="8xA100-80GB, 384GiB",
        ),
        example(
            {
                "train.sh": (
                    "deepspeed --num_gpus 9 run_clm.py --deepspeed ds.json --do_train"
                    " --model_name_or_path Qwen/Qwen2.5-7B --dataset_name tatsu-lab/alpaca"
                    " --torch_dtype bfloat16 --bf16 --per_device_train_batch_size 1"
                    " --gradient_accumulation_steps 8 --num_train_epochs 1 --output_dir out\n"
                ),
                "ds.json": _json(2),
            },
            why="nine copies, and nobody says how much RAM the node has",
        ),
    )
    good = (
        example(
            {"train.sh": _LAUNCH, "sft.yaml": _SFT, "ds.json": _json(3)},
            on="8xA100-80GB, 384GiB",
        ),
        example(
            {"train.sh": _LAUNCH, "sft.yaml": _SFT, "ds.json": _json(2)},
            on="8xA100-80GB, 1TiB",
        ),
        example(
            {
                "train.yaml": axolotl(
                    "Qwen/Qwen2.5-32B",
                    ONE_SAMPLE,
                    "adapter: lora\nlora_r: 16\nlora_target_linear: true\ndeepspeed: ds.json\n",
                ),
                "ds.json": _json(2),
            },
            on="8xA100-80GB, 384GiB",
            why="Axolotl's ranks load straight onto their GPUs",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        yield from self._copies(run)

    def _copies(self, run: Run) -> Iterable[Finding]:
        verdict = judge_ram(run, phase="load")
        ranks = settled(run).plan.parallel.gpus_per_node or 1
        if verdict is None or ranks < 2:
            return
        found, severity = verdict.judgement, Severity.WARNING
        if not found.is_problem:
            # Nothing is known to be short: worth a word where the ranks are known to be many.
            known = run.plan.parallel.world is not None and found.limit is None
            if not known or found.predicted < _NOTEWORTHY:
                return
            severity = verdict.severity or Severity.INFO
        yield self.finding(
            run,
            min(severity, Severity.WARNING),
            f"each of the {ranks} ranks of a node reads the whole model into RAM{copies(run, ranks)}",
            at=(f.parallel.zero.stage, f.model.id),
            details=(
                *verdict.details,
                "safetensors files are shared between ranks as far as they are only mapped",
                "ZeRO stage 3 and FSDP load sharded",
            ),
            judged=found,
            confidence="medium" if found.confidence == "high" else found.confidence,
            proposals=AskedLate(partial(_sharded, run)),
        )


def _sharded(run: Run) -> Iterator[Proposal]:
    if run.plan.parallel.backend != "zero" or run.plan.quant.method not in (None, "none"):
        return
    after = host_after(run, ZERO_3, phase="load")
    if after is not None and not after.is_problem:
        yield Proposal.set("build the model sharded, with ZeRO stage 3", ZERO_3)
