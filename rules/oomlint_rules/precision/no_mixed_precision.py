"""Training computes in fp32: every activation, logit and gradient is twice as large.

## What it finds

A run that computes in fp32, with no mixed precision switched on, whose predicted peak does not
fit and would be lower in 16 bit.

## Why it runs out of memory

Activations, logits and gradients take 4 bytes instead of 2. FlashAttention has no fp32 kernel,
so that attention falls back to one that needs more, in grouped-query models to one that builds
the tokens x tokens matrix.

## How to fix it

`bf16: true` on Ampere and later (A100, RTX 30, H100), `fp16: true` before. Weights and optimizer
states stay as they were loaded. The numbers change, though training in bf16 is what nearly all
models were made with: the fix is unsafe.

## When not to

Where fp32 is wanted: small models, value heads, a reproduction. Weights that were loaded in 16
bit compute in 16 bit without the switch, and the rule is silent.

## Sources

* Micikevicius et al. 2018, arXiv 1710.03740 (mixed precision)
* LLaMA-Factory `hparams/parser.py` ("We recommend enable mixed precision training", a warning)
* pytorch `aten/src/ATen/native/transformers/cuda/sdp_utils.cpp` (flash needs half precision)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from oomlint.judgement import Relief
from oomlint.linting.rule import Applicability, Severity, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import axolotl, example, mended, text
from oomlint_rules._lowering import LowersPeak
from oomlint_rules._remedies import states_exceed
from oomlint_rules.precision._cards import half_of

_SCRIPT = text(
    """
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

    model = AutoModelForCausalLM.from_pretrained(
        "meta-llama/Llama-2-7b-hf", torch_dtype="float32"
    )
    model = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear"))
    arguments = TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=8,
        bf16={bf16},
    )
    Trainer(model=model, args=arguments, train_dataset=data).train()
    """
)
_AXOLOTL = axolotl(
    "Qwen/Qwen2.5-1.5B-Instruct",
    "sequence_len: 5120\nsample_packing: true\nmicro_batch_size: 1\n",
    "gradient_checkpointing: true\nbf16: {bf16}\n",
    lora="all",
)


class NoMixedPrecision(LowersPeak, code="OOM204", fixes=Applicability.UNSAFE, cost=7):
    summary = "the forward and backward pass compute in fp32"
    explains = ("activations", "logits")
    only_where = (Where(plan={f.precision.compute: ("fp32",)}, has_risk=True),)
    at = (f.precision.compute, f.load.dtype)
    most = Severity.WARNING

    bad = (
        mended("train.py", _SCRIPT, bf16=("False", "True"), on="1xH100-80GB"),
        mended("axolotl.yaml", _AXOLOTL, bf16=("false", "true"), on="1xRTX-4080-16GB"),
    )
    good = (
        example({"train.py": _SCRIPT.format(bf16="True")}, on="1xH100-80GB"),
        example(
            {"axolotl.yaml": _AXOLOTL.format(bf16="false")}, on="1xH100-80GB", why="fits in fp32"
        ),
    )

    def concerns(self, run: Run) -> bool:
        return not states_exceed(run)

    def changes(self, run: Run) -> Mapping[Any, Any]:
        return {f.precision.compute: half_of(run)}

    def cause(self, run: Run, found: Relief) -> str:
        moving = gib(found.before.share_of(self.explains))
        return f"the run computes in fp32: activations and logits take {moving}"

    def gain(self, run: Run, found: Relief) -> Iterable[str]:
        return (f"in {half_of(run)} {found.sentence}",)

    def title(self, run: Run, found: Relief) -> str:
        return f"train in {half_of(run)}"
