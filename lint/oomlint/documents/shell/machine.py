"""What a script asks the machine that it runs on: how many GPUs there are, how many nodes.

Nothing of it can be known from the text. But the answer to ``$(nvidia-smi -L | wc -l)`` is the
same as to every such question, and whoever knows the machine knows it: see :func:`answered`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping as MappingABC

from oomlint.documents.shell.values import arithmetic

GPUS = "gpus"
"""GPUs of a node."""
VISIBLE = "visible_gpus"
"""Those of them that ``CUDA_VISIBLE_DEVICES`` leaves: what CUDA counts."""
NODES = "nodes"
TASKS = "tasks"
"""Processes of a Slurm job, over all nodes."""
TASKS_PER_NODE = "tasks_per_node"

# srun(1) and sbatch(1) of Slurm 24.05, "OUTPUT ENVIRONMENT VARIABLES", and the question that each
# answers.
SCHEDULER_VARIABLES = {
    "SLURM_NNODES": NODES,
    "SLURM_JOB_NUM_NODES": NODES,
    "SLURM_GPUS_ON_NODE": GPUS,
    "SLURM_GPUS_PER_NODE": GPUS,
    "SLURM_GPUS": f"( {NODES} * {GPUS} )",
    "SLURM_NTASKS": TASKS,
    "SLURM_NPROCS": TASKS,
    "SLURM_NTASKS_PER_NODE": TASKS_PER_NODE,
}

_QUIET = r"(?:\s*2>\s*/dev/null)?"
_LINES = r"\s*\|\s*(?:wc\s+(?:-l|--lines)|grep\s+-c\s+\S+)\s*"
_ONE_LINE = r"\s*\|\s*(?:head\s+-n?\s*1|sort\s+-u|uniq)\s*"
_IMPORT = r"(?:import torch|from torch import cuda)"
_COUNT = r"(?:torch\.)?cuda\.device_count\(\)"
_TRIMMED = r"(?:\|\s*(?:tr\s+-d\s+(?:' '|\" \"|'\[:space:\]')|xargs)\s*)?"
_QUESTIONS = (
    # nvidia-smi(1): a line for each GPU, whatever CUDA_VISIBLE_DEVICES says.
    (rf"nvidia-smi\s+(?:-L|--list-gpus){_QUIET}{_LINES}{_TRIMMED}", GPUS),
    (rf"nvidia-smi\s+--query-gpu=(?P<what>[\w.,]+)\s+--format=(?P<form>[\w,]+){_QUIET}{_LINES}", GPUS),
    (
        rf"nvidia-smi\s+--query-gpu=count\s+--format=[\w,]*noheader[\w,]*{_QUIET}{_ONE_LINE}",
        GPUS,
    ),
    (r"ls\s+(?:-\w+\s+)?(?:/dev/nvidia\[0-9\]\*?|/proc/driver/nvidia/gpus/?\*?)" + _LINES, GPUS),
    (
        rf"python[\d.]*\s+-c\s+(['\"])\s*{_IMPORT}\s*;\s*print\(\s*{_COUNT}\s*\)\s*;?\s*\1\s*",
        VISIBLE,
    ),
    (r"scontrol\s+show\s+host(?:name)?s?\s+\S+" + _LINES, NODES),
)  # fmt: skip
_PATTERNS = tuple((re.compile(pattern), answer) for pattern, answer in _QUESTIONS)
_SYMBOL = re.compile(r"[a-z_]+")


def asked_by_variable(name: str) -> str:
    """The question that a variable of the scheduler answers; nothing for other variables."""
    return SCHEDULER_VARIABLES.get(name, "")


def asked_by_program(written: str) -> str:
    """The question that a command answers with a number, as an expression over the names above;
    nothing where it is no such command."""
    text = written.replace("\\\n", " ").strip()
    for pattern, answer in _PATTERNS:
        match = pattern.fullmatch(text)
        if match is None:
            continue
        form = match.groupdict().get("form")
        # Without `noheader` the first line names the columns.
        return f"( {answer} + 1 )" if form is not None and "noheader" not in form else answer
    return ""


def answered(question: str, known: MappingABC[str, int | None]) -> int | None:
    """The number that a question comes to on a machine; ``None`` where that is not known."""
    numbers = {name: known.get(name) for name in _SYMBOL.findall(question)}
    if None in numbers.values():
        return None
    return arithmetic(_SYMBOL.sub(lambda match: str(numbers[match[0]]), question))
