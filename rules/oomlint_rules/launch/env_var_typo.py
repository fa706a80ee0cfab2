"""An environment variable whose name misses a known one by a letter.

## What it finds

Variables that a shell script hands to a training command and that nobody reads, where one
that torch, NCCL, Hugging Face or the framework does read differs by one or two letters:
`IMAGAE_MAX_PIXELS`, `PYTORCH_CUDA_ALLOC_CONFIG`, `NPROC_PER_NODES`.

## Why it runs out of memory

A name that nobody reads has no effect and makes no sound. Without its limit of 262144 pixels
an image of 2048 x 2048 is 5350 tokens of 28 x 28 pixels instead of 335, and the activations
grow by the same factor of 16.

## How to fix it

Correct the name. The value then takes effect for the first time.

## When not to

Where a program of yours reads the name. One that lies in the project is found; of one elsewhere say so with
`# oomlint: ignore[env-var-typo]`. What has no effect under its right name
either is a remark, which nothing mends by itself: a list of GPUs that names all of the machine, or just those that the run's
processes take without it, settings of NCCL where one process trains, and what moves no more than logs, the speed of CPUs
or how the allocator cuts its blocks. So is a list of fewer GPUs than the run asks for, or of such as the machine has not: with it
the run would stop.

## Sources

* https://github.com/modelscope/ms-swift/issues/3504 (`IMAGAE_MAX_PIXELS=262144`)
* ms-swift documentation, *Specific model arguments*; torch documentation, *CUDA semantics*
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.documents.base import Fact
from oomlint.linting.rule import (
    Applicability,
    Finding,
    Severity,
    asking,
    short,
)
from oomlint.runs.run import Run
from oomlint_rules._examples import command, example, mended
from oomlint_rules._scripts import FactRule, mending
from oomlint_rules._variables import (
    are_its_first,
    asked_for,
    is_whole_machine,
    listed,
    matters_not,
    seen_of,
)

_SWIFT = "swift sft --model Qwen/Qwen2.5-VL-7B-Instruct --dataset data.jsonl --output_dir out\n"

# Whether output is buffered takes no memory to speak of.
_NO_MATTER = frozenset({"PYTHONUNBUFFERED"})


class EnvVarTypo(FactRule, code="OOM712", fact="unknown-env", fixes=Applicability.SAFE):
    summary = "an environment variable whose name misses a known one by a letter"

    bad = (
        mended(
            "train.sh",
            f"NPROC_PER_NODE=4 {{variable}}=262144 {_SWIFT}",
            variable=("IMAGAE_MAX_PIXELS", "IMAGE_MAX_PIXELS"),
        ),
        mended(
            "train.sh",
            f"export {{variable}}=2,3\nNPROC_PER_NODE=2 {_SWIFT}",
            variable=("CUDA_VISIBLE_DEVICE", "CUDA_VISIBLE_DEVICES"),
        ),
        example(
            {"train.sh": "export CUDA_VISIBLE_DEVICE=0\n" + command("")},
            on="1xA100-80GB",
            why="a remark: the machine has no other GPU",
        ),
        example(
            {"train.sh": "export PYTORCH_CUDA_ALOC_CONF=expandable_segments:True\n" + command("")},
            why="a remark: nobody has seen what it would do to this run",
        ),
    )
    good = (
        example({"train.sh": f"NPROC_PER_NODE=4 IMAGE_MAX_PIXELS=262144 {_SWIFT}"}),
        example({"train.sh": "export MY_OWN_SETTING=1\n" + command("")}),
        example({"train.sh": "export NCCL_CHECKS_DISABLE=1\n" + command("")}),
        example(
            {"train.sh": "export PYTHONBUFFERED=16\n" + command("")},
            why="how output is buffered costs no memory",
        ),
        example(
            {
                "train.sh": 'export HUGGINGFACE_HUB_TOKEN=""\n' + command(""),
                "label.py": 'import os\n\ntoken = os.environ.get("HUGGINGFACE_HUB_TOKEN")\n',
            },
            why="a program of the project reads it",
        ),
    )

    def comes_of(self, fact: Fact, run: Run) -> Iterable[Finding]:
        name, known = fact.detail["name"], fact.detail["known"]
        if known in _NO_MATTER or run.parts.is_variable_read(name, fact.location.path):
            return
        title, asked = asking(f"nothing reads {short(name, 60)}", known)
        shown = listed(known, fact.detail["value"])
        is_idle = matters_not(known, run) or is_whole_machine(shown, run)
        stops = bool(shown) and seen_of(shown, run) < (asked_for(run) or 1)
        is_remark = is_idle or stops or are_its_first(shown, run)
        yield self.finding(
            run,
            Severity.INFO if is_remark else Severity.WARNING,
            title,
            at=fact,
            details=(*asked, "it has no effect"),
            confidence="medium",
            proposals=() if stops else mending(f"rename it to {known}", fact),
        )
