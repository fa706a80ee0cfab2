"""Preparing a quantized model casts its embeddings to fp32.

## What it finds

A script that calls `prepare_model_for_kbit_training` on a model with a large vocabulary, where
the run does not fit, or is tight.

## Why it runs out of memory

The function casts every parameter that is not quantized to fp32: the norms, for which it is
good, and the embedding and the head, which grow from 2 to 4 bytes an element. Qwen2.5-7B has
2 x 545M of them: 2.0 GiB more on a card that QLoRA had made enough.

## How to fix it

Do its parts by hand: freeze the parameters, cast the norms alone, and call
`model.gradient_checkpointing_enable()` and `model.enable_input_require_grads()`.

## When not to

Where the run fits. GPTQ, AQLM, EETQ, HQQ and torchao models are left as they are by the function.

## Sources

* peft 0.21.2 `utils/other.py` (`prepare_model_for_kbit_training`)
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement import judge_gpu
from oomlint.linting.rule import Finding, Rule, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import example, text

_SCRIPT = text(
    """
    import torch
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments

    args = TrainingArguments(
        output_dir='out',
        per_device_train_batch_size={micro},
        bf16=True,
        gradient_checkpointing=True,
    )
    model = AutoModelForCausalLM.from_pretrained(
        'Qwen/Qwen2.5-14B',
        torch_dtype=torch.bfloat16,
        quantization_config=BitsAndBytesConfig(load_in_4bit=True),
    )
    model = prepare_model_for_kbit_training(model)
    model = get_peft_model(model, LoraConfig(r=16, target_modules='all-linear'))
    trainer = Trainer(model=model, args=args, train_dataset=data)
    trainer.train()
    """
)
# Below, the cast is small beside everything else: two such matrices of a 7B model are 0.9 GiB.
_LARGE_VOCABULARY = 100_000
_BITSANDBYTES = ("bnb4", "bnb8")


class KbitPrepFp32Upcast(Rule, code="OOM208"):
    summary = "preparing a quantized model casts its embeddings to fp32"
    only_where = (Where(plan={f.quant.prepares_kbit: (True,)}, has_card=True),)

    bad = (
        example(
            {"train.py": _SCRIPT.format(micro=16)},
            on="1xT4",
            values={f.seq.max_len: 2048},
        ),
    )
    good = (
        example(
            {"train.py": _SCRIPT.format(micro=1)}, on="1xH100-80GB", values={f.seq.max_len: 2048}
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        plan, dims = run.plan, run.plan.model.dims
        if plan.quant.method not in _BITSANDBYTES:
            return
        if dims is None or not dims.vocab or not dims.hidden or dims.vocab < _LARGE_VOCABULARY:
            return
        judged = judge_gpu(run)
        if judged is None or judged.limit is None or not judged.is_problem:
            return
        matrices = 1 if dims.tie_embeddings else 2
        extra = 2 * matrices * dims.vocab * dims.hidden
        yield self.info(
            run,
            f"prepare_model_for_kbit_training casts embedding and head to fp32: {gib(extra)} more",
            at=(f.quant.prepares_kbit, f.quant.method),
            details=(
                *judged.context,
                "freeze the parameters and cast the norms alone instead",
            ),
            judged=judged,
            confidence="medium",
        )
