"""bfloat16 on a card that has none: torch emulates it, or the framework stops.

## What it finds

A config that asks for bf16 while the hardware is an NVIDIA card before Ampere: V100, T4,
RTX 20, P100.

## Why it runs out of memory

Tensor cores before compute capability 8.0 do not know bfloat16. torch runs such kernels in
fp32 inside and converts at both ends: slower than fp32 itself, with fp32 temporaries, and without
FlashAttention. Some checks refuse it at start ("Your setup doesn't support bf16/gpu").

## How to fix it

`fp16: true` instead. Its range is small, so that the loss is scaled and unstable models may
overflow: the fix is unsafe.

## When not to

Where the config is for other cards than the stated ones. `bf16: auto` in Axolotl takes fp16
here by itself.

## Sources

* NVIDIA CUDA C++ programming guide, arithmetic instructions by compute capability
* transformers `utils/import_utils.py` (`is_torch_bf16_gpu_available`)
* https://github.com/hiyouga/LLaMA-Factory/issues/6687 (RTX 2080 Ti with bf16, killed),
  https://github.com/hiyouga/LLaMA-Factory/issues/653 (V100)
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Severity, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import axolotl, example, llama_factory, mended
from oomlint_rules.precision._cards import is_before_ampere, said_in, severity_of_named_card

_LLAMA_FACTORY = llama_factory(
    "Qwen/Qwen2.5-1.5B-Instruct",
    "cutoff_len: 512\nper_device_train_batch_size: 1\noutput_dir: out\n{half}: true\n",
    template="qwen",
    lora="all",
)
_AXOLOTL = axolotl(
    "Qwen/Qwen2.5-1.5B-Instruct",
    "sequence_len: 512\nmicro_batch_size: 1\ngradient_checkpointing: true\nbf16: {bf16}\n",
    "{fp16}",
    lora="all",
)
_SAYS_BF16 = frozenset({True, "bf16", "amp", "full"})


class Bf16OnPreAmpere(Rule, code="OOM205", fixes=Applicability.UNSAFE, cost=7):
    summary = "bf16 is asked for on a card that cannot compute in it"
    only_where = (Where(plan={f.precision.compute: ("bf16",)}, has_card=True),)

    bad = (
        mended(
            "train.yaml",
            _LLAMA_FACTORY,
            half=("bf16", "bf16: false\nfp16"),
            on="1xRTX-2080-Ti-11GB",
        ),
        mended(
            "axolotl.yaml",
            _AXOLOTL,
            bf16=("true", "false"),
            fp16=("", "fp16: true\n"),
            on="1xT4-16GB",
        ),
    )
    good = (
        example({"train.yaml": _LLAMA_FACTORY.format(half="fp16")}, on="1xRTX-2080-Ti-11GB"),
        example(
            {"axolotl.yaml": _AXOLOTL.format(bf16="auto", fp16="")},
            on="1xT4-16GB",
            why="auto takes what the card has",
        ),
        example({"train.yaml": _LLAMA_FACTORY.format(half="bf16")}, on="1xL4-24GB"),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        if not is_before_ampere(run):
            return
        field = said_in(run, f.precision.compute, _SAYS_BF16)
        if field is None or run.hardware is None:
            return
        yield self.finding(
            run,
            severity_of_named_card(run, Severity.WARNING),
            f"the run is to train in bf16, and {run.hardware.gpu.name} cannot compute in it",
            at=field,
            details=(
                "torch emulates it with fp32 inside, slower and with larger temporaries",
                "some frameworks refuse it at start instead",
            ),
            resource="gpu",
            proposals=[
                Proposal.set("train in fp16", {f.precision.compute: "fp16"}, Applicability.UNSAFE)
            ],
        )
