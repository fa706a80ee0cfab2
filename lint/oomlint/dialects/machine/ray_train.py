"""Ray Train: ``TorchTrainer(train_func, scaling_config=ScalingConfig(num_workers=8, use_gpu=True))`` runs a function of the
script once on each worker, which has a GPU to itself and is a rank.

Read from ray 2.49 ``python/ray/air/config.py`` ScalingConfig and ``python/ray/train/torch/config.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomlint.dialects.block import Block
from oomlint.dialects.kinds import POSITIVE
from oomlint.dialects.machine.fields import launch
from oomlint.dialects.table import Row, Table
from oomlint.documents.base import Document, Entry, Scalar

WORKERS = Table(
    name="ScalingConfig",
    rows=(Row("num_workers", launch.total_processes, POSITIVE),),
    known_prefixes=("",),
    section="scheduler",
)
_TRAINERS = frozenset(
    {"TorchTrainer", "AccelerateTrainer", "TransformersTrainer", "LightningTrainer"}
)


def ray_workers(document: Document) -> Iterator[Block]:
    """What a script says of the workers that train, where Ray starts them on GPUs; of several trainers nothing."""
    trainers = [call for call in document.calls if call.callee.rpartition(".")[2] in _TRAINERS]
    asked = [call for call in document.calls if call.callee.endswith(".ScalingConfig")]
    if len(trainers) == len(asked) == 1 and _is_true(asked[0].arguments.entries.get("use_gpu")):
        yield Block(document, asked[0].arguments, WORKERS, asked[0].span)


def _is_true(entry: Entry | None) -> bool:
    value = None if entry is None else entry.value
    return isinstance(value, Scalar) and value.value is True
