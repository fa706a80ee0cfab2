"""Reward models of GRPO, as far as files name them.

``reward_model_path`` is a field of PPOConfig, of RLOOConfig up to 0.21 and of OnlineDPOConfig; GRPOConfig has none by that
name in any release, and TRL's own script calls its option ``reward_model_name_or_path`` (TRL 0.14.0 and 0.27.0
trainer/grpo_config.py, scripts/grpo.py GRPOScriptArguments). GRPO under the other name is an argument of somebody's own script:
what it makes of it, a language model or a small one of its own, stands in its code.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from oomlint.dialects.cells import Cells
from oomlint.dialects.entries import plain_value
from oomlint.dialects.meaning import Meaning, Said
from oomlint.dialects.setting import Setting
from oomlint.plan.fields import f

rewards = Meaning()

_OF_OTHER_CLASSES = "reward_model_path"
_SWITCH = "use_reward_model"
_WHY = "GRPOConfig has no reward_model_path: what the script makes of it is not followed"


@rewards.said(f.objective.reward_model)
def of_own_script(run: Cells, field: Any, said: Said) -> Said:
    if not isinstance(said, Setting) or said.origin.key != _OF_OTHER_CLASSES:
        return said
    if run[f.objective.kind] != "grpo":
        return said
    return None if _is_switched_off(said) else replace(said.origin, source=_WHY)


def _is_switched_off(said: Setting) -> bool:
    """Whether the file that names a reward model says beside it that none is used."""
    block = said.origin.block
    entry = None if block is None else block.mapping.entries.get(_SWITCH)
    return entry is not None and plain_value(entry.value, "yaml12") in (False, "false", "False")
