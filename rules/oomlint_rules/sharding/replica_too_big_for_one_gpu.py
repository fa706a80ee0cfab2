"""Every card holds a whole copy of the weights, and the copy is too big.

## What it finds

Several GPUs under DDP, DataParallel or ZeRO stages 0 to 2, where the weights of one replica
exceed a card, so that no number of cards would help, or leave no room on it for the rest of a run
that would fit if they were shared among the cards.

## Why it runs out of memory

Data parallelism copies. DDP and ZeRO-1/2 keep the full 16-bit weights on every rank: 2
bytes a parameter, whatever the number of ranks. "Two cards use as much memory each as one"
is the most frequent surprise in the issue trackers of training frameworks.

## How to fix it

Shard the weights: DeepSpeed stage 3, or FSDP with full sharding. Or make them smaller:
quantize a frozen base to 4 bit.

## When not to

A single process that spreads one copy over the cards (`device_map="auto"`) is another
layout, and none of this applies to it.

## Sources

* https://github.com/hiyouga/LLaMA-Factory/issues/5972, https://github.com/hiyouga/LLaMA-Factory/issues/653
* https://github.com/artidoro/qlora/issues/184
* arXiv 1910.02054 (ZeRO), section 3
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement import Peak, exceeds, judge_gpu, of_cause, relief, settled, sharding_is_open
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Where
from oomlint.memory import state_bytes
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import ONE_SAMPLE, axolotl, example, text
from oomlint_rules._fixes import higher_sharding

_YAML = axolotl(
    "NousResearch/Meta-Llama-3-70B",
    "adapter: lora\nlora_r: 8\nlora_target_linear: true\nsequence_len: 1024\n",
    ONE_SAMPLE,
    "deepspeed: ds.json\n",
)
_JSON = text(
    """
    {
      "zero_optimization": {
        "stage": 2
      },
      "bf16": {"enabled": true},
      "train_micro_batch_size_per_gpu": "auto"
    }
    """
)

# The share of a need that is most of it.
_MOST = 0.5


class ReplicaTooBigForOneGpu(Rule, code="OOM302", fixes=Applicability.SAFE, cost=3):
    summary = "each GPU keeps a full copy of weights that are too much for one"
    explains = ("parameters",)
    only_where = (Where(has_card=True, has_risk=True),)

    bad = (
        example(
            {"axolotl.yaml": _YAML, "ds.json": _JSON},
            {
                "ds.json": _JSON.replace(
                    '    "stage": 2\n',
                    '    "stage": 3,\n    "stage3_gather_16bit_weights_on_model_save": true\n',
                )
            },
            on="8xA100-80GB",
        ),
        example(
            {"axolotl.yaml": _YAML.replace("deepspeed: ds.json\n", "")},
            on="8xA100-80GB",
            why="DDP: there is no file in which to raise a stage",
        ),
        example(
            {
                "axolotl.yaml": _YAML.replace(
                    "NousResearch/Meta-Llama-3-70B", "huggyllama/llama-30b"
                )
                .replace("1024\n", "4096\npad_to_sequence_len: true\nflash_attention: true\n")
                .replace("size: 1", "size: 4")
                .replace("deepspeed: ds.json\n", "")
            },
            on="8xA100-80GB",
            why="there is room for the rest only where the weights are shared",
        ),
    )
    good = (
        example({"axolotl.yaml": _YAML, "ds.json": _JSON.replace("2", "3", 1)}, on="8xA100-80GB"),
        example({"axolotl.yaml": _YAML.replace("70B", "8B"), "ds.json": _JSON}, on="8xA100-80GB"),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        judged, base = judge_gpu(run), settled(run)
        parallel = base.plan.parallel
        replicated = parallel.backend in ("ddp", "dp") or (
            parallel.backend == "zero" and parallel.zero.stage in (0, 1, 2)
        )
        if not replicated or (parallel.world or 1) < 2 or sharding_is_open(run):
            return
        if judged is None or judged.limit is None or judged.severity is None:
            return
        states = state_bytes(base.plan)
        if states is None:
            return
        is_larger = states.parameters > judged.limit
        ranks = parallel.world or 1
        if not is_larger and not _decides(run, judged, states.parameters, ranks):
            return
        size = gib(states.parameters)
        much = "more than it has" if is_larger else "too much for the rest"
        yield self.finding(
            run,
            of_cause(judged.severity),
            f"each of {parallel.world} GPUs keeps all {size} of weights, {much}",
            at=(f.parallel.zero.stage, f.model.id),
            details=(
                *judged.context,
                "more GPUs do not lower that, sharding the weights (ZeRO-3 or FSDP) does",
                *_after(run),
            ),
            judged=judged,
            proposals=_proposals(run),
        )


def _decides(run: Run, judged: Peak, weights: float, ranks: int) -> bool:
    """Whether a run dies of which the weights are the most, and has room for the rest where they are shared."""
    if judged.holds or weights < _MOST * judged.predicted:
        return False
    return not exceeds(run, "gpu", judged.predicted - weights * (1 - 1 / ranks))


def _after(run: Run) -> tuple[str, ...]:
    changes = higher_sharding(run)
    found = relief(run, changes) if changes else None
    # The file that the framework ships for stage 3 may offload less than the one for stage 2.
    return (f"sharded {found.sentence}",) if found and found.saved > 0 else ()


def _proposals(run: Run) -> Iterable[Proposal]:
    changes = higher_sharding(run)
    if changes:
        yield Proposal.set("shard the weights too", changes)
