"""Scripts that make a Trainer to evaluate with: training arguments, a model, no step."""

from __future__ import annotations

import re

_EVALUATES = (".evaluate(", ".predict(")
# Ahead of a call's parenthesis: what is so named handles samples, as datasets' ``train_test_split(`` does.
NOT_OF_SAMPLES = r"(?<!_split)(?<!_dataset)(?<!_datasets)(?<!_loader)(?<!_dataloader)"
# A method or a function of such a name, whosever it is; ``model.train(False)`` is no training.
_TRAINS = (
    r"\b_?(?:run_|do_|start_|main_)?(?:train|fit|learn|finetune|fine_tune)(?:ing)?(?:_\w+)?"
    rf"{NOT_OF_SAMPLES}\((?!\s*False)|\.backward\(|\btraining_step\b"
)
_MAKES = r"(?<!class )\b\w*Trainer\("
# What runs a model that somebody else made without learning from it.
_LOOKS = r"\.eval\(\)(?s:.*)\b(?:no_grad|inference_mode)\("
_TEACHES = r"\bclass \w+\([^)\n]*Trainer\b"
_COMMENT = r"(?m)^[ \t]*#.*"


def only_evaluates(text: str) -> bool:
    """Whether a script's Trainers are asked to evaluate or predict, and nothing there to train."""
    if not any(call in text for call in _EVALUATES):  # as in most scripts, and found at once
        return False
    text = re.sub(_COMMENT, "", text)
    return re.search(_MAKES, text) is not None and re.search(_TRAINS, text) is None


def only_borrows_model(text: str) -> bool:
    """Whether a script makes a Trainer for the model that this loads, puts that to evaluation and runs it without
    gradients, and nothing there trains."""
    if "Trainer(" not in text or ("no_grad(" not in text and "inference_mode(" not in text):
        return False
    text = re.sub(_COMMENT, "", text)
    is_made = re.search(_MAKES, text) is not None and re.search(_TEACHES, text) is None
    return is_made and re.search(_LOOKS, text) is not None and re.search(_TRAINS, text) is None
