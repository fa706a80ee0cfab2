"""Lingua's own reading of a YAML: OmegaConf lays it over the dataclasses of its main app."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from unittest.mock import MagicMock

from protocol import NotMine, checkout, flat, plain, serve, stand_in


def prepare() -> Any:
    checkout("lingua", "")
    stand_in(
        "torch",
        "xformers",
        "numpy",
        "pyarrow",
        "sentencepiece",
        "tiktoken",
        "fvcore",
        "wandb",
        "lm_eval",
    )
    import torch

    # Where torch is there, xformers would have registered a kernel with it that Lingua names on import.
    kernels: Any = torch.ops
    kernels.xformers_flash = MagicMock()
    from apps.main.train import TrainArgs
    from omegaconf import OmegaConf

    def judge(case: dict[str, Any]) -> dict[str, Any]:
        given = OmegaConf.load(case["main"])
        if "distributed" not in given:
            raise NotMine
        config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(TrainArgs()), given))
        return flat(plain(asdict(config)))

    return judge


if __name__ == "__main__":
    serve(prepare, "lingua")
