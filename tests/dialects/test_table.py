"""Tables both ways: blocks that are read, keys that are strange, and what is written."""

import pytest

from oomlint.dialects.axolotl.keys import AXOLOTL
from oomlint.dialects.block import Block, OverrideBlock
from oomlint.dialects.kinds import BOOLEAN, COUNT, LIST, TEXT, choice
from oomlint.dialects.llamafactory.keys import LLAMA_FACTORY
from oomlint.dialects.ms_swift.keys import SWIFT
from oomlint.dialects.table import Row, Table, known_keys
from oomlint.documents.json import parse_json
from oomlint.documents.text import Source, Span, apply_edits
from oomlint.documents.yaml.document import parse_yaml
from oomlint.errors import CannotEdit
from oomlint.plan.library_changes import release_of

INNER = Table(
    name="inner",
    rows=(Row("offload", "inner.offload", BOOLEAN), Row("wrap", "inner.wrap", TEXT)),
    strip_prefix="pre_",
)
TABLE = Table(
    name="outer",
    rows=(
        Row("micro", "batch.micro", COUNT, aliases=("per_device", "old.micro")),
        Row("accum", "batch.grad_accum", COUNT, default=1),
        Row("zero.stage", "stage", COUNT.or_auto()),
        Row("zero.deep.device", "device", choice({"cpu": "cpu", "none": "none"})),
        Row("names", "names", LIST),
        Row("sharding.level", "level", COUNT),
        Row("inner", "ref.inner", TEXT, table=INNER),
    ),
    known=frozenset({"seed", "zero.other"}),
    known_prefixes=("x_",),
    ignores_unknown=True,
)


def block_of(text, table=TABLE, kind=Block, **more):
    if text.lstrip().startswith("{"):
        document = parse_json(Source("a.json", text))
        root = document.root
    else:
        document = parse_yaml(Source("a.yaml", text))
        root = document.roots[0]
    return kind(document, root, table, Span(0, 1), **more)


def read(text, **more):
    reading = block_of(text, **more).read()
    return {name: setting.value for name, setting in reading.settings.items()}


def written(text, values, **more):
    block = block_of(text, **more)
    return apply_edits(text, block.write(values))


# -- reading ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("micro: 2\n", {"batch.micro": 2}),
        ("per_device: '2'\n", {"batch.micro": 2}),
        ("old:\n  micro: 2\n", {"batch.micro": 2}),
        ("micro:\nper_device: 3\n", {"batch.micro": 3}),
        ("micro: 1\nper_device: 3\n", {"batch.micro": 1}),
        ("micro: 1\nmicro: 3\n", {"batch.micro": 3}),
        ("zero:\n  stage: 3\n  deep: {device: CPU}\n", {"stage": 3, "device": "cpu"}),
        ("zero.stage: 3\n", {"stage": 3}),
        ("zero:\n  deep.device: cpu\n", {"device": "cpu"}),
        ("zero: 3\n", {}),
        ("names: [a, b]\n", {"names": ("a", "b")}),
        ("inner: file.json\n", {"ref.inner": "file.json"}),
        ("base: &b {micro: 5}\n<<: *b\n", {"batch.micro": 5}),
        ('{"micro": 2, "zero": {"stage": 1}}', {"batch.micro": 2, "stage": 1}),
    ],
)
def test_settings(text, settings):
    assert read(text) == settings


def test_auto_unknown_and_wrong_values_are_no_settings():
    block = block_of("micro: ${N}\naccum: few\nzero: {stage: auto}\nnames: [a, '{{ b }}']\n")
    reading = block.read()
    assert set(reading.settings) <= {"names"}
    assert {"batch.micro", "batch.grad_accum"} <= set(reading.unknown)
    assert set(reading.auto) == {"stage"}
    [wrong] = reading.wrong
    assert (wrong.entry.key, wrong.expected) == ("accum", "expected a whole number")


def test_mapping_below_a_key_is_read_with_its_own_table():
    reading = block_of("inner:\n  pre_offload: true\n  wrap: X\n  pre_ofload: 1\n").read()
    assert reading.settings == {}
    [inner] = reading.nested
    inner_reading = inner.read()
    assert {n: s.value for n, s in inner_reading.settings.items()} == {
        "inner.offload": True,
        "inner.wrap": "X",
    }
    assert [(s.path, s.nearest) for s in inner_reading.stray] == [("pre_ofload", ("offload",))]


def test_origin_points_at_the_key():
    [setting] = block_of("a: 1\nmicro: 2\n").read().settings.values()
    assert setting.origin.key == "micro"
    assert setting.origin.location.span == Span(5, 13)
    assert setting.origin.value_location.span == Span(12, 13)


