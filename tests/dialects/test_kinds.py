"""Values as frameworks read them, and back."""

import math

import pytest

from oomlint.dialects.kinds import (
    AUTO,
    BOOLEAN,
    COUNT,
    DTYPE,
    FILE,
    INTEGER,
    LIST,
    NUMBER,
    POSITIVE,
    TEXT,
    TRAINER_OPTIMIZER,
    BadValue,
    StandIn,
    choice,
    switch,
)
from oomlint.errors import CannotEdit


@pytest.mark.parametrize(
    ("kind", "raw", "value"),
    [
        (FILE, "", None),
        (FILE, "ds.json", "ds.json"),
        (INTEGER, 4, 4),
        (INTEGER, 4.0, 4),
        (INTEGER, "4", 4),
        (INTEGER, "5e8", 500_000_000),
        (INTEGER, 5e8, 500_000_000),
        (INTEGER, "1_000", 1000),
        (INTEGER, -1, -1),
        (COUNT, 0, 0),
        (POSITIVE, "1", 1),
        (NUMBER, "2e-5", 2e-5),
        (NUMBER, 1, 1.0),
        (NUMBER, "inf", math.inf),
        (BOOLEAN, True, True),
        (BOOLEAN, "yes", True),
        (BOOLEAN, " Off ", False),
        (BOOLEAN, 1, True),
        (BOOLEAN, 0, False),
        (TEXT, 5, "5"),
        (LIST, ["a", 1], ("a", "1")),
        (LIST, "a, b c", ("a", "b", "c")),
        (LIST, "", ()),
        (DTYPE, "torch.bfloat16", "bf16"),
        (DTYPE, "Half", "fp16"),
    ],
)
def test_spellings_that_are_read(kind, raw, value):
    read = kind.read(raw)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (INTEGER, True),
        (INTEGER, 4.5),
        (INTEGER, "four"),
        (INTEGER, "nan"),
        (INTEGER, "1e999"),
        (INTEGER, [4]),
        (INTEGER, {"a": 1}),
        (COUNT, -1),
        (POSITIVE, 0),
        (NUMBER, False),
        (NUMBER, "a"),
        (NUMBER, []),
        (BOOLEAN, "maybe"),
        (BOOLEAN, 2),
        (BOOLEAN, []),
        (TEXT, {}),
        (DTYPE, "int3"),
        (DTYPE, ["bf16"]),
        (DTYPE, {}),
    ],
)
def test_spellings_that_are_refused(kind, raw):
    with pytest.raises(BadValue, match="expected"):
        kind.read(raw)


def test_auto_is_read_and_written():
    kind = COUNT.or_auto()
    assert kind.read("auto") is AUTO
    assert kind.read(3) == 3
    assert kind.write(None) == "auto"
    assert kind.write(3) == 3
    with pytest.raises(BadValue):
        kind.read("automatic")


def test_choice_reads_any_case_and_writes_the_first_spelling():
    kind = choice({"FULL_SHARD": "full", "1": "full", "NO_SHARD": "none", False: "none"})
    assert [kind.read(raw) for raw in ("full_shard", " 1 ", "No_Shard", False)] == [
        "full", "full", "none", "none",
    ]  # fmt: skip
    assert kind.write("full") == "FULL_SHARD"
    assert kind.write("none") == "NO_SHARD"
    with pytest.raises(CannotEdit, match="'half'"):
        kind.write("half")
    with pytest.raises(CannotEdit):
        kind.write(["full"])


def test_choice_names_each_spelling_once():
    kind = choice({True: "on", "true": "on", False: "off", "Other": "other"})
    with pytest.raises(BadValue, match=r"^expected one of true, false, Other$"):
        kind.read("x")


def test_choice_may_be_open_or_write_another_spelling():
    kind = choice({"a": 1}, write={1: "A"}, otherwise=None)
    assert kind.read("b") is None
    assert kind.write(1) == "A"
    assert kind.schema == {}


def test_switch_stands_for_two_values():
    kind = switch(on="full", off="none")
    assert (kind.read("true"), kind.read(False)) == ("full", "none")
    assert (kind.write("full"), kind.write("none")) == (True, False)
    with pytest.raises(CannotEdit, match="'half'"):
        kind.write("half")


@pytest.mark.parametrize(
    "word",
    [
        "xxxx", "XXX", "???", "...", "<n_gpus>", "TODO", "TO_BE_FILLED", "${stage},", "{{ stage }}",
        "{gpus_of_yours}", "GBSIZE,",
    ],
)  # fmt: skip
def test_what_is_to_be_filled_in_is_no_mistake(word):
    with pytest.raises(StandIn):
        POSITIVE.read(word)


def test_a_blank_of_several_words_is_one_for_each_kind_of_value():
    for kind in (TEXT, choice({"full": 1}, otherwise=BadValue)):
        with pytest.raises(StandIn):
            kind.read(["<PATH", "TO", "CHECKPOINTS>"])
        with pytest.raises(BadValue) as refused:
            kind.read(["first", "second"])
        assert not isinstance(refused.value, StandIn)


@pytest.mark.parametrize(
    ("kind", "word"), [(POSITIVE, "x"), (choice({"full": 1}, otherwise=BadValue), "FULLSHARD")]
)
def test_other_words_are(kind, word):
    with pytest.raises(BadValue) as refused:
        kind.read(word)
    assert not isinstance(refused.value, StandIn)


def test_the_trainer_knows_no_optimizer_by_another_programs_name():
    assert TRAINER_OPTIMIZER.read("adamw_torch") == "adamw_torch"
    assert TRAINER_OPTIMIZER.read("one_of_a_later_release") == "one_of_a_later_release"
    with pytest.raises(BadValue, match="adamw_torch"):
        TRAINER_OPTIMIZER.read("AdamW")
