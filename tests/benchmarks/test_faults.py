"""Faults that are swapped into functions, and those that only an import tells."""

from __future__ import annotations

import sys
import types
from functools import lru_cache

import pytest
from benchmarks.faults.covering import Covered
from benchmarks.faults.swapping import Live, is_in_functions

SOURCE = b"""
LIMIT = 3 + 4
WIDTHS = {n: n * 2 for n in range(3)}

class Kept:
    size: int = 5

    def twice(self, n: int) -> int:
        return n * 2

def later(n):
    def inner(m):
        return n + m
    return inner

def listed(n):
    return [m + 1 for m in range(n)]
"""


@pytest.mark.parametrize(
    ("before", "after", "is_inside"),
    [
        (b"return n * 2", b"return n / 2", True),
        (b"return n + m", b"return n - m", True),
        (b"m + 1 for", b"m - 1 for", True),
        # 1 and True are equal.
        (b"m + 1 for", b"m + True for", True),
        (b"3 + 4", b"3 - 4", False),
        (b"n * 2 for", b"n / 2 for", False),
        (b"int = 5", b"int = 6", False),
        # Nothing of the outer function is taken any more.
        (b"return n + m", b"return m", False),
        (b"later", b"later", False),
    ],
)
def test_a_fault_is_in_what_functions_do_or_in_what_an_import_does(
    before: bytes, after: bytes, is_inside: bool
) -> None:
    assert is_in_functions(SOURCE, SOURCE.replace(before, after)) == is_inside


def test_functions_that_are_there_get_the_fault_and_forget_what_they_answered() -> None:
    module = types.ModuleType("tried")
    module.__file__ = "/somewhere/tried.py"
    exec(compile(SOURCE, module.__file__, "exec"), vars(module))
    twice = lru_cache(module.Kept.twice)
    made, kept = module.later(10), module.Kept()
    module._SEEN = {"asked": "answered"}  # type: ignore[attr-defined]
    sys.modules["tried"] = module
    try:
        assert (twice(kept, 4), made(1), module.listed(2)) == (8, 11, [1, 2])
        live = Live(["tried.py"])
        live.take("tried.py", SOURCE, SOURCE.replace(b"n * 2\n", b"n * 3\n"))
        assert (twice(kept, 4), made(1)) == (12, 11)
        assert module._SEEN == {}
        live.take("tried.py", SOURCE, SOURCE.replace(b"n + m", b"n - m"))
        assert (made(1), module.later(10)(1)) == (9, 9)
    finally:
        del sys.modules["tried"]


def test_tests_named_after_what_is_on_the_line_come_first() -> None:
    tests = ["a.py::quick", "a.py::steps[qwen3-next-80b:full]", "a.py::steps[llama]", "b.py::other"]
    covered = Covered(tests, [0.1, 3.0, 1.0, 0.0], {"m.py": {7: [0, 1, 2]}})
    assert covered.running("m.py", 7) == [0, 2, 1]
    assert covered.running("m.py", 7, ["qwen3_next"]) == [1, 0, 2]
