"""Whatever is printed of a run says the same: the needs, the readings and the verdict of its judgement.

Over the shipped examples, the rules' examples, the real failures, the shown half of the dated facts and,
where it is at hand, a sample of the corpus. What a surface prints as the need of a run is read back
out of its text: it must be a peak or a phase of the run as it is written or as it is meant, or what it
needs if it is another than it is taken for. That the texts are read at all is tried too: a surface that
said another number, or another word, is found.
"""

from __future__ import annotations

import html as entities
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from benchmarks.threads import cases
from tests.test_real_failures import CASES, _case, _report

from oomlint.config.settings import ActiveSettings, Settings
from oomlint.files.workspace import Workspace
from oomlint.judgement import Judgement, judgement_of, words
from oomlint.judgement.comparison import compare
from oomlint.linting.engine import Diagnosis, Options, Report, all_rules, lint
from oomlint.linting.rule import Example, Severity
from oomlint.linting.testing import example_options
from oomlint.lsp import commands, hints, hover, keys
from oomlint.lsp.pages import Pages
from oomlint.lsp.project import Analysis
from oomlint.lsp.view import Client, View
from oomlint.plan.evidence import Level
from oomlint.report import compare as comparing, estimates, fits, html, markdown, render, text
from oomlint.report.paint import Paint
from oomlint.report.runs import run_object
from oomlint.review import body, cards
from oomlint.review.assess import RunChange
from oomlint.runs.run import Run
from oomlint.session.jobs import Job
from oomlint.wording.amounts import gib, of_gib

_HERE = Path(__file__)
_ROOT = _HERE.parents[2]
_CORPUS = _ROOT / "../shared/corpus"
_NOWHERE = Path("/one-voice")
# Of the many files of each kind every n-th, so that all together take well below a minute.
_EVERY_EXAMPLE, _EVERY_FACT, _EVERY_OF_CORPUS = 4, 2, 150
# Hovers and ways to fit try what else a run may be, which takes longer than all the rest.
_EVERY_IN_EDITOR = 12

_SIZE = r"(\d[\d,.]*)(?: ([GM]iB))?"
_NEEDS = (
    # "needs 88.7 of 79.1 GiB per GPU", "the run needs 88.9 GiB in the backward pass"
    rf"\bthe run needs {_SIZE}",
    rf"\bneeds? {_SIZE} of [\d,.]+ GiB (?:per GPU|of host RAM a node)",
    # "needs 13.7 of 79.1 GiB per GPU ..., and 90.2 if loading dtype is fp32", "needs 60.1 to 95.3 of ..."
    rf", and {_SIZE} (?:if|otherwise)\b",
    rf"\bneeds? {_SIZE} to [\d,.]+ of [\d,.]+ GiB",
    rf"\bneeds? [\d,.]+ to {_SIZE} of [\d,.]+ GiB",
    rf"\bit needs {_SIZE} if ",
    # "predicted peak 88.7 GiB per GPU (backward), 56.1 GiB per host", "as it is: 88.7 GiB per GPU"
    rf"\bpredicted peak {_SIZE} per GPU",
    rf"\b(?:peak|meant|written|is)\b[^:;|\n]*:? {_SIZE} per GPU",
    rf"per GPU(?: \([\w ]+\))?, {_SIZE} per host",
    rf"\bas written {_SIZE}:",
    rf"\bpeak falls from {_SIZE} ",
    rf": {_SIZE} at the peak",
    rf"^≈ {_SIZE}",
    # "| as it is | 88.7 GiB of 79.1 GiB | 56.1 GiB |", "Moves no predicted peak here (17.4 GiB per GPU"
    rf"\| as (?:it is|meant[^|]*|written) \| {_SIZE}",
    rf"\| as (?:it is|meant[^|]*|written) \| [^|]+ \| {_SIZE}",
    rf"\bno predicted peak here \({_SIZE} per GPU",
)
# A verdict, in the words in force or in any that were ever used for one; not "fits on: A100-40GB".
_VERDICTS = re.compile(
    r"\bunknown whether it fits\b|\b(?:may|(?:probably )?does|will) not fit\b|\b(?:tight|good) fit\b"
    r"|\bends before its first step\b|(?<![GM]iB )\btoo much\b|\bclose to the limit\b|\bmay need more\b|\bfits\b(?! on\b| without --)"
)
_LIMITS = re.compile(r"\([^()]*usable per GPU[^()]*\)")


# Those that say of each run whether it fits.
_WITH_A_VERDICT = {
    "sentence", "in one line", "estimate", "html", "fit", "ways", "code lens", "status bar's words",
    "its tooltip", "markdown", "review",
}  # fmt: skip
_NO_SETTINGS = ActiveSettings(Settings())


@dataclass(frozen=True)
class Told:
    """A report and what to call it; a failing test prints the name, not all that was read."""

    name: str
    report: Report = field(repr=False)
    options: Options = field(repr=False)
    is_hovered: bool = True
    """Whether it is asked what an editor shows on request."""


