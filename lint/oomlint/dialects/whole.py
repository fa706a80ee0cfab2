"""What a framework makes of its keys, with what holds for every run."""

from __future__ import annotations

from functools import cache

from oomlint.dialects.common.endings import endings
from oomlint.dialects.common.rooted_models import rooted_models
from oomlint.dialects.facts import facts
from oomlint.dialects.machine.scene_meaning import scene
from oomlint.dialects.meaning import Meaning


@cache
def whole(meaning: Meaning) -> Meaning:
    """A meaning with what is true of the machine, the model and libraries, and what ends a program early."""
    return Meaning(meaning, rooted_models, facts, scene, endings)
