"""Programs that train nothing: what generates or scores runs a model forward alone, and takes training's options; a module
that others import does nothing where a command starts it.

A project's scorer often parses the arguments of its trainer (transformers' ``TrainingArguments``, the model's),
since it has to load the model as the trainer left it. Its command looks like one of training.
"""

from __future__ import annotations

import re

from oomlint.dialects.base import Claim
from oomlint.dialects.common.evaluating import NOT_OF_SAMPLES, only_evaluates
from oomlint.documents.python.outline import only_defines
from oomlint.files.imported import imported
from oomlint.files.workspace import Workspace

# What a program has that runs a model forward: an engine or actors that do, or a call that asks for no gradients.
_FORWARD = (
    rb"(?m)^\s*(?:import|from)\s+(?:ray|vllm|sglang|lmdeploy)\b"
    rb"|\bno_grad\(|\binference_mode\(|\.generate\("
)
# What trains, or asks something to: a trainer's class, a function or module of that name, a loop's own steps.
_TRAINS = (
    r"Trainer\b|\.backward\(|\.fit\w*\(|\b[Oo]ptim(?:izer)?s?\b"
    r"|(?<!\.)\b_?(?:run_|do_|start_|main_)?(?:train|finetune|fine_tune|learn)(?:ing)?(?:_\w+)?"
    rf"{NOT_OF_SAMPLES}\(|\.(?:train|learn|fit)(?:_\w+)?{NOT_OF_SAMPLES}\((?!\s*False)"
).encode()
# What a module that starts nothing has all the same where somebody means it to train.
_MAY_TRAIN = rb"Trainer\b|\.backward\(|\.fit\w*\("
_IS_TRAINER = r"(?i)train|tun(?:e|ing)|sft|dpo|ppo|grpo|distil|learn"


class ForwardOnly:
    """Which commands start a program that runs a model forward alone."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._found: dict[str, bool] = {}

    def is_started_by(self, launch: Claim) -> bool:
        """Whether a command's script is one, by its own text and that of the project's files that it imports."""
        found = (self.workspace.resolve(path, launch.path) for path in launch.scripts)
        return any(self._is_one(name) for name in found if name is not None)

    def _is_one(self, name: str) -> bool:
        if name not in self._found:
            self._found[name] = self._runs_forward(name)
        return self._found[name]

    def _runs_forward(self, name: str) -> bool:
        text = self.workspace.read_or_none(name) or b""
        said = text.decode("utf-8", "replace")
        if only_evaluates(said) or (only_defines(said) and not re.search(_MAY_TRAIN, text)):
            return True
        if re.search(_IS_TRAINER, name.rpartition("/")[2]) or not re.search(_FORWARD, text):
            return False
        others = (other for _, other in imported(self.workspace, name))
        return not any(re.search(_TRAINS, each) for each in (text, *others))
