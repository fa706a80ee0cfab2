"""OLMo's own model of a YAML's ``model``."""

from __future__ import annotations

from typing import Any

from counted import counts
from protocol import checkout, serve, stand_in


def prepare() -> Any:
    checkout("OLMo", "")
    stand_in("cached_path", "boto3", "botocore", "google", "rotary_embedding_torch")
    from olmo.config import ModelConfig
    from olmo.model import OLMo
    from omegaconf import OmegaConf

    def judge(case: dict[str, Any]) -> dict[str, Any]:
        said = OmegaConf.load(case["example"]).model
        config = ModelConfig.new(**said)
        config.init_device = "meta"
        model = OLMo(config, init_params=False)
        return counts(model, config.n_layers, config.n_heads, config.effective_n_kv_heads)

    return judge


if __name__ == "__main__":
    serve(prepare, "OLMo")
