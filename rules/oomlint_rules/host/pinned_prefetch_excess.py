"""Batches that wait in pinned RAM: workers x prefetched batches x ranks; or prefetching by nobody.

## What it finds

A `dataloader_prefetch_factor` with which the batches that wait for the GPUs of a node take
gibibytes of RAM, and one that is set although no worker loads data (`dataloader_num_workers: 0`), which
transformers refuses.

## Why it runs out of memory

Each worker prepares `prefetch_factor` batches ahead (2 by default), and with `pin_memory` the main
process holds them in page-locked RAM. Text is small: 8 samples of 4096 tokens are under a
mebibyte. Images are not: 8 samples of 16 images of 768 x 768 pixels are 0.8 GiB as fp32, so that 16
workers that prefetch 8 batches for each of 8 ranks hold 864 GiB.

## How to fix it

Two batches ahead (Axolotl takes 256, and as many workers as there are GPUs, where neither key nor
`dataloader_pin_memory` is set); a GPU that waits for data is helped by workers, not by longer queues. The batches
are the same.

## When not to

Where loading is slow in bursts, as from a network, and there is RAM to bridge them.

## Sources

* torch 2.9 `utils/data/dataloader.py` (`prefetch_factor`, `pin_memory`);
  https://github.com/pytorch/pytorch/issues/62066
* Axolotl 067b021c `utils/schemas/config.py:2132` (`default_dataloader_opts`)
* transformers 5.23 `training_args.py:1803` (*prefetch_factor can only be set when data is loaded in
  a different process*)
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement import settled, severity_of_need
from oomlint.linting.rule import (
    KNOWN,
    Applicability,
    Finding,
    Proposal,
    Rule,
    Severity,
    When,
    Where,
)
from oomlint.plan import Plan
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import AXOLOTL, LLAMA_FACTORY, command, example
from oomlint_rules._fixes import removal
from oomlint_rules.settings._trainer import trainer_compares

_FIELD = f.data.prefetch
_ENOUGH = 2
# Less than this is no matter on a machine that trains a language model.
_NOTEWORTHY = 16 * 2**30
_SHARE = 0.1
# input_ids, labels and attention_mask of int64.
_BYTES_PER_TOKEN = 3 * 8
# Three channels of fp32, as image processors make them.
_BYTES_PER_PIXEL = 3 * 4

_VISION = LLAMA_FACTORY.replace("meta-llama/Llama-3.1-8B", "Qwen/Qwen2.5-VL-7B-Instruct").replace(
    "train_batch_size: 1", "train_batch_size: 8"
)


class PinnedPrefetchExcess(Rule, code="OOM411", may_end=True, fixes=Applicability.SAFE):
    summary = "so many batches are prepared ahead that they fill RAM, or none can be"
    only_where = (Where(meant={f.data.prefetch: KNOWN}),)
    explains = ("dataloader",)

    bad = (
        example(
            {
                "train.yaml": f"{_VISION}dataloader_num_workers: 16\ndataloader_prefetch_factor: 16\n"
            },
            {"train.yaml": f"{_VISION}dataloader_num_workers: 16\ndataloader_prefetch_factor: 2\n"},
            on="8xA100-80GB",
        ),
        example(
            {"train.yaml": f"{AXOLOTL}dataloader_prefetch_factor: 4\n"},
            {"train.yaml": AXOLOTL},
            why="nobody prefetches",
        ),
        example(
            {"train.sh": command("--dataloader_prefetch_factor 4")},
            {"train.sh": command("").replace("out \n", "out\n")},
        ),
    )
    good = (
        example(
            {
                "train.yaml": f"{LLAMA_FACTORY}dataloader_num_workers: 16\n"
                "dataloader_prefetch_factor: 16\n"
            },
            on="8xA100-80GB",
            why="text is small",
        ),
        example(
            {"train.yaml": f"{_VISION}dataloader_num_workers: 4\ndataloader_prefetch_factor: 2\n"},
            on="8xA100-80GB",
        ),
        example(
            {"train.yaml": f"{AXOLOTL}dataloader_num_workers: 2\ndataloader_prefetch_factor: 4\n"}
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        plan = settled(run).plan
        if plan.data.prefetch is None or not run.is_explicit(_FIELD):
            return
        if plan.data.workers == 0 and trainer_compares(run):
            yield self._by_nobody(run)
        elif plan.data.workers and plan.data.prefetch > _ENOUGH:
            yield from self._waiting(run, plan, plan.data.workers, plan.data.prefetch)

    def _by_nobody(self, run: Run) -> Finding:
        key = run.key(_FIELD)
        return self.error(
            run,
            f"{key} is set although no worker loads data",
            at=_FIELD,
            details=(f"{run.key(f.data.workers)} is 0", "transformers stops with an error"),
            proposals=removal(f"remove {key}", run.origin(_FIELD)),
            ends=When.LOADED,
        )

    def _waiting(self, run: Run, plan: Plan, workers: int, prefetch: int) -> Iterable[Finding]:
        sample = _sample_bytes(plan)
        if sample is None or plan.batch.micro is None:
            return
        ranks = plan.parallel.gpus_per_node or 1
        batches = ranks * workers * prefetch
        need, limit = batches * plan.batch.micro * sample, run.limits.host_bytes
        if need < (_NOTEWORTHY if limit is None else _SHARE * limit):
            return
        pinned = "" if plan.data.pin_memory is False else " of pinned RAM"
        yield self.finding(
            run,
            # At most a warning: most samples are smaller than they may be.
            min(severity_of_need(run, "host", need) or Severity.INFO, Severity.WARNING),
            f"workers hold up to {batches} batches ready, {gib(need)}{pinned} on a node",
            at=_FIELD,
            details=(
                (
                    f"{workers} workers prepare {prefetch} batches ahead for each of {ranks} "
                    f"{'rank' if ranks == 1 else 'ranks'}"
                ),
            ),
            confidence="low",
            resource="host",
            predicted=need,
            limit=limit,
            proposals=[Proposal.set(f"prepare {_ENOUGH} batches ahead", {_FIELD: _ENOUGH})],
        )


def _sample_bytes(plan: Plan) -> int | None:
    """The most that one sample holds, with one image of the largest size or all frames of a video."""
    dims, length = plan.model.dims, plan.seq.max_len
    if dims is None or length is None:
        return None
    size = length * _BYTES_PER_TOKEN
    if dims.vision is None:
        return size
    # No more pixels than the tokens of a sample stand for: a patch of 14 x 14, merged by four.
    patch = dims.vision.patch or 14
    return size + length * 4 * patch * patch * _BYTES_PER_PIXEL
