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
`# oomlint: ignore[env-var-typo]`.

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
    asking,
    short,
)
from oomlint.runs.run import Run
from oomlint_rules._examples import command, example, mended
from oomlint_rules._scripts import FactRule, mending

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
            "export {variable}=expandable_segments:True\n" + command(""),
            variable=("PYTORCH_CUDA_ALOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"),
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
        yield self.warning(
            run,
            title,
            at=fact,
            details=(*asked, "it has no effect"),
            confidence="medium",
            proposals=mending(f"rename it to {known}", fact),
        )
