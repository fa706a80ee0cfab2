"""Variables that a shell script hands to its program and that nothing of the project gives a value.

The shell expands one to nothing (bash(1), "Parameters"): of ``--version $PROMPT_VERSION`` the program gets ``--version`` alone.
Sure is that only where no text of the project may set it, and where it is none that the shell sets itself (``$RANDOM``) or that
people have in their environment, as the places of their data are. What a guide or a comment names, whoever starts the script sets.
"""

from __future__ import annotations

import posixpath
import re
from typing import Final

from oomlint.documents import SHELL_SUFFIXES, kind_of
from oomlint.documents.shell.names import SHELL_VARIABLES, known_environment
from oomlint.files.reference_index import texts_below
from oomlint.files.workspace import Workspace

# Parts of the names of what an environment tells: places, who somebody is, the machine and its scheduler.
_OF_ENVIRONMENT: Final = frozenset(
    """
    PATH PATHS DIR DIRS DIRECTORY ROOT HOME FOLDER PREFIX TMP TMPDIR TEMP SCRATCH CACHE WORK WORKDIR WORKSPACE STORAGE STORE MOUNT
    DATA DATASET DATASETS DATADIR CKPT CKPTS CHECKPOINT CHECKPOINTS OUT OUTPUT OUTPUTS LOG LOGS SAVE BUCKET
    TOKEN KEY SECRET PASSWORD USER USERNAME ACCOUNT ENTITY PROJECT WANDB HF HUGGINGFACE COMET MLFLOW SWANLAB
    HOST HOSTS HOSTNAME HOSTFILE ADDR ADDRESS IP PORT MASTER RANK NODE NODES NNODES WORLD GPU GPUS NGPU NGPUS NPROC DEVICE DEVICES
    CUDA NCCL TORCH RAY SLURM PBS LSB LSF SGE PMI OMPI PMIX JOB JOBID TASK WORKER ARRAY INDEX
    AWS GCP AZURE AZUREML AIP SM ARNOLD MLP METIS VC PET PAI ENV CONDA VIRTUAL VENV PYTHON IMAGE CONTAINER
    """.split()
)
# By these a script may get variables that its own text does not show.
_SET_OUT_OF_SIGHT: Final = re.compile(
    r"(?m)^[^#\n]*?(?:(?<![\w./-])(?:source|\.)[ \t]+(?!\S*activate\b)\S|\b(?:eval|declare|typeset|printf[ \t]+-v|getopts|read|mapfile|readarray|envsubst|set[ \t]+-a|set[ \t]+-o[ \t]+allexport)\b|\bexport[ \t]+[\"']?\$)"
)
_EXPORTS: Final = rb"(?m)^[^#\n]*\b(?:export|declare[ \t]+-\w*x|setenv)\b[^\n]*\b%s\b"


class UnsetVariables:
    """Looks for the variables of scripts all over their project."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._found: dict[tuple[str, str], bool] = {}

    def is_unset(self, name: str, script: str) -> bool:
        """Whether a variable that a script reads has no value, whoever of the project starts the script."""
        key = (name, script)
        if key not in self._found:
            self._found[key] = self._is_unset(name, script)
        return self._found[key]

    def _is_unset(self, name: str, script: str) -> bool:
        is_given = name in SHELL_VARIABLES or name in known_environment()
        is_of_people = not _OF_ENVIRONMENT.isdisjoint(name.upper().split("_"))
        if is_given or is_of_people or kind_of(script) not in SHELL_SUFFIXES:
            return False
        own = (self._workspace.read_or_none(script) or b"").decode("utf-8", "replace")
        if _SET_OUT_OF_SIGHT.search(own) or not _only_reads(own, name):
            return False
        root = self._workspace.project_around(script)
        around = texts_below(self._workspace, root, guides=True)
        called = posixpath.basename(script).encode()
        return not any(
            other != script and _may_set(other, text, name.encode(), called)
            for other, text in around.holding(name.encode())
        )


def _only_reads(text: str, name: str) -> bool:
    """Whether a script names a variable only to read it as it is, and never asks what it holds."""
    read = rf"\$(?:{name}\b|\{{{name}\}})"
    plain = len(re.findall(read, text))
    asks = rf"(?:\[[^\]\n]*|\bcase[ \t]+[\"']?|\btest[ \t][^\n]*){read}"
    return 0 < plain == len(re.findall(rf"\b{name}\b", text)) and not re.search(asks, text)


def _may_set(path: str, text: bytes, name: bytes, script: bytes) -> bool:
    """Whether a text that holds a name may give the variable its value, or says that somebody does. A script that neither
    exports it nor starts the other one has a variable of its own."""
    word = rb"\b" + re.escape(name) + rb"\b"
    if not re.search(word, text):
        return False
    if kind_of(path) not in SHELL_SUFFIXES:
        return True
    return script in text or re.search(_EXPORTS % re.escape(name), text) is not None
