"""Whether two plans train the same."""

from __future__ import annotations

from typing import Any

import pytest
from tests.plans import plan_of

from oomlint.judgement.planner.training import trains_the_same

RUN: dict[str, Any] = {
    "batch.micro": 4, "batch.grad_accum": 3, "parallel.dp": 2, "seq.max_len": 2048,
    "optimizer.kind": "adamw", "trainable.method": "full",
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({}, True),
        # 24 samples a step, however they are dealt.
        ({"batch__micro": 2, "batch__grad_accum": 6}, True),
        ({"batch__micro": 24, "batch__grad_accum": None, "parallel__dp": None}, True),
        ({"batch__micro": 2, "parallel__dp": 4}, True),
        ({"batch__micro": 2}, False),
        ({"batch__grad_accum": 6}, False),
        ({"batch__micro": 12, "batch__grad_accum": 9}, False),
        ({"parallel__dp": 1}, False),
        ({"batch__micro": None}, False),
        ({"seq__max_len": 1024}, False),
        ({"optimizer__kind": "adamw8bit"}, False),
        ({"checkpointing__mode": "full", "offload__optimizer": "cpu"}, True),
    ],
)
def test_the_same_steps_on_the_same_data(changes: dict[str, Any], same: bool) -> None:
    assert trains_the_same(plan_of(RUN), plan_of(RUN, **changes)) is same


def test_of_an_unknown_batch_only_the_rest_is_compared() -> None:
    unknown = {"batch__micro": None}
    assert trains_the_same(plan_of(RUN, **unknown), plan_of(RUN, **unknown))
    assert not trains_the_same(plan_of(RUN, **unknown), plan_of(RUN, **unknown, seq__max_len=1))
