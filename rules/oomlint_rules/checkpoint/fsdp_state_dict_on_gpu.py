"""A script gathers FSDP's full state dict on every GPU.

## What it finds

`FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT)` without a `FullStateDictConfig`
that offloads to the CPU; and `trainer.model.state_dict()` in a run under FSDP, which has neither.

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
_TRAINER = (
    "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n\n"
    "args = TrainingArguments(output_dir='out', bf16=True{fsdp})\n"
    "model = AutoModelForCausalLM.from_pretrained('meta-llama/Llama-2-7b-hf')\n"
    "trainer = Trainer(model=model, args=args, train_dataset=data)\n"
    "trainer.train()\n"
    "state_dict = trainer.model.state_dict()\n"
    "if trainer.args.should_save:\n"
    "    trainer._save('out', state_dict={{k: v.cpu() for k, v in state_dict.items()}})\n"
)
_WHY = {
    "no-config": "it has no config",
    "not-offloaded": "its config does not offload",
    "of-trainer": "nobody configures it",
}


class FsdpStateDictOnGpu(Rule):
    code = "OOM508"
    name = "fsdp-state-dict-on-gpu"
    summary = "a script gathers FSDP's full state dict on every GPU"
    only_where = (Where(facts=("state-dict-on-gpu",)),)

    bad = (
        Example(files={"train.py": _SAVE.format(config="")}),
        Example(files={"train.py": _SAVE.format(config=", FullStateDictConfig(rank0_only=True)")}),
        Example(
            files={"train.py": _TRAINER.format(fsdp=", fsdp='full_shard auto_wrap'")},
            hardware="4xA100-80GB",
        ),
    )
    good = (
        Example(files={"train.py": _SAVE.format(config=_OFFLOADS)}),
        Example(files={"train.py": _TRAINER.format(fsdp="")}, hardware="4xA100-80GB"),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        for fact in run.facts:
            if fact.kind != "state-dict-on-gpu":
                continue
            reason = fact.detail["reason"]
            if reason == "of-trainer" and run.plan.parallel.backend not in ("fsdp1", "fsdp2"):
                continue
            yield self.finding(
                run,
                Severity.WARNING,
                f"FULL_STATE_DICT gathers the model on every GPU: {_WHY[reason]}",
                at=fact,
                details=("pass FullStateDictConfig(offload_to_cpu=True, rank0_only=True)",),
                resource="gpu",
            )
