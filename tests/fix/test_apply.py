"""The fixpoint of fixes: proofs, cycles, shared files, and bytes that must stay."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.fixing import repaired, speaks, wants

from oomlint.documents.text import Edit
from oomlint.files.workspace import Workspace
from oomlint.fix import apply, planned, proposed
from oomlint.fix.apply import fix_all
from oomlint.fix.edits import make_fix
from oomlint.hardware import parse_hardware
from oomlint.linting import engine
from oomlint.linting.engine import Options
from oomlint.linting.rule import (
    Applicability,
    Proposal,
    ReadyEdits,
    RemoveKey,
    RenameKey,
    Rule,
    Severity,
)
from oomlint.report.text import summary

RUN = "base_model: meta-llama/Llama-3.2-1B\nmicro_batch_size: 4\ndatasets:\n  - path: a/b\n"
ZERO2 = '{\n  "zero_optimization": {"stage": 2}\n}\n'


def removes(key):
    """A rule that wants a key of the config to go."""

    def proposals(run):
        for block, _ in run.parts.blocks:
            entry = block.mapping.entries.get(key)
            if entry is not None:
                return Proposal(f"remove {key}", (RemoveKey(block, entry),))
        return None

    return speaks(proposals)


def fix(files, *rules, hardware=None, unsafe=False):
    return repaired(files, hardware=hardware, rules=rules, unsafe=unsafe)


# -- what is applied --------------------------------------------------------------------


def test_fix_is_applied_and_counted():
    result = fix({"a.yaml": RUN}, wants("batch.micro", 1))
    assert result.texts == {"a.yaml": RUN.replace("size: 4", "size: 1").encode()}
    assert result.originals == {"a.yaml": RUN.encode()}
    assert result.report.fixed == 1
    assert [d.rule.name for d in result.report.applied] == ["wants"]
    assert result.report.diagnoses == ()
    assert result.report.runs[0].plan.batch.micro == 1


def counted_links(monkeypatch):
    """The overlay of every linking from here on."""
    found = []

    def counting(workspace, names, *given, **more):
        found.append(dict(workspace.overlay))
        return link(workspace, names, *given, **more)

    link = engine.link
    for module in (engine, apply):
        monkeypatch.setattr(module, "link", counting)
    return found


def test_files_that_settle_together_are_linked_once_and_after_each_step(monkeypatch):
    links = counted_links(monkeypatch)
    result = fix({"a.yaml": RUN}, wants("batch.micro", 1))
    assert links == [{"a.yaml": RUN.encode()}, result.texts]
    assert result.report.workspace.read("a.yaml") == result.texts["a.yaml"]


def test_a_way_out_is_looked_for_once_for_a_run_as_it_is(monkeypatch):
    looked = []

    def counting(run, **asked):
        looked.append((run, asked["unsafe"], asked["takes"].__name__))
        return ways_to_fit(run, **asked)

    ways_to_fit = planned.ways_to_fit
    monkeypatch.setattr(planned, "ways_to_fit", counting)
    text = RUN + "sequence_len: 65536\nsample_packing: true\n"  # nothing makes it fit
    options = Options(hardware=parse_hardware("1xT4-16GB"))
    result = fix_all(Workspace(Path("/p"), {"a.yaml": text.encode()}), ["a.yaml"], options)
    assert looked
    # It was asked before fixing, and is asked again by who shows what is left.
    assert [d.fix for d in result.report.diagnoses]
    assert len(looked) == len({(id(run), *asked) for run, *asked in looked})


def test_what_nobody_reads_is_not_worked_out(monkeypatch):
    links = counted_links(monkeypatch)
    # Two runs that have nothing in common settle apart, so what is found at the end is found anew.
    workspace = Workspace(Path("/p"), {"a.yaml": RUN.encode(), "b.yaml": RUN.encode()})
    names, rules = ["a.yaml", "b.yaml"], [wants("batch.micro", 1)]
    result = fix_all(workspace, names, Options(), rules=rules, reports_after=False)
    without = len(links)
    fix_all(workspace, names, Options(), rules=rules)
    assert len(links) - without == without + 1
    assert result.before is not None
    assert len(result.before.diagnoses) == 2


def test_findings_that_go_with_the_fix_of_another_are_told():
    smaller = wants("batch.micro", 1)
    also = speaks(lambda run: None, name="also", code="OOM102")

    def check(self, run):
        if run.plan.batch.micro != 1:
            yield self.finding(run, Severity.WARNING, "it is too large", at="batch.micro")

    also.check = check
    report = fix({"a.yaml": RUN}, smaller, also).report
    assert (report.fixed, report.gone) == (1, 1)
    assert summary(report).endswith("1 fixed in 1 file, and 1 finding with that")
    assert fix({"a.yaml": RUN}, smaller).report.gone == 0


def test_mapping_that_a_removal_leaves_empty_goes_too():
    params = '{"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}'

    def proposals(run):
        for block, _ in run.parts.blocks:
            entry = block.find("zero_optimization.offload_param.device")
            if entry is not None:
                return Proposal("remove it", (RemoveKey(block, entry),))
        return None

    (changed,) = fix(
        {"ds.json": params}, speaks(proposals, at="parallel.zero.stage")
    ).texts.values()
    assert changed == b'{"zero_optimization": {"stage": 2}}'


def test_nothing_to_do_leaves_everything():
    result = fix({"a.yaml": RUN}, wants("batch.micro", 4))
    assert result.texts == {}
    assert result.report.fixed == 0


def test_unsafe_fixes_need_to_be_asked_for():
    def proposals(run):
        if run.plan.seq.max_len == 8:
            return None
        return Proposal.set("cut", {"seq.max_len": 8}, Applicability.UNSAFE)

    rule = speaks(proposals)
    assert fix({"a.yaml": RUN}, rule).texts == {}
    assert b"sequence_len: 8" in fix({"a.yaml": RUN}, rule, unsafe=True).texts["a.yaml"]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
@pytest.mark.parametrize("last", ["", "\n"])
def test_bytes_outside_of_the_edits_stay(newline, bom, last):
    text = f"{bom}# ünïcode 𝔘\n{RUN}odd  :   'x'\t# c{last}".replace("\n", newline)
    rules = (
        wants("batch.micro", 1),
        wants("batch.grad_accum", 4, name="more", code="OOM102"),
    )
    result = fix({"a.yaml": text}, *rules)
    expected = text.replace("size: 4", f"size: 1{newline}gradient_accumulation_steps: 4")
    assert result.texts["a.yaml"] == expected.encode()
    assert result.report.fixed == 2


def test_one_run_is_changed_by_one_fix_a_pass_and_the_cheapest_comes_first():
    order = []

    def noting(name, field, value, cost):
        def when(run):
            order.append((name, run.plan.batch.micro, run.plan.batch.grad_accum))
            return True

        return wants(field, value, when, name=name, code=f"OOM1{cost}0", cost=cost)

    result = fix(
        {"a.yaml": RUN},
        noting("dear", "batch.grad_accum", 4, 5),
        noting("cheap", "batch.micro", 1, 2),
    )
    assert [d.rule.name for d in result.report.applied] == ["cheap", "dear"]
    assert ("dear", 1, 1) in order
    assert ("cheap", 4, 4) not in order


def test_fixes_of_several_runs_are_taken_in_one_pass(monkeypatch):
    links = counted_links(monkeypatch)
    zero = '{"zero_optimization": {"stage": 3}}'
    files = {f"{n}.yaml": f"{RUN}deepspeed: ds.json\n" for n in "abcdef"} | {"ds.json": zero}
    result = fix(files, wants("batch.micro", 1))
    assert len(result.texts) == 6
    assert result.report.fixed == 6
    assert len(links) == 2  # before and after


def test_fix_of_two_files_is_whole_or_nothing():
    def proposals(run):
        if run.plan.batch.micro == 1:
            return None
        return Proposal.set("both", {"batch.micro": 1, "parallel.zero.stage": 3})

    config = f"{RUN}deepspeed: ds.json\n"
    both = fix({"a.yaml": config, "ds.json": ZERO2}, speaks(proposals))
    assert set(both.texts) == {"a.yaml", "ds.json"}
    shared = f"defaults: &d\n  x: &m 4\n{config}".replace("size: 4", "size: *m")
    none = fix({"a.yaml": shared, "ds.json": ZERO2}, speaks(proposals))
    assert none.texts == {}
    assert none.report.errors == ()
    [left] = none.report.diagnoses
    assert left.fix.applicability is Applicability.DISPLAY


# -- what is refused --------------------------------------------------------------------


def ready(*edits, title="mend"):
    return Proposal(title, (ReadyEdits(edits),))


class Liar(Rule):
    """Renames a key; see ``meddling``."""

    code, name = "OOM101", "liar"

    def check(self, run):
        for stray in run.stray:
            wish = RenameKey(stray, "sequence_len")
            proposal = Proposal("rename", (wish,))
            yield self.finding(run, Severity.WARNING, "stray", at=stray, proposals=[proposal])


STRAY = f"{RUN}sequence_length: 64\n"


@pytest.fixture
def meddling(monkeypatch):
    """Edits of every rename also change the micro batch."""

    def meddle(run, proposal, resource):
        made = make_fix(run, proposal, resource)
        if not isinstance(proposal.wishes[0], RenameKey):
            return made
        source = run.claims[0].document.source
        at = source.text.index("size: ") + len("size: ")
        return replace(made, edits=(*made.edits, Edit(source.path, at, at + 1, "8")))

    monkeypatch.setattr(proposed, "make_fix", meddle)


def test_fix_that_changes_more_than_it_said_is_dropped_and_reported(meddling):
    result = fix({"a.yaml": STRAY}, Liar)
    assert result.texts == {}
    assert result.report.fixed == 0
    [error] = result.report.errors
    assert error.kind == "internal"
    assert "the fix of liar (rename) was not applied" in error.message
    assert "it would have changed batch.micro too" in error.message
    [left] = result.report.diagnoses
    assert left.fix.applicability is Applicability.DISPLAY
    assert left.fix.edits == ()


def test_honest_rename_is_applied():
    result = fix({"a.yaml": STRAY}, Liar)
    assert result.texts == {"a.yaml": STRAY.replace("length", "len").encode()}
    assert result.report.errors == ()


def test_fix_that_costs_memory_says_so():
    result = fix({"a.yaml": RUN}, wants("batch.micro", 8), hardware="H100")
    [applied] = result.report.applied
    assert applied.fix.rise > 0
    assert "set batch.micro (it raises the predicted GPU peak by" in applied.fix.title
    unloaded = fix({"a.yaml": f"{RUN}adapter: lora\n"}, removes("adapter"), hardware="H100")
    [applied] = unloaded.report.applied
    assert "(it raises the predicted GPU peak by" in applied.fix.title


def test_fix_that_costs_memory_in_silence_is_only_shown(monkeypatch):
    hushed = lambda *args: replace(make_fix(*args), rise=0)  # noqa: E731
    monkeypatch.setattr(proposed, "make_fix", hushed)
    result = fix({"a.yaml": RUN}, wants("batch.micro", 8), hardware="H100")
    assert result.texts == {}
    [left] = result.report.diagnoses
    assert left.fix.applicability is Applicability.DISPLAY
    assert "it would raise the predicted GPU peak by" in left.fix.reason


def test_dropped_fix_stops_no_other(meddling):
    files = {f"{n}.yaml": STRAY if n == "c" else RUN for n in "abcde"}
    result = fix(files, Liar, wants("batch.grad_accum", 4, name="more", code="OOM102"))
    assert len(result.report.errors) == 1
    changed = {path for path, data in result.texts.items() if b"accumulation_steps: 4" in data}
    assert changed == set(files)
    assert b"sequence_length" in result.texts["c.yaml"]


def test_dropped_fix_of_a_shared_file_stops_no_other(meddling):
    files = {f"{n}.yaml": f"{RUN}deepspeed: ds.json\n" for n in "abcdefghij"}
    files["c.yaml"] += "sequence_length: 64\n"
    files["ds.json"] = ZERO2
    result = fix(files, Liar, wants("batch.grad_accum", 4, name="more", code="OOM102"))
    assert len(result.report.errors) == 1
    assert set(result.texts) == set(files) - {"ds.json"}


def test_edits_that_break_the_file_are_dropped():
    def proposals(run):
        return ready(Edit("a.yaml", 0, 0, "[\n"))

    result = fix({"a.yaml": RUN}, speaks(proposals))
    assert result.texts == {}
    assert "could not be read any more" in result.report.errors[0].message


def test_edits_that_lose_a_run_are_dropped():
    def proposals(run):
        return ready(Edit("a.yaml", 0, len("base_model"), "some_model"))

    result = fix({"a.yaml": RUN}, speaks(proposals))
    assert result.texts == {}
    assert "which training runs" in result.report.errors[0].message


def test_removed_key_may_fall_back_to_its_default():
    def proposals(run):
        block = run.parts.blocks[0][0]
        entry = block.find("micro_batch_size")
        return None if entry is None else Proposal("remove", (RemoveKey(block, entry),))

    result = fix({"a.yaml": RUN}, speaks(proposals))
    assert result.texts["a.yaml"] == RUN.replace("micro_batch_size: 4\n", "").encode()
    assert result.report.errors == ()


# -- circles ----------------------------------------------------------------------------


def test_two_fixes_that_undo_one_another_end_and_are_reported():
    up = wants("batch.micro", 8, name="up", code="OOM101")
    down = wants("batch.micro", 2, name="down", code="OOM102")
    result = fix({"a.yaml": RUN}, up, down)
    assert result.texts["a.yaml"] in (
        RUN.replace("size: 4", "size: 8").encode(),
        RUN.replace("size: 4", "size: 2").encode(),
    )
    assert any("undoes an earlier fix" in error.message for error in result.report.errors)
    assert result.report.fixed < 4


def test_fix_that_leads_back_to_the_first_text_is_refused():
    there = wants("batch.micro", 2, lambda run: run.plan.batch.micro == 4, name="there")
    back = wants(
        "batch.micro", 4, lambda run: run.plan.batch.micro == 2, name="back", code="OOM102"
    )
    result = fix({"a.yaml": RUN}, there, back)
    assert result.texts == {"a.yaml": RUN.replace("size: 4", "size: 2").encode()}
    assert result.report.fixed == 1
    [error] = result.report.errors
    assert "the fix of back (set batch.micro" in error.message
    assert "was not applied: it undoes an earlier fix" in error.message


def test_fix_without_an_end_is_reported():
    def proposals(run):
        return Proposal.set("grow", {"batch.grad_accum": run.plan.batch.grad_accum + 1})

    result = fix({"a.yaml": RUN}, speaks(proposals))
    [error] = result.report.errors
    assert f"no end after {apply.MAX_PASSES} passes" in error.message
    assert result.report.fixed == apply.MAX_PASSES


# -- files of several runs ---------------------------------------------------------------

SMALL = f"{RUN}deepspeed: ds.json\n"
LARGE = SMALL.replace("Llama-3.2-1B", "Llama-3.1-8B")


def test_what_one_run_was_promised_does_not_bind_another():
    files = {"small.yaml": SMALL, "large.yaml": LARGE, "ds.json": ZERO2}
    small = wants("batch.micro", 2, lambda run: "1B" in run.plan.model.id)
    large = wants("batch.micro", 1, lambda run: "8B" in run.plan.model.id, name="l", code="OOM102")
    result = fix(files, small, large)
    assert [run.plan.batch.micro for run in result.report.runs] == [2, 1]
    assert result.report.fixed == 2
    assert result.report.errors == ()
