"""Wishes about sharding and offloading as the names of the DeepSpeed configs that ms-swift ships.

Read from ms-swift 3602360a (4.6.0.dev0) ``swift/config/*.json``, and from ``swift/llm/ds_config`` and the names that
``swift/llm/utils/argument.py`` and ``swift/llm/argument`` give to them at the tags v1.5.4 to v4.5.2.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import ref
from oomlint.dialects.deepspeed.presets import SWIFT_PRESETS
from oomlint.dialects.meaning import Wishes
from oomlint.dialects.ms_swift.keys import own
from oomlint.errors import CannotEdit
from oomlint.plan.fields import below, f
from oomlint.plan.library_changes import Release

_STAGE = f.parallel.zero.stage
_OF_DEEPSPEED = frozenset({*below(f.parallel.zero), *below(f.offload)} - {f.offload.activations})
_SAID_BY_PRESETS = frozenset(
    {_STAGE, f.parallel.zero.gather16_on_save, f.offload.optimizer, f.offload.params}
)

_LAST_OF_2: Release = (2, 6, 1)
_FIRST_OF_3: Release = (3,)
_NEWEST: Release = (4, 6)
_NONE_YET: Release = (9999,)
# The first release that ships a config under a name, and the first that does not any more.
_SHIPPED: dict[str, tuple[Release, Release]] = {
    "default-zero2": ((1, 5, 4), _FIRST_OF_3),
    "default-zero3": ((1, 5, 4), _FIRST_OF_3),
    # It came with 2.3.2.post1, which the numbers of a release do not tell from 2.3.2.
    "zero2-offload": ((2, 4), _FIRST_OF_3),
    "zero3-offload": ((2, 0, 3), _FIRST_OF_3),
    "zero0": ((3, 0, 1), _NONE_YET),
    "zero1": ((3, 0, 1), _NONE_YET),
    "zero2": (_FIRST_OF_3, _NONE_YET),
    "zero3": (_FIRST_OF_3, _NONE_YET),
    "zero2_offload": (_FIRST_OF_3, _NONE_YET),
    # Up to 3.0.2 it left the optimizer on the GPU.
    "zero3_offload": ((3, 0, 3), _NONE_YET),
}


def name_preset(wishes: Wishes, run: Cells) -> dict[Any, Any]:
    """Wishes of which a shipped config says all that is wanted of DeepSpeed: a preset makes way for
    its neighbour, and plain data parallelism for a preset.

    Raises:
        CannotEdit: the release that runs ships no such config.
    """
    own_wishes = dict(wishes)
    wanted = own_wishes.keys() & _OF_DEEPSPEED
    backend, named = run[f.parallel.backend], run[ref.deepspeed]
    is_shipped = backend == "zero" and str(named) in SWIFT_PRESETS
    if not wanted or not wanted <= _SAID_BY_PRESETS or not (is_shipped or backend == "ddp"):
        return own_wishes
    if backend == "ddp" and named is None and _STAGE not in own_wishes:
        own_wishes[_STAGE] = 3 if own_wishes.get(f.offload.params) == "cpu" else 2
    stage, optimizer, params = (
        own_wishes.get(field, run[field])
        for field in (_STAGE, f.offload.optimizer, f.offload.params)
    )
    names = _names(stage, optimizer or "none", params or "none")
    if not names:
        return own_wishes
    release = _release(run)
    shipped = [name for name in names if _SHIPPED[name][0] <= release < _SHIPPED[name][1]]
    if not shipped:
        version = ".".join(map(str, release))
        raise CannotEdit(f"ms-swift {version} ships no DeepSpeed config like {names[-1]}")
    kept = {field: value for field, value in own_wishes.items() if field not in _SAID_BY_PRESETS}
    return {**kept, ref.deepspeed: shipped[0]}


def _names(stage: Any, optimizer: str, params: str) -> list[str]:
    """What the configs of a stage are called, over all releases, that keep so much in host RAM: just that, else, where
    something is kept there, both optimizer and parameters."""
    wanted = [(stage, optimizer, params)]
    if "cpu" in (optimizer, params):
        wanted.append((stage, "cpu", "cpu"))
    found = [name for each in wanted for name, sense in SWIFT_PRESETS.items() if sense == each]
    return list(dict.fromkeys(found))


def _release(run: Cells) -> Release:
    """The release that runs; where none is pinned, the last of those that know the keys."""
    pinned = run.version("ms-swift")
    if pinned is not None:
        return pinned
    return _LAST_OF_2 if run[own.is_old] else _NEWEST
