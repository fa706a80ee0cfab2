"""Every rank loads a checkpoint onto the GPU that it was saved from.

## What it finds

`torch.load(path)` without `map_location` in a script that trains on several GPUs.

## Why it runs out of memory

Tensors come back on the device that they were saved from, most often `cuda:0`. Eight ranks
then each put a copy of the checkpoint onto the first card, and a CUDA context of 0.3 to 0.6
GiB beside it: for the states of a 1B model (12 bytes a parameter) 8 x 11 GiB on one card.

## How to fix it

`torch.load(path, map_location="cpu")`, with `mmap=True` where the file allows it, and let the
model copy what it needs.

## When not to

For small files, and where each rank reads a file that it wrote itself.

## Sources

* torch documentation of `torch.load`, `map_location`
* https://github.com/huggingface/accelerate/issues/296 (66 GB on the first GPU),
  https://github.com/huggingface/transformers/pull/4403
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.documents.base import Fact
from oomlint.linting.rule import Finding
from oomlint.runs.run import Run
from oomlint_rules._examples import example, script, text
from oomlint_rules._scripts import FactRule

_LOOP = text(
    """
    import torch
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(build())
    state = torch.load({arguments})
    model.load_state_dict(state)
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
    """
)
_LOADS = "model.load_state_dict(torch.load('last.pt'))\n"


class Rank0GpuSkew(FactRule, code="OOM714", fact="torch-load-no-map-location"):
    summary = "every rank loads a checkpoint onto the same GPU"

    bad = (example({"train.py": _LOOP.format(arguments="'last.pt'")}),)
    good = (
        example({"train.py": _LOOP.format(arguments="'last.pt', map_location='cpu'")}),
        example(
            {
                "train.py": _LOOP.format(arguments="'last.pt'").replace(
                    "DistributedDataParallel", "Parallel"
                )
            },
            why="one GPU",
        ),
        example(
            {
                "train.py": f"import os\nrank = os.environ['LOCAL_RANK']\n{script()}{_LOADS}",
                "train.sh": "torchrun --nproc_per_node 1 train.py\n",
            },
            why="one rank",
        ),
    )

    def comes_of(self, fact: Fact, run: Run) -> Iterable[Finding]:
        if run.plan.parallel.world == 1:
            return  # there is one rank to fill it
        # How large the file is, and whether this line is reached, only running tells.
        yield self.info(
            run,
            "torch.load without map_location fills the same GPU from every rank",
            at=fact,
            details=(
                "tensors go back to the GPU that they were saved from",
                'give map_location="cpu"',
            ),
            confidence="medium",
            resource="gpu",
        )
