"""Cells: where a field takes its value from, how it is known, what it was computed from, and what a
change of some of them computes anew."""

import pytest

from oomlint.dialects.block import Block
from oomlint.dialects.cells import Cells, CircularDerivation
from oomlint.dialects.facts import facts
from oomlint.dialects.given import Given
from oomlint.dialects.kinds import COUNT
from oomlint.dialects.meaning import NOTHING, Left, Meaning, Sourced, expressed, writable
from oomlint.dialects.roots import roots_of
from oomlint.dialects.setting import Origin, Setting
from oomlint.dialects.surroundings import Surroundings
from oomlint.dialects.table import Row, Table
from oomlint.documents.text import Source, Span
from oomlint.documents.yaml.document import parse_yaml
from oomlint.errors import CannotEdit, UsageError
from oomlint.plan.evidence import Level
from oomlint.plan.fields import Private, below, f, field_named
from oomlint.plan.library_changes import LibraryChange


class own(Private, prefix="test"):  # noqa: N801
    """Fields of a framework that is only here."""

    key: int
    other: int


LATER = LibraryChange("lib", (2, 0), "it was 3", "the lib's page", was=3)
TABLE = Table(
    name="t",
    rows=(
        Row("micro", f.batch.micro, COUNT.or_auto(), default=8, source="the docs"),
        Row("accum", f.batch.grad_accum, COUNT, default=1),
        Row("len", f.seq.max_len, COUNT),
        Row("key", own.key, COUNT, default=3),
        Row("workers", f.data.workers, COUNT, default=4, changes=(LATER,)),
    ),
)


def cells_of(*texts: str, meaning: Meaning | None = None, options=None, versions=None) -> Cells:
    blocks = []
    for number, text in enumerate(texts):
        document = parse_yaml(Source(f"{number}.yaml", text))
        block = Block(document, document.roots[0], TABLE, Span(0, 1))
        blocks.append((block, block.read()))
    known = Surroundings({}, None, lambda _name: None, versions or {}, {})
    given = Given(blocks).with_options(options or {}, "--set")
    return Cells(given, Meaning(meaning or Meaning(), facts), known)


# -- fields ----------------------------------------------------------------------------------------


def test_a_field_is_its_path_by_the_public_name():
    assert str(f.parallel.zero.stage) == "parallel.zero.stage"
    assert str(f.save.async_) == "save.async"
    assert str(own.key) == "test.key"
    assert field_named("save.async") is f.save.async_
    assert f.offload.params in set(below(f.offload))


def test_a_name_that_the_plan_does_not_have_is_an_error():
    with pytest.raises(AttributeError, match=r"no field save\.asynch"):
        _ = f.save.asynch  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        _ = own.unheard_of  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match=r"did you mean batch\.micro"):
        field_named("batch.mikro")


def test_a_derivation_of_what_is_no_field_does_not_import():
    with pytest.raises(TypeError, match="is no field"):
        Meaning().derive("batch.micro")


def test_a_field_of_the_plan_is_not_declared_again():
    with pytest.raises(TypeError, match=r"batch\.micro is a field of the plan"):
        type("again", (Private,), {"__annotations__": {"micro": int}}, prefix="batch")


# -- what is said ----------------------------------------------------------------------------------


def test_later_blocks_win_and_what_they_hide_is_kept():
    cells = cells_of("micro: 1\nlen: 5\n", "micro: 2\nlen: 5\n")
    assert cells[f.batch.micro] == 2
    setting = cells.setting(f.batch.micro)
    assert setting is not None
    assert [s.value for s in setting.shadowed] == [1]
    assert setting.level is Level.STATED


def test_unread_beats_what_was_said_before_and_yields_to_what_is_said_after():
    cells = cells_of("micro: 1\n", "micro: ${N}\n")
    assert cells[f.batch.micro] is None
    assert cells.level(f.batch.micro) is Level.UNREAD
    assert list(cells.unreadable) == [f.batch.micro]
    assert cells_of("micro: ${N}\n", "micro: 1\n")[f.batch.micro] == 1


