"""An 8-bit or other special optimizer that this way of sharding refuses.

## What it finds

In Axolotl: an 8-bit optimizer with FSDP1 that offloads parameters, bitsandbytes' `adamw_8bit`
with FSDP2 or with tensor parallelism, and `muon`, `flash_*` or Q-GaLore with DeepSpeed or
FSDP1.

## Why it runs out of memory

Axolotl stops with an error, because bitsandbytes' kernels fail on offloaded or `DTensor`
parameters at the first step. Who goes back to AdamW in fp32 then has 8 bytes of states a
parameter instead of 2: 45 GiB more for 8B parameters, over all ranks.

## How to fix it

Under FSDP2 torchao's `adamw_torch_8bit` is as small; the numerics of the two differ a little,
so that the fix is unsafe. Elsewhere leave out the offloading, or take `adamw_torch_fused`.

## When not to

Where another version of Axolotl, whose validators allow it, is pinned.

## Sources

* Axolotl 067b021c `src/axolotl/utils/schemas/validation.py:891` (muon), `:907` (Q-GaLore),
  `:949` (flash), `:1127` and `:1140` (8 bit under FSDP), `:1776` (tensor parallelism)
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.linting.rule import KNOWN, Applicability, Finding, Proposal, Rule, When, Where, short
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import AXOLOTL, example

_FSDP2 = "fsdp_version: 2\nfsdp_config:\n  offload_params: false\n"
_FSDP1 = "fsdp:\n  - full_shard\n  - auto_wrap\nfsdp_config:\n  offload_params: {offload}\n"
_BITSANDBYTES = ("adamw_8bit", "adamw_bnb_8bit")
_NOT_TENSOR_PARALLEL = (*_BITSANDBYTES, "paged_adamw_8bit")


class Optimizer8bitIncompatible(
    Rule, code="OOM210", may_end=True, fixes=Applicability.UNSAFE, cost=7
):
    summary = "an optimizer that this way of sharding refuses"
    only_where = (Where(plan={f.optimizer.name: KNOWN}, dialects=("axolotl",)),)

    bad = (
        example(
            {"train.yaml": f"{AXOLOTL}optimizer: adamw_8bit\n{_FSDP2}"},
            {"train.yaml": f"{AXOLOTL}optimizer: adamw_torch_8bit\n{_FSDP2}"},
        ),
        example({"train.yaml": f"{AXOLOTL}optimizer: adamw_8bit\n{_FSDP1.format(offload='true')}"}),
        example(
            {"train.yaml": (f"{AXOLOTL}optimizer: muon\ndeepspeed: deepspeed_configs/zero2.json\n")}
        ),
    )
    good = (
        example({"train.yaml": f"{AXOLOTL}optimizer: adamw_torch_8bit\n{_FSDP2}"}),
        example(
            {"train.yaml": f"{AXOLOTL}optimizer: adamw_8bit\n{_FSDP1.format(offload='false')}"}
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        name = run.plan.optimizer.name
        if name is None:
            return
        found = _refusal(run, name)
        if found is None:
            return
        reason, cure = found
        proposals = []
        if run.plan.parallel.backend == "fsdp2" and name in _BITSANDBYTES:
            changes = {f.optimizer.name: "adamw_torch_8bit"}
            proposals.append(
                Proposal.set("take torchao's 8-bit AdamW", changes, Applicability.UNSAFE)
            )
        yield self.error(
            run,
            f"Axolotl refuses {short(name)} with {reason}",
            at=f.optimizer.name,
            details=cure,
            proposals=proposals,
            ends=When.SETTINGS,
        )


def _refusal(run: Run, name: str) -> tuple[str, tuple[str, ...]] | None:
    """With what Axolotl refuses an optimizer, and what works there."""
    parallel = run.plan.parallel
    backend = parallel.backend
    if "8bit" in name and backend == "fsdp1" and parallel.fsdp.cpu_offload:
        return "FSDP1 that offloads parameters", ()
    if name in _BITSANDBYTES and backend == "fsdp2":
        return "FSDP2", ("adamw_torch_8bit works there",)
    if name in _NOT_TENSOR_PARALLEL and (parallel.tp or 1) > 1:
        return "tensor parallelism", ()
    if name in ("muon", "q_galore_adamw8bit") or name.startswith("flash_"):
        if backend == "zero":
            return "DeepSpeed", ()
        if backend == "fsdp1":
            return "FSDP1", ("fsdp_version: 2 works",)
    return None
