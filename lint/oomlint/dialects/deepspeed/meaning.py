"""What DeepSpeed makes of its JSON, under a trainer and alone.

Read from DeepSpeed edaa7221 (0.19.x): ``DS`` below is ``deepspeed/runtime``. Under a transformers
Trainer ``"auto"`` is filled in from the model and the arguments (transformers 5.23
integrations/deepspeed.py:130-265).
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import uses_deepspeed
from oomlint.dialects.common.fields import ref
from oomlint.dialects.common.missing import at_missing_file
from oomlint.dialects.common.offloading import pins_by_default
from oomlint.dialects.deepspeed.blocks import preset_block, wished_preset
from oomlint.dialects.deepspeed.engine import check_states
from oomlint.dialects.deepspeed.keys import DEEPSPEED, ds
from oomlint.dialects.meaning import Left, Meaning, Said, Sourced, Wishes
from oomlint.dialects.reading import Reading
from oomlint.dialects.releases import PINS_OFFLOADED
from oomlint.dialects.setting import Setting
from oomlint.plan.fields import f

deepspeed_json = Meaning()
deepspeed_alone = Meaning()
"""Without a trainer: the batch is the JSON's own."""

_Z = f.parallel.zero
_FIELDS = tuple(DEEPSPEED.by_field)


# -- a shipped config that a change names instead --------------------------------------------------


@deepspeed_json.said(*_FIELDS)
def of_wished_preset(run: Cells, field: Any, said: Said) -> Said:
    """Where a change names another shipped config, what that one says counts."""
    reading = wished_preset(run.setting(ref.deepspeed))
    if reading is None:
        return said if said is not None else _said_by(run[ds.added_preset], field)
    origin = said.origin if isinstance(said, Setting | Left) else said
    if origin is not None and (origin.block is None or origin.block.table is not DEEPSPEED):
        return said
    return _said_by(reading, field)


def _said_by(reading: Reading | None, field: Any) -> Said:
    if reading is not None and field in reading.settings:
        return reading.settings[field]
    return Left(reading.auto[field]) if reading is not None and field in reading.auto else None


@deepspeed_json.derive(ds.added_preset)
def added_preset(run: Cells) -> Any:
    """What the shipped config says that a change names where no file names one."""
    named, block = run.setting(ref.deepspeed), run.block_with(ref.deepspeed)
    if named is None or block is None or named.origin.kind != "option" or named.shadowed:
        return None
    preset = preset_block(str(named.value), block.location)
    return None if preset is None else preset.read()


_PRESET_DEFAULTS = {row.field: row for row in DEEPSPEED.rows if row.default is not None}


@deepspeed_json.default(*_PRESET_DEFAULTS)
def defaults_beside_preset(run: Cells) -> Any:
    if run[ds.added_preset] is None:
        return None
    return {
        field: Sourced(row.default, row.source)
        for field, row in _PRESET_DEFAULTS.items()
        if not run.is_auto(field)
    }


@deepspeed_json.said(*_FIELDS)
def of_missing_file(run: Cells, field: Any, said: Said) -> Said:
    """What a config that is not at hand would have said is unread, not its default."""
    return said if said is not None else at_missing_file(run, ref.deepspeed)


# -- old spellings ---------------------------------------------------------------------------------


deepspeed_json.takes(f.offload.optimizer, ds.cpu_offload, "DS/zero/config.py:181-202")
deepspeed_json.takes(f.offload.params, ds.cpu_offload_param, "DS/zero/config.py:181-202")


@deepspeed_json.derive(f.offload.pin_memory, source=PINS_OFFLOADED.source)
def pins_offloaded(run: Cells) -> Any:
    is_file = run.has_block_of(DEEPSPEED)
    return pins_by_default(run) if is_file and uses_deepspeed(run) else None


@deepspeed_json.override(_Z.stage, source="DS/zero/config.py:33")
def old_stage(run: Cells) -> Any:
    flag = run[ds.zero_flag]
    return int(flag) if isinstance(flag, bool) else None


# -- what follows ----------------------------------------------------------------------------------


@deepspeed_json.derive(_Z.overlap_comm, source="DeepSpeed edaa7221 runtime/zero/config.py:138")
def overlaps(run: Cells) -> Any:
    return run[_Z.stage] == 3 if uses_deepspeed(run) else None


@deepspeed_json.derive(
    _Z.reduce_bucket_elems,
    _Z.prefetch_elems,
    _Z.persistence_threshold,
    source="transformers 5.23 integrations/deepspeed.py:202-232",
)
def sizes_of_auto(run: Cells) -> Any:
    """What transformers fills in for ``"auto"``, by the width of the model."""
    dims = run[f.model.dims]
    hidden = dims.hidden if dims is not None else None
    if not hidden or not uses_deepspeed(run):
        return None
    sizes = {
        _Z.reduce_bucket_elems: hidden * hidden,
        _Z.prefetch_elems: int(0.9 * hidden * hidden),
        _Z.persistence_threshold: 10 * hidden,
    }
    return {field: elems for field, elems in sizes.items() if run.is_auto(field)}


@deepspeed_json.derive(_Z.allgather_bucket_elems, source="DS/zero/config.py: its default")
def gathered_bucket(run: Cells) -> Any:
    """No rule of transformers fills ``"auto"`` here; DeepSpeed would refuse the word."""
    is_auto = uses_deepspeed(run) and run.is_auto(_Z.allgather_bucket_elems)
    return 500_000_000 if is_auto else None


@deepspeed_json.default(
    f.offload.optimizer,
    f.offload.params,
    source="DeepSpeed edaa7221 runtime/zero/config.py:157",
)
def no_offloading(run: Cells) -> Any:
    if not uses_deepspeed(run):
        return None
    return {f.offload.optimizer: "none", f.offload.params: "none"}


@deepspeed_json.written(f.offload.optimizer)
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    if device == "cpu":
        check_states(run)
    return {f.offload.optimizer: device}


@deepspeed_json.override(f.offload.params, source="DS/zero/config.py:157: only with stage 3")
def parameters_stay(run: Cells) -> Any:
    stage = run[_Z.stage]
    is_ignored = uses_deepspeed(run) and stage is not None and stage < 3
    return "none" if is_ignored and run[f.offload.params] != "none" else None


@deepspeed_json.override(f.offload.optimizer)
def states_stay(run: Cells) -> Any:
    is_ignored = uses_deepspeed(run) and run[_Z.stage] == 0
    return "none" if is_ignored and run[f.offload.optimizer] != "none" else None


# -- alone -----------------------------------------------------------------------------------------


@deepspeed_alone.derive(f.batch.micro, f.batch.grad_accum, source="DS/config.py:942-985")
def batch_of_json(run: Cells) -> Any:
    """micro x accumulation x ranks = train_batch_size; DeepSpeed derives what is missing."""
    if not uses_deepspeed(run):
        return None
    micro, steps = run[ds.micro], run[ds.grad_accum]
    total, dp = run[ds.train_batch], run[f.parallel.dp]
    if micro is None and total and dp:
        micro = max(1, total // (dp * (steps or 1)))
    if steps is None and total and dp and micro:
        steps = max(1, total // (dp * micro))
    return {f.batch.micro: micro, f.batch.grad_accum: steps or (1 if micro else None)}
