"""Weights that ZeRO-3 cannot divide because they are quantized.

## What it finds

ZeRO stage 3 over a base that bitsandbytes holds in 8 bit, or that GPTQ, AWQ, HQQ, EETQ or AQLM
quantized; and over a 4-bit base that one card does not hold.

## Why it runs out of memory

Those formats keep scales and packed integers beside the weights, which ZeRO-3 neither divides
nor gathers: LLaMA-Factory stops with an error, others load the whole base on every card and
fail at the first gather. A 4-bit base is divided, but only once it is loaded: transformers
builds what is quantized outside of ZeRO-3, so that each rank first packs all of it on its
own card, 36 GiB for 70B parameters.

## How to fix it

ZeRO-2, which leaves the frozen base whole on each card, divides the adapters' states and
does not touch it; 16-bit weights with ZeRO-3; or, for a 4-bit base that is too large for one
card, FSDP, where rank 0 loads for all (`fsdp_cpu_ram_efficient_loading`).

## When not to

For MXFP4 and FP8 checkpoints that are turned into 16 bit while loading.

## Sources

* LLaMA-Factory ff6d4d12 `src/llamafactory/model/model_utils/quantization.py:101-105`, `:199-223`
* peft documentation, DeepSpeed (bitsandbytes with ZeRO-3 in 4 bit only)
* transformers 4.48 to 5.23 `modeling_utils.py` (`get_init_context`: no `zero.Init` for what is
  quantized) and `quantizers/quantizer_bnb_4bit.py` (`update_device_map`)
* https://github.com/deepspeedai/DeepSpeed/issues/5617, https://github.com/hiyouga/LLaMA-Factory/issues/1936,
  https://github.com/hiyouga/LLaMA-Factory/issues/3880
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement import judge_gpu
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._conditions import UNDER_ZERO_3
from oomlint_rules._examples import AXOLOTL, LLAMA_FACTORY, deepspeed, example

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


class Zero3WithQuantizedBase(Rule, code="OOM305", fixes=Applicability.SAFE, cost=3):
    summary = "ZeRO-3 cannot divide weights that are quantized this way"
    only_where = (Where(plan=UNDER_ZERO_3),)

    bad = (
        example(
            {"train.yaml": f"{_LORA}quantization_bit: 8\n", "ds.json": deepspeed('"stage": 3')},
            {"ds.json": deepspeed('"stage": 2')},
        ),
        example(
            {"train.yaml": _AXOLOTL, "ds.json": deepspeed('"stage": 3')},
            {"ds.json": deepspeed('"stage": 2')},
        ),
        example(
            {
                "train.yaml": f"{_LORA.replace('8B', '70B')}quantization_bit: 4\n",
                "ds.json": deepspeed('"stage": 3'),
            },
            on="8xRTX-4090",
        ),
    )
    good = (
        example(
            {"train.yaml": f"{_LORA}quantization_bit: 8\n", "ds.json": deepspeed('"stage": 2')}
        ),
        example(
            {"train.yaml": f"{_LORA}quantization_bit: 4\n", "ds.json": deepspeed('"stage": 3')}
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        plan = run.plan
        name = _NAMES.get(str(plan.quant.method))
        if name is not None:
            yield self.error(
                run,
                f"{name} weights cannot be divided among the ranks by ZeRO stage 3",
                at=(f.quant.method, f.parallel.zero.stage),
                details=("the run stops, or keeps all of them on every card",),
                proposals=[Proposal.set("use ZeRO stage 2", {f.parallel.zero.stage: 2})],
                notes=[self.note(run, f.parallel.zero.stage, "the stage is 3")],
            )
        elif plan.quant.method == "bnb4":
            judged = judge_gpu(run, phase="load")
            if judged is None or judged.limit is None or judged.severity is None:
                return
            if judged.predicted <= judged.limit:
                return
            yield self.finding(
                run,
                judged.severity,
                f"each rank loads all {gib(judged.predicted)} of 4-bit weights, more than a card has",
                at=(f.quant.method, f.parallel.zero.stage),
                details=(*judged.context, "ZeRO stage 3 divides them only after that"),
                judged=judged,
            )
