"""Launches of verl's PPO trainer that leave out a micro batch which its config leaves to them."""

from __future__ import annotations

import pytest
from tests.linked import report_of, run_of

from oomlint.dialects.common.fields import shared
from oomlint.linting.rule import Severity

_GRPO = """\
python3 -m {module} algorithm.adv_estimator=grpo data.train_files=a data.train_batch_size=64 \\
    actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct trainer.n_gpus_per_node=8 {words}
"""
_ACTOR = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4"
_ROLLOUT = "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4"
_REF = "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu"
_CRITIC = "critic.ppo_micro_batch_size_per_gpu"
_KL = "actor_rollout_ref.actor.use_kl_loss=True"
_GAE = "algorithm.adv_estimator=gae"


def _stops(words: str, *, module: str = "verl.trainer.main_ppo", **files: str) -> str:
    named = {name.replace("__", "/").replace("_dot_", "."): text for name, text in files.items()}
    command = _GRPO.format(module=module, words=words)
    run = run_of({"train.sh": command, **named}, "train.sh", hardware="8xA100-80GB")
    said = run.settings.get(shared.refused)
    return "" if said is None else str(said.value)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (f"{_ACTOR} {_ROLLOUT}", ""),
        (_ACTOR, "rollout.log_prob_micro_batch_size_per_gpu"),
        (_ROLLOUT, "actor.ppo_micro_batch_size_per_gpu"),
        (f"{_ACTOR} actor_rollout_ref.rollout.log_prob_micro_batch_size=32", ""),
        (f"{_ACTOR} actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=$SIZE", ""),
        (f"{_ACTOR} actor_rollout_ref.actor.use_dynamic_bsz=True", ""),
        (f"{_ACTOR} {_ROLLOUT} {_KL}", _REF),
        (f"{_ACTOR} {_ROLLOUT} {_KL} {_REF}=4", ""),
        (f"{_ACTOR} {_ROLLOUT} {_GAE}", _CRITIC),
        (f"{_ACTOR} {_ROLLOUT} {_GAE} {_CRITIC}=4", ""),
        (f"{_ACTOR} {_ROLLOUT} {_GAE} critic.use_dynamic_bsz=True", ""),
        (f"{_ACTOR} $EXTRA", ""),
        (f"{_ACTOR} --config-name=mine", ""),
        (f"{_ACTOR} --config-path=/configs", ""),
        (f"{_ACTOR} --config-name=ppo_megatron_trainer", "rollout.log_prob"),
    ],
)
def test_what_the_trainer_asks_for(words: str, named: str) -> None:
    said = _stops(words)
    assert named in said if named else not said


def test_the_first_release_has_numbers_of_its_own() -> None:
    # Nothing here tells which release it is: 0.1 sets a micro batch of all ranks for each pass.
    assert not _stops("actor_rollout_ref.actor.ppo_micro_batch_size=32")
    assert _stops(
        "actor_rollout_ref.actor.ppo_micro_batch_size=32", requirements_dot_txt="verl==0.4.1\n"
    )


def test_old_releases_ask_for_that_of_the_reference_in_any_case() -> None:
    words = f"{_ACTOR} {_ROLLOUT}"
    assert _REF in _stops(words, requirements_dot_txt="verl==0.3.0\n")
    assert not _stops(words, requirements_dot_txt="verl==0.4.0\n")


@pytest.mark.parametrize(("release", "refused"), [("0.6.1", True), ("0.7.1", False)])
def test_reward_models_had_one_too(release: str, refused: bool) -> None:
    words = f"{_ACTOR} {_ROLLOUT} reward_model.enable=True"
    said = _stops(words, requirements_dot_txt=f"verl=={release}\n")
    assert ("reward_model.micro_batch_size_per_gpu" in said) is refused


def test_another_trainer_may_ask_for_nothing() -> None:
    assert not _stops(_ACTOR, module="recipe.mine.main_ppo")


_CONFIG = """\
algorithm:
  adv_estimator: gae
data:
  train_files: null
  train_batch_size: 64
trainer:
  n_gpus_per_node: 8
actor_rollout_ref:
  model:
    path: null
  actor:
    ppo_micro_batch_size: null
    ppo_micro_batch_size_per_gpu: null
    use_dynamic_bsz: false
  rollout:
    log_prob_micro_batch_size: null
    log_prob_micro_batch_size_per_gpu: {rollout}
"""
_CHECK = """\
def validate(config):
    def check_mutually_exclusive(mbs, mbs_per_gpu, name):
        if mbs is None and mbs_per_gpu is None:
            raise ValueError(name)

    if not config.actor_rollout_ref.actor.use_dynamic_bsz:
        check_mutually_exclusive(
            config.actor_rollout_ref.rollout.log_prob_micro_batch_size,
            config.actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu,
            "rollout",
        )
"""


@pytest.mark.parametrize(
    ("code", "rollout", "refused"),
    [(_CHECK, "null", True), (_CHECK, "8", False), ("def validate(config): pass\n", "null", False)],
)
def test_a_copy_asks_for_what_its_code_does(code: str, rollout: str, refused: bool) -> None:
    files = {
        "verl__trainer__config__ppo_trainer_dot_yaml": _CONFIG.format(rollout=rollout),
        "verl__trainer__ppo__ray_trainer_dot_py": code,
    }
    assert bool(_stops(_ACTOR, **files)) is refused


def test_what_it_would_need_is_a_remark_beside_it() -> None:
    files = {"train.sh": _GRPO.format(module="verl.trainer.main_ppo", words=_ACTOR)}
    found = report_of(files, hardware="1xRTX-3090-24GB").diagnoses
    errors = [each for each in found if each.severity is Severity.ERROR]
    assert [each.rule.code for each in errors if not each.rule.tells_of_text()] == []
    assert any("log_prob_micro_batch_size_per_gpu" in each.finding.text for each in errors)
