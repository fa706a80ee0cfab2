"""torchtitan's own model of a function of a registry: what its ``ModelSpec`` builds."""

from __future__ import annotations

import importlib
from typing import Any

from counted import counts
from protocol import checkout, serve, stand_in


def prepare() -> Any:
    checkout("torchtitan", "")
    stand_in(
        "torchvision",
        "triton",
        "fla",
        "google",
        "tensorboard",
        "wandb",
        "torch_checkpointing",
        "torchdata",
        "torchstore",
        "grain",
    )
    import torch

    def judge(case: dict[str, Any]) -> dict[str, Any]:
        path, _, function = case["example"].partition(":")
        module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
        spec = getattr(module, function)().model_spec
        with torch.device("meta"):
            model = spec.model.build()
        blocks = list(model.layers.values())
        attention = blocks[0].attention
        heads = getattr(attention, "n_heads", None)
        return counts(model, len(blocks), heads, getattr(attention, "n_kv_heads", None) or heads)

    return judge


if __name__ == "__main__":
    serve(prepare, "torchtitan")
