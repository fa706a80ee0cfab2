"""Kills and Ctrl-C at random moments: ``python -m benchmarks.signals [--kills N] [--interrupts N]``.

A kill comes while eight files are written: it waits until the writing begins and strikes at a random instant of as
long as that takes. Then each file must be whole, as it was or as it is to be, and the next ``--fix`` must leave
nothing behind. Kills go on until so many have struck before the writing ended. Ctrl-C comes to the whole process group at a random instant of a ``check``, with and without workers;
the status must be 130, and nothing said.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from oomlint.cli import main as oomlint
from oomlint.documents.staged import is_staged
from oomlint.documents.write import write_all

_TRAIN = """\
base_model: meta-llama/Meta-Llama-3-8B
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
sequence_len: 4096
micro_batch_size: 8
gradient_checkpointing: false
optimizer: adamw_torch
bf16: true
deepspeed: ds.json
output_dir: out
"""
_FILES = 8
_CHECK = ("check", "--isolated", "--no-cache", "--hardware", "8xA100-80GB")
_STRUCK = "killed while writing"
_ENDED = "had ended already"
_READY = b"."
# Says that it has begun from inside what catches a Ctrl-C: before that no command is running yet.
_COMMAND = (
    sys.executable,
    "-c",
    (
        "import os\nfrom oomlint import cli\nmain = cli.main\n"
        f"def begun():\n    os.write(1, {_READY!r})\n    return main()\n"
        "cli.main = begun\ncli.command()"
    ),
)


def _project(at: Path) -> None:
    for number in range(_FILES):
        folder = at / f"run{number % 4}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"train{number}.yaml").write_text(f"steps: {number}\n" * 400)


def _texts(at: Path) -> dict[str, bytes]:
    return {str(p.relative_to(at)): p.read_bytes() for p in sorted(at.rglob("*")) if p.is_file()}


# -- kills ----------------------------------------------------------------------------------


def kills(number: int) -> Counter[str]:
    """What came of kills, in words, until so many struck while files were written."""
    with tempfile.TemporaryDirectory() as base:
        whole = Path(base, "whole")
        _project(whole)
        old = _texts(whole)
        new = {name: data.replace(b"steps", b"max_steps") for name, data in old.items()}
        start = time.perf_counter()
        write_all(new, old, whole, [whole])
        seconds = time.perf_counter() - start
        _fix(whole)  # what it imports, each child would import anew
        found: Counter[str] = Counter()
        while found[_STRUCK] < number:
            at = Path(base, "project")
            _project(at)
            found.update(_killed(at, old, new, seconds))
            shutil.rmtree(at)
    return found


def _killed(
    at: Path, old: Mapping[str, bytes], new: Mapping[str, bytes], seconds: float
) -> Iterator[str]:
    begins, told = os.pipe()
    child = os.fork()
    if not child:
        os.write(told, b".")
        write_all(new, old, at, [at])
        os._exit(0)
    os.read(begins, 1)
    time.sleep(random.random() * seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    os.close(begins)
    os.close(told)
    yield _STRUCK if os.WIFSIGNALED(status) else _ENDED
    now = _texts(at)
    changed = sum(now[name] != old[name] for name in old)
    yield from ["with new texts beside the files"] * any(map(is_staged, now))
    yield from ["with some files written"] * (0 < changed < len(old))
    yield from ["TORN"] * any(now.get(name) not in (old[name], new[name]) for name in old)
    child = os.fork()
    if not child:
        os._exit(_fix(at))
    _, status = os.waitpid(child, 0)
    yield from ["NEXT RUN FAILED"] * (os.waitstatus_to_exitcode(status) not in (0, 1))
    yield from ["LEFT BEHIND"] * (_texts(at).keys() != old.keys())


def _fix(folder: Path) -> int:
    return oomlint(("check", "--isolated", "--quiet", "--fix", str(folder)))


# -- Ctrl-C ---------------------------------------------------------------------------------


def interrupts(number: int, *, workers: bool) -> Counter[str]:
    """What came of so many Ctrl-C, in words."""
    with tempfile.TemporaryDirectory() as folder:
        for copy in range(2):
            Path(folder, f"run{copy}.yaml").write_text(_TRAIN.replace("ds.json", f"ds{copy}.json"))
        for copy in range(68 if workers else 0):  # so many are shared out
            Path(folder, f"steps{copy}.yaml").write_text("steps: 1\n")
        command = [*_COMMAND, *_CHECK, *(("--jobs", "3") if workers else ()), folder]
        start = time.perf_counter()
        subprocess.run(command, capture_output=True, check=False)
        seconds = time.perf_counter() - start
        found: Counter[str] = Counter()
        while found.total() - found[_ENDED] < number:
            found[_interrupted(command, random.random() * seconds)] += 1
        return found


def _interrupted(command: list[str], after: float) -> str:
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.read(1) == _READY
    with suppress(subprocess.TimeoutExpired):
        process.wait(after)
        process.communicate()
        return _ENDED
    os.killpg(process.pid, signal.SIGINT)
    _, heard = process.communicate()
    if not heard and process.returncode in (0, 1):
        return _ENDED
    said = f"said {heard.decode(errors='replace')[-400:]!r}" if heard else "silent"
    return f"status {process.returncode}, {said}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--interrupts", type=int, default=0)
    asked = parser.parse_args()
    if asked.kills:
        _print(f"{asked.kills} kills", kills(asked.kills))
    if asked.interrupts:
        for workers in (False, True):
            title = f"{asked.interrupts} times Ctrl-C, {'with' if workers else 'without'} workers"
            _print(title, interrupts(asked.interrupts, workers=workers))


def _print(title: str, found: Counter[str]) -> None:
    print(title)
    for words, count in found.most_common():
        print(f"{count:6}  {words}")


if __name__ == "__main__":
    main()
