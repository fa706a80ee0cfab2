"""DeepSpeed's activation checkpointing block, which the model never asks for.

## What it finds

An `activation_checkpointing` object in the DeepSpeed config of a run that transformers'
Trainer drives, while gradient checkpointing itself is off.

## Why it runs out of memory

DeepSpeed's checkpointing works for models that call `deepspeed.checkpointing.checkpoint`
themselves, as Megatron-DeepSpeed's do. transformers' models call torch's, and only when
`gradient_checkpointing` is on: the block is read and never used, and each layer keeps all its
activations, about 34 bytes a token and hidden unit instead of 2.

## How to fix it

Turn on the framework's own gradient checkpointing, and delete the block. The fix deletes it.

## When not to

For a model of your own that calls DeepSpeed's functions.

## Sources

* DeepSpeed edaa7221 `runtime/activation_checkpointing/config.py:28` and `checkpointing.py`
  (`configure`)
* transformers documentation, DeepSpeed, *Activation/gradient checkpointing*
* Korthikanti et al. 2022, arXiv 2205.05198 (34 bytes)
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.dialects.deepspeed.keys import ds
from oomlint.linting.rule import Applicability, Finding, Rule, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import AXOLOTL, LLAMA_FACTORY, deepspeed, example
from oomlint_rules._fixes import removal
from oomlint_rules.settings._trainer import trainer_compares

_BLOCK = '  "activation_checkpointing": {"partition_activations": true},\n'
_OFF = AXOLOTL.replace("gradient_checkpointing: true\n", "")
_LF_OFF = f"{LLAMA_FACTORY}disable_gradient_checkpointing: true\ndeepspeed: ds.json\n"


class DsActivationCheckpointingBlockIgnored(Rule, code="OOM811", fixes=Applicability.SAFE):
    summary = "DeepSpeed's activation checkpointing block has no effect on this model"
    only_where = (Where(plan={f.checkpointing.mode: ("none",)}),)

    bad = (
        example(
            {
                "train.yaml": f"{_OFF}deepspeed: ds.json\n",
                "ds.json": deepspeed('"stage": 2', _BLOCK),
            },
            {"ds.json": deepspeed('"stage": 2')},
        ),
        example(
            {"train.yaml": _LF_OFF, "ds.json": deepspeed('"stage": 3', _BLOCK)},
            {"ds.json": deepspeed('"stage": 3')},
        ),
    )
    good = (
        example(
            {
                "train.yaml": f"{AXOLOTL}deepspeed: ds.json\n",
                "ds.json": deepspeed('"stage": 2', _BLOCK),
            },
            why="gradient checkpointing is on",
        ),
        example({"ds.json": deepspeed('"stage": 2', _BLOCK)}, why="nobody knows whose model it is"),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        said = run.settings.get(ds.activation_checkpointing)
        if said is None or not said.value or not trainer_compares(run) or run.is_fragment:
            return
        yield self.info(
            run,
            "the activation_checkpointing block has no effect: every activation is kept",
            at=ds.activation_checkpointing,
            details=(
                "transformers' models never call DeepSpeed's checkpointing",
                f"{run.key('checkpointing.mode')} is off",
            ),
            proposals=removal("remove the block", said.origin),
        )
