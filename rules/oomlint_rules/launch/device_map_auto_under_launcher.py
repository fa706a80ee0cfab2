"""A device map that spreads the model over all GPUs, in every one of several processes.

## What it finds

`device_map="auto"` (or `balanced`, `balanced_low_0`, `sequential`) in a run that torchrun,
`accelerate launch` or `deepspeed` starts with more than one process, or that ZeRO-3 shards; and any device map of a
load under ZeRO-3, one that gives each process its own card (`{"": local_rank}`) included.

## Why it runs out of memory

The map is made for one process that owns all cards. With eight processes each of them
spreads a copy of its own over all eight cards: the cards hold eight copies of the model, 120
GiB of bf16 weights for 8B parameters, and GPU 0 a CUDA context of each process. Accelerate
stops such a run after the loading: *You can't train a model that has been loaded with
`device_map='auto'` in any distributed mode*; transformers refuses a device map under ZeRO-3.

## How to fix it

Remove the argument: the trainer places each process's copy on its own card. Under
quantization too, since bitsandbytes then takes the process's current device, which the training arguments
or an `Accelerator` set. Where a script makes them after such a load, every process would load onto the first card, and
Accelerate stops all others: there `device_map={"": PartialState().process_index}` is right, and the removal is
only shown.

## When not to

In a single process (`python train.py`), where the map is a way to train a model that is too
large for one card, one layer after the other. With a DeepSpeed config Accelerate takes such a process, too, for a distributed
run, but for releases 0.29 to 0.34.

## Sources

* Accelerate 1.15 `accelerator.py:1479` and `:4350` (`verify_device_map`)
* transformers 5.23 `integrations/accelerate.py:137` (*DeepSpeed Zero-3 is not compatible with
  passing a device_map*), `quantizers/quantizer_bnb_4bit.py` (`update_device_map`)
* Accelerate 0.29.3 and 1.0.1 `state.py` (`distributed_type` without `LOCAL_RANK`)
* Accelerate 1.15 `accelerator.py:1864` (*loaded in 8-bit or 4-bit precision on a different device*)
* https://github.com/hiyouga/LLaMA-Factory/issues/3514
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.dialects.trainer.tables import FROM_PRETRAINED
from oomlint.linting.rule import Applicability, Finding, Rule, When, Where
from oomlint.plan.fields import f
from oomlint.plan.library_changes import Release, release_of
from oomlint.runs.run import Run
from oomlint_rules._conditions import starts_alone
from oomlint_rules._examples import command, deepspeed, example, script
from oomlint_rules._fixes import removal

_MAP = '    device_map="auto",\n'
_QUANTIZES = frozenset({"quantization_config", "load_in_4bit", "load_in_8bit"})
_SPREADING = ("auto", "balanced")
# accelerate 0.29.3 and 0.34.2 state.py: without LOCAL_RANK ``distributed_type`` stays NO, whatever plugin there is; in
# 0.28.0 and 1.0.1 it is DEEPSPEED.
_LEAVES_OUT: tuple[Release, Release] = ((0, 29), (1, 0))
_OWN_CARD = '    device_map={"": torch.cuda.current_device()},\n'
_ALONE = ("under DeepSpeed one process is a distributed run, too", "Accelerate stops it")
_REFUSED_UNDER_ZERO_3 = ("transformers stops with an error at a device map under ZeRO-3",)
_TORCHRUN = "torchrun --nproc_per_node 4 train.py\n"


class DeviceMapAutoUnderLauncher(Rule, code="OOM704", may_end=True, fixes=Applicability.SAFE):
    summary = "every process spreads a copy of the model over all GPUs"
    only_where = (
        Where(plan={f.load.device_map: _SPREADING}),
        Where(plan={f.load.device_map: ("single", "explicit"), f.parallel.zero.stage: (3,)}),
    )

    bad = (
        example({"train.py": script(load=_MAP), "train.sh": _TORCHRUN}, {"train.py": script()}),
        example(
            {
                "train.py": script("deepspeed='ds.json'", load=_MAP),
                "ds.json": deepspeed('"stage": 3'),
            },
            {"train.py": script("deepspeed='ds.json'")},
            why="transformers refuses it under ZeRO-3",
        ),
        example(
            {
                "train.py": script("deepspeed='ds.json'", load=_OWN_CARD),
                "ds.json": deepspeed('"stage": 3'),
            },
            {"train.py": script("deepspeed='ds.json'")},
            why="transformers refuses any map under ZeRO-3, which places the shards itself",
        ),
        example(
            {
                "train.py": script("deepspeed='ds.json'", load=_MAP),
                "train.sh": "python train.py\n",
                "ds.json": deepspeed('"stage": 2'),
            },
            on="8xA100-80GB",
            why="DeepSpeed makes a distributed run of one process, too",
        ),
    )
    good = (
        example(
            {"train.py": script(load=_MAP), "train.sh": "python train.py\n"},
            why="one process may spread the model over all cards",
        ),
        example({"train.py": script(load=_MAP)}, on="8xA100-80GB"),
        example(
            {
                "train.py": script(load='    device_map={"": torch.cuda.current_device()},\n'),
                "train.sh": _TORCHRUN,
            }
        ),
        example(
            {
                "train.py": script("deepspeed='ds.json'", load=_OWN_CARD),
                "ds.json": deepspeed('"stage": 2'),
            },
        ),
        example(
            {
                "train.py": script("deepspeed='ds.json'", load=_MAP),
                "train.sh": "python train.py\n",
                "ds.json": deepspeed('"stage": 2'),
                "requirements.txt": "accelerate==0.29.3\n",
            },
            on="8xA100-80GB",
            why="from 0.29 to 0.34 DeepSpeed has no part in a process that no launcher started",
        ),
        example({"train.sh": command("")}),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        plan = run.plan
        if not run.is_explicit(f.load.device_map):
            return
        stage3 = plan.parallel.backend == "zero" and plan.parallel.zero.stage == 3
        spreads = plan.load.device_map in _SPREADING
        launched = any(claim.is_launched for claim in run.claims)
        several = spreads and launched and (plan.parallel.world or 1) > 1
        if not spreads and not _loads_under_its_arguments(run):
            return
        if not stage3 and not (several and plan.parallel.backend not in ("dp", "device_map_pp")):
            return
        is_alone = several and starts_alone(run)
        if is_alone and _leaves_deepspeed_out(run):
            return
        details: tuple[str, ...] = _REFUSED_UNDER_ZERO_3
        if several:
            details = _ALONE if is_alone else _of_several(plan.parallel.world)
        yield self.error(
            run,
            f"{run.key(f.load.device_map)}: {plan.load.device_map} is for a single process"
            if spreads
            else f"{run.key(f.load.device_map)} is refused under ZeRO-3",
            at=f.load.device_map,
            details=details,
            resource="gpu",
            proposals=removal(
                f"remove {run.key(f.load.device_map)}",
                run.origin(f.load.device_map),
                Applicability.DISPLAY if _lands_on_first(run) else Applicability.SAFE,
            ),
            ends=When.LOADING if stage3 else None if _loops_itself(run) else When.LOADED,
        )


def _loops_itself(run: Run) -> bool:
    """Whether a loop of the program's own trains: only what it gives Accelerate is refused."""
    return run.dialect.name == "loop"


