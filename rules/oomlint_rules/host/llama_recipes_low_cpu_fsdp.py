"""llama-recipes under FSDP without `--low_cpu_fsdp`: every rank holds the whole model in RAM.

## What it finds

A llama-recipes (llama-cookbook) command line with `--enable_fsdp` that starts several ranks
on a node and lacks `--low_cpu_fsdp`, or has it but, in a version that can only be newer than
0.0.3 (`llama_cookbook.finetuning`, `getting-started/`), not the two variables that it needs
there. Where the node's RAM is known and holds all copies with room, the rule is silent.

## Why it runs out of memory

Each rank calls `from_pretrained` and keeps the model on the CPU until FSDP has wrapped it:
ranks × model bytes. Two ranks of Llama-3-8B in bf16 take 30 GiB, in fp32 (which llama-recipes
loaded up to 0.0.3) 60 GiB; Llama-2-70B in fp32 on eight ranks 2 TB. The kernel kills one, torchrun
reports *exitcode: -9*, and there is no traceback.

## How to fix it

Add `--low_cpu_fsdp`: the first rank reads the weights, the others build the model on the
meta device and receive them through `sync_module_states`. That is how the code reads up to
llama-recipes 0.0.2. Since July 2024 (0.0.3, pull request 572) every rank reads the
checkpoint even so, and the flag only keeps the synchronisation; there
`ACCELERATE_USE_FSDP=1 FSDP_CPU_RAM_EFFICIENT_LOADING=1` make transformers itself read on
the first rank of a node alone. The fix writes all three, which is right for every version:
0.0.2 has no use for the variables. Never set the variables without the flag: the other ranks
would train on weights that nobody gave them.

## When not to

With `--quantization` the flag is of no use (weights are quantized as they are read), and the
rule is silent.

## Sources

* https://github.com/meta-llama/llama-cookbook/issues/556 (two ranks, exit code -9)
* llama-recipes 0.0.1 and 0.0.2 `finetuning.py` (*this avoids cpu oom when loading large models
  like llama 70B, in which case model alone would consume 2+TB cpu mem (70 * 4 * 8)*)
* llama-cookbook 0e003351 `finetuning.py:298` (what is left of the flag);
  https://github.com/meta-llama/llama-cookbook/pull/572
* transformers 4.57 `modeling_utils.py` (`is_fsdp_enabled` reads the two variables);
  llama-cookbook 0e003351 `docs/multi_gpu.md:63` sets them beside the flag
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.dialects.llama_recipes.keys import own
from oomlint.judgement import Peak, judge_host, settled
from oomlint.linting.rule import Applicability, Confidence, Finding, Proposal, Rule, Severity, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import example, text
from oomlint_rules.host._ram import RamVerdict, copies, judge_ram

_START = "torchrun --nnodes 1 --nproc_per_node 2 recipes/finetuning/finetuning.py \\\n"
_MODEL = text(
    """
        --use_peft --peft_method lora \\
        --model_name meta-llama/Meta-Llama-3-8B \\
        --batch_size_training 1 --output_dir out
    """
)

_NEWER = _START.replace(
    "recipes/finetuning/finetuning.py", "getting-started/finetuning/finetuning.py"
)
_VARIABLES = "ACCELERATE_USE_FSDP=1 FSDP_CPU_RAM_EFFICIENT_LOADING=1 "

_CHANGES = {f.load.cpu_ram_efficient: True}


class LlamaRecipesLowCpuFsdp(Rule, code="OOM403", fixes=Applicability.SAFE):
    summary = "llama-recipes reads the whole model on every rank without --low_cpu_fsdp"
    only_where = (
        Where(
            plan={
                f.parallel.backend: ("fsdp1",),
                f.load.cpu_ram_efficient: (False,),
                f.quant.method: (None, "none"),
            },
            frameworks=("llama-recipes",),
        ),
    )
    explains = ("model_copies",)

    bad = (
        example(
            {"train.sh": f"{_START}    --enable_fsdp \\\n{_MODEL}"},
            {
                "train.sh": (
                    f"{_VARIABLES}{_START}    --enable_fsdp \\\n    --low_cpu_fsdp \\\n{_MODEL}"
                )
            },
        ),
        example(
            {"train.sh": f"{_START}    --enable_fsdp \\\n{_MODEL}"},
            {
                "train.sh": (
                    f"{_VARIABLES}{_START}    --enable_fsdp \\\n    --low_cpu_fsdp \\\n{_MODEL}"
                )
            },
            on="2xRTX-3090-24GB, 24GiB",
        ),
        example(
            {
                "train.sh": (
                    "CUDA_VISIBLE_DEVICES=0,1 "
                    + _START.replace("node 2", "node 1")
                    + "    --enable_fsdp \\\n"
                    + _MODEL
                )
            },
            why="one rank for two cards: the copies come with the second",
        ),
        example(
            {"train.sh": f"{_NEWER}    --enable_fsdp --low_cpu_fsdp \\\n{_MODEL}"},
            {"train.sh": f"{_VARIABLES}{_NEWER}    --enable_fsdp --low_cpu_fsdp \\\n{_MODEL}"},
            why="the flag alone no longer does",
        ),
    )
    good = (
        example({"train.sh": f"{_START}    --enable_fsdp --low_cpu_fsdp \\\n{_MODEL}"}),
        example(
            {
                "train.sh": (
                    f"export {_VARIABLES}\n{_NEWER}    --enable_fsdp --low_cpu_fsdp \\\n{_MODEL}"
                )
            }
        ),
        example({"train.sh": f"{_START}    --enable_fsdp --quantization 4bit \\\n{_MODEL}"}),
        example(
            {"train.sh": f"{_START}    --enable_fsdp \\\n{_MODEL}"},
            on="2xRTX-3090-24GB, 256GiB",
            why="both copies fit with room",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        ranks = settled(run).plan.parallel.gpus_per_node or 1
        if ranks > 1:
            yield from self._copies(run, ranks)
        elif (cards := _visible_cards(run)) > 1:
            yield self._later(run, cards)

    def _copies(self, run: Run, ranks: int) -> Iterable[Finding]:
        verdict = judge_ram(run, phase="load")
        found = verdict.judgement if verdict is not None else None
        severity: Severity | None = Severity.WARNING
        if found is not None and found.limit is not None:
            severity = found.severity
        if severity is None:
            return
        yield self._finding(
            run,
            severity,
            f"each of the {ranks} ranks reads the whole model into RAM{copies(run, ranks)}",
            (*_numbers(run, verdict), *_advice(run)),
            found,
        )

    def _later(self, run: Run, cards: int) -> Finding:
        return self._finding(
            run,
            Severity.INFO,
            "every rank will read the whole model into RAM once each GPU has its rank",
            (
                f"now one rank is started for {cards} visible GPUs",
                "with --low_cpu_fsdp the first rank reads for all",
            ),
            None,
        )

    def _finding(
        self,
        run: Run,
        severity: Severity,
        title: str,
        details: tuple[str, ...],
        found: Peak | None,
    ) -> Finding:
        confidence: Confidence = found.confidence if found is not None else "low"
        return self.finding(
            run,
            severity,
            title,
            at=(f.load.cpu_ram_efficient, own.fsdp),
            details=details,
            confidence=confidence,
            resource="host",
            predicted=found.predicted if found is not None else None,
            limit=found.limit if found is not None else None,
            proposals=[Proposal.set(_title(run), _CHANGES)],
        )


def _has_flag(run: Run) -> bool:
    return bool(run.plan.parallel.fsdp.sync_module_states)


def _advice(run: Run) -> tuple[str, str]:
    variables = "ACCELERATE_USE_FSDP=1 and FSDP_CPU_RAM_EFFICIENT_LOADING=1"
    if _has_flag(run):
        return (
            "in this version --low_cpu_fsdp alone does not make the first rank read for all",
            f"it does together with {variables}",
        )
    return (
        "--low_cpu_fsdp lets the first rank read for all",
        f"from llama-recipes 0.0.3 on together with {variables}",
    )


def _title(run: Run) -> str:
    return "set the two variables" if _has_flag(run) else "add --low_cpu_fsdp and its variables"


def _numbers(run: Run, verdict: RamVerdict | None) -> tuple[str, ...]:
    if verdict is None:
        return ()
    after = judge_host(run.what_if(_CHANGES), phase="load")
    if after is None:
        return verdict.details
    fall = f"from {gib(verdict.judgement.predicted)} to {gib(after.predicted)}"
    return (*verdict.details, f"read by one rank the need of loading falls {fall}")


def _visible_cards(run: Run) -> int:
    """How many GPUs the script names, exported or not."""
    named = [run.plan.env.cuda_visible_devices]
    named += [
        fact.detail["value"]
        for fact in run.facts
        if fact.kind == "env-not-exported" and fact.detail["name"] == "CUDA_VISIBLE_DEVICES"
    ]
    return max(len([gpu for gpu in (text or "").split(",") if gpu.strip()]) for text in named)