@pytest.mark.parametrize(
    ("text", "stray"),
    [
        ("micro: 1\nseed: 1\nx_any: 1\nzero: {other: 1}\n", []),
        ("mirco: 1\n", [("mirco", ("micro",))]),
        ("zero: {stgae: 1}\n", [("zero.stgae", ("zero.stage",))]),
        ("shardng: {level: 1}\n", [("shardng", ("sharding",))]),
        ("unheard_of: 1\n", [("unheard_of", ())]),
        ("stage: 1\n", [("stage", ())]),
        ("zero: {micro: 1}\n", [("zero.micro", ())]),
    ],
)
def test_stray_keys_and_what_they_may_mean(text, stray):
    assert [(s.path, s.nearest) for s in block_of(text).read().stray] == stray


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("num_epochs", ("num_train_epochs", "num_ppo_epochs")),
        ("batch_size", ("train_batch_size",)),
        ("num_ppo_epoch", ("num_ppo_epochs",)),
        ("train_num_epochs", ("num_train_epochs",)),
    ],
)
def test_a_key_without_its_word_is_most_likely_the_one_for_training(key, nearest):
    known = frozenset({"num_ppo_epochs", "num_train_epochs", "train_batch_size"})
    table = Table(name="t", rows=(), known=known, ignores_unknown=True)
    (stray,) = block_of(f"{key}: 1\n", table).read().stray
    assert stray.nearest == nearest


def test_what_a_framework_refuses():
    strict = Table("t", (), ignores_unknown=True, strict_under=("zero.",))
    assert strict.refuses("zero.a")
    assert not strict.refuses("other")
    assert Table("t", (), ignores_unknown=False).refuses("other")
    assert not Table("t", ()).refuses("other")


# -- writing ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "values", "after"),
    [
        ("micro: 1  # c\n", {"batch.micro": 2}, "micro: 2  # c\n"),
        ("old:\n  micro: 1\n", {"batch.micro": 2}, "old:\n  micro: 2\n"),
        ("a: 1\nmicro: 1\nb: 2\n", {"batch.grad_accum": 4}, "a: 1\nmicro: 1\naccum: 4\nb: 2\n"),
        ("a: 1\n", {"stage": 3}, "a: 1\nzero:\n  stage: 3\n"),
        (
            "a: 1\n",
            {"stage": 3, "device": "cpu"},
            "a: 1\nzero:\n  stage: 3\n  deep:\n    device: cpu\n",
        ),
        ("zero:\n  other: 1\n", {"stage": 3}, "zero:\n  other: 1\n  stage: 3\n"),
        ("zero:\n  stage: 1\n", {"stage": None}, "zero:\n  stage: auto\n"),
        ("names:\n  - a  # c\n", {"names": ("a", "b")}, "names:\n  - a  # c\n  - b\n"),
        ("names: [a]\n", {"names": ("b",)}, "names: [b]\n"),
        ('{"micro": 1}', {"batch.micro": 2, "stage": 3}, '{"micro": 2, "zero": {"stage": 3}}'),
    ],
)
def test_writing(before, values, after):
    assert written(before, values) == after
    if None not in values.values():
        assert read(after).items() >= values.items()


def test_prefix_is_written_where_the_file_uses_it():
    for before, after in (
        ("pre_wrap: X\n", "pre_wrap: X\npre_offload: true\n"),
        ("wrap: X\n", "wrap: X\noffload: true\n"),
    ):
        written_text = written(before, {"inner.offload": True}, table=INNER)
        assert sorted(written_text.splitlines()) == sorted(after.splitlines())


@pytest.mark.parametrize(
    ("text", "values", "more", "reason"),
    [
        ("micro: 1\n", {"batch.micro": 2}, {"locked": "it is shipped"}, "it is shipped"),
        ("micro: 1\n", {"device": "nvme"}, {}, "no spelling for 'nvme'"),
        ("zero: 3\n", {"stage": 1}, {}, "zero is already there"),
        ("a: &x 1\nmicro: *x\n", {"batch.micro": 2}, {}, "through the anchor &x"),
        ("base: &b {micro: 5}\n<<: *b\n", {"batch.micro": 2}, {}, "through the anchor &b"),
    ],
)
def test_what_cannot_be_written(text, values, more, reason):
    with pytest.raises(CannotEdit, match=reason):
        written(text, values, **more)


def test_overrides_are_changed_where_they_stand_only():
    block = block_of("micro: 1\n", kind=OverrideBlock)
    assert block.can_write("batch.micro")
    assert not block.can_write("batch.grad_accum")
    assert not block.can_write("no.such")


@pytest.mark.parametrize("framework", ["axolotl", "deepspeed"])
def test_lists_of_known_keys_hold_no_row_of_a_table(framework):
    from oomlint.dialects.axolotl.keys import AXOLOTL
    from oomlint.dialects.deepspeed.keys import DEEPSPEED

    table = {"axolotl": AXOLOTL, "deepspeed": DEEPSPEED}[framework]
    keys = known_keys(framework)
    assert keys
    assert not keys & set(table.names)


def test_no_two_rows_of_a_table_share_a_spelling():
    from oomlint.dialects.axolotl.keys import AXOLOTL, FSDP_CONFIG
    from oomlint.dialects.deepspeed.keys import DEEPSPEED

    for table in (AXOLOTL, FSDP_CONFIG, DEEPSPEED):
        spellings = [name for row in table.rows for name in (row.key, *row.aliases)]
        assert len(set(spellings)) == len(spellings), table.name


def test_keys_of_earlier_releases_are_none_that_the_table_knows() -> None:
    """What is legal today is not past, and each release is one that can be compared."""
    for table in (AXOLOTL, LLAMA_FACTORY, SWIFT):
        assert table.past is not None
        assert not table.past.keys.keys() & table.legal_keys
        assert all(release_of(release) for release in table.past.keys.values())
    assert AXOLOTL.past is not None
    assert AXOLOTL.past.keys["eval_table_max_new_tokens"] == "0.5.0"
