"""4-bit weights are stored in another floating-point type than the rest of the model.

## What it finds

FSDP (version 1) with 4-bit weights of bitsandbytes whose storage type
(`bnb_4bit_quant_storage`) is not the type that the rest of the model is loaded in.

## Why it runs out of memory

FSDP packs a unit's parameters into one tensor of one type. Weights stored as bfloat16 beside
norms in float16 or float32 end with *Must flatten tensors with uniform dtype* once the model
is loaded. Those who then drop FSDP hold the whole model on every card: 70B parameters in 4
bit are 36 GiB.

## How to fix it

Store the 4-bit weights in the type that the model is loaded in. The bytes stay the same, the
type only says how they are packed.

## When not to

Under FSDP2, which shards each parameter by itself.

## Sources

* bitsandbytes documentation, FSDP-QLoRA (`bnb_4bit_quant_storage` and `torch_dtype` equal)
* torch `distributed/fsdp/_flat_param.py` (`_validate_tensors_to_flatten`)
* https://github.com/hiyouga/LLaMA-Factory/issues/3470
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, When, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import example, text

_SCRIPT = text(
    """
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments

    args = TrainingArguments(
        output_dir='out',
        per_device_train_batch_size=1,
        fsdp='full_shard auto_wrap',
        fsdp_config={'version': 1},
    )
    quantized = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_storage=STORAGE,
    )
    model = AutoModelForCausalLM.from_pretrained(
        'meta-llama/Llama-3.1-8B',
        torch_dtype=torch.float16,
        quantization_config=quantized,
    )
    model = get_peft_model(model, LoraConfig(r=16))
    trainer = Trainer(model=model, args=args, train_dataset=data)
    trainer.train()
    """
)
_HALVES = ("bf16", "fp16", "fp32")


class FsdpQloraStorageDtypeMismatch(Rule, code="OOM209", may_end=True, fixes=Applicability.SAFE):
    summary = "4-bit weights are stored in another type than the rest of the model"
    only_where = (Where(plan={f.parallel.backend: ("fsdp1",), f.quant.method: ("bnb4",)}),)

    bad = (
        example(
            {"train.py": _SCRIPT.replace("STORAGE", "torch.bfloat16")},
            {"train.py": _SCRIPT.replace("STORAGE", "'float16'")},
        ),
    )
    good = (example({"train.py": _SCRIPT.replace("STORAGE", "torch.float16")}),)

    def check(self, run: Run) -> Iterable[Finding]:
        plan = run.plan
        stored, loaded = plan.quant.storage_dtype, plan.load.dtype
        if stored not in _HALVES or loaded not in _HALVES or stored == loaded:
            return
        if not _is_said(run):
            return
        yield self.error(
            run,
            f"4-bit weights are stored as {stored} and the rest of the model as {loaded}",
            at=(f.quant.storage_dtype, f.quant.method),
            details=(
                'FSDP stops with "Must flatten tensors with uniform dtype" once the model is loaded',
            ),
            proposals=[
                Proposal.set(f"store 4-bit weights as {loaded}", {f.quant.storage_dtype: loaded})
            ],
            ends=When.LOADED,
        )


def _is_said(run: Run) -> bool:
    """Whether both types are the files' own words, and no guess of ours."""
    origin = run.origin(f.load.dtype)
    return (
        run.is_explicit(f.quant.storage_dtype) and origin is not None and origin.kind != "assumed"
    )
