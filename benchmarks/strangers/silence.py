"""Of strangers' main training runs: how many of those that die oomlint tells of, and how many that fit it calls so.

Findings that were read say what a word is worth that was said; what was not said is nowhere among them. A row is a
repository that nobody had looked at, drawn by a hash of its name, with its main run as its author starts it, and what
would become of that run on the hardware of ``options``, decided by hand from its files before any mend: it ``dies`` of
memory, ``fits``, ``ends otherwise`` or ``no file tells``. ``said`` is the verdict of that day on the run ``named``, or that
there was ``no run`` at all, ``silent`` why it says no more. The first counts these; of checkouts at these commits (a folder
each, ``OWNER__NAME``) the second says what the verdict on ``program`` is today, and what has changed::

    python -m benchmarks.strangers.silence
    python -m benchmarks.strangers.silence FOLDER

The second and third sets are of repositories of which no finding was printed, so that no row of them can be one that is told to
die.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path

from benchmarks.strangers.__main__ import options_of

from oomlint.documents import SUFFIXES
from oomlint.files.disk import walk
from oomlint.files.workspace import Workspace
from oomlint.judgement import judgement_of
from oomlint.linting.engine import link

_HERE = Path(__file__).parent
MAIN_RUNS = _HERE / "silence-1.jsonl"
NOTHING_SAID = _HERE / "silence-2.jsonl"
STILL_NOTHING_SAID = _HERE / "silence-3.jsonl"
SETS = {
    "Main runs of repositories": MAIN_RUNS,
    "Main runs of repositories without a finding": NOTHING_SAID,
    "Main runs of further ones without a finding": STILL_NOTHING_SAID,
}
OUTCOMES = ("dies", "fits", "ends otherwise", "no file tells")
NO_RUN = "no run"
WORDS = ("does_not_fit", "tight", "fits", "unknown", NO_RUN)
# Which of several runs of one program is told: the worst.
_WORST_FIRST = ("does_not_fit", "tight", "unknown", "fits")


@dataclass(frozen=True)
class Row:
    """A stranger's main run, what would become of it, and what was said."""

    repo: str
    commit: str
    run: str
    options: str
    would: str
    reckoned: str
    how: str
    said: str
    program: str
    named: str
    silent: str


def read(file: Path) -> list[Row]:
    names = {field.name for field in fields(Row)}
    lines = map(json.loads, file.read_text("utf-8").splitlines())
    return [Row(**{name: line[name] for name in names}) for line in lines]


def table(rows: Iterable[Row]) -> Iterator[str]:
    """What was said of the runs, by what would become of them."""
    counted = Counter((row.would, row.said) for row in rows)
    yield "| the run | runs | " + " | ".join(word.replace("_", " ") for word in WORDS) + " |"
    yield "|---" * (len(WORDS) + 2) + "|"
    for outcome in OUTCOMES:
        cells = [counted[outcome, word] for word in WORDS]
        yield f"| {outcome} | {sum(cells)} | " + " | ".join(map(str, cells)) + " |"


def said_now(row: Row, checkouts: Path) -> str | None:
    """The verdict on a row's program today; None without a checkout."""
    folder = checkouts.resolve() / row.repo.replace("/", "__")
    if not folder.is_dir():
        return None
    workspace = Workspace(folder)
    names = [workspace.name(file) for file in walk(folder, SUFFIXES)]
    runs = link(workspace, names, options_of(row.options)).runs
    own = [run for run in runs if run.name.split(" (")[0] == row.program]
    named = [run for run in runs if run.name == row.named]
    # A run that was sought where no program starts is the program's once that is followed.
    chosen = own if row.program != row.named.split(" (")[0] and own else named or own
    verdicts = {judgement_of(run).verdict for run in chosen}
    return next((word for word in _WORST_FIRST if word in verdicts), NO_RUN)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkouts", type=Path, nargs="?")
    given = parser.parse_args()
    for name, file in SETS.items():
        rows = read(file)
        if given.checkouts is not None:
            rows = list(today(rows, given.checkouts))
        print(f"{name}\n\n" + "\n".join(table(rows)) + "\n")


def today(rows: Iterable[Row], checkouts: Path) -> Iterator[Row]:
    """The rows of which there is a checkout, with the verdict of today; what differs is printed."""
    for row in rows:
        said = said_now(row, checkouts)
        if said is None:
            print(f"{row.repo}: no checkout", file=sys.stderr)
            continue
        if said != row.said:
            print(f"{row.repo} {row.program}: {row.would}; {row.said} at first, {said} now")
        yield replace(row, said=said)


if __name__ == "__main__":
    main()
