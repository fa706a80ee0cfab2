"""What is fuzzed apart from whole projects: every reader of text that others wrote, by name.

A target takes bytes and may raise nothing but what its callers wait for, which it catches itself.
"""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

from benchmarks.fuzz.seeds import ROOT, Seed, seeds
from benchmarks.fuzz.trial import NOWHERE, Broken, broken
from msgspec import Struct

from oomlint.dialects import registry
from oomlint.documents import kind_of, parse
from oomlint.documents.base import Document, Entry, Mapping as Tree, Scalar, Sequence as Items
from oomlint.documents.text import Edit, Source, apply_edits
from oomlint.errors import CannotEdit, FileError, UsageError
from oomlint.files.workspace import Workspace
from oomlint.linting.engine import Options, lint

_AXOLOTL = b"base_model: ./model\nmicro_batch_size: 4\nsequence_len: 2048\n"
_EDITS = (0, -1, 2.5, True, None, "a b: 'c' \"d\" # e", [], [1, "x"], {}, {"a": [None]})
# Of a large file so many nodes are edited.
_MOST_NODES = 40


class Target(Struct, frozen=True):
    """One reader: bytes to start from, and what is done with each input."""

    seeds: Callable[[], Sequence[bytes]]
    run: Callable[[bytes], None]


# -- documents --------------------------------------------------------------------------


@cache
def _of_kind(kind: str) -> Sequence[bytes]:
    found = [d for seed in seeds() for name, d in seed.files.items() if kind_of(name) == kind]
    return sorted(set(found)) or [b""]


def _read_and_edit(name: str, data: bytes) -> None:
    """Parse, edit every node in some way, and splice: edits lie in the text and do not overlap."""
    try:
        source = Source.from_bytes(name, data)
        document = parse(source)
    except FileError:
        return
    if document is None:
        return
    mappings, others = _nodes(document)
    for number, node in enumerate(mappings[:_MOST_NODES]):
        value = _EDITS[number % len(_EDITS)]
        _splice(source, lambda node=node, value=value: document.add_entry(node, "new_key", value))
        for key in list(node.entries)[:3]:
            _splice(source, lambda node=node, key=key: document.remove_entry(node, key))
            _splice(source, lambda node=node, key=key: document.rename_entry(node, key, "other"))
    for number, node in enumerate(others[:_MOST_NODES]):
        value = _EDITS[number % len(_EDITS)]
        _splice(source, lambda node=node, value=value: document.set_value(node, value))
        if isinstance(node, Items):
            _splice(source, lambda node=node, value=value: document.append_item(node, value))


def _splice(source: Source, edits: Callable[[], list[Edit]]) -> None:
    try:
        found = edits()
    except CannotEdit:
        return
    for edit in found:
        if not 0 <= edit.start <= edit.end <= len(source.text):
            raise Broken(f"an edit of {edit.start}:{edit.end} in {len(source.text)} characters")
    apply_edits(source.text, found)


def _nodes(document: Document) -> tuple[list[Tree], list[Any]]:
    """The mappings of a document, and all its other nodes."""
    calls = [call.arguments for call in document.calls]
    commands = document.commands
    pending: list[Any] = [*document.roots, *calls]
    pending += [c.flags for c in commands] + [c.environment for c in commands]
    mappings: list[Tree] = []
    others: list[Any] = []
    while pending and len(mappings) + len(others) < 4 * _MOST_NODES:
        node = pending.pop()
        if isinstance(node, Tree):
            mappings.append(node)
            pending += [entry.value for entry in node.entries.values() if isinstance(entry, Entry)]
        elif isinstance(node, Items):
            others.append(node)
            pending += node.items
        elif isinstance(node, Scalar):
            others.append(node)
    return mappings, others


_DOCUMENTS = {
    "yaml": "x.yaml", "json": "x.json", "toml": "x.toml", "shell": "x.sh", "python": "x.py",
    "notebook": "x.ipynb", "makefile": "Makefile", "dockerfile": "Dockerfile",
}  # fmt: skip


# -- what stands beside configs ------------------------------------------------------------


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    shared = Path("/dev/shm")
    return tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None)


def _file(name: str, data: bytes) -> Path:
    file = Path(_folder().name, name)
    file.write_bytes(data)
    return file


def _settings(data: bytes) -> None:
    from oomlint.config.settings import load

    for name, text in (("oomlint.toml", data), ("pyproject.toml", b"[tool.oomlint]\n" + data)):
        with suppress(UsageError):
            found = load(_file(name, text))
            found.excludes(Path(_folder().name, "a", "b.yaml"))
            found.per_file_ignores(Path(_folder().name))


def _baseline(data: bytes) -> None:
    from oomlint.linting.baseline import read_baseline

    file = _file("base.json", data)
    with suppress(UsageError):
        found = read_baseline(file, file.parent)
        found.split((), Workspace(NOWHERE))
        json.loads(found.text())


