"""GPT-NeoX's own pipeline of layers of a YAML, laid out on one rank."""

from __future__ import annotations

import os
from contextlib import nullcontext
from importlib import metadata
from typing import Any

from counted import alone, counts, on_meta
from protocol import checkout, serve, stand_in

# 96 GPUs are what every degree of the examples divides; the batch is then what they make of it.
_MACHINE = {"global_num_gpus": 96, "train_batch_size": None}
# The whole model on one rank, whatever the example splits it over.
_ALONE = {"model_parallel_size": 1, "pipe_parallel_size": 1}
# Vocabularies by the tokenizer's type, where it says no file (``megatron/tokenizer/tokenizer.py``), else of GPT-NeoX-20B's.
_VOCABULARIES = {"GPT2BPETokenizer": 50257, "HFGPT2Tokenizer": 50257, "CharLevelTokenizer": 512}
_OTHERS = 50277


def _vocabulary(args: Any) -> int:
    return _VOCABULARIES.get(args.tokenizer_type, _OTHERS)


def prepare() -> Any:
    checkout("gpt-neox", "")
    stand_in("flash_attn", "apex", "best_download", "lm_dataformat", "ftfy", "mup", "wandb", "pybind11", "boto3",
             "hf_transfer", "lm_eval", "transformer_engine", "mamba_ssm", "causal_conv1d", "rwkv")  # fmt: skip
    os.environ.update(
        WORLD_SIZE="1", RANK="0", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="29555"
    )
    alone()
    # Which kernels there are is asked of their packages' versions.
    found = metadata.version
    metadata.version = lambda name: "2.6.3" if name == "flash-attn" else found(name)
    import deepspeed
    import torch
    from deepspeed.runtime.activation_checkpointing import checkpointing

    checkpointing.get_cuda_rng_tracker().fork = nullcontext
    # The pipeline moves itself to its GPU.
    torch.nn.Module.to = lambda module, *_to: module
    deepspeed.init_distributed("gloo")
    from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology
    from megatron import mpu
    from megatron.model.gpt2_model import GPT2ModelPipe
    from megatron.neox_arguments import NeoXArgs
    from megatron.tokenizer.tokenizer import _vocab_size_with_padding

    topology = PipeModelDataParallelTopology(num_pp=1, num_mp=1, num_dp=1)
    mpu.initialize_model_parallel(1, topology=topology)

    def judge(case: dict[str, Any]) -> dict[str, Any]:
        args = NeoXArgs.from_ymls([case["example"]], overwrite_values=_MACHINE)
        args.padded_vocab_size = _vocab_size_with_padding(_vocabulary(args), args)
        for key, value in _ALONE.items():
            args.update_value(key, value)
        with on_meta():
            model = GPT2ModelPipe(args, topology=mpu.get_topology())
        return counts(model, args.num_layers, args.num_attention_heads, args.num_kv_heads)

    return judge


if __name__ == "__main__":
    serve(prepare, "gpt-neox")
