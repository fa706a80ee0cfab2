"""Plain values as records: what is taken, and how what is refused is explained."""

import pickle

import pytest

from oomlint.config.settings import Settings
from oomlint.plan import Plan
from oomlint.validation.records import RecordError, leaf, record


def test_keys_are_those_that_users_write():
    plan = record(
        Plan, {"batch": {"global": 8}, "save": {"async": "thread", "contents": ["model"]}}
    )
    assert (plan.batch.global_, plan.save.async_, plan.save.contents) == (8, "thread", ("model",))
    settings = record(Settings, {"fail-level": "info", "profiles": {"x": {"host-memory": "1TiB", "hardware": "T4"}}})  # fmt: skip
    assert (settings.fail_level, settings.profiles["x"].host_memory) == ("info", "1TiB")


@pytest.mark.parametrize(
    ("cls", "value", "message"),
    [
        (Plan, {"batch": {"micro": "8"}}, 'batch.micro: should be a whole number or null, not "8"'),
        (Plan, {"batch": {"micro": 8.0}}, "batch.micro: should be a whole number or null, not 8.0"),
        (Plan, {"batch": {"micro": True}}, "batch.micro: should be a whole number or null, not true"),
        (Plan, {"batch": {"global_": 8}}, "batch.global_: unknown key; did you mean global?"),
        (Plan, {"seq": 3}, "seq: should be an object, not 3"),
        (Plan, {"model": {"dims": {"layer": 3}}}, "model.dims.layer: unknown key; did you mean layers?"),
        (Settings, {"fail_level": "info"}, "fail_level: unknown key; did you mean fail-level?"),
        (Settings, {"select": [1]}, "select.0: should be a text, not 1"),
        (Settings, {"profiles": {"x": {}}}, "profiles.x: lacks hardware"),
        (Settings, {"fail-level": "warn"},
         'fail-level: should be one of error, warning, info, not "warn"; did you mean warning?'),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(cls, value, message):
    with pytest.raises(RecordError) as error:
        record(cls, value)
    assert str(error.value) == message


def test_one_value_is_checked_against_its_hint():
    assert leaf(tuple[str, ...] | None, ["a"]) == ("a",)
    assert leaf(float, 1) == 1.0
    with pytest.raises(ValueError, match=r"^should be a number, not true$"):
        leaf(float, True)


def test_records_go_from_process_to_process():
    plan = record(Plan, {"model": {"id": "x/y"}, "batch": {"global": 8}})
    assert pickle.loads(pickle.dumps(plan)) == plan
