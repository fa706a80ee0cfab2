"""Launches of verl's PPO trainer with a reward manager by its name."""

from __future__ import annotations

import pytest
from tests.linked import run_of

from oomlint.dialects.common.fields import shared

_GRPO = """\
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_files=a data.train_batch_size=64 \\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4 \\
    actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=4 actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct trainer.n_gpus_per_node=8 {words}
"""
_KEY = "reward_model.reward_manager"
_FUNCTION = "custom_reward_function.path=rewards.py"


def _stops(words: str, release: str = "") -> str:
    files = {"train.sh": _GRPO.format(words=words)}
    if release:
        files["requirements.txt"] = f"verl=={release}\n"
    said = run_of(files, "train.sh", hardware="8xA100-80GB").settings.get(shared.refused)
    return "" if said is None else str(said.value)


@pytest.mark.parametrize(
    ("words", "release", "reason"),
    [
        (f"{_KEY}=dapo", "0.3.0", "verl 0.3 has no reward manager dapo"),
        (f"{_KEY}=dapo {_FUNCTION}", "0.3.0", "verl 0.3 has no reward manager dapo"),
        (f"{_KEY}=batch", "0.8.0", "verl 0.8 has no reward manager batch"),
        ("reward_manager.name=gdpo", "0.7.0", "verl 0.7 has no reward manager gdpo"),
        (f"{_KEY}=ttrl", "", ""),  # of a changed copy
        (f"{_KEY}=ttrl", "0.4.1", ""),
        (f"{_KEY}=batch {_FUNCTION}", "0.8.0", ""),
        (f"{_KEY}=batch data.custom_cls.path=rows.py", "0.8.0", ""),
        ("reward_manager.source=importlib reward_manager.name=gdpo", "0.7.0", ""),
        (f"{_KEY}=dapo", "0.4.1", ""),
        (f"{_KEY}=batch", "", ""),
        (f"{_KEY}=$MANAGER", "0.4.1", ""),
    ],
)
def test_a_reward_manager_that_no_release_has(words: str, release: str, reason: str) -> None:
    assert _stops(words, release) == reason
