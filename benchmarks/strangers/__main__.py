"""Findings on public repositories that somebody read against the files and the frameworks' code.

A row names repository, commit, path, line, rule, the options, and whether the finding is ``true``,
``false``, ``moot`` (what it says holds, yet the program stops earlier of something else, so that nobody sees it before
that is mended; since the fifteenth draw) or depends on what no file says (``open``). Of checkouts at these commits (a folder each,
``OWNER__NAME``) this says which false findings still stand, and which true ones fell silent::

    python -m benchmarks.strangers FOLDER [findings.jsonl ...]
    python -m benchmarks.strangers --first-reading

The second counts what was read before anything was mended for it, of draws of which at most two errors and three
warnings a repository were read. A finding that is only a remark (``info``) does not stand; a true one in an example that
a copy of a framework has as the framework ships it is to be one. The exit status is the number of rows that
are not as they should be, at most 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oomlint.documents import SUFFIXES
from oomlint.files.disk import walk
from oomlint.files.workspace import Workspace
from oomlint.hardware import parse_bytes, parse_hardware
from oomlint.linting.engine import Options, lint
from oomlint.linting.rule import Severity
from oomlint.runs.copies import Copies

FINDINGS = sorted(Path(__file__).parent.glob("findings*.jsonl"))
# The halves of draws that were judged before anybody mended anything for them: the file and how many repositories
# were drawn, with findings or without.
FIRST_READINGS = (
    ("ninth, 2026-11-23", "findings-9.jsonl", 33),
    ("tenth, 2026-11-23", "findings-10.jsonl", 24),
    ("eleventh, 2026-11-24", "findings-11.jsonl", 25),
    ("twelfth, 2026-11-28", "findings-12.jsonl", 37),
    ("thirteenth, 2026-11-28", "findings-13.jsonl", 73),
    ("fourteenth, 2026-11-28", "findings-14.jsonl", 102),
    ("fifteenth, 2026-11-29", "findings-15.jsonl", 60),
    ("sixteenth, 2026-11-29", "findings-16.jsonl", 60),
    ("seventeenth, 2026-11-29", "findings-17.jsonl", 69),
    ("eighteenth, half of it, 2026-11-29", "findings-18.jsonl", 60),
    ("nineteenth, 2026-11-29", "findings-19.jsonl", 64),
    ("twentieth, 2026-11-29", "findings-20.jsonl", 99),
    ("twenty-first, 2026-11-29", "findings-21.jsonl", 80),
    ("twenty-second, 2026-11-29", "findings-22.jsonl", 80),
    ("twenty-third, 2026-11-29", "findings-23.jsonl", 59),
    ("twenty-fourth, 2026-11-29", "findings-24.jsonl", 80),
    ("twenty-fifth, 2026-11-29", "findings-25.jsonl", 80),
    ("twenty-sixth, 2026-11-29", "findings-26.jsonl", 202),
    ("twenty-seventh, 2026-11-29", "findings-27.jsonl", 100),
    ("twenty-eighth, 2026-11-30", "findings-28.jsonl", 184),
    ("twenty-ninth, 2026-11-30", "findings-29.jsonl", 86),
    ("thirtieth, 2026-11-30", "findings-30.jsonl", 116),
    ("thirty-first, 2026-11-30", "findings-31.jsonl", 111),
    ("thirty-second, 2026-11-30", "findings-32.jsonl", 115),
    ("thirty-third, 2026-11-30", "findings-33.jsonl", 127),
    ("thirty-fourth, 2026-12-01", "findings-34.jsonl", 86),
    ("thirty-fifth, 2026-12-01", "findings-35.jsonl", 78),
    ("thirty-fifth, on the other machine", "findings-35a.jsonl", 78),
    ("thirty-sixth, 2026-12-01", "findings-36.jsonl", 88),
    ("thirty-seventh, 2026-12-01", "findings-37.jsonl", 86),
    ("thirty-seventh, on the other machine, after the mends", "findings-37a.jsonl", 86),
    ("thirty-eighth, 2026-12-01", "findings-38.jsonl", 86),
    ("thirty-ninth, 2026-12-01", "findings-39.jsonl", 90),
    ("fortieth, 2026-12-01", "findings-40.jsonl", 89),
    ("fortieth, on the other machine, after the mends", "findings-40a.jsonl", 89),
    ("forty-first, half of it, 2026-12-01", "findings-41.jsonl", 129),
    ("forty-first, the half held back", "findings-41a.jsonl", 119),
)
# A finding may move a few lines as it learns to point at its cause.
_NEAR = 15
# Of these nothing says whether they should be there.
_EITHER_WAY = ("open", "moot")


@dataclass(frozen=True)
class Row:
    """One finding that was read."""

    repo: str
    path: str
    line: int
    rule: str
    options: str
    verdict: str
    why: str

    @classmethod
    def of(cls, row: dict[str, Any]) -> Row:
        code = str(row["rule"]).split()[0]
        return cls(
            row["repo"], row["path"], row["line"], code, row["options"], row["verdict"], row["why"]
        )


def read(files: list[Path]) -> list[Row]:
    lines = (line for file in files for line in file.read_text("utf-8").splitlines())
    return [Row.of(json.loads(line)) for line in lines if line.strip()]


def options_of(text: str) -> Options:
    words = text.split()
    given = dict(zip(words[::2], words[1::2], strict=True))
    values = {}
    if "--host-memory" in given:
        values["host.ram_gib"] = parse_bytes(given["--host-memory"]) / 2**30
    name = given.get("--hardware")
    return Options(hardware=parse_hardware(name) if name else None, values=values)


def told(folder: Path, options: str) -> dict[tuple[str, str], list[tuple[int, Severity]]]:
    """Lines and severities of the findings of a checkout, by path and rule."""
    workspace = Workspace(folder)
    names = [workspace.name(file) for file in walk(folder, SUFFIXES)]
    found: dict[tuple[str, str], list[tuple[int, Severity]]] = defaultdict(list)
    for diagnosis in lint(workspace, names, options_of(options)).diagnoses:
        place = diagnosis.finding.location
        document = workspace.document(place.path) or workspace.lines(place.path)
        line = document.source.position(place.span.start)[0]
        found[place.path, diagnosis.finding.rule.code].append((line, diagnosis.severity))
    return found


def wrong(rows: list[Row], checkouts: Path) -> Iterator[str]:
    """The rows that are not as they should be, a line each."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.repo, row.options].append(row)
    for (repo, options), members in sorted(groups.items()):
        folder = checkouts.resolve() / repo.replace("/", "__")
        if not folder.is_dir():
            print(f"{repo}: no checkout", file=sys.stderr)
            continue
        found = told(folder, options)
        copies = Copies(Workspace(folder))
        for row in members:
            lines = found.get((row.path, row.rule), [])
            near = [severity for line, severity in lines if abs(line - row.line) <= _NEAR]
            stands = max(near, default=Severity.INFO) > Severity.INFO
            if stands == (row.verdict == "true") or row.verdict in _EITHER_WAY:
                continue
            if near and not stands and copies.shipping(row.path) is not None:
                continue
            state = "still stands" if stands else "fell silent"
            yield f"{row.rule} {state}: {repo} {row.path}:{row.line}: {row.why}"


