"""Baselines: findings that a project knows and lives with, kept in a file and not reported.

The file has one line per finding and is sorted, so that a change of it reads well in a diff.
Findings are known again by fingerprint: rule, file and message, in which neither the line nor a
number counts. Of findings that look alike as many are known as the file counts.
"""

from __future__ import annotations

import os.path
from collections import Counter
from collections.abc import Collection, Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from oomlint.errors import UsageError
from oomlint.files.reading import read_regular
from oomlint.linting.diagnosis import Told, fingerprint as fingerprint

if TYPE_CHECKING:
    from oomlint.files.workspace import Workspace

D = TypeVar("D", bound=Told)

DEFAULT_NAME = ".oomlint-baseline.json"

_VERSION = 1
_LISTED = 10


class Known(Struct, frozen=True):
    """Findings that look alike: ``count`` of them in the file ``path``, relative to the root."""

    path: str
    code: str
    name: str
    fingerprint: str
    count: int
    message: str


class Baseline(Struct, frozen=True, dict=True):
    """What is known. Paths in it, and so fingerprints, are relative to the folder ``root``."""

    root: Path
    known: tuple[Known, ...] = ()
    is_report: bool = False
    """Whether it was read from what ``check`` printed."""

    @cached_property
    def counts(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for entry in self.known:
            counts[entry.fingerprint] += entry.count
        return counts

    def split(self, diagnoses: Iterable[D], workspace: Workspace) -> tuple[list[D], list[D]]:
        """Diagnoses that are new and those that are known."""
        left = self.counts.copy()
        new: list[D] = []
        known: list[D] = []
        for diagnosis in diagnoses:
            print_ = self._known(diagnosis, workspace).fingerprint
            (known if left[print_] > 0 else new).append(diagnosis)
            left[print_] -= 1
        return new, known

    def rewritten(
        self,
        diagnoses: Iterable[Told],
        workspace: Workspace,
        checked: Collection[str],
        *,
        grow: bool,
    ) -> Baseline:
        """The baseline after a lint of the files ``checked`` (display paths) found ``diagnoses``.

        Of these files what is no longer found goes, and of files that are no more everything;
        what is new comes in only if ``grow``. What is known of other files stays.
        """
        found: dict[str, Known] = {}
        for diagnosis in diagnoses:
            entry = self._known(diagnosis, workspace)
            before = found.get(entry.fingerprint)
            found[entry.fingerprint] = (
                entry if before is None else replace(before, count=before.count + 1)
            )
        seen = {self._relative(workspace, name) for name in checked}
        seen |= {entry.path for entry in found.values()}
        kept = [
            entry
            for entry in self.known
            if entry.path not in seen and (self.root / entry.path).is_file()
        ]
        if grow:
            kept += found.values()
        else:
            kept += [
                replace(entry, count=min(entry.count, found[entry.fingerprint].count))
                for entry in self.known
                if entry.path in seen and entry.fingerprint in found
            ]
        return Baseline(self.root, tuple(sorted(kept, key=_order)))

    def outlived(self, known: Iterable[Told], workspace: Workspace, checked: Iterable[str]) -> int:
        """How many findings that are listed for the files ``checked`` are not among ``known``."""
        seen = {self._relative(workspace, name) for name in checked}
        found = Counter(self._known(d, workspace).fingerprint for d in known)
        listed = Counter[str]()
        for entry in self.known:
            if entry.path in seen:
                listed[entry.fingerprint] += entry.count
        return (listed - found).total()

    def _known(self, diagnosis: Told, workspace: Workspace) -> Known:
        rule, message = diagnosis.rule, " ".join(diagnosis.finding.message.split())
        path = self._relative(workspace, diagnosis.finding.location.path)
        print_ = fingerprint(rule.code, path, diagnosis.finding.message)
        return Known(path, rule.code, rule.name, print_, 1, message)

    def _relative(self, workspace: Workspace, name: str) -> str:
        try:
            path = os.path.relpath(workspace.file(name), self.root)
        except ValueError:  # another drive
            path = str(workspace.file(name))
        return path.replace(os.sep, "/")

    def text(self) -> str:
        """The file: JSON with one finding a line."""
        import json

        lines = [
            json.dumps(
                {
                    "path": entry.path,
                    "code": entry.code,
                    "name": entry.name,
                    "fingerprint": entry.fingerprint,
                    "count": entry.count,
                    "message": entry.message,
                },
                ensure_ascii=False,
            )
            for entry in self.known
        ]
        body = "[\n    " + ",\n    ".join(lines) + "\n  ]" if lines else "[]"
        return f'{{\n  "version": {_VERSION},\n  "findings": {body}\n}}\n'


def _order(entry: Known) -> tuple[str, str, str]:
    return entry.path, entry.code, entry.fingerprint


def read_baseline(file: Path, cwd: Path) -> Baseline:
    """The baseline in a file; the JSON that ``check`` prints serves as one too, with paths
    relative to ``cwd``.

    Raises:
        UsageError: it is missing or is neither.
    """
    import json

    try:
        text = read_regular(file)
        data = json.loads(text)
    except FileNotFoundError:
        raise UsageError(
            f"the baseline {file} does not exist; --baseline write={file} writes it"
        ) from None
    except OSError as error:
        raise UsageError(f"the baseline {file} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the baseline {file} is not valid JSON: {error}") from None
    try:
        if data["version"] != _VERSION:
            raise UsageError(f"the baseline {file} is of version {data['version']}, not {_VERSION}")
        is_report = "tool" in data
        known = tuple(map(_entry, data["findings"]))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UsageError(_why_none(file, text)) from None
    return Baseline(cwd if is_report else file.parent, known, is_report)


def _why_none(file: Path, text: bytes) -> str:
    """Where a JSON file departs from a baseline, or from a report if it is nearer to one."""
    from oomlint_schemas.validation import problems

    schema = "findings" if b'"tool"' in text else "baseline"
    found = [f"{file}:{p.line}:{p.column}: {p}" for p in problems(schema, text)]
    makers = "--baseline write and --output-format json make such files"
    return "\n".join([f"{file} is no baseline: {makers}", *found[:_LISTED]])


def _entry(item: dict[str, Any]) -> Known:
    # In a report the n-th of findings that look alike says so behind a dash.
    print_, _, _ = str(item["fingerprint"]).partition("-")
    return Known(
        str(item["path"]),
        str(item["code"]),
        str(item["name"]),
        print_,
        int(item.get("count", 1)),
        str(item.get("message", "")),
    )