def _versions(data: bytes) -> None:
    from oomlint.files.requirements import floors, installed, pins

    text = data.decode("utf-8", "replace")
    for name in (
        "requirements.txt", "pyproject.toml", "setup.py", "setup.cfg", "environment.yml",
        "uv.lock", "Pipfile.lock", "Dockerfile",
    ):  # fmt: skip
        pins(name, text)
        floors(name, text)
    installed(text)


def _log(data: bytes) -> None:
    from oomlint.diagnose import examine, read_logs
    from oomlint.diagnose.render import annotation, diagnose_object, render

    examination = examine(*read_logs([str(_file("train.log", data))])[:1])
    render(examination)
    annotation(examination)
    json.dumps(diagnose_object(examination), allow_nan=False)


def _diff(data: bytes) -> None:
    from oomlint.review.diff import parse_patch

    hunks = parse_patch(data.decode("utf-8", "replace"))
    for hunk in hunks.hunks:
        first = min(hunk.lines)
        hunks.around(first, first)


def _archive(data: bytes) -> None:
    from oomlint.review.trees import unpacked, write_tree

    before = set(Path(_folder().name).iterdir())
    with tempfile.TemporaryDirectory(dir=_folder().name) as inner, suppress(FileError):
        folder = Path(inner, "a", "tree")
        folder.mkdir(parents=True)
        write_tree(unpacked(io.BytesIO(data), "forge"), folder)
        strangers = [
            path for path in Path(inner).rglob("*") if path.is_file() and folder not in path.parents
        ]
        if strangers:
            raise Broken(f"{strangers[0]} lies outside of the tree")
    if set(Path(_folder().name).iterdir()) != before:
        raise Broken("files were written outside of the tree")


def _mark(data: bytes) -> None:
    from oomlint.review.body import is_summary
    from oomlint.review.comment import read_mark

    text = data.decode("utf-8", "replace")
    read_mark(text)
    is_summary(text)


def _hardware(data: bytes) -> None:
    from oomlint.hardware import parse_bytes, parse_hardware

    text = data.decode("utf-8", "replace")
    for read in (parse_hardware, parse_bytes):
        with suppress(UsageError):
            read(text)


def _plan(data: bytes) -> None:
    from oomlint.config.plans import read_plan
    from oomlint.hardware import parse_hardware
    from oomlint.judgement import judgement_of_plan
    from oomlint.report.runs import run_object

    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return
    with suppress(UsageError):
        json.dumps(
            run_object(judgement_of_plan(read_plan(value), parse_hardware("8xA100-80GB"))),
            allow_nan=False,
        )


def _suppressions(data: bytes) -> None:
    """The same comment in each language that has comments."""
    text = data.replace(b"\n", b" ").replace(b"\r", b" ")
    for name in ("x.yaml", "x.py", "x.sh", "x.toml", "Makefile", "Dockerfile", "x.ipynb"):
        base = min(_of_kind(kind_of(name)), key=len)
        data = b"# oomlint: ignore" + text + b"\n" + base + b" # oomlint: " + text + b"\n"
        _hold({name: data})


