"""Full fine-tuning that no sharding, offloading or lighter optimizer brings onto these cards.

## What it finds

Full fine-tuning whose predicted peak is more than one and a half times what the card gives, where
neither ZeRO-3 with everything offloaded (as far as the host has room) nor an 8-bit optimizer nor
Adafactor makes it fit, and training a LoRA adapter would.

## Why it runs out of memory

Adam in mixed precision holds 16 bytes a parameter, in pure bf16 8, on the cards or on the host: 16 x
8.0e9 are 120 GiB. An adapter leaves 2 of them, or half a byte in 4 bit, and pays the rest for a
hundredth of the parameters.

## How to fix it

Train an adapter: `finetuning_type: lora` in LLaMA-Factory, `adapter: lora` in Axolotl, `use_peft` in
TRL. It is another training with another result and another checkpoint, so the fix is unsafe. Where
LoRA does not fit either, quantize the frozen base as well (QLoRA).

## When not to

Where all weights have to be trained (pre-training from scratch): then more cards are the way out.

## Sources

* https://github.com/hiyouga/LLaMA-Factory/issues/4614 (FAQ, item 3)
* LLaMA-Factory README, "Hardware Requirement"
* Hu et al. 2021, arXiv 2106.09685 (LoRA); Dettmers et al. 2023, arXiv 2305.14314 (QLoRA)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oomlint.judgement import Relief, judge_gpu, judge_host, relief, sharding_is_open
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import AXOLOTL, LLAMA_FACTORY, example

_FAR = 1.5
_OTHER_WAYS: tuple[dict[Any, Any], ...] = (
    {f.parallel.zero.stage: 3, f.offload.optimizer: "cpu", f.offload.params: "cpu"},
    {f.offload.optimizer: "cpu", f.offload.params: "cpu"},
    {f.parallel.fsdp.cpu_offload: True},
    {f.optimizer.kind: "adamw8bit"},
    {f.optimizer.kind: "adafactor"},
)
_ADAPTERS: tuple[tuple[str, dict[Any, Any]], ...] = (
    ("a LoRA adapter", {f.trainable.method: "lora"}),
    ("a LoRA adapter on a base in 4 bit", {f.trainable.method: "lora", f.quant.method: "bnb4"}),
)
_AXOLOTL = AXOLOTL + "sequence_len: 512\noptimizer: adamw_torch_fused\nflash_attention: true\n"
_LF = LLAMA_FACTORY + "cutoff_len: 512\n"


class FullFtWhereAdapterNeeded(Rule, code="OOM117", fixes=Applicability.DISPLAY, cost=9):
    summary = "full fine-tuning that nothing brings onto these cards, where an adapter fits"
    explains = ("gradients", "optimizer_states")
    only_where = (Where(plan={f.trainable.method: ("full",)}, has_card=True),)

    bad = (
        example({"train.yaml": _LF}, on="1xRTX-4090-24GB"),
        example({"axolotl.yaml": _AXOLOTL}, on="1xRTX-4090-24GB"),
    )
    good = (
        example({"train.yaml": _LF.replace("type: full", "type: lora")}, on="1xRTX-4090-24GB"),
        example({"train.yaml": _LF}, on="1xB300-288GB"),
        example({"train.yaml": _LF}),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        plan = run.plan
        if plan.model.from_scratch or sharding_is_open(run):
            return
        if plan.parallel.backend in (None, "none", "ddp", "dp") and (plan.parallel.world or 1) > 1:
            return  # nothing shards it yet, and the other findings propose that first
        judged = judge_gpu(run)
        if judged is None or judged.limit is None or judged.predicted <= _FAR * judged.limit:
            return
        if any(_fits(run, changes) for changes in _OTHER_WAYS):
            return
        for name, changes in _ADAPTERS:
            found = relief(run, changes)
            if found is None or not found.suffices:
                continue
            yield self.info(
                run,
                "full fine-tuning does not fit, whatever this config shards or offloads",
                at=(f.trainable.method, f.model.id),
                details=(
                    *judged.context,
                    "nor does a lighter optimizer make it fit",
                    f"with {name} {found.sentence}",
                ),
                judged=judged,
                proposals=[Proposal.set(f"train {name}", changes, Applicability.DISPLAY)],
            )
            return


def _fits(run: Run, changes: dict[Any, Any]) -> bool:
    found: Relief | None = relief(run, changes)
    if found is None or not found.suffices:
        return False
    if not any("offload" in name for name in changes):
        return True
    host = judge_host(run.what_if(changes))
    return host is None or host.limit is None or host.holds
