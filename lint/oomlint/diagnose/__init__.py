"""What killed a finished run: logs in, a verdict out.

``reading`` gives a log in blocks, ``scan`` finds the signs in them (``signatures``, with ``origin``,
``figures``, ``phases``, ``frames``, ``progress`` and ``standing`` for what surrounds a sign, ``measured`` for
peaks), ``verdict`` says which sign is the cause, ``remedies`` which rules explain it, ``comparison``
holds measured peaks against the prediction, ``render`` and ``shapes`` print it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from oomlint.diagnose.comparison import PeakComparison
    from oomlint.diagnose.remedies import Explanation
    from oomlint.diagnose.scan import Log
    from oomlint.diagnose.verdict import Verdict
    from oomlint.errors import FileError
    from oomlint.linting.engine import Report


class Examination(Struct, frozen=True, kw_only=True):
    """The logs of one run, the verdict on them, and what the config has to do with it."""

    logs: tuple[Log, ...]
    verdict: Verdict
    explanations: tuple[Explanation, ...]
    comparisons: tuple[PeakComparison, ...]
    report: Report | None = None
    """The lint of the config, where it was given."""
    errors: tuple[FileError, ...] = ()

    @property
    def names_a_failure(self) -> bool:
        """Whether the run died of something that this is about."""
        return self.verdict.outcome in ("memory", "killed", "disk", "settings")


def read_logs(
    names: Sequence[str], progress: Callable[[int, int | None], None] = lambda _done, _all: None
) -> tuple[tuple[Log, ...], tuple[FileError, ...]]:
    """Scan logs; one that cannot be read does not keep the others from being.

    ``progress`` is told the bytes that were read of a log, and of how many, if that is known.

    Raises:
        UsageError: there is no file of a name.
    """
    from oomlint.diagnose.scan import scan

    scanned = [scan(name, progress) for name in names]
    return tuple(scanned), tuple(log.error for log in scanned if log.error is not None)


def examine(
    logs: Sequence[Log], report: Report | None = None, errors: Sequence[FileError] = ()
) -> Examination:
    """The verdict on logs, explained by the lint of the run's config if that is given."""
    from oomlint.diagnose.comparison import comparisons
    from oomlint.diagnose.remedies import found, usual
    from oomlint.diagnose.verdict import judge
    from oomlint.judgement import judgement_of
    from oomlint.linting.engine import all_rules

    verdict = judge(logs)
    forecasts = [judgement_of(run).written for run in report.runs] if report is not None else []
    explanations = found(verdict, report.diagnoses, all_rules()) if report is not None else ()
    if not explanations and not (report is not None and report.runs):
        explanations = usual(verdict, all_rules())
    return Examination(
        logs=tuple(logs),
        verdict=verdict,
        explanations=explanations,
        comparisons=comparisons(logs, verdict, forecasts),
        report=report,
        errors=tuple(errors) + (report.errors if report is not None else ()),
    )
