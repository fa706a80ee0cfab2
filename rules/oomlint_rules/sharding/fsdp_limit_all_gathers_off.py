"""FSDP may gather several layers ahead of the one that it needs.

## What it finds

`limit_all_gathers: false`, or a forward prefetch, under FSDP1 in a run that does not fit, or is
tight.

## Why it runs out of memory

The host runs ahead of the GPU. With the rate limiter FSDP1 lets two gathered units be in flight;
without it every gather that the host has issued takes memory at once. For LoRA of Llama-2-7B on
four cards the limiter was worth 5.3 GB of reserved memory. A forward prefetch keeps the next unit
gathered beside the current one.

## How to fix it

`limit_all_gathers: true`, `forward_prefetch: false`: both are the defaults. The result is the same;
a run whose network is slow may lose some overlap.

## When not to

Where the run fits; under FSDP2, which has no such limiter.

## Sources

* torch documentation of `FullyShardedDataParallel` (`limit_all_gathers`, `forward_prefetch`)
* https://github.com/meta-llama/llama-cookbook/pull/41 (measured)
* composer `utils/parallelism.py` (`limit_all_gathers`), Accelerate 1.15 `utils/dataclasses.py:1750`
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement import judge_gpu
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import command, example, fsdp, mended, text

_LIMIT = f.parallel.fsdp.limit_all_gathers
_PREFETCH = f.parallel.fsdp.forward_prefetch

_FOUNDRY = text(
    """
    max_seq_len: 2048
    model:
      name: hf_causal_lm
      pretrained: true
      pretrained_model_name_or_path: meta-llama/Llama-2-13b-hf
    tokenizer:
      name: meta-llama/Llama-2-13b-hf
    train_loader:
      name: finetuning
      dataset:
        hf_name: tatsu-lab/alpaca
        max_seq_len: 2048
    optimizer:
      name: decoupled_adamw
    max_duration: 1ep
    global_train_batch_size: 8
    device_train_microbatch_size: 1
    precision: amp_bf16
    fsdp_config:
      sharding_strategy: FULL_SHARD
      mixed_precision: PURE
      activation_checkpointing: true
      limit_all_gathers: {limit}
    """
)
_COMMAND = command("--gradient_checkpointing", "accelerate launch --config_file acc.yaml")


def _fsdp(prefetch: str) -> str:
    return fsdp(f"fsdp_forward_prefetch: {prefetch}", "fsdp_sharding_strategy: FULL_SHARD")


class FsdpLimitAllGathersOff(Rule, code="OOM312", fixes=Applicability.SAFE):
    summary = "FSDP may gather several layers ahead on a card that is full"
    only_where = (Where(plan={f.parallel.backend: ("fsdp1",)}, has_card=True),)

    bad = (
        mended("train.yaml", _FOUNDRY, limit=("false", "true"), on="8xRTX-4090-24GB"),
        example(
            {"train.sh": _COMMAND, "acc.yaml": _fsdp("true")},
            {"acc.yaml": _fsdp("false")},
            on="8xRTX-4090-24GB",
        ),
    )
    good = (
        example({"train.yaml": _FOUNDRY.format(limit="true")}, on="8xRTX-4090-24GB"),
        example({"train.yaml": _FOUNDRY.format(limit="false")}, on="8xH100-80GB"),
        example({"train.sh": _COMMAND, "acc.yaml": _fsdp("true")}),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        fsdp = run.plan.parallel.fsdp
        judged = judge_gpu(run)
        if judged is None or not judged.is_problem:
            return
        if fsdp.limit_all_gathers is False:
            field, title = _LIMIT, "let at most two gathers be in flight"
            text = "nothing limits how many layers FSDP gathers ahead of the one that it needs"
        elif fsdp.forward_prefetch:
            field, title = _PREFETCH, "do not prefetch in the forward pass"
            text = "FSDP keeps the next layer gathered beside the current one in the forward pass"
        else:
            return
        yield self.info(
            run,
            text,
            at=field,
            details=(
                f"{run.key(field)} is {'off' if field == _LIMIT else 'on'}",
                *judged.context,
            ),
            judged=judged,
            proposals=[Proposal.set(title, {field: field == _LIMIT})],
        )
