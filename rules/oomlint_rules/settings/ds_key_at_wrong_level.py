"""A DeepSpeed setting that stands at the wrong level of the config.

## What it finds

Settings of the `zero_optimization` object (`stage`, `offload_optimizer`, `overlap_comm`, the
bucket sizes) at the top level of a DeepSpeed JSON, and settings of the top level (`fp16`,
`bf16`, the batch sizes) inside that object.

## Why it runs out of memory

DeepSpeed reads the keys that it knows at the top level and no others: an `offload_optimizer`
there offloads nothing, and 12 bytes a parameter stay on the cards. Inside of
`zero_optimization` an unknown key ends the run with an error.

Where what it says holds anyway, as the default or because the right place says it too, and where
the key is one that only stage 3 reads and the stage is a lower one, nothing is lost: a remark.

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

from collections.abc import Iterable, Iterator
from typing import Any

from oomlint.dialects.deepspeed.keys import is_of_stage_3
from oomlint.dialects.kinds import BadValue
from oomlint.dialects.reading import StrayKey
from oomlint.documents.base import UNKNOWN
from oomlint.linting.rule import (
    Applicability,
    Finding,
    Proposal,
    RemoveKey,
    Rule,
    SetFields,
    Severity,
    Where,
)
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import AXOLOTL, deepspeed, example
from oomlint_rules.settings._levels import other_level


class DsKeyAtWrongLevel(Rule, code="OOM810", fixes=Applicability.SAFE):
    summary = "a DeepSpeed setting at the wrong level of the config"
    only_where = (Where(has="stray"),)

    bad = (
        example(
            {"ds.json": deepspeed('"stage": 2', '  "overlap_comm": true,\n')},
            {"ds.json": deepspeed('"stage": 2, "overlap_comm": true')},
        ),
        example(
            {
                "train.yaml": f"{AXOLOTL}deepspeed: ds.json\n",
                "ds.json": deepspeed('"stage": 2', '  "offload_optimizer": {"device": "cpu"},\n'),
            }
        ),
        example(
            {
                "ds.json": deepspeed(
                    '"stage": 1', '  "stage3_gather_16bit_weights_on_model_save": false,\n'
                )
            },
            why="it holds anyway: a remark",
        ),
        example(
            {"ds.json": deepspeed('"stage": 2, "gradient_clipping": 1.0')},
            why="zero_optimization refuses it",
        ),
    )
    good = (
        example({"ds.json": deepspeed('"stage": 2, "overlap_comm": true')}),
        example({"ds.json": deepspeed('"stage": 2', '  "gradient_clipping": 1.0,\n')}),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        for stray in run.stray:
            where = other_level(stray)
            if where is None:
                continue
            severity = Severity.ERROR
            if "." in stray.path:
                title = f"{where} belongs to the top level, not into zero_optimization"
                effect = "there it ends the run with an error"
            else:
                title = f"{stray.path} belongs into zero_optimization"
                effect = "at the top level DeepSpeed does not read it, and it has no effect"
                if is_of_stage_3(where) and not _may_be_stage_3(run):
                    severity = Severity.INFO
                    effect += "; in its place it would have none either below stage 3"
                elif _holds_anyway(run, stray, where):
                    severity = Severity.INFO
                    effect += "; what it says holds anyway"
            yield self.finding(
                run,
                severity,
                title,
                at=stray,
                details=(effect,),
                proposals=_move(stray, where),
            )


def _may_be_stage_3(run: Run) -> bool:
    return run.level(f.parallel.zero.stage) == Level.UNREAD or run.plan.parallel.zero.stage in (
        None,
        3,
    )


def _holds_anyway(run: Run, stray: StrayKey, where: str) -> bool:
    """Whether all that the key says is what the run has without it."""
    said = dict(_leaves(where, stray.block.value(stray.entry.value)))
    return bool(said) and all(_is_so(run, stray, key, raw) for key, raw in said.items())


def _leaves(path: str, raw: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(raw, dict):
        yield path, raw
        return
    for key, value in raw.items():
        yield from _leaves(f"{path}.{key}", value)


def _is_so(run: Run, stray: StrayKey, key: str, raw: Any) -> bool:
    said = _read(stray, key, raw)
    if said is None or run.level(said[0]) == Level.UNREAD:
        return False
    field, value = said
    return bool(value is not None and value == run.cells[field])


def _read(stray: StrayKey, key: str, raw: Any) -> tuple[Any, Any] | None:
    """The field that a key would set, and to what; ``None`` where nobody can tell."""
    row = stray.block.table.names.get(key)
    if row is None or raw is UNKNOWN:
        return None
    try:
        return row.field, row.kind.read(raw)
    except BadValue:
        return None


def _move(stray: StrayKey, where: str) -> Iterable[Proposal]:
    raw = stray.block.value(stray.entry.value)
    said = None if isinstance(raw, (dict, list)) else _read(stray, where, raw)
    if said is None:
        return
    wishes = (RemoveKey(stray.block, stray.entry), SetFields(dict([said])))
    yield Proposal(f"move it to {where}", wishes)
