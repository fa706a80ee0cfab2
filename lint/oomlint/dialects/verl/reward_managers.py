"""Reward managers that a release of verl does not have: it stops as it looks one up by its name, before the first step.

Nothing is sure of a name that no release has: whoever gives it has a changed copy that registers it (so did a
run that died of memory in its first step: benchmarks/threads). Since 0.6 the file of a reward function may register one, and a class that
is imported by its path takes any name: where a command names such a file, or a class of samples, nothing is sure either.
"""

from __future__ import annotations

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.declared_ends import declare_end
from oomlint.dialects.ending import Ending, When
from oomlint.dialects.library_tables import Reach, reach_of
from oomlint.dialects.meaning import Meaning
from oomlint.dialects.verl.unset_micro_batches import is_carried, started_trainer, value_of
from oomlint.documents.base import Entry, Scalar
from oomlint.documents.text import Location
from oomlint.plan.library_changes import Release

reward_managers = Meaning()

_SOURCE = (
    "verl 0.2 and 0.3 trainer/main_ppo.py; 0.4 trainer/ppo/reward.py load_reward_manager; 0.4.1 to 0.7.0"
    " workers/reward_manager; 0.7.0 to 0.9.1 experimental/reward_loop/reward_manager"
)
_OLDEST: Release = (0, 2)
_REGISTERED_BY_FUNCTION: Release = (0, 6)
_NONE: Release = (1 << 62,)
# By their names: the first release that has one, and the first without it again.
_MANAGERS: dict[str, tuple[Release, Release]] = {
    "naive": (_OLDEST, _NONE),
    "prime": (_OLDEST, (0, 7, 1)),
    "batch": ((0, 4), (0, 7, 1)),
    "dapo": ((0, 4), _NONE),
    "rate_limited": ((0, 7), _NONE),
    "remote": ((0, 7), _NONE),
    "gdpo": ((0, 7, 1), _NONE),
}
# The key of 0.2 to 0.9.1, which later releases carry over to their own; that of 0.7.0; that of 0.7.1 and later.
_KEYS = ("reward_model.reward_manager", "reward_manager.name", "reward.reward_manager.name")
_BRINGS_OTHERS = (
    "reward_manager.source", "reward.reward_manager.source", "reward_model.reward_loop_source", "data.custom_cls.path",
)  # fmt: skip
_FUNCTIONS = ("custom_reward_function.path", "reward.custom_reward_function.path")


def _first(run: Cells) -> Ending | None:
    launch = run.once(started_trainer)
    reach = None if launch is None or run.once(is_carried) else reach_of(run, "verl")
    if launch is None or reach is None or reach.oldest < _OLDEST:
        return None
    may_register = reach.newest >= _REGISTERED_BY_FUNCTION
    if any(value_of(run, key) for key in (*_BRINGS_OTHERS, *_FUNCTIONS * may_register)):
        return None
    for key in _KEYS:
        entry = launch.command.assignments.entries.get(key)
        if entry is not None and _is_unknown(entry, reach):
            named = entry.value.value if isinstance(entry.value, Scalar) else ""
            why = f"verl {_releases(reach)}has no reward manager {named}"
            at = Location(launch.document.source.path, entry.key_span)
            return Ending(why, at, When.LOADING)
    return None


declare_end(reward_managers, _first, source=_SOURCE)


def _is_unknown(entry: Entry, reach: Reach) -> bool:
    """Whether none of the releases that may run has the manager of a name, which others have."""
    named = entry.value.value if isinstance(entry.value, Scalar) else None
    if not isinstance(named, str) or named not in _MANAGERS:
        return False
    since, gone = _MANAGERS[named]
    return reach.newest < since or gone <= reach.oldest


def _releases(reach: Reach) -> str:
    """Which releases may run, in words before a verb; nothing where any may."""
    if reach.oldest == reach.newest:
        return f"{'.'.join(map(str, (*reach.oldest, 0)[: max(2, len(reach.oldest))]))} "
    return ""
