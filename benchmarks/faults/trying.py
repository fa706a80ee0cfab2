"""Running tests on a copy of the project that has one fault, in a process that has pytest and all libraries imported.

A fork costs milliseconds, where a new interpreter would import for two seconds. Limits are of processor time,
so that a busy machine fails nothing.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import msgspec
import pytest
from benchmarks.faults.covering import Covered, Recorder, processor_seconds
from benchmarks.faults.seeding import Fault, seeded

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
    failed: str | None = None
    ran: int = 0

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        found = {item.nodeid: item for item in items}
        items[:] = [found[test] for test in self.tests if test in found]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.failed is None:
            self.failed = report.nodeid
        self.ran += report.when == "call" and report.passed

    def pytest_runtest_logfinish(self) -> None:
        if processor_seconds() > self.seconds and self.ran < len(self.tests):
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


def tried(copy: Copy, fault: Fault, covered: Covered, seconds: float, log: Path) -> Tried:
    """Whether a test fails where the fault is, with so many seconds of processor time for all."""
    take_out = copy.with_fault(fault)
    try:
        return _tried(copy, fault, covered, seconds, log)
    finally:
        take_out()


def _tried(copy: Copy, fault: Fault, covered: Covered, seconds: float, log: Path) -> Tried:
    ran, spent, chosen = 0, 0.0, covered.running(fault.module, fault.line)
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
        return failed, chosen.ran, processor_seconds()

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
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reads)
            if seconds:
                resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 1))
            os.chdir(root)
            folders = [str(root / name) for name in ("lint", "rules", "schemas", "")]
            os.environ["PYTHONPATH"] = os.pathsep.join(folders)
            sys.path[:0] = folders
            for name in [name for name in sys.modules if name.split(".")[0] == "benchmarks"]:
                del sys.modules[name]
            with log.open("w") as out, redirect_stdout(out), redirect_stderr(out):
                answer = msgspec.json.encode(work())
            os.write(writes, answer)
        finally:
            os._exit(0)
    os.close(writes)
    with open(reads, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer
