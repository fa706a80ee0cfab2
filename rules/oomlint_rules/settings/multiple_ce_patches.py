"""More than one replacement for the cross entropy loss.

## What it finds

Two or more of `cut_cross_entropy`, `chunked_cross_entropy`, `liger_cross_entropy` and
`liger_fused_linear_cross_entropy` switched on in one Axolotl config.

## Why it runs out of memory

Axolotl stops with an error. Who then drops all of them keeps every logit: 2 bytes in bf16 and
4 in the fp32 copy for each of 4096 tokens and 128K words of vocabulary are 2.9 GiB a sequence,
and as much again in the backward pass.

## How to fix it

Keep the one that never makes the logits: `liger_fused_linear_cross_entropy`, or
`cut_cross_entropy`. The fix removes the others.

## When not to

Never: they exclude one another.

## Sources

* Axolotl 067b021c `src/axolotl/utils/schemas/validation.py:1008` (`check_cross_entropy_conflicts`)
* Wijmans et al. 2024, arXiv 2411.09009 (Cut Cross-Entropy)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oomlint.dialects.axolotl.keys import own
from oomlint.linting.rule import Applicability, Finding, Proposal, RemoveKey, Rule, When, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import AXOLOTL, example
from oomlint_rules.settings._combinations import is_on, origin_of, value_of

# From the one that saves most; the first that is on is kept.
_LOSSES = (
    (own.liger_flce, "liger_fused_linear_cross_entropy"),
    (f.loss.cut_ce, "cut_cross_entropy"),
    (own.chunked_ce, "chunked_cross_entropy"),
    ("liger_cross_entropy", "liger_cross_entropy"),
)
_LIGER = "plugins:\n  - axolotl.integrations.liger.LigerPlugin\n"
_FUSED = f"{AXOLOTL}{_LIGER}liger_fused_linear_cross_entropy: true\n"


class MultipleCePatches(Rule, code="OOM808", may_end=True, fixes=Applicability.SAFE):
    summary = "more than one replacement for the cross entropy loss"
    only_where = (Where(dialects=("axolotl",)),)

    bad = (
        example({"train.yaml": f"{_FUSED}liger_cross_entropy: true\n"}, {"train.yaml": _FUSED}),
        example({"train.yaml": f"{_FUSED}chunked_cross_entropy: true\n"}, {"train.yaml": _FUSED}),
    )
    good = (
        example({"train.yaml": _FUSED}),
        example({"train.yaml": f"{_FUSED}chunked_cross_entropy: false\n"}),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        written = [(field, key) for field, key in _LOSSES if is_on(_said(run, field))]
        if len(written) < 2:
            return
        (_, kept), *others = written
        wishes = []
        for field, _key in others:
            origin = origin_of(run, field)
            if origin is not None and origin.block is not None and origin.entry is not None:
                wishes.append(RemoveKey(origin.block, origin.entry))
        names = " and ".join(key for _, key in others)
        yield self.error(
            run,
            f"Axolotl refuses {len(written)} replacements of the loss at once",
            at=others[0][0] if others[0][0] in run.settings else (),
            details=(f"{names} beside {kept}: only one of them can replace it",),
            proposals=[Proposal(f"keep {kept} alone", tuple(wishes))]
            if len(wishes) == len(others)
            else [],
            ends=When.SETTINGS,
        )


def _said(run: Run, field: Any) -> object:
    """What the file says, whatever a missing plug-in makes of it."""
    setting = run.settings.get(field)
    values = [setting, *setting.shadowed] if setting is not None else []
    explicit = [each.value for each in values if each.origin.kind == "explicit"]
    return explicit[0] if explicit else None if values else value_of(run, field)
