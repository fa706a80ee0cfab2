"""Which notebooks' figures are counted."""

from __future__ import annotations

import pytest
from benchmarks.accuracy.notebooks import is_less_than_its_weights
from tests.plans import plan_of

# 1,178,991,360 parameters are frozen: 2.196 GiB in half precision.
PRINTED = "Trainable parameters = 97,517,568 of 1,276,508,928 (7.64% trained)"


@pytest.mark.parametrize(
    ("peak", "method", "is_less"),
    [(2.19, "none", True), (2.20, "none", False), (2.19, "bnb4", False)],
)
def test_a_peak_below_the_frozen_weights_is_of_a_part_of_the_model(
    peak: float, method: str, is_less: bool
) -> None:
    plan = plan_of({}, quant__method=method)
    assert is_less_than_its_weights(PRINTED, peak, plan) is is_less
    assert not is_less_than_its_weights("", peak, plan)
