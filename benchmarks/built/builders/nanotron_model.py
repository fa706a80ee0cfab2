"""nanotron's own model of a YAML's ``model.model_config``, by the class that its trainer would take."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any

from counted import alone, counts, on_meta
from protocol import checkout, serve, stand_in


def prepare() -> Any:
    checkout("nanotron", "src")
    stand_in(
        "flash_attn",
        "functorch",
        "lighteval",
        "apex",
        "numba",
        "grouped_gemm",
        "triton",
        "datatrove",
        "wandb",
    )
    os.environ.update(WORLD_SIZE="1", RANK="0", LOCAL_RANK="0")
    alone()
    import torch
    import yaml
    from dacite import from_dict
    from nanotron.config import ParallelismArgs
    from nanotron.config.models_config import LlamaConfig, Qwen2Config
    from nanotron.helpers import _vocab_size_with_padding
    from nanotron.models import build_model
    from nanotron.models.llama import LlamaForTraining
    from nanotron.models.qwen import Qwen2ForTraining
    from nanotron.parallel import ParallelContext
    from nanotron.random import RandomStates
    from nanotron.trainer import mark_tied_parameters

    ParallelContext.set_device = lambda _self: None
    context = ParallelContext(1, 1, 1)
    classes = {
        "is_llama_config": (LlamaConfig, LlamaForTraining),
        "is_qwen2_config": (Qwen2Config, Qwen2ForTraining),
    }

    def judge(case: dict[str, Any]) -> dict[str, Any]:
        with open(case["example"], encoding="utf-8") as file:
            example = yaml.safe_load(file)
        said = example["model"]["model_config"]
        mark = next(mark for mark in classes if said.get(mark))
        config_class, model_class = classes[mark]
        known = {field.name for field in fields(config_class)}
        config = from_dict(
            config_class, {k: v for k, v in said.items() if k in known and k != mark}
        )
        # What the trainer does before it builds: the vocabulary is a multiple of the ranks that share it.
        config.vocab_size = _vocab_size_with_padding(
            config.vocab_size,
            example["parallelism"]["tp"],
            example["model"].get("make_vocab_size_divisible_by", 1),
        )
        alone_args = ParallelismArgs(dp=1, pp=1, tp=1)
        with on_meta():
            model = build_model(
                lambda: model_class(config=config, parallel_context=context, parallel_config=alone_args,
                                    random_states=RandomStates({})),
                context, torch.bfloat16, device=torch.device("meta"),
            )  # fmt: skip
        mark_tied_parameters(model, context, alone_args)
        return counts(
            model, config.num_hidden_layers, config.num_attention_heads, config.num_key_value_heads
        )

    return judge


if __name__ == "__main__":
    serve(prepare, "nanotron")
