"""Micro batches that nobody sets: verl's PPO trainer raises a ``ValueError`` before it starts a worker.

All its configs leave them at ``null`` (trainer/config of verl 0.2 to 0.9.1, for FSDP and for Megatron), so that one counts only
where a command or a project's own config sets it. That of a copy of verl is checked where the copy's own code does so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from oomlint.dialects.block import Block, OverrideBlock
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.declared_ends import declare_end
from oomlint.dialects.ending import Ending, When
from oomlint.dialects.library_tables import reach_of
from oomlint.dialects.machine.launch import Launch
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.meaning import Meaning
from oomlint.dialects.omegaconf import HydraOverrides, OmegaConfBlock
from oomlint.dialects.verl.keys import CARRIED, VERL_PPO, own
from oomlint.documents.base import Node, Scalar
from oomlint.documents.text import Location
from oomlint.plan.library_changes import Release

unset_micro_batches = Meaning()

_CHECKS: Release = (0, 2)
# Reference policies had a worker in any case (0.3.0.post1 trainer/main_ppo.py), since 0.4 by their losses alone.
_REFERENCE_BY_LOSS: Release = (0, 4)
# In 0.7 a reward loop has none of its own, 0.7.1 has no such keys.
_REWARDS_BY_LOOP: Release = (0, 7)
_TRAINER = "verl.trainer.main_ppo"
_CONFIGS = ("ppo_trainer", "ppo_megatron_trainer")
_NAMES, _ELSEWHERE = ("config_name", "cn"), ("config_path", "cp", "config_dir", "cd")
_A, _R, _REF = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.ref"


_ANY: Release = (1 << 62,)


def _first(run: Cells) -> Ending | None:
    launch = run.once(started_trainer)
    if launch is None:
        return None
    is_copy, newest = bool(run[own.copy_checks]), _ANY
    if not is_copy:
        reach = None if run.once(is_carried) else reach_of(run, "verl")
        if reach is None or reach.oldest < _CHECKS:
            return None
        newest = reach.newest
    for section, name in _checked(run, newest):
        of_rank = f"{section}.{name}_per_gpu"
        if all(_is_null(run, key, is_copy) for key in (f"{section}.{name}", of_rank)):
            at = Location(launch.document.source.path, launch.anchor)
            return Ending(f"verl stops without {of_rank}, which nothing sets", at, When.SETTINGS)
    return None


declare_end(
    unset_micro_batches,
    _first,
    source="verl 0.2 to 0.5.0 trainer/ppo/ray_trainer.py _validate_config; 0.6.0 to 0.9.1 utils/config.py validate_config,"
    " workers/config/actor.py and critic.py __post_init__",
)


def _checked(run: Cells, newest: Release) -> Iterator[tuple[str, str]]:
    """The micro batches that are asked for in all releases that may run. Each switch to batches by tokens follows the
    actor's, unless somebody sets it."""
    if run[own.dynamic] or run.is_unread(own.dynamic):
        return
    yield _A, "ppo_micro_batch_size"
    yield _R, "log_prob_micro_batch_size"
    if newest < _REFERENCE_BY_LOSS or run[own.kl_loss] or run[own.kl_in_reward]:
        yield _REF, "log_prob_micro_batch_size"
    if any(value_of(run, key) for key in ("critic.use_dynamic_bsz", "critic.enable")):
        return
    if run[own.estimator] == "gae" and not run.is_unread(own.estimator):
        yield "critic", "ppo_micro_batch_size"
    rewards = newest < _REWARDS_BY_LOOP and run[own.rewards]
    if rewards and not value_of(run, "reward_model.use_dynamic_bsz"):
        yield "reward_model", "micro_batch_size"


def _is_null(run: Cells, key: str, is_copy: bool) -> bool:
    """Whether a key has no value for sure. What the configs of a copy of verl do not say may be in one that is composed
    with them."""
    return value_of(run, key) is None and (not is_copy or _names(run, key))


def value_of(run: Cells, key: str) -> Any:
    """What the last block says that says a key; ``UNKNOWN``, which counts as true, where that cannot be read."""
    for block in reversed(run.blocks):
        entry = block.find(key)
        if entry is not None:
            return block.value(entry.value)
    return None


def _names(run: Cells, key: str) -> bool:
    return any(block.find(key) is not None for block in run.blocks)


def started_trainer(blocks: list[Block]) -> Launch | None:
    """The command that starts verl's own PPO trainer with verl's own config, if all of its words are known."""
    words = [block for block in blocks if isinstance(block, HydraOverrides)]
    if len(words) != 1 or words[0].table is not VERL_PPO or words[0].mapping.open_ended:
        return None
    found = (each for each in launches(words[0].document) if each.anchor == words[0].anchor)
    launch = next(found, None)
    if launch is None or launch.name != _TRAINER or launch.arguments:
        return None
    named = (launch.flag(key) for key in _NAMES)
    is_own = any(_text(each.value) not in _CONFIGS for each in named if each is not None)
    return None if is_own or any(map(launch.flag, _ELSEWHERE)) else launch


def _text(node: Node) -> str | None:
    return str(node.value).removesuffix(".yaml") if isinstance(node, Scalar) else None


def is_carried(blocks: list[Block]) -> bool:
    """Whether the project carries a copy of verl: a config that the command begins with, or code that was read."""
    return any(
        block.table is CARRIED
        or (isinstance(block, OmegaConfBlock) and not isinstance(block, OverrideBlock))
        for block in blocks
    )