def _of_several(ranks: int | None) -> tuple[str, ...]:
    return (
        f"each of the {ranks} processes spreads a copy of the model over all GPUs it sees",
        "Accelerate then stops the run",
    )


def _leaves_deepspeed_out(run: Run) -> bool:
    """Whether the project pins a release of Accelerate that starts DeepSpeed in the ranks of a launcher alone: a single
    process is none, and its model may be spread."""
    pinned = release_of(run.plan.versions.get("accelerate"))
    return pinned is not None and _LEAVES_OUT[0] <= pinned < _LEAVES_OUT[1]


def _loads_under_its_arguments(run: Run) -> bool:
    """Whether a script loads the model when the training arguments are made, so that transformers knows of ZeRO-3."""
    origin = run.origin(f.load.device_map)
    return origin is not None and origin.block is not None and origin.block.table is FROM_PRETRAINED


def _lands_on_first(run: Run) -> bool:
    """Whether a quantized load of a script may come before anything has picked each process's card."""
    origin = run.origin(f.load.device_map)
    if origin is None or origin.block is None or origin.entry is None:
        return False
    if not origin.block.path.endswith(".py") or "device-before-load" in run.fact_kinds:
        return False
    beside = origin.block.holder(origin.entry).entries
    return run.plan.quant.method != "none" or not _QUANTIZES.isdisjoint(beside)
