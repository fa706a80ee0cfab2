"""Fixes, plans and what they bring are worked out for who prints or applies them, and for nobody else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests import linked
from tests.fixing import speaks

from oomlint.fix import planned, proposed
from oomlint.fix.planned import with_plans
from oomlint.judgement import judgement_of
from oomlint.judgement.change import relief
from oomlint.linting.engine import Options, Report
from oomlint.linting.headlines import leaders
from oomlint.linting.rule import (
    Applicability,
    AskedLate,
    Finding,
    Proposal,
    Rule,
    SetFields,
    Severity,
)
from oomlint.plan.fields import f
from oomlint.report import render
from oomlint.report.paint import Paint
from oomlint.runs.run import Run

LORA = """\
base_model: meta-llama/Llama-3.1-8B
datasets: [{path: a/b}]
adapter: lora
lora_r: 8
lora_target_linear: true
sequence_len: 8192
sample_packing: true
micro_batch_size: 8
bf16: true
flash_attention: true
"""
GPU = "1xA100-80GB"
# Of a run with samples as long as they may be nobody knows that it dies: of it there are but remarks.
UNKNOWN_LENGTHS = LORA.replace("sample_packing: true\n", "").replace(
    "micro_batch_size: 8", "micro_batch_size: 4"
)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The titles of proposals that somebody had worked out."""
    titles: list[str] = []
    real = proposed.make_fix

    def noting(run: Run, proposal: Proposal, *others: Any) -> Any:
        titles.append(proposal.title)
        return real(run, proposal, *others)

    monkeypatch.setattr(proposed, "make_fix", noting)
    return titles


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs for which somebody had a way out looked for."""
    names: list[str] = []
    real = planned.ways_to_fit

    def noting(run: Run, **more: Any) -> Any:
        names.append(run.name)
        return real(run, **more)

    monkeypatch.setattr(planned, "ways_to_fit", noting)
    return names


def report_of(text: str) -> Report:
    return linked.report_of({"a.yaml": text}, hardware=GPU)


def with_plans_of(report: Report) -> Report:
    from msgspec.structs import replace

    options = Options(hardware=linked.hardware_of(GPU))
    return replace(report, diagnoses=tuple(with_plans(report, options, Applicability.SAFE)))


def test_a_finding_has_its_fix_worked_out_when_somebody_asks_and_once(made: list[str]) -> None:
    report = report_of(LORA)
    found = next(d for d in report.diagnoses if d.rule.name == "no-gradient-checkpointing")
    assert made == []
    assert found.fix is not None
    assert found.fix is found.fix
    assert made == ["turn on gradient checkpointing"]


def test_a_report_without_fixes_asks_for_none(made: list[str], searched: list[str]) -> None:
    report = with_plans_of(report_of(LORA))
    render(report, "concise", Paint())
    assert (made, searched) == ([], [])
    render(report, "json", Paint())
    assert made
    assert searched


def test_a_plan_is_looked_for_by_who_asks_and_once(searched: list[str]) -> None:
    report = with_plans_of(report_of(LORA))
    assert any(judgement_of(run).is_in_trouble for run in report.runs)
    assert searched == []
    for _ in range(2):
        carriers = [d.fix for d in report.diagnoses if d.rule.is_headline]
        assert carriers[0] is not None
        assert carriers[0].edits
    assert searched == ["a.yaml"]


def test_no_plan_is_looked_for_where_no_finding_would_carry_it(searched: list[str]) -> None:
    report = report_of(UNKNOWN_LENGTHS)
    assert any(judgement_of(run).is_in_trouble for run in report.runs)
    assert {d.severity for d in report.diagnoses} == {Severity.INFO}
    render(with_plans_of(report), "json", Paint())
    assert searched == []


def test_whether_a_remark_is_to_be_mended_is_known_without_its_fix(made: list[str]) -> None:
    report = report_of(UNKNOWN_LENGTHS)
    proposing = [d for d in report.diagnoses if d.finding.proposals]
    assert proposing
    assert [d.applicable for d in proposing] == [None] * len(proposing)
    assert made == []


def test_a_bug_in_a_proposal_costs_nobody_the_finding() -> None:
    wrong = speaks(lambda _run: Proposal("do it", (SetFields(None),)))
    report = linked.report_of({"a.yaml": LORA}, hardware=GPU, rules=[wrong])
    (found,) = report.diagnoses
    assert found.fix is not None
    assert found.fix.applicability is Applicability.DISPLAY
    assert (found.fix.reason or "").startswith("rule wants failed to propose a fix: ")


@pytest.mark.parametrize("severity", [Severity.INFO, Severity.WARNING])
def test_what_only_an_estimate_tells_is_proposed_of_a_remark_when_somebody_asks(
    severity: Severity,
) -> None:
    asked = []

    class Late(Rule, code="OOM199", name="late", fixes=Applicability.SAFE):
        summary = "it is late"

        def check(self, run: Run) -> Iterator[Finding]:
            yield self.finding(run, severity, "late", proposals=AskedLate(self.proposed))

        def proposed(self) -> Iterator[Proposal]:
            asked.append(severity)
            yield Proposal.set("save memory", {f.checkpointing.mode: "full"})

    report = linked.report_of({"a.yaml": LORA}, hardware=GPU, rules=[Late])
    (found,) = report.diagnoses
    assert asked == ([] if severity is Severity.INFO else [severity])
    assert found.fix is not None
    assert [each.title for each in found.finding.proposals] == ["save memory"]
    assert asked == [severity]


def test_a_remark_whose_proposals_cannot_be_made_says_so_in_the_place_of_the_fix() -> None:
    class Broken(Rule, code="OOM199", name="broken", fixes=Applicability.SAFE):
        summary = "it is broken"

        def check(self, run: Run) -> Iterator[Finding]:
            for message in ("first", "second"):
                yield self.info(
                    run, message, resource="gpu", predicted=1, proposals=AskedLate(self.proposed)
                )

        def proposed(self) -> Iterator[Proposal]:
            yield from {}["what is not there"]

    report = linked.report_of({"a.yaml": LORA}, hardware=GPU, rules=[Broken])
    assert len(leaders(report.diagnoses)) == 1
    for found in report.diagnoses:
        assert found.fix is not None
        assert found.fix.title == "it is broken"
        assert (found.fix.reason or "").startswith("rule broken failed to propose a fix: ")


def test_a_bug_in_a_proposal_is_an_internal_error_once_of_who_asks_for_fixes() -> None:
    class Twice(Rule, code="OOM199", name="twice", fixes=Applicability.SAFE):
        summary = "it is told twice"

        def check(self, run: Run) -> Iterator[Finding]:
            for message in ("first", "second"):
                yield self.warning(run, message, proposals=[Proposal("do it", (SetFields(None),))])

    report = linked.report_of({"a.yaml": LORA}, hardware=GPU, rules=[Twice])
    assert render(report, "concise", Paint()).count("twice") == 2
    assert report.all_errors == ()
    assert report.exit_status(Severity.WARNING) == 1
    told = json.loads(render(report, "json", Paint()))
    assert len(told["findings"]) == 2
    (error,) = told["errors"]
    assert error["kind"] == "internal"
    assert "rule twice failed to propose a fix: " in error["message"]
    assert report.exit_status(Severity.WARNING) == 3
    assert "1 internal error" in render(report, "text", Paint())


def test_of_a_run_that_fits_no_change_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def noting(run: Run, changes: Any, **more: Any) -> Any:
        asked.append(changes)
        return relief(run, changes, **more)

    monkeypatch.setattr("oomlint_rules._lowering.relief", noting)
    report_of(LORA.replace("micro_batch_size: 8", "micro_batch_size: 1").replace("8192", "512"))
    assert asked == []
    report_of(LORA)
    assert asked
