"""How long after an edit its diagnostics arrive, measured from outside, as an editor sees it.

``python -m benchmarks.speed.lsp_latency [--edits N]`` starts ``oomlint lsp``, opens a YAML of 300
lines beside its DeepSpeed JSON, and edits it again and again: a value that moves the prediction,
a value that does not, and a comment. Each edit waits for the answer to the one before and for a
moment more, as a person does who looks at the screen; ``burst`` types without looking. The last
line is the server's processor time, which a busy machine does not stretch.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import clock_gettime, monotonic, sleep
from typing import IO, Any

_HEAD = """\
base_model: meta-llama/Meta-Llama-3-8B
sequence_len: 8192
sample_packing: true
micro_batch_size: {micro}
gradient_accumulation_steps: 4
optimizer: adamw_torch_fused
bf16: true
gradient_checkpointing: {checkpointing}
flash_attention: true
learning_rate: 1e-5
num_epochs: 2
output_dir: ./out
deepspeed: ds.json
eval_steps: {steps}
val_set_size: 0.01
# {comment}
datasets:
"""
_DATA = "  - path: org/data-{n}\n    type: alpaca\n    # cleaned by hand\n    split: train\n"
_LINES = 300
DEEPSPEED = {
    "zero_optimization": {"stage": 2},
    "bf16": {"enabled": True},
    "train_micro_batch_size_per_gpu": "auto",
}


class Client:
    """The least of a client: whole texts out, diagnostics in."""

    def __init__(
        self, folder: Path, options: dict[str, Any], command: list[str] | None = None
    ) -> None:
        self.process = subprocess.Popen(
            command or [sys.executable, "-m", "oomlint", "lsp"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._in: IO[bytes] = self.process.stdin
        self._out: IO[bytes] = self.process.stdout
        self._send(
            {
                "id": 1,
                "method": "initialize",
                "params": {
                    "capabilities": {},
                    "rootUri": folder.as_uri(),
                    "initializationOptions": options,
                },
            }
        )
        while self._receive().get("id") != 1:
            pass
        self._send({"method": "initialized", "params": {}})

    def configure(self, settings: dict[str, Any]) -> None:
        params = {"settings": settings}
        self._send({"method": "workspace/didChangeConfiguration", "params": params})

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self._send({"method": f"textDocument/{method}", "params": params})

    def diagnostics(self, version: int) -> list[Any]:
        """Those of this version of the one document with versions."""
        while True:
            message = self._receive()
            if message.get("method") == "textDocument/publishDiagnostics":
                params = message["params"]
                if params.get("version") == version:
                    return list(params["diagnostics"])

    def wait_for(self, words: str, *, said: bool) -> None:
        """Until the document is said to have a fault of which these words are told, or to have it no more."""
        while True:
            message = self._receive()
            if message.get("method") != "textDocument/publishDiagnostics":
                continue
            found = message["params"]["diagnostics"]
            if any(words in each["message"] for each in found) is said:
                return

    def processor_ms(self) -> float:
        """What the server has used so far, all its threads; only Linux tells."""
        # The clock of a process, as clock_getcpuclockid(3) of glibc makes it: CPUCLOCK_SCHED is 2.
        return clock_gettime(~self.process.pid << 3 | 2) * 1000

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._in.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self._in.flush()

    def _receive(self) -> dict[str, Any]:
        length = 0
        while line := self._out.readline().strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        found: dict[str, Any] = json.loads(self._out.read(length))
        return found


def text(**values: Any) -> str:
    head = _HEAD.format(
        **{"micro": 1, "checkpointing": "true", "steps": 50, "comment": "a run", **values}
    )
    missing = _LINES - head.count("\n")
    return head + "".join(_DATA.format(n=n) for n in range(missing // 4 + 1))


def edits(count: int) -> Iterator[tuple[str, str]]:
    for n in range(count):
        yield "moves the prediction", text(micro=1 + n % 4)
        yield "moves nothing", text(steps=100 + n)
        yield "a comment", text(comment=f"run number {n}")
        yield "no longer fits", text(micro=16 + n, checkpointing="false")


def measure(count: int, hardware: str) -> dict[str, list[float]]:
    """Milliseconds from sending an edit to its diagnostics, by kind of edit."""
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        (folder / "ds.json").write_text(json.dumps(DEEPSPEED))
        (folder / "train.yaml").write_text(text())
        uri = (folder / "train.yaml").as_uri()
        client = Client(folder, {"hardware": hardware})
        item = {"uri": uri, "languageId": "yaml", "version": 0, "text": text()}
        start = monotonic()
        client.notify("didOpen", {"textDocument": item})
        client.diagnostics(0)
        times["first lint, rules loaded"] = [(monotonic() - start) * 1000]
        version, before = 0, client.processor_ms()
        for kind, changed in edits(count):
            sleep(0.1)
            version += 1
            times.setdefault(kind, []).append(_edit(client, uri, version, changed))
        times["processor time an edit"] = [(client.processor_ms() - before) / version]
        start = monotonic()
        for n in range(10):
            version += 1
            change(client, uri, version, text(steps=1000 + n))
        client.diagnostics(version)
        times["burst of ten"] = [(monotonic() - start) * 1000]
        client.process.kill()
        client.process.wait()
    return times


def _edit(client: Client, uri: str, version: int, changed: str) -> float:
    start = monotonic()
    change(client, uri, version, changed)
    client.diagnostics(version)
    return (monotonic() - start) * 1000


def change(client: Client, uri: str, version: int, changed: str) -> None:
    document = {"uri": uri, "version": version}
    client.notify("didChange", {"textDocument": document, "contentChanges": [{"text": changed}]})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--edits", type=int, default=25, help="edits of each kind")
    parser.add_argument("--hardware", default="8xA100-80GB")
    arguments = parser.parse_args()
    times = measure(arguments.edits, arguments.hardware)
    every = [t for kind, found in times.items() if len(found) > 1 for t in found]
    processor = times.pop("processor time an edit")
    for kind, found in {**times, "all edits": every}.items():
        ordered = sorted(found)
        high = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
        print(f"{kind:26} median {statistics.median(found):7.1f} ms   95 % {high:7.1f} ms")
    print(f"{'processor time an edit':26} mean   {processor[0]:7.1f} ms")


if __name__ == "__main__":
    main()
