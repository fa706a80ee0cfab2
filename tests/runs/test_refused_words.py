"""Words of a command for keys that the config lacks which Hydra composes for a program of the project."""

from __future__ import annotations

import pytest
from tests.linked import run_of

from oomlint.dialects.common.fields import shared

_PROGRAM = """\
import hydra

@hydra.main(config_path="config", config_name="ppo_trainer", version_base=None)
def main(config):
    run_ppo(config)

if __name__ == "__main__":
    main()
"""
_PRIMARY = """\
defaults:
  - actor@actor_rollout_ref.actor: dp_actor
  - model@actor_rollout_ref.model: hf_model
{more}  - _self_
data:
  train_files: train.parquet
  train_batch_size: 64
  max_prompt_length: 512
  max_response_length: 512
actor_rollout_ref:
  rollout:
    name: vllm
    engine_kwargs: {{}}
    nothing: null
trainer:
  n_gpus_per_node: 8
"""
_FILES = {
    "verl/trainer/main_ppo.py": _PROGRAM,
    "verl/trainer/config/ppo_trainer.yaml": _PRIMARY.format(more=""),
    "verl/trainer/config/actor/dp_actor.yaml": (
        "strategy: fsdp\nppo_mini_batch_size: 64\nppo_micro_batch_size_per_gpu: 1\n"
        "fsdp_config:\n  param_offload: false\n"
    ),
    "verl/trainer/config/model/hf_model.yaml": "path: Qwen/Qwen2.5-7B-Instruct\nlora_rank: 0\n",
}
_MODEL = "actor_rollout_ref.model"


def _stops(words: str, start: str = "python3 -m verl.trainer.main_ppo", **more: str) -> str:
    named = {name.replace("__", "/").replace("_yaml", ".yaml"): text for name, text in more.items()}
    files = {**_FILES, **named, "run.sh": f"{start} trainer.n_gpus_per_node=8 {words}\n"}
    said = run_of(files, "run.sh", hardware="8xA100-80GB").settings.get(shared.refused)
    return "" if said is None else str(said.value)


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (f"{_MODEL}.selective_mask_path=masks.pt", f"{_MODEL}.selective_mask_path"),
        ("actor_rollout_ref.actor.fsdp_config.grad_offload=True", "actor_rollout_ref.actor.fsdp_config.grad_offload"),
        ("actor_rollout_ref.rollout.engine_kwargs.seed=1", "actor_rollout_ref.rollout.engine_kwargs.seed"),
        (f"+{_MODEL}.selective_mask_path=masks.pt", ""),
        (f"++{_MODEL}.selective_mask_path=masks.pt", ""),
        (f"+{_MODEL}.masks={{path:a}} {_MODEL}.masks.path=b", ""),
        (f"{_MODEL}.lora_rank=8 data.train_batch_size=32", ""),
        ("actor_rollout_ref.rollout.nothing.inner=1", ""),  # Hydra may make a section of it
        ("hydra.run.dir=out", ""),
        (f"--config-path=/elsewhere {_MODEL}.selective_mask_path=masks.pt", ""),
        ("model@actor_rollout_ref.ref.model=hf_model", ""),
    ],
)  # fmt: skip
def test_hydra_takes_only_keys_that_the_composed_config_has(words: str, key: str) -> None:
    why = f"Hydra refuses {key}, a key that the config of main_ppo.py has not"
    assert _stops(words) == (why if key else "")


def test_what_the_composition_leaves_open_may_have_any_key() -> None:
    words = f"{_MODEL}.selective_mask_path=masks.pt"
    primary = "verl__trainer__config__ppo_trainer_yaml"
    elsewhere = f"hydra:\n  searchpath: [pkg://others]\n{_PRIMARY.format(more='')}"
    for text in (
        _PRIMARY.format(more="  - model@actor_rollout_ref.model: registered_in_code\n"),
        _PRIMARY.format(more="  - base_of_others\n"),
        elsewhere,
    ):
        assert _stops(words, **{primary: text}) == ""
    chosen = _PRIMARY.format(more="  - critic@critic: dp_critic\n")
    assert _stops(words, **{primary: chosen}) != ""  # what is open there is no section of the word
    assert _stops(words, start="cd $WORK && python3 -m verl.trainer.main_ppo") == ""


def test_a_word_that_picks_a_file_of_a_group_is_no_key() -> None:
    """What the file says may lie at the root of the config, so that the group's own name stands nowhere in it."""
    optional = {
        "verl__trainer__config__ppo_trainer_yaml": _PRIMARY.format(
            more="  - optional experiment: null\n"
        ),
        "verl__trainer__config__experiment__long_yaml": "# @package _global_\ndata: {train_batch_size: 8}\n",
    }
    assert _stops("experiment=long data.train_batch_size=4", **optional) == ""
    assert _stops("experiments=long", **optional) != ""


def test_words_that_choose_no_file_leave_the_files_known() -> None:
    many = " ".join(f"+extra.key_{number}=1" for number in range(150))
    key = "actor_rollout_ref.actor.fsdp_config.grad_offload"
    assert _stops(f"{many} {key}=True").startswith(f"Hydra refuses {key}")


def test_a_checkout_that_is_installed_in_place() -> None:
    words = f"{_MODEL}.selective_mask_path=masks.pt {_MODEL}.path=gpt2"
    inner = {f"verl/{name}": text for name, text in _FILES.items()}
    run = {"run.sh": f"python3 -m verl.trainer.main_ppo {words}\n"}
    for more, is_told in (({"verl/setup.py": "setup()\n"}, True), ({}, False)):
        found = run_of({**inner, **run, **more}, "run.sh").settings.get(shared.refused)
        assert (found is not None) is is_told


def test_a_program_that_is_not_here_is_not_asked() -> None:
    words = "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=gpt2 no.such=1\n"
    assert run_of({"run.sh": words}).settings.get(shared.refused) is None
