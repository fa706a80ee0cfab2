"""How a project's scripts start a config's siblings counts for a config that nothing starts."""

from pathlib import Path

import pytest
from tests.linked import link, run_of

from oomlint.engine import Options, lint
from oomlint.hardware import parse_hardware
from oomlint.judgement import sharding_is_open
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.rule import Severity
from oomlint.run import Run
from oomlint.workspace import Workspace

RECIPE = """\
model_name_or_path: alignment-handbook/zephyr-7b-sft-full
bf16: true
beta: 0.1
gradient_checkpointing: true
max_length: 1024
num_train_epochs: 1
output_dir: out
per_device_train_batch_size: 1
"""
ZERO3 = """\
distributed_type: DEEPSPEED
deepspeed_config: {zero_stage: 3}
mixed_precision: bf16
num_machines: 1
num_processes: 8
"""
LINE = "accelerate launch --config_file accelerate/zero3.yaml spin/run_spin.py {config}\n"


def _runs(files: dict[str, str]) -> dict[str, Run]:
    whole = {"accelerate/zero3.yaml": ZERO3, **files}
    return {run.claims[0].path: run for run in link(whole).runs}


def test_a_script_of_the_projects_own_is_started_with_a_recipe() -> None:
    files = {"a.sh": LINE.format(config="configs/a.yaml"), "configs/a.yaml": RECIPE}
    run = _runs(files)["configs/a.yaml"]
    assert run.plan.parallel.zero.stage == 3
    assert run.level(f.parallel.backend) <= Level.DEFAULT


def test_what_is_no_recipe_makes_no_run() -> None:
    line = LINE.format(config="configs/app.yaml")
    assert not _runs({"a.sh": line, "configs/app.yaml": "port: 80\nworkers: 4\n"}).keys() - {
        "accelerate/zero3.yaml"
    }


@pytest.mark.parametrize("script", ["a.sh", "scripts/a.sh"])
def test_a_recipe_that_nothing_starts_is_taken_to_start_as_its_sibling(script: str) -> None:
    files = {
        script: LINE.format(config="configs/a.yaml"),
        "configs/a.yaml": RECIPE,
        "configs/sweep/b.yaml": RECIPE,
    }
    run = _runs(files)["configs/sweep/b.yaml"]
    assert run.plan.parallel.zero.stage == 3
    assert run.level(f.parallel.backend) is Level.ASSUMED
    assert not sharding_is_open(run)


def test_of_several_lines_that_of_the_nearest_sibling_counts() -> None:
    files = {
        "a.sh": LINE.format(config="configs/one/a.yaml"),
        "b.sh": "accelerate launch --num_processes 2 spin/run_spin.py configs/two/b.yaml\n",
        "configs/one/a.yaml": RECIPE,
        "configs/two/b.yaml": RECIPE,
        "configs/two/c.yaml": RECIPE,
    }
    assert _runs(files)["configs/two/c.yaml"].plan.parallel.world == 2


def test_recipes_that_share_no_folder_are_no_siblings() -> None:
    files = {
        "accelerate/zero3.yaml": ZERO3,
        "one/a.sh": LINE.format(config="one/a.yaml"),
        "one/a.yaml": RECIPE,
        "two/b.yaml": RECIPE,
    }
    assert run_of(files, "two/b.yaml").plan.parallel.zero.stage is None


def test_a_script_counts_before_a_readme() -> None:
    readme = "```sh\naccelerate launch --num_processes 2 spin/run_spin.py configs/a.yaml\n```\n"
    files = {
        "README.md": readme,
        "a.sh": LINE.format(config="configs/a.yaml"),
        "configs/a.yaml": RECIPE,
        "configs/b.yaml": RECIPE,
    }
    assert _runs(files)["configs/b.yaml"].plan.parallel.zero.stage == 3


def test_a_path_on_its_authors_machine_is_the_config_of_that_name() -> None:
    line = LINE.format(config="/data/me/project/a.yaml").replace("spin/run_spin.py", "sft.py")
    files = {"scripts/a.sh": line, "configs/a.yaml": RECIPE, "configs/b.yaml": RECIPE}
    runs = _runs(files)
    assert runs["configs/a.yaml"].plan.parallel.zero.stage == 3
    assert runs["configs/b.yaml"].plan.parallel.zero.stage is None


def test_what_a_siblings_files_say_is_not_held_against_a_recipe() -> None:
    zero = ZERO3.replace("zero_stage: 3", "zero_stage: 3, gradient_accumulation_steps: 4")
    files = {
        "accelerate/zero3.yaml": zero,
        "a.sh": LINE.format(config="configs/a.yaml"),
        "configs/a.yaml": RECIPE + "gradient_accumulation_steps: 4\n",
        "configs/b.yaml": RECIPE + "gradient_accumulation_steps: 2\n",
    }
    assert not _speaking(files)
    assert _speaking({**files, "configs/a.yaml": RECIPE}) == {"accelerate-vs-trainer-mismatch"}


SCRIPT = """\
from transformers import AutoModelForCausalLM
from trl import ModelConfig, SFTConfig, SFTTrainer, TrlParser

parser = TrlParser((SFTConfig, ModelConfig))
training_args, model_args = parser.parse_args_and_config()
model = AutoModelForCausalLM.from_pretrained(model_args.model_name_or_path, torch_dtype="bfloat16")
SFTTrainer(model=model, args=training_args).train()
"""


def test_a_line_without_a_launcher_that_one_of_several_shows_is_no_habit() -> None:
    line = "python run/train.py --config configs/a.yaml"
    both = f"{line}\naccelerate launch --num_processes 8 {line[7:]}"
    files = {"configs/a.yaml": RECIPE, "run/train.py": SCRIPT}
    assert "multi-gpu-no-launcher" in _speaking({**files, "README.md": _shown(line)})
    assert "multi-gpu-no-launcher" not in _speaking({**files, "README.md": _shown(both)})


def _shown(lines: str) -> str:
    return f"```sh\n{lines}\n```\n"


def _speaking(files: dict[str, str]) -> set[str]:
    """The rules that warn of a setting."""
    workspace = Workspace(Path("/x"), {name: text.encode() for name, text in files.items()})
    report = lint(workspace, list(files), Options(hardware=parse_hardware("8xH100-80GB")))
    assert not report.errors
    return {
        d.rule.name
        for d in report.diagnoses
        if d.severity >= Severity.WARNING and d.finding.resource is None
    }
