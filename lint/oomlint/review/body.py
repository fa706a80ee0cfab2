"""The summary of a review: the memory of the runs before and after, and what fits in no comment."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from oomlint import __version__
from oomlint.documents.text import Source
from oomlint.judgement import Forecast
from oomlint.report import diff
from oomlint.report.markdown import AS_WRITTEN, escaped, line, verdict
from oomlint.report.places import Places
from oomlint.review.assess import Assessment, RunChange
from oomlint.review.comment import Topic, digest, quiet
from oomlint.review.suggest import Remedy, change_of
from oomlint.rule import gib

MOST_RUNS = 50
_MOST_LISTED = 50
_MARK = re.compile(r"<!-- oomlint:summary ([0-9a-f]{16}) -->")


class Rest(Struct, frozen=True, eq=False):
    """What no comment on a line says: findings elsewhere, and remedies that reach elsewhere."""

    topics: Sequence[Topic]
    remedies: Sequence[Remedy]


def summary(
    assessment: Assessment,
    rest: Rest,
    sources: Mapping[str, Source],
    *,
    in_comments: int,
    most: int,
    notes: Sequence[str] = (),
) -> str:
    """The summary in at most ``most`` characters: diffs go first, then findings.

    ``in_comments``: how many findings have comments on their lines.
    """
    places = Places(assessment.report)
    head = [*_table(assessment.runs), "", *_counts(assessment, in_comments), *notes]
    listed = list(_listed(rest.topics, places, _MOST_LISTED))
    foot = f"\n<sub>oomlint {__version__}</sub>"
    for parts in (
        (*head, *listed, *_diffs(rest.remedies, sources)),
        (*head, *listed, *_commands(rest.remedies)),
        (*head, *_listed(rest.topics, places, 5)),
        head,
    ):
        text = "\n".join((*parts, foot))
        if len(text) < most - 100:
            break
    else:
        text = text[: most - 200] + f"\n\n…{foot}"
    return f"{text}\n<!-- oomlint:summary {digest(text)} -->"


def is_summary(body: str) -> bool:
    return _MARK.search(body) is not None


# -- the table ----------------------------------------------------------------------------


def _table(runs: Sequence[RunChange]) -> Iterator[str]:
    yield "### Memory of the training runs that this concerns"
    yield ""
    shown = [run for run in runs if not run.is_fragment]
    if not shown:
        yield "No whole training run is concerned."
        return
    yield "| run | hardware | per GPU | per host | per GPU while saving | verdict |"
    yield "| --- | --- | ---: | ---: | ---: | --- |"
    # What changes is what people look for.
    for run in sorted(shown, key=lambda run: not run.has_changed)[:MOST_RUNS]:
        yield from _rows(run)
    if len(shown) > MOST_RUNS:
        yield ""
        yield f"and {len(shown) - MOST_RUNS} more runs"


def _rows(run: RunChange) -> Iterator[str]:
    """The run as findings speak of it; one with misspelt keys, before or after, as it is written too."""
    before, after = run.before, run.after
    spoken = [each.spoken if each is not None else None for each in (before, after)]
    because = dict.fromkeys(text for each in spoken if each is not None for text in each.because)
    yield _row(run, spoken, f" (with {escaped(' and '.join(because))})" if because else "")
    if because:
        written = [each.written if each is not None else None for each in (before, after)]
        yield _row(run, written, f" ({AS_WRITTEN})")


def _row(run: RunChange, sides: Sequence[Forecast | None], reading: str) -> str:
    name = _code(run.name) + reading
    if run.before is None:
        name += " (new)"
    if run.after is None:
        name += " (no more)"
    cells = [
        name,
        _arrow(sides, lambda f: f.hardware.name if f.hardware else "unknown"),
        _arrow(sides, lambda f: _peak(f.estimate.gpu.peak_bytes)),
        _arrow(sides, lambda f: _peak(f.estimate.host.peak_bytes)),
        _arrow(sides, lambda f: _peak(f.estimate.gpu.phases.get("save"), "never")),
        quiet(_arrow(sides, verdict)),
    ]
    return f"| {' | '.join(cells)} |"


def _code(text: str) -> str:
    """A name of a file as it is written, in a table."""
    for sign, other in (("`", "'"), ("|", "¦")):
        text = text.replace(sign, other)
    return f"`{' '.join(text.split())}`"


def _peak(size: int | None, without: str = "not known") -> str:
    return without if size is None else gib(size)


def _arrow(sides: Sequence[Forecast | None], cell: Callable[[Forecast], str]) -> str:
    """``61.2 GiB → **74.3 GiB**``, or the one value where nothing changes."""
    before, after = (None if side is None else cell(side) for side in sides)
    if before is not None and after is not None and before != after:
        return f"{before} → **{after}**"
    return after or before or ""


# -- the findings ---------------------------------------------------------------------------


def _counts(assessment: Assessment, in_comments: int) -> Iterator[str]:
    caused = len(assessment.report.diagnoses)
    if caused:
        where = {0: "", caused: ", in comments below"}.get(
            in_comments, f", {in_comments} of them in comments below"
        )
        yield f"This change causes {_count(caused, 'finding')}{where}."
    else:
        yield "This change causes no finding."
    if assessment.mended:
        yield f"It does away with {_count(len(assessment.mended), 'finding')}."
    if assessment.known:
        was = "was" if len(assessment.known) == 1 else "were"
        yield f"{_count(len(assessment.known), 'finding')} in these runs {was} there before and {was} left out."
    for error in assessment.report.errors[:_MOST_LISTED]:
        where = error.path if error.line is None else f"{error.path}:{error.line}"
        yield f"- ❌ `{where}` cannot be read: {quiet(escaped(error.message))}"


def _listed(topics: Sequence[Topic], places: Places, most: int) -> Iterator[str]:
    if not topics:
        return
    yield ""
    yield "#### Findings on lines that the diff does not show"
    yield ""
    findings = [diagnosis for topic in topics for diagnosis in topic.members]
    for diagnosis in findings[:most]:
        yield quiet(line(diagnosis, places))
    if len(findings) > most:
        yield f"- and {len(findings) - most} more"


def _diffs(remedies: Sequence[Remedy], sources: Mapping[str, Source]) -> Iterator[str]:
    for remedy in remedies:
        changes = change_of(remedy, sources)
        text = diff.render(
            {path: after for path, (_, after) in changes.items()},
            {path: before for path, (before, _) in changes.items()},
        )
        fence = "`" * max(4, *(len(run) + 1 for run in re.findall("`+", text)), 4)
        yield ""
        yield f"<details><summary>A fix beyond the diff: {_title(remedy)}</summary>"
        yield ""
        yield f"{fence}diff\n{text}{fence}"
        yield ""
        yield f"`{command(remedy.paths)}` does this too."
        yield "</details>"


def _commands(remedies: Sequence[Remedy]) -> Iterator[str]:
    if remedies:
        paths = dict.fromkeys(path for remedy in remedies for path in remedy.paths)
        yield ""
        yield f"Fixes beyond the diff: run `{command(list(paths)[:20])}`."


def command(paths: Sequence[str]) -> str:
    """What to type to have the fixes of some files."""
    return f"oomlint check --fix {shlex.join(paths)}".replace("`", "'")


def _title(remedy: Remedy) -> str:
    titles = dict.fromkeys(d.fix.title for d in remedy.fixes if d.fix is not None)
    return quiet(escaped("; ".join(titles)))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
