"""Variables of the environment that a script asks for."""

from __future__ import annotations

import ast
import re
from typing import Final

from oomlint.documents.python.scopes import Scope, dotted

_ASKS: Final = frozenset({"os.environ.get", "os.getenv"})
# What launchers and schedulers set for each rank (torch 2.9 distributed/run.py, accelerate 1.12 utils/launch.py,
# Slurm's srun, Open MPI, MPICH): no default of a script's stands where one of them starts it.
_OF_LAUNCHERS: Final = re.compile(
    r"\w*RANK\w*|\w*WORLD_SIZE|MASTER_\w+|(?:SLURM|OMPI|PMI|PMIX|MPI|ACCELERATE|FSDP|TORCHELASTIC|SM)_\w+"
    r"|CUDA_VISIBLE_DEVICES"
)


def variable_asked(call: ast.Call, scope: Scope) -> tuple[str, ast.expr | None] | None:
    """The variable that ``os.environ.get("NAME", default)`` or ``os.getenv`` asks for, and what stands for it
    where nobody sets it."""
    written = dotted(call.func)
    if written is None or scope.resolved(written) not in _ASKS or not call.args:
        return None
    name = call.args[0]
    if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
        return None
    named = next((k.value for k in call.keywords if k.arg == "default"), None)
    return name.value, call.args[1] if len(call.args) > 1 else named


def variable_taken(item: ast.Subscript, scope: Scope) -> str | None:
    """The variable that ``os.environ["NAME"]`` takes, which must be set."""
    holder, name = dotted(item.value), item.slice
    if holder is None or scope.resolved(holder) != "os.environ":
        return None
    value = name.value if isinstance(name, ast.Constant) else None
    return value if isinstance(value, str) else None


def is_set_by_launchers(name: str) -> bool:
    """Whether launchers set a variable for each process: ``LOCAL_RANK``, ``WORLD_SIZE``."""
    return _OF_LAUNCHERS.fullmatch(name) is not None
