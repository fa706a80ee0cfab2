"""Merging blocks and filling in what the files leave open."""

from oomlint.dialects.draft import Draft
from oomlint.dialects.kinds import COUNT
from oomlint.dialects.table import Block, Row, Table
from oomlint.documents.text import Source, Span
from oomlint.documents.yaml.document import parse_yaml

TABLE = Table(
    name="t",
    rows=(
        Row("micro", "batch.micro", COUNT.or_auto(), default=8, source="the docs"),
        Row("accum", "batch.grad_accum", COUNT, default=1),
        Row("len", "seq.max_len", COUNT),
        Row("own", "private.own", COUNT, default=3),
    ),
)


def draft_of(*texts):
    blocks = []
    for number, text in enumerate(texts):
        document = parse_yaml(Source(f"{number}.yaml", text))
        block = Block(document, document.roots[0], TABLE, Span(0, 1))
        blocks.append((block, block.read()))
    return Draft(blocks)


def test_later_blocks_win_and_what_they_hide_is_kept():
    draft = draft_of("micro: 1\nlen: 5\n", "micro: 2\nlen: 5\n")
    assert draft.get("batch.micro") == 2
    assert [setting.value for setting in draft.settings["batch.micro"].shadowed] == [1]


def test_unknown_beats_what_was_said_before_and_yields_to_what_is_said_after():
    assert draft_of("micro: 1\n", "micro: ${N}\n").is_unknown("batch.micro")
    draft = draft_of("micro: ${N}\n", "micro: 1\n")
    assert draft.get("batch.micro") == 1
    assert not draft.is_unknown("batch.micro")


def test_defaults_fill_only_what_nobody_set():
    draft = draft_of("accum: ${N}\nlen: 5\n")
    draft.apply_row_defaults()
    assert draft.get("batch.micro") == 8
    assert draft.settings["batch.micro"].origin.source == "the docs"
    assert draft.get("batch.grad_accum") is None
    assert draft.get("seq.max_len") == 5
    draft.default("batch.micro", 9, "later")
    assert draft.get("batch.micro") == 8


def test_auto_takes_no_default():
    draft = draft_of("micro: auto\n")
    draft.apply_row_defaults()
    assert draft.get("batch.micro") is None
    assert "batch.micro" in draft.auto


def test_derivations_replace_defaults_and_never_what_is_said():
    draft = draft_of("len: 5\naccum: ${N}\n")
    draft.apply_row_defaults()
    for name in ("batch.micro", "seq.max_len", "batch.grad_accum"):
        draft.derive(name, 7, "x", "y")
    assert draft.get("batch.micro") == 7
    assert draft.settings["batch.micro"].origin.inputs == ("x", "y")
    assert draft.get("seq.max_len") == 5
    assert draft.get("batch.grad_accum") is None
    draft.derive("batch.micro", None)
    assert draft.get("batch.micro") == 7


def test_override_keeps_what_was_said():
    draft = draft_of("len: 5\n")
    draft.override("seq.max_len", 4, "x")
    assert draft.get("seq.max_len") == 4
    assert [s.value for s in draft.settings["seq.max_len"].shadowed] == [5]
    assert not draft.says("seq.max_len")


def test_options_and_wishes_win():
    draft = draft_of("len: 5\nmicro: ${N}\n")
    draft.option("batch.micro", 2, "--set")
    draft.wish("seq.max_len", 4)
    draft.wish("batch.micro", None)
    assert draft.says("seq.max_len")
    assert draft.get("seq.max_len") == 4
    assert draft.get("batch.micro") is None
    assert "batch.micro" in draft.auto
    assert draft.wished == {"seq.max_len": 4, "batch.micro": None}


def test_facts_and_guesses_come_last():
    draft = draft_of("len: 5\n")
    draft.fact("seq.max_len", 6, "the catalogue")
    draft.fact("model.arch", None, "the catalogue")
    draft.assume("data.workers", 2, "a guess")
    assert draft.get("seq.max_len") == 5
    assert draft.get("model.arch") is None
    assert draft.settings["data.workers"].origin.kind == "assumed"


def test_plan_holds_canonical_leaves_only():
    draft = draft_of("micro: 2\nown: 4\n")
    plan = draft.plan()
    assert plan.batch.micro == 2
    assert plan.seq.max_len is None
    assert draft.get("private.own") == 4
