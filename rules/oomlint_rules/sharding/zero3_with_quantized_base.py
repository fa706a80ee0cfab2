"""Weights that ZeRO-3 cannot divide because they are quantized.

## What it finds

ZeRO stage 3 over a base that bitsandbytes holds in 8 bit, or that GPTQ, AWQ, HQQ, EETQ or AQLM
quantized; over a 4-bit base that a script loads before ZeRO-3 is known; and over one that does not fit
on a card whole.

## Why it runs out of memory

Those formats keep scales and packed integers beside the weights, which ZeRO-3 neither divides
nor gathers: LLaMA-Factory stops with an error, others load the whole base on every card and
fail at the first gather. A 4-bit base can be divided, but not while it is loaded: transformers
opens no `zero.Init` for a quantized model, so that each rank has all of it on its card, 36 GiB for 70B
parameters, until DeepSpeed starts. Where the script loads it before ZeRO-3 is known, it stays there.

## How to fix it

ZeRO-2, which leaves the frozen base whole on each card, divides the adapters' states and
does not touch it; or 4 bit with `bnb_4bit_quant_storage`; or 16-bit weights with ZeRO-3.

## When not to

For MXFP4 and FP8 checkpoints that are turned into 16 bit while loading.

## Sources

* LLaMA-Factory ff6d4d12 `src/llamafactory/model/model_utils/quantization.py:101-105`, `:199-223`
* transformers 4.52 `modeling_utils.py` (`get_init_context`, "and not is_quantized")
* peft documentation, DeepSpeed (bitsandbytes with ZeRO-3 in 4 bit only)
* https://github.com/deepspeedai/DeepSpeed/issues/5617, https://github.com/hiyouga/LLaMA-Factory/issues/1936
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement import judge_gpu
from oomlint.plan.fields import f
from oomlint.rule import Applicability, Example, Finding, Proposal, Rule, Severity, Where
from oomlint.run import Run
from oomlint_rules._examples import AXOLOTL, LLAMA_FACTORY, deepspeed

_LORA = LLAMA_FACTORY.replace("type: full", "type: lora") + "deepspeed: ds.json\n"
_AXOLOTL = f"{AXOLOTL}adapter: lora\nload_in_8bit: true\ndeepspeed: ds.json\n"
_NAMES = {
    "bnb8": "8-bit",
    "gptq": "GPTQ",
    "awq": "AWQ",
    "hqq": "HQQ",
    "eetq": "EETQ",
    "aqlm": "AQLM",
}


class Zero3WithQuantizedBase(Rule):
    code = "OOM305"
    name = "zero3-with-quantized-base"
    summary = "ZeRO-3 cannot divide weights that are quantized this way"
    applicability = Applicability.SAFE
    cost = 3
    only_where = (Where(plan={f.parallel.backend: ("zero",), f.parallel.zero.stage: (3,)}),)

    bad = (
        Example(
            files={
                "train.yaml": f"{_LORA}quantization_bit: 8\n",
                "ds.json": deepspeed('"stage": 3'),
            },
            fixed={"ds.json": deepspeed('"stage": 2')},
        ),
        Example(
            files={"train.yaml": _AXOLOTL, "ds.json": deepspeed('"stage": 3')},
            fixed={"ds.json": deepspeed('"stage": 2')},
        ),
        Example(
            files={
                "train.yaml": f"{_LORA}quantization_bit: 4\n".replace("8B", "70B"),
                "ds.json": deepspeed('"stage": 3'),
            },
            hardware="8xRTX-4090",
        ),
    )
    good = (
        Example(
            files={
                "train.yaml": f"{_LORA}quantization_bit: 8\n",
                "ds.json": deepspeed('"stage": 2'),
            },
        ),
        Example(
            files={
                "train.yaml": f"{_LORA}quantization_bit: 4\n",
                "ds.json": deepspeed('"stage": 3'),
            },
        ),
        Example(
            files={
                "train.yaml": f"{_LORA}quantization_bit: 4\n".replace("8B", "70B"),
                "ds.json": deepspeed('"stage": 3'),
            },
            hardware="8xA100-80GB",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        plan = run.plan
        name = _NAMES.get(str(plan.quant.method))
        if name is not None:
            yield self.finding(
                run,
                Severity.ERROR,
                f"{name} weights cannot be divided among the ranks by ZeRO stage 3",
                at=(f.quant.method, f.parallel.zero.stage),
                details=("the run stops, or keeps all of them on every card",),
                proposals=[Proposal.set("use ZeRO stage 2", {f.parallel.zero.stage: 2})],
                notes=[self.note(run, f.parallel.zero.stage, "the stage is 3")],
            )
        elif plan.quant.method == "bnb4" and plan.load.zero3_init is False:
            yield self.finding(
                run,
                Severity.WARNING,
                "the 4-bit weights are loaded before ZeRO stage 3 is known",
                at=(f.quant.method, f.parallel.zero.stage),
                details=(
                    "every rank loads all of them",
                    "create the training arguments, with their DeepSpeed config, first",
                ),
                confidence="medium",
            )
        elif plan.quant.method == "bnb4":
            loading = judge_gpu(run, phase="load")
            if loading is None or loading.severity is None or not loading.is_problem:
                return
            yield self.finding(
                run,
                loading.severity,
                "every card gets all 4-bit weights before ZeRO stage 3 divides them",
                at=(f.quant.method, f.parallel.zero.stage),
                details=(
                    loading.sentence,
                    "16-bit weights are divided while they are loaded",
                    "FSDP with cpu_ram_efficient_loading divides 4-bit ones on the host",
                ),
                confidence="medium",
                resource="gpu",
                predicted=loading.predicted,
                limit=loading.limit,
            )
