"""An estimate is worked out once for the content of a plan and a GPU, and is what the model says."""

from __future__ import annotations

from oomlint.config.plans import read_plan
from oomlint.memory import GpuLimits, again, estimate
from oomlint.memory.again import estimate_again
from oomlint.plan import Plan
from oomlint.plan.fields import f

_GIVEN = {
    "model": {"id": "meta-llama/Llama-3.2-1B"},
    "batch": {"micro": 2},
    "seq": {"max_len": 1024},
}


def _plan(**changes: object) -> Plan:
    plan = read_plan(_GIVEN)
    return plan.with_values(changes) if changes else plan


def test_equal_plans_have_one_estimate_whatever_they_are_called() -> None:
    found = estimate_again(_plan())
    assert found == estimate(_plan())
    assert estimate_again(_plan(name="another.yaml")) is found


def test_what_differs_in_a_value_or_in_the_card_is_estimated_anew() -> None:
    found = estimate_again(_plan())
    for plan in (
        _plan(**{f.batch.micro: 4}),
        _plan(**{f.checkpointing.mode: "full"}),
        _plan(**{f.model.dims: None}),
    ):
        assert estimate_again(plan) == estimate(plan) != found
    card = GpuLimits(usable=16 << 30)
    assert estimate_again(_plan(), card) == estimate(_plan(), card) != found


def test_numbers_that_have_no_bytes_are_estimated_all_the_same() -> None:
    odd = _plan(**{f.batch.micro: 10**400})
    assert estimate_again(odd) == estimate(odd)


def test_no_more_is_kept_than_was_asked_of_late() -> None:
    for micro in range(1, 2 * again._LIMIT + 3):
        estimate_again(Plan().with_values({f.batch.micro: micro}))
        assert len(again._lately) <= again._LIMIT
        assert len(again._before) <= again._LIMIT
