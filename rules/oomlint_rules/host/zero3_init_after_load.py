"""The model is loaded before anything says that ZeRO-3 will shard it.

## What it finds

A script that calls `from_pretrained` before the training arguments that name the DeepSpeed
config exist, and before an `Accelerator` that `accelerate launch` tells of it, or that makes an `HfDeepSpeedConfig` and does not keep it; and an Accelerate
YAML with `zero3_init_flag: false` under ZeRO stage 3.

## Why it runs out of memory

transformers builds a model sharded only if it knows of ZeRO-3 at that moment. Else every rank
reads the whole checkpoint into host RAM (2 bytes a parameter in bf16, 4 in fp32): eight ranks
of a 30B model hold 450 GiB, and the kernel kills one with signal 9. DeepSpeed then moves
whole copies to the GPUs before it divides them; LLaMA-Factory loads them onto the GPUs at once.

## How to fix it

Create `TrainingArguments(deepspeed=...)` (or `SFTConfig`, or `dschf = HfDeepSpeedConfig(...)`
kept in a variable) above the `from_pretrained` call; set `zero3_init_flag: true`.

## When not to

With quantized weights, which are loaded per rank anyway, and where a node's RAM holds a copy
for each of its ranks. It is a remark where no file says which stage the config asks for or how large the model is.

## Sources

* transformers 5.23 `integrations/deepspeed.py` (`HfDeepSpeedConfig`, a weak reference;
  `is_deepspeed_zero3_enabled`) and `training_args.py:1706`
* Accelerate 1.15 `utils/dataclasses.py` (`set_deepspeed_weakref` does nothing without
  `zero3_init_flag`)
* https://github.com/huggingface/transformers/issues/10893,
  https://github.com/deepspeedai/DeepSpeed/issues/3125 and /5617,
  https://github.com/hiyouga/LLaMA-Factory/issues/3035
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.documents.base import Fact
from oomlint.judgement import judge_gpu
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Severity, Where
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import LLAMA_FACTORY, accelerate, command, deepspeed, example, script
from oomlint_rules._scripts import facts_of
from oomlint_rules.host._ram import RamVerdict, judge_ram

_ACCELERATE = "accelerate launch --config_file acc.yaml"
_LARGE = "Qwen/Qwen2.5-32B"


def _accelerate(flag: str) -> str:
    return accelerate(
        "DEEPSPEED", f"deepspeed_config:\n  zero_stage: 3\n  zero3_init_flag: {flag}\n"
    )


class Zero3InitAfterLoad(Rule, code="OOM405", fixes=Applicability.SAFE):
    summary = "the model is loaded whole on every rank before ZeRO-3 is known"
    only_where = (
        Where(
            plan={f.parallel.zero.stage: (3, None), f.quant.method: (None, "none")},
            facts=("load-before-zero3-config",),
        ),
        Where(
            plan={
                f.parallel.zero.stage: (3,),
                f.quant.method: (None, "none"),
                f.load.zero3_init: (False,),
            }
        ),
    )
    explains = ("model_copies",)

    bad = (
        example(
            {
                "train.py": script("deepspeed='ds.json'", early=True, model=_LARGE),
                "ds.json": deepspeed('"stage": 3'),
            },
            on="8xA100-80GB, 512GiB",
        ),
        example(
            {
                "train.sh": command("", _ACCELERATE).replace("meta-llama/Llama-3.1-8B", _LARGE),
                "acc.yaml": _accelerate("false  # true"),
            },
            {"acc.yaml": _accelerate("true  # true")},
            on="8xA100-80GB, 512GiB",
        ),
        example(
            {
                "train.yaml": LLAMA_FACTORY.replace("8B", "70B").replace("full", "lora"),
                "acc.yaml": _accelerate("false  # true"),
                "train.sh": f"{_ACCELERATE} src/train.py train.yaml\n",
            },
            {"acc.yaml": _accelerate("true  # true")},
            on="8xA100-80GB, 2TiB",
        ),
        example(
            {
                "train.py": script(
                    "deepspeed='ds.json'",
                    early=True,
                    head="HfDeepSpeedConfig('ds.json')\n",
                    model=_LARGE,
                )
            },
            why="the config object is gone at once",
        ),
    )
    good = (
        example(
            {
                "train.py": script("deepspeed='ds.json'", model=_LARGE),
                "ds.json": deepspeed('"stage": 3'),
            },
            on="8xA100-80GB, 512GiB",
        ),
        example(
            {
                "train.py": script("deepspeed='ds.json'", early=True, model=_LARGE),
                "ds.json": deepspeed('"stage": 2'),
            },
            on="8xA100-80GB, 512GiB",
            why="stage 2 loads whole models anyway",
        ),
        example(
            {
                "train.py": script(
                    "deepspeed='ds.json'", early=True, head="Accelerator()\n", model=_LARGE
                ),
                "ds.json": deepspeed('"stage": 3'),
                "train.sh": "accelerate launch --config_file acc.yaml train.py\n",
                "acc.yaml": _accelerate("true"),
            },
            on="8xA100-80GB, 512GiB",
            why="the Accelerator knows of it before the model is loaded",
        ),
        example(
            {"train.sh": command("", _ACCELERATE), "acc.yaml": _accelerate("false")},
            on="8xA100-80GB, 2TiB",
            why="there is room for eight copies",
        ),
        example(
            {
                "train.py": script("deepspeed='ds.json'", early=True, model=_LARGE),
                "ds.json": deepspeed('"stage": 3'),
                "train.sh": "torchrun --nproc_per_node 1 train.py\n",
            },
            on="8xA100-80GB, 512GiB",
            why="one process loads one copy",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        plan = run.plan
        verdict = judge_ram(run, phase="load")
        facts = list(facts_of(run, "load-before-zero3-config"))
        if plan.load.zero3_init:  # an Accelerator that was told of it before
            return
        if plan.parallel.world == 1:  # one copy, whoever loads it
            return
        for fact in facts[:1]:
            # By an option that nobody gives no config is named.
            zero = plan.parallel.backend == "zero" and plan.parallel.zero.stage in (None, 3)
            if zero or not fact.detail.get("option"):
                yield self._early(run, fact, verdict)
        said = run.settings.get(f.load.zero3_init)
        switched_off = said is not None and said.value is False and said.origin.kind == "explicit"
        if switched_off and plan.parallel.zero.stage == 3 and not facts:
            yield from self._switched_off(run, verdict)

    def _early(self, run: Run, fact: Fact, verdict: RamVerdict | None) -> Finding:
        if fact.detail.get("reason") == "not-kept":
            title = "HfDeepSpeedConfig is not kept in a variable: it is gone when the model loads"
            order: tuple[str, ...] = ()
        else:
            title = "the model is loaded before anything names the DeepSpeed config"
            order = (
                (
                    f"{fact.detail['load']} runs before {fact.detail['config']} "
                    f"(line {fact.detail['config_line']})"
                ),
            )
        # Nothing says that a config which is not here asks for stage 3, or that a model which nobody knows is large enough
        # for host or card to notice its copies; one that may be quantized is never built sharded.
        severity: Severity | None = Severity.INFO
        then: tuple[str, ...] = (
            "if that config asks for ZeRO stage 3, every rank reads the whole model",
        )
        if run.plan.parallel.zero.stage == 3:
            if verdict is not None and run.level(f.quant.method) < Level.UNREAD:
                severity = verdict.severity
            then = (*_amount(verdict), "create the training arguments first")
        if "accelerator-before-load" in run.fact_kinds:
            severity = Severity.INFO
            then = (
                *then,
                "unless accelerate launch names that config: Accelerator() is made before",
            )
        return self.finding(
            run,
            severity or Severity.INFO,
            title,
            at=fact,
            details=(*order, *then),
            confidence="medium",
            resource="host",
            predicted=verdict.judgement.predicted if verdict is not None else None,
            limit=verdict.judgement.limit if verdict is not None else None,
        )

    def _switched_off(self, run: Run, verdict: RamVerdict | None) -> Iterable[Finding]:
        loaded = judge_gpu(run, phase="load") if run.plan.load.device_map == "single" else None
        if loaded is not None and loaded.limit is not None and loaded.predicted > loaded.limit:
            yield self.finding(
                run,
                loaded.severity or Severity.INFO,
                f"{run.key(f.load.zero3_init)} is off: each GPU gets the whole model first",
                at=f.load.zero3_init,
                details=(*loaded.context, "ZeRO stage 3 divides it only after that"),
                judged=loaded,
                proposals=[Proposal.set("build the model sharded", {f.load.zero3_init: True})],
            )
            return
        severity = verdict.severity if verdict is not None else Severity.INFO
        if severity is None:
            return
        yield self.finding(
            run,
            severity,
            f"{run.key(f.load.zero3_init)} is off under ZeRO stage 3",
            at=f.load.zero3_init,
            details=_amount(verdict),
            confidence="medium",
            resource="host",
            predicted=verdict.judgement.predicted if verdict is not None else None,
            limit=verdict.judgement.limit if verdict is not None else None,
            proposals=[Proposal.set("build the model sharded", {f.load.zero3_init: True})],
        )


def _amount(verdict: RamVerdict | None) -> tuple[str, ...]:
    """What every rank reads, as a sentence, and what there is for it."""
    if verdict is None:
        return ("every rank reads the whole model into host RAM before it is divided",)
    if verdict.judgement.limit is None:
        return ("every rank reads the whole model into host RAM", *verdict.details)
    size = gib(verdict.judgement.predicted)
    return (f"every rank reads the whole model into host RAM, {size} a node", *verdict.details)
