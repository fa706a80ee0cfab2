"""Models of frameworks' examples hold what their own classes held on the meta device; needs none of the packages."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from benchmarks.built import Built, rows

from oomlint.memory.facts import Facts
from oomlint.models.resolve import lookup
from oomlint.plan import Plan
from oomlint.plan.model import Model, ModelDims, Trainable, Vision

ROWS = tuple(rows())

# Where the counts differ, and why is said, they may by this share.
_APART = 0.02


def _facts(row: Built) -> tuple[Facts, ModelDims]:
    if row.model is None:
        dims = msgspec.convert(row.dims, ModelDims)
    else:
        known = lookup(row.model)
        assert known is not None
        dims = known.dims
    trainable = Trainable(method="full")
    if row.trainable is not None:
        trainable = msgspec.convert(row.trainable, Trainable)
    model = Model(id=row.model, dims=dims, vision=Vision(freeze_tower=row.frozen_tower))
    return Facts(Plan(model=model, trainable=trainable)), dims


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.framework} {row.example}")
def test_a_model_holds_what_its_class_does(row: Built) -> None:
    facts, dims = _facts(row)
    assert facts.model is not None
    assert dims.layers == row.layers
    assert row.off or row.heads in (None, dims.heads)
    assert row.off or row.kv_heads in (None, dims.kv_heads)
    exact = 0 if row.off is None else _APART * row.parameters
    assert abs(facts.model.numel - row.parameters) <= exact
    if row.off is None:
        assert facts.trained.numel == row.trained


def test_each_framework_has_ten_examples_or_all_that_it_ships() -> None:
    counted = Counter(row.framework for row in ROWS)
    # Lingua's main app ships three configs.
    assert {name for name, count in counted.items() if count < 10} <= {"lingua"}
    assert len(counted) == 13
