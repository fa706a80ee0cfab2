"""Which training files are taken for what they are.

INDEX is a list of files as JSON lines with ``repo``, ``path``, ``kind`` and ``framework``; the
folders hold checkouts, each named like its repository (``name`` or ``owner+name``). Training
scripts in Python are listed but not judged: most of those that the index names take their model from another
file, or train one of images.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from oomlint.dialects import registry
from oomlint.files.workspace import Workspace
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker

JUDGED = ("train-config", "deepspeed-json", "accelerate-yaml", "launch-script")
KINDS = (*JUDGED, "py-train-script")
TARGET = 0.98
# Names of the index where a dialect goes by another, and what builds on what.
_NAMES = {
    "llama-factory-v1": {"llama-factory"},
    "alignment-handbook": {"trl"},
    "llama-cookbook": {"llama-recipes"},
    "ms-swift": {"ms-swift", "megatron-swift"},
    "hf-peft": {"hf-trainer", "trl", "accelerate"},
    "accelerate": {"accelerate", "hf-trainer", "trl"},
}


def found_in(root: Path, path: str) -> set[str]:
    """The frameworks that a file of a checkout is recognised as."""
    workspace = Workspace(root)
    linker = Linker(workspace, registry(), LinkOptions())
    linked = linker.link([path])
    claims = {claim.framework or claim.dialect.name for claim in linker.claims(path)}
    return claims | {run.framework for run in linked.runs}


def _records(index: Path, folders: list[Path]) -> Iterator[tuple[Path, dict[str, str]]]:
    homes = {child.name.rpartition("+")[2]: child for f in folders for child in f.iterdir()}
    for line in index.read_text("utf-8").splitlines():
        record = json.loads(line)
        home = homes.get(record["repo"])
        if record["kind"] in KINDS and home is not None and (home / record["path"]).is_file():
            yield home, record


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recognition", description=__doc__)
    parser.add_argument("index", type=Path, metavar="INDEX")
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    given = parser.parse_args(arguments)
    seen: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for home, record in _records(given.index, given.folders):
        kind, framework = record["kind"], record["framework"]
        try:
            found = found_in(home, record["path"])
        except Exception as error:  # a bug in one reader is a miss here, not the end
            found = {f"{type(error).__name__}: {error}"}
        seen[kind] += 1
        if found & (_NAMES.get(framework, set()) | {framework}):
            right[kind] += 1
        else:
            print(f"{kind} {framework}: {record['repo']}/{record['path']} is {sorted(found)}")
    for kind, count in sorted(seen.items()):
        print(f"{kind:16} {right[kind]:4} of {count:4}  {right[kind] / count:6.1%}")
    return 0 if all(right[k] >= TARGET * seen[k] for k in JUDGED) else 1


if __name__ == "__main__":
    sys.exit(main())
