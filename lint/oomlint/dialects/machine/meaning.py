"""What launchers, schedulers and containers make of a run.

``scene`` belongs to every run (:meth:`~oomlint.dialects.base.Dialect.whole_meaning`): the machine
that the files around its command ask for, as facts. The others are for the dialect to include: the
ranks that the run's launcher starts, of a program that uses one GPU where no launcher starts it,
and of one that spreads over every visible GPU by itself. A dialect in which that depends on the run
includes the first and derives ``launch.one_process``.
"""

from __future__ import annotations

from oomlint.dialects.machine.containers_meaning import container
from oomlint.dialects.machine.kubernetes_meaning import pod
from oomlint.dialects.machine.launcher_meaning import (
    launch_all_visible as launch_all_visible,
    launch_one_process as launch_one_process,
)
from oomlint.dialects.machine.limits import limits
from oomlint.dialects.machine.named_hardware import named_hardware
from oomlint.dialects.machine.skypilot_meaning import sky_task
from oomlint.dialects.machine.slurm_meaning import slurm_job
from oomlint.dialects.machine.stand_ins import stand_ins
from oomlint.dialects.meaning import Meaning

# A container's limit is inside the job's, so it counts first; whatever a file counts itself, before
# what its machine type has.
scene = Meaning(container, pod, slurm_job, sky_task, named_hardware, stand_ins, limits)
