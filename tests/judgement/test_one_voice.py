"""Whatever is printed of a run says the same: the needs, the readings and the verdict of its judgement.

Over the shipped examples, the rules' examples, the real failures, the shown half of the dated facts and,
where it is at hand, a sample of the corpus. What a surface prints as the need of a run is read back
out of its text: it must be a peak or a phase of the run as it is written or as it is meant.
"""

from __future__ import annotations

import html as entities
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from benchmarks.threads import cases
from tests.test_real_failures import CASES, _case, _report

from oomlint.amounts import gib
from oomlint.compare import compare
from oomlint.engine import Diagnosis, Options, Report, all_rules, lint
from oomlint.judgement import Judgement, judgement_of
from oomlint.lsp import hints
from oomlint.plan.evidence import Level
from oomlint.report import compare as comparing, estimates, fits, html, markdown, render, text
from oomlint.report.paint import Paint
from oomlint.report.runs import run_object, sentence
from oomlint.review import body
from oomlint.review.assess import RunChange
from oomlint.rule import Example, Severity
from oomlint.run import Run
from oomlint.testing import example_options
from oomlint.workspace import Workspace

_HERE = Path(__file__)
_ROOT = _HERE.parents[2]
_CORPUS = _ROOT / "../shared/corpus"
_NOWHERE = Path("/one-voice")
# Of the many files of each kind every n-th, so that all together take well below a minute.
_EVERY_EXAMPLE, _EVERY_FACT, _EVERY_OF_CORPUS = 4, 2, 150

_SIZE = r"(\d[\d,.]*)(?: ([GM]iB))?"
_NEEDS = (
    # "needs 88.7 of 79.1 GiB per GPU", "the run needs 88.9 GiB in the backward pass"
    rf"\bthe run needs {_SIZE}",
    rf"\bneeds? {_SIZE} of [\d,.]+ GiB (?:per GPU|of host RAM a node)",
    rf"\bclose to the limit: {_SIZE} of [\d,.]+ GiB",
    rf"\band: {_SIZE} of [\d,.]+ GiB (?:per GPU|of host RAM a node)",
    # "predicted peak 88.7 GiB per GPU (backward), 56.1 GiB per host", "as it is: 88.7 GiB per GPU"
    rf"\bpredicted peak {_SIZE} per GPU",
    rf"\b(?:peak|meant|written|is)\b[^:;|\n]*:? {_SIZE} per GPU",
    rf"per GPU(?: \([\w ]+\))?, {_SIZE} per host",
    rf"\bas written {_SIZE}:",
    rf"\bpeak falls from {_SIZE} ",
    rf": {_SIZE} at the peak",
    rf"^≈ {_SIZE}",
)
_LIMITS = re.compile(r"\([^()]*usable per GPU[^()]*\)")


@dataclass(frozen=True)
class Told:
    """A report and what to call it; a failing test prints the name, not all that was read."""

    name: str
    report: Report = field(repr=False)


def _of_texts(name: str, files: dict[str, str], options: Options) -> Told:
    workspace = Workspace(_NOWHERE, {path: data.encode() for path, data in files.items()})
    names = list(files)
    return Told(name, lint(workspace, names, options, explicit=frozenset(names)))


def _examples() -> Iterator[Told]:
    for folder in sorted((_ROOT / "examples").iterdir()):
        settings = folder / "oomlint.toml"
        if not folder.is_dir() or not settings.exists():
            continue
        names = sorted(
            p.relative_to(folder).as_posix()
            for p in folder.rglob("*")
            if p.is_file() and p.name != "oomlint.toml"
        )
        said = settings.read_text("utf-8")
        hardware = re.search(r'^hardware = "([^"]+)"', said, re.M)
        memory = re.search(r'^host-memory = "([^"]+)"', said, re.M)
        options = _options(hardware and hardware[1], memory and memory[1])
        yield Told(folder.name, lint(Workspace(folder), names, options))


def _options(hardware: str | None, host_memory: str | None) -> Options:
    return example_options(Example({}, hardware=hardware, host_memory=host_memory))


def _of_rules() -> Iterator[Told]:
    number = 0
    for rule in all_rules():
        for example in (*rule.bad, *rule.good):
            number += 1
            if number % _EVERY_EXAMPLE == 0:
                files = dict(example.files)
                yield _of_texts(f"{rule.name} {number}", files, example_options(example))


def _of_failures() -> Iterator[Told]:
    for folder in CASES:
        yield Told(folder.name, _report(folder, _case(folder)))


def _of_facts() -> Iterator[Told]:
    for case in cases("shown")[::_EVERY_FACT]:
        yield _of_texts(case.name, dict(case.files), _options(case.hardware, case.host_memory))


def _of_corpus() -> Iterator[Told]:
    files = sorted(p for p in _CORPUS.rglob("*") if p.suffix in (".yaml", ".yml", ".sh"))
    for file in files[::_EVERY_OF_CORPUS]:
        name = file.relative_to(_CORPUS).as_posix()
        options = _options("8xA100-80GB", "512GiB")
        yield Told(name, lint(Workspace(_CORPUS), [name], options))


_SOURCES = {
    "examples": _examples,
    "rules": _of_rules,
    "failures": _of_failures,
    "facts": _of_facts,
    "corpus": _of_corpus,
}


@pytest.fixture(scope="module", params=_SOURCES)
def told(request: pytest.FixtureRequest) -> list[Told]:
    if request.param == "corpus" and not _CORPUS.is_dir():
        pytest.skip("the corpus of real configs is not here")
    return list(_SOURCES[request.param]())


# -- what may be said --------------------------------------------------------------------


