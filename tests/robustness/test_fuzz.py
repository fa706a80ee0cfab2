"""The first inputs of the fuzzer, the same every time, and bytes that hypothesis thinks of."""

from __future__ import annotations

import importlib
import pickle
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROJECTS, TEXTS, BY_DIALECT = 120, 10, 4
SECONDS = 20

TARGETS = (
    "yaml", "json", "toml", "shell", "python", "notebook", "makefile", "dockerfile", "settings",
    "baseline", "versions", "diff", "mark", "hardware", "plan", "suppressions", "log", "archive",
    "model-config", "editor",
)  # fmt: skip

# Pieces that mean something to one reader or another, and texts of any kind between them.
PIECES = st.sampled_from(
    ("base_model: ", "&a ", "*a", "<<: ", "- ", "? ", "[", "]", "{", "}", '"', "'", "'''", '"""', "#", "# oomlint: ",
     "ignore[", "=", "==", ">=", ":", ",", "\\\n", "\r\n", "\r", "\n", "\t", "  ", "$(", "${A:-", "}", "`", "<<EOF\n",
     "EOF\n", "if ", "then\n", "fi\n", "for x in ", "do ", "done\n", "def f(", "class C:\n ", "lambda: ", "@@ -1,2 +1 @@\n",
     "1e999", "9" * 4400, "0x", "-0", "nan", "\x00", "\ufeff", "\u2028", "%%bash\n", "FROM ", "RUN ", "train:\n\t",
     "CUDA out of memory. Tried to allocate ", "GiB", "\x1b[31m", "a.b.c", "!!python/object:x ", "--- ", "|\n "),
)  # fmt: skip
SOUPS = st.lists(st.one_of(PIECES, st.text(max_size=8)), max_size=40).map(
    lambda pieces: "".join(pieces).encode("utf-8", "surrogatepass")
)


@pytest.fixture(scope="module")
def fuzz() -> Any:
    if not (ROOT / "benchmarks" / "fuzz").is_dir():
        pytest.skip("benchmarks/fuzz is not part of this source tree")
    if sys.platform == "win32":
        pytest.skip("needs timers of POSIX")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        yield importlib.import_module("benchmarks.fuzz.__main__")


def tried(fuzz: Any, name: str, inputs: int) -> None:
    subject = fuzz.subjects(seconds=SECONDS)[name]()
    for number in range(inputs):
        made = subject(Random(f"1/{name}/{number}"), number)
        problem = made.attempt(made.data)
        assert problem is None, f"input {number} of seed 1 ({made.label}): {problem}"


def test_every_target_is_tried(fuzz: Any) -> None:
    assert {*TARGETS, "projects"} == {
        name for name in fuzz.subjects(seconds=SECONDS) if not name.startswith("dialect:")
    }


def test_no_project_breaks_a_promise(fuzz: Any) -> None:
    tried(fuzz, "projects", PROJECTS)


@pytest.mark.parametrize("name", TARGETS)
def test_no_text_breaks_a_reader(name: str, fuzz: Any) -> None:
    tried(fuzz, name, TEXTS)


def test_no_dialect_breaks(fuzz: Any) -> None:
    seeds = importlib.import_module("benchmarks.fuzz.targets").by_dialect()
    assert all(seeds.values()), [name for name, some in seeds.items() if not some]
    for name in seeds:
        tried(fuzz, f"dialect:{name}", BY_DIALECT)


@pytest.mark.parametrize("name", ["toml", "projects", "dialect:torchtune", "dialect:axolotl"])
def test_guided_fuzzing_has_something_to_start_from(name: str, fuzz: Any, tmp_path: Path) -> None:
    guided = importlib.import_module("benchmarks.fuzz.guided")
    targets = importlib.import_module("benchmarks.fuzz.targets")
    assert set(guided.names()) == fuzz.subjects(seconds=SECONDS).keys()
    guided.lay_out(name, tmp_path)
    texts = [file.read_bytes() for file in sorted((tmp_path / "corpus").iterdir())]
    assert 1 < len(texts) <= 40
    is_text = name in TARGETS
    assert (tmp_path / "projects").exists() != is_text
    target = (
        dict(targets.targets())[name]
        if is_text
        else targets.of_projects(pickle.loads((tmp_path / "projects").read_bytes()))
    )
    for data in texts[:4]:
        target.run(data)


@pytest.mark.parametrize("name", TARGETS)
def test_no_soup_of_words_breaks_a_reader(name: str, fuzz: Any) -> None:
    trial = importlib.import_module("benchmarks.fuzz.trial")
    target = dict(importlib.import_module("benchmarks.fuzz.targets").targets())[name]

    @settings(max_examples=15, derandomize=True, database=None)
    @given(SOUPS)
    def reads(data: bytes) -> None:
        problem = trial.attempted(lambda: target.run(data), SECONDS)
        assert problem is None, problem

    reads()
