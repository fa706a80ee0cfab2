"""align-anything's own reading of a command: the YAML of its trainer, with every key of an option's name replaced."""

from __future__ import annotations

import os
from typing import Any

from protocol import NotMine, checkout, serve, stand_in

_PACKAGE = "align_anything.trainers."


def prepare() -> Any:
    checkout("align-anything", "")
    stand_in(
        "torch",
        "torchvision",
        "torchaudio",
        "numpy",
        "PIL",
        "transformers",
        "deepspeed",
        "torch_npu",
        "librosa",
        "tqdm",
        "datasets",
        "diffusers",
        "accelerate",
        "peft",
        "requests",
        "soundfile",
        "einops",
        "rich",
        "typing_extensions",
        "wandb",
        "tensorboard",
        "pandas",
        "moviepy",
        "decord",
        "qwen_vl_utils",
        "optree",
    )
    from align_anything.utils.tools import custom_cfgs_to_dict, read_cfgs, update_dict

    def judge(case: dict[str, Any]) -> dict[str, Any]:
        if not case.get("program", "").startswith(_PACKAGE):
            raise NotMine
        task = case["program"].removeprefix(_PACKAGE).split(".")
        configs, _ = read_cfgs(mode="train", task=os.path.join(*task))
        words = case["argv"]
        for option, value in zip(words[::2], words[1::2], strict=True):
            configs = update_dict(configs, custom_cfgs_to_dict(option[2:], value))
        return dict(_leaves(configs))

    return judge


def _leaves(configs: dict[str, Any]) -> Any:
    """Values by the last part of their keys: an option replaces all that are called so."""
    for key, value in configs.items():
        if isinstance(value, dict):
            yield from _leaves(value)
        else:
            yield key, value


if __name__ == "__main__":
    serve(prepare, "align-anything")
