"""Model states that ZeRO could divide among the ranks are kept whole on every card.

## What it finds

A run under DeepSpeed whose stage is below 3, or under FSDP with a strategy that keeps
parameters or gradients whole or shards within a node alone, and whose predicted peak does not fit while a higher stage
lowers it. It says what stage 3 alone leaves, and what else is needed where that is not
enough.

## Why it runs out of memory

Per parameter, in 16-bit training with Adam and an fp32 master copy (Rajbhandari et al.,
arXiv 1910.02054): 2 bytes of weights, 2 of gradients and 12 of optimizer states. Over N
ranks stage 1 divides the 12, stage 2 the gradients too, stage 3 everything:

    stage 1: 2P + 2P + 12P/N     stage 2: 2P + 14P/N     stage 3: 16P/N + what is gathered

A 70.6B model under stage 2 needs 131 GiB of weights alone on each card.

## How to fix it

Raise the stage. The result is the same; each layer's weights are gathered when they are
needed, which costs about half as much communication again (same paper, section 7). The fix
also asks for 16-bit weights to be gathered at a save, as the stage-3 presets of
transformers and LLaMA-Factory do: without it a save under stage 3 holds no usable model.

## When not to

Stage 3 is refused together with some options (`predict_with_generate`, `pure_bf16` and
8-bit bases in LLaMA-Factory, `auto_find_batch_size` in transformers): then it is not offered.

## Sources

* DeepSpeed edaa7221 `runtime/zero/stage3.py:3744`, `stage_1_and_2.py:3081` (estimators)
* arXiv 1910.02054 (ZeRO), sections 3, 5 and 7
* https://github.com/hiyouga/LLaMA-Factory/issues/4614 (FAQ, item 4)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from oomlint.judgement import Relief, exceeds, settled
from oomlint.linting.rule import Applicability, Where
from oomlint.memory import state_bytes
from oomlint.runs.run import Run
from oomlint.wording.amounts import count, gib
from oomlint_rules._examples import ONE_SAMPLE, accelerate, axolotl, command, example
from oomlint_rules._fixes import higher_sharding
from oomlint_rules._lowering import LowersPeak
from oomlint_rules._remedies import what_is_enough

_YAML = axolotl(
    "NousResearch/Llama-2-13b-hf", "sequence_len: 1024\n", ONE_SAMPLE, "deepspeed: ds.json\n"
)


def _json(stage: int, more: str = "") -> str:
    return (
        "{\n"
        '  "zero_optimization": {\n'
        f'    "stage": {stage},\n'
        f'    "overlap_comm": true{more}\n'
        "  },\n"
        '  "bf16": {"enabled": "auto"},\n'
        '  "train_micro_batch_size_per_gpu": "auto",\n'
        '  "gradient_accumulation_steps": "auto"\n'
        "}\n"
    )


_LAUNCH = "accelerate launch --config_file acc.yaml"


def _fsdp(strategy: str) -> str:
    return accelerate(
        "FSDP",
        "fsdp_config:\n"
        "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
        f"  fsdp_sharding_strategy: {strategy}\n",
        processes=32,
    ).replace("num_machines: 1", "num_machines: 4")


_GATHER = ',\n    "stage3_gather_16bit_weights_on_model_save": true'


class ZeroStageTooLow(LowersPeak, code="OOM301", fixes=Applicability.SAFE, cost=3):
    summary = "a higher ZeRO stage or full FSDP sharding would lower a peak that does not fit"
    explains = ("parameters", "gradients", "optimizer_states")
    only_where = (Where(has_risk=True),)

    bad = (
        example(
            {"axolotl.yaml": _YAML, "ds.json": _json(2)},
            {"ds.json": _json(3, _GATHER)},
            on="8xA100-40GB",
        ),
        example(
            {
                "train.sh": command("--gradient_checkpointing", _LAUNCH),
                "acc.yaml": _fsdp("HYBRID_SHARD"),
            },
            {"acc.yaml": _fsdp("FULL_SHARD")},
            on="4x8xRTX-4090-24GB",
        ),
    )
    good = (
        example({"axolotl.yaml": _YAML, "ds.json": _json(3)}, on="8xA100-40GB"),
        example(
            {"axolotl.yaml": _YAML, "ds.json": _json(2)}, on="8xH200-141GB", why="fits as it is"
        ),
    )

    def changes(self, run: Run) -> Mapping[Any, Any] | None:
        return higher_sharding(run)

    def cause(self, run: Run, found: Relief) -> str:
        return _what_is_whole(run)

    def place(self, run: Run) -> tuple[Any, ...]:
        return tuple(higher_sharding(run) or ())

    def gain(self, run: Run, found: Relief) -> Iterable[str]:
        """What sharding more brings, and what else it takes where that is too little."""
        if found.before.limit is None or found.suffices:
            yield f"with {_goal(run)} {found.sentence}"
            return
        changed = run.what_if(found.changes)
        yield f"{_goal(run)} alone: {found.sentence}"
        yield from _states_alone(changed)
        yield from what_is_enough(changed)

    def title(self, run: Run, found: Relief) -> str:
        return f"shard with {_goal(run)}"


def _goal(run: Run) -> str:
    return "ZeRO stage 3" if run.plan.parallel.backend == "zero" else "full FSDP sharding"


def _what_is_whole(run: Run) -> str:
    """``ZeRO stage 2 keeps all 131 GiB of weights on every card``"""
    if run.plan.parallel.fsdp.strategy in ("hybrid", "hybrid_grad_op"):
        return "hybrid sharding divides within a node and keeps a copy on each of the nodes"
    states, stage = state_bytes(settled(run).plan), run.plan.parallel.zero.stage
    name = f"ZeRO stage {stage}" if stage is not None else "this FSDP strategy"
    if states is None:
        return f"{name} keeps all weights on every card"
    weights = f"{gib(states.parameters)} of weights"
    if stage in (0, 1):
        return f"{name} keeps {weights} and {gib(states.gradients)} of gradients on every card"
    return f"{name} keeps all {weights} on every card"


def _states_alone(run: Run) -> Iterator[str]:
    """``then states alone are 131 GiB a card (16 bytes x 70.6B parameters / 8 GPUs)``, where they
    pass the limit by themselves."""
    base = settled(run)
    states, dims = state_bytes(base.plan), base.plan.model.dims
    world = base.plan.parallel.world
    if states is None or dims is None or not dims.params_total or not world:
        return
    if not exceeds(run, "gpu", states.total):
        return
    each = states.total * world / dims.params_total
    yield (
        f"then states alone are {gib(states.total)} a card ({each:.0f} bytes x "
        f"{count(dims.params_total)} parameters / {world} GPUs)"
    )
