"""A checkpoint that is small on disk and becomes 16-bit weights as it is loaded.

## What it finds

An adapter on a checkpoint in MXFP4 (gpt-oss) or FP8 (DeepSeek-V3) that the framework turns into
16 bit while loading, where the run does not fit, or is tight, and the larger weights
are a good part of the reason. On unknown hardware where no 80 GB card would do.

## Why it runs out of memory

The size of the files is no measure: MXFP4 takes 4.25 bits a weight, FP8 8, bf16 16. gpt-oss-120b
is 61 GiB on disk and 218 GiB on the cards. Such formats have no backward pass, so frameworks
train on dequantized weights (`dequantize: true`; LLaMA-Factory sets it by itself).

## How to fix it

No edit here makes it smaller: shard the weights (ZeRO-3, FSDP), or start from a 16-bit copy of the
model and quantize that to 4 bit (QLoRA).

## When not to

Where the framework trains beside the weights as they are stored (Axolotl on NVFP4), nothing is
dequantized, and the rule is silent.

## Sources

* LLaMA-Factory ff6d4d12 `model/model_utils/quantization.py:106` (`Mxfp4Config(dequantize=True)`,
  `FineGrainedFP8Config(dequantize=True)`)
* transformers 5.23 `quantizers/quantizer_mxfp4.py:209` (`is_trainable` is false)
* Axolotl 067b021c `examples/gpt-oss/README.md`, `loaders/model.py:661`
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement import judge_gpu, settled
from oomlint.linting.rule import Finding, Rule, Severity, Where, short
from oomlint.memory import state_bytes
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import AXOLOTL, LLAMA_FACTORY, example

_PACKED = {"mxfp4": "mxfp4", "fp8": "fp8_weight", "fp8_block": "fp8_weight"}
_SPOKEN = {"mxfp4": "MXFP4", "fp8": "FP8", "fp8_block": "FP8"}
# Below this share of the peak the growth of the weights is not what decides.
_SHARE = 0.15

_LF = LLAMA_FACTORY.replace("meta-llama/Llama-3.1-8B", "openai/gpt-oss-20b").replace(
    "type: full", "type: lora"
)
_AXOLOTL = AXOLOTL.replace("meta-llama/Llama-3.1-8B", "openai/gpt-oss-20b") + (
    "adapter: lora\nlora_r: 8\nlora_target_linear: true\n"
    "model_quantization_config: Mxfp4Config\n"
    "model_quantization_config_kwargs:\n  dequantize: {dequantize}\n"
)


class PrequantizedDequantizedOnLoad(Rule, code="OOM212"):
    summary = "a checkpoint in 4 or 8 bit becomes 16-bit weights as it is loaded"
    only_where = (Where(plan={f.quant.dequantised_on_load: (True,)}),)
    explains = ("parameters",)

    bad = (
        example({"train.yaml": _LF}, on="1xA100-40GB"),
        example({"axolotl.yaml": _AXOLOTL.format(dequantize="true")}, on="1xRTX-4090-24GB"),
        example(
            {"train.yaml": _LF.replace("20b", "120b")},
            why="hardware unknown, and more than any common card has",
        ),
    )
    good = (
        example({"train.yaml": _LF}, on="1xH100-80GB"),
        example({"train.yaml": _LF}),
        example({"axolotl.yaml": _AXOLOTL.format(dequantize="false")}, on="1xRTX-4090-24GB"),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        plan = run.plan
        stored = str(plan.model.native_quant)
        if stored not in _PACKED:
            return
        if plan.trainable.method == "full":
            return  # what is trained takes 16 bit and more whatever the checkpoint holds
        judged = judge_gpu(run)
        if judged is None or not judged.is_problem:
            return
        base = settled(run)
        packed = base.assuming(
            {f.quant.method: _PACKED[stored], f.quant.dequantised_on_load: False}
        )
        now, before = state_bytes(base.plan), state_bytes(packed.plan)
        if now is None or before is None:
            return
        if now.parameters - before.parameters < _SHARE * judged.predicted:
            return
        yield self.finding(
            run,
            Severity.INFO if judged.limit is None else Severity.WARNING,
            f"{short(plan.model.id)} is stored in {_SPOKEN[stored]} and becomes 16 bit on loading",
            at=(f.quant.dequantised_on_load, f.model.id),
            details=(
                *judged.context,
                f"its weights take {gib(now.parameters)} a card, as stored {gib(before.parameters)}",
                "shard the weights, or load a 16-bit copy of the model in 4 bit",
            ),
            judged=judged,
        )
