"""Runs of which all of a file, or what a program makes of it, is not known: they get remarks that say why."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.linked import link, report_of

from oomlint.documents import SUFFIXES
from oomlint.files.disk import walk
from oomlint.files.workspace import Workspace
from oomlint.hardware import parse_hardware
from oomlint.judgement import judgement_of
from oomlint.judgement.forecast import forecast_of
from oomlint.judgement.words import left_open
from oomlint.linting.engine import Options, lint
from oomlint.linting.rule import Severity
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f

_TRAINS = """\
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")
Trainer(model=model, args=args, train_dataset=data).train()
"""


def test_a_command_that_ends_before_its_last_options_is_not_judged_without_them(
    tmp_path: Path,
) -> None:
    head = (
        "torchrun --nproc_per_node 8 train.py --output_dir out --num_train_epochs 1 \\\n"
        " --learning_rate 1e-5 --per_device_train_batch_size 64"
    )
    (tmp_path / "train.py").write_text(_TRAINS)
    severities = {}
    for end in (" \\\n", " \\ \n"):
        (tmp_path / "run.sh").write_text(f"{head}{end} --bf16 --deepspeed ds.json\n")
        options = Options(hardware=parse_hardware("8xA100-80GB"))
        report = lint(Workspace(tmp_path), ["run.sh"], options)
        severities[end] = {d.rule.code: d.severity for d in report.diagnoses}
    cut = severities[" \\ \n"]
    assert cut.pop("OOM703") is Severity.ERROR
    assert all(severity is Severity.INFO for severity in cut.values())
    (run,) = report.runs
    assert judgement_of(run).verdict == "unknown"
    assert "the command ends in run.sh:2 before its last options" in left_open(forecast_of(run))


def test_what_stands_ahead_of_the_program_is_read_of_such_a_command_all_the_same(
    tmp_path: Path,
) -> None:
    (tmp_path / "train.py").write_text(_TRAINS)
    head = (
        "deepspeed --include localhost:0,1,2,3,4,5,6,7 train.py --output_dir out"
        " --num_train_epochs 1 --learning_rate 1e-5 --per_device_train_batch_size 64"
    )
    (tmp_path / "run.sh").write_text(f"{head} \\ \n --deepspeed ds.json\n")
    options = Options(hardware=parse_hardware("4xA100-80GB"))
    report = lint(Workspace(tmp_path), ["run.sh"], options)
    severities = {d.rule.code: d.severity for d in report.diagnoses}
    assert severities.pop("OOM703") is Severity.ERROR
    assert severities.pop("OOM706") is Severity.ERROR
    assert all(severity is Severity.INFO for severity in severities.values())


def test_a_recipe_with_keys_for_a_program_of_the_projects_own_is_that_programs(
    tmp_path: Path,
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "own.py").write_text(
        "from dataclasses import dataclass\nfrom trl import SFTConfig, TrlParser\n\n\n@dataclass\n"
        "class Own:\n    sparsity: float = 0.5\n\n\nTrlParser((Own, SFTConfig)).parse_args_and_config()\n"
    )
    recipe = (
        "model_name_or_path: Qwen/Qwen2.5-7B\nlearning_rate: 1.0e-5\noutput_dir: out\nmax_length: 1024\n"
        "per_device_train_batch_size: 64\npacking: true\ndataset_name: a/b\n"
    )
    levels = []
    for more in ("", "sparsity: 0.1\n"):
        (tmp_path / "recipe.yaml").write_text(recipe + more)
        options = Options(hardware=parse_hardware("1xRTX-4090-24GB"))
        (run,) = lint(Workspace(tmp_path), ["recipe.yaml"], options).runs
        levels.append(run.level(f.trainable.method))
    assert levels[0] < Level.UNREAD
    assert levels[1] is Level.UNREAD


def test_the_ranks_of_a_program_that_is_handed_a_deepspeed_config_may_be_stages() -> None:
    files = {
        "run.sh": "deepspeed --num_gpus 2 pipe.py --deepspeed_config ds.json\n",
        "ds.json": '{"train_batch_size": 1024, "train_micro_batch_size_per_gpu": 128, '
        '"gradient_accumulation_steps": 8}\n',
    }
    (run,) = link(files).runs
    assert run.level(f.parallel.dp) is Level.UNREAD


def test_what_jupyter_keeps_of_edits_and_what_lies_above_a_repository_are_passed_over(
    tmp_path: Path,
) -> None:
    kept = tmp_path / "repo" / ".ipynb_checkpoints"
    kept.mkdir(parents=True)
    (tmp_path / "repo" / ".git").mkdir()
    (kept / "train-checkpoint.py").write_text(_TRAINS)
    (tmp_path / "repo" / "train.py").write_text(_TRAINS)
    (tmp_path / "above.json").write_text("{}")
    assert [path.name for path in map(Path, walk(tmp_path / "repo", SUFFIXES))] == ["train.py"]
    assert Workspace(tmp_path / "repo").resolve("above.json", "train.py") is None


def test_a_stage_of_the_projects_own_copy_leaves_open_what_it_trains() -> None:
    line = (
        "llamafactory-cli train --stage {stage} --do_train True --finetuning_type full --output_dir out "
        "--model_name_or_path Qwen/Qwen2.5-7B --dataset a --template qwen --bf16 True\n"
    )
    levels = {
        stage: link({"run.sh": line.format(stage=stage)}).runs[0].level(f.trainable.method)
        for stage in ("sft", "calibration")
    }
    assert levels["sft"] < Level.UNREAD
    assert levels["calibration"] is Level.UNREAD


def test_a_value_that_a_program_of_the_project_declares_is_no_wrong_one_of_a_framework(
    tmp_path: Path,
) -> None:
    (tmp_path / ".git").mkdir()
    config = (
        "model_name_or_path: Qwen/Qwen2.5-7B\nstage: 2\nfinetuning_type: lora\ndataset: a\n"
        "template: qwen\ncutoff_len: 1024\noutput_dir: out\nper_device_train_batch_size: 1\n"
    )
    program = (
        "from dataclasses import dataclass\nfrom typing import Literal\n"
        "from transformers import HfArgumentParser, TrainingArguments\n\n\n@dataclass\n"
        "class Own:\n    {field}\n\n\nHfArgumentParser((Own, TrainingArguments)).parse_dict({{}})\n"
    )
    (tmp_path / "config.yaml").write_text(config)
    refused = []
    for field in ("rate: float = 0.5", "stage: Literal[1, 2] = 1"):
        (tmp_path / "own.py").write_text(program.format(field=field))
        refused.append(
            "invalid-value"
            in {
                d.rule.name for d in lint(Workspace(tmp_path), ["config.yaml"], Options()).diagnoses
            }
        )
    assert refused == [True, False]


def test_what_a_doubted_config_leaves_unsaid_is_not_at_the_frameworks_defaults(
    tmp_path: Path,
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "own.py").write_text(
        "import yaml\n\ncfg = yaml.safe_load(open('configs/sft.yaml'))\nprint(cfg['sequence_length'])\n"
    )
    (tmp_path / "configs").mkdir()
    config = (
        "base_model: Qwen/Qwen2.5-7B\nmicro_batch_size: 1\nlearning_rate: 1.0e-4\n"
        "datasets:\n  - path: a/b\n"
    )
    levels = []
    for more in ("", "sequence_length: 2048\n"):
        (tmp_path / "configs/sft.yaml").write_text(config + more)
        (run,) = lint(Workspace(tmp_path), ["configs/sft.yaml"], Options()).runs
        levels.append(run.level(f.trainable.method))
    assert levels[0] < Level.UNREAD
    assert levels[1] is Level.UNREAD


_PROGRAM = "from llamafactory.train.tuner import run_exp\nrun_exp()\n"


@pytest.mark.parametrize(
    ("command", "more", "severity"),
    [
        ("torchrun src/train.py --own_layers 4", {}, Severity.INFO),
        ("torchrun src/train.py --own_layers 4", {"src/train.py": _PROGRAM}, Severity.ERROR),
        ("llamafactory-cli train --own_layers 4", {}, Severity.ERROR),
        ("torchrun src/train.py --cut_off_len 512", {}, Severity.ERROR),  # one of its own, misspelt
    ],
)
def test_a_program_that_is_not_here_and_takes_other_options_is_a_changed_copy(
    command: str, more: dict[str, str], severity: Severity
) -> None:
    options = (
        " --stage sft --do_train --model_name_or_path Qwen/Qwen2.5-7B --template qwen --dataset a"
    )
    options += " --finetuning_type full --output_dir out --per_device_train_batch_size 8 --bf16"
    report = report_of({"train.sh": command + options + "\n", **more}, hardware="1xRTX-4090-24GB")
    strays = [d for d in report.diagnoses if d.rule.code == "OOM801"]
    assert [d.severity for d in strays] == [severity]
    # What the run needs is as little known as what the program makes of that option.
    assert (max(d.severity for d in report.diagnoses) is Severity.INFO) is (
        severity is Severity.INFO
    )
    if severity is Severity.INFO:
        assert "src/train.py is not here, and is a changed" in strays[0].finding.details[-1]


def test_options_of_earlier_releases_make_no_changed_copy() -> None:
    """LLaMA-Factory had ``dev_ratio`` until 0.1.6, and ``src/train_bash.py`` lay in its checkout."""
    line = (
        "torchrun src/train_bash.py --stage sft --do_train --model_name_or_path huggyllama/llama-7b --dataset a --dev_ratio 0.01"
        " --finetuning_type full --output_dir out --per_device_train_batch_size 8 --bf16\n"
    )
    report = report_of({"train.sh": line}, hardware="1xRTX-4090-24GB")
    assert max(d.severity for d in report.diagnoses if d.rule.code == "OOM100") is Severity.ERROR
