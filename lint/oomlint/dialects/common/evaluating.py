"""Scripts that make a Trainer to evaluate with: training arguments, a model, no step."""

from __future__ import annotations

import re

_EVALUATES = re.compile(r"\.(?:evaluate|predict)\(")
# A method or a function of such a name, whosever it is; ``model.train(False)`` is no training.
_TRAINS = re.compile(
    r"\b_?(?:run_|do_|start_|main_)?(?:train|fit|learn|finetune|fine_tune)(?:ing)?(?:_\w+)?\("
    r"(?!\s*False)|\.backward\(|\btraining_step\b"
)
_MAKES = re.compile(r"(?<!class )\b\w*Trainer\(")


def only_evaluates(text: str) -> bool:
    """Whether a script's Trainers are asked to evaluate or predict, and nothing there to train."""
    makes = _MAKES.search(text) and _EVALUATES.search(text)
    return bool(makes) and _TRAINS.search(text) is None
