"""The vision tower of a multimodal model is trained with the rest.

## What it finds

Full fine-tuning of a vision-language model with `freeze_vision_tower: false` (LLaMA-Factory) or
`--freeze_vit false` (ms-swift), where the run does not fit, and would take
less with the tower frozen.

## Why it runs out of memory

A trained tower has gradients and optimizer states like everything else, 16 bytes a parameter with
Adam in mixed precision: 0.7B parameters in Qwen2-VL are 10 GiB where nothing shards them. And its
activations have to be kept for the backward pass: a frozen tower runs without any, a trained one
keeps four times as many patches as there are image tokens, through all of its layers.

## How to fix it

Freeze it, the default of both frameworks: the language model and the projector learn, the eyes stay
as they are. That is another training, so the fix is unsafe.

## When not to

Where the images are unlike those that the tower has seen (scans, documents, medical images).

## Sources

* https://github.com/modelscope/ms-swift/issues/3504 (fits with a frozen tower, not without),
  https://github.com/modelscope/ms-swift/issues/6484
* LLaMA-Factory ff6d4d12 `hparams/finetuning_args.py:546`; ms-swift 3602360a
  `arguments/tuner_args.py` (`freeze_vit`)
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement import Relief
from oomlint.linting.rule import Applicability, Severity, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import LLAMA_FACTORY, example, mended
from oomlint_rules._lowering import LowersPeak

_TOWER = f.model.vision.freeze_tower
_LF = (
    LLAMA_FACTORY.replace("meta-llama/Llama-3.1-8B", "Qwen/Qwen2-VL-2B-Instruct")
    + "image_max_pixels: 262144\nfreeze_vision_tower: {frozen}\n"
)
_SWIFT = (
    "swift sft --model Qwen/Qwen2-VL-2B-Instruct --dataset our/images.jsonl --tuner_type full"
    " --torch_dtype bfloat16 --max_length 4096 --per_device_train_batch_size 1 --freeze_vit {frozen}\n"
)


class VlmTowerUnfrozen(LowersPeak, code="OOM118", fixes=Applicability.UNSAFE, cost=8):
    summary = "the vision tower is trained with the rest where a frozen one would fit"
    only_where = (
        Where(
            plan={f.model.vision.freeze_tower: (False,), f.trainable.method: ("full",)},
            has_card=True,
            has_risk=True,
        ),
    )
    change = {_TOWER: True}
    at = (_TOWER,)
    with_it = "with the tower frozen"
    fix = "freeze the vision tower"

    bad = (
        mended("train.yaml", _LF, frozen=("false", "true"), on="1xA100-40GB"),
        mended("train.sh", _SWIFT, frozen=("false", "true"), on="1xRTX-4090-24GB"),
    )
    good = (
        example({"train.yaml": _LF.format(frozen="true")}, on="1xA100-40GB"),
        example({"train.yaml": _LF.format(frozen="false")}, on="1xB200-180GB"),
        example({"train.yaml": _LF.format(frozen="false")}),
    )

    def concerns(self, run: Run) -> bool:
        dims = run.plan.model.dims
        return dims is not None and dims.vision is not None

    def severity(self, run: Run, found: Relief) -> Severity:
        return Severity.WARNING if found.suffices else Severity.INFO

    def cause(self, run: Run, found: Relief) -> str:
        return f"the vision tower is trained too, which takes {gib(found.saved)} of the peak"

    def gain(self, run: Run, found: Relief) -> Iterable[str]:
        own = "it has gradients, optimizer states and activations of its own"
        return (own, *super().gain(run, found))
