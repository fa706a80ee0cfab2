"""Quantized weights that are to be trained without an adapter.

## What it finds

4-bit or 8-bit weights (`load_in_4bit`, `load_in_8bit`, a GPTQ or AWQ checkpoint) in full fine-tuning
under transformers' Trainer, TRL, Axolotl or ms-swift. LLaMA-Factory's own check is found by
lf-invalid-combo. Only where a config decides whether there is an adapter: a script may wrap its model
in ways that no reader sees. Nor where only a sibling's launch line tells how the run is started: a
script of the project's own may load its weights whole. Where a program of the project's own starts the
config by a line that is not read, the finding is a remark.

## Why it runs out of memory

It does not get that far: integers have no gradient. The Trainer raises *You cannot perform
fine-tuning on purely quantized models* once the model is loaded, Axolotl as it reads its config.
Who then drops the quantization and keeps full fine-tuning needs 16 bytes a parameter where half a
byte was planned: 120 GiB instead of 4 for 8B parameters.

## How to fix it

Train an adapter on the quantized weights (QLoRA). That is the training that was meant where
somebody quantizes, but another result than full fine-tuning: the fix is unsafe.

## When not to

Quantization-aware training with torchao, which holds no quantized weights.

## Sources

* transformers 5.23 `trainer_utils.py:102` (`validate_quantization_for_training`), 4.57
  `trainer.py:552`
* Axolotl 067b021c `utils/schemas/peft.py:183`
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.dialects.common.quantization import WITHOUT_GRADIENT
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Severity, When, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import AXOLOTL, example, mended, script, text
from oomlint_rules._fixes import changed

_FRAMEWORKS = ("hf-trainer", "trl", "axolotl", "ms-swift")

_TRL = text(
    """
    model_name_or_path: Qwen/Qwen2.5-7B
    dataset_name: trl-lib/Capybara
    load_in_4bit: true
    {more}per_device_train_batch_size: 1
    max_length: 1024
    output_dir: out
    """
)
_ADAPTER = "adapter: qlora\nlora_r: 16\nlora_alpha: 32\nlora_target_linear: true\n"


class QuantizedPlusCompileOrNonlora(
    Rule, code="OOM816", may_end=True, fixes=Applicability.UNSAFE, cost=8
):
    summary = "quantized weights are to be trained without an adapter"
    only_where = (
        Where(
            plan={f.trainable.method: ("full",), f.quant.method: WITHOUT_GRADIENT},
            frameworks=_FRAMEWORKS,
        ),
    )

    bad = (
        example(
            {"axolotl.yaml": f"{AXOLOTL}load_in_4bit: true\n"},
            {"axolotl.yaml": f"{AXOLOTL}load_in_4bit: true\n{_ADAPTER}"},
        ),
        mended("sft.yaml", _TRL, more=("use_peft: false\n", "use_peft: true\n")),
    )
    good = (
        example({"sft.yaml": _TRL.format(more="use_peft: true\n")}),
        example({"axolotl.yaml": AXOLOTL}),
        example(
            {"train.py": script(load="    load_in_4bit=True,\n", head="import ours\n\n")},
            why="a script may wrap its model in a way that no reader sees",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        plan = run.plan
        if run.is_started_by_guess:
            return
        method = "qlora" if plan.quant.method == "bnb4" else "lora"
        if not _config_decides(run, method):
            return
        unread = run.parts.unread_program
        yield self.finding(
            run,
            Severity.INFO if unread else Severity.ERROR,
            "the weights are quantized, and no adapter is trained on them",
            at=(f.quant.requested_bits, f.quant.method, f.model.id),
            details=(
                "quantized weights have no gradient, and the run stops with an error",
                *([f"unless they are loaded whole: {unread}"] if unread else ()),
            ),
            proposals=[
                Proposal.set(
                    "train an adapter on the quantized weights",
                    {f.trainable.method: method},
                    Applicability.UNSAFE,
                )
            ],
            ends=When.LOADED,
        )


def _config_decides(run: Run, method: str) -> bool:
    """Whether a key says if there is an adapter; a script may wrap its model unseen."""
    return changed(run, {f.trainable.method: method}) is not None
