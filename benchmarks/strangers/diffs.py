"""Edits that ``--diff --unsafe-fixes`` proposed in public repositories, read as a maintainer would.

A row names repository, commit, path, rule, the options, the fix and the first line that it wrote, and whether one would
``merge`` it, ``reject`` it (``cause``, ``why``) or cannot tell (``open``). Of checkouts at these commits (a folder
each, ``OWNER__NAME``) this says which rejected edits are proposed still::

    python -m benchmarks.strangers.diffs FOLDER [OWNER/NAME ...]

Without a folder it counts what was read, a reading a row.

Verdicts were given by cause: of diffs that show the same defect each has the same one.

It plans every run of a repository, which takes a minute or some. The exit status is 1 where one is.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.strangers.__main__ import options_of

from oomlint.documents import SUFFIXES
from oomlint.files.disk import walk
from oomlint.files.workspace import Workspace
from oomlint.fix.apply import fix_all
from oomlint.fix.bystanders import naming_in

# Seven readings, of different repositories, each with the causes of those before it mended, and one (diffs-8) by who
# mended the seventh, of what is proposed after it. diffs-9 is of repositories that were new again, read by who mended
# its causes, before that, and so are diffs-10, of what safe fixes alone would write, and diffs-11, of all. diffs-12 is
# of what was proposed in further repositories after diffs-11 had been mended, and so is diffs-13 after diffs-12, and
# diffs-14 after that, in 26 repositories and in the corpus of frameworks' own configs, at four sizes of hardware, and
# diffs-15 after that, in 11 of 109 repositories at the same sizes, at most two of each (the corpus had nothing new), and
# diffs-16 after that, in 10 of 115 repositories and in the corpus, at four sizes, two of which are new, and diffs-17
# after that, at the same sizes, in 33 of 143 repositories (86 of them of a fresh draw, 57 with findings that were read before)
# and in the corpus, and diffs-18 after that: in 8 of 88 repositories of a fresh draw, each on one of two machines by its
# name and, where something was to fix, on four cards of 40 GB, in 5 of 65 with findings that were read before, in the
# corpus at two sizes, and of 13 of the earlier repositories what is proposed there since and had not been read. diffs-19
# is of 15 of 174 repositories of the next draw, nearly all on one machine, at most four edits of each, and diffs-20 of those
# of 124 more that still had some after its mends, read by one who had mended nothing and knew nothing of the tool, and diffs-21
# of 3 of 56 of the draw after that, read by who mended its causes. Rows of
# the corpus name the framework alone, with no commit: the folder of the corpus stands for one of checkouts there.
_ROWS = sorted(Path(__file__).parent.glob("diffs*.jsonl"))


@dataclass(frozen=True)
class Row:
    """One file of a diff that was read; ``edit`` is the first line that it adds, if any."""

    repo: str
    commit: str
    path: str
    rule: str
    options: str
    fix: str
    applicability: str
    edit: str
    verdict: str
    cause: str
    why: str


def rows() -> list[Row]:
    lines = (line for file in _ROWS for line in file.read_text("utf-8").splitlines())
    return [Row(**json.loads(line)) for line in lines]


def readings() -> Iterator[str]:
    """A table of what was read, a reading a row in the order in which they were made."""
    yield "| reading | edits | merge of the decided | safe ones |"
    yield "|---" * 4 + "|"
    for number, file in enumerate(sorted(_ROWS, key=_number), start=1):
        read = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        whole, safe = (_merged(read, word) for word in ("", "safe"))
        yield f"| {number} | {len(read)} | {whole} | {safe} |"


def _number(file: Path) -> int:
    return int(file.stem.partition("-")[2] or 1)


def _merged(read: Iterable[dict[str, str]], applicability: str) -> str:
    """How many of the decided edits of an applicability one would merge."""
    counted = Counter(r["verdict"] for r in read if applicability in ("", r["applicability"]))
    decided = counted["merge"] + counted["reject"]
    share = f" ({counted['merge'] / decided:.0%})" if decided else ""
    return f"{counted['merge']} of {decided}{share}"


def added(folder: Path, options: str) -> dict[str, set[str]]:
    """The lines that fixes add to each file of a checkout."""
    workspace = Workspace(folder)
    names = [workspace.name(file) for file in walk(folder, SUFFIXES)]
    result = fix_all(
        workspace,
        names,
        options_of(options),
        unsafe=True,
        naming=naming_in(workspace),
        reports_after=False,
    )
    found = {}
    for path, data in result.texts.items():
        before = (result.originals[path] or b"").decode("utf-8", "replace").splitlines()
        found[path] = set(data.decode("utf-8", "replace").splitlines()) - set(before)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkouts", type=Path, nargs="?")
    parser.add_argument("repos", nargs="*")
    given = parser.parse_args()
    if given.checkouts is None:
        print("\n".join(readings()))
        return
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows():
        if not given.repos or row.repo in given.repos:
            groups[row.repo, row.options].append(row)
    tried = proposed = standing = 0
    for (repo, options), members in sorted(groups.items()):
        folder = given.checkouts.resolve() / repo.replace("/", "__")
        if not folder.is_dir():
            print(f"{repo}: no checkout", file=sys.stderr)
            continue
        lines = added(folder, options)
        for row in members:
            is_there = any(line[:200] == row.edit for line in lines.get(row.path, ()) if row.edit)
            tried += 1
            proposed += is_there and row.verdict == "merge"
            if is_there and row.verdict == "reject":
                standing += 1
                print(f"{row.rule} still proposed: {repo} {row.path}: {row.why}")
    print(f"{tried} edits: {standing} that one rejects are proposed, {proposed} that one merges")
    sys.exit(bool(standing))


if __name__ == "__main__":
    main()
