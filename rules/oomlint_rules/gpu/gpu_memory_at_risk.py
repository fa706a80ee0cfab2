"""The run needs more of a GPU than there is, or nearly all of it.

## What it finds
A run on known hardware that is likely to die for lack of GPU memory: what it needs, of how much, in which
phase, how likely that is, and what the need is made of. It is there for every run in trouble, whether a
single setting is to blame or not; other rules then name what to change.

## Why it runs out of memory
A GPU holds weights, gradients, optimizer states, activations, logits and buffers at once. The largest
instant of a step decides, and it has to fit beside the CUDA context and what torch cannot use of its
reserved blocks. Runs begin to fail a little before the prediction reaches the limit, and some survive
beyond it: what is said is a probability, learned from public reports of runs that died and that ran.

## How to fix it
The notes name the largest parts and what lowers each. `oomlint fit` lists the ways that are proven to
make the run fit, the cheapest first.

## When not to
A risk between a fifth and a half says that the run is near the limit, not that it overflows: watch the
first steps, the longest batch and the first evaluation.

## Sources
* docs/memory-model.md for what is counted and docs/evidence.md for how well it is known
* PyTorch, "Understanding CUDA Memory Usage", https://pytorch.org/docs/stable/torch_cuda_memory.html
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.linting.rule import Finding, Rule, Where
from oomlint.runs.run import Run
from oomlint_rules._examples import axolotl, example
from oomlint_rules._headline import GPU_FIELDS, headline

_YAML = axolotl(
    "NousResearch/Meta-Llama-3-8B",
    "sequence_len: 8192\nsample_packing: true\nmicro_batch_size: 1\n",
    "gradient_checkpointing: true\nflash_attention: true\nbf16: true\n",
    "optimizer: adamw_torch_fused\n",
)


class GpuMemoryAtRisk(Rule, code="OOM100"):
    summary = "the run is likely to run out of GPU memory"
    is_headline = True
    only_where = (Where(has_card=True, has_risk=True),)

    bad = (
        example(
            {"axolotl.yaml": _YAML},
            on="1xA100-40GB",
            why="full fine-tuning of 8 billion parameters on one card",
        ),
    )
    good = (
        example(
            {
                "axolotl.yaml": _YAML.replace(
                    "8B",
                    "8B\nadapter: qlora\nload_in_4bit: true\nlora_r: 8\nlora_target_linear: true",
                )
            },
            on="1xH200-141GB",
        ),
        example({"axolotl.yaml": _YAML}, why="hardware unknown: nothing to exceed"),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        return headline(self, run, "gpu", GPU_FIELDS)
