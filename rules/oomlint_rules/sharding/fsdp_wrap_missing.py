"""FSDP that wraps the model as one unit, and so gathers all of it at once.

## What it finds

FSDP without a wrapping policy (`NO_WRAP`, or none named where the framework has no other
default), with a size-based policy whose threshold no block reaches, and with the name of a
block class that belongs to another model.

## Why it runs out of memory

FSDP gathers one unit at a time. Where the whole model is the only unit, each GPU holds all
parameters (2 bytes each in bf16) and all gradients unsharded during a step, as without FSDP:
for 8B parameters 15 GiB of weights and as much for gradients, whatever the number of cards.
A class name that the model does not have stops the run once the model is loaded: *Could not
find the transformer layer class*.

## How to fix it

Wrap by transformer block: `fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP`. Accelerate then
takes the block classes from the model's `_no_split_modules`, so no class has to be named. The
result of the training is the same.

## When not to

For small models on large cards, where one unit costs less than its communication; the rule
is silent where the run provably fits.

## Sources

* Accelerate 1.15 `utils/dataclasses.py:2085` (`set_auto_wrap_policy`: the default classes, and
  the error for a class that is not found), `commands/launch.py:513` (`NO_WRAP` is the default)
* torch documentation of `FullyShardedDataParallel`, `auto_wrap_policy`
* https://github.com/huggingface/transformers/issues/37664
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.dialects.common.fields import fsdp
from oomlint.judgement import Relief, of_cause, relief
from oomlint.linting.rule import (
    Applicability,
    Finding,
    Proposal,
    Rule,
    Severity,
    When,
    Where,
    short,
)
from oomlint.models.architectures import block_classes
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import count
from oomlint_rules._examples import AXOLOTL, accelerate, command, example
from oomlint_rules._fixes import removal

_CLASSES = f.parallel.fsdp.wrap_classes
_ACCELERATE = "accelerate launch --config_file acc.yaml"
_LARGE = AXOLOTL.replace("meta-llama/Llama-3.1-8B", "Qwen/Qwen2.5-32B")


def _fsdp(lines: str) -> str:
    return accelerate("FSDP", f"fsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n{lines}")


class FsdpWrapMissing(Rule, code="OOM304", may_end=True, fixes=Applicability.SAFE, cost=1):
    summary = "FSDP gathers the whole model at once because nothing wraps its blocks"
    only_where = (Where(plan={f.parallel.backend: ("fsdp1", "fsdp2")}),)

    bad = (
        example(
            {
                "train.sh": command("--gradient_checkpointing", _ACCELERATE),
                "acc.yaml": _fsdp("  fsdp_auto_wrap_policy: NO_WRAP\n"),
            },
            {"acc.yaml": _fsdp("  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n")},
        ),
        example(
            {
                "train.yaml": (
                    f"{_LARGE}fsdp:\n  - full_shard\nfsdp_config:\n  offload_params: false\n"
                )
            },
            {
                "train.yaml": (
                    f"{_LARGE}fsdp:\n  - full_shard\nfsdp_config:\n  offload_params: false\n"
                    "  auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
                )
            },
            on="8xA100-80GB",
        ),
        example(
            {
                "train.sh": command("--gradient_checkpointing", _ACCELERATE),
                "acc.yaml": _fsdp(
                    "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
                    "  fsdp_transformer_layer_cls_to_wrap: MistralDecoderLayer\n"
                ),
            },
            {"acc.yaml": _fsdp("  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n")},
            why="the class of another model",
        ),
    )
    good = (
        example(
            {
                "train.sh": command("--gradient_checkpointing", _ACCELERATE),
                "acc.yaml": _fsdp("  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"),
            },
            why="accelerate asks the model for its block class",
        ),
        example(
            {
                "train.sh": command("--gradient_checkpointing", _ACCELERATE).replace(
                    "Llama-3.1-8B", "Llama-3.2-1B"
                ),
                "acc.yaml": _fsdp("  fsdp_auto_wrap_policy: NO_WRAP\n"),
            },
            on="8xH100-80GB",
            why="one unit of a small model fits",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        fsdp = run.plan.parallel.fsdp
        wrong = _wrong_classes(run)
        if fsdp.wrap in ("transformer", "ends") and wrong:
            yield self._not_found(run, wrong)
        elif (fsdp.wrap == "none" or _never_reached(run)) and fsdp.strategy != "no_shard":
            yield from self._one_unit(run)

    def _one_unit(self, run: Run) -> Iterable[Finding]:
        changes = {f.parallel.fsdp.wrap: "transformer"}
        found = relief(run, changes)
        severity = _severity(run, found)
        if severity is None:
            return
        message = "nothing wraps the blocks of the model, so FSDP gathers all of it at once"
        details: tuple[str, ...] = ()
        if run.plan.parallel.fsdp.wrap == "size":
            least = count(run.plan.parallel.fsdp.min_params or 0)
            message = (
                f"no block reaches {least} parameters, so FSDP gathers the whole model at once"
            )
            details = (f"FSDP wraps what has {least} parameters or more",)
        if found is not None:
            details += (*found.before.context, f"with a unit a block {found.sentence}")
        yield self.finding(
            run,
            severity,
            message,
            at=(f.parallel.fsdp.wrap, fsdp.enabled),
            details=details,
            judged=None if found is None else found.before,
            confidence="medium" if found is None else None,
            resource="gpu",
            proposals=[Proposal.set("wrap each transformer block", changes)],
        )

    def _not_found(self, run: Run, wrong: tuple[str, ...]) -> Finding:
        right = block_classes(str(run.plan.model.arch))
        classes = short(wrong[0]) if len(wrong) == 1 else f"{len(wrong)} classes"
        return self.error(
            run,
            f"FSDP is to wrap {classes}, which {short(run.plan.model.id)} does not have",
            at=_CLASSES,
            details=(
                f"the blocks of {run.plan.model.id} are {' and '.join(right)}, not {' or '.join(wrong)}",
                "the run stops once the model is loaded",
            ),
            proposals=removal(
                f"remove {run.key(_CLASSES)}, so that the model's own block class counts",
                run.origin(_CLASSES),
            ),
            ends=When.LOADED,
        )


def _severity(run: Run, found: Relief | None) -> Severity | None:
    """A sharded run that gathers everything is worth a word unless it is known to fit; where what wraps it is assumed,
    a remark."""
    guessed = run.is_fragment and not run.is_explicit(f.parallel.fsdp.wrap)
    guessed = guessed or run.level(f.parallel.fsdp.wrap) >= Level.ASSUMED
    most = Severity.INFO if guessed else Severity.ERROR
    if found is None:
        return min(most, Severity.WARNING)
    if found.saved <= 0:
        return None
    if found.before.limit is None:
        return min(most, Severity.WARNING)
    severity = found.before.severity
    return None if severity is None else min(most, of_cause(severity))


def _wrong_classes(run: Run) -> tuple[str, ...]:
    """Block classes of other models, where it is certain that this one has none of them."""
    named = run.plan.parallel.fsdp.wrap_classes or ()
    right = block_classes(str(run.plan.model.arch))
    sure = run.model is not None and run.model.confidence == "verified" and right
    if not sure or run.plan.model.trust_remote_code or set(named) & set(right):
        return ()
    return tuple(n for n in named if n.endswith("DecoderLayer") and n not in right)


def _never_reached(run: Run) -> bool:
    fsdp, dims = run.plan.parallel.fsdp, run.plan.model.dims
    if fsdp.wrap != "size" or fsdp.min_params is None or dims is None:
        return False
    return dims.params_layer_max is not None and fsdp.min_params > max(
        dims.params_layer_max * (dims.layers or 1), 1
    )
