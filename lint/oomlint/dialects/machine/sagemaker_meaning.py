"""The machines of a training job of SageMaker, and the libraries of its container."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.machine.fields import sagemaker, scene
from oomlint.dialects.machine.sagemaker_keys import ESTIMATOR
from oomlint.dialects.meaning import Bounds, Meaning
from oomlint.plan.fields import f
from oomlint.plan.library_changes import release_of

sagemaker_job = Meaning()

_SOURCE = "SageMaker"


def _is_job(run: Cells) -> bool:
    return run.has_block_of(ESTIMATOR)


@sagemaker_job.requires
def libraries(run: Cells) -> Iterator[Bounds]:
    """``transformers_version="4.28"`` is a container with a release of 4.28; a requirements.txt beside the script may
    bring another one."""
    if not _is_job(run):
        return
    for package, field in (("transformers", sagemaker.transformers), ("torch", sagemaker.torch)):
        release = release_of(run[field])
        if release is not None and len(release) > 1:
            major, minor = release[:2]
            yield package, (major, minor), (major, minor + 1)


@sagemaker_job.fact(scene.nodes, f.parallel.nodes, source=_SOURCE)
def nodes_of_job(run: Cells) -> Any:
    """None has one by default: what is not read is open."""
    if not _is_job(run):
        return None
    return dict.fromkeys((scene.nodes, f.parallel.nodes), run[sagemaker.nodes])


@sagemaker_job.fact(scene.instance, source=_SOURCE)
def instance_of_job(run: Cells) -> Any:
    return run[sagemaker.instance] if _is_job(run) else None
