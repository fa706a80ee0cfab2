"""Of faults seeded into the arithmetic, how many the tests catch: ``python -m benchmarks.faults``.

Faults are drawn from all of ``memory``, ``judgement`` and the cells, with a seed, so that the first 60 of 200 are those
of 60. Each is put into a copy of the project, where the tests that run its line follow, the quickest first, until one fails.
A fault of a function is swapped in, in the fork of a process that has all tests collected; any other is imported anew. That all of these pass without a fault is tried at the end. What survives is printed with file, line and change.

``--keep FOLDER`` keeps which tests run which lines, which takes a run of all of them under coverage (``pip install coverage``), and every fault
that was tried, in ``tried.jsonl``. ``--again FILE`` tries those that survived in such a file, as far as their code is still there.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Iterable
from pathlib import Path

import msgspec
from benchmarks.faults.covering import Covered
from benchmarks.faults.seeding import Fault, faults_in
from benchmarks.faults.trying import Copy, Trial, Tried, recorded, unreliable, warm_up

_ROOT = Path(__file__).resolve().parents[2]
_CELLS = ("cell", "cells", "looks", "precedence", "readers")
_MODULES = (
    "lint/oomlint/memory",
    "lint/oomlint/judgement",
    *(f"lint/oomlint/dialects/{module}.py" for module in _CELLS),
)
# Tests that ask the arithmetic and take few processes of their own, the narrowest first.
_TESTS = """tests/memory tests/judgement tests/judgement/planner tests/benchmarks tests/dialects/test_cells.py
tests/dialects/test_trainer.py tests/dialects/test_deepspeed.py tests/dialects/test_axolotl.py tests/runs/test_run.py tests/test_api.py
tests/runs/test_documented_hardware.py tests/runs/test_unread.py tests/files/test_requirements.py tests/judgement/test_alternatives.py tests/config/test_plan_values.py
tests/test_real_failures.py tests/rules/test_examples.py"""


def modules(root: Path) -> list[str]:
    """The modules that get faults, as paths below the root."""
    found = [root / name for name in _MODULES]
    files = [file for path in found for file in (sorted(path.rglob("*.py")) or [path])]
    return [file.relative_to(root).as_posix() for file in files]


def drawn(root: Path, count: int, seed: int) -> list[Fault]:
    """So many faults, any of them as likely."""
    every = [fault for module in modules(root) for fault in faults_in(root, module)]
    random.Random(seed).shuffle(every)
    return every[:count]


def survived(root: Path, file: Path) -> list[Fault]:
    """The faults that no test of an earlier run caught and that still have their place."""
    found = [msgspec.json.decode(line, type=Tried) for line in file.read_bytes().splitlines()]
    names = {result.fault.name for result in found if result.caught is None}
    every = (fault for module in modules(root) for fault in faults_in(root, module))
    return [fault for fault in every if fault.name in names]


def report(results: Iterable[Tried]) -> None:
    """What survived, and the share of those that were caught."""
    every = list(results)
    left = [result for result in every if result.caught is None]
    for result in sorted(left, key=lambda result: (result.fault.module, result.fault.line)):
        fault = result.fault
        print(f"{fault.module}:{fault.line} {fault.function}: {fault.kind}")
        print(
            f"    {fault.before}\n -> {fault.after}   ({result.ran} passed, {result.left} not run)"
        )
    caught = len(every) - len(left)
    if every:
        print(f"{caught} of {len(every)} faults caught, {caught / len(every):.0%}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--count", type=int, default=60, help="how many faults")
    parser.add_argument(
        "--skip", type=int, default=0, help="how many of them another process tries"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60, help="processor time for a fault")
    parser.add_argument(
        "--tests", nargs="+", default=_TESTS.split(), help="files and folders of tests"
    )
    parser.add_argument("--keep", type=Path, help="a folder for what was found")
    parser.add_argument("--again", type=Path, help="a file of tried faults")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="oomlint-faults-") as folder:
        keep: Path = options.keep or Path(folder)
        keep.mkdir(parents=True, exist_ok=True)
        (Path(folder) / "copy").mkdir()
        copy, log = Copy(_ROOT, Path(folder) / "copy"), keep / "log"
        warm_up()
        lines = keep / "covered.json"
        if not lines.exists():
            found = recorded(copy, modules(copy.root), options.tests, log)
            lines.write_bytes(msgspec.json.encode(found))
        covered = msgspec.json.decode(lines.read_bytes(), type=Covered)
        again: Path | None = options.again
        if again:
            faults = survived(copy.root, again)
        else:
            faults = drawn(copy.root, options.count, options.seed)[options.skip :]
        results = []
        trial = Trial(copy, covered, options.seconds, log)
        with (keep / "tried.jsonl").open("ab") as out:
            for number, fault in enumerate(faults, 1):
                result = trial.tried(fault)
                results.append(result)
                out.write(msgspec.json.encode(result) + b"\n")
                out.flush()
                print(
                    f"{number} {fault.module}:{fault.line} {fault.kind}: {result.caught or 'SURVIVED'}"
                    f" ({result.seconds:.0f} s)",
                    flush=True,
                )
        trial.close()
        if failed := unreliable(copy, results, 10 * options.seconds, log):
            print(f"{failed} fails without any fault as well: what it caught is not caught")
        report(results)


if __name__ == "__main__":
    main()
