"""The small projects that seed the fuzzers, for tests of what is read of them."""

from __future__ import annotations

from pathlib import Path

import pytest

_SOUND = Path(__file__).parents[1] / "benchmarks" / "fuzz" / "sound"


def sound_project(name: str) -> dict[str, str]:
    """The files of one, name → text; the test that asks is skipped in a source tree without benchmarks."""
    if not _SOUND.is_dir():
        pytest.skip("benchmarks/fuzz is not part of this source tree")
    return {file.name: file.read_text() for file in sorted((_SOUND / name).iterdir())}
