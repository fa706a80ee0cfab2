"""Communication buckets of DeepSpeed that take much of a small card.

## What it finds

`reduce_bucket_size` and `allgather_bucket_size` of 2e8 and more (the default is 5e8) in a run
that does not fit, and that smaller buckets bring down; and such
buckets on a card of up to 32 GiB where the model is not known.

## Why it runs out of memory

A bucket of 5e8 elements is 1 GB in bf16. There are two of them, one to reduce gradients and
one to gather parameters, and with `overlap_comm` a second set and temporary copies: 4.5 times
2 x 1 GB are 9 GB of a 24 GB card.

## How to fix it

Buckets of 5e7 elements; for stage 3 `"auto"` is hidden size squared. They cost a little
bandwidth, the result is the same. Where the model is not known, whether the run needs them is not known
either: the fix is shown.

## When not to

On large cards, where big buckets are what makes the network fast.

## Sources

* transformers documentation, DeepSpeed, ZeRO-2 (*overlap_comm uses 4.5x the allgather_bucket_size
  and reduce_bucket_size values*, 9 GB)
* https://github.com/deepspeedai/DeepSpeed/issues/1302 (21152 MB against 19284 with 1e7) and /2992
* DeepSpeed edaa7221 `runtime/zero/config.py:113`, `:132` (defaults)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oomlint.judgement import Relief, judge_gpu, relief
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import (
    AXOLOTL,
    accelerate,
    command,
    deepspeed,
    example,
    under_deepspeed,
)

_SMALL = 50_000_000
_LARGE = 200_000_000
_SMALL_CARD = 32 * 2**30
# Of a card whose other needs are not known, from this share on the buckets are worth a word.
_NOTEWORTHY_SHARE = 0.1
_HALF = 2  # bytes an element
_REDUCE = f.parallel.zero.reduce_bucket_elems
_GATHER = f.parallel.zero.allgather_bucket_elems

_BUCKETS = (
    '"stage": 2, "overlap_comm": true, "reduce_bucket_size": {size}, '
    '"allgather_bucket_size": {size}'
)
_AS_USUAL, _FEWER = (_BUCKETS.format(size=size) for size in ("5e8", "5e7"))
_MODEL = AXOLOTL.replace("Llama-3.1-8B", "Llama-3.2-1B")


class DsBucketOversized(Rule, code="OOM306", fixes=Applicability.SAFE, cost=1):
    summary = "communication buckets of DeepSpeed that take much of a small card"
    explains = ("communication",)
    only_where = (Where(plan={f.parallel.backend: ("zero",)}, has_card=True),)

    bad = (
        example(
            {"ds.json": deepspeed(_AS_USUAL)},
            on="4xT4-16GB",
            why="the buckets alone are much of the card; the model is not known, nor whether it needs smaller ones",
        ),
        under_deepspeed(f"{_MODEL}sequence_len: 6144\n", _AS_USUAL, _FEWER, on="8xT4-16GB"),
    )
    good = (
        under_deepspeed(_MODEL, _AS_USUAL, on="8xH100-80GB"),
        example({"ds.json": deepspeed(_FEWER)}, on="4xT4-16GB"),
        example({"ds.json": deepspeed(_AS_USUAL)}),
        example(
            {
                "train.sh": command("", "accelerate launch --config_file acc.yaml"),
                "acc.yaml": accelerate("DEEPSPEED", "deepspeed_config:\n  zero_stage: 2\n"),
            },
            on="8xH100-80GB",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        zero = run.plan.parallel.zero
        limit = run.limits.gpu_bytes
        if zero.stage in (0, None) or limit is None:
            return
        sizes = {_REDUCE: zero.reduce_bucket_elems, _GATHER: zero.allgather_bucket_elems}
        if zero.stage == 3:
            del sizes[_GATHER]  # stage 3 gathers by its own prefetching
        large = {name: size for name, size in sizes.items() if size is not None and size >= _LARGE}
        if not large:
            return
        changes = dict.fromkeys(large, _SMALL)
        taken = _HALF * sum(large.values())
        is_noteworthy = limit <= _SMALL_CARD and taken >= _NOTEWORTHY_SHARE * limit
        before = judge_gpu(run)
        if not is_noteworthy and (before is None or before.urgency is None):
            return
        found = relief(run, changes)
        if found is not None and found.is_worthwhile:
            yield self._relieved(run, found, taken)
        elif found is None and is_noteworthy:
            yield self._unknown(run, taken, limit, changes)

    def _relieved(self, run: Run, found: Relief, taken: int) -> Finding:
        assert found.severity is not None
        before = found.before
        return self.finding(
            run,
            found.severity,
            f"DeepSpeed's buckets hold {gib(taken)} in 16 bit, and more while in use",
            at=tuple(found.changes),
            details=(*before.context, f"with buckets of 5e7 elements {found.sentence}"),
            judged=before,
            proposals=[Proposal.set("make the buckets smaller", found.changes)],
        )

    def _unknown(self, run: Run, taken: int, limit: int, changes: dict[Any, int]) -> Finding:
        overlap = run.plan.parallel.zero.overlap_comm
        return self.warning(
            run,
            f"DeepSpeed's buckets hold {gib(taken)} of the card's {gib(limit)} in 16 bit",
            at=tuple(changes),
            details=("with overlap_comm it is up to 4.5 times as much",) if overlap else (),
            confidence="low",
            resource="gpu",
            limit=limit,
            # Whether the run needs that nobody can say.
            proposals=[Proposal.set("make the buckets smaller", changes, Applicability.DISPLAY)],
        )
