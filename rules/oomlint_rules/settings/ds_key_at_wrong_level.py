"""A DeepSpeed setting that stands at the wrong level of the config.

## What it finds

Settings of the `zero_optimization` object (`stage`, `offload_optimizer`, `overlap_comm`, the
bucket sizes) at the top level of a DeepSpeed JSON, and settings of the top level (`fp16`,
`bf16`, the batch sizes) inside that object.

## Why it runs out of memory

DeepSpeed reads the keys that it knows at the top level and no others: an `offload_optimizer`
there offloads nothing, and 12 bytes a parameter stay on the cards. Inside of
`zero_optimization` an unknown key ends the run with an error.

## How to fix it

Move it. The fix does so where the setting is a single value.

## When not to

Where a tool of yours reads the JSON and wants the key where it is.

## Sources

* DeepSpeed edaa7221 `runtime/config.py` (top level) and `runtime/config_utils.py:110`
  (`extra="forbid"` for `zero_optimization`)
* https://github.com/deepspeedai/DeepSpeed/issues/745
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.dialects.kinds import BadValue
from oomlint.dialects.table import StrayKey
from oomlint.documents.base import UNKNOWN
from oomlint.rule import (
    Applicability,
    Example,
    Finding,
    Proposal,
    RemoveKey,
    Rule,
    SetFields,
    Severity,
    Where,
)
from oomlint.run import Run
from oomlint_rules._examples import AXOLOTL, deepspeed
from oomlint_rules.settings._levels import other_level


class DsKeyAtWrongLevel(Rule):
    code = "OOM810"
    name = "ds-key-at-wrong-level"
    summary = "a DeepSpeed setting at the wrong level of the config"
    applicability = Applicability.SAFE
    only_where = (Where(has="stray"),)

    bad = (
        Example(
            files={"ds.json": deepspeed('"stage": 2', '  "overlap_comm": false,\n')},
            fixed={"ds.json": deepspeed('"stage": 2, "overlap_comm": false')},
        ),
        Example(
            files={
                "train.yaml": f"{AXOLOTL}deepspeed: ds.json\n",
                "ds.json": deepspeed('"stage": 2', '  "offload_optimizer": {"device": "cpu"},\n'),
            },
        ),
        Example(
            files={"ds.json": deepspeed('"stage": 2, "gradient_clipping": 1.0')},
            why="zero_optimization refuses it",
        ),
    )
    good = (
        Example(files={"ds.json": deepspeed('"stage": 2, "overlap_comm": false')}),
        Example(files={"ds.json": deepspeed('"stage": 2', '  "gradient_clipping": 1.0,\n')}),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        for stray in run.stray:
            where = other_level(stray)
            if where is None:
                continue
            if "." in stray.path:
                title = f"{where} belongs to the top level, not into zero_optimization"
                effect = "there it ends the run with an error"
            else:
                title = f"{stray.path} belongs into zero_optimization"
                effect = "at the top level DeepSpeed does not read it, and it has no effect"
            yield self.finding(
                run,
                Severity.ERROR,
                title,
                at=stray,
                details=(effect,),
                proposals=_move(stray, where),
            )


def _move(stray: StrayKey, where: str) -> Iterable[Proposal]:
    row = stray.block.table.names.get(where)
    raw = stray.block.value(stray.entry.value)
    if row is None or raw is UNKNOWN or isinstance(raw, (dict, list)):
        return
    try:
        value = row.kind.read(raw)
    except BadValue:
        return
    wishes = (RemoveKey(stray.block, stray.entry), SetFields({row.field: value}))
    yield Proposal(f"move it to {where}", wishes)
