"""Lightning's Trainer and Fabric: what their names for strategies and precisions mean.

Read from lightning 2.6.6 (7f0c3436cd): ``PL`` below is ``lightning/pytorch``, ``FB`` ``lightning/fabric``.
"""

from __future__ import annotations

import re
from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import deepspeed, fsdp, ref, shared
from oomlint.dialects.deepspeed.keys import STAGE
from oomlint.dialects.kinds import BOOLEAN, POSITIVE, BadValue, Kind
from oomlint.dialects.loops.fields import loop
from oomlint.dialects.loops.keys import CLASS, CONFIG, WRAPPING, unwritable
from oomlint.dialects.machine.fields import launch
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.dialects.table import Row, Table
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

lightning = Meaning()

_F, _Z = f.parallel.fsdp, f.parallel.zero


def _read_devices(raw: Any) -> int | None:
    """PL/trainer/trainer.py:96: a number, a list of cards, also as ``"0,1"``, ``"auto"`` or -1 for all of them."""
    if isinstance(raw, list):
        return len(raw)
    if "," in str(raw):  # FB/utilities/device_parser.py:101
        return len([card for card in str(raw).split(",") if card.strip()])
    if str(raw) in ("auto", "-1"):
        return None
    if not str(raw).isdigit():
        raise BadValue("expected a number of devices")
    return int(raw)


_DEVICES = Kind(_read_devices)
_PRECISIONS = {
    "16": "16-mixed",
    "bf16": "bf16-mixed",
    "32": "32-true",
}  # FB/plugins/precision/precision.py:23
_PRECISION = Kind(lambda raw: _PRECISIONS.get(str(raw), str(raw)), str)
_STRATEGY = Kind(lambda raw: raw.lower() if isinstance(raw, str) else None, str)
_GIVEN = Kind(lambda raw: True, unwritable, names=True)

TRAINER = Table(
    "Lightning",
    (
        Row("strategy", loop.strategy, _STRATEGY),
        Row("precision", loop.precision, _PRECISION, default="32-true", source="FB/plugins/precision/precision.py:23"),
        # pytorch_lightning 1.9 trainer/trainer.py: ``gpus``, until 2.0.
        Row("devices", f.parallel.gpus_per_node, _DEVICES, aliases=("gpus",)),
        Row("num_nodes", f.parallel.nodes, POSITIVE),
        Row("accumulate_grad_batches", loop.accumulates, POSITIVE),
    ),
    known_prefixes=("",),
    section="training",
)  # fmt: skip
FSDP_STRATEGY = Table(
    "FSDPStrategy",
    (
        Row(CLASS, loop.strategy, Kind(lambda _raw: "fsdp", unwritable, names=True)),
        Row("cpu_offload", _F.cpu_offload, BOOLEAN),
        Row("auto_wrap_policy", _F.wrap, WRAPPING),
        Row("activation_checkpointing_policy", loop.checkpoints, _GIVEN, aliases=("activation_checkpointing",)),
    ),
    known_prefixes=("",),
    section="script",
)  # fmt: skip
DEEPSPEED_STRATEGY = Table(
    "DeepSpeedStrategy",
    (
        Row(CLASS, loop.strategy, Kind(lambda _raw: "deepspeed", unwritable, names=True)),
        Row("stage", _Z.stage, STAGE, default=2, source="PL/strategies/deepspeed.py:781"),
        Row("offload_optimizer", loop.offloads_optimizer, BOOLEAN),
        Row("offload_parameters", loop.offloads_params, BOOLEAN),
        Row("config", ref.deepspeed, CONFIG),
    ),
    known_prefixes=("",),
    section="script",
)
DDP_STRATEGY = Table(
    "DDPStrategy",
    (Row(CLASS, loop.strategy, Kind(lambda _raw: "ddp", unwritable, names=True)),),
    known_prefixes=("",),
    section="script",
)

_STAGE = re.compile(r"deepspeed(?:_stage_(\d))?(_offload)?(_nvme)?")


def is_lightning(run: Cells) -> bool:
    return run[loop.kind] in ("fabric", "lightning")


def _strategy(run: Cells) -> str:
    return run[loop.strategy] or "auto" if is_lightning(run) else ""


