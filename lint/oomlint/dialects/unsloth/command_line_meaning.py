"""What ``unsloth train`` makes of its config and options, before Unsloth's classes have them.

Read from unsloth 015bdef0 (2026-08-22) ``unsloth_cli/config.py``, ``unsloth_cli/commands/train.py``
and ``studio/backend/core/training/trainer.py``, which hands them to TRL's SFTTrainer.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.meaning import Meaning, Said
from oomlint.dialects.setting import Setting
from oomlint.dialects.trainer.fields import script
from oomlint.dialects.unsloth.keys import unsloth
from oomlint.dialects.unsloth.meaning import meaning
from oomlint.plan.fields import f

command_line = Meaning(meaning)

CONFIG_SOURCE = "unsloth unsloth_cli/config.py"
_TRAINER = "unsloth studio/backend/core/training/trainer.py"

command_line.constant(f.optimizer.name, "adamw_8bit", _TRAINER)
command_line.constant(f.eval.strategy, "no", f"{_TRAINER}: no eval_steps")


@command_line.default(script.adapter, source=CONFIG_SOURCE)
def adapts(run: Cells) -> Any:
    return not run[unsloth.full]


@command_line.override(unsloth.load_4bit, source=CONFIG_SOURCE)
def trains_wide(run: Cells) -> Any:
    return False if run[unsloth.full] else None


@command_line.said(f.save.every)
def saves_at_the_end(run: Cells, field: Any, said: Said) -> Said:
    """``save_steps: 0``."""
    return None if isinstance(said, Setting) and said.value == 0 else said


command_line.cannot_say("unsloth train chooses the dtype by the GPU", f.load.dtype)
