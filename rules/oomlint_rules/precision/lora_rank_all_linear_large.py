"""An adapter of so high a rank that it costs like a model of its own.

## What it finds

LoRA with a rank of 64 or more in a run that does not fit, where a lower
rank gives back a tenth of the card or more.

## Why it runs out of memory

A rank r adds r x (in + out) parameters to every matrix that it adapts. Each of them is trained:
weight, gradient and two Adam moments in fp32 are 16 bytes, where a frozen weight takes 2 (0.5 in
4 bit). On all linear layers of a 72B model rank 256 is 3.4B parameters, 50 GiB a card where
nothing shards them.

## How to fix it

A lower rank; the number of parameters falls with it. Ranks of 8 to 64 learn most tasks as well
(Hu et al. 2021, section 7.2), but it is another adapter: the fix is unsafe, and proposes the
highest rank that fits. Sharding (ZeRO-2 and up, FSDP) divides the adapter's states among the cards.

## When not to

Where the adapter is sharded over many cards it costs little, and the rule is silent.

## Sources

* Hu et al. 2021, arXiv 2106.09685 (LoRA), sections 4.1 and 7.2
* https://github.com/hiyouga/LLaMA-Factory/issues/3230 (72B, rank 256 on all linear layers)
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement import Relief, relief
from oomlint.linting.rule import KNOWN, Applicability, Severity, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import AXOLOTL, LLAMA_FACTORY, example, mended
from oomlint_rules._lowering import LowersPeak

_HIGH = 64
_LOWEST = 16
# Below this share of the card the rank is not what fills it.
_SHARE = 0.1
_LF = (
    LLAMA_FACTORY.replace("type: full", "type: lora")
    + "cutoff_len: 512\nlora_target: all\nlora_rank: {rank}\n"
)
_AXOLOTL = AXOLOTL + (
    "sequence_len: 512\nadapter: lora\nlora_r: {rank}\nlora_target_linear: true\n"
    "flash_attention: true\n"
)


class LoraRankAllLinearLarge(LowersPeak, code="OOM215", fixes=Applicability.UNSAFE, cost=7):
    summary = "an adapter of high rank takes memory that the card does not have"
    only_where = (Where(plan={f.trainable.r: KNOWN}, has_card=True, has_risk=True),)
    at = (f.trainable.r,)

    bad = (
        mended("train.yaml", _LF, rank=(512, 64), on="1xRTX-4090-24GB"),
        mended("axolotl.yaml", _AXOLOTL, rank=(512, 64), on="1xRTX-4090-24GB"),
    )
    good = (
        example({"train.yaml": _LF.format(rank=16)}, on="1xRTX-4090-24GB"),
        example({"train.yaml": _LF.format(rank=512)}, on="1xH100-80GB"),
        example({"train.yaml": _LF.format(rank=512)}),
    )

    def concerns(self, run: Run) -> bool:
        rank = run.plan.trainable.r
        return rank is not None and rank >= _HIGH and run.limits.gpu_bytes is not None

    def found(self, run: Run) -> Relief | None:
        """The highest of the halves of the rank with which the run fits, else the lowest."""
        lower, found = run.plan.trainable.r or 0, None
        while lower // 2 >= _LOWEST:
            lower //= 2
            found = relief(run, {f.trainable.r: lower})
            if found is None or found.after.severity is None:
                break
        return found

    def severity(self, run: Run, found: Relief) -> Severity | None:
        if found.saved < _SHARE * (run.limits.gpu_bytes or 0):
            return None
        return Severity.WARNING if found.suffices else Severity.INFO

    def cause(self, run: Run, found: Relief) -> str:
        more = f"{gib(found.saved)} more than rank {_lower(found)}"
        return f"rank {run.plan.trainable.r} takes {more}"

    def gain(self, run: Run, found: Relief) -> Iterable[str]:
        return (f"with rank {_lower(found)} {found.sentence}",)

    def title(self, run: Run, found: Relief) -> str:
        return f"lower the rank to {_lower(found)}"


def _lower(found: Relief) -> int:
    return int(found.changes[f.trainable.r])
