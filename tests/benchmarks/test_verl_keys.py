"""Which releases of verl have which keys, read from wheels."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

from benchmarks.verl_keys import spans

_ACTOR = "actor_rollout_ref: {actor: {%s}}"


def test_reads_what_came_and_went(tmp_path: Path) -> None:
    parts = {
        "0.4.0": {"ppo_trainer": _ACTOR % "strategy: fsdp, checkpoint: {contents: [model]}"},
        "0.6.1": {
            "ppo_trainer": "defaults: [optim@actor_rollout_ref.actor.optim: fsdp, _self_]",
            "optim/fsdp": "optimizer: AdamW",
        },
        "0.9.0": {
            "_generated_ppo_trainer": _ACTOR % "strategy: fsdp, optim: {optimizer: AdamW}",
            "_generated_ppo_megatron_trainer": _ACTOR % "megatron: {param_offload: false}",
        },
    }
    for release, files in parts.items():
        with ZipFile(tmp_path / f"verl-{release}-py3-none-any.whl", "w") as wheel:
            for name, text in files.items():
                wheel.writestr(f"verl/trainer/config/{name}.yaml", text)
    assert spans("ppo", str(tmp_path)) == {
        "actor_rollout_ref.actor.checkpoint.contents": "- 0.6.1",
        "actor_rollout_ref.actor.megatron.param_offload": "0.9.0",
        "actor_rollout_ref.actor.optim.optimizer": "0.6.1",
    }
