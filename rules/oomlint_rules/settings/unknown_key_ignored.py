"""A key that the framework does not know, and drops without a word.

## What it finds

A key that stands in a config whose framework ignores what it does not know: Axolotl (its
pydantic models do not forbid extra fields), the top level of a DeepSpeed JSON, torchtune
and Accelerate files. The nearest real key is offered.

## Why it runs out of memory

The author believes that a limit is in force and it is not. `sequence_length: 2048` in an
Axolotl file does nothing: the key is `sequence_len`, and its default of 512 applies. A
misspelt `gradient_checkpoint: true` leaves every activation on the card, a misspelt
`offload_optimiser` leaves 12 bytes a parameter there.

## How to fix it

Rename the key. The rename makes the value take effect for the first time, so read the
prediction again afterwards. A key that belongs to a plug-in of yours can be kept with
`# oomlint: ignore[unknown-key-ignored]`.

## When not to

Where the near name is a coincidence and the key is read by your own code.

## Sources

* Axolotl `src/axolotl/utils/schemas/config.py` (`model_config = {"populate_by_name": True}`,
  no `extra="forbid"`); https://github.com/axolotl-ai-cloud/axolotl/issues/2143
* DeepSpeed `deepspeed/runtime/config.py` reads the top-level keys it knows and no others.
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.dialects.table import StrayKey
from oomlint.rule import Applicability, Example, Finding, Proposal, RenameKey, Rule, Severity
from oomlint.run import Run


class UnknownKeyIgnored(Rule):
    code = "OOM801"
    name = "unknown-key-ignored"
    summary = "a key that the framework silently ignores"
    applicability = Applicability.SAFE

    bad = (
        Example(
            files={
                "axolotl.yaml": (
                    "base_model: meta-llama/Llama-3.2-3B\n"
                    "datasets:\n"
                    "  - path: tatsu-lab/alpaca\n"
                    "    type: alpaca\n"
                    "sequence_length: 2048  # tokens\n"
                    "micro_batch_size: 1\n"
                    "gradient_checkpointing: true\n"
                )
            },
            fixed={
                "axolotl.yaml": (
                    "base_model: meta-llama/Llama-3.2-3B\n"
                    "datasets:\n"
                    "  - path: tatsu-lab/alpaca\n"
                    "    type: alpaca\n"
                    "sequence_len: 2048  # tokens\n"
                    "micro_batch_size: 1\n"
                    "gradient_checkpointing: true\n"
                )
            },
        ),
        Example(
            files={
                "ds.json": (
                    "{\n"
                    '  "train_micro_batch_size_per_gpu": 1,\n'
                    '  "gradient_accumulation_step": 4,\n'
                    '  "zero_optimization": {"stage": 2},\n'
                    '  "bf16": {"enabled": true}\n'
                    "}\n"
                )
            },
            fixed={
                "ds.json": (
                    "{\n"
                    '  "train_micro_batch_size_per_gpu": 1,\n'
                    '  "gradient_accumulation_steps": 4,\n'
                    '  "zero_optimization": {"stage": 2},\n'
                    '  "bf16": {"enabled": true}\n'
                    "}\n"
                )
            },
        ),
    )
    good = (
        Example(
            files={
                "axolotl.yaml": (
                    "base_model: meta-llama/Llama-3.2-3B\n"
                    "datasets:\n"
                    "  - path: tatsu-lab/alpaca\n"
                    "sequence_len: 2048\n"
                    "micro_batch_size: 1\n"
                )
            },
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        for stray in run.stray:
            if stray.block.table.ignores_unknown and stray.nearest:
                yield self._misspelt(run, stray)

    def _misspelt(self, run: Run, stray: StrayKey) -> Finding:
        nearest = stray.nearest[0]
        row = stray.block.table.names.get(nearest)
        message = (
            f"{stray.block.table.name} does not know the key {stray.path} and ignores it; "
            f"did you mean {nearest}?"
        )
        if row is not None and row.default is not None and not run.is_explicit(row.field):
            message += f" As it stands {nearest} is at its default, {row.default}."
        return self.finding(
            run,
            Severity.WARNING if row is not None and row.field else Severity.INFO,
            message,
            at=stray,
            proposals=[Proposal(f"rename {stray.path} to {nearest}", (RenameKey(stray, nearest),))],
        )