@lightning.derive(launch.one_process, source="lightning starts the other ranks itself")
def starts_ranks(run: Cells) -> Any:
    return False if is_lightning(run) else None


@lightning.derive(deepspeed.enabled)
def uses_deepspeed(run: Cells) -> Any:
    return True if _strategy(run).startswith("deepspeed") else None


@lightning.derive(fsdp.enabled, fsdp.keeps_dtype, _F.version)
def shards(run: Cells) -> Any:
    if not _strategy(run).startswith("fsdp"):
        return None
    return {fsdp.enabled: True, fsdp.keeps_dtype: True, _F.version: 1}


@lightning.derive(_F.cpu_offload, source="PL/strategies/fsdp.py:489")
def offloads_all(run: Cells) -> Any:
    return True if _strategy(run) == "fsdp_cpu_offload" else None


@lightning.default(_F.wrap, source="PL/strategies/fsdp.py: without a policy the model is one unit")
def wraps(run: Cells) -> Any:
    return "none" if _strategy(run).startswith("fsdp") else None


@lightning.derive(_Z.stage, source="PL/strategies/deepspeed.py:781-810")
def stage(run: Cells) -> Any:
    found = _STAGE.fullmatch(_strategy(run))
    return int(found[1] or 2) if found is not None and run[ref.deepspeed] is None else None


@lightning.derive(
    f.offload.optimizer, f.offload.params, source="PL/strategies/deepspeed.py:781-810"
)
def offloading(run: Cells) -> Any:
    found = _STAGE.fullmatch(_strategy(run))
    if found is None or run[ref.deepspeed] is not None:
        return None
    place = "nvme" if found[3] else "cpu"
    optimizer = bool(found[2]) or run[loop.offloads_optimizer]
    params = (bool(found[2]) and found[1] == "3") or run[loop.offloads_params]
    return {
        f.offload.optimizer: place if optimizer else "none",
        f.offload.params: place if params else "none",
    }


# PL/strategies/deepspeed.py: other sizes than DeepSpeed's own.
_SIZES = {
    _Z.reduce_bucket_elems: 200_000_000,
    _Z.allgather_bucket_elems: 200_000_000,
    _Z.overlap_comm: True,
    _Z.contiguous_grads: True,
    _Z.sub_group_elems: 1_000_000_000_000,
}


@lightning.derive(*_SIZES, source="PL/strategies/deepspeed.py: its own defaults")
def sizes(run: Cells) -> Any:
    is_own = _strategy(run).startswith("deepspeed") and run[ref.deepspeed] is None
    return _SIZES if is_own else None


def _half(run: Cells) -> str | None:
    """The 16 bit type that the precision names."""
    if not is_lightning(run):
        return None
    return {"bf16": "bf16", "16": "fp16"}.get((run[loop.precision] or "").partition("-")[0])


@lightning.derive(shared.amp)
def amp(run: Cells) -> Any:
    """DeepSpeed casts the module under both names (PL/strategies/deepspeed.py:937)."""
    if not is_lightning(run):
        return None
    is_mixed = (run[loop.precision] or "").endswith("-mixed")
    return _half(run) or "no" if is_mixed or _strategy(run).startswith("deepspeed") else "no"


@lightning.derive(
    f.precision.gathered,
    source="lightning 2.0.3 to 2.5 fabric and pytorch/plugins/precision/fsdp.py mixed_precision_config",
)
def gathered(run: Cells) -> Any:
    """FSDP's policy leaves parameters in fp32 under ``-mixed``, and autocast casts what is computed with."""
    is_mixed = (run[loop.precision] or "").endswith("-mixed")
    return "fp32" if is_mixed and _strategy(run).startswith("fsdp") else None


@lightning.derive(shared.loads, source="FB/plugins/precision/half.py: the module is cast")
def loads(run: Cells) -> Any:
    is_true = is_lightning(run) and (run[loop.precision] or "").endswith("-true")
    return _half(run) if is_true else None


@lightning.written(f.precision.compute)
def _(half: Any, run: Cells, wishes: Wishes) -> Wishes:
    if not is_lightning(run) or half not in ("bf16", "fp16"):
        raise CannotEdit("the script itself has to compute in another dtype")
    return {loop.precision: f"{'bf16' if half == 'bf16' else '16'}-mixed"}
