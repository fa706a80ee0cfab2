"""A command whose program the project no longer has starts nothing: one error says so, all else is a remark."""

from pathlib import Path

import pytest
from tests.linked import report_of

from oomlint.files.workspace import Workspace
from oomlint.linting.engine import Options, lint
from oomlint.linting.rule import Severity

OPTIONS = (
    "--model_name_or_path meta-llama/Llama-3.1-8B --do_train --bf16 --output_dir out"
    " --per_device_train_batch_size 64 --dataset_name a/b\n"
)
PROGRAM = "from transformers import Trainer\n"


@pytest.mark.parametrize(
    ("command", "program", "is_absent"),
    [
        ("torchrun --nproc_per_node 8 old/train/run.py", "new/train/run.py", True),
        ("torchrun --nproc_per_node 8 -m old.train.run", "new/train/run.py", True),
        ("torchrun --nproc_per_node 8 src/train/run.py", "src/train/other.py", True),
        ("torchrun --nproc_per_node 8 src/run.py", "src/other.py", True),
        ("torchrun --nproc_per_node 8 src/run.py", "deep/src/other.py", False),
        ("torchrun --nproc_per_node 8 -m src.run", "src/run/__main__.py", False),
        ("torchrun --nproc_per_node 8 project/run.py", "run.py", False),
        ("torchrun --nproc_per_node 8 train/run.py", "deep/train/run.py", False),
        ("torchrun --nproc_per_node 8 old/run.py", "new/run.py", False),
        ("torchrun --nproc_per_node 8 run.py", "other.py", False),
        ("torchrun --nproc_per_node 8 /opt/old/train/run.py", "new/train/run.py", False),
        ("cd $CODE && torchrun --nproc_per_node 8 old/train/run.py", "new/train/run.py", False),
    ],
)
def test_program_that_is_not_here(command: str, program: str, is_absent: bool) -> None:
    files = {"train.sh": f"{command} {OPTIONS}", program: PROGRAM}
    report = report_of(files, "train.sh", hardware="8xA100-80GB")
    told = [d for d in report.diagnoses if d.severity > Severity.INFO]
    absent = [d for d in told if d.finding.message.startswith("the program")]
    assert [d.rule.code for d in absent] == (["OOM902"] if is_absent else [])
    assert not is_absent or told == absent
    (run,) = report.runs
    assert any(each.is_program for each in run.missing) is is_absent


def test_it_is_told_from_wherever_the_project_is_checked(tmp_path: Path) -> None:
    root = tmp_path / "code"
    for name, text in {
        "train.sh": f"torchrun src/run.py {OPTIONS}",
        "src/other.py": PROGRAM,
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / ".git").mkdir()
    for folder in (root, tmp_path, root / "src"):
        workspace = Workspace(folder)
        report = lint(workspace, [workspace.name(root / "train.sh")], Options())
        assert "OOM902" in {d.rule.code for d in report.diagnoses if d.severity > Severity.INFO}


def test_what_the_run_would_need_is_said_beside() -> None:
    files = {"train.sh": f"torchrun old/train/run.py {OPTIONS}", "new/train/run.py": PROGRAM}
    report = report_of(files, "train.sh", hardware="8xA100-80GB")
    why = "old/train/run.py, which the command starts, is not here: nothing is loaded"
    remarks = [d for d in report.diagnoses if d.severity is Severity.INFO]
    assert any(why in d.finding.details for d in remarks)


_APART = "accelerate launch --config_file configs/fsdp.yaml tools/train.py"
_LEFT_OUT = "torchrun --nproc_per_node 8 sft.py --config configs/sft.yaml"


@pytest.mark.parametrize(
    ("command", "more", "is_absent"),
    [
        (_APART, {"old/tools/train.py": PROGRAM}, True),
        (_APART, {"old/tools/train.py": PROGRAM, "old/configs/fsdp.yaml": "a: 1\n"}, False),
        (_APART.replace("fsdp", "other"), {"old/tools/train.py": PROGRAM}, False),
        (_LEFT_OUT, {"dpo.py": PROGRAM}, True),
        (_LEFT_OUT, {"old/dpo.py": PROGRAM}, False),
        (_LEFT_OUT.replace("configs/", "others/"), {"dpo.py": PROGRAM}, False),
        (f"cp ../parts/sft.py . && {_LEFT_OUT}", {"dpo.py": PROGRAM}, False),
        (_LEFT_OUT, {"dpo.py": PROGRAM, "README.md": "Fetch https://a.b/c/sft.py first\n"}, False),
        (_LEFT_OUT, {"dpo.py": PROGRAM, "README.md": "`git clone https://a.b/me/ours`\n"}, True),
        (
            _LEFT_OUT,
            {
                "dpo.py": PROGRAM,
                "README.md": "git clone https://a.b/me/ours\ngit clone https://a.b/c/theirs.git\n",
            },
            False,
        ),
    ],
)
def test_program_that_is_not_where_the_command_runs_by_its_files(
    command: str, more: dict[str, str], is_absent: bool
) -> None:
    configs = {"configs/fsdp.yaml": "distributed_type: FSDP\n", "configs/sft.yaml": "a: 1\n"}
    report = report_of(
        {"train.sh": f"{command} {OPTIONS}", **configs, **more}, "train.sh", hardware="8xA100-80GB"
    )
    told = [d for d in report.diagnoses if d.severity > Severity.INFO]
    absent = [d for d in told if d.finding.message.startswith("the program")]
    assert bool(absent) is is_absent
    assert not is_absent or told == absent


@pytest.mark.parametrize(
    ("readme", "severity"),
    [
        ("Run `bash scripts/new/train.sh`.\n", Severity.INFO),
        ("See [train.sh](scripts/new/train.sh).\n", Severity.INFO),
        ("Run `bash scripts/new/train.sh`, or scripts/old.sh as before.\n", Severity.ERROR),
        ("Trains a model.\n", Severity.ERROR),
    ],
)
def test_a_script_that_is_left_of_another_project_is_missed_by_nobody(
    readme: str, severity: Severity
) -> None:
    """The guides of a project that was made of another's name its own scripts, and nothing names the other's."""
    files = {
        "README.md": readme,
        "scripts/old.sh": f"deepspeed old/train/run.py {OPTIONS}",
        "scripts/new/train.sh": f"deepspeed new/train/run.py {OPTIONS}",
        "new/train/run.py": PROGRAM,
    }
    report = report_of(files, "scripts/old.sh", "scripts/new/train.sh", hardware="8xA100-80GB")
    found = [each for each in report.diagnoses if each.finding.location.path == "scripts/old.sh"]
    (absent,) = (each for each in found if each.rule.code == "OOM902")
    assert absent.severity is severity
    assert all(each is absent or each.severity is Severity.INFO for each in found)
