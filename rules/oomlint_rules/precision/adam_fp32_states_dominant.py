"""Adam's two fp32 moments are most of what is on the card.

## What it finds

Full fine-tuning with Adam whose states in fp32 are the largest part of a peak that does not
fit, where no offloading keeps them off the card.

## Why it runs out of memory

Adam keeps two numbers for every trained parameter: 8 bytes in fp32, against 2 for the
weight itself. Quantized to 8 bit they take 2 bytes (Dettmers et al., arXiv 2110.02861);
Adafactor keeps only row and column sums of the second moment (arXiv 1804.04235), Lion one
moment. The fp32 master weights of mixed precision stay.

## How to fix it

Choose a lighter optimizer. This changes learning: try the new one on a short run first.
Sharding or offloading the states keeps Adam as it is and comes first where it is possible.

## When not to

A DeepSpeed config with an `optimizer` block of its own overrules the trainer's choice, and
CPU offloading uses DeepSpeed's own Adam.

## Sources

* arXiv 2110.02861 (8-bit optimizers), arXiv 1804.04235 (Adafactor), arXiv 2302.06675 (Lion)
* https://github.com/hiyouga/LLaMA-Factory/issues/4616 (paged 8-bit AdamW as the cure)
* torchtune PR 527: 7B full fine-tuning below 16 GB with a paged 8-bit AdamW
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oomlint.judgement import judge_gpu, relief, settled, sharding_is_open
from oomlint.judgement.launch import SHARDED
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Severity, Where
from oomlint.memory import state_bytes
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import axolotl, example, mended

_YAML = axolotl(
    "NousResearch/Llama-2-7b-hf",
    "sequence_len: 1024\nmicro_batch_size: 1\ngradient_checkpointing: true\n",
    "optimizer: {optimizer}\nbf16: true\nflash_attention: true\n",
)


_IN_8_BIT, _FACTORED = "keep Adam's states in 8 bit", "train with Adafactor"
# Another optimizer takes a learning rate of its own: which one trains nobody but the author decides.
_LEVELS = {_IN_8_BIT: Applicability.UNSAFE, _FACTORED: Applicability.DISPLAY}


class AdamFp32StatesDominant(Rule, code="OOM201", fixes=Applicability.UNSAFE, cost=7):
    summary = "Adam's states fill the card where a lighter optimizer would fit"
    explains = ("optimizer_states",)
    only_where = (
        Where(
            plan={
                f.optimizer.kind: ("adamw", "anyprecision_adamw", "ademamix"),
                f.trainable.method: ("full",),
            },
            has_card=True,
            has_risk=True,
        ),
    )

    bad = (
        mended(
            "axolotl.yaml", _YAML, optimizer=("adamw_torch_fused", "adamw_8bit"), on="1xA40-48GB"
        ),
    )
    good = (
        example({"axolotl.yaml": _YAML.format(optimizer="adamw_8bit")}, on="1xA40-48GB"),
        example({"axolotl.yaml": _YAML.format(optimizer="adamw_torch_fused")}, on="1xH100-80GB"),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        plan = run.plan
        if plan.offload.optimizer in ("cpu", "nvme"):
            return
        before = judge_gpu(run)
        if sharding_is_open(run) or before is None or before.urgency is None:
            return
        states = before.components.get("optimizer_states") or 0
        if states < 0.25 * before.predicted:
            return
        options = [
            (title, word, found)
            for title, word, kind in (
                (_IN_8_BIT, "in 8 bit", "adamw8bit"),
                (_FACTORED, "with Adafactor", "adafactor"),
            )
            if (found := relief(run, {f.optimizer.kind: kind}, even_unsaid=True)) is not None
            and found.is_worthwhile
        ]
        if not options:
            return
        # What fits with the nearest relative of Adam is preferred to what saves most.
        options.sort(key=lambda option: not option[2].suffices)
        yield self.finding(
            run,
            min(before.urgency, Severity.WARNING),
            f"{_whose(run)} {_amount(run, states)} of optimizer states",
            at=(f.optimizer.name, f.trainable.method),
            details=(
                *before.context,
                *(f"{word} {found.sentence}" for _, word, found in options if found.can_be_said),
            ),
            judged=before,
            proposals=[
                Proposal.set(title, option.changes, _LEVELS[title])
                for title, _, option in options
                if option.can_be_said
            ],
        )


def _amount(run: Run, states: float) -> str:
    """``145 GiB``; ``36.4 to 145 GiB`` where what was not read (a DeepSpeed config that is not there) may share them among
    the GPUs."""
    sharding: tuple[Any, ...] = (f.parallel.backend, f.parallel.zero.stage)
    is_open = any(run.level(field) is Level.UNREAD for field in sharding)
    shared = state_bytes(settled(run).assuming(SHARDED).plan) if is_open else None
    least = states if shared is None else shared.master + shared.optimizer
    return gib(states) if least >= states else f"{gib(least).removesuffix(' GiB')} to {gib(states)}"


def _whose(run: Run) -> str:
    """Who keeps the states: an fp32 copy of weights that are trained in 16 bits is not Adam's own."""
    has_copy = run.plan.precision.master == "fp32"
    return "Adam and the fp32 copy of the weights keep" if has_copy else "Adam keeps"
