"""Under ZeRO-3 no model file is saved, because nobody asked to gather the weights.

## What it finds

Full fine-tuning under ZeRO stage 3 with transformers' Trainer, whose DeepSpeed config leaves
`stage3_gather_16bit_weights_on_model_save` out. DeepSpeed's default is false. Where
the config says false itself, somebody has decided so, and the rule is silent; likewise where a script of the run
converts the shards with `zero_to_fp32`.

## Why it runs out of memory

It does not, but it sends people the wrong way. Under stage 3 a rank holds empty tensors in place of
the weights; written as they are they make a file of some hundred KiB. transformers therefore
writes no `model.safetensors` at all, but DeepSpeed's shards, and a script that calls
`save_pretrained` by itself writes the stubs. The usual next step is more RAM or a lower
stage, of which neither helps. What does is gathering, which costs 2 bytes a parameter of RAM on the
first node (see `zero3-gather16-rank0-ram`, which decides the other way where these are missing).

## How to fix it

Set it to true where the first node has the RAM: the fix does so where that is known. It is unsafe
only in that it writes files that were not written before. Or keep the shards, and run
`zero_to_fp32.py`, which DeepSpeed puts into each checkpoint, afterwards.

## When not to

Where the shards are all that is wanted, as to go on training from them.

## Sources

* DeepSpeed edaa7221 `runtime/zero/config.py:250` (default), `runtime/engine.py:5592`
  (`save_16bit_model`); transformers 5.23 `trainer.py:4107-4121`
* https://github.com/hiyouga/LLaMA-Factory/issues/368 (a checkpoint of a 13B model of some hundred KB)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from oomlint.judgement import confidence, settled
from oomlint.linting.rule import Applicability, AskedLate, Finding, Proposal, Rule, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._conditions import UNDER_ZERO_3
from oomlint_rules._examples import AXOLOTL, LLAMA_FACTORY, command, deepspeed, example
from oomlint_rules._fixes import host_after
from oomlint_rules.checkpoint._gather import GATHER
from oomlint_rules.settings._trainer import trainer_compares

_KEY = "stage3_gather_16bit_weights_on_model_save"
_KEY = "stage3_gather_16bit_weights_on_model_save"
_JSON = deepspeed('"stage": 3')
_GATHERS = deepspeed('"stage": 3, "stage3_gather_16bit_weights_on_model_save": true')


class Zero3GatherOffEmptyModel(Rule, code="OOM511", fixes=Applicability.UNSAFE, cost=5):
    summary = "under ZeRO-3 no model file is saved unless the weights are gathered"
    only_where = (Where(plan=UNDER_ZERO_3),)

    bad = (
        example(
            {"train.yaml": f"{AXOLOTL}deepspeed: ds.json\n", "ds.json": _JSON},
            {"ds.json": _GATHERS},
            on="8xA100-80GB, 1TiB",
        ),
        example(
            {"train.yaml": f"{LLAMA_FACTORY}deepspeed: ds.json\n", "ds.json": _JSON},
            why="nobody says how much RAM the first node has",
        ),
        example(
            {"train.sh": command("--deepspeed ds.json"), "ds.json": _JSON},
            {"ds.json": _GATHERS},
            on="8xA100-80GB, 1TiB",
        ),
    )
    good = (
        example({"train.yaml": f"{LLAMA_FACTORY}deepspeed: ds.json\n", "ds.json": _GATHERS}),
        example(
            {
                "train.yaml": f"{LLAMA_FACTORY}deepspeed: ds.json\n",
                "ds.json": _GATHERS.replace('save": true', 'save": false'),
            },
            why="somebody decided so",
        ),
        example(
            {
                "train.sh": command("--deepspeed ds.json")
                + "python out/zero_to_fp32.py out out/model\n",
                "ds.json": _JSON,
            },
            why="the shards are joined afterwards",
        ),
        example({"ds.json": _JSON}, why="what uses it is not known"),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        plan = run.plan
        if not trainer_compares(run):
            return
        if plan.parallel.zero.gather16_on_save or run.is_explicit(GATHER) or run.is_fragment:
            return
        if plan.save.strategy == "no" or plan.trainable.method not in ("full", "freeze"):
            return
        if "zero-to-fp32" in run.fact_kinds or GATHER in run.unreadable:
            return
        key = run.key(GATHER) if run.block_with(GATHER) else _KEY
        dims = plan.model.dims
        size = 2 * dims.params_total if dims is not None and dims.params_total else None
        cost = "2 bytes a parameter" if size is None else gib(size)
        yield self.info(
            run,
            "checkpoints will hold shards, and no model file for from_pretrained to load",
            at=(GATHER, f.parallel.zero.stage),
            details=(
                f"{key} is not set",
                f"set it to true if the first node has {cost} of RAM to spare at a save",
                "or join DeepSpeed's shards afterwards with zero_to_fp32.py",
            ),
            confidence=confidence(run),
            resource="host",
            proposals=AskedLate(partial(_proposals, run)),
        )


def _proposals(run: Run) -> Iterator[Proposal]:
    changes = {GATHER: True}
    saving = host_after(settled(run), changes, phase="save")
    if saving is not None and saving.limit is not None and not saving.is_problem:
        yield Proposal.set("gather the 16-bit weights at a save", changes, Applicability.UNSAFE)
