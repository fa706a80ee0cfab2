"""Whether the model that oomlint reads in an example is the one that its framework builds.

    OOMLINT_ORACLE_PYTHON=/tmp/oracles/bin/python python -m benchmarks.built FOLDER [NAME ...] [--write]

FOLDER holds checkouts by the names of :data:`FRAMEWORKS`. A builder (``builders/*.py``) runs in that interpreter, which has
PyTorch, transformers, peft and what the framework imports; it makes the model of an example by the framework's own classes
on the meta device, or transformers' where the framework trains its checkpoints. Parameters, trained parameters, layers and
heads are compared to the last one. Of examples alike in these one stands for all. ``--write`` puts the rows into
``built.jsonl``, which a test reads without any of the packages; what a builder cannot make is printed with its reason.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from benchmarks.built import ROWS, Built, rows
from benchmarks.shown import SHIPPED, commit_of, examples
from msgspec import Struct

from oomlint.dialects import registry
from oomlint.files.workspace import Workspace
from oomlint.hardware import parse_hardware
from oomlint.memory.facts import Facts
from oomlint.memory.trained import is_frozen_tower
from oomlint.models.catalogue import find_id, record
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker
from oomlint.runs.run import Run

_HERE = Path(__file__).parent
_CONFIGS = _HERE.parent / "catalogue" / "configs.jsonl"
_MACHINE = "8xA100-80GB"
_ALIKE = 3
"""Examples that oomlint reads alike are built up to this many times: the class of one may not import, or differ."""
_MOST = 60
"""Runs of a framework that are built: xtuner ships 530 configs of one kind."""

FRAMEWORKS = {
    "OLMo": "olmo_model",
    "OLMo-core": "olmo_core_model",
    "nanotron": "nanotron_model",
    "lingua": "lingua_model",
    "gpt-neox": "neox_model",
    "torchtitan": "torchtitan_model",
    "slime": "megatron_model",
    "prime-rl": "transformers_model",
    "AReaL": "transformers_model",
    "ROLL": "transformers_model",
    "RL": "transformers_model",
    "xtuner": "transformers_model",
    "align-anything": "transformers_model",
}
"""Checkout → its builder. Colossal-AI's scripts name no model."""


class Read(Struct, frozen=True):
    """A run of an example, as oomlint read it."""

    run: Run
    facts: Facts

    @property
    def likeness(self) -> Any:
        plan = self.run.plan
        return plan.model.id, repr(plan.model.dims), repr(plan.trainable)


def _read(name: str, home: Path) -> Iterator[Read]:
    shipped = next(s for s in SHIPPED if s.folder == name)
    linker = Linker(Workspace(home), registry(), LinkOptions(hardware=parse_hardware(_MACHINE)))
    seen: Counter[Any] = Counter()
    for example in examples(shipped, home):
        for run in linker.link([example]).runs:
            read = Read(run, Facts(run.plan))
            if (
                run.framework == shipped.dialect
                and read.facts.model
                and seen[read.likeness] < _ALIKE
            ):
                seen[read.likeness] += 1
                yield read


def _built(builder: str, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the framework's classes come to, or why they come to nothing."""
    roots = (_HERE.parent / "oracles" / "loaders", _HERE.parents[1])
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*map(str, roots), os.environ.get("PYTHONPATH", "")]),
        "HF_HUB_OFFLINE": "1",
    }
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "answers.json"
        done = subprocess.run(
            [os.environ["OOMLINT_ORACLE_PYTHON"], str(_HERE / "builders" / f"{builder}.py"), str(out)],
            input=json.dumps(cases), capture_output=True, text=True, env=environment, check=False,
        )  # fmt: skip
        if done.returncode:
            return [{"error": (done.stderr.strip().splitlines() or ["?"])[-1]}] * len(cases)
        answers: list[dict[str, Any]] = json.loads(out.read_text("utf-8"))["answers"]
    return answers


