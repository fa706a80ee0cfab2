"""Which tests run which lines of the modules, and what each test costs: one run of the tests under coverage."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest
from msgspec import Struct


class Covered(Struct, frozen=True):
    """``lines[module][line]`` are the indices of the tests that run the line."""

    tests: list[str]
    seconds: list[float]
    lines: dict[str, dict[int, list[int]]]

    def running(self, module: str, line: int, words: Sequence[str] = ()) -> list[int]:
        """The tests that run a line, the quickest first, but those before them that are named after one of the ``words``
        on it: of a row of a table they ask.

        What is worked out once is seen in one test, though others of its file would fail with it as well: they
        come after. Of a line that runs when its module is imported nothing is known: all tests of the module.
        """
        lines = self.lines.get(module, {})
        found = lines.get(line) or sorted({test for some in lines.values() for test in some})
        chosen = set(found)
        files = {self.tests[index].split("::")[0] for index in found}
        beside = [
            index
            for index, test in enumerate(self.tests)
            if index not in chosen and test.split("::")[0] in files
        ]
        asked = [_plain(word) for word in words]

        def turn(index: int) -> tuple[bool, float]:
            name = _plain(self.tests[index].partition("[")[2])
            return not any(word in name for word in asked), self.seconds[index]

        return sorted(chosen, key=turn) + sorted(beside, key=turn)


def _plain(name: str) -> str:
    """A name as it is spelled anywhere: ``qwen3_next`` and ``qwen3-next-80b`` begin alike."""
    return "".join(filter(str.isalnum, name.lower()))


def processor_seconds() -> float:
    """What this process and those that it started have computed."""
    return sum(os.times()[:4])


class Recorder:
    """A plug-in of pytest that keeps for each test that passes which lines it runs, fixtures included."""

    def __init__(self, modules: Sequence[Path]) -> None:
        import coverage

        self._coverage = coverage.Coverage(
            data_file=None, include=[str(path) for path in modules], config_file=False
        )
        self._modules = modules
        self._seconds: dict[str, float] = {}
        self._failed: set[str] = set()
        self._coverage.start()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        began = processor_seconds()
        self._coverage.switch_context(item.nodeid)
        result = yield
        self._seconds[item.nodeid] = processor_seconds() - began
        self._coverage.switch_context("")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self._failed.add(report.nodeid)

    def covered(self, root: Path) -> Covered:
        """What was recorded, with paths below the root."""
        self._coverage.stop()
        data = self._coverage.get_data()
        tests = [test for test in self._seconds if test not in self._failed]
        index = {test: number for number, test in enumerate(tests)}
        lines = {
            path.relative_to(root).as_posix(): {
                line: sorted(index[test] for test in contexts if test in index)
                for line, contexts in data.contexts_by_lineno(str(path)).items()
            }
            for path in self._modules
        }
        return Covered(tests, [self._seconds[test] for test in tests], lines)
