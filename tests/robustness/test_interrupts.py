"""Ctrl-C ends whatever runs with status 130 and not a word; `benchmarks.signals` asks at many more moments."""

import sys
from collections import Counter

import pytest

if sys.platform == "win32":
    pytest.skip("sends signals the POSIX way", allow_module_level=True)
signals = pytest.importorskip("benchmarks.signals")


@pytest.mark.parametrize("workers", [False, True])
def test_ctrl_c_at_random_moments(workers: bool) -> None:
    assert signals.interrupts(4, workers=workers) - Counter(
        {"had ended already": 10**6}
    ) == Counter({"status 130, silent": 4})


def test_kills_at_random_moments() -> None:
    found = signals.kills(8)
    assert not {"TORN", "LEFT BEHIND", "NEXT RUN FAILED"} & found.keys()
    assert found["killed while writing"]
