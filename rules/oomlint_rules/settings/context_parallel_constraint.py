"""Context parallelism with attention, sharding or batches that it does not work with.

## What it finds

In Axolotl `context_parallel_size` above 1 without flash attention, with `sample_packing` and a
`micro_batch_size` above 1, or in GRPO with Liger's loss. Under transformers' Trainer and Accelerate
`cp_size` above 1 without FSDP2, or with attention other than sdpa.

## Why it runs out of memory

It does not get that far: a `ValueError` ends the run, Accelerate's once the processes are up, the
Trainer's at the first step. Who then drops context parallelism has the whole sequence on each card:
at 128k tokens an 8B model keeps 32 GiB of checkpoints alone, which four ranks divide.

## How to fix it

The attention that the split sequence needs (ring attention in Axolotl is built on flash attention,
torch's on sdpa), one packed sample at a time with more accumulation, FSDP2. Attention and
accumulation leave the training as it is; FSDP2 writes other checkpoints, so that fix is unsafe.

## When not to

With `use_glm_dsa_kernels` Axolotl splits the sequence by itself, and with
`ACCELERATE_ALLOW_CP_STANDALONE` Accelerate checks nothing; for another way, drop context parallelism.

## Sources

* Axolotl 067b021c `utils/schemas/validation.py:1634` (`check_context_parallel_size`) and `:706`
* Accelerate 1.15 `state.py:996` and `:1006`; transformers 5.23 `trainer.py:2413`
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from oomlint.linting.rule import KNOWN, Applicability, Finding, Proposal, Rule, When, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import AXOLOTL, command, example, fsdp, mended
from oomlint_rules.settings._combinations import is_on, value_of

_SIZE = f.parallel.cp
_ATTENTION = f.model.attn_impl
_NO_FLASH = ("eager", "sdpa", "xformers", "flex", "sage")
_ON_ACCELERATE = ("hf-trainer", "trl", "accelerate")

_AXOLOTL = AXOLOTL + "context_parallel_size: 2\nattn_implementation: {attention}\n"
_COMMAND = command("--gradient_checkpointing{more}", "accelerate launch --config_file acc.yaml")


def _fsdp(version: int) -> str:
    sizes = "  parallelism_config_cp_size: 2\n  parallelism_config_dp_shard_size: 4\n"
    return fsdp(f"fsdp_version: {version}", more=f"parallelism_config:\n{sizes}")


class ContextParallelConstraint(Rule, code="OOM817", may_end=True, fixes=Applicability.SAFE):
    summary = "context parallelism with settings that it is refused with"
    only_where = (Where(plan={f.parallel.cp: KNOWN}),)

    bad = (
        mended("train.yaml", _AXOLOTL, attention=("sdpa", "flash_attention_2")),
        example(
            {
                "train.yaml": _AXOLOTL.format(attention="flash_attention_2").replace(
                    "micro_batch_size: 1", "micro_batch_size: 4\ngradient_accumulation_steps: 2"
                )
                + "sample_packing: true\n"
            },
            {
                "train.yaml": _AXOLOTL.format(attention="flash_attention_2").replace(
                    "micro_batch_size: 1", "micro_batch_size: 1\ngradient_accumulation_steps: 8"
                )
                + "sample_packing: true\n"
            },
        ),
        example(
            {"train.sh": _COMMAND.format(more=""), "acc.yaml": _fsdp(1)}, {"acc.yaml": _fsdp(2)}
        ),
        example(
            {
                "train.sh": _COMMAND.format(more=" --attn_implementation flash_attention_2"),
                "acc.yaml": _fsdp(2),
            },
            {"train.sh": _COMMAND.format(more=" --attn_implementation sdpa")},
        ),
    )
    good = (
        example({"train.yaml": _AXOLOTL.format(attention="flash_attention_2")}),
        example(
            {
                "train.yaml": _AXOLOTL.format(attention="sdpa").replace(
                    "context_parallel_size: 2", "context_parallel_size: 1"
                )
            }
        ),
        example({"train.sh": _COMMAND.format(more=""), "acc.yaml": _fsdp(2)}),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        if (run.plan.parallel.cp or 1) < 2:
            return
        if run.dialect.name == "axolotl":
            yield from self._axolotl(run)
        elif run.framework in _ON_ACCELERATE:
            yield from self._accelerate(run)

    def _axolotl(self, run: Run) -> Iterator[Finding]:
        plan, micro = run.plan, run.plan.batch.micro or 1
        if plan.model.attn_impl in _NO_FLASH and not is_on(value_of(run, "use_glm_dsa_kernels")):
            has_kernel = run.hardware is None or run.hardware.gpu.flash2
            flash = Proposal.set("use flash attention", {_ATTENTION: "flash2"})
            yield self._refused(
                run,
                "needs flash attention",
                _ATTENTION,
                *([flash] if has_kernel else []),
                details=("Axolotl splits the sequence by ring attention",),
            )
        if plan.seq.packing not in (None, "none") and micro > 1:
            steps = micro * (plan.batch.grad_accum or 1)
            yield self._refused(
                run,
                "takes one packed sample at a time",
                f.batch.micro,
                Proposal.set(
                    "pack one sample and accumulate",
                    {f.batch.micro: 1, f.batch.grad_accum: steps},
                ),
            )
        if plan.objective.kind == "grpo" and is_on(value_of(run, "trl.liger_loss")):
            yield self._refused(run, "is refused in GRPO with Liger's loss", f.objective.kind)

    def _accelerate(self, run: Run) -> Iterator[Finding]:
        plan = run.plan
        if plan.parallel.backend == "fsdp1":
            yield self._refused(
                run,
                "needs FSDP2, and this is FSDP1",
                f.parallel.fsdp.version,
                Proposal.set(
                    "shard with FSDP2", {f.parallel.fsdp.version: 2}, Applicability.UNSAFE
                ),
            )
        elif plan.parallel.backend in ("none", "ddp"):
            yield self._refused(run, "needs FSDP2, and nothing shards this run", _SIZE)
        if plan.model.attn_impl not in (None, "sdpa") and run.is_explicit(_ATTENTION):
            yield self._refused(
                run,
                "works with sdpa attention only",
                _ATTENTION,
                Proposal.set("use sdpa attention", {_ATTENTION: "sdpa"}),
            )

    def _refused(
        self, run: Run, why: str, field: Any, *proposals: Proposal, details: tuple[str, ...] = ()
    ) -> Finding:
        """Axolotl's schema refuses it, Accelerate as the Trainer is made."""
        return self.error(
            run,
            f"context parallelism over {run.plan.parallel.cp} ranks {why}",
            at=(field, _SIZE),
            details=(*details, "the run stops with an error"),
            proposals=proposals,
            ends=When.SETTINGS if run.dialect.name == "axolotl" else When.LOADED,
        )