def _of_texts(name: str, files: dict[str, str], options: Options) -> Told:
    workspace = Workspace(_NOWHERE, {path: data.encode() for path, data in files.items()})
    names = list(files)
    return Told(name, lint(workspace, names, options, explicit=frozenset(names)), options)


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
        yield Told(folder.name, lint(Workspace(folder), names, options), options)


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
        yield Told(folder.name, _report(folder, _case(folder)), Options())


def _of_facts() -> Iterator[Told]:
    for case in cases("shown")[::_EVERY_FACT]:
        yield _of_texts(case.name, dict(case.files), _options(case.hardware, case.host_memory))


def _of_corpus() -> Iterator[Told]:
    files = sorted(p for p in _CORPUS.rglob("*") if p.suffix in (".yaml", ".yml", ".sh"))
    for file in files[::_EVERY_OF_CORPUS]:
        name = file.relative_to(_CORPUS).as_posix()
        options = _options("8xA100-80GB", "512GiB")
        yield Told(name, lint(Workspace(_CORPUS), [name], options), options)


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
    found = list(_SOURCES[request.param]())
    if request.param != "examples":
        found = [
            replace(each, is_hovered=n % _EVERY_IN_EDITOR == 0) for n, each in enumerate(found)
        ]
    return found


@pytest.fixture(scope="module")
def said(told: list[Told]) -> list[Said]:
    return list(_said(told))


# -- what may be said --------------------------------------------------------------------


def _sizes(judgement: Judgement) -> set[str]:
    """Peaks and phases of both readings, as they are printed."""
    sizes: set[str] = set()
    for reading in (judgement.written, judgement.meant):
        if reading is not None:
            gpu, host = reading.estimate.gpu, reading.estimate.host
            known = (gpu.peak_bytes, host.peak_bytes, *gpu.phases.values(), *host.phases.values())
            sizes |= {gib(size) for size in known if size is not None}
    for doubt in judgement.spoken.doubts:
        gpu, host = doubt.estimate.gpu, doubt.estimate.host
        sizes |= {gib(size) for size in (gpu.peak_bytes, host.peak_bytes) if size is not None}
    sizes |= {gib(peak.upper) for peak in judgement.peaks if peak.upper is not None}
    sizes |= {gib(peak.least.need) for peak in judgement.peaks if peak.least is not None}
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


def _of_run(run: Run, told: Told) -> Iterator[tuple[str, str]]:
    """What the surfaces that show one run print of it."""
    report, judgement = told.report, judgement_of(run)
    yield "sentence", words.sentence(judgement.spoken)
    if judgement.peaks:
        yield "in one line", words.in_trouble(judgement)
    estimate = estimates.render([judgement])
    yield "estimate", estimate.partition("\nassumed:")[0]
    yield (
        "html",
        re.sub(
            r"<[^>]+>",
            " ",
            html.render([judgement]).partition("</style>")[2].partition("<h2>Assumed")[0],
        ),
    )
    yield "fit", fits.render([fits.Fitting(run, None, (), ())]).partition("\n  it would with")[0]
    yield "compare", comparing.render(compare(run, run)).partition("from A to B")[0]
    yield "code lens", hints.verdict_line(run)
    yield "inlay hint", hints.marked(judgement.spoken)
    yield "its tooltip", hints.breakdown(judgement)
    yield "markdown", _cells(markdown.table([judgement]))
    yield "review", _cells(body.table([RunChange(run.name, judgement, judgement)]))
    yield from _in_editor(run, told)
    for diagnosis in report.diagnoses:
        if diagnosis.run is run:
            yield diagnosis.rule.name, diagnosis.finding.text


def _in_editor(run: Run, told: Told) -> Iterator[tuple[str, str]]:
    """What an editor is told of a run besides its findings."""
    path = next(iter(run.files))
    names = told.report.files
    job = Job(told.report.workspace, tuple(names), frozenset(names), told.options, _NO_SETTINGS)
    analysis = Analysis(path, job, told.report, {})
    for each in hints.status(analysis)["runs"]:
        if each["name"] == run.name:
            yield "status bar", each["short"]
            yield "status bar's words", each["text"]
    if not told.is_hovered:
        return
    # The ways are the planner's, and what they leave is no need of the run: none are looked for.
    analysis.cache["ways", id(run)] = []
    if run.estimate.gpu.peak_bytes is not None:
        page = commands.fit(analysis, run).markdown
        yield "ways", page.partition("\n  as it is, it would fit on")[0]
    view = View(analysis, Client(), {}, Pages())
    place = next((k for k in keys.keys_of(run, path) if k.row.field in keys._KNOBS), None)
    if place is not None:
        at = view.positions(path).at(place.entry.span.start)
        shown = hover.hover(view, at)
        if shown is not None:
            yield "hover", _of_this(run, shown.contents.value)


def _of_this(run: Run, text: str) -> str:
    """Of a hover over a key of several runs the part that is about one."""
    parts = text.split("#### ")
    return next((part for part in parts if part.startswith(f"{run.name}\n")), parts[0])


