"""What a Python program starts in a process is how that runs, as a line of a README is."""

from __future__ import annotations

import pytest
from tests.configs import SHORT_AXOLOTL
from tests.linked import run_of

from oomlint.documents.python.processes import starts_in_processes
from oomlint.documents.text import Source
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f

_TRAINS = """\
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
from data import make_data
(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B")
Trainer(model=model, args=args, **make_data()).train()
"""


def _commands(code: str) -> str:
    document = starts_in_processes(Source("launch.py", f"import os, subprocess, sys\n{code}\n"))
    return "" if document is None else document.excerpt.text.strip()


@pytest.mark.parametrize(
    ("code", "command"),
    [
        ('os.system("deepspeed train.py --x 1")', "deepspeed train.py --x 1"),
        ('subprocess.run(["torchrun", "train.py", "--x", 1])', "torchrun train.py --x 1"),
        ('subprocess.Popen(["torchrun", str(n), *more])', 'torchrun "${n}" "${more[@]}"'),
        ("subprocess.call([sys.executable, f'{folder}/train.py'])", 'python "${folder}/train.py"'),
        ('os.system("torchrun " + script)', "torchrun ${script}"),
        ('line = f"torchrun --nnodes {n} a.py"\nos.system(line)', "torchrun --nnodes ${n} a.py"),
        ('os.system("X=1 torchrun a.py")', "X=1 torchrun a.py"),
        ('os.system("ls")', ""),
        ('app.run("torchrun a.py")', ""),
        ('line = ["torchrun"]\nline.append("a.py")\nsubprocess.run(line)', ""),
        ("subprocess.run(", ""),
    ],
)
def test_a_process_is_a_command(code: str, command: str) -> None:
    assert _commands(code) == command


def test_commands_of_a_program_cannot_be_edited() -> None:
    document = starts_in_processes(
        Source("launch.py", 'import os\nos.system("torchrun a.py --x 1")')
    )
    assert document is not None
    assert all(part.locked for part in document.excerpt.parts)


def test_a_script_runs_as_a_program_starts_it() -> None:
    launch = (
        "import subprocess\n"
        "def start(out):\n"
        '    subprocess.run(["torchrun", "--nproc_per_node", "2", "train.py", "--output_dir", out,\n'
        '        "--per_device_train_batch_size", "4", "--bf16", "True"], check=True)\n'
    )
    run = run_of({"train.py": _TRAINS, "launch.py": launch}, "train.py")
    assert (run.plan.parallel.world, run.plan.batch.micro) == (2, 4)
    assert run.cells.is_unread(f.save.dir)
    assert run.level(f.batch.micro) is Level.FACT


def test_a_recipe_runs_as_a_program_starts_it() -> None:
    launch = (
        'import os\nos.system("accelerate launch --num_processes 4 -m axolotl.cli.train a.yml")\n'
    )
    assert run_of({"a.yml": SHORT_AXOLOTL, "launch.py": launch}, "a.yml").plan.parallel.world == 4
    other = launch.replace("a.yml", "b.yml")
    assert run_of({"a.yml": SHORT_AXOLOTL, "launch.py": other}, "a.yml").plan.parallel.world is None
