"""What launchers, schedulers and containers make of a run.

``scene`` belongs to every run (:func:`oomlint.dialects.base.whole`): the machine
that the files around its command ask for, as facts. The others are for the dialect to include: the
ranks that the run's launcher starts, of a program that uses one GPU where no launcher starts it,
and of one that spreads over every visible GPU by itself. A dialect in which that depends on the run
includes the first and derives ``launch.one_process``.
"""

from __future__ import annotations

from oomlint.dialects.machine.launcher_meaning import (
    launch_all_visible as launch_all_visible,
    launch_one_process as launch_one_process,
)
from oomlint.dialects.machine.scene_meaning import scene as scene
