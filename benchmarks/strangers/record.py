"""What became of the findings of each rule at first sight, by the ground that they stand on.

::

    python -m benchmarks.strangers.record                        # each rule and severity
    python -m benchmarks.strangers.record --by place --rule OOM904 OOM801
    python -m benchmarks.strangers.record --by reader --rule OOM904 OOM801
    python -m benchmarks.strangers.record --left-out             # what a law learnt of the other draws would leave
    python -m benchmarks.strangers.record --grounds FOLDER       # who reads the files of findings, of checkouts

A finding's *place* is the kind of file that it points into. Its *reader* is who is seen to read that file: the ``own
program`` of the project, a framework that a ``command`` or a guide here starts, ``nothing`` (a config of a run that nothing
here starts), or a framework of which the file is a ``part`` (a DeepSpeed JSON, an Accelerate YAML) that no run was found for.
Readers are what today's oomlint makes of checkouts (``grounds.jsonl``, printed by ``--grounds`` with what it says there now).
Of repositories that were not at hand, and of files that it takes for no training config any more, they are ``not known``;
where the reading says who reads the file, that stands in the row by hand (``by_hand``).

A *cell* is a rule with a severity, and with a place or a reader. Left out, one draw after the other: findings of a cell
would be remarks of which the other draws had a smaller share of true ones among the true and the false than is named.
Draws before the fourteenth, which were read when the tool was another, are not counted, nor, unless ``--to-draw`` says
so, those after the thirty-fifth: the laws were chosen on the others, and these say what they are worth.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from benchmarks.strangers.__main__ import FINDINGS, options_of

from oomlint.documents import (
    JSON_SUFFIXES,
    PYTHON_SUFFIXES,
    SUFFIXES,
    TOML_SUFFIXES,
    YAML_SUFFIXES,
    kind_of,
)
from oomlint.documents.text import Location
from oomlint.files.disk import walk
from oomlint.files.workspace import Workspace
from oomlint.linting.engine import lint
from oomlint.linting.rule import Severity
from oomlint.runs.run import Run

GROUNDS = Path(__file__).with_name("grounds.jsonl")
FIRST_DRAW, LAST_DRAW = 14, 35
VERDICTS = ("true", "moot", "false", "open")
# A cell of fewer decided findings of other draws is left as it is.
_FEWEST = 3
_SHARES = (0.3, 0.4, 0.5)
# A finding may move a few lines as it learns to point at its cause.
_NEAR = 15
_PLACES = (
    (PYTHON_SUFFIXES, "Python"),
    (YAML_SUFFIXES, "YAML"),
    (JSON_SUFFIXES, "JSON"),
    (TOML_SUFFIXES, "TOML"),
    ((".ipynb",), "notebook"),
    (("",), "guide"),
)
UNKNOWN = "not known"


@dataclass(frozen=True)
class Read:
    """A finding that was read at first sight."""

    draw: int
    repo: str
    path: str
    line: int
    rule: str
    severity: str
    verdict: str
    options: str

    @property
    def place(self) -> str:
        """The kind of file that it points into; what is no file of data or code is a command of the shell."""
        kind = kind_of(self.path)
        return next((name for kinds, name in _PLACES if kind in kinds), "shell")

    @property
    def key(self) -> Key:
        return (self.repo, self.path, self.line, self.rule, self.options)


@dataclass(frozen=True)
class Ground:
    """Who reads the file of a finding, and how severe what is said there is today."""

    reader: str
    today: str = ""
    by_hand: bool = False


Key: TypeAlias = "tuple[str, str, int, str, str]"
Cell: TypeAlias = "tuple[str, ...]"
CellOf: TypeAlias = "Callable[[Read], Cell]"


def draw_of(file: Path) -> int:
    """The number of the draw whose findings a file has; 0 of those that are no draw."""
    found = re.fullmatch(r"findings-(\d+)[a-z]?", file.stem)
    return int(found.group(1)) if found else 0


def findings(last: int = LAST_DRAW) -> Iterator[Read]:
    """What was read of the draws from the fourteenth to the last."""
    for file in FINDINGS:
        draw = draw_of(file)
        if not FIRST_DRAW <= draw <= last:
            continue
        for line in file.read_text("utf-8").splitlines():
            row = json.loads(line)
            code = row["rule"].split()[0]
            yield Read(
                draw, row["repo"], row["path"], row["line"], code,
                row["severity"], row["verdict"], row["options"],
            )  # fmt: skip


def grounds() -> Mapping[Key, Ground]:
    found = {}
    for line in GROUNDS.read_text("utf-8").splitlines():
        row = json.loads(line)
        key = (row["repo"], row["path"], row["line"], row["rule"], row["options"])
        found[key] = Ground(row["reader"], row.get("today", ""), row.get("by_hand", False))
    return found


# -- counting ----------------------------------------------------------------------------


def cells(by: str) -> CellOf:
    """How findings are put together."""
    if by == "place":
        return lambda each: (each.rule, each.severity, each.place)
    if by == "reader":
        known = grounds()
        return lambda each: (each.rule, each.severity, _reader(known, each))
    if by == "draw":
        return lambda each: (each.rule, each.severity, str(each.draw))
    return lambda each: (each.rule, each.severity)


def _reader(known: Mapping[Key, Ground], finding: Read) -> str:
    ground = known.get(finding.key)
    return UNKNOWN if ground is None else ground.reader


def counted(read: Iterable[Read], cell_of: CellOf) -> Mapping[Cell, Counter[str]]:
    found: dict[Cell, Counter[str]] = defaultdict(Counter)
    for each in read:
        found[cell_of(each)][each.verdict] += 1
    return found


def precision(counts: Mapping[str, int]) -> float | None:
    """The true among the true and the false, if there are any."""
    decided = counts["true"] + counts["false"]
    return counts["true"] / decided if decided else None


def table(read: Sequence[Read], cell_of: CellOf, by: str) -> Iterator[str]:
    """What became of the findings of each cell, the most false ones first."""
    yield f"| rule | severity |{f' {by} |' if by else ''} true, moot, false, open | of the decided | repositories |"
    yield f"|---|---|{'---|' if by else ''}---|---|---|"
    found = counted(read, cell_of)
    repos: dict[Cell, set[str]] = defaultdict(set)
    for each in read:
        repos[cell_of(each)].add(each.repo)
    order = sorted(found, key=lambda cell: (cell[1], -found[cell]["false"], cell))
    for cell in order:
        counts = ", ".join(str(found[cell][verdict]) for verdict in VERDICTS)
        share = precision(found[cell])
        said = "" if share is None else f"{share:.0%}"
        yield f"| {' | '.join(cell)} | {counts} | {said} | {len(repos[cell])} |"


def left_out(read: Sequence[Read], cell_of: CellOf, least: float) -> list[Read]:
    """What stays of each draw where the cells are remarks that have too small a share of true ones in the others. A
    repository counts once in a cell for each verdict: what it has ten times over is one thing to have misread."""
    kept = []
    placed = [(each, cell_of(each)) for each in read]
    for draw in sorted({each.draw for each in read}):
        once = {(each.repo, cell, each.verdict) for each, cell in placed if each.draw != draw}
        others: dict[Cell, Counter[str]] = defaultdict(Counter)
        for _, cell, verdict in once:
            others[cell][verdict] += 1
        for each, cell in placed:
            if each.draw != draw:
                continue
            counts = others[cell]
            share = precision(counts)
            is_known = counts["true"] + counts["false"] >= _FEWEST
            if not (is_known and share is not None and share < least):
                kept.append(each)
    return kept


def left_out_table(read: Sequence[Read]) -> Iterator[str]:
    yield "| severity | cells | remarks below | true, moot, false | leaves | of the true it costs |"
    yield "|---|---|---|---|---|---|"
    for severity in ("error", "warning"):
        group = [each for each in read if each.severity == severity]
        yield _left(severity, "", 0.0, group, group)
        for by in ("", "place"):
            cell_of = cells(by)
            for least in _SHARES:
                name = f"rule and {by}" if by else "rule"
                yield _left(severity, name, least, left_out(group, cell_of, least), group)


def _left(
    severity: str, name: str, least: float, kept: Sequence[Read], group: Sequence[Read]
) -> str:
    counts = Counter(each.verdict for each in kept)
    true = sum(each.verdict == "true" for each in group)
    said = ", ".join(str(counts[verdict]) for verdict in ("true", "moot", "false"))
    cost = f"{1 - counts['true'] / true:.1%}" if name else ""
    below = f"{least:.0%}" if name else ""
    return f"| {severity} | {name} | {below} | {said} | {precision(counts) or 0:.1%} | {cost} |"


# -- grounds, of checkouts ----------------------------------------------------------------


def reader_of(run: Run | None) -> str:
    """Who is seen to read the files of a run."""
    if run is None:
        return UNKNOWN
    if run.is_fragment:
        return "part"
    if any(claim.is_launched for claim in run.claims):
        return "command"
    return "own program" if any(claim.is_program for claim in run.claims) else "nothing"


def grounds_in(checkouts: Path, read: Iterable[Read]) -> Iterator[dict[str, object]]:
    """Who reads the files of findings, and what is said there today, of the checkouts that are in a folder."""
    groups: dict[tuple[str, str], list[Read]] = defaultdict(list)
    for each in read:
        groups[each.repo, each.options].append(each)
    for (repo, options), members in sorted(groups.items()):
        folder = checkouts.resolve() / repo.replace("/", "__")
        if not folder.is_dir():
            continue
        workspace = Workspace(folder)
        names = [workspace.name(file) for file in walk(folder, SUFFIXES)]
        report = lint(workspace, names, options_of(options))
        for each in members:
            near = [
                diagnosis
                for diagnosis in report.diagnoses
                if (diagnosis.finding.location.path, diagnosis.rule.code) == (each.path, each.rule)
                and abs(_line(workspace, diagnosis.finding.location) - each.line) <= _NEAR
            ]
            told = max(near, key=lambda diagnosis: diagnosis.severity, default=None)
            around = (run for run in report.runs if isinstance(run, Run) and each.path in run.files)
            run = told.run if told is not None else next(around, None)
            yield {
                "repo": repo, "path": each.path, "line": each.line, "rule": each.rule, "options": options,
                "reader": reader_of(run if isinstance(run, Run) else None),
                "today": "silent" if told is None else Severity(told.severity).label,
            }  # fmt: skip


def _line(workspace: Workspace, place: Location) -> int:
    document = workspace.document(place.path) or workspace.lines(place.path)
    return document.source.position(place.span.start)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--by", choices=("place", "reader", "draw"), default="")
    parser.add_argument("--rule", nargs="*", default=(), help="codes, by default all")
    parser.add_argument("--from-draw", type=int, default=FIRST_DRAW)
    parser.add_argument("--to-draw", type=int, default=LAST_DRAW)
    parser.add_argument("--left-out", action="store_true")
    parser.add_argument("--grounds", type=Path, metavar="FOLDER")
    given = parser.parse_args()
    read = [
        each
        for each in findings(given.to_draw)
        if each.draw >= given.from_draw and (not given.rule or each.rule in given.rule)
    ]
    if given.grounds is not None:
        for row in grounds_in(given.grounds, read):
            print(json.dumps(row, ensure_ascii=False))
        return
    told = left_out_table(read) if given.left_out else table(read, cells(given.by), given.by)
    print("\n".join(told))


if __name__ == "__main__":
    main()
