"""A command that is sure not to find what it opens first starts nothing: one error says so, all else is a remark."""

from pathlib import Path

import pytest
from tests.linked import report_of

from oomlint.files.workspace import Workspace
from oomlint.linting.engine import Options, lint
from oomlint.linting.rule import Severity

OPTIONS = (
    "--model_name_or_path meta-llama/Llama-3.1-8B --bf16 --output_dir out"
    " --per_device_train_batch_size 64\n"
)
PROGRAM = """\
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B")
Trainer(model=model, args=args, train_dataset=data).train()
"""
JSON = '{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": "auto"}\n'
YAML = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_processes: 8\n"
TRAINER = "torchrun --nproc_per_node 8 {} --deepspeed {} " + OPTIONS
LAUNCHER = "accelerate launch --config_file {} {} " + OPTIONS
OWN = 'cd "$(dirname "$0")"\n'


def _told(files: dict[str, str], path: str) -> list[tuple[str, Severity]]:
    report = report_of(files, path, hardware="8xA100-80GB")
    return [(d.rule.code, d.severity) for d in report.diagnoses if d.severity > Severity.INFO]


@pytest.mark.parametrize(
    ("path", "script", "more"),
    [
        # Where the one is found the other is not.
        ("scripts/run.sh", TRAINER.format("../src/train.py", "./configs/ds.json"), {"configs/ds.json": JSON}),
        ("run.sh", TRAINER.format("src/train.py", "configs/gone.json"), {"configs/ds.json": JSON}),
        ("run.sh", LAUNCHER.format("configs/gone.yaml", "src/train.py"), {"configs/ddp.yaml": YAML}),
        ("run.sh", LAUNCHER.format("ddp.yaml", "src/train.py"), {"configs/ddp.yaml": YAML}),
        # The script says where it runs.
        ("scripts/run.sh", OWN + TRAINER.format("../src/train.py", "ds.json"), {"ds.json": JSON}),
        ("scripts/run.sh", OWN + "cd ..\n" + TRAINER.format("src/train.py", "ds.json"), {"scripts/ds.json": JSON}),
        ("scripts/run.sh", OWN + TRAINER.format("src/train.py", "ds.json"), {"scripts/ds.json": JSON}),
    ],
)  # fmt: skip
def test_what_a_command_opens_first_is_not_where_it_runs(
    path: str, script: str, more: dict[str, str]
) -> None:
    files = {path: script, "src/train.py": PROGRAM, **more}
    assert _told(files, path) == [("OOM902", Severity.ERROR)]


SETTINGS = "model_name_or_path: meta-llama/Llama-3.1-8B\noutput_dir: out\nper_device_train_batch_size: 64\n"
TRL = """\
from trl import ModelConfig, SFTConfig, SFTTrainer, TrlParser
args, model_args = TrlParser((SFTConfig, ModelConfig)).parse_args_and_config()
SFTTrainer(model=model_args.model_name_or_path, args=args, train_dataset=data).train()
"""


@pytest.mark.parametrize(
    ("config", "is_missing"), [("configs/sft.yaml", True), ("../configs/sft.yaml", False)]
)
def test_the_settings_that_a_parser_of_trl_opens(config: str, is_missing: bool) -> None:
    script = f"torchrun --nproc_per_node 8 ../src/sft.py --config {config} --bf16 true\n"
    files = {"scripts/run.sh": script, "src/sft.py": TRL, "configs/sft.yaml": SETTINGS}
    told = [code for code, severity in _told(files, "scripts/run.sh") if severity is Severity.ERROR]
    assert ("OOM902" in told) is is_missing


@pytest.mark.parametrize(
    ("path", "script", "more"),
    [
        ("scripts/run.sh", TRAINER.format("../src/train.py", "../configs/ds.json"), {"configs/ds.json": JSON}),
        ("scripts/run.sh", OWN + "cd ..\n" + TRAINER.format("src/train.py", "ds.json"), {"ds.json": JSON}),
        # From another folder, which has a program of that name too, both are found.
        (
            "run.sh",
            TRAINER.format("src/train.py", "ds.json"),
            {"old/src/train.py": PROGRAM, "old/ds.json": JSON},
        ),
        ("run.sh", "cd $CODE\n" + TRAINER.format("src/train.py", "gone.json"), {}),
        ("run.sh", "cp -r ../shared configs\n" + TRAINER.format("src/train.py", "configs/gone.json"), {}),
        ("run.sh", "echo {} > gone.json\n" + TRAINER.format("src/train.py", "gone.json"), {}),
        ("run.sh", TRAINER.format("src/train.py", "${DS:-gone.json}"), {}),
        ("run.sh", TRAINER.format("src/train.py", "gone.json"), {"README.md": "Copy: cp a/b.json gone.json\n"}),
        ("run.sh", TRAINER.format("src/train.py", "gone.json"), {"make.py": 'open("gone.json", "w")\n'}),
        (
            "run.sh",
            TRAINER.format("src/train.py", "gone.json"),
            {"make.py": 'with open(os.path.join(folder, "gone.json"), "w") as file:\n    file.write(text)\n'},
        ),
        (
            "run.sh",
            TRAINER.format("src/train.py", "gone.json"),
            {"make.py": 'open(folder + "/gone.json", mode="w").write(text)\n'},
        ),
        ("run.sh", LAUNCHER.format("gone.yaml", "src/train.py"), {"requirements.txt": "accelerate==0.16.0\n"}),
        # Slurm runs a copy of the script.
        (
            "scripts/run.sh",
            "#SBATCH --nodes=1\n" + OWN + TRAINER.format("src/train.py", "ds.json"),
            {"ds.json": JSON},
        ),
    ],
)  # fmt: skip
def test_what_may_be_there_when_it_is_opened(path: str, script: str, more: dict[str, str]) -> None:
    files = {path: script, "src/train.py": PROGRAM, **more}
    assert ("OOM902", Severity.ERROR) not in _told(files, path)


