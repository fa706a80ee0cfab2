"""The machine that the files around a run's command ask for, as facts: part of every run."""

from __future__ import annotations

from oomlint.dialects.machine.beaker import beaker_job
from oomlint.dialects.machine.colab import colab_machine
from oomlint.dialects.machine.containers_meaning import container
from oomlint.dialects.machine.kubernetes_meaning import pod
from oomlint.dialects.machine.limits import limits
from oomlint.dialects.machine.named_hardware import named_hardware
from oomlint.dialects.machine.other_cards import other_cards
from oomlint.dialects.machine.sagemaker_meaning import sagemaker_job
from oomlint.dialects.machine.skypilot_meaning import sky_task
from oomlint.dialects.machine.slurm_meaning import slurm_job
from oomlint.dialects.machine.stand_ins import stand_ins
from oomlint.dialects.meaning import Meaning

# A container's limit is inside the job's, so it counts first; whatever a file counts itself, before
# what its machine type has.
scene = Meaning(
    container,
    pod,
    slurm_job,
    sky_task,
    beaker_job,
    sagemaker_job,
    colab_machine,
    named_hardware,
    stand_ins,
    limits,
    other_cards,
)