@dataclass(frozen=True)
class Said:
    """What one surface prints of one run."""

    name: str
    surface: str
    judgement: Judgement = field(repr=False)
    printed: str = field(repr=False)


def _said(told: Iterable[Told]) -> Iterator[Said]:
    for each in told:
        for run in each.report.runs:
            judgement = judgement_of(run)
            for surface, printed in _of_run(run, each):
                yield Said(each.name, surface, judgement, printed)


def _cells(lines: Iterable[str]) -> str:
    """A table of Markdown with its columns' names at the numbers."""
    plain = (re.sub(r" \([^()]* to [^()]*\)", "", line) for line in lines)
    rows = [line.split(" | ") for line in plain if re.search(r"\d [GM]iB", line)]
    return " | ".join(f"{row[0]} | peak: {row[2]} per GPU | {row[-1]}" for row in rows)


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


def _strangers(said: Iterable[Said]) -> set[tuple[str, str, str]]:
    """Needs that are none of the judgement: of what, by which surface, how much."""
    return {
        (each.name, each.surface, need)
        for each in said
        for need in _needs(each.printed) - _sizes(each.judgement)
    }


def _other_words(said: Iterable[Said]) -> set[tuple[str, str, str]]:
    """Words for a verdict that are not those of the run as it is written, or as it is meant."""
    return {
        (each.name, each.surface, other)
        for each in said
        if each.surface in _WITH_A_VERDICT
        for other in _verdicts(each.printed) - _words_of(each.judgement)
    }


def _verdicts(printed: str) -> set[str]:
    return set(_VERDICTS.findall(" ".join(entities.unescape(printed).split())))


def _words_of(judgement: Judgement) -> set[str]:
    """Of its memory, and of one that ends before, that it does."""
    readings = (judgement, judgement.written)
    return {said(each).one for each in readings for said in (words.wording, words.of_memory)}


@pytest.mark.slow
def test_every_need_is_one_of_the_judgement(told: list[Told], said: list[Said]) -> None:
    assert _strangers(said) == set()
    wrong = []
    for each in told:
        known = set().union(*(_sizes(judgement_of(run)) for run in each.report.runs))
        for surface, printed in _of_report(each.report):
            wrong += [(each.name, surface, n) for n in _needs(printed) - known]
    assert wrong == []


@pytest.mark.slow
def test_every_verdict_has_the_same_words(said: list[Said]) -> None:
    assert _other_words(said) == set()


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
    """Whether a finding says that a run is in trouble, as firmly as what it rests on allows; where the
    judgement itself makes a remark of it, a remark is enough."""
    finding, run = diagnosis.finding, diagnosis.run
    peaks = () if run is None else judgement_of(run).peaks
    is_remark = any(p.resource == finding.resource and p.severity is Severity.INFO for p in peaks)
    is_open = finding.evidence is Level.UNREAD or is_remark
    least = Severity.INFO if is_open else Severity.WARNING
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


def test_where_there_is_one_number_its_reading_stands_beside_it(said: list[Said]) -> None:
    for each in said:
        if each.judgement.meant is not None and _needs(each.printed):
            assert "meant" in each.printed or "read as" in each.printed, each


# -- that it would be found --------------------------------------------------------------


@pytest.fixture(scope="module")
def two() -> list[Told]:
    """Two examples: a run with a misspelt key, and one at risk by what its prediction rests on."""
    wanted = ("axolotl-no-checkpointing", "llama-recipes-fsdp")
    return [told for told in _examples() if told.name in wanted]


def test_each_surface_is_read(two: list[Told]) -> None:
    said = list(_said(two))
    silent = {each.surface for each in said} - {
        each.surface for each in said if _needs(each.printed)
    }
    assert silent <= {rule.name for rule in all_rules()}
    assert {each.surface for each in said if _verdicts(each.printed)} >= _WITH_A_VERDICT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "surfaces"),
    [
        (words, {"sentence", "in one line", "code lens", "status bar's words"}),
        (hints, {"status bar", "inlay hint"}),
        (hover, {"hover"}),
        (fits, {"fit", "ways"}),
        (estimates, {"estimate"}),
        (html, {"html"}),
        (markdown, {"markdown"}),
        (cards, {"review"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_another_number_would_be_found(
    module: Any, surfaces: set[str], two: list[Told], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "gib", lambda size: gib(size and size * 1.07))
    if module is words:
        monkeypatch.setattr(module, "of_gib", lambda size, limit: of_gib(size * 1.07, limit))
    if module is not hover:
        two = [replace(told, is_hovered=module is fits) for told in two]
    assert {surface for _, surface, _ in _strangers(_said(two))} >= surfaces


def test_another_word_would_be_found(two: list[Told], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fits, "verdict_of_it", lambda _verdict: "a tight fit")
    monkeypatch.setattr(html, "verdict_words", lambda _verdict: "will not fit")
    assert {surface for _, surface, _ in _other_words(_said(two))} == {"fit", "ways", "html"}
