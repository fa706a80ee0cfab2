"""OLMo's own TrainConfig: OmegaConf over its dataclasses, and the model of them on the meta device."""

from __future__ import annotations

from typing import Any

from protocol import checkout, flat, plain, serve, stand_in


def prepare() -> Any:
    checkout("OLMo", ".")
    # Stores and loggers that are imported with the trainer and ask nothing of a config.
    stand_in(
        "boto3", "botocore", "cached_path", "flash_attn", "google", "importlib_resources", "olmo_data",
        "smart_open", "torchmetrics", "wandb",
    )  # fmt: skip
    from olmo.config import TrainConfig
    from olmo.model import OLMo

    def judge(case: dict[str, Any]) -> dict[str, Any]:
        config = TrainConfig.load(case["main"], case.get("words", []), validate_paths=False)
        values = config.asdict()
        values["fsdp"]["sharding_strategy"] = config.fsdp.sharding_strategy.name
        assert config.autocast_precision is not None
        config.model.init_device = "meta"
        model = OLMo(config.model, init_params=False)
        model.get_fsdp_wrap_policy(config.fsdp.wrapping_strategy)
        return flat(plain(values))

    return judge


if __name__ == "__main__":
    serve(prepare, "OLMo")
