"""The allocator's cache is emptied in every training step, which frees nothing that is in use.

## What it finds

`torch.cuda.empty_cache()` in every turn of a training loop in a script, and
`torch_empty_cache_steps: 1` on a known card that the run fits with room.

## Why it runs out of memory

It does not run out, and this does not help. `empty_cache` gives blocks back that no tensor uses;
the peak is made of tensors that are alive, so it stays where it was. Each call waits for the GPU, and the next
step gets all its blocks from the driver again with `cudaMalloc`: a tenth of the speed and more.
It is widely recommended against out-of-memory errors because *reserved* falls in `nvidia-smi`.

What it does help against is fragmentation at a change of phase: after an evaluation, a save, before
a colocated inference engine takes its turn. There it belongs.

## How to fix it

Delete the call, or make it at such a change only. Against fragmentation within training
`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` works without the cost. The fix deletes the
statement; results are the same.

## When not to

Where another process, such as vLLM on the same card, needs the blocks between two steps; the rule is
silent in scripts that name vLLM or SGLang. On a card that is nearly full `torch_empty_cache_steps` may
be worth its price.

## Sources

* PyTorch documentation, `torch.cuda.empty_cache`: *doesn't increase the amount of GPU memory available
  for PyTorch*; *CUDA semantics*, memory management
* transformers 5.23 `training_args.py:983` (*at a cost of ~10% slower performance*)
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement import judge_gpu
from oomlint.linting.rule import Applicability, Finding, Rule, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import LLAMA_FACTORY, example, mended
from oomlint_rules._fixes import removal
from oomlint_rules._scripts import facts_of, mending

_STEPS = f.env.empty_cache_steps

_LOOP = (
    "import torch\n"
    "\n"
    "for batch in loader:\n"
    "    loss = model(**batch).loss\n"
    "    loss.backward()\n"
    "    optimizer.step()\n"
    "    optimizer.zero_grad()\n"
    "{more}"
)
_LF = LLAMA_FACTORY.replace("finetuning_type: full", "finetuning_type: lora")


class EmptyCacheAbuse(Rule, code="OOM718", fixes=Applicability.SAFE):
    summary = "the allocator's cache is emptied in every step, which frees nothing in use"
    only_where = (Where(facts=("empty-cache-in-loop",)), Where(plan={_STEPS: (1,)}))

    bad = (
        mended("train.py", _LOOP, more=("    torch.cuda.empty_cache()\n", "")),
        example(
            {"train.yaml": f"{_LF}torch_empty_cache_steps: 1\n"},
            {"train.yaml": _LF},
            on="1xA100-80GB",
        ),
    )
    good = (
        example(
            {
                "train.py": _LOOP.format(
                    more="    if step % 500 == 0:\n        torch.cuda.empty_cache()\n"
                )
            }
        ),
        example({"train.py": _LOOP.format(more="") + "torch.cuda.empty_cache()\n"}),
        example(
            {"train.yaml": f"{_LF}cutoff_len: 4096\ntorch_empty_cache_steps: 1\n"},
            on="1xRTX-3090-24GB",
            why="on a card that is nearly full it may be worth its price",
        ),
        example({"train.yaml": f"{_LF}torch_empty_cache_steps: 50\n"}),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        for fact in facts_of(run, "empty-cache-in-loop"):
            yield self.info(
                run,
                "emptying the cache in every step frees nothing that a tensor uses",
                at=fact,
                details=(
                    "the peak stays, and the next step gets all its blocks from the driver again",
                    "do it where phases change, after an evaluation or a save",
                ),
                resource="gpu",
                proposals=mending("delete the call", fact),
            )
        if run.plan.env.empty_cache_steps == 1 and run.is_explicit(_STEPS):
            found = judge_gpu(run)
            if found is not None and found.limit is not None and found.severity is None:
                key = run.key(_STEPS)
                yield self.info(
                    run,
                    f"{key}: 1 empties the cache in every step, and the run fits",
                    at=_STEPS,
                    details=("it costs about a tenth of the speed",),
                    judged=found,
                    proposals=removal(f"remove {key}", run.origin(_STEPS)),
                )
