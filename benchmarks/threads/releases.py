"""Which release of a library was the newest on a day: what a run of that day may have had at best.

``releases.json`` has, for each library of which a release changes memory, the first day of each minor
release. It is written anew from the package index by::

    python -m benchmarks.threads.releases
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from datetime import date
from functools import cache

from benchmarks.threads import HERE

from oomlint.files.requirements import PACKAGES
from oomlint.plan.library_changes import release_of

_FILE = HERE / "releases.json"
_INDEX = "https://pypi.org/pypi/{}/json"

# Days of tags, of a program that people run from its repository: the index has it later, and patches
# move memory (https://github.com/hiyouga/LLaMA-Factory).
# Unsloth's are the days on which its version changed there (https://github.com/unslothai/unsloth).
_TAGGED = {
    "llamafactory": (
        ("2023-07-18", "0.1.0"), ("2023-10-15", "0.2.0"), ("2023-11-16", "0.3.0"),
        ("2023-12-16", "0.4.0"), ("2024-01-21", "0.5.0"), ("2024-03-25", "0.6.0"),
        ("2024-04-28", "0.7.0"), ("2024-06-08", "0.8.0"), ("2024-06-19", "0.8.2"),
        ("2024-09-09", "0.9.0"), ("2024-11-25", "0.9.1"), ("2025-03-11", "0.9.2"),
        ("2025-06-17", "0.9.3"), ("2025-12-31", "0.9.4"), ("2026-05-30", "0.9.5"),
    ),
    "unsloth": (
        ("2023-11-30", "2023.11"), ("2023-12-06", "2023.12"), ("2023-12-28", "2024.1"),
        ("2024-02-04", "2024.2"), ("2024-03-03", "2024.3"), ("2024-04-06", "2024.4"),
        ("2024-05-13", "2024.5"), ("2024-06-13", "2024.6"), ("2024-07-02", "2024.7"),
    ),
}  # fmt: skip


def on(day: date) -> Mapping[str, str]:
    """Package → its newest release on a day, of those that existed."""
    found = {}
    for package, releases in _known().items():
        earlier = [version for first, version in releases if first <= day.isoformat()]
        if earlier:
            found[package] = earlier[-1]
    return found


@cache
def _known() -> Mapping[str, list[tuple[str, str]]]:
    known: Mapping[str, list[tuple[str, str]]] = json.loads(_FILE.read_text("utf-8"))
    indexed = {
        package: [(day, version) for day, version in days] for package, days in known.items()
    }
    return {
        **indexed,
        **{
            package: sorted({*indexed.get(package, ()), *tags}) for package, tags in _TAGGED.items()
        },
    }


def _released(package: str) -> list[tuple[str, str]]:
    """The first day and the number of each minor release, by day."""
    with urllib.request.urlopen(_INDEX.format(package), timeout=60) as answer:
        releases = json.load(answer)["releases"]
    first: dict[tuple[int, ...], tuple[str, str]] = {}
    for version, files in releases.items():
        numbers = release_of(version)
        if not files or numbers is None or not version.replace(".", "").isdigit():
            continue
        day = min(file["upload_time"] for file in files)[:10]
        # Where the first two numbers never move, the third one is what a release changes.
        minor = numbers[: 2 if any(numbers[:2]) else 3]
        first[minor] = min(first.get(minor, (day, version)), (day, version))
    by_number = sorted(first.items())
    # A patch of an old line may come after a new one: the newest number counts.
    return sorted({(day, version) for _, (day, version) in by_number})


def main() -> None:
    found = {}
    for package in sorted(PACKAGES):
        try:
            found[package] = _released(package)
        except OSError as error:
            print(f"{package}: {error}")
    _FILE.write_text(json.dumps(found, indent=0) + "\n", "utf-8")


if __name__ == "__main__":
    main()
