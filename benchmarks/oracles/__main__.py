"""What the frameworks' own loaders say of oomlint: ``python -m benchmarks.oracles [NAME ...]``.

Every config of the corpus is read by oomlint and by its framework, as it comes and after all
fixes for four machines, the safe ones alone and the unsafe ones with them, and so is every example of a rule with a fix. What
differs and what is refused is printed, a line each; ``--markdown`` writes the tables of
``docs/oracles.md`` anew.

``--projects FOLDER`` asks of other people's projects instead, a folder each in one folder or in several: whether what
a loader took of them it takes after fixes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.oracles import page
from benchmarks.oracles.cases import MACHINES
from benchmarks.oracles.frameworks import FRAMEWORKS
from benchmarks.oracles.verdict import MissingFramework, Verdict, judge, judge_projects


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.oracles", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a framework; all by default")
    parser.add_argument("--machines", nargs="*", default=MACHINES, help="what is fixed for")
    parser.add_argument(
        "--projects",
        nargs="+",
        type=Path,
        metavar="FOLDER",
        help="folders of other people's projects",
    )
    parser.add_argument("--verbose", action="store_true", help="list what counts as neither, too")
    parser.add_argument(
        "--markdown",
        action="store_true",
        help="keep the figures in benchmarks/oracles/figures.json and write docs/oracles.md",
    )
    asked = parser.parse_args(arguments)
    chosen = [f for f in FRAMEWORKS if not asked.names or f.name in asked.names]
    folders = [folder.resolve() for folder in asked.projects or ()]
    projects = sorted(path for folder in folders for path in folder.iterdir() if path.is_dir())
    figures: dict[str, page.Figures] = {}
    is_clean = True
    for framework in chosen:
        print(f"{framework.name} …", file=sys.stderr)
        with tempfile.TemporaryDirectory() as folder:
            try:
                verdict = (
                    judge_projects(framework, projects, Path(folder), asked.machines)
                    if projects
                    else judge(framework, Path(folder), asked.machines)
                )
            except MissingFramework as missing:
                print(missing, file=sys.stderr)
                continue
        if projects:
            # Keys mean what they mean in the release that a project is written for: only what fixes do is asked.
            verdict.disagreements.clear()
            figures[framework.name] = page.project_figures(verdict, len(projects))
        else:
            figures[framework.name] = page.figures(verdict)
        _print(framework.name, verdict, verbose=asked.verbose)
        is_clean &= not (verdict.disagreements or verdict.refused_after)
        if asked.markdown:
            # At once: a framework that is asked later may fail.
            page.keep(figures)
    print("\n" + (page.of_projects(figures) if projects else page.tables(figures)))
    return int(not is_clean)


def _print(name: str, verdict: Verdict, *, verbose: bool) -> None:
    _list(f"{name}: read differently", verdict.disagreements)
    _list(f"{name}: refused after a fix", verdict.refused_after)
    _list(f"{name}: refused as it came", verdict.refused_before)
    if verbose:
        _list(f"{name}: known to be read differently", verdict.known)
        _list(f"{name}: refused after a fix as before", verdict.still_refused)
        _list(f"{name}: not judged", verdict.unjudged)


def _list(title: str, sentences: list[str]) -> None:
    if sentences:
        print(f"\n{title}:")
        for sentence in sentences:
            print("- " + " ".join(sentence.split())[:400])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
