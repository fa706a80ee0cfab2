"""Pinned host memory takes most of a node's RAM.

## What it finds

Offloading with pinned memory (DeepSpeed's default) where the prediction takes more than 60 % of
the node's RAM. Where it comes near the limit or passes it, offload-host-ram-exceeded speaks.
And offloading to NVMe through buffers that take as much, or on a node whose RAM is not known.

## Why it runs out of memory

Pinned pages cannot be swapped or shared, and torch rounds each pinned block up to a power of
two: of the 16 bytes a parameter that offloaded parameters and optimizer take, up to as much
again is lost to rounding. What the page cache, the data loader and the checkpoint would use is
then missing, and the kernel kills a rank. NVMe does not do without RAM either: on every rank
the optimizer's states pass through `buffer_count` fp32 buffers of the largest sub-group
(4 x 4 bytes x `sub_group_size` of 1e9: 16 GB), the parameters through `buffer_count` x
`buffer_size` elements, and up to `max_in_cpu` of them stay in RAM.

## How to fix it

`pin_memory: false` in `offload_optimizer` and `offload_param`; under Axolotl with FSDP2
`cpu_offload_pin_memory: false`. Copies between host and GPU become slower; the result is the
same. With NVMe a smaller `sub_group_size`, which makes smaller buffers.

## When not to

Where the node has RAM to spare. FSDP1 always pins.

## Sources

* DeepSpeed edaa7221 `runtime/zero/offload_config.py:75` (`pin_memory`)
* torch `aten/src/ATen/core/CachingHostAllocator.h` (blocks of a power of two)
* https://github.com/deepspeedai/DeepSpeed/issues/3000 and /1131; Axolotl 067b021c
  `utils/schemas/validation.py:1052`
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement import judge_host, relief
from oomlint.linting.rule import Applicability, Example, Finding, Proposal, Rule, Severity, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib, of_gib
from oomlint_rules._examples import AXOLOTL, LLAMA_FACTORY, deepspeed, example, under_deepspeed
from oomlint_rules._fixes import changed
from oomlint_rules.host._ram import UNKNOWN_RAM

_TIGHT = 0.6
_PIN = f.offload.pin_memory
_SMALL_GROUPS = {f.parallel.zero.sub_group_elems: 100_000_000}
"""A tenth of DeepSpeed's default: the same update in more, smaller pieces."""

_PINNED = (
    '"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": true}, '
    '"stage3_gather_16bit_weights_on_model_save": true'
)
_UNPINNED = _PINNED.replace('"pin_memory": true', '"pin_memory": false')
_NVME = '"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/scratch"}'


class OffloadPinnedMemoryTight(Rule, code="OOM406", fixes=Applicability.SAFE, cost=5):
    summary = "pinned host memory takes most of a node's RAM"
    explains = ("offloaded_states", "pinned_rounding")
    only_where = (
        Where(plan={f.offload.params: ("cpu", "nvme")}),
        Where(plan={f.offload.optimizer: ("cpu", "nvme")}),
    )

    bad = (
        under_deepspeed(AXOLOTL, _PINNED, on="4xRTX-3090-24GB, 224GiB"),
        under_deepspeed(LLAMA_FACTORY, _PINNED, on="4xRTX-3090-24GB, 224GiB"),
        example({"ds.json": deepspeed(_NVME)}, why="NVMe takes RAM too"),
        under_deepspeed(
            LLAMA_FACTORY,
            _NVME.replace('"stage": 3', '"stage": 3, "sub_group_size": 1e9'),
            _NVME.replace('"stage": 3', '"stage": 3, "sub_group_size": 1e8'),
            on="2xRTX-3090-24GB, 64GiB",
        ),
    )
    good = (
        Example(
            files={"ds.json": deepspeed(_NVME)},
            host_memory="1TiB",
            why="the node's RAM is known",
        ),
        under_deepspeed(AXOLOTL, _PINNED, on="4xRTX-3090-24GB, 1TiB"),
        under_deepspeed(AXOLOTL, _UNPINNED, on="4xRTX-3090-24GB, 192GiB"),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        offload = run.plan.offload
        if "nvme" in (offload.params, offload.optimizer):
            yield from self._nvme(run)
            return
        moves = "cpu" in (offload.params, offload.optimizer)
        if not moves or offload.pin_memory is not True:
            return
        found = judge_host(run)
        if found is None or found.limit is None:
            return
        if found.predicted < _TIGHT * found.limit or found.severity is not None:
            return  # of a run that is at risk offload-host-ram-exceeded speaks
        changes = {_PIN: False}
        if changed(run, changes) is None:
            return
        yield self.info(
            run,
            f"{run.key(_PIN)} keeps most of what is offloaded from being swapped",
            at=(_PIN, f.offload.optimizer, f.offload.params),
            details=(
                f"offloading takes {of_gib(found.predicted, found.limit)} of the node's RAM",
                "pinned blocks are rounded up to a power of two",
            ),
            judged=found,
            confidence="medium",
            proposals=[Proposal.set("do not pin offloaded memory", changes)],
        )

    def _nvme(self, run: Run) -> Iterable[Finding]:
        if run.limits.host_bytes is None:
            yield self._through_buffers(run)
            return
        found = judge_host(run)
        if found is None or found.limit is None or found.predicted < _TIGHT * found.limit:
            return
        smaller = relief(run, _SMALL_GROUPS, resource="host")
        helps = smaller is not None and smaller.saved > 0.1 * found.predicted
        cure = (f"with sub-groups of a tenth {smaller.sentence}",) if smaller and helps else ()
        # A run at risk has a headline, which says so.
        fits = (f"{of_gib(found.predicted, found.limit)} of the node's RAM are taken",)
        yield self.finding(
            run,
            found.severity or Severity.INFO,
            f"NVMe offload passes through {gib(found.components['offloaded_states'])} of locked "
            "buffers in RAM",
            at=(f.offload.optimizer, f.offload.params),
            details=(*(fits if found.severity is None else ()), *cure),
            judged=found,
            confidence="medium",
            proposals=[Proposal.set("swap smaller groups of parameters", _SMALL_GROUPS)]
            if helps
            else [],
        )

    def _through_buffers(self, run: Run) -> Finding:
        return self.info(
            run,
            "NVMe offload passes through pinned buffers in RAM",
            at=(f.offload.optimizer, f.offload.params),
            details=("buffer_count × buffer_size elements on each rank", UNKNOWN_RAM),
            confidence="low",
            resource="host",
        )
