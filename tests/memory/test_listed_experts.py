"""Mixtures that have a linear layer for each expert: they are quantized whole, and adapters of such layers are in each."""

from __future__ import annotations

import pytest
from tests.linked import run_of

from oomlint.memory import skeleton
from oomlint.memory.facts import Facts
from oomlint.memory.layers import layer_profile
from oomlint.memory.trained import adapter_ends, listed_expert_ends, targeted
from oomlint.plan.model import ModelDims, Moe, Trainable

_CONFIG = """\
model_name_or_path: {model}
trust_remote_code: true
stage: sft
do_train: true
finetuning_type: lora
lora_target: all
quantization_bit: 4
dataset: a
template: kimi_vl
cutoff_len: 2048
output_dir: out
per_device_train_batch_size: 1
fp16: true
"""


@pytest.mark.parametrize(
    ("model", "is_small"),
    [("moonshotai/Kimi-VL-A3B-Thinking-2506", True), ("Qwen/Qwen3-30B-A3B", False)],
)
def test_experts_of_code_that_comes_with_the_weights(model: str, is_small: bool) -> None:
    """16.4B parameters in 4 bit; those that transformers 5 stacks stay in 16."""
    run = run_of({"train.yaml": _CONFIG.format(model=model)})
    peak = run.estimate.gpu.peak_bytes
    assert peak is not None
    assert (peak < 20 * 2**30) is is_small


_OWN = """\
model_name_or_path: {model}
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 64
lora_target: {target}
dataset: a
template: default
cutoff_len: 512
output_dir: out
per_device_train_batch_size: 1
bf16: true
"""


def adapted(model: str, target: str, transformers: str) -> float:
    files = {
        "train.yaml": _OWN.format(model=model, target=target),
        "requirements.txt": f"transformers=={transformers}\n",
    }
    return Facts(run_of(files, "train.yaml").plan).trained.numel


@pytest.mark.parametrize(
    ("model", "target", "numel"),
    [
        # A public notebook's print_trainable_parameters(), of transformers 4.38 and peft 0.8.
        ("mistralai/Mixtral-8x7B-v0.1", "q_proj,v_proj,k_proj,o_proj,w1,w2,w3", 960_495_616),
        ("mistralai/Mixtral-8x7B-v0.1", "q_proj,v_proj,k_proj,o_proj", 54_525_952),
        ("Qwen/Qwen3-30B-A3B", "gate_proj", 48 * 128 * 64 * (2048 + 768)),
    ],
)
def test_adapters_of_single_experts(model: str, target: str, numel: int) -> None:
    assert adapted(model, target, "4.57.1") == numel


def test_stacked_experts_have_no_linear_layers() -> None:
    assert adapted("mistralai/Mixtral-8x7B-v0.1", "q_proj,w1", "5.23.0") == 32 * 64 * (4096 + 4096)


@pytest.mark.parametrize(
    ("arch", "targets", "each", "router"),
    [
        ("mixtral", "all_linear", 4608, 136),
        ("mixtral", ("w1",), 1536, 0),
        ("mixtral", ("gate_proj",), 0, 0),
        ("qwen3_moe", ("gate_proj", "up_proj"), 3072, 0),
        ("glm4_moe", "all_linear", 4608, 0),
    ],
)
def test_peft_finds_the_layers_of_experts(
    arch: str, targets: object, each: int, router: int
) -> None:
    """Counted on the meta device with peft 0.21.2 on transformers 4.57.1: two layers, four experts."""
    dims = ModelDims(
        arch=arch, layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=128, vocab=100,
        act="swiglu", norm="rms", moe=Moe(experts=4, topk=2, moe_ffn=128),
    )  # fmt: skip
    model = skeleton(dims)
    assert model is not None
    roles = targeted(Trainable(method="lora", targets=targets), model, apart=True)  # type: ignore[arg-type]
    assert listed_expert_ends(model, roles) == each
    assert adapter_ends(model, roles & {"router"}) == router
    out = Trainable(method="lora", targets="all_linear", exclude=("w2", "down_proj"))
    assert listed_expert_ends(model, targeted(out, model, apart=True)) == 3072


def test_every_adapter_of_an_expert_gets_a_gradient() -> None:
    files = {
        "train.yaml": _OWN.format(model="mistralai/Mixtral-8x7B-v0.1", target="w1,w2,w3"),
        "requirements.txt": "transformers==4.57.1\n",
    }
    facts = Facts(run_of(files, "train.yaml").plan)
    model, regime = facts.built
    (block,) = model.blocks
    profile = layer_profile(model, block, regime)
    assert profile.trained * model.layers == facts.trained.numel