def test_a_program_that_is_not_in_the_folder_of_its_script() -> None:
    options = f"--config configs/a.yaml {OPTIONS}"
    files = {"scripts/run.sh": f"{OWN}torchrun train.py {options}", "train.py": PROGRAM}
    report = report_of(files, "scripts/run.sh", hardware="8xA100-80GB")
    (found,) = [d for d in report.diagnoses if d.severity > Severity.INFO]
    assert found.finding.message == "the program train.py was not found"


def test_a_program_that_opens_its_config_in_a_folder_of_its_own() -> None:
    """Nothing tells that it is the Trainer's argument which the option names."""
    program = PROGRAM.replace(
        "(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()",
        "parser = ArgumentParser()\nparser.add_argument('--deepspeed')\nparser.parse_args()\n"
        "args = TrainingArguments('out', deepspeed='configs/ds.json')",
    )
    script = TRAINER.format("src/train.py", "ds.json")
    files = {"run.sh": script, "src/train.py": program, "configs/ds.json": JSON}
    assert ("OOM902", Severity.ERROR) not in _told(files, "run.sh")


@pytest.mark.parametrize("is_repository", [True, False])
@pytest.mark.parametrize(
    ("left_out", "ends"), [("*.json\n", False), ("*.log\n", True), ("*.json\n!gone.json\n", True)]
)
def test_what_git_leaves_out_may_be_there(
    tmp_path: Path, left_out: str, ends: bool, is_repository: bool
) -> None:
    """Of an archive of a repository as of a checkout: its author's folder has files that neither has."""
    script = TRAINER.format("src/train.py", "configs/gone.json")
    for name, text in {".gitignore": left_out, "run.sh": script, "src/train.py": PROGRAM}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    if is_repository:
        (tmp_path / ".git").mkdir()
    report = lint(Workspace(tmp_path), ["run.sh"], Options())
    found = [d for d in report.diagnoses if d.rule.code == "OOM902"]
    assert [d.severity for d in found] == [Severity.ERROR if ends else Severity.INFO]


TUNE = "tune run full_finetune_distributed --config {}\n"


def _missing(files: dict[str, str], path: str) -> list[tuple[str, Severity, tuple[str, ...]]]:
    report = report_of(files, path, hardware="8xA100-80GB")
    found = [d for d in report.diagnoses if d.rule.code == "OOM902"]
    return [(d.finding.message, d.severity, d.finding.details) for d in found]


@pytest.mark.parametrize(
    ("template", "severity"),
    [
        ("scripts/8B.yaml.tpl", Severity.INFO),
        ("scripts/8B.example.yaml", Severity.INFO),
        ("other/8B.yaml.tpl", Severity.WARNING),
    ],
)
def test_a_file_of_which_the_template_is_here_is_made_before_it_is_used(
    template: str, severity: Severity
) -> None:
    files = {"scripts/run.sh": TUNE.format("./8B.yaml"), template: "epochs: __EPOCHS__\n"}
    ((message, told, details),) = _missing(files, "scripts/run.sh")
    assert (message, told) == ("the file 8B.yaml was not found", severity)
    is_said = f"it is made of {template}, which is here" in details
    assert is_said == (severity == Severity.INFO)


@pytest.mark.parametrize(
    ("folder", "severity"), [("torchtitan", Severity.INFO), ("configs", Severity.WARNING)]
)
def test_what_a_command_opens_in_a_folder_that_is_cloned_first_is_not_missing(
    folder: str, severity: Severity
) -> None:
    script = f'HERE=$(cd "$(dirname "$0")" && pwd)\ncd "$HERE/{folder}"\n' + TUNE.format("8B.yaml")
    files = {"run.sh": script, "configs/other.yaml": "epochs: 1\n"}
    assert [told for _, told, _ in _missing(files, "run.sh")] == [severity]
