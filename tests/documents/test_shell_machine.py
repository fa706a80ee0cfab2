"""What a script asks its machine for, and what a machine answers."""

from __future__ import annotations

import pytest

from oomlint.documents.base import UNKNOWN
from oomlint.documents.shell.document import parse_shell
from oomlint.documents.shell.machine import answered
from oomlint.documents.shell.nodes import ShellScalar
from oomlint.documents.text import Source


def _asked(script: str) -> ShellScalar:
    document = parse_shell(Source("run.sh", script))
    (value,) = [c.flags.entries["x"].value for c in document.commands if "x" in c.flags.entries]
    assert isinstance(value, ShellScalar)
    return value


@pytest.mark.parametrize(
    ("script", "question"),
    [
        ("python t.py --x $(nvidia-smi --list-gpus | wc -l)", "gpus"),
        ("N=`nvidia-smi -L | wc -l`\npython t.py --x=${N}", "gpus"),
        ('python t.py --x "$(nvidia-smi -L | grep -c GPU)"', "gpus"),
        ("python t.py --x $(nvidia-smi --query-gpu=name --format=csv,noheader | wc -l)", "gpus"),
        ("python t.py --x $(nvidia-smi --query-gpu=name --format=csv | wc -l)", "( gpus + 1 )"),
        ("python t.py --x $(nvidia-smi --query-gpu=count --format=csv,noheader | head -n 1)", "gpus"),
        ("N=$(python3 -c 'import torch; print(torch.cuda.device_count())')\npython t.py --x $N", "visible_gpus"),
        ('python t.py --x $(scontrol show hostnames "$SLURM_JOB_NODELIST" | wc -l)', "nodes"),
        ("python t.py --x $SLURM_NNODES", "nodes"),
        ("python t.py --x ${SLURM_GPUS_ON_NODE}", "gpus"),
        ("N=$(nvidia-smi -L | wc -l)\npython t.py --x $((64 / (2 * N)))", "( 64 / ( 2 * gpus ) )"),
        ("#SBATCH --nodes=2\npython t.py --x ${SLURM_NNODES:-1}", "nodes"),
    ],
)  # fmt: skip
def test_questions(script: str, question: str) -> None:
    value = _asked(script)
    assert value.value is UNKNOWN
    assert value.locked
    assert value.asks == question


@pytest.mark.parametrize(
    "script",
    [
        "python t.py --x $(nvidia-smi)",
        "python t.py --x $(nvidia-smi -i 0 -L | wc -l)",
        "python t.py --x $(python -c 'import torch; print(torch.cuda.device_count() // 2)')",
        "python t.py --x gpu$(nvidia-smi -L | wc -l)",
        "python t.py --x $GPUS",
        "python t.py --x $((GPUS * 2))",
    ],
)
def test_what_is_no_question(script: str) -> None:
    value = _asked(script)
    assert value.value is UNKNOWN
    assert not value.asks


def test_a_default_counts_where_no_scheduler_is_asked() -> None:
    assert _asked("python t.py --x ${SLURM_NNODES:-1}").value == "1"


def test_answers() -> None:
    machine = {"gpus": 8, "nodes": 2, "tasks": None}
    assert answered("( 64 / ( 2 * gpus ) )", machine) == 4
    assert answered("( nodes * gpus )", machine) == 16
    assert answered("tasks", machine) is None
    assert answered("( 1 / ( gpus - 8 ) )", machine) is None
