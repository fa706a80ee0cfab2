"""Which classes train, by what they are called."""

from __future__ import annotations

import re

# ``SFTTrainer``, and what projects put behind it (``GRPOTrainerV2``, ``CustomTrainer_LLaVA``, ``DPOTrainerWithLabels``): an
# own class keeps the base's name, more often in front than behind. TensorFlow's has a name of its own (transformers 4.57
# trainer_tf.py), and what a trainer is told or tells is none (HF/trainer_callback.py TrainerCallback, TrainerState,
# TrainerControl).
_NOT_BEHIND = ("Callback", "State", "Control", "Config", "Arguments", "Args", "Mixin")
TRAINER = re.compile(
    r"(?:^|\.)(?!TF[A-Z])\w*Trainer(?:[A-Z\d_]\w*)?$"
    + "".join(f"(?<!{end})" for end in _NOT_BEHIND)
)


def names_trainer(name: str) -> bool:
    """Whether a class, dotted or not, is called as one that trains."""
    return TRAINER.search(name) is not None
