"""One input tried: what went wrong with it, and the smallest input with which it still does."""

from __future__ import annotations

import ast
import json
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

from oomlint.documents import kind_of
from oomlint.files.workspace import Workspace
from oomlint.fix.apply import FixResult, fix_all
from oomlint.fix.proposed import REPORT_IT
from oomlint.hardware import parse_hardware
from oomlint.linting.engine import Options, Report, lint
from oomlint.report import render
from oomlint.report.paint import Paint

# A folder that is not there: nothing but the input is read.
NOWHERE = Path("/oomlint-fuzz")
_FORMATS = ("text", "json", "sarif", "lsp")
_SECONDS_TO_SHRINK = 20.0


class Broken(Exception):
    """A promise was broken; says which."""


class Hang(BaseException):
    """The input took too long; no handler of ours may catch it."""


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Ends what takes more than so many seconds of processor time."""

    def stop(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def trouble(
    files: Mapping[str, bytes], hardware: str | None, *, fix: bool, seconds: float
) -> str | None:
    """Lint a project in memory, and ``fix`` it; what broke the promises, in a line, or ``None``."""

    def lint_or_fix() -> None:
        if (problem := broken(files, hardware, fix=fix)) is not None:
            raise Broken(problem)

    return attempted(lint_or_fix, seconds)


def attempted(call: Callable[[], None], seconds: float) -> str | None:
    """What a call raises, or that it does not end, in a line."""
    try:
        with _limited(seconds):
            call()
    except Hang:
        return f"hang: more than {seconds:g} s"
    except Broken as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}{_place(error)}: {error}"[:300]
    return None


def broken(files: Mapping[str, bytes], hardware: str | None, *, fix: bool) -> str | None:
    """What a lint, or a fix, does that is not promised."""
    return (_broken_fix if fix else _broken_lint)(files, hardware)


def _broken_lint(files: Mapping[str, bytes], hardware: str | None) -> str | None:
    options, names, workspace = _asked(files, hardware)
    return _broken_report(lint(workspace, names, options, explicit=frozenset(names)))


def _broken_report(report: Report) -> str | None:
    for style in _FORMATS:
        text = render(report, style, Paint(), quiet=False)
        if style != "text":
            json.loads(text, parse_constant=_no_constant)
    reasons = (d.fix.reason or "" for d in report.diagnoses if d.fix is not None)
    bugs = (
        *(e.message for e in report.errors if e.kind == "internal"),
        *(reason for reason in reasons if reason.endswith(REPORT_IT)),
    )
    return next((f"internal: {bug}" for bug in bugs), None)


def _broken_fix(files: Mapping[str, bytes], hardware: str | None) -> str | None:
    first = _fixed(files, hardware)
    problem = _broken_report(first.report)
    if problem is not None:
        return problem
    for name, data in first.texts.items():
        before = files.get(name)
        if before is not None and _reads(name, before) and not _reads(name, data):
            return f"the fix broke {name}"
    again = _fixed({**files, **first.texts}, hardware).texts if first.texts else {}
    return f"a second fix changes {', '.join(again)} again" if again else None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} in JSON output")


def _asked(
    files: Mapping[str, bytes], hardware: str | None
) -> tuple[Options, list[str], Workspace]:
    options = Options(hardware=parse_hardware(hardware) if hardware else None)
    return options, sorted(files), Workspace(NOWHERE, files)


def _fixed(files: Mapping[str, bytes], hardware: str | None) -> FixResult:
    options, names, workspace = _asked(files, hardware)
    return fix_all(workspace, names, options, explicit=frozenset(names), unsafe=True)


def _reads(name: str, data: bytes) -> bool:
    """Whether a reader that is not ours takes the file."""
    import yaml

    readers: Mapping[str, Callable[[str], Any]] = {
        ".py": ast.parse,
        ".json": json.loads,
        ".ipynb": json.loads,
        ".yaml": lambda text: list(yaml.compose_all(text, yaml.SafeLoader)),
        ".yml": lambda text: list(yaml.compose_all(text, yaml.SafeLoader)),
    }
    reader = readers.get(kind_of(name))
    if reader is None:
        return True
    try:
        reader(data.decode("utf-8-sig"))
    except (ValueError, SyntaxError, RecursionError, MemoryError, yaml.YAMLError):
        return False
    return True


def _place(error: BaseException) -> str:
    trace, place = error.__traceback__, ""
    while trace is not None:
        place = f" ({Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno})"
        trace = trace.tb_next
    return place


def signature(problem: str) -> str:
    """What two inputs with the same cause share."""
    return problem.partition(": ")[2][:60] if problem.startswith("internal") else problem[:60]


def shrunk(data: bytes, still_fails: Callable[[bytes], bool]) -> bytes:
    """A small input that fails in the same way: ever smaller pieces are left out in turn."""
    end = monotonic() + _SECONDS_TO_SHRINK
    size = max(1, len(data) // 2)
    while size and monotonic() < end:
        at, smaller = 0, False
        while at < len(data) and monotonic() < end:
            candidate = data[:at] + data[at + size :]
            if still_fails(candidate):
                data, smaller = candidate, True
            else:
                at += size
        if not smaller or size > 1:
            size //= 2
    return data