def _sizes(judgement: Judgement) -> set[str]:
    """Peaks and phases of both readings, as they are printed."""
    sizes: set[str] = set()
    for reading in (judgement.written, judgement.meant):
        if reading is not None:
            gpu, host = reading.estimate.gpu, reading.estimate.host
            known = (gpu.peak_bytes, host.peak_bytes, *gpu.phases.values(), *host.phases.values())
            sizes |= {gib(size) for size in known if size is not None}
    return sizes


def _needs(printed: str) -> set[str]:
    """What a text names as the need of a run."""
    plain = _LIMITS.sub("", " ".join(entities.unescape(printed).split()))
    found = set()
    for pattern in _NEEDS:
        for size, unit in re.findall(pattern, plain):
            found.add(f"{size.rstrip('.,')} {unit or 'GiB'}")
    return found


# -- what is said ------------------------------------------------------------------------


def _of_run(run: Run, report: Report) -> Iterator[tuple[str, str]]:
    """What the surfaces that show one run print of it."""
    judgement = judgement_of(run)
    yield "sentence", sentence(judgement.spoken)
    estimate = estimates.render([judgement])
    yield "estimate", estimate.partition("\nassumed:")[0]
    yield "html", re.sub(r"<[^>]+>", " ", html.render([judgement]).partition("<h2>Assumed")[0])
    yield "fit", fits.render([fits.Fitting(run, None, (), ())]).partition("\n  it would with")[0]
    yield "compare", comparing.render(compare(run, run)).partition("from A to B")[0]
    yield "code lens", hints.verdict_line(run)
    yield "inlay hint", hints._marked(judgement.spoken)
    yield "its tooltip", hints.breakdown(judgement)
    yield "markdown", _cells(markdown.table([judgement]))
    yield "review", _cells(body._table([RunChange(run.name, judgement, judgement)]))
    for diagnosis in report.diagnoses:
        if diagnosis.run is run:
            yield diagnosis.rule.name, diagnosis.finding.text


def _cells(lines: Iterable[str]) -> str:
    """A table of Markdown with its columns' names at the numbers."""
    rows = [line.split(" | ") for line in lines if re.search(r"\d [GM]iB", line)]
    return " | ".join(f"{row[0]} | peak: {row[2]} per GPU" for row in rows)


def _of_report(report: Report) -> Iterator[tuple[str, str]]:
    """What the formats print of all runs, without the rules' pages that some quote."""
    yield "text", text.render(report, verbose=True)
    for name in ("concise", "github"):
        for line in render(report, name, Paint()).splitlines():
            yield name, line
    for name in ("json", "gitlab", "rdjson", "lsp", "sarif"):
        for message in _messages(json.loads(render(report, name, Paint()))):
            yield name, message
    junit = ElementTree.fromstring(render(report, "junit", Paint()).encode())
    for failure in junit.iter("failure"):
        yield "junit", failure.text or ""


def _messages(value: Any) -> Iterator[str]:
    """The texts in a JSON value, but for descriptions of rules."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _messages(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            if key not in ("rules", "assumptions", "way", "fix"):
                yield from _messages(each)


# -- what must hold ----------------------------------------------------------------------


def test_every_need_is_one_of_the_judgement(told: list[Told]) -> None:
    wrong = []
    for each in told:
        everything: set[str] = set()
        for run in each.report.runs:
            allowed = _sizes(judgement_of(run))
            everything |= allowed
            for surface, printed in _of_run(run, each.report):
                wrong += [(each.name, surface, n) for n in _needs(printed) - allowed]
        for surface, printed in _of_report(each.report):
            wrong += [(each.name, surface, n) for n in _needs(printed) - everything]
    assert wrong == []


def test_a_finding_speaks_of_a_run_in_trouble_and_of_no_other(told: list[Told]) -> None:
    wrong = []
    for each in told:
        for run in each.report.runs:
            about = [d for d in each.report.diagnoses if d.run is run]
            judgement = judgement_of(run)
            if judgement.is_in_trouble and not any(map(_tells, about)):
                wrong.append((each.name, run.name, judgement.verdict, judgement.risk, "nothing"))
            if judgement.verdict == "fits":
                wrong += [
                    (each.name, run.name, "fits", d.rule.name, d.finding.message)
                    for d in about
                    if _overflows(d)
                ]
    assert wrong == []


def _tells(diagnosis: Diagnosis) -> bool:
    """Whether a finding says that a run is in trouble, as firmly as what it rests on allows."""
    finding = diagnosis.finding
    least = Severity.INFO if finding.evidence is Level.UNREAD else Severity.WARNING
    return finding.resource in ("gpu", "host") and finding.severity >= least


def _overflows(diagnosis: Diagnosis) -> bool:
    finding = diagnosis.finding
    needed, limit = finding.predicted_bytes, finding.limit_bytes
    is_peak = diagnosis.run is not None and needed in _peaks(judgement_of(diagnosis.run))
    return (
        finding.resource in ("gpu", "host")
        and finding.severity >= Severity.WARNING
        and is_peak
        and needed is not None
        and limit is not None
        and needed > limit
    )


def _peaks(judgement: Judgement) -> set[int | None]:
    estimate = judgement.spoken.estimate
    return {estimate.gpu.peak_bytes, estimate.host.peak_bytes}


def test_a_run_and_its_object_have_one_verdict(told: list[Told]) -> None:
    for each in told:
        for run in each.report.runs:
            judgement = judgement_of(run)
            shape = run_object(judgement)
            meant = shape["as_meant"]
            assert judgement.verdict == (shape if meant is None else meant)["verdict"]
            assert (meant is None) == (not run.misspelt)
            if meant is None:
                continue
            # Wherever there is one number, the words for the reading are beside it.
            for surface, printed in _of_run(run, each.report):
                if _needs(printed):
                    assert "meant" in printed or "read as" in printed, (each.name, surface)
