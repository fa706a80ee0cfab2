"""How often oomlint alarms before a run that died, and on one that ran; and whether its risk is true.

::

    python -m benchmarks.threads [--half shown|scored|read|read2|…|fresh|fresh2|…] [--list]

Every case is linted as its user would have: its files in a folder of their own, on the hardware that is
named. Libraries that its files do not pin have the newest release of its day. ``--list`` prints each case of
the shown half and of the lots that were read; the others are only counted. An *alarm* is a risk of at least a half, a
*warning* one of at least 0.2, from which on ``check`` speaks of a run; the *cause* is named where one of
the rules that the case lists speaks. Of runs that died without an alarm it is counted why there was none.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal, get_args

from benchmarks.threads import READ, Case, Half, cases
from benchmarks.threads.releases import on

from oomlint.documents import SUFFIXES
from oomlint.files.disk import walk
from oomlint.files.workspace import Workspace
from oomlint.hardware import parse_bytes, parse_hardware, usable_bytes
from oomlint.judgement import EVEN, TIGHT, Judgement, judgement_of
from oomlint.linting.engine import Options, Report, lint
from oomlint.runs.run import Run

_HALVES: tuple[Half, ...] = (*READ, "scored", "fresh", "fresh2", "fresh3", "fresh4", "fresh5")
# Why there is no alarm before a run that died.
_Silence = Literal[
    "no prediction or limit", "what was not read decides", "limit within bounds", "far below"
]
_BINS = (0.0, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 1.0)


@dataclass(frozen=True)
class Answer:
    """What oomlint says of a case; ``judgement`` is of the run most at risk, ``None`` without a run."""

    case: Case
    judgement: Judgement | None
    names: frozenset[str]

    @property
    def risk(self) -> float | None:
        risk = None if self.judgement is None else self.judgement.risk
        return None if risk is None else risk.any

    @property
    def alarms(self) -> bool:
        return (self.risk or 0.0) >= EVEN

    @property
    def warns(self) -> bool:
        return (self.risk or 0.0) >= TIGHT

    @property
    def names_cause(self) -> bool:
        return bool(self.names.intersection(self.case.causes))

    @property
    def silence(self) -> _Silence:
        """Why there is no alarm: how far below the limit a need is predicted, if one is."""
        spoken = None if self.judgement is None else self.judgement.spoken
        if spoken is None or spoken.hardware is None:
            return "no prediction or limit"
        is_host = self.case.resource == "host"
        bounded = spoken.bounded.estimate
        high = (bounded.host if is_host else bounded.gpu).high_bytes
        limit = spoken.host_limit if is_host else usable_bytes(spoken.hardware.gpu)
        if high is None or limit is None:
            return "no prediction or limit"
        if spoken.risk is None:
            return "what was not read decides"
        return "limit within bounds" if high >= limit else "far below"

    @property
    def line(self) -> str:
        spoken = None if self.judgement is None else self.judgement.spoken
        peak = None if spoken is None else spoken.estimate.gpu.peak_bytes
        ram = None if spoken is None else spoken.estimate.host.peak_bytes
        risk = "    -" if self.risk is None else f"{self.risk:5.2f}"
        need = "-" if peak is None else f"{peak / 2**30:.1f}"
        host = "-" if ram is None else f"{ram / 2**30:.0f}"
        mark = " " if self.alarms == self.case.died else "!"
        return (
            f"{mark} {self.case.outcome:<4} {self.case.resource:<4} {self.case.phase:<10} {risk}"
            f" {need:>7} GPU {host:>5} host {self.case.hardware:<16} {self.case.name}"
        )


def answer(case: Case) -> Answer:
    """What oomlint says of a case."""
    with tempfile.TemporaryDirectory() as folder:
        report = linted(case, Path(folder))
        run = worst_run(report)
        judgement = None if run is None else judgement_of(run)
        return Answer(case, judgement, frozenset(d.rule.name for d in report.diagnoses))


def linted(case: Case, root: Path) -> Report:
    """Lint a case as its user would have, its files in a folder of their own."""
    for name, text in case.files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    workspace = Workspace(root)
    names = [workspace.name(path) for path in walk(root, SUFFIXES)]
    return lint(workspace, names, _options(case))


def worst_run(report: Report) -> Run | None:
    """The run most at risk; ``None`` where none was found."""
    runs = [run for run in report.runs if not run.is_fragment]
    return max(runs, key=lambda run: _order(judgement_of(run)), default=None)


def _order(judgement: Judgement) -> float:
    risk = judgement.risk
    return -1.0 if risk is None or risk.any is None else risk.any


def _options(case: Case) -> Options:
    values: dict[str, object] = {f"versions.{name}": v for name, v in on(case.date).items()}
    stated = case.files.get("requirements.txt", "")
    values = {name: v for name, v in values.items() if name.partition(".")[2] not in stated}
    if case.host_memory:
        values["host.ram_gib"] = parse_bytes(case.host_memory) / 2**30
    return Options(hardware=parse_hardware(case.hardware), values=values)


def _report(name: str, answers: Sequence[Answer]) -> None:
    died = [a for a in answers if a.case.died]
    ran = [a for a in answers if not a.case.died]
    told = [a for a in died if a.case.causes]
    known = [a for a in answers if a.risk is not None]
    print(f"\n{name}: {len(died)} died, {len(ran)} ran, {len(known)} with a risk")
    print(f"  alarm before one that died   {_share([a.alarms for a in died])}")
    decided = [a for a in died if not a.case.undecidable]
    if len(decided) < len(died):
        print(f"    of those that files decide {_share([a.alarms for a in decided])}")
    silent = Counter(a.silence for a in died if not a.alarms)
    reasons = (f"{why} {silent[why]}" for why in get_args(_Silence) if silent[why])
    print(f"    no alarm: {', '.join(reasons)}")
    print(f"  cause named                  {_share([a.names_cause for a in told])}")
    print(f"  alarm on one that ran        {_share([a.alarms for a in ran])}")
    print(f"  warning before one that died {_share([a.warns for a in died])}")
    print(f"  warning on one that ran      {_share([a.warns for a in ran])}")
    if not known:
        return
    rates = [
        [a.alarms == a.case.died for a in group if a.risk is not None] for group in (died, ran)
    ]
    balanced = statistics.mean(sum(group) / len(group) for group in rates if group)
    brier = statistics.mean(((a.risk or 0.0) - a.case.died) ** 2 for a in known)
    print(f"  balanced, of those with one  {balanced:.0%}")
    print(f"  Brier score                  {brier:.3f}")
    print("  risk said      n   mean   died")
    for low, high in pairwise(_BINS):
        inside = [a for a in known if low <= (a.risk or 0.0) < high or (a.risk == high == 1.0)]
        if inside:
            said = statistics.mean(a.risk or 0.0 for a in inside)
            true = statistics.mean(a.case.died for a in inside)
            print(f"  {low:4.2f}-{high:4.2f}  {len(inside):5}  {said:5.0%}  {true:5.0%}")


def _share(found: Sequence[bool]) -> str:
    return f"{sum(found)} of {len(found)} ({sum(found) / len(found):.0%})" if found else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--half", choices=_HALVES)
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args()
    halves: tuple[Half, ...] = (given.half,) if given.half else _HALVES
    for half in halves:
        answers = [answer(case) for case in cases(half)]
        if given.list and half in READ:
            print(
                "\n".join(
                    a.line for a in sorted(answers, key=lambda a: (a.case.outcome, a.risk or 0))
                )
            )
        if answers:
            _report(half, answers)


if __name__ == "__main__":
    main()
