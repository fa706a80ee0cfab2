"""Words of a verl launch that end it before its first step."""

from __future__ import annotations

import pytest
from tests.linked import run_of

from oomlint.dialects.common.fields import shared

_CONFIG = """\
data:
  train_files: train.parquet
  train_batch_size: 64
  max_prompt_length: 512
  max_response_length: 512
actor_rollout_ref:
  model:
    path: Qwen/Qwen2.5-7B-Instruct
  actor:
    strategy: fsdp
    use_dynamic_bsz: {dynamic}
    ppo_mini_batch_size: 64
    ppo_micro_batch_size: null
    ppo_micro_batch_size_per_gpu: 1
    fsdp_config:
      param_offload: false
  rollout:
    name: vllm
    log_prob_micro_batch_size: null
    log_prob_micro_batch_size_per_gpu: null
critic:
  ppo_micro_batch_size: null
  ppo_micro_batch_size_per_gpu: 1
algorithm:
  adv_estimator: {estimator}
"""
_OFFLOAD = "actor_rollout_ref.actor.fsdp_config.grad_offload=True"


def _stops(words: str, *, head: str = "", dynamic: bool = False, estimator: str = "grpo") -> str:
    files = {
        "verl/trainer/config/ppo_trainer.yaml": head
        + _CONFIG.format(dynamic=str(dynamic).lower(), estimator=estimator),
        "train.sh": f"python3 -m verl.trainer.main_ppo trainer.n_gpus_per_node=8 {words}\n",
    }
    run = run_of(files, "train.sh", hardware="8xA100-80GB")
    said = run.settings.get(shared.refused)
    return "" if said is None else str(said.value)


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (_OFFLOAD, True),
        (f"+{_OFFLOAD}", False),
        (f"++{_OFFLOAD}", False),
        ("actor_rollout_ref.actor.fsdp_config.param_offload=True", False),
        ("hydra.run.dir=out", False),
        ("trainer@other=small", False),
    ],
)
def test_hydra_takes_only_keys_that_the_config_has(words: str, refused: bool) -> None:
    # The config has no section `trainer`, so the words of the launch are added to it.
    base = "trainer:\n  n_gpus_per_node: 8\n"
    assert bool(_stops(words, head=base)) is refused


def test_what_a_config_of_others_has_is_not_known() -> None:
    assert not _stops(_OFFLOAD, head="defaults:\n  - others\n")


def test_a_config_that_is_not_here_is_not_asked() -> None:
    words = f"python3 -m verl.trainer.main_ppo {_OFFLOAD} actor_rollout_ref.model.path=gpt2\n"
    assert run_of({"train.sh": words}).settings.get(shared.refused) is None


@pytest.mark.parametrize(
    ("words", "others", "refused"),
    [
        ("actor_rollout_ref.actor.ppo_micro_batch_size=8", {}, True),
        ("actor_rollout_ref.actor.ppo_micro_batch_size=8", {"dynamic": True}, False),
        ("actor_rollout_ref.actor.ppo_micro_batch_size=null", {}, False),
        ("actor_rollout_ref.rollout.log_prob_micro_batch_size=8", {}, False),
        ("critic.ppo_micro_batch_size=8", {"estimator": "gae"}, True),
        ("critic.ppo_micro_batch_size=8", {}, False),
    ],
)
def test_a_micro_batch_is_said_once(words: str, others: dict[str, object], refused: bool) -> None:
    base = "trainer:\n  n_gpus_per_node: 8\n"
    assert ("verl refuses" in _stops(words, head=base, **others)) is refused  # type: ignore[arg-type]


_RECIPE = """\
import hydra
from verl.trainer.ppo.ray_trainer import RayPPOTrainer


@hydra.main(config_path="config", config_name="walk_trainer", version_base=None)
def main(config):
    RayPPOTrainer(config).fit()
"""
_LAID_OVER = """\
hydra: {searchpath: ["file://verl/trainer/config"]}
defaults: [ppo_trainer, _self_]
algorithm: {walk: {weight: 1.0}}
trainer: {n_gpus_per_node: 4}
"""


def test_a_recipe_lays_its_own_keys_over_a_config_of_verls() -> None:
    """Its config names no model and no actor: only the program that begins with it tells what it is."""
    files = {
        "verl/trainer/config/ppo_trainer.yaml": _CONFIG.format(dynamic="false", estimator="grpo"),
        "recipe/walk/main_walk.py": _RECIPE,
        "recipe/walk/config/walk_trainer.yaml": _LAID_OVER,
        "train.sh": "python3 -m recipe.walk.main_walk algorithm.walk.weight=0.5 data.max_prompt_length=512\n",
    }
    run = run_of(files, "train.sh", hardware="8xA100-80GB")
    assert run.settings.get(shared.refused) is None
    assert run.plan.parallel.gpus_per_node == 4
