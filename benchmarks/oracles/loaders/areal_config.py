"""AReaL's own dataclasses under OmegaConf: the class that a program of its kind takes."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from protocol import checkout, flat, plain, serve, stand_in


def prepare() -> Any:
    checkout("AReaL", ".")
    stand_in("uvloop", "httpx", "ray", "sglang", "vllm", "aiohttp", "aiofiles", "swanlab", "wandb", "mbridge",
             "megatron", "torchvision", "flash_attn", "pebble", "prettytable", "etcd3", "nvitop")  # fmt: skip
    from areal.api import cli_args
    from omegaconf import OmegaConf

    kinds = {"dpo": cli_args.DPOConfig, "rw": cli_args.RWConfig}

    def judge(case: dict[str, Any]) -> dict[str, Any]:
        said = OmegaConf.load(case["main"])
        data = said.get("train_dataset") or {}
        takes: Any = cli_args.PPOConfig
        if "rollout" not in said and "gconfig" not in said:
            takes = kinds.get(data.get("type"), cli_args.SFTConfig)
        # What a program of an example adds to the dataclass is its own.
        own = {field.name for field in fields(takes)}
        told = OmegaConf.create({key: said._get_node(key) for key in said})
        for key in [key for key in told if key not in own]:
            del told[key]
        made = OmegaConf.merge(OmegaConf.structured(takes), told)
        OmegaConf.to_object(made)
        values: Any = OmegaConf.to_container(made, resolve=True, enum_to_str=True)
        return flat(plain(values))

    return judge


if __name__ == "__main__":
    serve(prepare, "AReaL")
