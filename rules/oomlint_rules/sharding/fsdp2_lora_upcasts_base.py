"""A frozen base that an old Accelerate casts to fp32 under FSDP2.

## What it finds

FSDP2 with mixed precision and a frozen 16-bit base, under an Accelerate that is known to be 1.6 to
1.12: the project pins it (or `--set versions.accelerate=1.10.1` does), or the framework allows no
newer one, as LLaMA-Factory does.

## Why it runs out of memory

Those versions cast the whole model to fp32 in `fsdp2_prepare_model`, what is trained and what is
not: a frozen weight takes 4 bytes instead of 2, divided by the ranks. 70.6B parameters over 8 GPUs
are 33 GiB a card instead of 16. FSDP1 casts only what requires a gradient, and from Accelerate 1.14
on FSDP2 does too; 1.13 casts nothing.

## How to fix it

Upgrade Accelerate. Else load the model in bf16 and train without mixed precision
(`mixed_precision: 'no'`), or use `fsdp_version: 1`. No edit of the config alone is right, so none
is offered.

## When not to

In full fine-tuning the fp32 copy is the master weight that the optimizer needs. Weights that
bitsandbytes holds in 4 bit stay as they are, and so does everything under `mixed_precision: 'no'`.
Axolotl prepares FSDP2 itself from 0.12 on, and casts nothing.

## Sources

* Accelerate 1.6.0 `utils/fsdp_utils.py:562` and 1.12.0 `utils/fsdp_utils.py:709`
  (`model.to(torch.float32)`); 1.13.0 `utils/fsdp_utils.py:737` (casts a copy that is dropped);
  1.14.0 `utils/fsdp_utils.py:712` (only what requires a gradient)
* LLaMA-Factory ff6d4d12 `pyproject.toml:45` (Accelerate up to 1.11)
* https://github.com/huggingface/accelerate/issues/3844,
  https://github.com/huggingface/accelerate/pull/3848
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.dialects.common.fields import fsdp
from oomlint.judgement import judge_gpu, settled
from oomlint.linting.rule import Finding, Rule, Severity, Where
from oomlint.memory import state_bytes
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import accelerate, example, text

_LLAMA_FACTORY = text(
    """
    model_name_or_path: meta-llama/Llama-3.1-70B
    stage: sft
    do_train: true
    finetuning_type: lora
    lora_rank: 8
    dataset: alpaca
    template: llama3
    cutoff_len: 1024
    per_device_train_batch_size: 1
    bf16: true
    output_dir: out
    """
)
_TRL = text(
    """
    model_name_or_path: meta-llama/Llama-3.1-70B
    dtype: bfloat16
    dataset_name: trl-lib/Capybara
    use_peft: true
    bf16: true
    per_device_train_batch_size: 1
    max_length: 1024
    output_dir: out
    """
)
_FSDP2 = accelerate(
    "FSDP", "fsdp_config:\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_version: 2\n"
)
_LAUNCH = "accelerate launch --config_file acc.yaml -m trl.scripts.sft --config sft.yaml\n"
_LF_LAUNCH = "accelerate launch --config_file acc.yaml src/train.py lora.yaml\n"
_FILES = {"sft.yaml": _TRL, "acc.yaml": _FSDP2, "train.sh": _LAUNCH}
_OLD = {"versions": {"accelerate": "1.10.1"}}


class Fsdp2LoraUpcastsBase(Rule, code="OOM310"):
    summary = "an old Accelerate casts a frozen base to fp32 under FSDP2"
    only_where = (
        Where(
            plan={
                f.parallel.backend: ("fsdp2",),
                f.quant.method: (None, "none"),
                f.load.dtype: ("bf16", "fp16"),
                f.precision.param: ("fp32",),
            }
        ),
    )
    explains = ("parameters",)

    bad = (
        example(_FILES, on="8xA100-40GB", values=_OLD),
        example(_FILES, values=_OLD),
        example(
            {"lora.yaml": _LLAMA_FACTORY, "acc.yaml": _FSDP2, "train.sh": _LF_LAUNCH},
            on="8xA100-40GB",
        ),
    )
    good = (
        example(_FILES, on="8xA100-40GB"),
        example(_FILES, on="8xA100-40GB", values={"versions": {"accelerate": "1.14.0"}}),
        example(
            {**_FILES, "sft.yaml": _TRL + "load_in_4bit: true\n"}, on="8xA100-40GB", values=_OLD
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        plan = run.plan
        if plan.trainable.method in ("full", None):
            return
        judged, states = judge_gpu(run), state_bytes(settled(run).plan)
        if judged is None or states is None:
            return
        if judged.severity is None:
            return
        extra, pinned = states.parameters / 2, plan.versions.get("accelerate")
        version = f"Accelerate {pinned}" if pinned else "the Accelerate that the framework allows"
        yield self.finding(
            run,
            Severity.INFO if judged.limit is None else Severity.WARNING,
            f"Accelerate casts frozen weights to fp32 under FSDP2: {gib(extra)} more a card",
            at=(f.parallel.fsdp.version, fsdp.enabled),
            details=(
                *judged.context,
                f"{version} does so under mixed precision",
                "Accelerate 1.14 casts only what is trained",
            ),
            judged=judged,
            confidence="medium",
        )
