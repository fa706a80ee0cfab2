"""Saving an 8-bit model makes a second copy of its weights on the GPU, in old stacks.

## What it finds

A LoRA adapter on weights of `load_in_8bit` in a stack where saving asks for the state dict of the
whole model: bitsandbytes before 0.39, where that is known; and Python scripts that still
replace `model.state_dict` by `get_peft_model_state_dict`, as those of that time had to.

## Why it runs out of memory

bitsandbytes keeps 8-bit weights on the GPU in the order that its matrix multiplication
wants. Asked for a state dict, 0.38 brings them back into plain order, all of them, on the
GPU, before the adapter is picked out: a 13B model takes another 13 GB. The run dies exactly
at the first `save_steps`, on a card of 24 GB that trains it well.

## How to fix it

A current bitsandbytes, with a current peft, which saves the adapter without asking for the rest. There the
replacement of `model.state_dict` must go: peft filters what it gets once more and saves an
adapter that is empty. The fix deletes it; it is unsafe because what is saved changes. In a config
the other way is 4-bit weights, which have no such order.

## When not to

Where the versions are pinned, and the card has room for the second copy.

## Sources

* bitsandbytes 0.38.1 `nn/modules.py` (`Linear8bitLt._save_to_state_dict` calls `undo_layout`), 0.39.0 changelog
* https://github.com/Facico/Chinese-Vicuna/issues/147, https://github.com/Facico/Chinese-Vicuna/issues/81,
  https://github.com/oobabooga/text-generation-webui/issues/1490
* https://github.com/tloen/alpaca-lora/issues/319 (an empty adapter)
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement import judge_gpu, severity_of_need
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Severity, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib, of_gib
from oomlint_rules._examples import AXOLOTL, example, mended, text
from oomlint_rules._scripts import facts_of, mending

_FIRST_COPYING = (0, 38)
_FIRST_SOUND = (0, 39)

_SCRIPT = text(
    """
    from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
    from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

    model = AutoModelForCausalLM.from_pretrained("huggyllama/llama-13b", load_in_8bit=True)
    model = get_peft_model(model, LoraConfig(r=8))
    old_state_dict = model.state_dict
    {override}args = TrainingArguments(output_dir='out', per_device_train_batch_size=4, save_steps=200)
    Trainer(model=model, args=args, train_dataset=data).train()
    """
)
_OVERRIDE = text(
    """
    model.state_dict = (
        lambda self, *_, **__: get_peft_model_state_dict(self, old_state_dict())
    ).__get__(model, type(model))
    """
)
_YAML = f"{AXOLOTL}adapter: lora\nlora_r: 8\nlora_target_linear: true\nload_in_8bit: true\n"


class Bnb8bitSaveOom(Rule, code="OOM510", fixes=Applicability.UNSAFE, cost=9):
    summary = "saving 8-bit weights makes a second copy of them on the GPU, in old stacks"
    only_where = (Where(plan={f.quant.method: ("bnb8",)}),)

    bad = (
        mended("train.py", _SCRIPT, override=(_OVERRIDE, "")),
        example(
            {"train.yaml": _YAML},
            on="1xRTX-3090-24GB",
            values={"versions": {"bitsandbytes": "0.38.1"}},
        ),
    )
    good = (
        example({"train.py": _SCRIPT.format(override="")}),
        example({"train.yaml": _YAML}, on="1xRTX-3090-24GB"),
        example(
            {"train.yaml": _YAML},
            on="1xRTX-3090-24GB",
            values={"versions": {"bitsandbytes": "0.45.0"}},
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        if run.plan.save.strategy == "no":
            return
        for fact in facts_of(run, "overrides-state-dict"):
            yield self._finding(
                run,
                "model.state_dict is replaced as it had to be for bitsandbytes 0.38",
                "current peft saves the adapter by itself, and an empty one through this",
                fact,
                mending("delete the replacement", fact, Applicability.UNSAFE),
            )
        if _is_old(run.plan.versions.get("bitsandbytes")):
            yield self._finding(
                run,
                "bitsandbytes before 0.39 copies all 8-bit weights at every save",
                "upgrade it, or load in 4 bit",
                f.quant.method,
                (),
            )

    def _finding(
        self, run: Run, title: str, advice: str, at: object, proposals: tuple[Proposal, ...]
    ) -> Finding:
        dims = run.plan.model.dims
        total = dims.params_total if dims is not None else None
        if _copies(run.plan.versions.get("bitsandbytes")):
            saving = judge_gpu(run, phase="save")
            need = None if saving is None else saving.predicted
        else:
            training = judge_gpu(run)
            need = None if training is None or total is None else training.predicted + total
        limit = run.limits.gpu_bytes
        severity = None if need is None else severity_of_need(run, "gpu", need)
        size = "" if total is None else f", {gib(total)}"
        details = [
            f"that version brings 8-bit weights into plain order: a second copy{size} on the GPU"
        ]
        if severity is not None and need is not None and limit is not None:
            details.append(f"{of_gib(need, limit)} with what training holds there")
        return self.finding(
            run,
            severity or Severity.INFO,
            title,
            at=at,
            details=(*details, advice),
            confidence="medium",
            resource="gpu",
            predicted=need,
            limit=limit,
            proposals=proposals,
        )


def _is_old(version: str | None) -> bool:
    return () < _release(version) < _FIRST_SOUND


def _copies(version: str | None) -> bool:
    """Whether the copies are part of what is predicted for a save (``memory.checkpoint``)."""
    return _FIRST_COPYING <= _release(version) < _FIRST_SOUND


def _release(version: str | None) -> tuple[int, ...]:
    numbers = tuple(int(part) for part in (version or "").split(".")[:2] if part.isdigit())
    return numbers if len(numbers) == 2 else ()
