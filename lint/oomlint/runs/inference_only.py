"""Programs that train nothing: what generates or scores runs a model forward alone, and takes training's options; a module
that others import does nothing where a command starts it. A config that no line hands to anything is for the program that it is
named after.

A project's scorer often parses the arguments of its trainer (transformers' ``TrainingArguments``, the model's),
since it has to load the model as the trainer left it. Its command looks like one of training.
"""

from __future__ import annotations

import re

from oomlint.dialects.base import Claim
from oomlint.dialects.common.evaluating import (
    NOT_OF_SAMPLES,
    only_borrows_model,
    only_evaluates,
)
from oomlint.documents.python.outline import only_defines
from oomlint.files.imported import imported
from oomlint.files.workspace import Workspace
from oomlint.runs.vendored.files import programs_in
from oomlint.runs.vendored.readers import STARTS_PROCESSES

# What a program has that runs a model forward: an engine or actors that do, or a call that asks for no gradients.
_FORWARD = (
    rb"(?m)^\s*(?:import|from)\s+(?:ray|vllm|sglang|lmdeploy)\b"
    rb"|\bno_grad\(|\binference_mode\(|\.generate\("
)
# What trains, or asks something to: a trainer's class, a function or module of that name, a loop's own steps.
_STEPS = (
    r"\.backward\(|\.fit\w*\(|\b[Oo]ptim(?:izer)?s?\b"
    r"|(?<!\.)\b_?(?:run_|do_|start_|main_)?(?:train|finetune|fine_tune|learn)(?:ing)?(?:_\w+)?"
    rf"{NOT_OF_SAMPLES}\(|\.(?:train|learn|fit)(?:_\w+)?{NOT_OF_SAMPLES}\((?!\s*False)"
).encode()
_TRAINS = rb"Trainer\b|" + _STEPS
# Lightning's Trainer holds a model for what reads or writes its checkpoints, too: it learns in ``fit`` alone.
_OF_LIGHTNING = rb"(?m)^[ \t]*from[ \t]+(?:pytorch_)?lightning[\w.]*[ \t]+import[ \t]+.*\bTrainer\b"
# What a program takes in that starts a training of somebody else's, by the name of the module or of what it is called.
_TAKES_TRAINING = rb"(?mi)^[ \t]*(?:from|import)[ \t][^\n]*(?:train|tun(?:e|ing)|sft|[dp]po|rlhf|distil|recipe|launch|\brun)"
# What a module that starts nothing has all the same where somebody means it to train.
_MAY_TRAIN = rb"Trainer\b|\.backward\(|\.fit\w*\("
# A name that says for which program a config is; shorter ones are in others by chance.
_SHORTEST_NAME = 4
_IS_TRAINER = r"(?i)train|tun(?:e|ing)|sft|dpo|ppo|grpo|distil|learn"


class ForwardOnly:
    """Which commands start a program that runs a model forward alone, and which configs are for one."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._found: dict[str, bool] = {}

    def is_started_by(self, launch: Claim) -> bool:
        """Whether a command's script is one, by its own text and that of the project's files that it imports."""
        found = (self.workspace.resolve(path, launch.path) for path in launch.scripts)
        return any(self._is_one(name) for name in found if name is not None)

    def has_steps(self, name: str) -> bool:
        """Whether a program of the project trains by its own text."""
        return re.search(_STEPS, self.workspace.read_or_none(name) or b"") is not None

    def trains_nothing(self, name: str) -> bool:
        """Whether nothing in a program, and in the project's files that it imports, trains, or starts or takes in what may."""
        whole = self.workspace.read_or_none(name) or b""
        text = re.sub(_OF_LIGHTNING, b"", whole)
        trains = _TRAINS if text == whole else _STEPS
        if not whole or re.search(_TAKES_TRAINING, text) or re.search(STARTS_PROCESSES, text):
            return False
        others = (other for _, other in imported(self.workspace, name))
        return not any(re.search(trains, each) for each in (text, *others))

    def program_of(self, config: Claim) -> str:
        """The program of the project that a config is named after, where that runs a model of its framework forward, and
        none that trains has such a name: ``1B_probe.yaml`` and ``probe.py``; empty where there is none. It depends on the
        names of the project's programs, and on the texts of those alone that the config is named after: ask late."""
        packages = {each.rpartition("/")[2] for each in config.dialect.packages}
        if not packages:
            return ""
        uses = rf"(?m)^\s*(?:import|from)\s+(?:{'|'.join(map(re.escape, packages))})\b".encode()
        folder, name = str(self.workspace.project_around(config.path)), _bare(config.path)
        found = [
            program
            for program in programs_in(self.workspace, folder)
            if len(_bare(program)) >= _SHORTEST_NAME
            and _bare(program) in name
            and self._is_program(program, uses)
        ]
        return found[0] if found and all(map(self._is_one, found)) else ""

    def _is_program(self, name: str, uses: bytes) -> bool:
        """Whether a file uses a framework and does something where it is started."""
        text = self.workspace.read_or_none(name) or b""
        return re.search(uses, text) is not None and not only_defines(
            text.decode("utf-8", "replace")
        )

    def _is_one(self, name: str) -> bool:
        if name not in self._found:
            self._found[name] = self._runs_forward(name)
        return self._found[name]

    def _runs_forward(self, name: str) -> bool:
        text = self.workspace.read_or_none(name) or b""
        said = text.decode("utf-8", "replace")
        if only_evaluates(said) or (not re.search(_MAY_TRAIN, text) and only_defines(said)):
            return True
        if re.search(_IS_TRAINER, name.rpartition("/")[2]) or not re.search(_FORWARD, text):
            return False
        own = () if only_borrows_model(said) else (text,)
        others = (other for _, other in imported(self.workspace, name))
        return not any(re.search(_TRAINS, each) for each in (*own, *others))


def _bare(path: str) -> str:
    """A file's name without its ending, in letters and digits alone."""
    return re.sub(r"[^a-z0-9]", "", path.rpartition("/")[2].rpartition(".")[0].lower())
