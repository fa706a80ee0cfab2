"""A script gathers FSDP's full state dict on every GPU.

## What it finds

`FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT)` without a `FullStateDictConfig`
that offloads to the CPU.

## Why it runs out of memory

The whole model is gathered on every card at once: 4 bytes a parameter in fp32, 2 in bf16, for
8B parameters 30 GiB beside the shards, after the last step of the training.

## How to fix it

`FullStateDictConfig(offload_to_cpu=True, rank0_only=True)` as the third argument; only rank 0
then keeps a copy, in host RAM. Under FSDP2 `get_model_state_dict` takes
`StateDictOptions(full_state_dict=True, cpu_offload=True)`.

## When not to

On one GPU, where nothing is gathered.

## Sources

* torch documentation of `FullStateDictConfig`
* https://github.com/tatsu-lab/stanford_alpaca/issues/65
* https://github.com/huggingface/accelerate/pull/1181
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.rule import Example, Finding, Rule, Severity, Where
from oomlint.run import Run

_SAVE = (
    "import torch\n"
    "from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel as FSDP\n"
    "from torch.distributed.fsdp import StateDictType\n\n"
    "model = FSDP(build())\n"
    "train(model)\n"
    "with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT{config}):\n"
    "    torch.save(model.state_dict(), 'last.pt')\n"
)
_OFFLOADS = ", FullStateDictConfig(offload_to_cpu=True, rank0_only=True)"


class FsdpStateDictOnGpu(Rule):
    code = "OOM508"
    name = "fsdp-state-dict-on-gpu"
    summary = "a script gathers FSDP's full state dict on every GPU"
    only_where = (Where(facts=("state-dict-on-gpu",)),)

    bad = (
        Example(files={"train.py": _SAVE.format(config="")}),
        Example(files={"train.py": _SAVE.format(config=", FullStateDictConfig(rank0_only=True)")}),
    )
    good = (Example(files={"train.py": _SAVE.format(config=_OFFLOADS)}),)

    def check(self, run: Run) -> Iterable[Finding]:
        for fact in run.facts:
            if fact.kind != "state-dict-on-gpu":
                continue
            how = (
                "its config does not offload"
                if fact.detail["reason"] != "no-config"
                else "it has no config"
            )
            yield self.finding(
                run,
                Severity.WARNING,
                f"FULL_STATE_DICT gathers the model on every GPU: {how}",
                at=fact,
                details=("pass FullStateDictConfig(offload_to_cpu=True, rank0_only=True)",),
                resource="gpu",
            )