def test_defaults_fill_only_what_nobody_set():
    cells = cells_of("accum: ${N}\nlen: 5\n")
    assert cells[f.batch.micro] == 8
    setting = cells.setting(f.batch.micro)
    assert setting is not None
    assert (setting.origin.source, setting.level) == ("the docs", Level.DEFAULT)
    assert cells[f.batch.grad_accum] is None
    assert cells[f.seq.max_len] == 5


def test_auto_takes_no_default_and_leaves_the_field_to_derivations():
    assert cells_of("micro: auto\n")[f.batch.micro] is None
    meaning = Meaning()
    meaning.derive(f.batch.micro)(lambda run: 5 if run.is_auto(f.batch.micro) else None)
    assert cells_of("micro: auto\n", meaning=meaning)[f.batch.micro] == 5
    assert cells_of("micro: 2\n", meaning=meaning)[f.batch.micro] == 2


def test_an_option_of_the_user_beats_the_files_and_none_leaves_a_field_to_others():
    cells = cells_of("len: 5\nmicro: 1\n", options={f.seq.max_len: 4, f.batch.micro: None})
    assert (cells[f.seq.max_len], cells.says(f.seq.max_len)) == (4, True)
    assert cells.is_auto(f.batch.micro)


def test_of_what_nobody_says_a_reader_is_asked_where_it_may_make_something_of_that():
    meaning, asked = Meaning(), []

    @meaning.said(unsaid=lambda blocks: {own.key} if blocks else ())
    def five(run, field, said):
        asked.append(field)
        return said or Setting(5, Origin("explicit"))

    cells = cells_of("len: 3", meaning=meaning)
    fields = (f.seq.max_len, own.key, own.other)
    assert [cells[field] for field in fields] == [3, 5, None]
    assert asked == [f.seq.max_len, own.key]

    @meaning.said(own.other)
    def six(run, field, said):
        return said or Setting(6, Origin("explicit"))

    assert (
        cells_of("len: 3", meaning=Meaning(meaning))[own.other] == 5
    )  # as one is asked, so are others


