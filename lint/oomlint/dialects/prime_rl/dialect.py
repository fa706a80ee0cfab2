"""prime-rl: TOML of its programs ``rl``, ``sft`` and ``trainer``, and the lines that start them.

Read from PrimeIntellect-ai/prime-rl 559b4477 (2026-08-21). ``uv run rl @ a.toml @ b.toml --seq-len 4096``: files are
laid over one another from left to right, and options over all of them. ``--trainer @ a.toml`` lays a file over one
section. No file says which program reads it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from msgspec.structs import replace

from oomlint.dialects.base import Claim, Dialect, Reference
from oomlint.dialects.block import Block, OverrideBlock
from oomlint.dialects.kinds import is_stand_in
from oomlint.dialects.machine.launch import Launch, place
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.prime_rl.keys import SECTIONS, TABLES
from oomlint.dialects.prime_rl.meaning import meaning
from oomlint.dialects.table import Table
from oomlint.documents import SHELL_SUFFIXES, TOML_SUFFIXES
from oomlint.documents.base import Document, Entry, Mapping, Scalar, Sequence, roots
from oomlint.documents.text import Location, Span

_PROGRAMS = frozenset(TABLES)
_TRAINERS = {"/prime_rl/trainer/sft/train/": "sft", "/prime_rl/trainer/rl/train/": "trainer"}
# Keys of a model that nobody else has.
_OF_MODEL = frozenset(
    {"ac_offloading", "optim_cpu_offload", "full_offload", "fsdp_cpu_offload", "optimization_dtype", "ep_comm_backend"}
)  # fmt: skip
_OF_DEPLOYMENT = frozenset({"num_train_gpus", "num_train_nodes", "num_infer_gpus"})
_OF_TRAINER = frozenset({"monitors", "weight_broadcast", "rollout_transport", "optim", "ckpt"})
_OF_RUN = frozenset({"deployment", "ckpt", "optim", "max_steps", "slurm", "renderer"})
_OF_ORCHESTRATOR = frozenset(
    {"batch_size", "token_batch_size", "group_size", "train", "env", "environment", "sampling", "seq_len", "rollouts_per_example"}
)  # fmt: skip


class PrimeRl(Dialect):
    name = "prime-rl"
    markers = (b"orchestrator", b"seq_len", b"num_train_gpus", b"group_size", b" @ ", b"prime_rl")
    markers_prove = False
    suffixes = (*TOML_SUFFIXES, *SHELL_SUFFIXES)
    declared_in = (
        "packages/prime-rl-configs/src/prime_rl/configs/trainer.py",
        "src/prime_rl/configs/trainer.py",
    )
    meaning = meaning

    def recognise(self, document: Document) -> Iterable[Claim]:
        for root in roots(document):
            kind = _kind_of(root)
            if kind is not None:
                yield self._file(document, root, kind)
            elif _is_orchestrator(root):
                yield Claim(self, "aside", document, ())
        for launch in launches(document):
            program = _program_of(launch)
            if program is not None:
                yield self._launch(launch, program)

    def adopt(self, document: Document) -> Claim | None:
        root = next(roots(document), None)
        if root is None:
            return None
        return self._file(document, root, _kind_of(root) or _likely_kind(root))

    def _file(self, document: Document, root: Mapping, kind: str) -> Claim:
        block = Block(document, root, TABLES[kind], _anchor_of(root))
        return Claim(self, "run", document, (block,))

    def _launch(self, launch: Launch, program: str) -> Claim:
        document = launch.document
        entries = {
            key: entry
            for key, entry in launch.flags.entries.items()
            if not _is_blank(entry) and not _laid_over(entry)
        }
        flags = replace(launch.flags, entries=entries)
        options = OverrideBlock(document, flags, TABLES[program], launch.anchor)
        files = tuple(self._files_of(launch, program))
        return Claim(self, "launch", document, (*launch.blocks, options), files)

    def _files_of(self, launch: Launch, program: str) -> Iterable[Reference]:
        """Each word after an ``@`` that stands by itself, and after one that stands for a section."""
        yield from launch.scene_references
        whole = PrimeRlAlone.name if program == "trainer" else self.name
        for at, word in pairwise(launch.arguments):
            if at.value == "@" and isinstance(word.value, str):
                yield _reference(launch, word, whole)
        for section, entry in launch.flags.entries.items():
            for word in _laid_over(entry):
                if section in SECTIONS:
                    yield _reference(launch, word, f"prime-rl-{section}")


class _Told(Dialect):
    """A file of which a line tells what it is for."""

    table: Table
    suffixes = ()
    meaning = meaning

    def recognise(self, document: Document) -> Iterable[Claim]:
        return ()

    def adopt(self, document: Document) -> Claim | None:
        root = next(roots(document), None)
        if root is None:
            return None
        return Claim(self, "part", document, (Block(document, root, self.table, _anchor_of(root)),))


class PrimeRlAlone(_Told):
    """The whole config of a trainer that nobody starts an orchestrator with."""

    name = "prime-rl-alone"
    table = TABLES["trainer"]


class PrimeRlTrainer(_Told):
    """A section of RL that a line lays a file over (prime-rl 3a19c92c, 2025-07-09, utils/pydantic_config.py
    extract_toml_paths; since 09a6875f, 2026-03-02, by the package pydantic_config), as the two below."""

    name = "prime-rl-trainer"
    table = SECTIONS["trainer"]


class PrimeRlOrchestrator(_Told):
    name = "prime-rl-orchestrator"
    table = SECTIONS["orchestrator"]


class PrimeRlInference(_Told):
    name = "prime-rl-inference"
    table = SECTIONS["inference"]


def _anchor_of(root: Mapping) -> Span:
    """The key of a file that tells most of what is trained."""
    for key in ("model", "trainer"):
        if key in root.entries:
            return root.entries[key].key_span
    return next(iter(root.entries.values())).key_span if root.entries else root.span


def _laid_over(entry: Entry) -> tuple[Scalar, ...]:
    """The file that an option names with an ``@``, ``--trainer @ a.toml``."""
    words = entry.value.items if isinstance(entry.value, Sequence) else ()
    if len(words) != 2 or not all(isinstance(word, Scalar) for word in words):
        return ()
    at, word = words
    assert isinstance(at, Scalar)
    assert isinstance(word, Scalar)
    return (word,) if at.value == "@" and isinstance(word.value, str) else ()


def _reference(launch: Launch, word: Scalar, dialect: str) -> Reference:
    path = launch.document.source.path
    return Reference(str(word.value), Location(path, place(word)), dialect)


def _kind_of(root: Mapping) -> str | None:
    """Which program a file is for; a part of a config may be for several."""
    if root.section("trainer") is not None and _is_orchestrated(root):
        return "rl"
    model, data = root.section("model"), root.section("data")
    if model is None or "training" in root.entries or "trainer" in root.entries:
        return None
    of_model = bool(_OF_MODEL & set(model.entries))
    deployed = root.section("deployment")
    of_deployment = deployed is not None and bool(_OF_DEPLOYMENT & set(deployed.entries))
    if data is not None and "seq_len" in data.entries:
        is_packed = {"batch_size", "micro_batch_size"} & set(data.entries)
        by_type = data.said("type") in ("sft", "fake")
        others = _OF_RUN & set(root.entries)
        if of_model or of_deployment or by_type or (is_packed and len(others) >= 2):
            return "sft"
        return None
    if data is not None and "fake" not in data.entries:
        return None
    is_trainer = "seq_len" in model.entries and len(_OF_TRAINER & set(root.entries)) >= 2
    return "trainer" if is_trainer or of_model else None


def _is_orchestrated(root: Mapping) -> bool:
    """Whether ``[orchestrator]`` is there, with its own keys, or empty beside what serves it."""
    section = root.section("orchestrator")
    if section is None:
        return False
    return bool(_OF_ORCHESTRATOR & set(section.entries)) or "inference" in root.entries


def _is_orchestrator(root: Mapping) -> bool:
    """The orchestrator's own file: it trains nothing."""
    train = root.section("train")
    return train is not None and "source" in train.entries and "group_size" in root.entries


def _likely_kind(root: Mapping) -> str:
    """Of a file that a line names and nothing in it tells."""
    return "sft" if "data" in root.entries else "rl"


def _program_of(launch: Launch) -> str | None:
    """``rl``, ``sft`` or ``trainer``, by its name on the path beside an ``@``, or its file.

    The trainers' own files are theirs with options alone too (prime-rl d8f290ef benchmarks/scripts/run_single_benchmark.py)."""
    name = launch.name.replace("\\", "/")
    path = f"/{name.replace('.', '/')}/"
    for file, program in _TRAINERS.items():
        if file in path:
            return program
    is_laid = any(_laid_over(entry) for entry in launch.flags.entries.values())
    if not is_laid and not any(word.value == "@" for word in launch.arguments):
        return None
    if name in _PROGRAMS:
        return name
    if "prime_rl" not in name:
        return None
    return next((program for program in ("sft", "rl") if program in path), None)


def _is_blank(entry: Entry) -> bool:
    """``--model.name ...`` of a README."""
    value = entry.value
    return isinstance(value, Scalar) and isinstance(value.value, str) and is_stand_in(value.value)