def _config_of(run: Run) -> dict[str, Any]:
    """The config.json of a run's model in short, as the catalogue's builder has it; none where that builds the language
    model alone of one with a tower."""
    model, dims = run.plan.model.id, run.plan.model.dims
    found = find_id(model) if model else None
    if found is None:
        return {}
    name = record(found.line)["id"]
    entries = map(json.loads, _CONFIGS.read_text("utf-8").splitlines())
    is_seeing = dims is not None and dims.vision is not None
    return {
        str(model): entry
        for entry in entries
        if entry["id"] == name and not (is_seeing and entry["build"] == "causal")
    }


def _row(name: str, commit: str, read: Read, found: dict[str, Any], why: str | None) -> Built:
    model, trainable = read.run.plan.model, read.run.plan.trainable
    is_known = model.id is not None and find_id(model.id) is not None
    return Built(
        framework=name,
        commit=commit,
        example=read.run.name,
        class_=found["class"],
        parameters=found["parameters"],
        trained=found["trained"],
        layers=found["layers"],
        heads=found["heads"],
        kv_heads=found["kv_heads"],
        model=model.id if is_known else None,
        dims=None if is_known else _said(model.dims),
        trainable=None if trainable.method == "full" and not trainable.frozen else _said(trainable),
        frozen_tower=is_frozen_tower(read.facts.plan),
        off=why,
    )


def _said(section: Any) -> dict[str, Any]:
    return {key: value for key, value in msgspec.to_builtins(section).items() if value is not None}


def _differences(read: Read, found: dict[str, Any]) -> Iterator[str]:
    dims, facts = read.run.plan.model.dims, read.facts
    ours = {
        "parameters": facts.model.numel if facts.model else None,
        "trained": facts.trained.numel,
        "layers": dims.layers if dims else None,
        "heads": dims.heads if dims else None,
        "kv_heads": dims.kv_heads if dims else None,
    }
    for key, value in ours.items():
        if found[key] is not None and found[key] != value:
            yield f"{key} {found[key]:,} and here {value or 0:,.0f}"


def compare(name: str, home: Path, known: dict[tuple[str, str], Built]) -> list[Built]:
    """The rows of one framework; differences and what is not built are printed."""
    reads = list(islice(_read(name, home), _MOST))
    framework = next(s.dialect for s in SHIPPED if s.folder == name)
    cases = [
        {
            "root": str(home), "example": r.run.name, "framework": framework,
            "configs": _config_of(r.run),
        }
        for r in reads
    ]  # fmt: skip
    made, same, told = [], 0, set()
    for read, answer in zip(reads, _built(FRAMEWORKS[name], cases), strict=True):
        found = answer.get("values")
        if found is None:
            print(f"{name} {read.run.name}: not built: {answer['error'][:160]}")
            continue
        if (read.likeness, *found.values()) in told:
            continue
        told.add((read.likeness, *found.values()))
        before = known.get((name, read.run.name))
        differences = ", ".join(_differences(read, found))
        same += not differences
        if differences:
            print(f"{name} {read.run.name}: {differences}; {before and before.off}")
        made.append(_row(name, commit_of(home), read, found, before.off if before else None))
    print(f"{name}: {same} of {len(made)} alike", flush=True)
    return made


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.built", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("names", nargs="*", metavar="NAME", help="all by default")
    parser.add_argument("--write", action="store_true", help="write built.jsonl anew")
    given = parser.parse_args(arguments)
    os.environ.setdefault("OOMLINT_ORACLE_CHECKOUTS", str(given.folder))
    kept = list(rows()) if ROWS.exists() else []
    known = {(row.framework, row.example): row for row in kept}
    for name in given.names or FRAMEWORKS:
        home = given.folder / name
        if not home.is_dir():
            continue
        made = compare(name, home, known)
        kept = [*(row for row in kept if row.framework != name), *made]
        if given.write:
            lines = sorted(msgspec.json.encode(row).decode() for row in kept)
            ROWS.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
