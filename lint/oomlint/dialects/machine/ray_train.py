"""Ray Train: ``TorchTrainer(train_func, scaling_config=ScalingConfig(num_workers=8, use_gpu=True))`` runs a function of the
script once on each worker, which has a GPU to itself and is a rank.

Read from ray 2.49 ``python/ray/air/config.py`` ScalingConfig and ``python/ray/train/torch/config.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomlint.dialects.kinds import POSITIVE
from oomlint.dialects.machine.fields import launch
from oomlint.dialects.table import Block, Row, Table
from oomlint.documents.base import Call, Document, Node, Scalar

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
    calls: tuple[Call, ...] = getattr(document, "calls", ())
    trainers = [call for call in calls if call.callee.rpartition(".")[2] in _TRAINERS]
    asked = [call for call in calls if call.callee.endswith(".ScalingConfig")]
    if len(trainers) == len(asked) == 1 and _is_true(asked[0].arguments.entries.get("use_gpu")):
        yield Block(document, asked[0].arguments, WORKERS, asked[0].span)


def _is_true(entry: object) -> bool:
    value: Node | None = getattr(entry, "value", None)
    return isinstance(value, Scalar) and value.value is True
