"""Models in a folder that only the machine knows: ``--model_name_or_path $MODELS/Qwen2.5-7B-Instruct``.

What such a path ends with says which model it is, as the end of a path does whose folders are known.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from oomlint.dialects.cells import Cells
from oomlint.dialects.meaning import Meaning, Said
from oomlint.dialects.setting import Origin, Setting
from oomlint.documents.base import Node
from oomlint.documents.shell.nodes import ShellScalar
from oomlint.plan.fields import f

rooted_models = Meaning()


@rooted_models.said(f.model.id)
def in_unknown_folder(run: Cells, field: object, said: Said) -> Said:
    """A path whose first folders are not known, where the catalogue knows a model by the rest of it."""
    if not isinstance(said, Origin) or said.entry is None:
        return said
    return named_by_end(run, said, said.entry.value)


def named_by_end(run: Cells, said: Origin, node: Node | None) -> Said:
    """The model that a value names which stands for what ``said`` leaves open."""
    for name in _ends(node) if isinstance(node, ShellScalar) and node.tail else ():
        found = run.known.model(name)
        if found is not None and found.dims.layers is not None:
            return Setting(name, replace(said, row=None))
    return said


def _ends(node: ShellScalar) -> Iterator[str]:
    """``Qwen/Qwen2.5-7B`` and ``Qwen2.5-7B`` of ``$ROOT/Qwen/Qwen2.5-7B``."""
    folders = node.tail.rstrip("/").split("/")
    for number in range(len(folders)):
        yield "/".join(folders[number:])
