"""prime-rl's own pydantic models over a TOML, of the program that has such sections."""

from __future__ import annotations

from typing import Any

import tomllib
from protocol import NotMine, checkout, flat, plain, serve


def prepare() -> Any:
    checkout("prime-rl", "packages/prime-rl-configs/src")
    from prime_rl.configs.rl import RLConfig
    from prime_rl.configs.sft import SFTConfig
    from prime_rl.configs.trainer import TrainerConfig

    def judge(case: dict[str, Any]) -> dict[str, Any]:
        with open(case["main"], "rb") as file:
            said = _none(tomllib.load(file))
        if "trainer" in said or "orchestrator" in said:
            takes: Any = RLConfig
        elif "data" in said and "fake" not in said["data"]:
            takes = SFTConfig
        elif "model" in said:
            takes = TrainerConfig
        else:
            raise NotMine("it trains nothing")
        return flat(plain(takes(**said).model_dump()))

    return judge


def _none(value: Any) -> Any:
    """``"None"`` stands for nothing (pydantic_config's own reading of TOML)."""
    if isinstance(value, dict):
        return {key: _none(item) for key, item in value.items()}
    return None if value == "None" else value


if __name__ == "__main__":
    serve(prepare, "prime-rl")
