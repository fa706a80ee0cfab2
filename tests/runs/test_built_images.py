"""Pins of a project of which the image that a compose file builds for a run installs some, or none."""

from __future__ import annotations

import pytest
from tests.linked import link, report_of

_SCRIPT = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
args = TrainingArguments(output_dir="o", eval_strategy="steps", per_device_train_batch_size=1)
Trainer(model, args).train()
"""
_COMPOSE = """\
services:
  train:
    build:
      context: .
      dockerfile: Dockerfile.train
    shm_size: 8gb
    command: {command}
"""
_START = "python train.py"


def _project(dockerfile: str, command: str = _START, compose: str = _COMPOSE) -> dict[str, str]:
    return {
        "train.py": _SCRIPT,
        "compose.yaml": compose.format(command=command),
        "Dockerfile.train": f"FROM nvcr.io/nvidia/pytorch:25.01-py3\n{dockerfile}",
        "Dockerfile": "FROM python:3.11\nRUN pip install -r requirements.txt\n",
        "requirements.txt": "transformers==4.35.0\n",
    }


def _pin(files: dict[str, str]) -> tuple[str, str] | None:
    (run,) = link(files, "compose.yaml", "train.py").runs
    return run.parts.versions.get("transformers")


def _ends(files: dict[str, str]) -> bool:
    found = report_of(files, "compose.yaml", "train.py").diagnoses
    return any(d.finding.rule.code == "OOM905" for d in found)


def test_requirements_that_the_image_of_a_run_does_not_install_pin_nothing_of_it() -> None:
    files = _project("WORKDIR /workspace\n")
    assert _pin(files) is None
    assert not _ends(files)


@pytest.mark.parametrize(
    ("dockerfile", "command"),
    [
        ("COPY requirements.txt .\nRUN pip install -r requirements.txt\n", _START),
        ("", "bash -c 'pip install -r requirements.txt && python train.py'"),
    ],
)
def test_those_that_it_or_its_command_installs_do(dockerfile: str, command: str) -> None:
    files = _project(dockerfile, command)
    assert _pin(files) == ("4.35.0", "requirements.txt")
    assert _ends(files)


def test_what_its_own_dockerfile_pins_holds_and_not_what_another_does() -> None:
    files = _project("RUN pip install transformers==4.46.0\n")
    files["Dockerfile"] = "FROM python:3.11\nRUN pip install transformers==4.35.0\n"
    assert _pin(files) == ("4.46.0", "Dockerfile.train")
    assert not _ends(files)


@pytest.mark.parametrize("command", ["RUN pip install -e .", "RUN uv sync --frozen"])
def test_a_project_that_is_installed_brings_what_it_requires(command: str) -> None:
    files = _project(f"{command}\n")
    files["pyproject.toml"] = '[project]\nname = "a"\ndependencies = ["transformers==4.35.0"]\n'
    del files["requirements.txt"]
    assert _pin(files) == ("4.35.0", "pyproject.toml")


@pytest.mark.parametrize(
    "build", ["image: registry/own:1", "build: https://example.org/own.git", "build: ./absent"]
)
def test_an_image_that_is_not_built_here_leaves_the_pins_as_they_are(build: str) -> None:
    compose = f"services:\n  train:\n    {build}\n    shm_size: 8gb\n    command: {{command}}\n"
    assert _pin(_project("", compose=compose)) == ("4.35.0", "requirements.txt")


def test_a_build_that_names_its_folder_alone_takes_the_dockerfile_there() -> None:
    compose = "services:\n  train:\n    build: .\n    shm_size: 8gb\n    command: {command}\n"
    assert _pin(_project("", compose=compose)) == ("4.35.0", "requirements.txt")
