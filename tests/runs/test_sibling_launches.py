"""How a project's scripts start a config's siblings counts for a config that nothing starts."""

from pathlib import Path

import pytest
from tests.linked import link, report_of, run_of

from oomlint.files.workspace import Workspace
from oomlint.hardware import parse_hardware
from oomlint.judgement import sharding_is_open
from oomlint.judgement.unread import in_words
from oomlint.linting.engine import Options, lint
from oomlint.linting.rule import Severity
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.documented_launches import _are_alike
from oomlint.runs.run import Run

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


FACTORY = """\
model_name_or_path: Qwen/Qwen2.5-7B
stage: sft
do_train: true
finetuning_type: full
dataset: ours
template: qwen
output_dir: out
"""


def test_a_config_that_nothing_starts_is_taken_to_start_as_a_siblings_head_says() -> None:
    head = "# accelerate launch --config_file accelerate/zero3.yaml src/train.py configs/a.yaml\n\n"
    files = {"configs/a.yaml": head + FACTORY, "configs/b.yaml": FACTORY}
    run = _runs(files)["configs/b.yaml"]
    assert run.plan.parallel.zero.stage == 3
    assert run.level(f.parallel.backend) is Level.ASSUMED
    other = head.replace("zero3", "zero2").replace("a.yaml", "c.yaml")
    files |= {"configs/c.yaml": other + FACTORY, "accelerate/zero2.yaml": ZERO3.replace("3}", "2}")}
    assert _runs(files)["configs/b.yaml"].level(f.parallel.world) is Level.UNREAD


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
    files["spin/run_spin.py"] = SCRIPT
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


def test_lines_for_siblings_that_shard_differently_leave_it_open() -> None:
    files = {
        "README.md": _shown(
            f"{LINE.format(config='configs/a.yaml')}"
            "accelerate launch --multi_gpu --num_processes 2 spin/run_spin.py configs/b.yaml"
        ),
        "accelerate/zero3.yaml": ZERO3,
        "configs/a.yaml": RECIPE,
        "configs/b.yaml": RECIPE,
        "configs/c.yaml": RECIPE,
    }
    run = run_of(files, "configs/c.yaml")
    assert run.level(f.parallel.backend) is Level.UNREAD
    why = {in_words(run, lost) for lost in run.roots(f.parallel.backend)}
    assert why == {"no file says for certain how it is started"}
    assert run_of(files, "configs/a.yaml").level(f.parallel.backend) <= Level.DEFAULT
    nearly = files["README.md"].replace("--multi_gpu", "--config_file accelerate/zero3.yaml")
    files["README.md"] = nearly.replace("processes 2", "processes 7")
    assert run_of(files, "configs/c.yaml").level(f.parallel.backend) is Level.ASSUMED


def test_of_siblings_none_is_built_behind_the_first_that_shards_otherwise() -> None:
    files = {
        "a.sh": LINE.format(config="configs/a.yaml"),
        "b.sh": LINE.format(config="configs/b.yaml").replace("zero3", "zero2"),
        "configs/a.yaml": RECIPE,
        "configs/b.yaml": RECIPE,
        "accelerate/zero2.yaml": ZERO3.replace("3", "2"),
    }
    runs = _runs(files)
    first, other = runs["configs/a.yaml"], runs["configs/b.yaml"]
    behind = iter([first, other, first])
    assert not _are_alike(behind)
    assert next(behind) is first
    assert _are_alike([first, first])


def test_what_the_file_of_an_assumed_launch_says_is_assumed() -> None:
    files = {"a.sh": LINE.format(config="configs/a.yaml"), "configs/a.yaml": RECIPE}
    runs = _runs({**files, "configs/b.yaml": RECIPE})
    assert runs["configs/b.yaml"].plan.parallel.world == 8
    assert runs["configs/b.yaml"].level(f.parallel.world) is Level.ASSUMED
    assert runs["configs/b.yaml"].level(f.batch.micro) is Level.STATED
    assert runs["configs/a.yaml"].level(f.parallel.world) <= Level.DEFAULT


HEAD = "# Config for {nodes} nodes of {gpus} H100s with {engine}\n"


