"""Weights are built at random first and read beside that, because `low_cpu_mem_usage` is off.

## What it finds

`low_cpu_mem_usage: false` in a config, a command or a call of `from_pretrained` that does not
load under ZeRO-3 (where LLaMA-Factory switches it off itself).

## Why it runs out of memory

transformers up to 4.57 then makes a model with random weights and reads the checkpoint beside
it: twice the model in the RAM of every rank, instead of one file of the checkpoint at a time.
Eight ranks of an 8B model in 16 bit hold 240 GiB while they load. LLaMA-Factory puts the weights
straight on the GPU only with it on; without it every rank keeps a copy in RAM until the Trainer
moves it.

## How to fix it

Leave it on. The weights are the same.

## When not to

transformers 5 ignores the argument and always loads as if it were on. A model class with code of
its own that cannot be built without data needs it off. Under ZeRO-3 transformers 4 stops with an error
where it is on: a script that is also launched with ZeRO-3 has to ask first.

## Sources

* transformers 4.57 `modeling_utils.py` (`low_cpu_mem_usage`), 5.23 `modeling_utils.py:4171`
  (dropped); LLaMA-Factory ff6d4d12 `model/patcher.py:428`
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.documents.base import PythonDocument
from oomlint.judgement import settled
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import AXOLOTL, LLAMA_FACTORY, deepspeed, example, mended, script

_FIELD = f.load.low_cpu_mem
_WIDTH = {"fp32": 4, "bf16": 2, "fp16": 2}


class LowCpuMemUsageOff(Rule, code="OOM409", fixes=Applicability.SAFE):
    summary = "weights are built at random and read beside that: twice the RAM for every rank"
    only_where = (Where(meant={f.load.low_cpu_mem: (False,)}),)
    explains = ("model_copies",)

    bad = (
        mended(
            "train.yaml",
            AXOLOTL + "low_cpu_mem_usage: {value}  # was off\n",
            value=("false", "true"),
        ),
        mended(
            "train.yaml", LLAMA_FACTORY + "low_cpu_mem_usage: {value}\n", value=("false", "true")
        ),
        mended(
            "train.py",
            script(load="    low_cpu_mem_usage={value},\n"),
            value=(False, True),
        ),
        example(
            {
                "train.py": script(load="    low_cpu_mem_usage=False,\n"),
                "train.sh": "torchrun --nproc_per_node 8 train.py\n",
            },
            why="another launch line may say ZeRO-3, which stops where it is on: an unsafe fix",
        ),
    )
    good = (
        example({"train.yaml": f"{LLAMA_FACTORY}low_cpu_mem_usage: true\n"}),
        example(
            {
                "train.yaml": f"{LLAMA_FACTORY}low_cpu_mem_usage: false\ndeepspeed: ds.json\n",
                "ds.json": deepspeed('"stage": 3'),
            },
            why="zero.Init builds the model in shards",
        ),
        example(
            {"train.yaml": f"{AXOLOTL}low_cpu_mem_usage: false\n"},
            why="transformers 5 ignores it",
            values={"versions": {"transformers": "5.2.0"}},
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        plan = settled(run).plan
        if not run.is_explicit(_FIELD):
            return
        if plan.parallel.zero.stage == 3 and plan.load.zero3_init is not False:
            return
        if not plan.versions.get("transformers", "4").startswith("4"):
            return
        dims, ranks = plan.model.dims, plan.parallel.gpus_per_node or 1
        total = dims.params_total if dims is not None else None
        width = _WIDTH.get(plan.load.dtype or "bf16", 2)
        size = None if total is None else 2 * total * width
        cost = "twice the model" if size is None else f"{gib(size)}"
        each = f"for each of {ranks} ranks of a node" if ranks > 1 else "on the host"
        yield self.info(
            run,
            f"{run.key(_FIELD)} off builds the model and reads the checkpoint beside it",
            at=_FIELD,
            details=(
                f"{cost} of RAM {each} while it loads",
                "transformers before 5.0 does so, with random weights at first",
            ),
            confidence="medium",
            resource="host",
            limit=run.limits.host_bytes,
            proposals=[
                Proposal.set("load into the model directly", {_FIELD: True}, _how_safe(run))
            ],
        )


def _how_safe(run: Run) -> Applicability:
    """Another launch line of the same script may shard with ZeRO-3, which then cannot load."""
    block = run.settings[_FIELD].origin.block
    in_script = block is not None and isinstance(block.document, PythonDocument)
    launched = any(claim.is_launched for claim in run.claims)
    return Applicability.UNSAFE if in_script and launched else Applicability.SAFE
