"""Configs that a program of the project loads by itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.linked import link

from oomlint.dialects import registry
from oomlint.files.workspace import Workspace
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker

_RECIPE = (
    "model_name_or_path: meta-llama/Llama-2-7b-hf\ndataset_name: a/b\nlearning_rate: 1.0e-5\n"
    "trained_model_path: out\n"
)
_LOADS = "import yaml\nconfig = yaml.safe_load(open(path))\n"


@pytest.mark.parametrize(
    ("program", "strays"),
    [
        (_LOADS + "load(config['trained_model_path'])\n", 0),
        (_LOADS + "load(Box(config).trained_model_path)\n", 0),
        (_LOADS + "load(config['other'])\n", 1),
        ("load(config['trained_model_path'])\n", 1),
    ],
)
def test_a_key_that_a_program_asks_for_is_no_slip(
    program: str, strays: int, tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "recipe.yaml").write_text(_RECIPE)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "score.py").write_text(program)
    linker = Linker(Workspace(tmp_path), registry(), LinkOptions())
    (run,) = linker.link(["recipe.yaml"]).runs
    assert len(run.stray) == strays


_LINE = "python train.py --output_dir out --num_train_epochs 1 --learning_rate 1e-5 --bf16 True --save_steps 9 --per_device_train_batch_size 1\n"


@pytest.mark.parametrize(
    ("program", "runs"),
    [
        ('import subprocess\nwords = [\n    "llamafactory-cli", "train",\n]\nrun(words)\n', 0),
        ("import os\nos.system(f'torchrun --nproc_per_node {n} other.py')\n", 0),
        ('import subprocess\nsubprocess.run(["nvidia-smi", "-L"])\n', 1),
        ('import subprocess\nparser.add_argument("--deepspeed")\nTrainer(args=args)\n', 1),
    ],
)
def test_a_script_that_starts_a_launcher_trains_nothing_itself(program: str, runs: int) -> None:
    assert len(link({"run.sh": _LINE, "train.py": program}).runs) == runs


_ARGUMENTS = """\
from dataclasses import dataclass
@dataclass
class ModelArguments:
    {key}: bool = False
"""
_PARSES = """\
import transformers
from trl import RewardConfig
from arguments import ModelArguments
parser = transformers.HfArgumentParser((ModelArguments, {library}))
"""


@pytest.mark.parametrize(
    ("key", "library", "strays"),
    [
        ("grad_checkpoint", "RewardConfig", 0),
        ("grad_checkpoint", "ModelArguments", 1),
        ("other", "RewardConfig", 1),
    ],
)
def test_a_key_that_a_class_of_the_scripts_parser_declares_is_no_slip(
    key: str, library: str, strays: int, tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "recipe.yaml").write_text(
        _RECIPE.replace("trained_model_path: out", "grad_checkpoint: true\nmax_length: 4096")
    )
    (tmp_path / "main").mkdir()
    (tmp_path / "main" / "arguments.py").write_text(_ARGUMENTS.format(key=key))
    (tmp_path / "main" / "train_rm.py").write_text(_PARSES.format(library=library))
    linker = Linker(Workspace(tmp_path), registry(), LinkOptions())
    (run,) = linker.link(["recipe.yaml"]).runs
    assert len(run.stray) == strays


_ASKED = (
    "model_name_or_path: Qwen/Qwen2.5-7B\noutput_dir: out\nlearning_rate: 1.0e-5\nload_in_4bit: true\n"
    "per_device_train_batch_size: 1\nmax_seq_length: 4096\nsft_schema: chat\n"
)
_READS_ITSELF = (
    "import yaml\ndef load_config(path):\n    return dict(yaml.safe_load(path.read_text()))\n"
    "config = load_config(path)\nsettings = {\n    'output_dir': config['output_dir'],\n"
    "    'learning_rate': config.get('learning_rate'),\n"
    "    'per_device_train_batch_size': config.get('per_device_train_batch_size', 1),\n"
    "    'max_length': int(config.get('max_seq_length', 1024)),\n}\nschema = config['sft_schema']\n"
)


@pytest.mark.parametrize(
    ("program", "runs"),
    [
        (_READS_ITSELF, 0),
        ("import yaml\nconfig = yaml.safe_load(file)\nschema = config['sft_schema']\n", 1),
        (_READS_ITSELF + "TrlParser((ScriptArguments, SFTConfig))\n", 1),
        # Another module opens the file.
        (_READS_ITSELF.replace("load_config", "made").replace("yaml.safe_load", "made"), 0),
    ],
)
def test_a_config_whose_keys_a_program_of_the_projects_own_asks_for_is_not_the_frameworks(
    program: str, runs: int, tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "recipe.yaml").write_text(_ASKED)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "tune.py").write_text(program)
    linker = Linker(Workspace(tmp_path), registry(), LinkOptions())
    assert len(linker.link(["recipe.yaml"]).runs) == runs


@pytest.mark.parametrize(("base", "is_own"), [("SFTConfig", True), ("OtherConfig", False)])
def test_an_old_name_that_the_script_gives_to_an_option_of_its_own_is_none(
    base: str, is_own: bool, tmp_path: Path
) -> None:
    script = (
        "from dataclasses import dataclass\n"
        f"from trl import {base}, TrlParser\n"
        "@dataclass\nclass ScriptArguments:\n    max_seq_length: int = 2048\n"
        f"parser = TrlParser((ScriptArguments, {base}))\n"
    ).replace("from trl import OtherConfig", "from mine import OtherConfig")
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text(script)
    (tmp_path / "recipe.yaml").write_text(f"{_RECIPE}max_seq_length: 4096\n")
    linker = Linker(Workspace(tmp_path), registry(), LinkOptions())
    (run,) = linker.link(["recipe.yaml"]).runs
    assert ("max_seq_length" in run.redeclared) is is_own


_LIKE_AXOLOTL = (
    "base_model: models/Qwen3-1.7B\nadapter: checkpoints/sft\ntrain_file: data/tasks.jsonl\n"
    "learning_rate: 1.0e-5\nmax_steps: 20\nbatch_tasks: 2\n"
)
_READS_SUCH = (
    "import yaml\nconfig = yaml.safe_load(open(path))\n"
    "train(config['base_model'], config['adapter'], config['train_file'], config.get('max_steps', 2))\n"
)


@pytest.mark.parametrize(
    ("files", "runs"),
    [
        ({"train.py": _READS_SUCH}, 0),
        ({"train.py": "import yaml\nload(config['base_model'], config['other'])\n"}, 1),
        ({"train.py": _READS_SUCH, "README.md": "We train with Axolotl.\n"}, 1),
        ({"train.py": _READS_SUCH, "run.sh": "accelerate launch -m axolotl.cli.train t.yaml\n"}, 1),
        ({}, 1),
    ],
)
def test_a_config_is_no_axolotls_that_a_program_reads_where_nothing_speaks_of_axolotl(
    files: dict[str, str], runs: int, tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir()
    for name, text in {**files, "t.yaml": _LIKE_AXOLOTL}.items():
        (tmp_path / name).write_text(text)
    linker = Linker(Workspace(tmp_path), registry(), LinkOptions())
    assert len(linker.link(["t.yaml"]).runs) == runs
