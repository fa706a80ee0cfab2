"""DeepSpeed without a trainer: scripts and commands that name its config themselves.

Scripts call ``deepspeed.initialize`` with it, commands pass ``--deepspeed_config``, the option of
``deepspeed.add_config_arguments``.

What such a script trains, and whether its ranks are stages of a pipeline, only running it would tell; its config and
the number of its ranks are known.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oomlint.dialects.base import Claim, Dialect, Reference
from oomlint.dialects.block import Block
from oomlint.dialects.cells import Cells
from oomlint.dialects.deepspeed.alone import alone
from oomlint.dialects.machine.launch import Launch
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.machine.meaning import launch_one_process
from oomlint.dialects.meaning import Meaning, Said
from oomlint.dialects.setting import Origin
from oomlint.dialects.table import Table
from oomlint.documents import PYTHON_SUFFIXES, SHELL_SUFFIXES
from oomlint.documents.base import Call, Document, Scalar
from oomlint.documents.text import Location
from oomlint.plan.fields import f

# DeepSpeed edaa7221 __init__.py:_add_core_arguments and initialize().
_OPTION = "deepspeed_config"
_ARGUMENTS = ("config", "config_params")
_INITIALIZE = "deepspeed.initialize"
# Of a program's other options nothing is known.
_OPTIONS = Table("program options", (), known_prefixes=("",), section="options")
# Frameworks that read the same option and describe the run themselves.
_OTHERS = frozenset(
    {"per_device_train_batch_size", "tensor_model_parallel_size", "num_layers", "pretrain"}
)


ranks = Meaning()


@ranks.said(f.parallel.pp)
def stages(run: Cells, field: Any, said: Said) -> Said:
    """A PipelineModule cuts the model into stages, and leaves as many ranks fewer to share the batch (DeepSpeed
    edaa7221 runtime/pipe/module.py)."""
    if said is not None:
        return said
    options = next((block for block in run.blocks if block.table is _OPTIONS), None)
    why = "what the program makes of its ranks is not followed"
    return None if options is None else Origin("explicit", options, source=why)


class DeepSpeedLaunch(Dialect):
    name = "deepspeed-launch"
    markers = (_OPTION.encode(), _INITIALIZE.encode())
    markers_prove = False
    suffixes = (*SHELL_SUFFIXES, *PYTHON_SUFFIXES)
    only_marked = PYTHON_SUFFIXES
    meaning = Meaning(ranks, alone, launch_one_process)

    def recognise(self, document: Document) -> Iterable[Claim]:
        for launch in launches(document):
            yield from self._launched(launch)
        for call in document.calls:
            yield from self._initialized(document, call)

    def _launched(self, launch: Launch) -> Iterable[Claim]:
        entry = launch.flag(_OPTION)
        if entry is None or launch.script is None or _OTHERS & set(launch.flags.entries):
            return
        config = tuple(launch.reference(entry.value, "deepspeed", optional=True))
        if config:
            blocks = (*launch.blocks, launch.program_block(_OPTIONS))
            yield self._claim(launch.document, blocks, (*launch.scene_references, *config))

    def _initialized(self, document: Document, call: Call) -> Iterable[Claim]:
        if call.callee != _INITIALIZE:
            return
        for name in _ARGUMENTS:
            entry = call.arguments.entries.get(name)
            value = entry.value if entry is not None else None
            if isinstance(value, Scalar) and isinstance(value.value, str):
                where = Location(document.source.path, value.span)
                yield self._claim(
                    document, (), (Reference(value.value, where, "deepspeed", optional=True),)
                )
                return

    def _claim(
        self, document: Document, blocks: tuple[Block, ...], config: tuple[Reference, ...]
    ) -> Claim:
        return Claim(self, "run", document, blocks, config, framework="deepspeed")
