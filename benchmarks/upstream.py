"""Ids of the frameworks' modules and examples, from clones of their repositories.

Reads the whole history of the branch that each clone is at, of a folder of clones (``OWNER+NAME``, bare ones or with a
``repo`` or ``.git`` inside), and writes ``lint/oomlint/dialects/upstream/data``::

    python -m benchmarks.upstream FOLDER [NAME ...]

With names of frameworks only their data are written anew. A clone must have its whole history: one that is shallow is
refused.
"""

from __future__ import annotations

import argparse
import datetime
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from oomlint.dialects.upstream.frameworks import FRAMEWORKS, Framework
from oomlint.dialects.upstream.known import DATA, ID, packed
from oomlint.dialects.upstream.statements import digests

_LOG = ("log", "--raw", "--no-abbrev", "--no-renames", "-c", "--format=commit %cs")
_RELEASE = r"v?\d+\.\d+(?:\.\d+)?"


def git(clone: Path, *words: str, given: bytes = b"") -> bytes:
    command = ["git", f"--git-dir={clone}", *words]
    return subprocess.run(command, input=given, capture_output=True, check=True).stdout


def git_folder(folder: Path, repository: str) -> Path:
    """The git directory of a repository's clone."""
    top = folder / repository.replace("/", "+")
    found = next(
        (each for each in (top / "repo", top / ".git", top) if (each / "HEAD").is_file()), None
    )
    if found is None:
        raise SystemExit(f"{repository}: no clone in {folder}")
    if (found / "shallow").is_file():
        raise SystemExit(f"{repository}: its clone is shallow")
    return found


def history(clone: Path, *of: str) -> Iterator[tuple[str, str, str]]:
    """Path, blob and day of every version of every file, by default of the branch that is checked out, the newest
    first."""
    day = ""
    for line in git(clone, *_LOG, *(of or ("HEAD",))).decode("utf-8", "replace").splitlines():
        if line.startswith("commit "):
            day = line[7:]
        elif line.startswith(":"):
            meta, *paths = line.split("\t")
            blob = [word for word in meta.split() if len(word) == 40][-1]
            if blob.strip("0"):
                yield paths[-1], blob, day


def texts(clone: Path, blobs: list[str]) -> Iterator[str]:
    """The texts of blobs."""
    if not blobs:
        return
    out = git(clone, "cat-file", "--batch", given="\n".join(blobs).encode() + b"\n")
    at = 0
    while at < len(out):
        end = out.index(b"\n", at)
        size = int(out[at:end].split()[2])
        yield out[end + 1 : end + 1 + size].decode("utf-8", "replace")
        at = end + size + 2


def write(framework: Framework, clone: Path) -> None:
    decides = re.compile(
        "|".join(f"(?:{_plain(each.pattern)})" for each in framework.modules) or "(?!)"
    )
    shows = re.compile("|".join(f"(?:{each})" for each in framework.examples))
    modules: dict[str, str] = {}
    lost = (
        history(clone, "--all", "--full-history", "--", *framework.lost) if framework.lost else ()
    )
    examples: set[str] = set()
    for path, blob, day in (*lost, *history(clone)):
        if decides.fullmatch(path):
            modules[blob] = day
        elif shows.fullmatch(path):
            examples.add(blob)
    known = {each for text in texts(clone, list(modules)) for each in digests(text).values()}
    rows = {bytes.fromhex(blob)[:ID]: _day(day) for blob, day in modules.items()}
    ids = {bytes.fromhex(blob)[:ID] for blob in examples}
    commit, date = git(clone, "log", "-1", "--format=%h %cs").decode().split()
    source = (framework.repository, commit, date)
    data = packed(source, rows, ids, known, releases(clone))
    (DATA / f"{framework.name}.bin").write_bytes(data)
    print(f"{framework.name}: {len(data):,} bytes of {framework.repository} {commit} ({date})")


def releases(clone: Path) -> list[tuple[str, int]]:
    """The versions that tags name, with their days, the earliest first."""
    tags = git(clone, "for-each-ref", "refs/tags", "--format=%(refname:short) %(creatordate:short)")
    named = (line.split() for line in tags.decode().splitlines())
    found = [(tag.lstrip("v"), _day(date)) for tag, date in named if re.fullmatch(_RELEASE, tag)]
    return sorted(found, key=lambda each: each[1])


def _plain(pattern: str) -> str:
    """A pattern whose groups have no names, of which one expression may have several."""
    return pattern.replace("(?P<name>", "(?:")


def _day(date: str) -> int:
    return (datetime.date.fromisoformat(date) - datetime.date(1970, 1, 1)).days


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("clones", type=Path)
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    for framework in FRAMEWORKS:
        if not given.names or framework.name in given.names:
            write(framework, git_folder(given.clones, framework.repository))


if __name__ == "__main__":
    main()
