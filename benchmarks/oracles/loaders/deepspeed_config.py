"""DeepSpeed's own reading of its JSON, after transformers has filled in what says "auto".

A case may name the ``ranks``, the ``micro`` batch and the accumulation ``steps`` of its run.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from ampere import RANKS, pretend
from protocol import flat, serve


def prepare() -> Any:
    pretend()
    import logging

    import deepspeed.runtime.config as runtime
    from transformers import TrainingArguments
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    logging.disable(logging.WARNING)

    class Filling(HfTrainerDeepSpeedConfig):
        """The config of a Trainer that says what the file says: its own arguments are not here."""

        def fill_match(
            self, ds_key_long: str, hf_val: Any, hf_key: Any = None, must_match: bool = True
        ) -> None:
            """Put a value in place of "auto"; what the file says is not held against a default."""
            super().fill_match(ds_key_long, hf_val, hf_key, must_match=False)

    # No process group is there to be asked; the ranks are those that _Ranks counts.
    runtime.dist.get_rank = lambda *_args: 0

    def judge(case: dict[str, Any]) -> dict[str, Any]:
        with open(case["main"], encoding="utf-8") as file:
            said = json.load(file)
        RANKS["world"] = case.get("ranks") or 1
        if '"auto"' in json.dumps(said):
            said = _filled(said, case.get("micro") or 8, case.get("steps") or 1)
        config = runtime.DeepSpeedConfig(said, mpu=_Ranks(said, case.get("ranks")))
        zero = config.zero_config.model_dump()
        zero["stage"] = int(config.zero_optimization_stage)
        flags = {
            "bf16": config.bfloat16_config.model_dump(),
            "fp16": config.float16_config.model_dump(),
        }
        batch = {
            "train_batch_size": config.train_batch_size,
            "train_micro_batch_size_per_gpu": config.train_micro_batch_size_per_gpu,
            "gradient_accumulation_steps": config.gradient_accumulation_steps,
        }
        return flat({
            **batch, **flags, "zero_optimization": zero,
            "optimizer": {"type": config.optimizer_name},
            "gradient_clipping": config.gradient_clipping,
            "prescale_gradients": config.prescale_gradients,
        })  # fmt: skip

    def _filled(said: dict[str, Any], micro: int, steps: int) -> dict[str, Any]:
        arguments = TrainingArguments(
            output_dir="out",
            use_cpu=True,
            bf16=bool(_enabled(said, "bf16")),
            fp16=bool(_enabled(said, "fp16")) and not _enabled(said, "bf16"),
            per_device_train_batch_size=_number(said, "train_micro_batch_size_per_gpu") or micro,
            gradient_accumulation_steps=_number(said, "gradient_accumulation_steps") or steps,
        )
        holder = Filling(said)
        holder.trainer_config_process(arguments)
        model = SimpleNamespace(config=SimpleNamespace(hidden_size=4096))
        holder.trainer_config_finalize(arguments, model, 100)
        return dict(holder.config)

    return judge


def _enabled(said: dict[str, Any], part: str) -> Any:
    """``True``, ``False`` or "auto", which the trainer that goes with the file then decides."""
    return (said.get(part) or {}).get("enabled")


def _number(said: dict[str, Any], key: str) -> int | None:
    return said[key] if isinstance(said.get(key), int) else None


class _Ranks:
    """As many ranks as are known, else as the file's own batch sizes come to."""

    def __init__(self, said: dict[str, Any], known: int | None) -> None:
        total = _number(said, "train_batch_size") or 1
        micro = _number(said, "train_micro_batch_size_per_gpu")
        steps = _number(said, "gradient_accumulation_steps") or 1
        self.ranks = known or max(1, total // (micro * steps) if micro else 1)

    def get_data_parallel_world_size(self) -> int:
        return self.ranks

    def get_model_parallel_world_size(self) -> int:
        return 1


if __name__ == "__main__":
    serve(prepare, "deepspeed")
