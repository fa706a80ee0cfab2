"""``python -m benchmarks.fuzz.large [--megabytes N]... [--kind WORD]...``: what large files cost.

One file of each shape and size is checked in a process of its own: seconds of processor time, the
most memory it held, and what became of it. More than ``--seconds`` or ``--memory`` is trouble: each
kind of file has a size from which on an error names it, and below that an answer has to come.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

Shape = Callable[[int], str]
"""A text of about so many characters."""

_IMPORT = "from transformers import TrainingArguments\n"
_LAUNCH = "torchrun train.py --output_dir out"
_AXOLOTL = "base_model: meta-llama/Llama-3.2-1B\nmicro_batch_size: 1\n"


def _numbered(head: str, line: str, tail: str = "", between: str = "") -> Shape:
    """As many numbered pieces as fit."""

    def text(size: int) -> str:
        count = max(1, size // len(line.format(n=size // 10) + between))
        return head + between.join(line.format(n=n) for n in range(count)) + tail

    return text


def _filled(head: str, piece: str, tail: str = "") -> Shape:
    """The same piece again and again."""
    return lambda size: head + piece * (size // len(piece)) + tail


SHAPES: Mapping[str, tuple[str, Shape]] = {
    "yaml, keys": ("x.yaml", _numbered(_AXOLOTL, "key_{n}: 1\n")),
    "yaml, one line": ("x.yaml", _filled(_AXOLOTL + "x: [", "1, ", "1]\n")),
    "yaml, one word": ("x.yaml", _filled(_AXOLOTL + "x: ", "a", "\n")),
    "yaml, a script": ("x.yaml", _numbered("run: |\n", "  torchrun train.py --f{n} 1\n")),
    "json, keys": ("x.json", _numbered('{"zero_optimization": {"stage": 3}', ', "k{n}": 1', "}")),
    "json, one line": ("x.json", _filled('{"train_batch_size": [', "1, ", "1]}")),
    "json, one word": ("x.json", _filled('{"train_batch_size": "', "a", '"}')),
    "jsonl": ("x.jsonl", _numbered("", '{{"text": "{n}"}}\n')),
    "toml, keys": ("x.toml", _numbered("[training]\nseq_len = 1\n", "key_{n} = 1\n")),
    "toml, one line": ("x.toml", _filled("[training]\nx = [", "1, ", "1]\n")),
    "toml, one word": ("x.toml", _filled('[training]\nx = "', "a", '"\n')),
    "toml, tables": ("x.toml", _numbered("[training]\nseq_len = 1\n", "[a{n}.b]\n")),
    "python, statements": ("x.py", _numbered(_IMPORT, "x{n} = {n}\n")),
    "python, one name": ("x.py", _numbered(_IMPORT + "x = 1\n", "x = x + {n}\n")),
    "python, one call": ("x.py", _numbered(_IMPORT + "TrainingArguments('o'", ", a{n}=1", ")\n")),
    "python, calls": ("x.py", _numbered(_IMPORT, "TrainingArguments('o', seed={n})\n")),
    "python, one list": ("x.py", _filled(_IMPORT + "x = [", "1, ", "1]\n")),
    "python, one word": ("x.py", _filled(_IMPORT + "x = '", "a", "'\n")),
    "python, a sum": ("x.py", _filled(_IMPORT + "x = 1", " + 1", "\n")),
    "python, functions": ("x.py", _numbered(_IMPORT, "def f{n}():\n  f{n}()\n")),
    "shell, flags": ("x.sh", _numbered(_LAUNCH, " --f{n} 1", "\n")),
    "shell, short flags": ("x.sh", _filled(_LAUNCH, " --a", "\n")),
    "shell, commands": ("x.sh", _filled("", _LAUNCH + "\n")),
    "shell, variables": ("x.sh", _numbered("", "A{n}=$A0\n", _LAUNCH + "\n")),
    "shell, one word": ("x.sh", _filled(_LAUNCH + " ", "a", "\n")),
    "shell, quotes": ("x.sh", _filled(_LAUNCH + " ", "'\"", "\n")),
    "shell, dollars": ("x.sh", _filled(_LAUNCH + " ", "$A", "\n")),
    "shell, dashes": ("x.sh", _filled(_LAUNCH + " ", "-", "\n")),
    "shell, blanks": ("x.sh", _filled(_LAUNCH, " ", "x\n")),
    "makefile, recipes": ("Makefile", _numbered("", "t{n}:\n\ttorchrun train.py --f{n} 1\n")),
    "makefile, variables": ("Makefile", _numbered("", "A{n} = 1\n", "t:\n\t" + _LAUNCH + "\n")),
    "makefile, one line": ("Makefile", _numbered("t:\n\t" + _LAUNCH, " --f{n} $(A)", "\n")),
    "makefile, brackets": ("Makefile", _filled("t:\n\t" + _LAUNCH + " ", "$(", "\n")),
    "makefile, continued": ("Makefile", _filled("t:\n\t" + _LAUNCH, " \\\n", "\n")),
    "dockerfile, stages": ("Dockerfile", _numbered("", "FROM x\nENV A={n}\nCMD " + _LAUNCH + "\n")),
    "dockerfile, one line": ("Dockerfile", _numbered("FROM x\nCMD " + _LAUNCH, " --f{n} 1", "\n")),
    "dockerfile, words": ("Dockerfile", _numbered('FROM x\nCMD ["torchrun"', ', "--f{n}"', "]\n")),
    "dockerfile, continued": ("Dockerfile", _filled("FROM x\nCMD a", " \\\n", "\n")),
    "notebook, a picture": ("x.ipynb", _filled(
        '{"cells": [{"cell_type": "code", "source": ["import trl"], "outputs": [{"data": "', "a", '"}]}],'
        ' "metadata": {}, "nbformat": 4}')),
    "notebook, code": ("x.ipynb", _numbered(
        '{"cells": [{"cell_type": "code", "outputs": [], "source": ["import trl\\n"', ', "x{n} = 1\\n"',
        ']}], "metadata": {}, "nbformat": 4}')),
    "notebook, cells": ("x.ipynb", _numbered(
        '{"cells": [{"cell_type": "code", "outputs": [], "source": ["import trl"]}',
        ', {{"cell_type": "code", "outputs": [], "source": ["x = {n}"]}}', '], "metadata": {}, "nbformat": 4}')),
    "notebook, shell": ("x.ipynb", _numbered(
        '{"cells": [{"cell_type": "code", "outputs": [], "source": ["import trl\\n"',
        ', "!torchrun train.py --f{n} 1\\n"', ']}], "metadata": {}, "nbformat": 4}')),
    "notebook, shell cells": ("x.ipynb", _numbered(
        '{"cells": [{"cell_type": "code", "source": ["import trl"]}',
        ', {{"cell_type": "code", "source": ["!pip install a=={n}\\n", "!accelerate launch train.py --f{n} 1"]}}',
        '], "metadata": {}, "nbformat": 4}')),
    "notebook, runs": ("x.ipynb", _numbered(
        '{"cells": [{"cell_type": "code", "source": ["import trl"]}',
        ', {{"cell_type": "code", "source": ["!trl sft --model_name_or_path a/b --output_dir o{n}"]}}',
        '], "metadata": {}, "nbformat": 4}')),
    "notebook, one word": ("x.ipynb", _filled(
        '{"cells": [{"cell_type": "code", "source": ["!ls\\n", "', "a", '"]}], "metadata": {}, "nbformat": 4}')),
    "notebook, options": ("x.ipynb", _filled(
        '{"cells": [{"cell_type": "code", "source": ["%%script ', "--a ", '"]}], "metadata": {}, "nbformat": 4}')),
    "hostfile": ("hostfile", _numbered("", "worker-{n} slots=8\n")),
    "env": ("train.env", _numbered("", "A{n}=1\n")),
    "requirements": ("requirements.txt", _numbered("", "torch=={n}\n")),
    "pins in one line": ("requirements.txt", _filled("torch", "=", "1\n")),
    "settings": ("oomlint.toml", _filled('exclude = ["', "*a", '"]\n')),
}  # fmt: skip

# What stands beside configs is read with one.
_BESIDE = ("hostfile", "train.env", "requirements.txt", "oomlint.toml")
_NAMES_THEM = "source train.env\ndeepspeed --hostfile hostfile train.py --output_dir out\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz.large", description=__doc__)
    parser.add_argument("--megabytes", type=float, action="append", help="0.9, 7.9 and 50 if none")
    parser.add_argument("--kind", action="append", help="shapes whose name begins so; all if none")
    parser.add_argument("--seconds", type=int, default=20, help="of processor time")
    parser.add_argument("--memory", type=float, default=1000, help="MB that a process may hold")
    given = parser.parse_args()
    kinds = tuple(given.kind or ("",))
    trouble = 0
    for name, (file, shape) in SHAPES.items():
        for size in (given.megabytes or (0.9, 7.9, 50.0)) if name.startswith(kinds) else ():
            seconds, megabytes, said = _cost(file, shape(int(size * 1e6)), given.seconds)
            is_trouble = seconds > given.seconds or megabytes > given.memory or said == "broken"
            trouble += is_trouble
            mark = "  <-- too much" if is_trouble else ""
            print(f"{name:24} {size:5g} MB {seconds:6.1f} s {megabytes:6.0f} MB  {said}{mark}", flush=True)  # fmt: skip
    return 1 if trouble else 0


def _cost(file: str, text: str, most_seconds: int) -> tuple[float, float, str]:
    """Seconds, megabytes and what the check said of a file."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, file).write_text(text)
        names = [file]
        if file in _BESIDE:
            Path(folder, "train.sh").write_text(_NAMES_THEM)
            names = ["train.sh"]
        words = [
            sys.executable,
            "-m",
            "oomlint",
            "check",
            "--no-cache",
            "--output-format",
            "concise",
            *names,
        ]
        limits = (resource.RLIMIT_CPU, (most_seconds + 1, most_seconds + 1))
        process = subprocess.Popen(
            words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            preexec_fn=lambda: resource.setrlimit(*limits),
        )  # fmt: skip
        assert process.stdout is not None
        lines = process.stdout.read().decode("utf-8", "replace").splitlines()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    error = next((line for line in lines if "error: " in line), "")
    said = error.rpartition("error: ")[2] or f"status {process.returncode}"
    is_broken = process.returncode < 0 or "internal" in said or "Traceback" in "".join(lines)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3, "broken" if is_broken else said[:70]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