def _editor(data: bytes) -> None:
    """What an editor asks at a place in a text that is being typed."""
    from oomlint.lsp.context import context_at

    text = data.decode("utf-8", "replace")[:4096]
    for name in ("x.yaml", "x.json", "x.toml", "x.py", "x.sh"):
        source = Source(name, text)
        for offset in range(0, len(text) + 1, 1 + len(text) // 20):
            context_at(source, offset)


def _model_config(data: bytes) -> None:
    _hold({"train.yaml": _AXOLOTL, "model/config.json": data})


def _hold(files: Mapping[str, bytes]) -> None:
    if (problem := broken(files, "8xA100-80GB", fix=False)) is not None:
        raise Broken(problem)


_TEXTS: Mapping[str, tuple[Callable[[bytes], None], tuple[bytes, ...]]] = {
    "settings": (_settings, (
        (b'hardware = "8xA100-80GB"\nmargin = 0.9\nselect = ["OOM"]\nexclude = ["a/**"]\n'
        b'[per-file-ignores]\n"a/*.yaml" = ["OOM101"]\n[profiles.lab]\nhardware = "8xH100-80GB"\n'),
        b'fail-on = "warning"\nbaseline = "b.json"\nplugins = ["rules"]\n[profiles."x y"]\nhardware = "T4"\n',
    )),
    "baseline": (_baseline, (
        (b'{\n  "version": 1,\n  "findings": [\n    {"path": "a.yaml", "code": "OOM101", "name": "n", '
        b'"fingerprint": "0f", "count": 2, "message": "m"}\n  ]\n}\n'),
    )),
    "versions": (_versions, (
        b"transformers==4.57.1 ; python_version > '3.9'\ntrl>=0.9,<1\ntorch @ git+https://h/x@v2.6.0\n",
        b'[project]\ndependencies = ["torch>=2", "peft<1"]\n[tool.poetry.dependencies]\ntrl = "^0.9"\n',
        b'[[package]]\nname = "torch"\nversion = "2.6.0+cu124"\n',
        b"dependencies:\n  - pytorch::torch=2.5.1=py3\n  - pip:\n    - trl==0.9.6\n",
        b"FROM pytorch/pytorch:2.6.0-cuda\nRUN pip install 'trl==0.9' \\\n  accelerate~=1.0\n",
        b'{"default": {"torch": {"version": "==2.6.0"}}}',
    )),
    "diff": (_diff, (
        b"@@ -1,3 +1,4 @@ x\n a\n-b\n+c\n+d\n e\n@@ -10 +12 @@\n-x\n+y\n\\ No newline at end of file\n",
    )),
    "mark": (_mark, (b"<!-- oomlint: 0123456789abcdef -->\ntext\n",)),
    "hardware": (_hardware, (b"2x8xH100-80GB", b"p4d.24xlarge", b"512GiB", b"8 x A100 80 GB")),
    "plan": (_plan, (
        (b'{"model": {"id": "meta-llama/Meta-Llama-3-8B"}, "batch": {"micro": 4}, "seq": {"len": 2048},'
        b' "optimizer": {"name": "adamw"}, "parallel": {"backend": "zero", "zero": {"stage": 3}}}'),
    )),
    "suppressions": (_suppressions, (b"[OOM101] why", b"-file[no-gradient-checkpointing]", b"")),
}  # fmt: skip


def _logs() -> Sequence[bytes]:
    folder = ROOT / "tests" / "diagnose"
    texts = [
        f.read_bytes() for f in sorted(folder.rglob("*")) if f.suffix in (".log", ".txt", ".out")
    ]
    return texts or [
        (
            b'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    loss.backward()\n'
            b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
            b"79.15 GiB of which 1.2 GiB is free. 70.1 GiB is allocated by PyTorch, and 5 GiB is reserved\n"
        ),
        (
            b"[Mon Jan  5 10:00:00 2026] Memory cgroup out of memory: Killed process 77 (python) total-vm:1kB, "
            b"anon-rss:99kB, file-rss:3kB\nslurmstepd: error: Detected 1 oom_kill event in StepId=1.0\n"
        ),
    ]


def _archives() -> Sequence[bytes]:
    import tarfile

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name in ("top/train.yaml", "top/a/ds.json", "top/../../out.yaml", "/top/x.yaml"):
            member = tarfile.TarInfo(name)
            member.size = len(_AXOLOTL)
            tar.addfile(member, io.BytesIO(_AXOLOTL))
    return [packed.getvalue()]


def _model_configs() -> Sequence[bytes]:
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
        "torch_dtype": "bfloat16", "tie_word_embeddings": False, "rope_scaling": {"factor": 8.0},
    }  # fmt: skip
    experts = {**config, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
    nested = {
        "model_type": "llava",
        "text_config": config,
        "vision_config": {"hidden_size": 1024, "image_size": 336},
    }
    return [json.dumps(c, indent=1).encode() for c in (config, experts, nested)]


# -- dialects ----------------------------------------------------------------------------


@cache
def by_dialect() -> Mapping[str, Sequence[Seed]]:
    """The seeds in whose runs a dialect has a part, by its name."""
    found: dict[str, list[Seed]] = {entry.name: [] for entry in registry().entries}
    for seed in seeds():
        report = lint(Workspace(NOWHERE, seed.files), sorted(seed.files), Options(), rules=())
        claims = {claim.dialect.name for run in report.runs for claim in run.claims}
        # What only surrounds a run's command has no claim of its own.
        for name in claims | {seed.name}.intersection(found):
            found[name].append(seed)
    return dict(sorted(found.items()))


def of_projects(every: Sequence[Seed]) -> Target:
    """Small projects as bytes: which one, which of its files and whether it is fixed, and then what
    that file holds."""

    def starts() -> Sequence[bytes]:
        return [
            bytes((number, at, number % 2)) + seed.files[name]
            for number, seed in enumerate(every[:256])
            for at, name in enumerate(sorted(seed.files))
        ]

    def run(data: bytes) -> None:
        if len(data) < 3:
            return
        seed = every[data[0] % len(every)]
        name = sorted(seed.files)[data[1] % len(seed.files)]
        files = {**seed.files, name: data[3:]}
        problem = broken(files, seed.hardware or "8xA100-80GB", fix=bool(data[2] % 2))
        if problem is not None:
            raise Broken(problem)

    return Target(starts, run)


# -- all of them --------------------------------------------------------------------------


def targets() -> Iterator[tuple[str, Target]]:
    """Every target but the dialects, with its name."""
    for name, file in _DOCUMENTS.items():
        yield name, Target(partial(_of_kind, kind_of(file)), partial(_read_and_edit, file))
    for name, (run, texts) in _TEXTS.items():
        yield name, Target(lambda texts=texts: texts, run)
    yield "log", Target(_logs, _log)
    yield "archive", Target(_archives, _archive)
    yield "model-config", Target(_model_configs, _model_config)
    yield "editor", Target(lambda: [d for s in seeds()[:80] for d in s.files.values()], _editor)
