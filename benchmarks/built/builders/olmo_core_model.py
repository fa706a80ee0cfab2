"""OLMo-core's own model of a script: what its ``build_model_config`` makes."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace
from typing import Any

from counted import counts
from protocol import checkout, serve, stand_in


def prepare() -> Any:
    checkout("OLMo-core", "src")
    stand_in("cached_path", "boto3", "botocore", "google", "beaker", "gantry", "bettermap", "flash_attn",
             "grouped_gemm", "fla", "olmo_eval")  # fmt: skip
    from gantry.callbacks import Callback

    # The stand-in for Beaker's classes registers nothing.
    Callback.register = lambda _name: lambda registered: registered
    from olmo_core.data import TokenizerConfig
    from olmo_core.nn.transformer import TransformerConfig

    common = SimpleNamespace(
        tokenizer=TokenizerConfig.dolma2(), max_sequence_length=4096, launch=None
    )

    def judge(case: dict[str, Any]) -> dict[str, Any]:
        spec = importlib.util.spec_from_file_location("example", case["example"])
        if spec is None or spec.loader is None:
            raise ImportError(case["example"])
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        config: TransformerConfig = module.build_model_config(common)
        model = config.build(init_device="meta")
        # Blocks of a hybrid may begin with another mixer than attention.
        mixers = [block.attention for block in model.blocks.values()]
        attention = next(mixer for mixer in mixers if hasattr(mixer, "n_kv_heads"))
        return counts(model, config.n_layers, attention.n_heads, attention.n_kv_heads)

    return judge


if __name__ == "__main__":
    serve(prepare, "OLMo-core")
