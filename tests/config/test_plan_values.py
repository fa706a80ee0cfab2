"""Copies of a plan with other values."""

import pytest

from oomlint.plan import Plan, leaf_paths, plan_to_dict
from oomlint.plan.model import ModelDims


def test_values_at_any_depth_leave_the_original_alone():
    plan = Plan()
    changed = plan.with_values({"save.async": "thread", "batch.global": 4, "total_steps": 3})
    assert (changed.save.async_, changed.batch.global_, changed.total_steps) == ("thread", 4, 3)
    assert changed.get("batch.global") == 4
    assert plan == Plan()


@pytest.mark.parametrize(
    ("changes", "layers", "hidden"),
    [
        ({"model.dims": ModelDims(layers=3), "model.dims.hidden": 5}, 3, 5),
        ({"model.dims.hidden": 5, "model.dims": ModelDims(layers=3)}, 3, None),
        ({"model.dims.layers": 3, "model.dims.hidden": 5}, 3, 5),
    ],
)
def test_later_changes_apply_to_earlier_ones(changes, layers, hidden):
    dims = Plan().with_values(changes).model.dims
    assert (dims.layers, dims.hidden) == (layers, hidden)


def test_every_leaf_can_be_set():
    for path in leaf_paths():
        assert Plan().with_values({path: 1}).get(path) == 1


def test_what_is_at_its_default_is_left_out_of_a_plan_and_only_that() -> None:
    assert plan_to_dict(Plan()) == {}
    found = Plan().with_values({"batch.global": 8, "parallel.zero.stage": 0, "save.async": "none"})
    assert plan_to_dict(found) == {
        "batch": {"global": 8}, "parallel": {"zero": {"stage": 0}}, "save": {"async": "none"}
    }  # fmt: skip
