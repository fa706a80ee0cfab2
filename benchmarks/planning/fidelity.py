"""What fixes do to the bytes of real configs: ``python -m benchmarks.planning.fidelity CORPUS``.

Every YAML and JSON file is fixed on hardware so small that much has to change, as it stands and
in the dresses that files wear: CRLF, a byte order mark, no newline at the end, tabs and emoji in
comments. Of each result is asked that it reads, that only what fixes edited reads differently,
that the dress stays, that a second run has nothing to do, and that no predicted peak has risen.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from oomlint.files.disk import walk
from oomlint.files.workspace import Workspace
from oomlint.fix.apply import FixResult, fix_all
from oomlint.hardware import Hardware, parse_hardware
from oomlint.judgement import settled
from oomlint.linting.engine import Options, Report, lint

_BOM = b"\xef\xbb\xbf"
_ODD = "# naïve 🦥 \t tabs\there"


def _crlf(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def _marked(data: bytes) -> bytes:
    return _BOM + data.removeprefix(_BOM)


def _unfinished(data: bytes) -> bytes:
    return data.rstrip(b"\r\n")


def _commented(data: bytes) -> bytes:
    return _ODD.encode() + b"\n" + data + b"\n" + _ODD.encode() + b"\n"


DRESSES: Mapping[str, Callable[[bytes], bytes]] = {
    "plain": lambda data: data,
    "crlf": _crlf,
    "bom": _marked,
    "unfinished": _unfinished,
    "commented": _commented,
}


def troubles(
    folder: Path, name: str, hardware: Hardware, *, dress: str = "plain", unsafe: bool = False
) -> Iterator[str]:
    """What is wrong with the fixes of one file below ``folder``; nothing where all is well, or
    where there was nothing to fix."""
    data = (folder / name).read_bytes()
    if dress == "commented" and name.endswith(".json"):
        return
    yield from troubles_of(Workspace(folder, {name: DRESSES[dress](data)}), name, hardware, unsafe)


def troubles_of(
    workspace: Workspace, name: str, hardware: Hardware, unsafe: bool = False
) -> Iterator[str]:
    options = Options(hardware=hardware)
    result = fix_all(workspace, [name], options, unsafe=unsafe)
    yield from (f"error: {error.message}" for error in result.report.errors)
    if not result.texts:
        return
    for path, new in result.texts.items():
        old = result.originals[path]
        if old is not None:
            yield from (f"{path}: {trouble}" for trouble in _bytes_differ(path, old, new))
    yield from _peaks(workspace, name, options, result)
    again = fix_all(workspace.with_overlay(result.texts), [name], options, unsafe=unsafe)
    if again.texts:
        titles = [d.fix.title for d in again.report.applied if d.fix is not None]
        yield f"a second run changes more: {titles}"


def _bytes_differ(path: str, old: bytes, new: bytes) -> Iterator[str]:
    if old.startswith(_BOM) != new.startswith(_BOM):
        yield "the byte order mark is lost or added"
    text, now = old.decode(), new.decode()
    if "\r\n" in text and "\n" not in text.replace("\r\n", "") and "\n" in now.replace("\r\n", ""):
        yield "line endings are mixed"
    if "\r" not in text and "\r" in now:
        yield "carriage returns are added"
    if text.endswith("\n") != now.endswith("\n"):
        yield "the newline at the end is lost or added"
    lost = Counter(_comments(text)) - Counter(_comments(now))
    if lost and path.endswith((".yaml", ".yml")):
        yield f"comments are lost: {list(lost)[:3]}"
    if path.endswith(".json") and _is_json(text) and not _is_json(now):
        yield "it is no JSON any more"


def _comments(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line.lstrip().startswith("#"):
            yield line.strip()


def _is_json(text: str) -> bool:
    try:
        json.loads(text.removeprefix("\ufeff"))
    except ValueError:
        return False
    return True


def _peaks(workspace: Workspace, name: str, options: Options, result: FixResult) -> Iterator[str]:
    if any(d.fix is not None and d.fix.rise for d in result.report.applied):
        return  # what makes a run start at all may cost memory, and its title says so
    before = _peak_of(lint(workspace, [name], options, rules=()))
    for run, peak in _peak_of(result.report).items():
        was = before.get(run)
        if was is not None and peak is not None and peak > was * 1.0001:
            yield f"the peak of {run} rises from {was} to {peak}"


def _peak_of(report: Report) -> dict[str, int | None]:
    return {run.name: settled(run).estimate.gpu.peak_bytes for run in report.runs}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planning.fidelity")
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--hardware", default="8xT4-16GB")
    parser.add_argument("--dress", choices=[*DRESSES, "all"], default="plain")
    parser.add_argument("--unsafe", action="store_true")
    parser.add_argument("--part", default="1/1", metavar="I/N", help="each N-th file from the I-th")
    given = parser.parse_args(arguments)
    first, every = (int(number) for number in given.part.split("/"))
    hardware, corpus = parse_hardware(given.hardware), given.corpus.resolve()
    paths = walk(corpus, (".yaml", ".yml", ".json"))
    names = [str(path.relative_to(corpus)) for path in paths][first - 1 :: every]
    dresses = list(DRESSES) if given.dress == "all" else [given.dress]
    counts: Counter[str] = Counter()
    for name in names:
        for dress in dresses:
            counts["files"] += 1
            for trouble in _reported(corpus, name, hardware, dress, given.unsafe):
                counts["troubles"] += 1
                print(f"{name} ({dress}): {trouble}")
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    return 1 if counts["troubles"] else 0


def _reported(folder: Path, name: str, hardware: Any, dress: str, unsafe: bool) -> Iterator[str]:
    try:
        yield from troubles(folder, name, hardware, dress=dress, unsafe=unsafe)
    except Exception as error:  # to go on with the other files
        yield f"raised {type(error).__name__}: {error}"


if __name__ == "__main__":
    raise SystemExit(main())
