"""ROLL's own configs: Hydra composes a YAML, dacite makes the dataclass that its pipeline takes."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

from protocol import NotMine, checkout, flat, plain, serve, stand_in


def prepare() -> Any:
    checkout("ROLL", ".", "mcore_adapter/src")
    stand_in("ray", "vllm", "sglang", "megatron", "transformer_engine", "flash_attn", "torchvision", "gem", "gymnasium",
             "codetiming", "diffsynth", "mcore_adapter", "swanlab", "wandb", "more_itertools", "imageio")  # fmt: skip
    from dacite import Config, from_dict
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf
    from roll.configs.base_config import PPOConfig
    from roll.pipeline.agentic.agentic_config import AgenticConfig
    from roll.pipeline.distill.distill_config import DistillConfig
    from roll.pipeline.dpo.dpo_config import DPOConfig
    from roll.pipeline.rlvr.rlvr_config import RLVRConfig
    from roll.pipeline.sft.sft_config import SFTConfig

    kinds = {
        "agentic": AgenticConfig, "distill": DistillConfig, "dpo": DPOConfig, "rlvr": RLVRConfig, "sft": SFTConfig,
        "ppo": PPOConfig,
    }  # fmt: skip

    def judge(case: dict[str, Any]) -> dict[str, Any]:
        path = os.path.abspath(case["main"])
        said = OmegaConf.load(path)
        takes = _kind(path, said, kinds)
        GlobalHydra.instance().clear()
        folder, name = os.path.split(path)
        with initialize_config_dir(config_dir=folder, version_base=None):
            config = compose(config_name=name.rpartition(".")[0])
        values: Any = OmegaConf.to_container(config, resolve=True)
        made = from_dict(
            data_class=takes, data=values, config=Config(strict=False, check_types=True)
        )
        return flat(plain(asdict(made)))

    return judge


def _kind(path: str, said: Any, kinds: dict[str, Any]) -> Any:
    """The pipeline by the sections that only it has, else by the name of its file."""
    if "custom_envs" in said or "train_env_manager" in said:
        return kinds["agentic"]
    if "rewards" in said:
        return kinds["rlvr"]
    for word in ("distill", "dpo", "sft", "agentic", "rlvr"):
        if word in path:
            return kinds[word]
    raise NotMine("no pipeline of language models")


if __name__ == "__main__":
    serve(prepare, "ROLL")
