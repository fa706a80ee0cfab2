from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.linked import run_of, workspace_of

from oomlint.config.overrides import read_pair
from oomlint.dialects import registry
from oomlint.dialects.trl.releases import CHUNKS_LOSS
from oomlint.files.requirements import NEWEST, floors, installed, pins, ranges, submodules
from oomlint.files.workspace import Workspace
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker
from oomlint.runs.run import Run


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("requirements.txt", "transformers==4.57.1  # why\nnumpy==1\n", {"transformers": "4.57.1"}),
        ("requirements-gpu.txt", "Flash_Attn == 2.6.3\n", {"flash-attn": "2.6.3"}),
        ("requirements.txt", "trl>=0.20\n", {}),
        ("requirements.txt", "transformers>=4.40,<5\n", {"transformers": "4.57"}),
        ("requirements.txt", "transformers[torch]~=4.46.2\n", {"transformers": "4.46.2"}),
        ("requirements.txt", "trl>=0.18,<=0.24.0\n", {"trl": "0.24.0"}),
        ("requirements.txt", "peft<0.12\n", {"peft": "0.11"}),
        (
            "requirements.txt",
            "transformers @ git+https://github.com/huggingface/transformers@v4.46.0\n",
            {"transformers": "4.46.0"},
        ),
        (
            "pyproject.toml",
            ('[project]\ndependencies = ["trl==0.19.1"]\n[project.optional-dependencies]\n'
            'gpu = ["trl==0.1.0", "deepspeed==0.16.4"]\n'),
            {"trl": "0.19.1", "deepspeed": "0.16.4"},
        ),
        (
            "pyproject.toml",
            ('[tool.poetry.dependencies]\npython = "^3.10"\ntransformers = "^4.40"\n'
            'peft = {version = "0.13.2", extras = ["a"]}\n'),
            {"transformers": "4.57", "peft": "0.13.2"},
        ),
        (
            "pyproject.toml",
            '[tool.poetry.dependencies]\ntorchtune = "^0.2.1"\ntrl = "^0.0.3"\npeft = "^0"\n',
            {"torchtune": "0.2", "trl": "0.0"},
        ),
        ("pyproject.toml", "not [ toml", {}),
        ("README.md", "```\npip install transformers==4.36.2\npip install trl\n```\n", {"transformers": "4.36.2"}),
        ("readme.rst", "    $ python -m pip install -U 'trl==0.9.6' \\\n      peft==0.11.1\n", {"trl": "0.9.6", "peft": "0.11.1"}),
        ("README.md", "conda activate x && pip install `trl==0.9.6`\n", {}),
        ("README.md", "1. `pip install trl==0.9.6`\n", {"trl": "0.9.6"}),
        ("README.md", "It fails: do not pip install trl==0.9.6\n# pip install trl==0.9.7\n", {}),
        ("README.md", "pip install trl==0.9.6\npip install trl==0.12.0\n", {}),
        ("README.md", "pip install trl==0.9.6\npip install -U trl\n", {}),
        ("NOTES.md", "pip install trl==0.9.6\n", {}),
        ("README.md", "    conda create -y --name llm python=3.10\n", {"python": "3.10"}),
        ("README.md", "uv venv --python 3.11 .venv && . .venv/bin/activate\n", {"python": "3.11"}),
        ("README.md", "conda create -n a python=3.10\nconda create -n b python=3.11\n", {}),
        ("README.md", "# conda create -n llm python=3.10\n", {}),
        ("setup.sh", "mamba create -n llm -c conda-forge python==3.9.18\n", {"python": "3.9.18"}),
        ("Dockerfile", "FROM docker.io/library/python:3.10-slim\n", {"python": "3.10"}),
        ("Dockerfile", "FROM my/not-python:3.10\n", {}),
        ("environment.yaml", "dependencies:\n  - python=3.10.4=h12\n", {"python": "3.10.4"}),
        ("pyproject.toml", '[project]\nrequires-python = ">=3.9,<3.11"\n', {"python": "3.10"}),
        ("pyproject.toml", '[project]\nrequires-python = ">=3.9"\n', {}),
        ("setup.cfg", "[options]\ninstall_requires =\n    accelerate==1.0.1\n", {"accelerate": "1.0.1"}),
        ("setup.py", 'setup(install_requires=["torch==2.4.0", "x"])', {"torch": "2.4.0"}),
        ("setup.py", '_deps = ["trl @ git+https://github.com/huggingface/trl.git@69ad852e5654a77f1695eb4c60"]', {"trl": "commit 69ad852"}),
        ("setup.py", '_deps = ["trl @ git+https://github.com/huggingface/trl.git@main"]', {}),
        ("setup.py", 'setup(author_email="trl@example.org")', {}),
        (
            "uv.lock",
            ('version = 1\n[[package]]\nname = "torch"\nversion = "2.6.0+cu124"\n'
            '[[package]]\nname = "other"\nversion = "1"\n'),
            {"torch": "2.6.0"},
        ),
        ("Pipfile.lock", '{"default": {"trl": {"version": "==0.15.2"}}}', {"trl": "0.15.2"}),
        (
            "environment.yml",
            "dependencies:\n  - pytorch::torch=2.3.1=cuda\n  - pip:\n    - peft==0.10.0\n",
            {"torch": "2.3.1", "peft": "0.10.0"},
        ),
        (
            "Dockerfile",
            ("FROM pytorch/pytorch:2.4.0-cuda12.1-cudnn9-devel\nRUN pip install -U \\\n"
            "  'transformers==4.51.3' deepspeed==0.15.0 && ls\n"),
            {"torch": "2.4.0", "transformers": "4.51.3", "deepspeed": "0.15.0"},
        ),
        ("other.txt", "trl==0.1\n", {}),
        (
            "requirements.txt",
            "trl@git+https://github.com/huggingface/trl.git@019fc6dbaa03b888f9d5c1845f0f690da8ed310c#egg=trl[main]\n",
            {"trl": "commit 019fc6d"},
        ),
        ("requirements.txt", "git+https://github.com/huggingface/peft.git@89ff3e6\n", {"peft": "commit 89ff3e6"}),
        ("requirements.txt", "trl @ git+https://github.com/ours/trl-too\n", {"trl": "github.com/ours/trl-too"}),
        ("requirements.txt", "trl @ git+https://github.com/huggingface/trl\n", {}),
        (
            "pyproject.toml",
            ("[project]\ndependencies = ['openrlhf>=0.5', 'trl==0.9.6']\n"
            "[tool.uv.sources]\nopenrlhf = { git = 'https://github.com/ours/OpenRLHF-too', branch = 'b' }\n"
            "trl = { path = '../trl' }\n"),
            {"openrlhf": "github.com/ours/OpenRLHF-too", "trl": "0.9.6"},
        ),
        (
            "uv.lock",
            ('[[package]]\nname = "openrlhf"\nversion = "0.5.9"\n'
            'source = { git = "https://github.com/ours/OpenRLHF-too?branch=b#0d195aa" }\n'
            '[[package]]\nname = "trl"\nversion = "0.9.6"\nsource = { registry = "https://pypi.org/simple" }\n'),
            {"openrlhf": "github.com/ours/OpenRLHF-too", "trl": "0.9.6"},
        ),
        ("requirements.txt", "git+https://github.com/huggingface/peft\n", {}),
        ("requirements.txt", "trl@git+https://github.com/huggingface/trl@main\n", {}),
        ("requirements.txt", "git+https://github.com/huggingface/transformers@v4.49.0\n", {"transformers": "4.49.0"}),
    ],
)  # fmt: skip
def test_pins(name: str, text: str, found: dict[str, str]) -> None:
    assert pins(name, text) == found


