"""By what a command line of OLMo-core's is known beside the script that it starts."""

from __future__ import annotations

from oomlint.dialects.machine.launch import Launch

_PARTS = ("train_module.", "data_loader.", "trainer.callbacks.")


def says_part(launch: Launch) -> bool:
    """Whether options of a command are laid over a part of a config that the script builds."""
    return any(key.replace("-", "_").startswith(_PARTS) for key in launch.flags.entries)
