"""A value that the framework refuses.

## What it finds

A key that oomlint reads and whose value cannot be what the framework wants: a ZeRO stage 4,
a micro batch of zero or of `two`, an attention implementation that does not exist. Values
that only running code would tell (`${...}`, variables, calls), and words that are to be replaced
(`TO_BE_FILLED`, `CONFIG_MBSIZE` in the place of a number), are left alone.

## Why it runs out of memory

It stops before that: the framework raises while it reads its arguments, or later, once the model is loaded and
the queue time is spent. And since the value is not known, everything that follows from it
(memory above all) is left out of the prediction.

## How to fix it

Write what the message asks for. There is no automatic fix: the right value is yours to
say.

## When not to

If your version of the framework takes the value, oomlint's table is behind: please report
it, and silence the line with `# oomlint: ignore[invalid-value]`. A config of which no script, README or program here shows
that the framework is started with it may be another program's: then the finding is a remark, unless you name the file.

## Sources

* The expected values are those of the framework's own parser; `oomlint explain` of a rule and
  the JSON Schemas in `schemas/` cite them key by key.
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.dialects.reading import WrongValue
from oomlint.linting.rule import MOST_OF_A_TITLE, Finding, Rule, Severity, When, Where, short
from oomlint.runs.run import Run
from oomlint_rules._conditions import may_take, other_reader, unstarted
from oomlint_rules._examples import example


class InvalidValue(Rule, code="OOM904", may_end=True):
    summary = "a value that the framework refuses"
    only_where = (Where(has="wrong"),)

    bad = (
        example(
            {
                "train.yaml": (
                    "base_model: meta-llama/Llama-3.2-1B\n"
                    "datasets:\n"
                    "  - path: tatsu-lab/alpaca\n"
                    "micro_batch_size: two\n"
                )
            }
        ),
        example(
            {
                "ds.json": (
                    '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 4}}\n'
                )
            }
        ),
        example(
            {
                "train.yaml": (
                    "model_name_or_path: meta-llama/Llama-3.2-1B\n"
                    "stage: sft\n"
                    "do_train: true\n"
                    "finetuning_type: lora\n"
                    "dataset: instructions\n"
                    "template: llama3\n"
                    "output_dir: out\n"
                    "cutoff_len: long\n"
                )
            }
        ),
    )
    good = (
        example(
            {
                "train.yaml": (
                    "base_model: meta-llama/Llama-3.2-1B\n"
                    "datasets:\n"
                    "  - path: tatsu-lab/alpaca\n"
                    'micro_batch_size: "2"\n'
                )
            },
            why="the frameworks' parsers read quoted numbers",
        ),
        example(
            {
                "ds.json": (
                    '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3}}\n'
                )
            }
        ),
        example(
            {
                "ds_template.json": (
                    '{\n  "train_micro_batch_size_per_gpu": CONFIG_MBSIZE,\n'
                    '  "bf16": {"enabled": CONFIG_BF16},\n  "zero_optimization": {"stage": 2}\n}\n'
                )
            },
            why="a script puts the values into the template",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        for wrong in run.wrong:
            doubt = other_reader(run, wrong.block) or unstarted(run, wrong.block)
            yield self.finding(
                run,
                Severity.INFO if doubt else Severity.ERROR,
                short(f"{wrong.entry.key} cannot be {_as_written(wrong)}", MOST_OF_A_TITLE),
                at=wrong.location,
                details=(f"{wrong.block.table.name}: {wrong.expected}", *may_take(doubt)),
                ends=When.SETTINGS,
            )


def _as_written(wrong: WrongValue) -> str:
    span = wrong.location.span
    return " ".join(wrong.block.document.source.text[span.start : span.end].split())
