"""Under FSDP every rank reads the whole model into host RAM before it is sharded.

## What it finds

FSDP runs on several GPUs of a node whose loader is not told to read the checkpoint on one
rank only (`cpu_ram_efficient_loading`, off by default in transformers and in Accelerate's plugin,
on where `accelerate launch` starts the run unless its file says otherwise), where the copies do not fit the node's RAM or come close. If the RAM is not known, the need
is named.

## Why it runs out of memory

FSDP shards a model that exists: each of the ranks calls `from_pretrained` and holds all of
it on the CPU until it is wrapped. A node with eight GPUs holds eight copies: 70 billion
parameters in bf16 are 140 GB a rank and 1.1 TB a node, twice that in fp32. The kernel kills
a rank during *Loading checkpoint shards* (exit code -9, no traceback).

## How to fix it

`cpu_ram_efficient_loading: true` (in an Accelerate YAML
`fsdp_cpu_ram_efficient_loading: true`, in transformers' `fsdp_config` without the prefix),
together with `sync_module_states: true` under FSDP1, which broadcasts the weights from the
first rank. The result is the same. A launch without Accelerate needs `export
ACCELERATE_USE_FSDP=true FSDP_CPU_RAM_EFFICIENT_LOADING=true`.

## When not to

With MXFP4 checkpoints it has to stay off (Axolotl refuses it), and where the checkpoint is
quantized, or becomes so on the way, the copies are small: the rule is silent in all these
cases. llama-recipes has a rule of its own, `llama-recipes-low-cpu-fsdp`.

## Sources

* Accelerate 16cb6eb8 `utils/dataclasses.py:1958` (default false) and `:1966`
  (`sync_module_states` is forced on with it), `commands/launch.py:585` (default true)
* transformers 4.57 `modeling_utils.py:517` and 5.23 `modeling_utils.py:4853`
  (`is_fsdp_enabled() and not is_local_dist_rank_0()`)
* https://huggingface.co/blog/ram-efficient-pytorch-fsdp: 2 TB for Llama-2-70B in fp32 on
  eight ranks
* https://github.com/huggingface/transformers/pull/25107,
  https://github.com/huggingface/accelerate/pull/2037
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oomlint.judgement import Peak, settled
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import ONE_SAMPLE, axolotl, example, line, text
from oomlint_rules._fixes import host_after
from oomlint_rules.host._ram import copies, judge_ram

_AXOLOTL = axolotl(
    "meta-llama/Llama-3.1-70B",
    "sequence_len: 2048\n",
    ONE_SAMPLE,
    "adapter: lora\nlora_r: 16\nlora_target_linear: true\nfsdp:\n  - full_shard\n",
    "  - auto_wrap\nfsdp_config:\n",
)
_ACCELERATE = text(
    """
    distributed_type: FSDP
    mixed_precision: bf16
    num_machines: 1
    num_processes: 8
    fsdp_config:
      fsdp_version: 1
      fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
      fsdp_state_dict_type: SHARDED_STATE_DICT
    """
)
_COMMAND = line(
    """
    accelerate launch --config_file fsdp.yaml trl/scripts/sft.py
    --model_name_or_path meta-llama/Llama-3.1-70B --dataset_name tatsu-lab/alpaca
    --dtype bfloat16 --bf16 true --gradient_checkpointing --per_device_train_batch_size 1
    --use_peft --max_length 2048 --output_dir out
    """
)
_EFFICIENT = "  fsdp_sync_module_states: true\n  fsdp_cpu_ram_efficient_loading: true\n"
_SHARDED = "  fsdp_state_dict_type: SHARDED_STATE_DICT\n"
_ONE_READS = (
    f"{_AXOLOTL}{_SHARDED}  fsdp_cpu_ram_efficient_loading: true\n  fsdp_sync_module_states: true\n"
)


class FsdpEveryRankLoads(Rule, code="OOM402", fixes=Applicability.SAFE):
    summary = "under FSDP every rank reads the whole model into host RAM"
    only_where = (
        Where(plan={f.parallel.backend: ("fsdp1", "fsdp2"), f.load.cpu_ram_efficient: (False,)}),
    )
    explains = ("model_copies",)

    bad = (
        example(
            {"train.yaml": f"{_AXOLOTL}{_SHARDED}"},
            {"train.yaml": _ONE_READS},
            on="8xA100-80GB, 1TiB",
        ),
        example(
            {"train.yaml": (f"{_AXOLOTL}  fsdp_version: 2\n  cpu_ram_efficient_loading: false\n")},
            {"train.yaml": (f"{_AXOLOTL}  fsdp_version: 2\n  cpu_ram_efficient_loading: true\n")},
            why="the node's RAM is not known",
        ),
        example(
            {
                "train.sh": _COMMAND,
                "fsdp.yaml": _ACCELERATE + _EFFICIENT.replace("loading: true", "loading: false"),
            },
            {"fsdp.yaml": f"{_ACCELERATE}{_EFFICIENT}"},
            on="8xA100-80GB, 1TiB",
        ),
    )
    good = (
        example(
            {"train.sh": _COMMAND, "fsdp.yaml": f"{_ACCELERATE}{_EFFICIENT}"},
            on="8xA100-80GB, 1TiB",
        ),
        example(
            {"train.yaml": _ONE_READS},
            on="8xA100-80GB, 1TiB",
        ),
        example(
            {"train.yaml": f"{_AXOLOTL}{_SHARDED}"}, on="8xA100-80GB, 2TiB", why="eight copies fit"
        ),
        example(
            {"train.yaml": _AXOLOTL.replace("70B", "8B") + _SHARDED},
            on="2xA100-80GB",
            why="two copies of a small model",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        plan = run.plan
        if run.framework == "llama-recipes" or plan.load.meta_init:
            return
        # Such checkpoints are quantized shard by shard, or cannot be loaded on one rank.
        if {plan.quant.method, plan.model.native_quant} - {None, "none"}:
            return
        verdict = judge_ram(run, phase="load")
        ranks = settled(run).plan.parallel.gpus_per_node or 1
        if verdict is None or verdict.severity is None or verdict.is_common or ranks < 2:
            return
        changes: dict[Any, Any] = {f.load.cpu_ram_efficient: True}
        if plan.parallel.backend == "fsdp1" and not plan.parallel.fsdp.sync_module_states:
            changes[f.parallel.fsdp.sync_module_states] = True
        found = verdict.judgement
        yield self.finding(
            run,
            verdict.severity,
            f"each of the {ranks} ranks of a node reads the whole model into RAM{copies(run, ranks)}",
            at=f.load.cpu_ram_efficient,
            details=(*verdict.details, *_afterwards(run, found, changes)),
            judged=found,
            proposals=[Proposal.set("read the checkpoint on one rank of each node", changes)],
        )


def _afterwards(run: Run, found: Peak, changes: dict[Any, Any]) -> tuple[str, ...]:
    after = host_after(run, changes, phase="load")
    if after is None:
        return ()
    fall = f"from {gib(found.predicted)} to {gib(after.predicted)}"
    return (f"read by one rank and handed on, the need of loading falls {fall}",)