def test_a_reader_of_statements_decides_what_counts():
    meaning = Meaning()

    @meaning.said(f.seq.max_len)
    def halved(run, field, said):
        return Setting(said.value // 2, said.origin) if isinstance(said, Setting) else said

    @meaning.said(f.batch.micro)
    def left(run, field, said):
        return Left(said.origin) if run[f.seq.max_len] == 5 else said

    cells = cells_of("len: 10\nmicro: 2\n", meaning=meaning)
    assert (cells[f.seq.max_len], cells[f.batch.micro]) == (5, None)
    assert cells.stated(f.seq.max_len).value == 10


# -- where a value comes from ----------------------------------------------------------------------


def test_the_order_of_sources():
    meaning = Meaning()
    meaning.assume(f.seq.max_len, why="a guess")(lambda run: 1)
    meaning.constant(f.seq.max_len, 2, "the docs")
    assert cells_of("key: 1\n", meaning=meaning)[f.seq.max_len] == 2
    meaning = Meaning(meaning)
    meaning.fact(f.seq.max_len, f.batch.micro)(lambda run: {f.seq.max_len: 3, f.batch.micro: 3})
    cells = cells_of("key: 1\n", meaning=meaning)
    assert cells[f.seq.max_len] == 3
    assert cells[f.batch.micro] == 8, "the default of a row beats a fact"
    meaning = Meaning(meaning)
    meaning.derive(f.seq.max_len)(lambda run: None)
    meaning.derive(f.seq.max_len)(lambda run: 4)
    meaning.derive(f.seq.max_len)(lambda run: 5)
    cells = cells_of("key: 1\n", meaning=meaning)
    assert cells[f.seq.max_len] == 4, "the first that answers"
    assert cells_of("len: 6\n", meaning=meaning)[f.seq.max_len] == 6


def test_overrides_see_what_was_there_and_keep_it():
    meaning = Meaning()
    meaning.override(f.seq.max_len)(lambda run: run[f.seq.max_len] + 1)
    meaning = Meaning(meaning)
    meaning.override(f.seq.max_len)(lambda run: run[f.seq.max_len] * 10)
    meaning.override(f.batch.micro)(lambda run: NOTHING)
    meaning.derive(f.batch.grad_accum)(lambda run: run.base(f.seq.max_len))
    cells = cells_of("len: 5\n", meaning=meaning)
    assert cells[f.seq.max_len] == 60, "those of the included meaning come first"
    setting = cells.setting(f.seq.max_len)
    assert setting is not None
    assert [s.value for s in setting.shadowed] == [6, 5]
    assert cells[f.batch.micro] is None
    assert cells[f.batch.grad_accum] == 5


def test_one_function_may_give_several_fields():
    calls = []
    meaning = Meaning()

    @meaning.derive(f.seq.max_len, f.total_steps, source="both")
    def both(run):
        calls.append(run[own.key])
        return {f.seq.max_len: run[own.key], f.total_steps: Sourced(9, "its own")}

    cells = cells_of("key: 7\n", meaning=meaning)
    assert (cells[f.seq.max_len], cells[f.total_steps]) == (7, 9)
    assert calls == [7]
    sources = [cells.setting(field).origin.source for field in (f.seq.max_len, f.total_steps)]
    assert sources == ["both", "its own"]
    assert cells.reads(f.total_steps) == (own.key,)


def test_what_a_derivation_did_not_declare_is_an_error():
    meaning = Meaning()
    meaning.derive(f.seq.max_len, f.total_steps)(lambda run: {f.batch.micro: 1})
    with pytest.raises(TypeError, match="does not declare"):
        _ = cells_of("key: 1\n", meaning=meaning)[f.seq.max_len]


def test_a_circle_is_an_error_with_its_path():
    meaning = Meaning()
    meaning.derive(f.seq.max_len)(lambda run: run[f.total_steps])
    meaning.derive(f.total_steps)(lambda run: run[f.seq.max_len])
    with pytest.raises(CircularDerivation) as caught:
        _ = cells_of("key: 1\n", meaning=meaning)[f.seq.max_len]
    assert str(caught.value).startswith("seq.max_len -> ")
    assert str(caught.value).endswith("-> seq.max_len")
    assert "total_steps" in str(caught.value)


# -- evidence --------------------------------------------------------------------------------------


def _reading(*fields):
    meaning = Meaning()
    meaning.derive(f.total_steps)(lambda run: sum(run[field] or 0 for field in fields))
    return meaning


@pytest.mark.parametrize(
    ("text", "fields", "level"),
    [
        ("len: 5\n", (f.seq.max_len,), Level.STATED),
        ("len: 5\n", (f.seq.max_len, f.batch.micro), Level.DEFAULT),
        ("len: 5\nmicro: ${N}\n", (f.seq.max_len, f.batch.micro), Level.UNREAD),
        ("key: 1\n", (), Level.DEFAULT),
    ],
)
def test_a_derived_value_is_as_well_known_as_the_weakest_that_it_read(text, fields, level):
    cells = cells_of(text, meaning=_reading(*fields))
    assert cells.level(f.total_steps) is level


def test_a_guess_weakens_what_follows_and_is_where_the_weakness_begins():
    meaning = _reading(f.model.from_scratch)
    meaning.assume(f.model.from_scratch, why="nobody says")(lambda run: True)
    cells = cells_of("key: 1\n", meaning=meaning)
    assert cells.level(f.total_steps) is Level.ASSUMED
    assert roots_of(cells, f.total_steps) == (f.model.from_scratch,)


def test_who_asks_whether_a_field_is_unread_and_hears_yes_is_as_weak():
    meaning = Meaning()
    meaning.derive(f.total_steps)(lambda run: 1 if run.is_unread(f.batch.micro) else 2)
    meaning.derive(f.seq.max_len)(lambda run: run.otherwise(f.batch.micro, 6))
    meaning.derive(f.data.prefetch)(lambda run: 1 if run.mentions(f.batch.micro) else 2)
    cells = cells_of("micro: ${N}\n", meaning=meaning)
    assert [cells.level(field) for field in (f.total_steps, f.seq.max_len, f.data.prefetch)] == [
        Level.UNREAD,
        Level.ASSUMED,
        Level.STATED,
    ]
    assert cells[f.seq.max_len] == 6
    assert cells_of("micro: 1\n", meaning=meaning).level(f.total_steps) <= Level.DEFAULT


def test_a_derivation_that_gives_up_leaves_its_weakness_to_the_default_behind_it():
    meaning = Meaning()
    meaning.derive(f.batch.grad_accum)(lambda run: None if run[f.batch.micro] is None else 2)
    cells = cells_of("micro: ${N}\n", meaning=meaning)
    assert cells[f.batch.grad_accum] == 1
    assert cells.level(f.batch.grad_accum) is Level.UNREAD


# -- libraries -------------------------------------------------------------------------------------


def test_a_default_is_that_of_the_release_that_runs():
    assert cells_of("key: 1\n", versions={"lib": ("1.9", "r.txt")})[f.data.workers] == 3
    assert cells_of("key: 1\n", versions={"lib": ("2.0", "r.txt")})[f.data.workers] == 4
    cells = cells_of("key: 1\n")
    assert (cells[f.data.workers], cells.open) == (4, {LATER: True})


def test_bounds_of_a_library_settle_what_nobody_pins():
    meaning = Meaning()

    @meaning.requires
    def newest(run):
        yield "lib", (3,), ()

    cells = cells_of("key: 1\n", meaning=meaning)
    assert (cells[f.data.workers], cells.made(LATER), cells.open) == (4, True, {})


# -- changes ---------------------------------------------------------------------------------------


def test_a_change_computes_only_what_depends_on_it():
    computed = []

    def noted(name, *fields):
        def compute(run):
            computed.append(name)
            return sum(run[field] or 0 for field in fields)

        return compute

    meaning = Meaning()
    meaning.derive(f.total_steps)(noted("steps", f.seq.max_len))
    meaning.derive(f.data.prefetch)(noted("prefetch", f.batch.micro))
    meaning.derive(f.save.every)(noted("every", f.total_steps))
    cells = cells_of("len: 5\n", meaning=meaning)
    assert cells.plan().save.every == 5
    computed.clear()
    changed = cells.changed({f.seq.max_len: 7})
    assert (changed.plan().save.every, changed.plan().data.prefetch) == (7, 8)
    assert sorted(computed) == ["every", "steps"]
    assert changed.wished == {f.seq.max_len: 7}
    assert cells.plan().save.every == 5


def test_a_change_of_a_change_computes_what_reads_it_since_the_first():
    meaning = Meaning()
    meaning.derive(f.total_steps)(
        lambda run: run[f.data.workers if run[own.key] == 1 else f.seq.max_len]
    )
    cells = cells_of("len: 5\n", meaning=meaning)
    assert cells.plan().total_steps == 5
    first = cells.changed({own.key: 1, f.data.workers: 3})
    assert first.plan().total_steps == 3
    assert first.changed({f.data.workers: 9}).plan().total_steps == 9
    assert first.changed({own.key: 0}).changed({f.seq.max_len: 7}).plan().total_steps == 7
    assert cells.changed({f.data.workers: 9}).plan().total_steps == 5


def test_versions_and_members_of_the_model_can_be_assumed():
    cells = cells_of("key: 1\n")
    assert cells.assuming({"versions.lib": "1.5"})[f.data.workers] == 3
    dims = cells.assuming({"model.dims.layers": 3})[f.model.dims]
    assert dims is not None
    assert dims.layers == 3


def test_wishes_are_said_by_the_inverse_beside_the_derivation():
    meaning = Meaning()

    @meaning.derive(f.total_steps)
    def doubled(run):
        return 2 * run[own.key]

    @doubled.written
    def _(wanted, run, wishes):
        if wanted % 2:
            raise CannotEdit("an odd number")
        return {own.key: wanted // 2}

    meaning.follows(f.save.every)
    meaning.cannot_say("there is no key for it", f.eval.every)
    cells = cells_of("key: 1\n", meaning=meaning)
    own_words = expressed({f.total_steps: 6, f.save.every: 1}, cells)
    assert own_words == {own.key: 3}
    assert cells.changed(own_words)[f.total_steps] == 6
    for wish, reason in (
        ({f.total_steps: 5}, "odd"),
        ({f.eval.every: 5}, "no key for it"),
        ({f.env.alloc_conf: "x"}, "has no key for env.alloc_conf"),
    ):
        with pytest.raises(CannotEdit, match=reason):
            writable(expressed(wish, cells), cells, "it")


def test_the_plan_holds_the_plans_fields_alone():
    cells = cells_of("micro: 2\nkey: 4\n")
    assert (cells.plan().batch.micro, cells.plan().seq.max_len) == (2, None)
    assert own.key in cells.settings


# -- corners ---------------------------------------------------------------------------------------


def test_auto_takes_the_value_of_another_file_wherever_that_stands():
    for texts in (("micro: 1\n", "micro: auto\n"), ("micro: auto\n", "micro: 1\n")):
        assert cells_of(*texts)[f.batch.micro] == 1


def test_a_change_that_moves_nothing_is_not_noted():
    meaning = Meaning()
    meaning.derive(f.total_steps)(lambda run: 1 if run.has(LATER, noted=False) else 2)
    meaning.derive(f.seq.max_len)(lambda run: 1 if run.has(LATER, otherwise=False) else 2)
    cells = cells_of("workers: 1\n", meaning=meaning)
    assert cells[f.total_steps] == 1
    assert cells.open == {LATER: False}, "of the other field alone"
    assert cells[f.seq.max_len] == 2
    quiet = cells_of("workers: 1\n")
    # Nobody computes: there is nothing to note it with.
    assert quiet.has(LATER)
    assert quiet.open == {}


@pytest.mark.parametrize(
    ("least", "below", "made"),
    [((2, 0), (), True), ((1, 9), (), None), ((), (2, 0), False), ((), (2, 1), None), ((2, 1), (3,), True)],
)  # fmt: skip
def test_bounds_settle_a_change_from_its_own_release_on(least, below, made):
    from oomlint.dialects.common.fields import library

    cells = cells_of("key: 1\n", options={library.bounds: {"lib": (least, below or (9,))}})
    assert cells.made(LATER) is made


def test_defaults_of_several_releases_are_those_of_the_oldest_that_is_not_made():
    first = LibraryChange("lib", (1, 0), "it was 1", "page one", was=1)
    table = Table(
        name="t", rows=(Row("n", f.data.workers, COUNT, default=4, changes=(first, LATER)),)
    )

    def workers(version):
        document = parse_yaml(Source("a.yaml", "x: 1\n"))
        block = Block(document, document.roots[0], table, Span(0, 1))
        known = Surroundings({}, None, lambda _name: None, {"lib": (version, "r.txt")}, {})
        found = Cells(Given([(block, block.read())]), Meaning(Meaning(), facts), known)
        setting = found.setting(f.data.workers)
        assert setting is not None
        return setting.value, setting.origin.source

    assert workers("0.9") == (1, "page one")
    assert workers("1.5") == (3, "the lib's page")
    assert workers("2.0")[0] == 4


def test_what_nobody_says_is_known_as_a_default_is():
    cells = cells_of("key: 1\n")
    assert cells[f.seq.longest] is None
    assert cells.level(f.seq.longest) is Level.DEFAULT


def test_a_fact_is_known_no_better_than_what_it_is_a_fact_of():
    meaning = Meaning()
    meaning.assume(own.other, why="a guess")(lambda run: 2)
    meaning.fact(f.seq.longest)(lambda run: run[own.other] * 10)
    meaning.fact(f.total_steps)(lambda run: run[f.seq.max_len])
    cells = cells_of("len: 5\n", meaning=meaning)
    assert (cells[f.seq.longest], cells.level(f.seq.longest)) == (20, Level.ASSUMED)
    assert (cells[f.total_steps], cells.level(f.total_steps)) == (5, Level.FACT)


def test_what_follows_from_what_nobody_could_read_is_unread_whatever_it_is():
    meaning, fields = Meaning(), (f.seq.longest, f.total_steps, f.save.every, f.save.keep)
    meaning.derive(fields[0])(lambda run: Sourced(run[f.seq.max_len] or 7, "", is_assumed=True))
    meaning.assume(fields[1], why="a guess")(lambda run: run[f.seq.max_len] or 7)
    meaning.fact(fields[2])(lambda run: run[f.seq.max_len] or 7)
    meaning.default(fields[3])(lambda run: run[f.seq.max_len] or 7)
    unread, read = (cells_of(f"len: {text}\n", meaning=meaning) for text in ("${N}", "7"))
    assert [unread[field] for field in fields] == [7] * 4
    assert [unread.level(field) for field in fields] == [Level.UNREAD] * 4
    known = [Level.ASSUMED, Level.ASSUMED, Level.FACT, Level.DEFAULT]
    assert [read.level(field) for field in fields] == known


def test_groups_that_ask_each_other_are_a_circle():
    meaning = Meaning()
    meaning.derive(f.seq.max_len, f.seq.longest)(lambda run: {f.seq.max_len: run[f.total_steps]})
    meaning.derive(f.total_steps, f.save.every)(lambda run: {f.total_steps: run[f.seq.longest]})
    with pytest.raises(CircularDerivation):
        _ = cells_of("key: 1\n", meaning=meaning)[f.seq.max_len]


def test_one_group_may_ask_another():
    meaning = Meaning()
    meaning.derive(f.total_steps, f.save.every)(lambda run: {f.total_steps: 5, f.save.every: 6})
    meaning.derive(f.seq.max_len, f.seq.longest)(
        lambda run: {f.seq.max_len: run[f.total_steps], f.seq.longest: run[f.save.every]}
    )
    cells = cells_of("key: 1\n", meaning=meaning)
    assert (cells[f.seq.max_len], cells[f.seq.longest]) == (5, 6)
    # A field is computed from what its group read, but not from itself.
    assert cells.reads(f.seq.max_len) == (f.total_steps, f.save.every)


def test_an_override_of_several_fields_sees_each_as_it_was():
    meaning = Meaning()
    meaning.override(f.seq.max_len, f.batch.micro)(
        lambda run: {f.seq.max_len: run[f.seq.max_len] * 2, f.batch.micro: run[f.batch.micro] + 1}
    )
    cells = cells_of("len: 5\n", meaning=meaning)
    assert (cells[f.seq.max_len], cells[f.batch.micro]) == (10, 9)
    assert cells.reads(f.seq.max_len) == (f.batch.micro,)


@pytest.mark.parametrize(
    ("made", "level", "kind"),
    [
        (lambda run: 3, Level.DEFAULT, "derived"),
        (lambda run: run[own.key], Level.STATED, "derived"),
        (lambda run: run[f.batch.micro], Level.DEFAULT, "derived"),
        (lambda run: Sourced(3, "a guess", is_assumed=True), Level.ASSUMED, "assumed"),
    ],
)
@pytest.mark.parametrize("rank", ["derive", "override"])
def test_what_is_made_is_as_well_known_as_what_it_is_made_of(rank, made, level, kind):
    meaning = Meaning()
    getattr(meaning, rank)(f.seq.max_len)(made)
    setting = cells_of("key: 3\n", meaning=meaning).setting(f.seq.max_len)
    assert setting is not None
    assert (setting.level, setting.origin.kind) == (level, kind)


@pytest.mark.parametrize(("rank", "level"), [("fact", Level.FACT), ("assume", Level.ASSUMED)])
def test_facts_and_guesses_are_known_as_such(rank, level):
    meaning = Meaning()
    options = {"why": "nobody says"} if rank == "assume" else {}
    getattr(meaning, rank)(f.seq.max_len, **options)(lambda run: 3)
    assert cells_of("key: 3\n", meaning=meaning).level(f.seq.max_len) is level


def test_what_may_be_forced_by_what_was_not_read_is_as_weak():
    meaning = Meaning()
    meaning.override(f.seq.max_len)(lambda run: None if run[f.batch.micro] is None else 1)
    cells = cells_of("len: 5\nmicro: ${N}\n", meaning=meaning)
    assert (cells[f.seq.max_len], cells.level(f.seq.max_len)) == (5, Level.UNREAD)
    known = cells_of("len: 5\nmicro: 2\n", meaning=meaning)
    assert (known[f.seq.max_len], known.level(f.seq.max_len)) == (1, Level.STATED)
    # Of a default that was asked in vain nothing is weaker.
    other = Meaning()
    other.override(f.seq.max_len)(lambda run: None if run[f.batch.micro] else 1)
    assert cells_of("len: 5\n", meaning=other).level(f.seq.max_len) is Level.STATED


def test_changes_of_changes_are_kept():
    cells = cells_of("len: 5\n")
    twice = cells.changed({own.key: 1}).changed({f.seq.max_len: 7})
    assert twice.wished == {own.key: 1, f.seq.max_len: 7}
    assert twice.assuming({"batch.micro": 2}).wished == twice.wished
    assert (twice.plan().seq.max_len, twice[own.key]) == (7, 1)
    left = cells.changed({f.seq.max_len: None})
    assert left.plan().seq.max_len is None
    assert cells.plan("other").name == "other"
    assert cells.plan().seq.max_len == 5


# -- files that stand otherwise ----------------------------------------------------------------------


def block_of(name: str, text: str) -> Block:
    document = parse_yaml(Source(name, text))
    return Block(document, document.roots[0], TABLE, Span(0, 1))


class Edited:
    """One run of two files, of which the second, in which all would be written, is edited; each computation is
    counted."""

    def __init__(self, first: str, second: str) -> None:
        self.meaning = Meaning()
        self.computed: list[str] = []
        self.second = block_of("second.yaml", second)
        self.first = block_of("first.yaml", first)
        self.versions: dict[str, tuple[str, str]] = {}
        self.finds: dict[str, object] = {}

    def derive(self, field, compute):
        def counted(run):
            self.computed.append(str(field))
            return compute(run)

        self.meaning.derive(field)(counted)

    def cells(self, earlier: Cells | None = None) -> Cells:
        given = Given((block, block.reading) for block in (self.first, self.second))
        known = Surroundings({}, None, self.finds.get, self.versions, {})
        made = Cells(given, self.meaning, known)
        if earlier is not None:
            made.keep(earlier)
        assert made.plan() is not None
        return made

    def again(self, earlier: Cells, second: str) -> tuple[Cells, list[str]]:
        """The cells after an edit, which are those of a run that was never computed before, and what was computed
        for them."""
        self.second = block_of("second.yaml", second)
        self.computed.clear()
        kept = self.cells(earlier)
        computed = [*self.computed]
        fresh = self.cells()
        assert kept.plan() == fresh.plan()
        assert [*kept.settings] == [*fresh.settings]
        assert [*map(_told, kept.settings.values())] == [*map(_told, fresh.settings.values())]
        return kept, computed


def _told(setting: Setting) -> tuple[object, ...]:
    origin = setting.origin
    places = (origin.block, origin.entry, origin.location, origin.inputs, origin.source)
    return setting.value, setting.level, places, [_told(each) for each in setting.shadowed]


def test_of_an_edited_file_only_what_reads_it_is_computed_anew():
    run = Edited("micro: 2\n", "len: 5\n")
    run.derive(f.total_steps, lambda cells: cells[f.seq.max_len])
    run.derive(f.eval.every, lambda cells: cells[f.batch.micro])
    first = run.cells()
    second, computed = run.again(first, "len: 7\n")
    assert (computed, second[f.total_steps]) == (["total_steps"], 7)
    third, computed = run.again(second, "accum: 3\nlen: 7\n")
    assert (computed, third[f.batch.grad_accum]) == ([], 3)
    assert run.again(third, "accum: 3\n")[0][f.total_steps] is None


def test_what_nobody_says_stands_in_the_file_as_it_is_now():
    run = Edited("micro: 2\n", "accum: 5\n")
    run.derive(f.seq.max_len, lambda cells: 4)
    cells = run.cells()
    for text in ("# a note\naccum: 5\n", "accum: 5\nkey: 1\n", "accum: 5\n"):
        cells, computed = run.again(cells, text)
        assert computed == []


def test_who_looks_at_the_files_looks_again_and_others_only_where_that_changes_something():
    run = Edited("micro: 2\n", "len: 5\n")
    run.derive(own.other, lambda cells: len(cells.given.blocks[1].mapping.entries))
    run.derive(f.total_steps, lambda cells: cells[own.other])
    run.derive(f.eval.every, lambda cells: len(cells.blocks_in("launcher")) or None)
    run.derive(f.save.every, lambda cells: len(cells.blocks_of(TABLE)[1].mapping.entries))
    cells, computed = run.again(run.cells(), "len: 6\n")
    assert {*computed} == {"test.other", "save.every"}
    cells, computed = run.again(cells, "len: 6\nkey: 1\n")
    assert {*computed} == {"test.other", "save.every", "total_steps"}
    assert (cells[f.total_steps], cells[f.save.every]) == (2, 2)


def test_who_asks_for_the_place_of_a_default_is_told_the_new_one():
    run = Edited("micro: 2\n", "len: 5\n")

    def notes(cells):
        block = cells.setting(f.data.workers).origin.block
        return block.document.source.text.count("#")

    run.derive(f.total_steps, notes)
    run.derive(f.eval.every, lambda cells: cells[f.data.workers])
    cells, computed = run.again(run.cells(), "# a note\nlen: 5\n")
    assert (computed, cells[f.total_steps], cells[f.eval.every]) == (["total_steps"], 1, 4)


def test_of_what_is_said_again_at_another_place_those_compute_anew_who_ask_for_the_place():
    run = Edited("micro: 2\n", "len: 5\n")

    def end_of(said):
        return said.location.span.end

    run.derive(f.total_steps, lambda cells: cells[f.seq.max_len])
    run.derive(f.eval.every, lambda cells: end_of(cells.setting(f.seq.max_len).origin))
    run.derive(f.save.every, lambda cells: end_of(cells.said(f.seq.max_len).origin))
    run.derive(f.save.keep, lambda cells: end_of(cells.stated(f.seq.max_len).origin))
    run.derive(f.eval.samples, lambda cells: cells[f.save.keep])
    cells, computed = run.again(run.cells(), "# a note\nlen: 5\n")
    assert sorted(computed) == ["eval.every", "eval.samples", "save.every", "save.keep"]
    assert {cells[field] for field in (f.eval.every, f.save.every, f.eval.samples)} == {15}


def test_what_a_reader_makes_of_a_place_reaches_all_that_hang_on_it():
    run = Edited("micro: 2\n", "len: 5\n")

    @run.meaning.said(f.seq.max_len)
    def by_place(cells, field, said):
        return Setting(said.origin.location.span.start, said.origin)

    run.derive(f.total_steps, lambda cells: cells[f.seq.max_len])
    cells, computed = run.again(run.cells(), "# a note\nlen: 5\n")
    assert (computed, cells[f.total_steps]) == (["total_steps"], 9)


def test_what_is_made_of_silence_is_asked_anew_where_the_file_has_other_silent_fields():
    run = Edited("micro: 2\n", "len: 5\n")

    @run.meaning.said(
        unsaid=lambda blocks: {own.other} if "accum" in blocks[1].mapping.entries else ()
    )
    def five(cells, field, said):
        return said or Setting(5, Origin("explicit"))

    run.derive(f.total_steps, lambda cells: cells[own.other])
    cells = run.cells()
    assert cells[f.total_steps] is None
    cells, _ = run.again(cells, "len: 5\naccum: 1\n")
    assert cells[f.total_steps] == 5
    assert run.again(cells, "len: 5\n")[0][f.total_steps] is None


def test_where_something_else_is_known_nothing_is_kept():
    run = Edited("micro: 2\n", "len: 5\n")
    run.derive(f.total_steps, lambda cells: 1 if cells.known.model("m") else 2)
    run.derive(f.eval.every, lambda cells: len(cells.known.versions))
    cells = run.cells()
    assert cells[f.total_steps] == 2
    run.finds["m"] = object()
    cells, _ = run.again(cells, "len: 5\n")
    assert cells[f.total_steps] == 1
    run.versions = {"lib": ("2.1", "a pin")}
    assert run.again(cells, "len: 5\n")[0][f.eval.every] == 1
