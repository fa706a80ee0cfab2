"""Which script of Colossal-AI's applications a command starts: OpenRLHF's of old had the same names and some of the options."""

from __future__ import annotations

from oomlint.dialects.machine.launch import Launch
from oomlint.dialects.machine.launcher_keys import COLOSSALAI_RUN

PROGRAMS = frozenset({"sft", "dpo", "rm", "kto", "orpo", "ppo", "grpo"})
"""What follows ``train_`` in the names of ColossalChat's scripts."""


def program_of_line(launch: Launch) -> str | None:
    """One of :data:`PROGRAMS`, or ``llama`` for the ``train.py`` of Colossal-LLaMA.

    It is told by an option that only these have, the plugin, or by the model under Colossal-AI's own launcher.
    """
    options = launch.flags.entries
    if "plugin" not in options and launch.launcher is not COLOSSALAI_RUN:
        return None
    if launch.stem == "train" and "pretrained" in options:
        return "llama"
    if "pretrain" not in options or "strategy" in options:  # the latter: scripts of 2023
        return None
    name = launch.stem.removeprefix("train_")
    return name if name != launch.stem and name in PROGRAMS else None
