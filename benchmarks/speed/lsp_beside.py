"""How long after an edit oomlint's diagnostics arrive, beside other language servers, in one run.

``python -m benchmarks.speed.lsp_beside [--edits N] [--yaml COMMAND] [--ruff COMMAND]`` opens a file of 300 lines in
each server, the same YAML for oomlint and yaml-language-server and a Python file for ruff, and edits them by turns:
each edit brings a fault in or takes it out, and the time is that until the server says so. What a server waits
before it looks at all (yaml-language-server 200 ms) is part of it, as it is for whoever types. A server that is not
there is left out.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from benchmarks.speed.lsp_latency import Client, change, text
from msgspec import Struct

_PYTHON = "".join(f"def f{n}(x: int) -> int:\n    return x + {n}\n\n\n" for n in range(75))
_YAML_SETTINGS = {"yaml": {"validate": True, "schemaStore": {"enable": False}}}


class Server(Struct, frozen=True):
    name: str
    command: list[str]
    file: str
    language: str
    sound: str
    faulty: str
    words: str
    """Of what it says of the fault."""
    options: dict[str, Any]
    settings: dict[str, Any]


def servers(yaml: str, ruff: str, hardware: str) -> list[Server]:
    sound, heavy = text(steps=50), text(micro=64, checkpointing="false")
    twice = sound.replace("bf16: true\n", "bf16: true\nbf16: true\n")
    found = [
        Server(
            "oomlint", [sys.executable, "-m", "oomlint", "lsp"], "train.yaml", "yaml", sound, heavy, "micro batch 64",
            {"hardware": hardware}, {},
        ),
        Server("yaml-language-server", shlex.split(yaml), "train.yaml", "yaml", sound, twice, "unique", {}, _YAML_SETTINGS),
        Server("ruff", shlex.split(ruff), "train.py", "python", _PYTHON, "import os\n" + _PYTHON, "imported but unused", {}, {}),
    ]  # fmt: skip
    return [server for server in found if shutil.which(server.command[0])]


class Session:
    """One server with its file open."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server, self.version = server, 0
        file = folder / server.file
        file.write_text(server.sound)
        self.uri = file.as_uri()
        self.client = Client(folder, server.options, server.command)
        if server.settings:
            self.client.configure(server.settings)
        item = {"uri": self.uri, "languageId": server.language, "version": 0, "text": server.sound}
        self.client.notify("didOpen", {"textDocument": item})
        self.edit()  # what it loads first is not measured
        self.edit()

    def edit(self) -> float:
        self.version += 1
        faulty = self.version % 2 == 1
        start = monotonic()
        words = self.server.faulty if faulty else self.server.sound
        change(self.client, self.uri, self.version, words)
        self.client.wait_for(self.server.words, said=faulty)
        return (monotonic() - start) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--edits", type=int, default=40)
    parser.add_argument("--hardware", default="8xA100-80GB")
    parser.add_argument("--yaml", default="yaml-language-server --stdio")
    parser.add_argument("--ruff", default="ruff server")
    given = parser.parse_args()
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        sessions = []
        for server in servers(given.yaml, given.ruff, given.hardware):
            folder = Path(name).resolve() / server.name
            folder.mkdir()
            sessions.append(Session(server, folder))
        for _ in range(given.edits):
            for session in sessions:
                sleep(0.1)
                times.setdefault(session.server.name, []).append(session.edit())
        for session in sessions:
            session.client.process.kill()
            session.client.process.wait()
    for server_name, found in times.items():
        ordered = sorted(found)
        high = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
        print(f"{server_name:22} median {statistics.median(found):7.1f} ms   95 % {high:7.1f} ms")


if __name__ == "__main__":
    main()
