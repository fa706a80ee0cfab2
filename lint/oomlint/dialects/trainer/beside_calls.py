"""The calls of a script that quantize, adapt and checkpoint a model, each with its table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping as MappingABC, Sequence

from oomlint.dialects.table import Table
from oomlint.dialects.trainer.adapter_calls import (
    adapter_of,
    adds,
    alike,
    told_of_adapter,
    trains_what_it_loads,
    wraps,
)
from oomlint.dialects.trainer.quantizer_calls import quantizer_of
from oomlint.dialects.trainer.tables import (
    ADAPTER,
    ADDS,
    ALIKE_ADAPTERS,
    CHECKPOINTS,
    LOADED_ADAPTER,
    PREPARES_KBIT,
    QUANTIZATION,
    TOLD_ADAPTER,
    WRAPS,
)
from oomlint.documents.base import (
    Call,
    Node,
)


def calls_beside(
    calls: Sequence[Call],
    model: Call | None,
    defaults: MappingABC[str, Node],
    trainer: Call | None = None,
) -> Iterator[tuple[Call, Table]]:
    """The calls that quantize, adapt and checkpoint a model, each with its table; ``defaults`` are
    those of the script's own switches."""
    for given in (model, trainer):
        quantizer = quantizer_of(given)
        if quantizer is not None:
            yield quantizer, QUANTIZATION
            break
    told = told_of_adapter(trainer)
    adapter = None if told is not None else adapter_of(calls, trainer, defaults)
    if told is not None:
        yield told, TOLD_ADAPTER
    elif adapter is not None:
        yield adapter, ADAPTER
        yield from ((call, ADDS) for call in calls if adds(call))
    else:
        like = alike(calls)
        if like is not None:
            yield like, ALIKE_ADAPTERS
        wrapped = WRAPS if like is None else LOADED_ADAPTER
        yield from ((call, wrapped) for call in calls if wraps(call))
    # Where an option decides, one may be loaded in the place of what a config of the script's would make.
    yield from ((call, LOADED_ADAPTER) for call in calls if trains_what_it_loads(call))
    for call in calls:
        if call.callee.endswith(
            ("prepare_model_for_kbit_training", "prepare_model_for_int8_training")
        ):
            yield call, PREPARES_KBIT
        elif call.callee.endswith("gradient_checkpointing_enable"):
            yield call, CHECKPOINTS
