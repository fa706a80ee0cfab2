"""What is kept of runs over an edit is what would be computed anew: each file that a run may have read is edited, a
derivation that looks at a document and is not noted for it says then what it said before."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.linked import Files, workspace_of

from oomlint.dialects import registry
from oomlint.dialects.cells import Cells
from oomlint.dialects.setting import Origin, Setting
from oomlint.errors import CannotEdit
from oomlint.files.workspace import Workspace
from oomlint.linting.engine import all_rules
from oomlint.plan.fields import f
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker
from oomlint.runs.run import Run

CORPUS = Path(__file__).parents[2] / "../shared/corpus"
CHANGES: tuple[dict[Any, Any], ...] = (
    {f.batch.micro: 1},
    {f.checkpointing.mode: "full"},
    {f.parallel.zero.stage: 3},
)
# Of each file so many lines are left out, one at a time.
_LINES = 3


def _projects() -> list[Files]:
    """The projects that rules speak of, each once."""
    found = {
        tuple(sorted(example.files.items())): example.files
        for rule in all_rules()
        for example in (*rule.bad, *rule.good)
    }
    return [found[key] for key in sorted(found)]


PROJECTS = _projects()
FEW = PROJECTS[::40]


def edits(name: str, text: str, most: int) -> Iterator[tuple[str, str]]:
    """What is done, and the text after it: all stands elsewhere, a number is another, or a line is gone."""
    note = "\n" if name.endswith(".json") else "# a note\n"
    yield "a note", note + text
    draw = random.Random(len(text))
    numbers = list(re.finditer(r"(?<![\w.-])\d+(?![\w.-])", text))
    for found in draw.sample(numbers, min(1, len(numbers))):
        yield (
            f"{found[0]} doubled",
            f"{text[: found.start()]}{2 * int(found[0])}{text[found.end() :]}",
        )
    lines = text.splitlines(keepends=True)
    for index in sorted(draw.sample(range(len(lines)), min(most, len(lines)))):
        yield f"no {lines[index].strip()!r}", "".join(lines[:index] + lines[index + 1 :])


def differences(files: Files, most: int = _LINES) -> list[str]:
    """Of each edit after which a run that was kept is not what it is afresh, what it is, and of what."""
    workspace = workspace_of(files)
    first = _link(workspace, files)
    for run in first:
        _under_options(run), _after_changes(run)  # what is asked again may be kept as well
    return [
        f"{name} with {what}: {_unlike(kept, fresh)}"
        for name, text in files.items()
        for what, edited in edits(name, str(text), most)
        for after in [workspace.with_overlay({name: edited.encode()})]
        for kept, fresh in [(_link(after, files, first), _link(after, files))]
        if list(map(_told, kept)) != list(map(_told, fresh))
    ]


def _link(workspace: Workspace, files: Files, earlier: list[Run] | None = None) -> list[Run]:
    return (
        Linker(workspace, registry(), LinkOptions()).link(tuple(files), earlier=earlier or ()).runs
    )


def _told(run: Run) -> dict[str, Any]:
    """All that anybody can be told of a run, in words."""
    cells = run.cells
    return {
        "plan": repr(run.plan),
        "settings": {str(field): _of(setting) for field, setting in run.settings.items()},
        "unreadable": {str(field): _place(origin) for field, origin in run.unreadable.items()},
        "open": {repr(change): taken for change, taken in cells.open.items()},
        "strays": [(stray.path, stray.block.location) for stray in run.stray],
        "wrong": [(wrong.expected, wrong.block.location) for wrong in run.wrong],
        "known": {str(field): (cells.level(field), cells.reads(field)) for field in cells.fields},
        "under options": _under_options(run),
        "after changes": _after_changes(run),
    }  # fmt: skip


def _under_options(run: Run) -> dict[str, Any]:
    """The plans of the run with other releases and with short samples, and how a field is known there."""
    others = {repr(changes): other for changes, other in run.alternatives}
    others["short samples"] = run.assuming({f.seq.max_len: 64})
    return {name: (repr(other.plan), other.level(f.batch.micro)) for name, other in others.items()}


def _after_changes(run: Run) -> dict[str, Any]:
    """The plans of the run after what rules propose, what its files would say then, and how a field is known there."""
    found: dict[str, Any] = {}
    for change in CHANGES:
        try:
            other = run.what_if(change)
        except CannotEdit as error:
            found[repr(change)] = str(error)
        else:
            known = other.level(f.batch.micro), other.cells.wished == other.wished
            found[repr(change)] = (repr(other.plan), repr(other.wished), known)
    return found


def _of(setting: Setting) -> tuple[Any, ...]:
    shadowed = [_of(each) for each in setting.shadowed]
    return repr(setting.value), setting.level, _place(setting.origin), shadowed


def _place(origin: Origin) -> tuple[Any, ...]:
    return origin.kind, origin.location, origin.source, tuple(map(str, origin.inputs))


def _unlike(kept: list[Run], fresh: list[Run]) -> str:
    if len(kept) != len(fresh):
        return f"{len(kept)} runs and not {len(fresh)}"
    found = []
    for one, other in zip(map(_told, kept), map(_told, fresh), strict=True):
        for part, told in one.items():
            if isinstance(told, dict):
                names = [n for n in {**told, **other[part]} if told.get(n) != other[part].get(n)]
                found += [f"{n}: {told.get(n)} and not {other[part].get(n)}" for n in names]
            elif told != other[part]:
                found.append(part)
    return "; ".join(found) or "in another order"


@pytest.mark.parametrize("files", FEW, ids=lambda files: "+".join(files))
def test_what_is_kept_over_an_edit_is_what_is_computed_anew(files: Files) -> None:
    assert not differences(files)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_so_it_is_in_every_project_that_rules_speak_of(part: int) -> None:
    assert not [found for files in PROJECTS[part::20] for found in differences(files)]


@pytest.mark.slow
@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not here")
def test_so_it_is_of_the_configs_of_frameworks() -> None:
    found = sorted(path for path in CORPUS.rglob("*.yaml") if path.stat().st_size < 8_000)
    for path in found[:: max(1, len(found) // 80)]:
        assert not differences({path.name: path.read_text("utf-8")}), path


_PROGRAM = """\
import argparse
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
parser = argparse.ArgumentParser()
parser.add_argument("--norm", "-n", type=float, default=1.0)
options = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.2-1B")
Trainer(model=model, args=TrainingArguments("out"), train_dataset=rows).train()
"""


def test_a_derivation_that_is_not_noted_for_what_it_looks_at_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That the command's option is none of the program's is known of what the parser declares, which is no field."""
    files = {"train.py": _PROGRAM, "run.sh": "python train.py --warmup 0.1\n"}
    assert not differences(files, most=20)
    monkeypatch.setattr(Cells, "once", lambda cells, function: cells._given.once(function))
    found = differences(files, most=20)
    assert any("refused_at" in each for each in found)


