"""The key that should offload FSDP's parameters is one that the Trainer does not read.

## What it finds

`offload_params` (or `fsdp_offload_params`) in the `fsdp_config` of transformers'
`TrainingArguments`, and so of TRL and LLaMA-Factory, while nothing that the Trainer reads
asks for offloading. Accelerate's YAML and Axolotl do use that key.

## Why it runs out of memory

The key is dropped without a word: parameters, gradients and optimizer states, 16 bytes a
parameter divided by the ranks, stay on the cards where they were to live in host RAM.

## How to fix it

Add the word `offload` to `fsdp` (`"full_shard auto_wrap offload"`), which every version reads;
transformers 5.23 also takes `fsdp_config: {"cpu_offload": true}`. Steps then take longer, and
the host needs the RAM.

## When not to

Under `accelerate launch` with a config that offloads: then that one counts.

## Sources

* transformers 4.57 `training_args.py:2017` and 5.23 `training_args.py:2830`, `:2934`
  (`_process_fsdp_args`)
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.dialects.trainer.fields import hf
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import LLAMA_FACTORY, example, script

_WORDS = hf.fsdp_words


class FsdpOffloadKeyIgnored(Rule, code="OOM812", fixes=Applicability.SAFE, cost=5):
    summary = "FSDP's parameters are not offloaded because the Trainer does not read that key"
    only_where = (Where(plan={f.parallel.backend: ("fsdp1", "fsdp2")}),)

    bad = (
        example(
            {
                "train.py": script(
                    "fsdp='full_shard auto_wrap'", "fsdp_config={'offload_params': True}"
                )
            },
            {
                "train.py": script(
                    "fsdp='full_shard auto_wrap offload'", "fsdp_config={'offload_params': True}"
                )
            },
        ),
        example(
            {
                "train.yaml": (
                    f"{LLAMA_FACTORY}fsdp: full_shard auto_wrap\n"
                    "fsdp_config:\n  fsdp_offload_params: true\n"
                )
            },
            {
                "train.yaml": (
                    f'{LLAMA_FACTORY}fsdp: "full_shard auto_wrap offload"\n'
                    "fsdp_config:\n  fsdp_offload_params: true\n"
                )
            },
        ),
    )
    good = (
        example(
            {
                "train.py": script(
                    "fsdp='full_shard auto_wrap offload'", "fsdp_config={'offload_params': True}"
                )
            }
        ),
        example(
            {
                "train.py": script(
                    "fsdp='full_shard auto_wrap'", "fsdp_config={'offload_params': False}"
                )
            }
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        lost = run.settings.get(hf.fsdp_lost_offload)
        words = run.settings.get(_WORDS)
        if lost is None or lost.value is not True or words is None or not words.value:
            return
        if run.plan.parallel.fsdp.cpu_offload:
            return
        yield self.warning(
            run,
            f"the Trainer does not read {lost.origin.key}: nothing is offloaded",
            at=hf.fsdp_lost_offload,
            details=(
                "parameters and optimizer states stay on the GPU",
                f"it reads the word offload in {run.key(_WORDS)}",
            ),
            proposals=[
                Proposal.set(
                    f"add offload to {run.key(_WORDS)}", {_WORDS: (*words.value, "offload")}
                )
            ],
        )
