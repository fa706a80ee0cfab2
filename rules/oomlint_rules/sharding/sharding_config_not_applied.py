"""A sharding setup that stands in the files and that the run does not use.

## What it finds

* An Accelerate YAML with a filled `fsdp_config` or `deepspeed_config` whose `distributed_type` is
  `MULTI_GPU` or `NO`, or that a flag of `accelerate launch` (`--multi_gpu`) counts before.
* DeepSpeed's own `zero_optimization` in the `deepspeed_config` of an Accelerate YAML, whose keys are
  `zero_stage` and `offload_optimizer_device`, where it asks for more than these do.
* llama-recipes started with several processes and without `--enable_fsdp`.
* The `deepspeed` launcher in a run of transformers' Trainer that names no DeepSpeed config and
  does not fit.
* `--deepspeed` and `--fsdp` in one run of transformers' Trainer.

## Why it runs out of memory

`accelerate launch` reads the block that `distributed_type` names and no other, without a word: the
run is plain data parallel, with all weights, gradients and optimizer states on each card, 16 bytes
a parameter with Adam in mixed precision. llama-recipes has no DDP: without `--enable_fsdp` no process
group is made, and every process trains a model of its own, all of them on GPU 0. DeepSpeed
and FSDP together are refused, once the model is loaded.

## How to fix it

Name what the file sets up: `distributed_type: FSDP` or `DEEPSPEED`; say it in Accelerate's words, or name a DeepSpeed
JSON in `deepspeed_config_file`; add `--enable_fsdp`; drop one of two. The fixes are unsafe: checkpoints have another format, and for llama-recipes several trainings
become one.

## When not to

A block that is kept for another machine. Then the run fits as it is; delete the block, or ignore
the finding in the file.

## Sources

* Accelerate 1.15 `commands/launch.py` (`launch_command`: `use_fsdp` and `use_deepspeed` follow from
  `distributed_type`; `_validate_launch_command`: keys that it does not know become options that nobody asks for)
* llama-cookbook 0e003351 `src/llama_cookbook/finetuning.py:98` and `:318`
* transformers 5.23 `trainer.py:475`, 4.57 `trainer.py:574`
* https://github.com/OpenRLHF/OpenRLHF/issues/742
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oomlint.dialects.accelerate.keys import own
from oomlint.dialects.accelerate.meaning import CHOSEN_BY
from oomlint.dialects.accelerate.passed_by import PassedBy, passed_by
from oomlint.dialects.common.fields import fsdp, ref
from oomlint.dialects.machine.fields import launch
from oomlint.judgement import Relief, judge_gpu, relief
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Severity, When
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import accelerate, command, deepspeed, example, mended, text

_UNAPPLIED = f.parallel.unapplied
_NAMES = {"fsdp": ("FSDP", "fsdp1"), "zero": ("DeepSpeed", "zero")}
# What a launcher alone says nothing to: these shard by a config that they are given.
_TRAINERS = ("llama-factory", "hf-trainer", "trl", "ms-swift")
_COMMAND = command("--gradient_checkpointing", "accelerate launch --config_file acc.yaml")
_FSDP = text(
    """
    fsdp_config:
      fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
      fsdp_sharding_strategy: FULL_SHARD
    """
)
_ZERO = "deepspeed_config:\n  zero3_init_flag: true\n  zero_stage: 3\n"
_NESTED = text(
    """
    deepspeed_config:
      zero_optimization:
        stage: {stage}
        offload_optimizer:
          device: {device}
    """
)
_RECIPES = (
    "torchrun --nnodes 1 --nproc_per_node 4 finetuning.py --model_name meta-llama/Llama-2-7b-hf"
    "{more} --output_dir out --batch_size_training 1\n"
)


class ShardingConfigNotApplied(
    Rule, code="OOM308", may_end=True, fixes=Applicability.UNSAFE, cost=4
):
    summary = "a sharding setup stands in the files and the run does not use it"

    bad = (
        example(
            {"train.sh": _COMMAND, "acc.yaml": accelerate("MULTI_GPU", _FSDP)},
            {"acc.yaml": accelerate("FSDP", _FSDP)},
            on="8xA100-80GB",
        ),
        example(
            {"train.sh": _COMMAND, "acc.yaml": accelerate("MULTI_GPU", _ZERO)},
            {"acc.yaml": accelerate("DEEPSPEED", _ZERO)},
        ),
        example(
            {
                "train.sh": _COMMAND.replace("accelerate launch", "accelerate launch --multi_gpu"),
                "acc.yaml": accelerate("DEEPSPEED", _ZERO),
            }
        ),
        example(
            {
                "train.sh": _COMMAND,
                "acc.yaml": accelerate("DEEPSPEED", _NESTED.format(stage=2, device="cpu")),
            },
            why="Accelerate's own keys are flat: nothing is offloaded",
        ),
        mended("train.sh", _RECIPES, more=("", " --enable_fsdp")),
        example(
            {"train.sh": command("--gradient_checkpointing", "deepspeed --num_gpus 4")},
            on="4xRTX-4090-24GB",
        ),
        example(
            {
                "train.sh": command("--deepspeed ds.json --fsdp full_shard"),
                "ds.json": deepspeed('"stage": 2'),
            }
        ),
    )
    good = (
        example({"train.sh": _COMMAND, "acc.yaml": accelerate("FSDP", _FSDP)}),
        example(
            {
                "train.sh": _COMMAND,
                "acc.yaml": accelerate("MULTI_GPU", "fsdp_config: {}\ndeepspeed_config: {}\n"),
            }
        ),
        example(
            {
                "train.sh": _COMMAND.replace("--output_dir", "--deepspeed ds.json --output_dir"),
                "acc.yaml": accelerate("MULTI_GPU", _ZERO),
                "ds.json": deepspeed('"stage": 2'),
            },
            why="the trainer brings a DeepSpeed config of its own",
        ),
        example(
            {
                "train.sh": _COMMAND,
                "acc.yaml": accelerate("DEEPSPEED", _NESTED.format(stage=2, device="none")),
            },
            why="it says what Accelerate does anyway",
        ),
        example({"train.sh": _RECIPES.format(more=" --enable_fsdp")}),
        example(
            {
                "train.sh": command("--deepspeed ds.json", "deepspeed --num_gpus 4"),
                "ds.json": deepspeed('"stage": 2'),
            },
            on="4xRTX-4090-24GB",
        ),
        example({"train.sh": command("--deepspeed ds.json"), "ds.json": deepspeed('"stage": 2')}),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        parallel = run.plan.parallel
        nested = passed_by(block for block, _ in run.parts.blocks)
        if nested is not None and parallel.backend == "zero":
            yield from self._nested(run, nested)
        if parallel.unapplied == "processes":
            yield self._alone(run, parallel.world)
        elif parallel.unapplied == "launcher":
            yield from self._launcher(run)
        elif parallel.unapplied is not None and parallel.backend in (None, "none", "ddp", "dp"):
            yield self._passed_over(run, parallel.unapplied)
        elif parallel.backend == "zero" and _asks_for_fsdp_too(run):
            yield self.error(
                run,
                "DeepSpeed and FSDP in one run: the trainer stops with an error",
                at=(fsdp.enabled, ref.deepspeed),
                details=("it stops once the model is loaded", "keep one of them"),
                ends=When.LOADED,
            )

    def _nested(self, run: Run, nested: PassedBy) -> Iterable[Finding]:
        lost = [each for each in nested.losses() if each.value != run.cells[each.field]]
        if not lost or run.cells[ref.deepspeed] is not None:
            return
        instead = ", ".join(each.instead for each in lost)
        yield self.warning(
            run,
            "zero_optimization is DeepSpeed's own key, which Accelerate passes by",
            at=nested.location,
            details=(
                f"Accelerate's keys stand in deepspeed_config itself: {instead}",
                "or name a DeepSpeed JSON in deepspeed_config_file",
            ),
        )

    def _passed_over(self, run: Run, part: str) -> Finding:
        name, backend = _NAMES[part]
        changes = {f.parallel.backend: backend}
        found = relief(run, changes)
        instead = next((flag for flag in CHOSEN_BY if _is_on(run, flag)), None)
        at = own.distributed_type if instead is None else instead
        key = run.key(at)
        because = f"{key} names something else" if instead is None else f"--{key} counts before it"
        details = ["every card holds all weights, gradients and optimizer states"]
        if found is not None and found.before.limit is not None:
            details += (*found.before.context, f"with {name} {found.sentence}")
        return self.finding(
            run,
            _severity(found),
            f"{name} is set up and not used, because {because}",
            at=at,
            details=details,
            judged=None if found is None else found.before,
            resource="gpu",
            proposals=[Proposal.set(f"shard with {name}", changes, Applicability.UNSAFE)],
        )

    def _launcher(self, run: Run) -> Iterable[Finding]:
        parallel, judged = run.plan.parallel, judge_gpu(run)
        whole = parallel.backend in (None, "ddp") and not any(
            block.table.section == "deepspeed" for block, _ in run.parts.blocks
        )
        if not whole or judged is None or not judged.is_problem or run.framework not in _TRAINERS:
            return
        yield self.warning(
            run,
            "the deepspeed launcher starts this run, and nothing names a DeepSpeed config",
            at=(launch.include, f.parallel.gpus_per_node),
            details=(
                *judged.context,
                "it is plain data parallelism, with everything on every card",
                "pass a config with --deepspeed",
            ),
            judged=judged,
        )

    def _alone(self, run: Run, processes: int | None) -> Finding:
        return self.error(
            run,
            f"{processes} processes start and nothing joins them: each trains a model of its own",
            at=(_UNAPPLIED, f.parallel.gpus_per_node),
            details=(
                "without FSDP all of them are on the same GPU",
                "shard with FSDP, or start one process",
            ),
            resource="gpu",
            proposals=[
                Proposal.set("shard with FSDP", {f.parallel.backend: "fsdp1"}, Applicability.UNSAFE)
            ],
        )


def _is_on(run: Run, flag: Any) -> bool:
    said = run.settings.get(flag)
    return said is not None and said.value is True


def _severity(found: Relief | None) -> Severity:
    if found is not None and found.before.severity is Severity.ERROR:
        return Severity.ERROR
    return Severity.WARNING


def _asks_for_fsdp_too(run: Run) -> bool:
    """Whether the trainer itself is told of both; Axolotl's own check speaks for Axolotl."""
    enabled = run.settings.get(fsdp.enabled)
    told = enabled is not None and enabled.value is True and run.is_explicit(ref.deepspeed)
    return told and run.dialect.name != "axolotl"