_CONFIG = """\
base_model: NousResearch/Meta-Llama-3-8B
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
sequence_len: 8192
micro_batch_size: 4
deepspeed: ds.json
"""
_SHARED = '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}, "steps_per_print": 1}'


@pytest.mark.parametrize("edited", [f" {_SHARED}", _SHARED.replace(": 1}", ": 2}")])
def test_an_edit_that_moves_no_value_computes_no_change_again(
    monkeypatch: pytest.MonkeyPatch, edited: str
) -> None:
    files = {"train.yaml": _CONFIG, "ds.json": _SHARED}
    workspace = workspace_of(files)
    first = _link(workspace, files)
    before = [run.what_if(change).plan for run in first for change in CHANGES]
    again: list[Any] = []
    computed = Cells.changed
    monkeypatch.setattr(Cells, "changed", lambda *asked: again.append(asked) or computed(*asked))
    after = _link(workspace.with_overlay({"ds.json": edited.encode()}), files, first)
    assert [run.what_if(change).plan for run in after for change in CHANGES] == before
    assert not again


def test_what_is_looked_for_in_the_files_and_found_as_it_was_computes_nothing_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That a file is there, and what a function makes of all of them."""
    files = {"train.yaml": _CONFIG, "ds.json": _SHARED}
    workspace = workspace_of(files)
    first = _link(workspace, files)
    computed: list[Any] = []
    again = Cells._compute_again

    def noted(cells: Cells, fields: Any, replaced: Any) -> Any:
        computed.extend(fields)
        return again(cells, fields, replaced)

    monkeypatch.setattr(Cells, "_compute_again", noted)
    assert _link(workspace.with_overlay({"ds.json": f" {_SHARED}".encode()}), files, first)
    assert not computed
