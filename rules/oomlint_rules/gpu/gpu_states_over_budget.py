"""Weights, gradients and optimizer states alone are more than the card has.

## What it finds

A run whose model states, before a single activation, exceed the usable memory of a GPU:
parameters, gradients, master copies, optimizer states and reference models as they are
divided among the ranks. The hardware must be known.

## Why it runs out of memory

Bytes per parameter in full fine-tuning with Adam: 16 with mixed precision (2 + 2 + 12 under
DeepSpeed, 4 + 4 + 8 with autocast over fp32 weights), 8 in pure bf16. ZeRO-3 and full FSDP
divide all of it by the number of ranks, ZeRO-2 all but the weights, DDP nothing. With LoRA
the frozen base counts 2 bytes (0.5 to 0.6 in 4 bit) and only the adapter pays for the rest.
70.6e9 parameters x 16 bytes over 8 cards are 131 GiB each: stage 3 alone cannot fit them on
80 GB cards, whatever the batch size.

## How to fix it

In order of what it costs: shard more (ZeRO-3, FSDP full shard), offload the optimizer to
host RAM if there is enough, use an optimizer with lighter states (it changes learning), train
an adapter, take more cards. Smaller batches do not help.

## When not to

Mixture-of-experts models count with all their experts, not with the active ones. Tied
embeddings count once.

## Sources

* arXiv 1910.02054 (ZeRO), table 1
* DeepSpeed edaa7221 `runtime/zero/stage3.py:3744` and `stage_1_and_2.py:3081` (estimators)
* LLaMA-Factory README, "Hardware Requirement"
* https://github.com/hiyouga/LLaMA-Factory/issues/5977, https://github.com/hiyouga/LLaMA-Factory/issues/1250
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from oomlint.judgement import (
    SHARDED,
    exceeds,
    judge_gpu,
    judge_host,
    launch_is_unread,
    of_cause,
    relief,
    settled,
)
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Severity, Where
from oomlint.memory import StateBytes, state_bytes
from oomlint.plan.fields import ZERO_3, f
from oomlint.runs.run import Run
from oomlint.wording.amounts import count, gib
from oomlint_rules._examples import ONE_SAMPLE, axolotl, example, text
from oomlint_rules._remedies import what_is_enough

_YAML = axolotl(
    "{model}",
    "sequence_len: 2048\n",
    ONE_SAMPLE,
    "optimizer: adamw_torch_fused\ndeepspeed: ds.json\n",
)
_JSON = text(
    """
    {
      "zero_optimization": {
        "stage": 3
      },
      "bf16": {"enabled": true},
      "train_micro_batch_size_per_gpu": "auto"
    }
    """
)


class GpuStatesOverBudget(Rule, code="OOM105", fixes=Applicability.SAFE, cost=3):
    summary = "model states alone exceed the memory of a GPU"
    explains = ("parameters", "gradients", "optimizer_states")
    only_where = (Where(has_card=True, has_risk=True),)

    bad = (
        example(
            {"axolotl.yaml": _YAML.format(model="NousResearch/Llama-2-70b-hf"), "ds.json": _JSON},
            {
                "ds.json": _JSON.replace(
                    '    "stage": 3\n',
                    '    "stage": 3,\n    "offload_optimizer": {\n      "device": "cpu"\n    }\n',
                )
            },
            on="8xA100-80GB, 2TiB",
        ),
        example(
            {"axolotl.yaml": _YAML.format(model="NousResearch/Llama-2-70b-hf"), "ds.json": _JSON},
            on="8xA100-80GB, 256GiB",
            why="the host has too little RAM to offload to",
        ),
    )
    good = (
        example(
            {"axolotl.yaml": _YAML.format(model="NousResearch/Llama-2-7b-hf"), "ds.json": _JSON},
            on="8xA100-80GB",
        ),
        example(
            {"axolotl.yaml": _YAML.format(model="NousResearch/Llama-2-70b-hf"), "ds.json": _JSON},
            why="hardware unknown: nothing to exceed",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        judged, base = judge_gpu(run), settled(run)
        if judged is None or judged.limit is None or judged.severity is None:
            return
        states = state_bytes(base.plan)
        if states is None or not exceeds(run, "gpu", states.total):
            return
        is_shared_out = launch_is_unread(run) and not _exceed_sharded(base)
        yield self.finding(
            run,
            Severity.INFO if is_shared_out else of_cause(judged.severity),
            f"model states alone take {gib(states.total)} on every card: no batch size fits",
            at=(f.trainable.method, f.parallel.zero.stage, f.model.id),
            details=(
                *judged.context,
                *_arithmetic(base, states),
                *what_is_enough(run),
            ),
            judged=judged,
            proposals=_proposals(run),
        )


def _exceed_sharded(run: Run) -> bool:
    """Whether the states are too large for a card too if what launches the run shards them."""
    sharded = run.assuming(SHARDED)
    states = state_bytes(sharded.plan)
    return states is not None and exceeds(sharded, "gpu", states.total)


def _arithmetic(run: Run, states: StateBytes) -> tuple[str, str]:
    """``70.6B parameters over 8 GPUs`` and ``16.4 GiB of weights + ...``"""
    dims = run.plan.model.dims
    total = dims.params_total if dims is not None else None
    head = f"{count(total)} parameters" if total else "the model"
    parallel = run.plan.parallel
    # Where fewer GPUs are named than one group takes, the figures are those of a whole group.
    group = (parallel.tp or 1) * (parallel.pp or 1) * (parallel.cp or 1)
    world = max(parallel.world or 1, group)
    if world > 1:
        head += f" over {world} GPUs"
    parts = [
        f"{gib(size)} of {name}"
        for size, name in (
            (states.parameters, "weights"),
            (states.gradients, "gradients"),
            (states.master, "fp32 master weights"),
            (states.optimizer, "optimizer states"),
        )
        if size > 2**20
    ]
    return head, " + ".join(parts)


def _proposals(run: Run) -> Iterator[Proposal]:
    """Changes that make the run fit, or at least the states, cheapest first."""
    is_plain = run.plan.parallel.backend == "ddp"
    for title, changes, applicability in _CANDIDATES:
        found = relief(run, changes)
        if found is None or found.saved <= 0 or not found.suffices:
            continue
        if run.plan.parallel.backend != "zero" and not changes.keys() & _OF_ITSELF:
            continue  # only DeepSpeed keeps these in host RAM
        if _host_is_too_small(run, changes):
            continue
        title = "shard with ZeRO stage 3" if is_plain and changes == ZERO_3 else title
        yield Proposal.set(title, changes, applicability)


# What a run can say that DeepSpeed does not train yet.
_OF_ITSELF: frozenset[Any] = frozenset((f.parallel.zero.stage, f.optimizer.kind))

_CANDIDATES: tuple[tuple[str, Mapping[Any, Any], Applicability], ...] = (
    (
        "raise the ZeRO stage to 3",
        ZERO_3,
        Applicability.SAFE,
    ),
    (
        "offload the optimizer states to host RAM",
        {f.offload.optimizer: "cpu"},
        Applicability.SAFE,
    ),
    (
        "shard with ZeRO-3 and offload the optimizer states to host RAM",
        {**ZERO_3, f.offload.optimizer: "cpu"},
        Applicability.SAFE,
    ),
    (
        "offload the optimizer states and the parameters to host RAM",
        {f.offload.optimizer: "cpu", f.offload.params: "cpu"},
        Applicability.SAFE,
    ),
    ("keep Adam's states in 8 bit", {f.optimizer.kind: "adamw8bit"}, Applicability.UNSAFE),
    ("train with Adafactor", {f.optimizer.kind: "adafactor"}, Applicability.DISPLAY),
)


def _host_is_too_small(run: Run, changes: Mapping[Any, Any]) -> bool:
    """Whether offloading is wanted where the host's RAM is unknown or too little."""
    if not any(name.startswith("offload.") for name in changes):
        return False
    judged = judge_host(run.what_if(changes))
    return judged is None or not judged.holds
