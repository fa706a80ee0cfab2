"""A comment that ignores a finding which is not there.

## What it finds

`# oomlint: ignore[...]` and `# oomlint: ignore-file[...]` comments that silence nothing:
the problem was mended since, the comment stands on another line than the finding, or it
names a rule that does not exist. A comment that names a rule which was not selected is left
alone, and so is one without brackets unless every rule ran.

## Why it runs out of memory

By itself it does not. But a stale comment hides the next real finding on its line, often years
later and for another reason than the one it was written for, and a misspelt one protects
nothing.

## How to fix it

Remove the comment; the fix does. If it should speak of a rule, correct the name:
`oomlint rules` lists them all.

## When not to

Where one file is linted under several hardware settings a finding may come and go: keep the
comment there and leave this rule out with `--ignore unused-suppression`.

## Sources

* Ruff's `unused-noqa` (RUF100) and ESLint's `--report-unused-disable-directives` are the
  same idea.
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.linting.rule import Applicability, Finding, Rule
from oomlint.runs.run import Run
from oomlint_rules._examples import example

_HEAD = "base_model: meta-llama/Llama-3.2-1B\ndatasets:\n  - path: tatsu-lab/alpaca\n"


class UnusedSuppression(Rule, code="OOM901", fixes=Applicability.SAFE):
    summary = "a comment that ignores a finding which is not there"

    bad = (
        example(
            {
                "axolotl.yaml": (
                    f"{_HEAD}micro_batch_size: 1  # oomlint: ignore[micro-batch-size] small\n"
                )
            },
            {"axolotl.yaml": f"{_HEAD}micro_batch_size: 1\n"},
            why="no rule has that name",
        ),
        example(
            {
                "axolotl.yaml": (
                    f"{_HEAD}# oomlint: ignore[unused-suppression]\nmicro_batch_size: 1\n"
                )
            },
            {"axolotl.yaml": f"{_HEAD}micro_batch_size: 1\n"},
            why="the comment has its line for itself, which goes with it",
        ),
    )
    good = (
        example(
            {
                "axolotl.yaml": (
                    f"{_HEAD}micro_batch_size: 1  # oomlint: ignore[no-gradient-checkpointing]\n"
                )
            },
            why="the rule that it names did not run",
        ),
        example({"axolotl.yaml": f"{_HEAD}micro_batch_size: 1  # one sample a step\n"}),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        """Nothing in a run: the engine reports such comments once all rules have spoken."""
        return ()
