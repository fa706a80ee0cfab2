"""Of strangers' repositories: whose main training run is known, and why the others' are not.

Read are what ``oomlint check --output-format json`` printed of each repository, a file ``OWNER+NAME.json`` each, and the
checkouts, folders of the same names::

    python -m benchmarks.strangers.unknown CHECKOUTS RESULTS...

The main run is the one whose files the README names, that has the most files, and that is neither in a folder of examples or
tests nor called after an evaluation: a rule that a machine can follow, and that takes another than a reader would for one in
some repositories.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

_ASIDE = re.compile(r"(?:^|/)(?:tests?|examples?|docs?|recipes)/")
_EVALUATES = re.compile(r"eval|infer|test")
_TRAINS = re.compile(r"\.backward\(|Trainer\(|\.fit\(")
_LANGUAGE = re.compile(
    r"AutoModelFor|ForCausalLM|FastLanguageModel|from_pretrained|transformers|trl"
)
_LONGEST = 400_000


def reasons(checkouts: Path, results: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Each repository with what is known of its main run, or why nothing is."""
    for file in results:
        folder, runs = checkouts / file.stem, json.loads(file.read_text("utf-8"))["runs"]
        if folder.is_dir():
            yield file.stem, _reason(max(runs, key=_weight(folder))) if runs else _no_run(folder)


def _weight(folder: Path) -> Any:
    said = "".join(f.read_text("utf-8", "replace") for f in folder.glob("[Rr][Ee][Aa][Dd]*.*"))

    def weight(run: dict[str, Any]) -> int:
        name = re.sub(r":\d+$", "", run["name"].split(" (")[0])
        named = any(Path(each).name in said for each in (name, *run["files"]))
        aside = 2 * bool(_ASIDE.search(name)) + bool(_EVALUATES.search(Path(name).name))
        return 4 * named + min(len(run["files"]), 3) - aside

    return weight


def _reason(run: dict[str, Any]) -> str:
    if run["verdict"] != "unknown":
        return f"known: {run['verdict']}"
    missing = run["unpredicted"] or ""
    if missing:
        which = (
            "nothing read names the model" if "which model" in missing else "its model is not known"
        )
        return f"unknown: {which}"
    unread = sorted(b["field"] for b in run["evidence"]["rests_on"] if b["level"] == "unread")
    return f"unknown: {unread[0] if unread else 'it ends before, or hangs on the launch'}"


def _no_run(folder: Path) -> str:
    texts = (
        file.read_text("utf-8", "replace")[:_LONGEST]
        for kind in ("*.py", "*.ipynb")
        for file in folder.rglob(kind)
        if file.is_file()
    )
    training = [text for text in texts if _TRAINS.search(text)]
    if not training:
        return "no run: nothing trains"
    return f"no run: {'a' if any(map(_LANGUAGE.search, training)) else 'no'} model of a library's"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("results", type=Path, nargs="+", help="folders of JSON reports")
    given = parser.parse_args()
    files = [file for folder in given.results for file in sorted(folder.glob("*.json"))]
    counted = Counter(why for _, why in reasons(given.checkouts, files))
    for why, count in counted.most_common():
        print(f"{count:4}  {why}")


if __name__ == "__main__":
    main()
