"""DeepSpeed that plain ``python`` starts: without a launcher's variables it looks for MPI, by a package that it does not require.

Where one of RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT is not set, ``deepspeed.init_distributed`` imports mpi4py
(0.10.1, 0.18.4 and 0.19.8 comm/comm.py ``mpi_discovery``; on Azure ML and SageMaker it does not). Up to 4.28 transformers'
TrainingArguments call it themselves (4.27.4 and 4.28.1 training_args.py ``_setup_devices``); later ones leave a process without
LOCAL_RANK alone (accelerate 0.20.3 to 1.15 state.py), and what calls it is ``zero.Init`` around the model, or
``deepspeed.initialize`` as training begins (0.10.1 to 0.19.8 ``__init__.py``). Nobody requires mpi4py: neither DeepSpeed,
accelerate nor transformers.

Sure of it is a project that lists DeepSpeed among its packages, and of which no file speaks of mpi4py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from oomlint.dialects.base import Claim
from oomlint.dialects.ending import Ending
from oomlint.dialects.machine.launch import Launch
from oomlint.dialects.machine.launcher_keys import PLAIN
from oomlint.documents.base import PythonDocument, Scalar
from oomlint.documents.text import Location
from oomlint.files.reference_index import texts_below
from oomlint.files.workspace import Workspace
from oomlint.runs.absent_packages import BRINGS_MORE

_WHY = (
    "plain python sets no RANK, so that DeepSpeed looks for MPI by mpi4py, which the project does not install: "
    "start it by deepspeed or torchrun"
)
# What knows ranks or where they meet without a launcher, or starts one itself, or is on a machine that DeepSpeed knows.
_KNOWS_RANKS = re.compile(
    rb"MASTER_(?:ADDR|PORT)|\bRANK['\"=]|init_process_group|subprocess|os\.system|\bexecv|elastic_launch|(?i:sagemaker|azureml)"
    rb"|(?i:\bmpi)"
)
_READS_ARGUMENTS = re.compile(rb"\bTrainingArguments\b|\b(?:SFT|DPO|GRPO|KTO|Reward)Config\b")
_MPI = b"mpi4py"


class AbsentMpi:
    """Looks for commands whose DeepSpeed would have to find its ranks by MPI."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def of(self, launch: Launch, from_file: str, claims: Iterable[Claim]) -> Ending | None:
        """Why a command without a launcher that names a config of DeepSpeed's ends, if that is sure."""
        if launch.launcher is not PLAIN or launch.script is None or not _names_config(launch):
            return None
        script = self._workspace.resolve(launch.script, from_file, launch.command.folder)
        document = next((each.document for each in claims if each.path == script), None)
        if script is None or not isinstance(document, PythonDocument):
            return None
        if not self._leaves_ranks(launch, script, document):
            return None
        if not self._is_without(from_file):
            return None
        return Ending(_WHY, Location(from_file, launch.anchor))

    def _leaves_ranks(self, launch: Launch, script: str, document: PythonDocument) -> bool:
        """Whether neither the command's file nor the program's says what its rank is."""
        line = launch.document.source.text.encode()
        names = (script, *document.sourced)
        texts = [line, *(self._workspace.read_or_none(each) or b"" for each in names)]
        is_read = any(map(_READS_ARGUMENTS.search, texts[1:]))
        return is_read and not BRINGS_MORE.search(line) and not any(map(_KNOWS_RANKS.search, texts))

    def _is_without(self, from_file: str) -> bool:
        """Whether the project lists DeepSpeed, and mpi4py nowhere."""
        lists = self._workspace.requirements(from_file)
        if not any("deepspeed" in text.lower() for text in lists):
            return False
        root = self._workspace.project_around(from_file)
        if self._workspace.holds(root, "Dockerfile") or any(_MPI.decode() in t for t in lists):
            return False
        return not any(texts_below(self._workspace, root, guides=True).holding(_MPI))


def _names_config(launch: Launch) -> bool:
    option = launch.flags.entries.get("deepspeed")
    value = option.value.value if option is not None and isinstance(option.value, Scalar) else None
    return isinstance(value, str) and value.endswith(".json")
