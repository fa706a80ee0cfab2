"""Ctrl-C ends whatever runs with status 130 and not a word; `benchmarks.signals` asks at many more moments."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

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


_WHILE_MSGSPEC_STARTS = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "datetime":
            if signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ()):
                os._exit(99)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
from oomlint.cli import command
command()
"""


def test_ctrl_c_while_a_library_starts_that_cannot_be_left(tmp_path: Path) -> None:
    Path(tmp_path, "train.yaml").write_text(
        "base_model: meta-llama/Llama-3.1-8B\nmicro_batch_size: 2\n"
    )
    words = ("check", "--isolated", "--no-cache", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", _WHILE_MSGSPEC_STARTS, *words], capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")
