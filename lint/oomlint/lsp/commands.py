"""What the commands of the server answer: the estimate, ways to fit, a rule's page, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import unified_diff
from typing import Any

from msgspec import Struct

from oomlint.documents.text import Edit, by_path
from oomlint.errors import CannotEdit, UsageError
from oomlint.fix.apply import apply_change
from oomlint.fix.edits import Planned
from oomlint.fix.planned import fix_of, no_more_refused
from oomlint.judgement import judgement_of
from oomlint.judgement.planner import Way, hardware_options, ways_to_fit
from oomlint.linting.engine import all_rules
from oomlint.lsp.project import Analysis
from oomlint.lsp.ways_page import ways_page
from oomlint.report import estimates, fits, html
from oomlint.runs.run import Run


class CommandPage(Struct, frozen=True):
    """A page for the user; ``html`` where there is a richer one."""

    title: str
    markdown: str
    html: str | None = None
    run: str | None = None
    """The run that it is about."""


def run_named(analysis: Analysis, name: str | None) -> Run:
    """The run that a client means; the only one, or the first, where it names none.

    Raises:
        UsageError: the document is part of no such run.
    """
    for run in analysis.runs:
        if name is None or run.name == name:
            return run
    raise UsageError(f"{analysis.name} is part of no training run that oomlint can see")


def estimate(analysis: Analysis, run: Run) -> CommandPage:
    judgement = judgement_of(run)
    text = estimates.render([judgement])
    return CommandPage(f"Memory of {run.name}", _fenced(run.name, text), html.render([judgement]))


def fit(analysis: Analysis, run: Run) -> CommandPage:
    ways = ways_of(analysis, run)
    judgement = judgement_of(run)
    helpless = not ways and (judgement.is_lost or judgement.verdict == "unknown")
    fitting = fits.Fitting(run, None, ways, hardware_options(run) if helpless else [])
    title = f"Ways to fit {run.name}"
    if not ways:
        return CommandPage(title, _fenced(run.name, fits.render([fitting])), run=run.name)
    written = [(way, _difference(analysis, way)) for way in ways]
    return CommandPage(title, ways_page(run, written), run=run.name)


def _difference(analysis: Analysis, way: Way) -> str:
    """What a way writes, as a diff; why it cannot be written, where that is so."""
    fix = fix_of(way)
    if fix is None or not fix.edits:
        return (fix.reason if fix is not None else None) or "the files cannot say it"
    lines: list[str] = []
    for path, edits in by_path(fix.edits).items():
        old = analysis.source(path)
        new = old.edited(edits)
        lines += unified_diff(
            old.text.splitlines(), new.text.splitlines(), path, path, "", "", 1, ""
        )
    return "\n".join(lines)


def taking(analysis: Analysis, run: Run, number: int | None) -> tuple[Edit, ...]:
    """The edits that take way ``number`` (1 is the first) of a run, proven.

    Raises:
        UsageError: there is no such way.
        CannotEdit: the files cannot take it.
    """
    ways = ways_of(analysis, run)
    if number is None or not 1 <= number <= len(ways):
        raise UsageError(f"{run.name} has {len(ways)} ways to fit")
    fix = fix_of(ways[number - 1])
    if fix is None or not fix.edits:
        raise CannotEdit((fix.reason if fix is not None else None) or "the files cannot say it")
    job = analysis.job
    apply_change(job.workspace, job.names, job.options, Planned(run, fix))
    return fix.edits


def explain(name: str | None) -> CommandPage:
    """A rule's page.

    Raises:
        UsageError: no rule is called so.
    """
    for rule in all_rules():
        if name in (rule.name, rule.code):
            return CommandPage(rule.name, rule.page())
    raise UsageError("no rule is named" if name is None else f"no rule is called {name!r}")


def hardware() -> list[Mapping[str, Any]]:
    """The cards that a client may offer, smallest first."""
    from oomlint.hardware import list_gpus

    cards = sorted((g for g in list_gpus() if not g.rare), key=lambda g: (g.total_bytes, g.name))
    return [{"name": gpu.name, "gib": round(gpu.total_bytes / 2**30, 1)} for gpu in cards]


def ways_of(analysis: Analysis, run: Run) -> list[Way]:
    """The ways to fit, kept with the analysis: they take a moment to find."""
    key = ("ways", id(run))
    if key not in analysis.cache:
        accepts = no_more_refused(run, analysis.job.options.plugins)
        analysis.cache[key] = ways_to_fit(run, accepts=accepts)
    found = analysis.cache[key]
    assert isinstance(found, list)
    return found


def _fenced(title: str, text: str) -> str:
    return f"# {title}\n\n```text\n{text.rstrip()}\n```\n"
