"""What a run's own program does in its steps, and that a change of how states are spread would undo.

Under ZeRO and FSDP a parameter's ``grad`` is ``None`` or a shard, and DeepSpeed's own getters answer at the end of an
accumulation alone where the optimizer is on the host (DeepSpeed edaa7221 runtime/zero/stage3.py
get_fp32_grad_for_param, runtime/zero/parameter_offload.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from oomlint.documents.base import PythonDocument
from oomlint.files.imported import imported
from oomlint.files.workspace import Workspace
from oomlint.fix.story import Wishes
from oomlint.plan.fields import f
from oomlint.runs.run import Run

_READS_GRADIENTS = (
    rb"\bsafe_(?:get|set)_\w*(?:grad|param|optimizer_state)\w*\("
    rb"|\.register_(?:hook|post_accumulate_grad_hook)\("
    rb"|\.grad\.(?!fn\b)\w|\.grad\s*(?:=[^=]|\*|\[)"
)
_SPREAD: tuple[Any, ...] = (f.parallel.zero.stage, f.parallel.backend, f.offload.optimizer, f.offload.params, f.parallel.fsdp.strategy, f.parallel.fsdp.cpu_offload)  # fmt: skip
_HOPS = 2


def reads_gradients(run: Run, wishes: Wishes) -> str | None:
    """The file of the project's own code that takes gradients or states of parameters in its own hands, where a
    change would spread or move these."""
    if run.parts.copier is None or not any(field in wishes for field in _SPREAD):
        return None
    workspace = run.parts.copier.workspace
    return next(
        (name for name, text in _code(run, workspace) if re.search(_READS_GRADIENTS, text)), None
    )


def _code(run: Run, workspace: Workspace) -> Iterator[tuple[str, bytes]]:
    scripts = [claim.path for claim in run.claims if isinstance(claim.document, PythonDocument)]
    started = (workspace.resolve(path, c.path) for c in run.claims for path in c.scripts)
    for name in dict.fromkeys((*scripts, *filter(None, started))):
        yield name, workspace.read_or_none(name) or b""
        yield from imported(workspace, name, hops=_HOPS)