def test_the_comment_at_the_head_says_what_machine_a_config_is_for() -> None:
    config = HEAD.format(nodes=16, gpus=8, engine="FSDP1") + RECIPE
    alone = run_of({"configs/b.yaml": config})
    assert (alone.plan.parallel.backend, alone.plan.parallel.world) == ("fsdp1", 128)
    assert alone.level(f.parallel.world) is Level.ASSUMED
    files = {"a.sh": LINE.format(config="configs/a.yaml"), "configs/a.yaml": RECIPE}
    beside = _runs({**files, "configs/b.yaml": config})["configs/b.yaml"]
    assert (beside.plan.parallel.backend, beside.plan.parallel.world) == ("fsdp1", 128)


def test_more_processes_than_cards_by_a_comment_alone_are_remarked_on() -> None:
    config = HEAD.format(nodes=1, gpus=8, engine="FSDP1") + RECIPE
    report = report_of({"configs/b.yaml": config}, hardware="4xA100-80GB")
    (found,) = [each for each in report.diagnoses if each.rule.code == "OOM706"]
    assert found.severity is Severity.INFO


@pytest.mark.parametrize(
    ("said", "world"), [("2 8xH100 nodes", 16), ("4 8xA100-80GB nodes", 32), ("8xH100", 8)]
)
def test_the_comment_counts_nodes_by_what_each_of_them_has(said: str, world: int) -> None:
    run = run_of({"configs/b.yaml": f"# Only tested on {said}, FSDP1.\n{RECIPE}"}, "configs/b.yaml")
    assert run.plan.parallel.world == world


@pytest.mark.parametrize(
    ("engine", "level"), [("DeepSpeed ZeRO-3", Level.DEFAULT), ("FSDP1", Level.UNREAD)]
)
def test_a_documented_launch_that_the_comment_contradicts_is_left_open(
    engine: str, level: Level
) -> None:
    files = {
        "README.md": _shown(LINE.format(config="configs/a.yaml")),
        "accelerate/zero3.yaml": ZERO3,
        "configs/a.yaml": HEAD.format(nodes=1, gpus=8, engine=engine) + RECIPE,
    }
    run = run_of(files, "configs/a.yaml")
    assert run.plan.parallel.zero.stage == 3
    assert run.level(f.parallel.zero.stage) is level


TRAIN = """\
#!/bin/bash
#SBATCH --gres=gpu:8
MODEL=$1
NODES=$SLURM_NNODES
CONFIG=recipes/$MODEL/sft/config_$2.yaml
if grep -qE '^\\s*use_vllm:\\s*true' "$CONFIG"; then
    NODES=$((NODES - 1))
fi
LAUNCHER="accelerate launch --config_file accelerate/$3.yaml --num_machines $NODES \\
  --num_processes $((NODES * 8)) "
srun --nodes=$NODES bash -c "$LAUNCHER src/sft.py --config $CONFIG"
"""


def test_a_readme_shows_with_which_arguments_a_script_starts_a_recipe() -> None:
    lines = (
        "# 7B\nsbatch --nodes=2 slurm/train.slurm Big demo zero3\n"
        "sbatch slurm/train.slurm {model} {suffix} {accelerator}\n"
    )
    files = {
        "recipes/README.md": _shown(lines),
        "slurm/train.slurm": TRAIN,
        "accelerate/zero3.yaml": ZERO3,
        "recipes/Big/sft/config_demo.yaml": RECIPE,
        "recipes/Small/sft/config_demo.yaml": RECIPE,
    }
    run = run_of(files, "recipes/Big/sft/config_demo.yaml")
    assert (run.plan.parallel.zero.stage, run.plan.parallel.world) == (3, 16)
    assert run.level(f.parallel.world) <= Level.DEFAULT
    vllm = {"recipes/Big/sft/config_demo.yaml": RECIPE + "use_vllm: true\n"}
    with_engine = run_of({**files, **vllm}, "recipes/Big/sft/config_demo.yaml")
    assert with_engine.plan.parallel.world == 8
    beside = run_of(files, "recipes/Small/sft/config_demo.yaml")
    assert (beside.plan.parallel.zero.stage, beside.plan.parallel.world) == (3, 16)
    assert beside.level(f.parallel.world) is Level.ASSUMED
