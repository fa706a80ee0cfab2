"""A DeepSpeed config that leaves values to a trainer, and no trainer to fill them in.

## What it finds

`"auto"` in a JSON that plain DeepSpeed reads: a script that calls `deepspeed.initialize` with it, or
a command that passes it by `--deepspeed_config`.

## Why it runs out of memory

`"auto"` is transformers' word. DeepSpeed stops at a batch size that is no number (*'>' not supported
between instances of 'str' and 'int'*), and drops the word everywhere else, so that its own default
counts: `bf16.enabled` and `fp16.enabled` become false, and the run trains in fp32 with twice the
weights, gradients and activations; `reduce_bucket_size` becomes 5e8 elements, 1 GB each.

## How to fix it

Write numbers. What the trainer would have filled in is not known here, so there is no edit;
transformers takes hidden_size squared for `reduce_bucket_size`, 0.9 of it for
`stage3_prefetch_bucket_size` and 10 x hidden_size for `stage3_param_persistence_threshold`.

## When not to

A script that replaces the word itself before it hands the config to DeepSpeed.

## Sources

* DeepSpeed edaa7221 `runtime/config.py:927` (`_batch_assertion`), `runtime/config_utils.py:56`
  (drops `"auto"`), `runtime/precision_config.py:46`
* transformers 5.23 `integrations/deepspeed.py:202`
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from oomlint.linting.rule import Finding, Rule, Severity, When, Where
from oomlint.runs.run import Run
from oomlint.wording.amounts import enumerated
from oomlint_rules._examples import command, deepspeed, example, text

_BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")

_SCRIPT = text(
    """
    import deepspeed

    model = build()
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config='ds.json'
    )
    """
)
_FILLS = text(
    """
    import json
    import deepspeed

    config = json.load(open('ds.json'))
    config['train_micro_batch_size_per_gpu'] = 4
    config['gradient_accumulation_steps'] = 1
    config['bf16']['enabled'] = True
    model = build()
    engine, *_ = deepspeed.initialize(model=model, config='ds.json')
    """
)
_COMMAND = "deepspeed --num_gpus 8 pretrain.py --deepspeed --deepspeed_config ds.json\n"
_AUTO = deepspeed('"stage": 3, "reduce_bucket_size": "auto"')
_NUMBERS = _AUTO.replace('"enabled": "auto"', '"enabled": true').replace('"auto"', "1")


class DsAutoWithoutHf(Rule, code="OOM815", may_end=True):
    summary = "a DeepSpeed config says auto, and no trainer fills it in"
    only_where = (Where(frameworks=("deepspeed",)),)

    bad = (
        example({"train.py": _SCRIPT, "ds.json": _AUTO}),
        example({"train.sh": _COMMAND, "ds.json": _AUTO}),
    )
    good = (
        example({"train.py": _SCRIPT, "ds.json": _NUMBERS}),
        example({"train.sh": command("--deepspeed ds.json"), "ds.json": _AUTO}),
        example({"ds.json": _AUTO}, why="who reads it is not known"),
        example(
            {"train.py": _FILLS, "ds.json": deepspeed('"stage": 2')},
            why="the script fills it in by itself",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        if run.is_fragment:
            return
        for block, reading in run.parts.blocks:
            origins = [origin for origin in reading.auto.values() if origin.row is not None]
            if block.table.section != "deepspeed" or not origins:
                continue
            named = (origin.row.key for origin in origins if origin.row is not None)
            keys = [key for key in named if not _fills_in(run, key)]
            if not keys:
                continue
            batch = [key for key in keys if key in _BATCH]
            others = [key for key in keys if key not in _BATCH]
            parts = []
            if batch:
                parts.append(f"DeepSpeed stops at {enumerated(batch)}, which should be numbers")
            if others:
                parts.append(f"DeepSpeed takes its own default for {enumerated(others)}")
            at = next((o.location for o in origins if o.row and o.row.key in batch), None)
            yield self.finding(
                run,
                Severity.ERROR if batch else Severity.WARNING,
                '"auto" is for transformers to fill in, and DeepSpeed is on its own here',
                at=at or origins[0].location or (),
                details=parts,
                confidence="medium",
                ends=When.LOADED if batch and _is_read(run) else None,
            )


def _is_read(run: Run) -> bool:
    """Whether the program is at hand that gives DeepSpeed the config: another may fill it in."""
    return any(claim.path.endswith((".py", ".ipynb")) for claim in run.claims)


def _fills_in(run: Run, key: str) -> bool:
    """Whether a script of the run writes a key of the config by itself, once it has read it."""
    last = re.escape(key.rpartition(".")[2])
    writes = re.compile(rf"""\[["']{last}["']\][ \t]*=(?!=)""")
    texts = (c.document.source.text for c in run.claims if c.path.endswith((".py", ".ipynb")))
    return any(writes.search(text) for text in texts)
