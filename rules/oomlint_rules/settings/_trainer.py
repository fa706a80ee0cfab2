"""Which runs transformers' Trainer drives: it compares a DeepSpeed config with its arguments."""

from __future__ import annotations

from oomlint.run import Run

# Each hands its arguments to transformers' Trainer, whose HfTrainerDeepSpeedConfig compares
# them (transformers 5.23 integrations/deepspeed.py:108-258). Accelerate and DeepSpeed on
# their own take the JSON's word.
_ON_TRAINER = frozenset({"axolotl", "llama-factory", "trl", "hf-trainer", "ms-swift", "unsloth"})


def trainer_compares(run: Run) -> bool:
    return run.dialect.name in _ON_TRAINER or run.framework in _ON_TRAINER
