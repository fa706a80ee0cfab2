"""The key by which TRL's SFT cuts samples, and the releases that drop it.

SFTConfig has ``max_seq_length`` alone until 0.15.2, both names from 0.16 on, and ``max_length`` alone
from 0.20 on. TrlParser gives the values of a YAML to the options that it has and leaves the others
to ``return_remaining_strings``, which TRL's scripts do not ask for (TRL 0.15.2 scripts/utils.py
set_defaults_with_config, trainer/sft_config.py). Configs of other objectives have had ``max_length``
since 0.10 (trainer/dpo_config.py, reward_config.py, kto_config.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from oomlint.dialects.block import Block
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.declared import declared_options
from oomlint.dialects.meaning import Said
from oomlint.dialects.reading import StrayKey
from oomlint.dialects.setting import Origin, Setting
from oomlint.dialects.trl.keys import TRL
from oomlint.dialects.trl.objectives import objective_of_run
from oomlint.dialects.trl.releases import HAS_MAX_LENGTH

_KEY, _OLDER = "max_length", "max_seq_length"


def drops_max_length(run: Cells) -> bool:
    """Whether the pinned release drops ``max_length`` from a YAML, which no class of the script's own has either.
    Where no release is pinned, who wrote the key had one that knows it."""
    return (
        run.made(HAS_MAX_LENGTH) is False
        and objective_of_run(run) in (None, "sft")
        and _KEY not in run.once(declared_options)
    )


def without_dropped(run: Cells, said: Said) -> Said:
    """What the files say of the length, but for a key that is dropped."""
    dropped = _block_of(said)
    if dropped is None or not drops_max_length(run):
        return said
    older = dropped.find(_OLDER)
    row = TRL.names[_KEY]
    value = None if older is None else dropped.value(older.value)
    if older is not None and value is not None:
        return Setting(row.kind.read(value), Origin("explicit", dropped, row, older))
    shadowed = said.shadowed if isinstance(said, Setting) else ()
    return without_dropped(run, shadowed[0]) if shadowed else None


def _block_of(said: Said) -> Block | None:
    """The YAML in which a statement stands under the newer name."""
    origin = said.origin if isinstance(said, Setting) else said
    if not isinstance(origin, Origin) or origin.entry is None or origin.block is None:
        return None
    return origin.block if origin.block.table is TRL and origin.entry.key == _KEY else None


def dropped_keys(run: Cells) -> Iterator[StrayKey]:
    """The keys that the release does not know yet."""
    if not drops_max_length(run):
        return
    for block in run.blocks:
        entry = block.find(_KEY) if block.table is TRL else None
        if entry is not None:
            since = HAS_MAX_LENGTH.release
            yield StrayKey(block, block.holder(entry), entry, _KEY, (_OLDER,), since)
