"""Running tests on a copy of the project that has one fault, in the fork of a process that has all tests collected.

There the fault's function is swapped, which costs milliseconds, where importing the project and a few files of tests
takes two seconds. What decides while a module is imported is tried in a process that imports it with the fault. Limits
are of processor time, so that a busy machine fails nothing.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import IO

import msgspec
import pytest
from benchmarks.faults.covering import Covered, Recorder, processor_seconds
from benchmarks.faults.seeding import Fault, seeded, words_beside
from benchmarks.faults.swapping import Live, is_in_functions

# Beside a test's own time: importing the project and collecting a file of tests.
_START = 20.0
_WARM = "hypothesis jsonschema msgspec pytest ruamel.yaml tree_sitter tree_sitter_bash pydantic"


class Tried(msgspec.Struct, frozen=True):
    """``caught`` is the test that failed, ``"time"`` where one hung, ``None`` where all passed that were run."""

    fault: Fault
    caught: str | None
    ran: int
    """Tests that passed before."""
    left: int
    """Tests that there was no time for."""
    seconds: float


class _Chosen(msgspec.Struct):
    """A plug-in of pytest that runs some tests alone, in their order, as long as there is time."""

    tests: Sequence[str]
    seconds: float
    """Of processor time, from the first test on."""
    failed: str | None = None
    ran: int = 0
    began: float = 0.0

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        found = {item.nodeid: item for item in items}
        items[:] = [found[test] for test in self.tests if test in found]
        self.began = processor_seconds()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.failed is None:
            self.failed = report.nodeid
        self.ran += report.when == "call" and report.passed

    def pytest_runtest_logfinish(self) -> None:
        if processor_seconds() - self.began > self.seconds and self.ran < len(self.tests):
            raise pytest.exit.Exception("no time left", returncode=0)


class Copy:
    """A copy of what git knows of the project, beside a link to what its tests look for."""

    def __init__(self, source: Path, folder: Path) -> None:
        self.root = folder / "project"
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=source, check=True, capture_output=True).stdout
        for name in filter(None, names.decode().split("\0")):
            if (source / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source / name, self.root / name)
        if (shared := source.parent / "shared").exists():
            (folder / "shared").symlink_to(shared.resolve())
        self._number = 0

    def with_fault(self, fault: Fault) -> Callable[[], None]:
        """Seed the fault, and return what takes it out again."""
        path = self.root / fault.module
        source = path.read_bytes()
        self._write(path, seeded(source, fault))
        return lambda: self._write(path, source)

    def _write(self, path: Path, source: bytes) -> None:
        path.write_bytes(source)
        # Compiled code is told from a newer source by whole seconds and the size.
        self._number += 1
        os.utime(path, (10**9 + self._number, 10**9 + self._number))


def warm_up() -> None:
    """Import what tests need and no fault is in."""
    for name in _WARM.split():
        __import__(name)


def recorded(copy: Copy, modules: Sequence[str], tests: Sequence[str], log: Path) -> Covered:
    """What the tests run of the modules."""

    def record() -> Covered:
        recorder = Recorder([copy.root / module for module in modules])
        pytest.main([*_OPTIONS, *tests], plugins=[recorder])
        return recorder.covered(copy.root)

    answer = _forked(copy.root, record, log, None)
    assert answer, f"The tests under coverage ended early: {log}"
    return msgspec.json.decode(answer, type=Covered)


class Trial:
    """Trying faults with the tests that run their lines, with so many seconds of processor time for all tests of one."""

    def __init__(self, copy: Copy, covered: Covered, seconds: float, log: Path) -> None:
        self._copy, self._covered, self._seconds, self._log = copy, covered, seconds, log
        self._asks, self._answers = _serving(copy.root, lambda: _Collected(covered, seconds), log)

    def tried(self, fault: Fault) -> Tried:
        """Whether a test fails where the fault is."""
        source = (self._copy.root / fault.module).read_bytes()
        faulty = seeded(source, fault)
        take_out = self._copy.with_fault(fault)
        try:
            if is_in_functions(source, faulty):
                self._asks.write(msgspec.json.encode((fault, source, faulty)) + b"\n")
                self._asks.flush()
                return msgspec.json.decode(self._answers.readline(), type=Tried)
            return _tried(self._copy, fault, self._covered, self._seconds, self._log)
        finally:
            take_out()

    def close(self) -> None:
        self._asks.close()
        self._answers.close()


class _Collected:
    """A plug-in of pytest that collects all tests once and tries each fault that it is asked for in a fork of itself."""

    def __init__(self, covered: Covered, seconds: float) -> None:
        self._covered, self._seconds = covered, seconds
        self._failed: str | None = None
        self._ran = 0
        self.asks: IO[bytes]
        self.answers: IO[bytes]

    def run(self) -> None:
        files = list(dict.fromkeys(test.split("::")[0] for test in self._covered.tests))
        pytest.main([*_OPTIONS, *files], plugins=[self])

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        live = Live(list(self._covered.lines))
        for line in self.asks:
            fault, source, faulty = msgspec.json.decode(line, type=tuple[Fault, bytes, bytes])
            words = words_beside(source, fault)
            running = self._covered.running(fault.module, fault.line, words)
            found = [items.get(self._covered.tests[index]) for index in running]
            tests = [item for item in found if item is not None]
            work = partial(self._with, live, fault, source, faulty, tests)
            limit = _START + 3 * self._seconds
            answer = _forked_here(work, limit)
            late = Tried(fault, "time", 0, len(tests), limit)
            self.answers.write((answer or msgspec.json.encode(late)) + b"\n")
            self.answers.flush()
        return True

    def _with(
        self, live: Live, fault: Fault, source: bytes, faulty: bytes, tests: Sequence[pytest.Item]
    ) -> Tried:
        live.take(fault.module, source, faulty)
        self._run(tests)
        left = 0 if self._failed else len(tests) - self._ran
        return Tried(fault, self._failed, self._ran, left, processor_seconds())

    def _run(self, items: Sequence[pytest.Item]) -> None:
        for item, later in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=later)
            if self._failed or processor_seconds() > self._seconds:
                return

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self._failed is None:
            self._failed = report.nodeid
        self._ran += report.when == "call" and report.passed


def _tried(copy: Copy, fault: Fault, covered: Covered, seconds: float, log: Path) -> Tried:
    words = words_beside((copy.root / fault.module).read_bytes(), fault)
    ran, spent, chosen = 0, 0.0, covered.running(fault.module, fault.line, words)
    for some in stages(covered, chosen):
        tests = [covered.tests[index] for index in some]
        caught, passed, took = _run(copy, tests, seconds - spent, log)
        ran, spent = ran + passed, spent + took
        if caught is not None:
            return Tried(fault, caught, ran, 0, spent)
        if spent > seconds:
            break
    return Tried(fault, None, ran, len(chosen) - ran, spent)


def unreliable(copy: Copy, results: Iterable[Tried], seconds: float, log: Path) -> str | None:
    """A test that is said to have caught a fault and that fails without any."""
    tests = {result.caught: None for result in results if result.caught and "::" in result.caught}
    return _run(copy, list(tests), seconds, log)[0]


# Files of tests that are collected first: most faults are caught there, and collecting all takes seconds.
_FIRST = 3


def stages(covered: Covered, chosen: Sequence[int]) -> list[list[int]]:
    """The tests of the files that take least, then the others."""
    seconds: dict[str, float] = {}
    for index in chosen:
        file = covered.tests[index].split("::")[0]
        seconds[file] = seconds.get(file, 0.0) + covered.seconds[index]
    first = set(sorted(seconds, key=lambda file: seconds[file])[:_FIRST])
    parts: tuple[list[int], list[int]] = ([], [])
    for index in chosen:
        parts[covered.tests[index].split("::")[0] not in first].append(index)
    return [part for part in parts if part]


def _run(
    copy: Copy, tests: Sequence[str], seconds: float, log: Path
) -> tuple[str | None, int, float]:
    """The first of the tests that fails, how many passed before, the processor time."""
    if not tests:
        return None, 0, 0.0
    files = list(dict.fromkeys(test.split("::")[0] for test in tests))

    def run() -> tuple[str | None, int, float]:
        chosen = _Chosen(tests, seconds)
        status = pytest.main([*_OPTIONS, "-x", *files], plugins=[chosen])
        failed = chosen.failed
        if failed is None and status not in (
            pytest.ExitCode.OK,
            pytest.ExitCode.NO_TESTS_COLLECTED,
        ):
            failed = "collection"
        return failed, chosen.ran, processor_seconds() - chosen.began

    limit = _START + 3 * seconds
    answer = _forked(copy.root, run, log, limit)
    if not answer:
        return "time", 0, limit
    found: tuple[str | None, int, float]
    found = msgspec.json.decode(answer, type=tuple[str | None, int, float])
    return found


_OPTIONS = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header")


def _forked(root: Path, work: Callable[[], object], log: Path, seconds: float | None) -> bytes:
    """What the work returns in a process of its own below the root, as JSON; nothing where it is killed."""

    def below() -> object:
        with _below(root, log):
            return work()

    return _forked_here(below, seconds)


def _forked_here(work: Callable[[], object], seconds: float | None) -> bytes:
    """What the work returns in a fork of this process, as JSON; nothing where it is killed."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reads)
            if seconds:
                resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 1))
            os.write(writes, msgspec.json.encode(work()))
        finally:
            os._exit(0)
    os.close(writes)
    with open(reads, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer


def _serving(root: Path, make: Callable[[], _Collected], log: Path) -> tuple[IO[bytes], IO[bytes]]:
    """Where to write what is asked of a process of its own below the root, and where to read its answers."""
    asked, asks = os.pipe()
    answers, answered = os.pipe()
    if not os.fork():
        try:
            os.close(asks)
            os.close(answers)
            with open(asked, "rb") as questions, open(answered, "wb") as found, _below(root, log):
                served = make()
                served.asks, served.answers = questions, found
                served.run()
        finally:
            os._exit(0)
    os.close(asked)
    os.close(answered)
    return open(asks, "wb"), open(answers, "rb")


@contextmanager
def _below(root: Path, log: Path) -> Iterator[None]:
    """As if this process had been started below the root; what it says goes into the log."""
    os.chdir(root)
    folders = [str(root / name) for name in ("lint", "rules", "schemas", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(folders)
    sys.path[:0] = folders
    for name in [name for name in sys.modules if name.split(".")[0] == "benchmarks"]:
        del sys.modules[name]
    with log.open("w") as out, redirect_stdout(out), redirect_stderr(out):
        yield