def test_what_a_script_installs() -> None:
    text = "pip install -q transformers==4.44.2 \\\n  trl==0.9.6\npython train.py\n"
    assert installed(text) == {"transformers": "4.44.2", "trl": "0.9.6"}


_SFT = """\
model_name_or_path: Qwen/Qwen2.5-0.5B
dataset_name: trl-lib/Capybara
per_device_train_batch_size: 2
learning_rate: 1e-5
num_train_epochs: 1
max_length: 512
output_dir: out
"""


def _run(options: dict[str, Any] | None = None, **files: str) -> Run:
    texts = {name.replace("__", "/").replace("_", "."): text for name, text in files.items()}
    texts["configs/sft.yaml"] = _SFT
    return run_of(texts, "configs/sft.yaml", values=options or {})


def test_the_nearest_file_up_the_tree_counts() -> None:
    run = _run(
        requirements_txt="trl==0.24.0\npeft==0.17.0\n", configs__requirements_txt="trl==0.19.1\n"
    )
    assert run.plan.versions == {"trl": "0.19.1", "peft": "0.17.0"}
    assert not _run().plan.versions


@pytest.mark.parametrize(
    "line",
    ["-r base/pins.txt", "--requirement=base/pins.txt", "-c base/pins.txt", "-rbase/pins.txt"],
)
def test_requirements_take_in_others(line: str) -> None:
    run = _run(
        requirements_txt=f"{line}\npeft==0.17.0\n", base__pins_txt="-r pins.txt\ntrl==0.19.1\n"
    )
    assert run.plan.versions == {"trl": "0.19.1", "peft": "0.17.0"}


