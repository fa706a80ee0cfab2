"""What ends a run of verl before its first step: words that Hydra refuses, micro batches and reward managers that the
trainer does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from oomlint.dialects.block import Block, OverrideBlock
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import shared
from oomlint.dialects.meaning import Meaning
from oomlint.dialects.omegaconf import OmegaConfBlock, OmegaConfOverrides
from oomlint.dialects.verl.engine import running_trainer
from oomlint.dialects.verl.keys import own
from oomlint.dialects.verl.reward_managers import reward_managers
from oomlint.dialects.verl.unset_micro_batches import unset_micro_batches
from oomlint.documents.base import UNKNOWN, Entry
from oomlint.documents.shell.nodes import ShellEntry
from oomlint.plan.fields import f

refusals = Meaning(unset_micro_batches, reward_managers)

_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"


@refusals.derive(
    shared.refused, source="hydra 1.3 _internal/config_loader_impl.py _apply_overrides_to_config"
)
def word_that_no_config_has(run: Cells) -> Any:
    """A word without ``+`` changes what the config has; where that is put together of others (``defaults``), it is
    not known which keys it has."""
    bases = _bases(run.blocks)
    if not bases or any("defaults" in base.mapping.entries for base in bases):
        return None
    for words in _words(run.blocks):
        for key, entry in words.mapping.entries.items():
            if _changes(entry) and all(base.find(key) is None for base in bases):
                return f"Hydra refuses {key}, a key that {bases[-1].path} has not"
    return None


@refusals.derive(
    shared.refused,
    source="verl 0.2 to 0.5 trainer/ppo/ray_trainer.py _validate_config check_mutually_exclusive",
)
def micro_batch_said_twice(run: Cells) -> Any:
    """Both the micro batch of all ranks and that of one."""
    if running_trainer(run) != "ppo":
        return None
    for section, name in _checked(run):
        of_all, of_rank = f"{section}.{name}", f"{section}.{name}_per_gpu"
        if _is_given(run, of_all) and _is_given(run, of_rank):
            return f"verl refuses {of_all} beside {of_rank}"
    return None


def _checked(run: Cells) -> Iterator[tuple[str, str]]:
    if not run[own.dynamic]:
        yield _ACTOR, "ppo_micro_batch_size"
        yield _ROLLOUT, "log_prob_micro_batch_size"
    if run[f.objective.kind] == "ppo" and not _is_given(run, "critic.use_dynamic_bsz"):
        yield "critic", "ppo_micro_batch_size"


def _is_given(run: Cells, key: str) -> bool:
    """Whether the last block that says a key gives it a value, and one that can be read."""
    for block in reversed(run.blocks):
        entry = block.find(key)
        if entry is not None:
            value = block.value(entry.value)
            return value is not None and value is not UNKNOWN and value is not False
    return False


def _changes(word: Entry) -> bool:
    """Whether a word changes a value: others add one, choose a config, or are Hydra's own."""
    lead = word.lead if isinstance(word, ShellEntry) else ""
    is_own = word.key.partition(".")[0] == "hydra"
    return "+" not in lead and not is_own and not {"@", "/"} & set(word.key)


def _words(blocks: list[Block]) -> list[OmegaConfOverrides]:
    return [block for block in blocks if isinstance(block, OmegaConfOverrides)]


def _bases(blocks: list[Block]) -> list[OmegaConfBlock]:
    return [
        block
        for block in blocks
        if isinstance(block, OmegaConfBlock) and not isinstance(block, OverrideBlock)
    ]
