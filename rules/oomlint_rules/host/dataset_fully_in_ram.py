"""The data set is read into the RAM of every rank instead of being mapped from disk.

## What it finds

`dataset_keep_in_memory: true` in an Axolotl config, and `keep_in_memory=True` in a script's calls
of `load_dataset`, `load_from_disk`, `map` and `filter`.

## Why it runs out of memory

A data set of Hugging Face's `datasets` is an Arrow file that all processes map: the file cache
holds it once, and drops pages when RAM is short. Kept in memory it is a private copy in each
process: bytes x ranks, and again for each step of a `map`. 40 GB of text on eight ranks are
320 GB, none of which the kernel can take back. The run is killed (exit code -9), often
at the end of tokenization.

## How to fix it

Leave it out; mapped files are read at the same speed once they are cached. Data that is larger
than the disk can be streamed.

## When not to

For a small data set on a slow network file system.

## Sources

* datasets 4.8 documentation, *load_dataset* (`keep_in_memory`), and *Differences between Dataset
  and IterableDataset* (memory mapping); Axolotl 067b021c `utils/schemas/config.py:443`
* https://github.com/huggingface/datasets/issues/6814,
  https://github.com/FlagOpen/FlagEmbedding/issues/851
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oomlint.documents.base import Fact
from oomlint.judgement import settled
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import AXOLOTL, example, mended, script
from oomlint_rules._scripts import facts_of, mending

_FIELD = f.data.in_memory
_TITLE = "map the data set from disk"


def _reads(more: str) -> str:
    return f'from datasets import load_dataset\n\ndata = load_dataset("c4", split="train"{more})\n'


class DatasetFullyInRam(Rule, code="OOM410", fixes=Applicability.SAFE):
    summary = "every rank holds the data set in RAM instead of mapping its file"
    only_where = (Where(plan={_FIELD: (True,)}), Where(facts=("dataset-in-memory",)))
    explains = ("dataset",)

    bad = (
        mended(
            "train.yaml", AXOLOTL + "dataset_keep_in_memory: {value}\n", value=("true", "false")
        ),
        mended("train.py", script(head=_reads(", keep_in_memory={value}")), value=(True, False)),
    )
    good = (
        example({"train.yaml": AXOLOTL}),
        example({"train.py": script(head=_reads(""))}),
        example({"train.py": script(head=_reads(", streaming=True"))}),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        if run.plan.data.in_memory and run.is_explicit(_FIELD):
            proposal = Proposal.set(_TITLE, {_FIELD: False})
            yield self._finding(run, run.key(_FIELD), _FIELD, (proposal,))
        for fact in facts_of(run, "dataset-in-memory"):
            yield self._finding(run, "keep_in_memory", fact, mending(_TITLE, fact))

    def _finding(
        self, run: Run, key: str, at: Any | Fact, proposals: tuple[Proposal, ...]
    ) -> Finding:
        ranks = settled(run).plan.parallel.gpus_per_node or 1
        copies = f"a node holds {ranks} copies" if ranks > 1 else "each rank holds a copy"
        return self.info(
            run,
            f"{key} copies the data set into the RAM of every rank",
            at=at,
            details=(
                f"{copies}, which the kernel cannot take back",
                "mapped from disk, as it is otherwise, all ranks share one in the file cache",
            ),
            resource="host",
            proposals=proposals,
        )
