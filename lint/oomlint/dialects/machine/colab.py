"""The GPU that a notebook's own metadata names: a hint of where it was last run.

Colab lends machines with one GPU. Of notebooks in unslothai/notebooks (bdda2ef) that name a T4 and
print what they ran on, 197 of 203 had one; of 57 that name an A100, 22 had one with 40 GB, 26 one with
80 and 9 another, so that this name alone tells nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from oomlint.dialects.block import Block
from oomlint.dialects.cells import Cells
from oomlint.dialects.kinds import TEXT
from oomlint.dialects.machine.fields import colab, scene
from oomlint.dialects.meaning import Meaning
from oomlint.dialects.table import Row, Table
from oomlint.documents.base import Document, Entry, HeldCode, Mapping
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f

_NOTEBOOK = ".ipynb"
_STARTS_OTHERS = "notebook_launcher("

COLAB = Table(
    name="Colab",
    rows=(Row("gpuType", colab.gpu, TEXT),),
    known_prefixes=("",),
    section="scheduler",
)

colab_machine = Meaning()


def machine_of_notebook(document: Document) -> Iterator[Block]:
    """What the file around some code says of the GPU that it runs on."""
    gpu = document.gpu if isinstance(document, HeldCode) else None
    if gpu is not None:
        entry = Entry("gpuType", gpu.span, gpu, gpu.span)
        mapping = Mapping(gpu.span, {"gpuType": entry}, locked=gpu.locked)
        yield Block(document, mapping, COLAB, gpu.span, locked=gpu.locked, level=Level.ASSUMED)


@colab_machine.fact(
    scene.gpu_names,
    scene.nodes,
    scene.gpus_per_node,
    f.parallel.nodes,
    f.parallel.gpus_per_node,
    source="the notebook",
)
def gpu_of_notebook(run: Cells) -> Any:
    """Only where the user names no machine."""
    if run.known.hardware is not None or not run.once(_is_notebook):
        return None
    name = run[colab.gpu]
    if name is None:
        return None
    one = (scene.nodes, scene.gpus_per_node, f.parallel.nodes, f.parallel.gpus_per_node)
    return {scene.gpu_names: ((name,),), **dict.fromkeys(one, 1)}


def _is_notebook(blocks: list[Block]) -> bool:
    return any(block.table is COLAB for block in blocks)


def runs_in_kernel(blocks: list[Block]) -> bool:
    """Whether code of a notebook trains in the one process of its kernel: Accelerate's ``notebook_launcher`` starts
    others (accelerate 1.12 launchers.py)."""
    documents = {block.document.source.path: block.document for block in blocks}
    return any(
        path.endswith(_NOTEBOOK) and _STARTS_OTHERS not in document.source.text
        for path, document in documents.items()
    )