@pytest.mark.parametrize(
    ("install", "versions"),
    [
        ('!pip install transformers==4.55.4 \\"trl>=0.20\\"', {"transformers": "4.55.4"}),
        ("%pip install -U transformers trl", {}),
        ("!pip install -r requirements.txt", {"transformers": "4.40.0", "trl": "0.19.1"}),
    ],
)
def test_what_a_notebook_installs_counts_before_the_pins_of_the_project(
    install: str, versions: dict[str, str]
) -> None:
    code = (
        "from trl import SFTConfig, SFTTrainer\\n"
        "args = SFTConfig(output_dir='out', per_device_train_batch_size=1)\\n"
        "SFTTrainer(model='Qwen/Qwen2.5-0.5B', args=args, train_dataset=data).train()\\n"
    )
    cells = ",".join(
        f'{{"cell_type": "code", "metadata": {{}}, "source": "{text}", "outputs": []}}'
        for text in (install, code)
    )
    files = {
        "train.ipynb": f'{{"cells": [{cells}], "metadata": {{}}, "nbformat": 4}}'.encode(),
        "requirements.txt": b"transformers==4.40.0\ntrl==0.19.1\n",
    }
    (run,) = (
        Linker(Workspace(Path("/x"), files), registry(), LinkOptions()).link(["train.ipynb"]).runs
    )
    assert run.plan.versions == versions


def test_a_lock_counts_before_a_project_file() -> None:
    lock = '[[package]]\nname = "trl"\nversion = "0.21.0"\n'
    run = _run(uv_lock=lock, pyproject_toml='[project]\ndependencies = ["trl==0.22.0"]\n')
    assert run.plan.versions == {"trl": "0.21.0"}


@pytest.mark.parametrize(
    ("name", "install", "versions"),
    [
        ("setup.sh", "uv pip install --python .venv/bin/python \\\n    'trl>=1.8.0'\n", {}),
        ("setup.sh", "uv sync\nuv pip install 'trl>=0.20'\n", {"trl": "0.21.0"}),
        ("notes.sh", "uv pip install 'trl>=1.8.0'\n", {"trl": "0.21.0"}),
    ],
)
def test_a_script_that_asks_for_a_later_release_than_the_lock_has_installs_that(
    name: str, install: str, versions: dict[str, str]
) -> None:
    lock = '[[package]]\nname = "trl"\nversion = "0.21.0"\n'
    assert _run(uv_lock=lock, **{name.replace(".", "_"): install}).plan.versions == versions


@pytest.mark.parametrize(
    ("requirements", "versions"),
    [
        ("trl<0.9.0\n", {}),
        ("trl==0.19.1\n", {}),
        ("trl==0.23.0\n", {"trl": "0.23.0"}),
        ("trl\n", {}),
    ],
)
def test_of_requirements_that_the_project_does_not_allow_nobody_knows_what_is_installed(
    requirements: str, versions: dict[str, str]
) -> None:
    project = '[project]\ndependencies = ["trl>=0.22"]\n'
    run = _run(requirements_txt=requirements, pyproject_toml=project)
    assert run.plan.versions == versions


@pytest.mark.parametrize(
    ("url", "package"),
    [
        ("https://github.com/hiyouga/LLaMA-Factory.git", "llamafactory"),
        ("git@github.com:volcengine/verl", "verl"),
        ("https://github.com/acme/liger_kernel", "liger-kernel"),
        ("https://github.com/acme/data", None),
    ],
)
def test_a_submodule_is_known_by_its_repository(url: str, package: str | None) -> None:
    text = f'[submodule "x"]\n\tpath = deps/x\n\turl = {url}\n'
    assert submodules(text) == ({} if package is None else {package: "deps/x"})


