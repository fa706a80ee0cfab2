"""Megatron-Core's own model of the arguments that a script of slime sources, laid out on one rank."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import typing
from typing import Any
from unittest import mock

from counted import alone, counts, on_meta
from protocol import NotMine, checkout, serve, stand_in

# What Megatron's parser wants of every run, and no model is made of.
_REST = (
    "--micro-batch-size", "1", "--seq-length", "4096", "--max-position-embeddings", "4096", "--bf16",
    "--transformer-impl", "local", "--no-persist-layer-norm", "--no-gradient-accumulation-fusion", "--no-rope-fusion",
    "--no-masked-softmax-fusion", "--no-bias-swiglu-fusion",
)  # fmt: skip


def _words(path: str) -> list[str]:
    """The words of ``MODEL_ARGS``, by the shell itself from the one file of a model that a script sources; the vocabulary is
    padded to the ranks that share it."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    sourced = re.search(r"source .*?(models/[\w.-]+\.sh)", text)
    if sourced is None:
        raise NotMine(path)
    asked = [
        "bash",
        "-c",
        'source "$1"; printf "%s\\n" "${MODEL_ARGS[@]}"',
        "-",
        f"scripts/{sourced[1]}",
    ]
    words = subprocess.run(asked, capture_output=True, check=True, text=True).stdout.splitlines()
    ranks = re.search(r"--tensor-model-parallel-size (\d+)", text)
    return [*words, "--make-vocab-size-divisible-by", str(128 * int(ranks[1] if ranks else 1))]


def prepare() -> Any:
    checkout("slime", "")
    checkout("Megatron-LM", "")
    stand_in("nvidia_resiliency_ext", "wandb", "tensorboard", "zarr",
             "tensorstore", "multi_storage_client", "mamba_ssm", "causal_conv1d", "hybrid_ep", "flask", "flask_restful")  # fmt: skip
    os.environ.update(WORLD_SIZE="1", RANK="0", LOCAL_RANK="0", CUDA_DEVICE_MAX_CONNECTIONS="1")
    alone()
    typing.override = getattr(typing, "override", lambda method: method)
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
    from megatron.training.arguments import (
        core_transformer_config_from_args,
        parse_args,
        validate_args,
    )
    from megatron.training.tokenizer.tokenizer import _vocab_size_with_padding

    parallel_state.initialize_model_parallel(1, 1)

    def judge(case: dict[str, Any]) -> dict[str, Any]:
        with mock.patch.object(sys, "argv", ["train.py", *_words(case["example"]), *_REST]):
            args = validate_args(parse_args(ignore_unknown_args=True))
        config = core_transformer_config_from_args(args)
        config.use_cpu_initialization = False
        config.perform_initialization = False
        if args.spec is not None:
            raise NotMine(f"{args.spec} is a module of slime's over Transformer Engine")
        spec = get_gpt_decoder_block_spec(config, use_transformer_engine=False)
        with on_meta():
            model = GPTModel(
                config=config,
                transformer_layer_spec=spec,
                vocab_size=_vocab_size_with_padding(args.vocab_size, args, False),
                max_sequence_length=4096,
                share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights,
                position_embedding_type="rope",
            )
        groups = config.num_query_groups or config.num_attention_heads
        return counts(model, config.num_layers, config.num_attention_heads, groups)

    return judge


if __name__ == "__main__":
    serve(prepare, "slime", "Megatron-LM")
