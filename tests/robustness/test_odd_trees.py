"""Trees that grew: loops of links, closed folders, a hundred thousand files, names of any bytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Oomlint = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs names of any bytes"),
    pytest.mark.slow,
]

H100 = ("--isolated", "--no-cache", "--hardware", "8xA100-80GB")


def test_loops_of_links(project: Path, oomlint: Oomlint) -> None:
    inner = project / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "up").symlink_to(project, target_is_directory=True)
    (project / "one").symlink_to("two")
    (project / "two").symlink_to("one")
    (project / "self.yaml").symlink_to("self.yaml")
    result = oomlint(*H100, "--output-format", "json", ".")
    assert result.returncode in (1, 3), result.stderr
    report = json.loads(result.stdout)
    assert {finding["path"] for finding in report["findings"]} <= {"train.yaml", "ds.json"}


def test_a_folder_of_very_many_files(project: Path, oomlint: Oomlint) -> None:
    """None of them a config: they are not opened, and the one config is found among them."""
    for number in range(200):
        folder = project / f"shard-{number:03}"
        folder.mkdir()
        for part in range(500):
            os.close(os.open(folder / f"{part:05}.parquet", os.O_CREAT | os.O_WRONLY, 0o600))
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))\n"
    result = oomlint(*H100, "--output-format", "json", ".", before=limit)
    assert result.returncode == 1, result.stderr
    assert json.loads(result.stdout)["findings"]


NAMES = (b"new\nline.yaml", b"\xff\xfe.yaml", b"\xed\xa0\x80.yaml", b"esc\x1b[2J.yaml", b"-rf.yaml", b" .yaml",
         b"'\"$(x).yaml", b"n" * 250 + b".yaml", "ünï\u202ecode.yaml".encode())  # fmt: skip
FORMATS = ("text", "json", "github", "sarif", "junit")


@pytest.mark.parametrize("style", FORMATS)
def test_names_of_any_bytes(style: str, project: Path, oomlint: Oomlint) -> None:
    text = (project / "train.yaml").read_bytes()
    for name in NAMES:
        (project / os.fsdecode(name)).write_bytes(text)
    result = oomlint(*H100, "--output-format", style, ".")
    assert result.returncode == 1, result.stderr
    assert "Traceback" not in result.stderr
    assert "internal error" not in result.stderr
    result.stdout.encode()  # lone surrogates do not get this far


def test_fixes_of_files_of_any_name(project: Path, oomlint: Oomlint) -> None:
    text = (project / "train.yaml").read_bytes()
    for name in NAMES:
        (project / os.fsdecode(name)).write_bytes(text)
    result = oomlint(*H100, "--fix", ".")
    assert result.returncode in (0, 1), result.stderr
    for name in NAMES:
        assert (project / os.fsdecode(name)).read_bytes() != text, name


SCRIPT = (
    "#!/bin/bash\nexport BATCH=4 # oomlint: ignore\ntorchrun --nproc_per_node 8 \\\n  train.py --output_dir out \\\n"
    "  --model_name_or_path meta-llama/Llama-2-7b-hf \\\n  --per_device_train_batch_size $BATCH\n"
)


@pytest.mark.parametrize("ends", ["\r\n", "mixed"])
def test_windows_line_ends(ends: str, project: Path, oomlint: Oomlint) -> None:
    """Scripts saved on Windows are read, and fixes keep each line's own end."""
    for name in ("train.yaml", "ds.json"):
        lines = (project / name).read_text().splitlines()
        ended = [
            line + ("\r\n" if ends == "\r\n" or n % 2 else "\n") for n, line in enumerate(lines)
        ]
        (project / name).write_bytes("".join(ended).encode())
    (project / "train.sh").write_bytes(SCRIPT.replace("\n", "\r\n").encode())
    before = {p.name: p.read_bytes() for p in project.iterdir()}
    result = oomlint(*H100, "--fix", "--unsafe-fixes", "--output-format", "json", ".")
    assert result.returncode in (0, 1), result.stderr
    for name in ("train.yaml", "ds.json"):
        data = (project / name).read_bytes()
        assert data != before[name]
        if ends == "\r\n":
            assert data.count(b"\n") == data.count(b"\r\n")
        kept = set(before[name].splitlines(keepends=True))
        assert len(kept & set(data.splitlines(keepends=True))) >= len(kept) // 2
