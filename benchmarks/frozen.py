"""What oomlint says of every run it can be shown, kept and compared.

A redesign must not change what is said by accident. ``write`` keeps plan, evidence, estimate and
findings of each run under five sizes of hardware (one of them unknown); ``compare`` says
how two such files differ, by field, so that every difference can be explained::

    python -m benchmarks.frozen write before.jsonl [FOLDER...]
    python -m benchmarks.frozen compare before.jsonl after.jsonl

Without a folder: the examples, the examples of the rules, and the corpus where it is at hand.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
HARDWARE = (None, "1xRTX-4090-24GB", "4xA100-40GB", "8xA100-80GB", "2x8xH100-80GB")
HOST_MEMORY = {
    "1xRTX-4090-24GB": 64,
    "4xA100-40GB": 256,
    "8xA100-80GB": 1024,
    "2x8xH100-80GB": 2048,
}
_SHOWN = 25
_FOLDERS = ("examples", "../shared/corpus", "../shared/corpus-other")

Row = dict[str, Any]


def _units(folders: list[Path]) -> Iterator[tuple[str, str]]:
    """What is linted together: each project below a folder, each example of a rule."""
    for folder in folders:
        for entry in sorted(folder.resolve().iterdir()):
            if entry.name != ".git":
                yield "path", str(entry)


def _rule_units() -> Iterator[tuple[str, str]]:
    from oomlint_rules import rules

    for rule in rules():
        for kind in ("bad", "good"):
            for number in range(len(getattr(rule, kind))):
                yield "rule", f"{rule.__module__}:{rule.__name__}:{kind}:{number}"


def _rows(unit: tuple[str, str]) -> list[Row]:
    kind, name = unit
    if kind == "path":
        return [row for hardware in HARDWARE for row in _path_rows(Path(name), hardware)]
    return _rule_rows(name)


def _path_rows(path: Path, hardware: str | None) -> Iterator[Row]:
    from oomlint.documents import SUFFIXES
    from oomlint.files.disk import walk
    from oomlint.files.workspace import Workspace
    from oomlint.hardware import parse_hardware
    from oomlint.linting.engine import Options, lint

    workspace = Workspace(path if path.is_dir() else path.parent)
    files = walk(path, SUFFIXES) if path.is_dir() else [path]
    names = [workspace.name(file) for file in files]
    values = {} if hardware is None else {"host.ram_gib": float(HOST_MEMORY[hardware])}
    options = Options(
        hardware=None if hardware is None else parse_hardware(hardware), values=values
    )
    yield from _report_rows(lint(workspace, names, options), path.name, str(hardware))


def _rule_rows(name: str) -> list[Row]:
    from importlib import import_module

    from oomlint.linting.engine import lint
    from oomlint.linting.testing import _workspace, example_options

    module, cls, kind, number = name.split(":")
    rule = getattr(import_module(module), cls)
    example = getattr(rule, kind)[int(number)]
    names = list(example.files)
    report = lint(_workspace(example), names, example_options(example), explicit=frozenset(names))
    return list(_report_rows(report, f"{rule.code}/{kind}/{number}", "own"))


def _report_rows(report: Any, source: str, hardware: str) -> Iterator[Row]:
    from oomlint.report.json import check_object

    shape = json.loads(json.dumps(check_object(report), default=str))
    key = {"source": source, "hardware": hardware}
    for run, said in zip(report.runs, shape["runs"], strict=True):
        yield {
            **key,
            "run": said["name"],
            "framework": said["framework"],
            "plan": _flat(said["plan"]),
            "evidence": _evidence(run),
            "gpu": said["gpu"]["peak_bytes"],
            "host": said["host"]["peak_bytes"],
            "verdict": said["verdict"],
        }
    for finding in shape["findings"]:
        start = finding["range"]["start"]
        yield {
            **key,
            "finding": f"{finding['path']}:{start['line']} {finding['name']}",
            "severity": finding["severity"],
            "message": finding["message"],
            "fix": None if finding["fix"] is None else finding["fix"]["title"],
        }
    for error in shape["errors"]:
        yield {**key, "finding": f"error {error['path']}", "severity": error["kind"],
               "message": error["message"], "fix": None}  # fmt: skip


def _evidence(run: Any) -> dict[str, str]:
    return {str(field): setting.origin.kind for field, setting in run.settings.items()}


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {prefix: value}
    out: dict[str, Any] = {}
    for key, inner in value.items():
        out |= _flat(inner, f"{prefix}.{key}" if prefix else str(key))
    return out


def write(path: Path, folders: list[Path]) -> None:
    """Keep a row for each run and finding in ``path``."""
    units = list(_units(folders or [ROOT / f for f in _FOLDERS if (ROOT / f).is_dir()]))
    if not folders:
        units += _rule_units()
    with ProcessPoolExecutor(2) as pool, path.open("w") as out:
        for rows in pool.map(_rows, units, chunksize=4):
            for row in rows:
                out.write(json.dumps(row, sort_keys=True) + "\n")


def _read(path: Path) -> dict[tuple[str, str, str], list[Row]]:
    found: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    with path.open() as lines:
        for line in lines:
            row = json.loads(line)
            key = (row["source"], row["hardware"], row.get("run") or row["finding"])
            found[key].append(row)
    return found


def compare(before: Path, after: Path, *, shown: int = _SHOWN) -> int:
    """Print how the second file differs from the first; the number of rows that do."""
    old, new = _read(before), _read(after)
    fields: Counter[str] = Counter()
    examples: dict[str, list[str]] = defaultdict(list)
    rows = 0
    for key in sorted(old.keys() | new.keys()):
        pairs = list(_paired(old.get(key, []), new.get(key, [])))
        for was, now in pairs:
            differences = list(_differences(was, now))
            rows += bool(differences)
            for field, change in differences:
                fields[field] += 1
                if len(examples[field]) < shown:
                    examples[field].append(f"{' | '.join(key)}: {change}")
    for field, count in fields.most_common():
        print(f"{count:6} {field}")
        for line in examples[field]:
            print(f"         {line[:260]}")
    print(f"{rows} rows differ of {sum(map(len, old.values()))} and {sum(map(len, new.values()))}")
    return rows


def _paired(old: list[Row], new: list[Row]) -> Iterator[tuple[Row | None, Row | None]]:
    for number in range(max(len(old), len(new))):
        yield (
            old[number] if number < len(old) else None,
            new[number] if number < len(new) else None,
        )


def _differences(was: Row | None, now: Row | None) -> Iterator[tuple[str, str]]:
    row = was or now
    assert row is not None
    kind = "run" if "run" in row else f"finding {row['finding'].rpartition(' ')[2]}"
    if was is None or now is None:
        yield f"{kind} {'appeared' if was is None else 'is gone'}", row.get("message", "")
        return
    for part in ("framework", "gpu", "host", "verdict", "severity", "message", "fix"):
        if was.get(part) != now.get(part):
            yield f"{kind}: {part}", f"{was.get(part)} -> {now.get(part)}"
    for part in ("plan", "evidence"):
        for field in sorted(was.get(part, {}).keys() | now.get(part, {}).keys()):
            a, b = was[part].get(field), now[part].get(field)
            if a != b:
                yield f"{part} {field}", f"{a} -> {b}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    writing = commands.add_parser("write")
    writing.add_argument("file", type=Path)
    writing.add_argument("folders", type=Path, nargs="*")
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--shown", type=int, default=_SHOWN)
    options = parser.parse_args()
    if options.command == "write":
        write(options.file, options.folders)
    else:
        sys.exit(compare(options.before, options.after, shown=options.shown) != 0)


if __name__ == "__main__":
    main()