def first_readings() -> Iterator[str]:
    """A table of how many findings were true at first reading, a line each draw."""
    yield "| draw | repositories | errors: true, moot, false, open | warnings: true, moot, false, open |"
    yield "|---|---|---|---|"
    for name, file, drawn in FIRST_READINGS:
        lines = (FINDINGS[0].parent / file).read_text("utf-8").splitlines()
        counted = Counter((row["severity"], row["verdict"]) for row in map(json.loads, lines))
        yield f"| {name} | {drawn} | {_shares(counted, 'error')} | {_shares(counted, 'warning')} |"


def _shares(counted: Counter[tuple[str, str]], severity: str) -> str:
    verdicts = ("true", "moot", "false", "open")
    true, moot, false, unclear = (counted[severity, verdict] for verdict in verdicts)
    decided = max(1, true + moot + false)
    with_moot = f", {(true + moot) / decided:.0%} with the moot" if moot else ""
    return f"{true}, {moot}, {false}, {unclear}: {true / decided:.0%} of the decided{with_moot}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkouts", type=Path, nargs="?")
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--first-reading", action="store_true")
    given = parser.parse_args()
    if given.first_reading:
        print("\n".join(first_readings()))
        return
    if given.checkouts is None:
        parser.error("name the folder of checkouts")
    rows = read(given.files or FINDINGS)
    found = list(wrong(rows, given.checkouts))
    print("\n".join(found))
    print(f"{len(rows) - len(found)} of {len(rows)} findings are as they should be")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
