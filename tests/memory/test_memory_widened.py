"""Packed layers among fp32 ones, as peft's prepare_model_for_kbit_training leaves them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.plans import plan_of

from oomlint.memory import GpuLimits, estimate
from oomlint.memory.facts import Facts
from oomlint.memory.layers import Regime
from oomlint.models import lookup

# What the runs below have in common: a loop without autocast over 4-bit weights, whose loss outlives its logits.
_PREPARED: dict[str, Any] = {
    "trainable.method": "qlora", "trainable.r": 32, "trainable.adapter_dtype": "fp32",
    "trainable.targets": ("q_proj", "k_proj", "v_proj", "o_proj"),
    "quant.method": "bnb4", "quant.compute_dtype": "fp16", "quant.double": False, "quant.prepares_kbit": True,
    "precision.param": "nf4", "precision.compute": "fp16", "precision.grad": "fp32", "precision.autocast": False,
    "precision.optim_state": "fp32", "optimizer.kind": "adamw", "optimizer.foreach": True,
    "checkpointing.mode": "full", "checkpointing.reentrant": False, "model.attn_impl": "sdpa",
    "loss.logits_materialised": "full", "loss.upcast_fp32": True, "loss.outputs_kept": True,
    "seq.pad": "max_len", "parallel.backend": "none", "versions": {"torch": "2.10.0"},
}  # fmt: skip


def _regime(**changes: Any) -> Regime:
    facts = lookup("TinyLlama/TinyLlama-1.1B-Chat-v1.0")
    assert facts is not None
    sizes = {"model.dims": facts.dims, "batch.micro": 2, "seq.max_len": 512}
    found = Facts(plan_of(_PREPARED | sizes, **changes)).regime
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("changes", "stream", "whole"),
    [
        ({}, 4, 4),
        ({"quant__method": "bnb8"}, 4, 4),
        # Autocast computes what is not packed in half precision, and hands on what it was given.
        ({"precision__autocast": True}, 4, 2),
        ({"quant__prepares_kbit": False}, 2, 2),
        # peft leaves what GPTQ packed as it is.
        ({"quant__method": "gptq"}, 2, 2),
        # DeepSpeed's engine casts the whole model.
        ({"parallel__backend": "zero", "parallel__zero__stage": 2}, 2, 2),
    ],
)
def test_packed_layers_hand_on_what_they_were_given(
    changes: dict[str, Any], stream: int, whole: int
) -> None:
    found = _regime(**changes)
    assert (found.stream, found.whole, found.compute) == (stream, whole, 2)


def test_fp32_activations_have_no_flash_attention_in_torch() -> None:
    assert _regime().kernel != "flash"
    assert _regime(precision__autocast=True, seq__pad="none").kernel == "flash"
    assert _regime(model__attn_impl="flash2").kernel == "flash"


@pytest.mark.parametrize(
    ("model", "batch", "length", "measured"),
    [
        ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", 2, 512, 1847),
        ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", 2, 1024, 2528),
        ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", 2, 2048, 3897),
        ("HuggingFaceTB/SmolLM2-1.7B", 4, 1024, 5281),
        ("Qwen/Qwen2.5-1.5B-Instruct", 2, 1024, 6823),
    ],
)
def test_peaks_that_fitcheck_read_on_a_t4(
    model: str, batch: int, length: int, measured: int
) -> None:
    """max_memory_allocated in MiB (fitcheck-llm 0.2.0, README.md): before, the estimates were 10 to 16% less."""
    facts = lookup(model)
    assert facts is not None
    sizes = {"model.dims": facts.dims, "batch.micro": batch, "seq.max_len": length}
    gpu = estimate(plan_of(_PREPARED | sizes), GpuLimits()).gpu
    assert gpu.allocated_bytes == pytest.approx(measured * 2**20, rel=0.02)


def test_each_token_has_four_fp32_logits_and_an_fp32_state_of_each_layer() -> None:
    """Its logits, their log-softmax and the gradients of both, and what checkpointing keeps: of TinyLlama 4 x 4 x 32,000
    bytes, and 4 x 2,048 for each of 22 layers and for the head's input."""
    facts = lookup("TinyLlama/TinyLlama-1.1B-Chat-v1.0")
    assert facts is not None
    peaks = []
    for length in (1024, 2048):
        sizes = {"model.dims": facts.dims, "batch.micro": 2, "seq.max_len": length}
        gpu = estimate(plan_of(_PREPARED | sizes), GpuLimits()).gpu
        assert gpu.allocated_bytes is not None
        peaks.append(gpu.allocated_bytes)
    a_token = (peaks[1] - peaks[0]) / 2048
    assert a_token == pytest.approx(4 * 4 * 32_000 + 4 * 2048 * 23, rel=0.02)


@pytest.mark.parametrize(("length", "gib"), [(1024, 2.81), (2048, 6.50)])
def test_eager_attention_on_a_card_needs_what_was_read(length: int, gib: float) -> None:
    """fitcheck-llm 0.2.0 fitcheck.ipynb, max_memory_allocated on a T4: the product that CUDA's softmax makes in backward, and
    the logits that the loop's ``out`` holds through it."""
    facts = lookup("TinyLlama/TinyLlama-1.1B-Chat-v1.0")
    assert facts is not None
    sizes = {"model.dims": facts.dims, "batch.micro": 2, "seq.max_len": length}
    plan = plan_of(_PREPARED | sizes | {"model.attn_impl": "eager"})
    assert estimate(plan).gpu.allocated_bytes == pytest.approx(gib * 2**30, rel=0.015)
    bare = plan.with_values({"env.kernel_scratch": False, "loss.outputs_kept": False})
    found = estimate(bare).gpu.allocated_bytes
    assert found is not None
    assert found < 0.9 * gib * 2**30
