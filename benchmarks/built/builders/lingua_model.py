"""Meta Lingua's own transformer of a YAML's ``model``: LMTransformer of ``apps/main``."""

from __future__ import annotations

from typing import Any

from counted import counts
from protocol import checkout, serve, stand_in

# Vocabulary by the tokenizer's name: ``lingua/tokenizer.py``, ByteTokenizer (256 bytes and two marks);
# a tiktoken file stands for Llama 3's 128,000 ranks and 256 special tokens.
_VOCABULARY = {"bytes": 258, "tiktoken": 128256}


def prepare() -> Any:
    checkout("lingua", "")
    stand_in("xformers")
    import torch
    from apps.main.transformer import LMTransformer, LMTransformerArgs
    from omegaconf import OmegaConf

    def judge(case: dict[str, Any]) -> dict[str, Any]:
        config: Any = OmegaConf.to_container(OmegaConf.load(case["example"]))
        args = LMTransformerArgs(**config["model"])
        args.vocab_size = _VOCABULARY[config["data"]["tokenizer"]["name"]]
        with torch.device("meta"):
            model = LMTransformer(args)
        heads = args.n_heads or args.dim // (args.head_dim or 1)
        return counts(model, len(model.layers), heads, args.n_kv_heads or heads)

    return judge


if __name__ == "__main__":
    serve(prepare, "lingua")
