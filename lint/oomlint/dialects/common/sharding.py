"""What accelerate's FSDP plugin makes of its settings once ``fsdp.enabled`` is true.

Defaults are those of accelerate 16cb6eb8 utils/dataclasses.py:1816-1990; a dialect whose framework
has others says so in derivations or defaults of its own, which come first.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import fsdp
from oomlint.dialects.meaning import Meaning
from oomlint.dialects.releases import FSDP2_WAITS, FSDP2_WRAPS_ENDS, FSDP_READS_ONCE
from oomlint.plan.fields import f

sharding = Meaning()

_SOURCE = "accelerate 16cb6eb8 utils/dataclasses.py:1816"
_F = f.parallel.fsdp


@sharding.default(_F.version, _F.wrap, _F.cpu_offload, f.load.cpu_ram_efficient, source=_SOURCE)
def defaults(run: Cells) -> Any:
    if not run[fsdp.enabled]:
        return None
    return {
        _F.version: 1,
        _F.wrap: "none",
        _F.cpu_offload: False,
        f.load.cpu_ram_efficient: False,
    }


@sharding.override(f.load.cpu_ram_efficient, source=FSDP_READS_ONCE.source)
def reads_once(run: Cells) -> Any:
    """An old transformers does not know that FSDP is what it loads for."""
    return False if run[fsdp.enabled] and not run.has(FSDP_READS_ONCE, noted=False) else None


def _is_second(run: Cells) -> bool:
    return run[_F.version] == 2


@sharding.default(_F.reshard_after_forward, source=_SOURCE)
def reshards(run: Cells) -> Any:
    return True if run[fsdp.enabled] and _is_second(run) else None


@sharding.default(_F.strategy, source=_SOURCE)
def strategy(run: Cells) -> Any:
    return "full" if run[fsdp.enabled] and not _is_second(run) else None


@sharding.default(_F.state_dict, source=_SOURCE)
def state_dict(run: Cells) -> Any:
    if not run[fsdp.enabled]:
        return None
    return "sharded" if _is_second(run) else "full"


@sharding.default(
    _F.backward_prefetch,
    _F.forward_prefetch,
    _F.limit_all_gathers,
    source="accelerate 16cb6eb8 utils/dataclasses.py:1816, :1750",
)
def prefetching(run: Cells) -> Any:
    if not run[fsdp.enabled] or _is_second(run):
        return None
    return {_F.backward_prefetch: "none", _F.forward_prefetch: False, _F.limit_all_gathers: True}


@sharding.override(_F.strategy)
def strategy_of_second(run: Cells) -> Any:
    """FSDP2 knows no other strategies: utils/dataclasses.py "sharding_strategy is deprecated"."""
    if not run[fsdp.enabled] or not _is_second(run):
        return None
    return "full" if run[_F.reshard_after_forward] else "grad_op"


@sharding.override(_F.reshard_after_forward)
def reshards_of_first(run: Cells) -> Any:
    """The strategy alone decides under FSDP1 (commands/launch.py always names one)."""
    if not run[fsdp.enabled] or _is_second(run):
        return None
    return run[_F.strategy] in ("full", "hybrid")


@sharding.derive(_F.sync_every_micro)
def sync_every_micro(run: Cells) -> Any:
    if not run[fsdp.enabled] or not _is_second(run) or run[f.batch.grad_accum] == 1:
        return None
    return None if run.has(FSDP2_WAITS) else True


@sharding.override(_F.wrap)
def wraps_ends(run: Cells) -> Any:
    if not run[fsdp.enabled] or not _is_second(run) or run[_F.wrap] != "transformer":
        return None
    return "ends" if run.has(FSDP2_WRAPS_ENDS) else None


@sharding.derive(f.offload.params, f.offload.optimizer)
def offloading(run: Cells) -> Any:
    if not run[fsdp.enabled] or not run[_F.cpu_offload]:
        return None
    return {f.offload.params: "cpu", f.offload.optimizer: "cpu"}


@sharding.override(
    f.checkpointing.mode,
    f.checkpointing.source,
    f.checkpointing.reentrant,
    source="accelerate 16cb6eb8 accelerator.py: apply_activation_checkpointing, not reentrant",
)
def checkpointing(run: Cells) -> Any:
    if not run[fsdp.enabled] or not run[_F.activation_checkpointing]:
        return None
    return {
        f.checkpointing.mode: "full",
        f.checkpointing.source: "fsdp",
        f.checkpointing.reentrant: False,
    }