def test_versions_decide_defaults_that_changed() -> None:
    old = _run(requirements_txt="trl==0.19.1\ntransformers==4.52.4\n").plan
    assert old.checkpointing.mode == "none"
    assert old.loss.logits_materialised == "full"
    assert (old.optimizer.fused, old.checkpointing.reentrant) == (False, True)
    later = _run(requirements_txt="trl==0.24.0\ntransformers==4.57.1\ntorch==2.8.0\n").plan
    assert (later.checkpointing.mode, later.loss.logits_materialised) == ("full", "full")
    assert later.optimizer.fused is True
    early_torch = _run(requirements_txt="transformers==4.57.1\ntorch==2.7.1\n")
    assert early_torch.plan.optimizer.fused is False
    name = early_torch.settings[f.optimizer.name]
    assert (name.value, name.origin.kind, name.level) == ("adamw_torch", "default", Level.DEFAULT)
    assert name.origin.source.startswith("transformers 4.54.0")
    newest = _run(requirements_txt="trl==1.9.0\n")
    assert newest.plan.loss.logits_materialised == "chunked"
    assert CHUNKS_LOSS not in newest.open
    assert _run().open[CHUNKS_LOSS]


def test_a_version_may_be_given() -> None:
    assert read_pair("versions.trl=0.19.1") == ("versions.trl", "0.19.1")
    run = _run({"versions.trl": "0.19.1"}, requirements_txt="trl==0.24.0\n")
    assert run.plan.versions == {"trl": "0.19.1"}
    assert run.plan.checkpointing.mode == "none"


@pytest.mark.parametrize(
    ("name", "pinned"),
    [("setup.sh", "0.13.0"), ("install_env.sh", "0.13.0"), ("train.sh", None)],
)
def test_a_script_that_sets_up_the_environment_pins(name: str, pinned: str | None) -> None:
    text = "set -e\npip3 install 'git+https://github.com/axolotl-ai-cloud/axolotl.git@v0.13.0'\n"
    assert pins(name, text).get("axolotl") == pinned


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("requirements.txt", "git+https://github.com/huggingface/peft.git\n", {"peft": NEWEST}),
        ("requirements.txt", "peft @ git+https://github.com/huggingface/peft@main\n", {"peft": NEWEST}),
        ("README.md", "pip install -q git+https://github.com/huggingface/peft\n", {"peft": NEWEST}),
        ("requirements.txt", "git+https://github.com/huggingface/peft@v0.9.0\n", {}),
        ("requirements.txt", "git+https://github.com/huggingface/peft@1a2b3c4d\n", {}),
        ("requirements.txt", "git+https://github.com/somebody/peft.git\n", {}),
        ("requirements.txt", "peft>=0.9\n", {"peft": "0.9"}),
    ],
)  # fmt: skip
def test_the_oldest_release_that_is_asked_for(name: str, text: str, found: dict[str, str]) -> None:
    assert floors(name, text) == found


@pytest.mark.parametrize(
    ("required", "found"),
    [
        ("trl>=0.18,<=0.24.0", {"trl": "0.18"}),
        ("transformers<5", {"transformers": "0"}),
        ("transformers~=4.46", {"transformers": "4.46"}),
        ("transformers==4.46.*", {}),
        ("transformers>=4.40", {}),
        ("trl @ git+https://github.com/huggingface/trl@v0.19.1", {}),
    ],
)
def test_a_pin_that_is_the_newest_of_a_range(required: str, found: dict[str, str]) -> None:
    assert ranges("requirements.txt", f"{required}\n") == found


@pytest.mark.parametrize(
    ("asked", "version"),
    [("", "0.9.6"), ("trl", "0.9.6"), ("trl>=0.9", "0.9.6"), ("trl>=0.12", None), ("trl==0.12.0", "0.12.0")],
)  # fmt: skip
def test_a_readme_counts_less_than_any_list_of_requirements(
    asked: str, version: str | None
) -> None:
    files = {
        "train.sh": "python -m trl.scripts.sft --model_name_or_path Qwen/Qwen2.5-0.5B --output_dir out\n",
        "README.md": "pip install trl==0.9.6\n",
        "requirements.txt": f"{asked}\n",
    }
    (run,) = Linker(workspace_of(files), registry(), LinkOptions()).link(["train.sh"]).runs
    assert run.parts.versions.get("trl", (None, ""))[0] == version
