"""The weights are loaded in fp32: twice the memory of the 16-bit checkpoint.

## What it finds

Weights that are loaded in fp32 on a run whose predicted peak does not fit and would be lower if
they were loaded in bf16: a frozen base under LoRA most of all,
where nobody needs the precision; full fine-tuning too, where fp32 weights serve as the master
copy of mixed precision and half of them is a real choice.

## Why it runs out of memory

`bf16: true` in the training arguments only computes in bf16. The dtype that weights are *kept*
in is the one they were loaded in: 4 bytes a parameter in fp32, 32 GB for 8B, and in full
fine-tuning gradients and both of Adam's moments in the same dtype, 16 bytes a parameter
against 8. TRL loads a model that is named by a string in fp32 unless `dtype` says otherwise;
transformers did so up to 4.57.

## How to fix it

Load in bf16 (`dtype: bfloat16`, `torch_dtype` before transformers 5; fp16 on cards without
bfloat16). For a frozen base that is what nearly every LoRA run does; the fix is unsafe, because
numbers change. In full fine-tuning small updates are lost to rounding: there it is shown, for you to
try first.

## When not to

DeepSpeed casts to 16 bit and FSDP with mixed precision keeps fp32 shards whatever is loaded:
no memory of the GPU is to be won there, and the rule is silent. A base that is quantized is
not stored in this dtype. In full fine-tuning the rule only remarks on it where half of the weights is not
enough either.

## Sources

* TRL `trainer/model_config.py:89`, `trainer/utils.py:1144` (float32 where nothing is said)
* transformers 5.23 `modeling_utils.py:4178` (the checkpoint's dtype from 5.0 on)
* https://github.com/huggingface/trl/pull/2600, https://github.com/axolotl-ai-cloud/axolotl/issues/2143
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from oomlint.judgement import Relief, sharding_is_open
from oomlint.linting.rule import Applicability, Confidence, Severity, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import example, mended, text
from oomlint_rules._lowering import LowersPeak
from oomlint_rules._remedies import lowered
from oomlint_rules.precision._cards import half_of

_TRL = text(
    """
    model_name_or_path: meta-llama/Llama-3.1-8B-Instruct
    {dtype}attn_implementation: sdpa
    dataset_name: trl-lib/Capybara
    use_peft: true
    max_length: 1024
    per_device_train_batch_size: 1
    gradient_checkpointing: true
    bf16: true
    output_dir: out
    """
)
_SCRIPT = text(
    """
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

    model = AutoModelForCausalLM.from_pretrained(
        "meta-llama/Llama-3.1-8B", torch_dtype="{dtype}"
    )
    model = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear"))
    arguments = TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=1,
        gradient_checkpointing=True,
        bf16=True,
    )
    Trainer(model=model, args=arguments, train_dataset=data).train()
    """
)


class ModelLoadedInFp32(LowersPeak, code="OOM203", fixes=Applicability.UNSAFE, cost=7):
    summary = "weights are kept in fp32 where 16 bit would do"
    explains = ("parameters",)
    only_where = (
        Where(plan={f.load.dtype: ("fp32",), f.quant.method: (None, "none")}, has_risk=True),
    )
    at = (f.load.dtype, f.model.id)
    even_unsaid = True

    bad = (
        mended(
            "sft.yaml", _TRL, dtype=("dtype: float32\n", "dtype: bfloat16\n"), on="1xRTX-5090-32GB"
        ),
        mended("train.py", _SCRIPT, dtype=("float32", "bfloat16"), on="1xRTX-5090-32GB"),
    )
    good = (
        example({"sft.yaml": _TRL.format(dtype="dtype: bfloat16\n")}, on="1xRTX-5090-32GB"),
        example(
            {"train.py": _SCRIPT.format(dtype="float32")}, on="1xH100-80GB", why="fits in fp32 too"
        ),
    )

    def changes(self, run: Run) -> Mapping[Any, Any]:
        return {f.load.dtype: half_of(run)}

    def severity(self, run: Run, found: Relief) -> Severity | None:
        severity = found.severity
        assert severity is not None
        if _trains_it(run):
            if sharding_is_open(run) or not found.before.is_problem:
                return None
            # A half of the fp32 weights is a choice that only a run has to make that lives by it.
            most = Severity.WARNING if found.suffices else Severity.INFO
            severity = lowered(min(severity, most), run)
        return min(severity, Severity.WARNING) if _is_guessed(run) else severity

    def cause(self, run: Run, found: Relief) -> str:
        size = gib(found.before.components.get("parameters"))
        return f"weights are loaded in fp32 and take {size}"

    def gain(self, run: Run, found: Relief) -> Iterable[str]:
        unsaid = _is_guessed(run) and not run.is_explicit(f.load.dtype)
        told = ("fp32 as far as the files tell",) if unsaid else ()
        return (*told, f"in {half_of(run)} {found.sentence}")

    def confidence(self, run: Run, found: Relief) -> Confidence:
        return "low" if _is_guessed(run) else found.before.confidence

    def title(self, run: Run, found: Relief) -> str:
        return f"load the weights in {half_of(run)}"

    def level(self, run: Run, found: Relief) -> Applicability:
        # Where they are trained, fp32 is what small updates are kept in: a learning rate of 1e-6 moves a weight of
        # 0.02 by less than half a step of bf16, whose fraction has 7 bits (2^-8 of the weight).
        return Applicability.DISPLAY if _trains_it(run) else Applicability.UNSAFE


def _trains_it(run: Run) -> bool:
    return run.plan.trainable.method in ("full", "freeze", None)


def _is_guessed(run: Run) -> bool:
    origin = run.origin(f.load.dtype)
    return origin is None or origin.kind == "assumed"
