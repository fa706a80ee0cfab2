"""Activation checkpointing switched on in the trainer where FSDP should do it, or in both.

## What it finds

FSDP together with `gradient_checkpointing: true` of transformers' training arguments: an error
where FSDP's own `activation_checkpointing` is on too, otherwise an information. It speaks only
where the file itself switches the former on.

## Why it runs out of memory

With both, transformers refuses to start. With the trainer's alone, checkpointed layers lie
inside the FSDP units, and the recomputation in the backward pass gathers the parameters of a
unit a second time: one more all-gather a layer, time rather than memory. FSDP's own checkpoints
lie around its units.

## How to fix it

Leave it to FSDP: `activation_checkpointing: true` in `fsdp_config`, and the trainer's key off.
The same activations are kept and recomputed.

## When not to

Axolotl and LLaMA-Factory have switches of their own that go with FSDP; the rule does not speak
of them.

## Sources

* transformers 5.23 `trainer.py:880`, `training_args.py:2796`; 4.57 `trainer.py:4989`
* https://github.com/huggingface/transformers/issues/30404
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.dialects.trainer.fields import hf
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, When, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import example, mended, text

_TRL = text(
    """
    model_name_or_path: Qwen/Qwen2.5-7B-Instruct
    dtype: bfloat16
    dataset_name: trl-lib/Capybara
    max_length: 2048
    per_device_train_batch_size: 1
    gradient_checkpointing: {trainer}
    bf16: true
    fsdp: full_shard auto_wrap
    fsdp_config:
      activation_checkpointing: {fsdp}
    output_dir: out
    """
)
_SCRIPT = text(
    """
    from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

    model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", dtype="bfloat16")
    arguments = TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=1,
        gradient_checkpointing={trainer},
        bf16=True,
        fsdp="full_shard auto_wrap",
        fsdp_config={{"activation_checkpointing": {fsdp}}},
    )
    Trainer(model=model, args=arguments, train_dataset=data).train()
    """
)


class FsdpGcWrongLayer(Rule, code="OOM113", may_end=True, fixes=Applicability.SAFE, cost=2):
    summary = "the trainer's gradient checkpointing is on under FSDP, which has its own"
    only_where = (Where(plan={f.parallel.backend: ("fsdp1", "fsdp2")}),)

    bad = (
        mended("sft.yaml", _TRL, trainer=("true", "false"), fsdp="true"),
        mended("train.py", _SCRIPT, trainer=("True", "False"), fsdp="True"),
        example(
            {"sft.yaml": _TRL.format(trainer="true", fsdp="false")},
            why="one all-gather too many, and no memory lost: shown, not applied",
        ),
    )
    good = (
        example({"sft.yaml": _TRL.format(trainer="false", fsdp="true")}),
        example({"train.py": _SCRIPT.format(trainer="False", fsdp="True")}),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        parallel = run.plan.parallel
        switch = run.settings.get(hf.checkpointing)
        if switch is None or switch.value is not True or switch.origin.kind != "explicit":
            return
        off = {hf.checkpointing: False}
        if parallel.fsdp.activation_checkpointing:
            yield self.error(
                run,
                f"{run.key('hf.checkpointing')} and FSDP's activation_checkpointing are both on",
                at=hf.checkpointing,
                details=("transformers refuses to start with both",),
                proposals=[Proposal.set("leave checkpointing to FSDP", off)],
                ends=When.LOADED,
            )
            return
        yield self.info(
            run,
            f"{run.key('hf.checkpointing')} checkpoints inside the units of FSDP",
            at=hf.checkpointing,
            details=(
                "their parameters are gathered once more in the backward pass",
                "FSDP's own activation_checkpointing needs no second gathering",
            ),
            proposals=[
                Proposal.set(
                    "checkpoint with FSDP instead",
                    {**off, f.parallel.fsdp.activation_checkpointing: True},
                )
            ],
        )
