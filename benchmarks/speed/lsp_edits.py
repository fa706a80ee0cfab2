"""What an edit costs the language server: from the change that an editor sends to the diagnostics that it is sent.

``python -m benchmarks.speed.lsp_edits [--edits N]`` opens a YAML beside its DeepSpeed JSON, a training script, and a
DeepSpeed JSON that twenty YAMLs name, and edits each again and again: the middle edit's processor time of the server,
which a busy machine does not stretch. Edits take turns: a value that moves the prediction, one that moves nothing, a
comment (in a JSON, a space).
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import sleep

from benchmarks.speed.lsp_latency import DEEPSPEED, Client, change, text
from benchmarks.speed.training_scripts import training_script
from msgspec import Struct

_USERS = 20
# Which of the made scripts: one of some 200 lines.
_SCRIPT = 0
AIM_MS = 50


class Edited(Struct, frozen=True):
    """A file that is edited in its folder."""

    kind: str
    name: str
    language: str
    files: dict[str, str]
    edit: Callable[[int], str]
    """Its text after so many edits."""


def _yaml(number: int) -> str:
    each = ({"micro": 1 + number % 4}, {"steps": 100 + number}, {"comment": f"run {number}"})
    return text(**each[number % 3])


def _script(number: int) -> str:
    script = training_script(_SCRIPT)
    sizes = (script, script.replace("batch_size=", "batch_size=1"))
    return f"{sizes[number % 2]}\n# edit {number}\n"


def _json(number: int) -> str:
    stage = 2 + number % 2
    return json.dumps({**DEEPSPEED, "zero_optimization": {"stage": stage}}) + " " * (number % 3)


def edited() -> Iterator[Edited]:
    shared = {f"run{number}.yaml": text(micro=1 + number % 4) for number in range(_USERS)}
    yield Edited("a YAML with its JSON", "train.yaml", "yaml", {"ds.json": _json(0)}, _yaml)
    yield Edited("a training script", "train.py", "python", {}, _script)
    yield Edited(f"a JSON that {_USERS} YAMLs share", "ds.json", "json", shared, _json)


def milliseconds(file: Edited, folder: Path, hardware: str, count: int) -> list[float]:
    """Processor time of the server for each edit of a file."""
    for name, content in file.files.items():
        (folder / name).write_text(content)
    (folder / file.name).write_text(file.edit(0))
    uri = (folder / file.name).as_uri()
    client = Client(folder, {"hardware": hardware})
    item = {"uri": uri, "languageId": file.language, "version": 0, "text": file.edit(0)}
    client.notify("didOpen", {"textDocument": item})
    client.diagnostics(0)
    taken = []
    for number in range(1, count + 4):  # the first load what is loaded late
        sleep(0.1)
        before = client.processor_ms()
        change(client, uri, number, file.edit(number))
        client.diagnostics(number)
        taken.append(client.processor_ms() - before)
    client.process.kill()
    client.process.wait()
    return taken[3:]


def report(count: int, hardware: str) -> None:
    print(f"An edit in the language server (aim: {AIM_MS} ms of processor time)")
    for file in edited():
        with tempfile.TemporaryDirectory() as name:
            taken = milliseconds(file, Path(name).resolve(), hardware, count)
        print(f"  {statistics.median(taken):6.1f} ms for {file.kind}, {max(taken):.1f} at most")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--edits", type=int, default=20)
    parser.add_argument("--hardware", default="8xA100-80GB")
    given = parser.parse_args()
    report(given.edits, given.hardware)


if __name__ == "__main__":
    main()
