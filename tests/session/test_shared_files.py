"""A config that many runs share keeps them in no batch of their own, and however they are taken apart the same is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from oomlint.cli import checking
from oomlint.cli.app import run
from oomlint.files.workspace import Workspace
from oomlint.session import many
from oomlint.session.batches import batches

RUNS = 6
RUN = """\
base_model: %s
datasets: [{path: a/b, type: alpaca}]
sequence_len: 8192
micro_batch_size: %d
num_epochs: 1
bf16: true
gradient_checkpointing: true
learning_rate: 1e-5
deepspeed: ds.json
"""
SMALL, LARGE = "meta-llama/Llama-3.2-1B", "meta-llama/Meta-Llama-3-8B"
STAGE = '{"zero_optimization": {"stage": %d}, "train_micro_batch_size_per_gpu": "auto"}'
STOPS = (
    '{"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}, "train_batch_size": 7,'
    ' "train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 2, "bf16": {"enabled": true}}'
)


def _alike(number: int) -> str:
    return RUN % (LARGE, 2)


def _some_die(number: int) -> str:
    return RUN % (SMALL if number % 2 else LARGE, 1 + 3 * (number % 3))


def _one_stops(number: int) -> str:
    return RUN % (SMALL, 1) + f"gradient_accumulation_steps: {4 if number else 2}\n"


PROJECTS: dict[str, tuple[Callable[[int], str], str]] = {
    "all want the same change": (_alike, STAGE % 1),
    "some want a change": (_some_die, STAGE % 2),
    "all have enough of it": (lambda number: RUN % (SMALL, 1), STAGE % 3),
    "it stops all of them": (_some_die, STOPS),
    "one stops, and the others are indifferent": (
        _one_stops,
        '{"zero_optimization": {"stage": 2}, "gradient_accumulation_steps": 4}',
    ),
    "it is only mentioned": (lambda number: "# as in ds.json\nanswer: 42\n", STOPS),
}


def _write(folder: Path, project: str) -> None:
    text, shared = PROJECTS[project]
    (folder / "ds.json").write_text(shared)
    for number in range(RUNS):
        (folder / f"run{number}.yaml").write_text(text(number))


@pytest.fixture
def said(tmp_path, monkeypatch, capfd):
    """What is said of a project whose files are linted in batches of a size."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(checking, "FEW", 3)
    monkeypatch.setattr(many, "FEW", 3)

    def said(project: str, size: int, output_format: str, *paths: str) -> tuple[int, str, str]:
        _write(tmp_path, project)
        monkeypatch.setattr(many, "batches", partial(batches, size=size))
        on = ("--hardware", "4xA100-40GB", "--host-memory", "512GiB")
        words = ("--jobs", "1", "--no-cache", "--output-format", output_format)
        status = run(["check", *(paths or (".",)), *on, *words])
        return (status, *capfd.readouterr())

    return said


def test_runs_are_taken_apart_at_a_config_that_names_nothing(tmp_path):
    _write(tmp_path, "some want a change")
    names = sorted(file.name for file in tmp_path.iterdir())
    found = batches(Workspace(tmp_path), names, 2, is_part=lambda name: name == "ds.json")
    assert [len(batch.names) for batch in found] == [1, 2, 2, 2]
    assert {(batch.group, batch.shared) for batch in found} == {(found[0].group, ("ds.json",))}
    [together] = batches(Workspace(tmp_path), names, 2)
    assert (list(together.names), together.shared) == (names, ())


@pytest.mark.parametrize("project", PROJECTS)
def test_however_runs_are_taken_apart_the_same_is_said(said, project):
    files = ["ds.json", *(f"run{number}.yaml" for number in range(RUNS))]
    for paths in ([], files[::-1]):
        whole = said(project, 100, "json", *paths)
        assert said(project, 1, "json", *paths) == whole
        assert said(project, 4, "json", *paths) == whole


def test_a_change_that_all_want_is_made_in_the_file(said):
    findings = json.loads(said("all want the same change", 2, "json")[1])["findings"]
    edited = {
        edit["path"] for each in findings if each["fix"] for edit in each["fix"].get("edits", ())
    }
    assert "ds.json" in edited


def test_another_run_is_called_by_its_name(said):
    _, out, _ = said("some want a change", 2, "text")
    assert "\0" not in out
    assert "run0.yaml uses ds.json too" in out or "also serves run0.yaml" in out
