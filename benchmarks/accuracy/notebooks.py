"""What public notebooks print after training, against their prediction: ``python -m benchmarks.accuracy.notebooks FOLDER``.

FOLDER is a checkout of the repository that the rows of ``notebooks.jsonl`` name, at their commit. A notebook is read
as it stands, on the card that it printed; what it prints is torch's max_memory_reserved. Rows whose figures stand in
another notebook too, or are less than the weights that they printed, are counted apart, and a notebook whose file is another than the row's is passed over.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.accuracy.__main__ import SHARED, quantile, rows
from msgspec import Struct

from oomlint.files.workspace import Workspace
from oomlint.hardware import parse_hardware
from oomlint.plan import Plan
from oomlint.plugins import dialects_in_force
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker
from oomlint.runs.run import Run


class Printed(Struct, frozen=True):
    """One notebook: bytes that it printed and bytes that are predicted, with their bounds."""

    name: str
    printed: float
    reserved: int
    low: int
    high: int
    is_suspect: bool

    @property
    def error(self) -> float:
        return self.reserved / self.printed - 1

    @property
    def is_inside(self) -> bool:
        return self.low <= self.printed <= self.high


def predicted(folder: Path, row: Mapping[str, Any]) -> Printed | str:
    """The prediction for a row's notebook, or why there is none."""
    data = (folder / row["path"]).read_bytes()
    blob = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
    if blob != row["blob"]:
        return "its file is of another commit"
    run = _run_of(folder, row)
    if run is None:
        return "no run is recognised"
    gpu = run.estimate.gpu
    if gpu.reserved_bytes is None or gpu.reserved is None:
        return f"nothing is predicted of {run.plan.model.id}"
    return Printed(
        row["id"], row["peak_reserved_gib"] * 2**30, gpu.reserved_bytes,
        gpu.reserved.low, gpu.reserved.high,
        bool(row["suspect"]) or is_less_than_its_weights(data.decode(), row["peak_reserved_gib"], run.plan),
    )  # fmt: skip


_COUNTED = re.compile(r"Trainable parameters = ([\d,]+) of ([\d,]+)")


def is_less_than_its_weights(notebook: str, peak_gib: float, plan: Plan) -> bool:
    """Whether the frozen parameters that a run printed alone fill more, in half precision, than its printed peak: a
    part of the model was not on that card."""
    counted = _COUNTED.search(notebook)
    if counted is None or plan.quant.method not in (None, "none"):
        return False
    trained, whole = (int(number.replace(",", "")) for number in counted.groups())
    return 2 * (whole - trained) > peak_gib * 2**30


def _run_of(folder: Path, row: Mapping[str, Any]) -> Run | None:
    options = LinkOptions(parse_hardware(f"1x{row['gpu']}"))
    linker = Linker(Workspace(folder), dialects_in_force((), None).items, options)
    whole = [run for run in linker.link([row["path"]]).runs if not run.is_fragment]
    return whole[0] if whole else None


def _summaries(found: Sequence[Printed]) -> Iterator[str]:
    for name, chosen in (
        ("notebooks", [each for each in found if not each.is_suspect]),
        ("with figures that stand in two, or are less than the weights", found),
    ):
        if not chosen:
            continue
        errors = [abs(each.error) for each in chosen]
        inside = sum(each.is_inside for each in chosen) / len(chosen)
        yield (
            f"{name}: n={len(chosen)} median {statistics.median(errors):.1%} p90 {quantile(errors, 0.9):.1%}  "
            f"{inside:.0%} inside their bounds"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--truth", type=Path, default=SHARED)
    given = parser.parse_args()
    found: list[Printed] = []
    for row in rows(given.truth, "notebooks"):
        answer = predicted(given.folder, row)
        if isinstance(answer, str):
            print(f"not counted: {row['id']}: {answer}")
            continue
        found.append(answer)
        print(
            f"{answer.error:+6.0%}  {answer.printed / 2**30:5.1f} GiB printed, {answer.reserved / 2**30:5.1f} predicted "
            f"({answer.low / 2**30:.1f} to {answer.high / 2**30:.1f})  {answer.name}"
        )
    print(*_summaries(found), sep="\n")


if __name__ == "__main__":
    main()
