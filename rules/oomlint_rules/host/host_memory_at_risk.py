"""The processes of a node need more host RAM than it has, or nearly all of it.

## What it finds
A run on known hardware that is likely to be killed for lack of host RAM (exit code -9, or a pod that is
evicted): what a node's processes need together, of how much, in which phase, how likely that is, and
what the need is made of.

## Why it runs out of memory
Every process of a node loads, offloads, gathers and caches in the same RAM. Four ranks that each read a
16-bit model of 70 billion parameters hold 520 GiB before the first step; ZeRO-Offload keeps 16 bytes a
parameter there for the whole run. The kernel kills without a message in the log.

## How to fix it
The notes name the largest parts and what lowers each: load once a node or on the meta device, offload
less, save shards instead of one gathered state.

## When not to
Page cache counts as used in some tools and is given back when needed; oomlint does not count it.

## Sources
* DeepSpeed edaa7221 `runtime/zero/stage3.py` (offloaded states), transformers `modeling_utils.py` (loading)
* Linux, Documentation/admin-guide/sysctl/vm.rst (overcommit and the OOM killer)
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.linting.rule import KNOWN, Finding, Rule, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import example, line, text
from oomlint_rules._headline import HOST_FIELDS, headline

_COMMAND = line(
    """
    accelerate launch --config_file zero3.yaml trl/scripts/sft.py
    --model_name_or_path Qwen/Qwen2.5-32B --dataset_name tatsu-lab/alpaca
    --dtype bfloat16 --bf16 true --gradient_checkpointing --per_device_train_batch_size 1
    --max_length 2048 --output_dir out
    """
)
_ACCELERATE = text(
    """
    distributed_type: DEEPSPEED
    mixed_precision: bf16
    num_machines: 1
    num_processes: 4
    deepspeed_config:
      zero_stage: 3
      zero3_init_flag: true
      offload_optimizer_device: cpu
      offload_param_device: cpu
    """
)
_FILES = {"train.sh": _COMMAND, "zero3.yaml": _ACCELERATE}


class HostMemoryAtRisk(Rule, code="OOM400"):
    summary = "the run is likely to be killed for lack of host RAM"
    is_headline = True
    only_where = (Where(plan={f.host.ram_gib: KNOWN}),)

    bad = (
        example(
            _FILES,
            on="4xA100-80GB, 384GiB",
            why="weights, gradients and states of 32.8 billion parameters are offloaded to 384 GiB",
        ),
    )
    good = (
        example(_FILES, on="4xA100-80GB, 2TiB"),
        example(_FILES, on="4xA100-80GB", why="the RAM of the host is unknown"),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        return headline(self, run, "host", HOST_FIELDS)
