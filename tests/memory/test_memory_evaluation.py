"""Evaluation after training: the cache of keys and values, and the blocks that training leaves."""

from __future__ import annotations

import pytest
from tests.linked import run_of
from tests.plans import plan_of

from oomlint.memory import GpuLimits, estimate
from oomlint.models import lookup
from oomlint.plan import Plan

_GIB = 2**30


def evaluating(model: str, *, caches: bool, **changes: object) -> Plan:
    facts = lookup(model)
    assert facts is not None
    leaves = {
        "model.dims": facts.dims, "model.attn_impl": "sdpa", "objective.kind": "sft",
        "trainable.method": "lora", "trainable.r": 64, "trainable.targets": "all_linear",
        "trainable.adapter_dtype": "bf16", "precision.param": "bf16", "precision.compute": "bf16",
        "precision.grad": "bf16", "precision.optim_state": "bf16", "precision.autocast": False,
        "optimizer.kind": "adamw", "optimizer.fused": True, "checkpointing.mode": "full",
        "parallel.backend": "none", "batch.micro": 2, "batch.grad_accum": 1, "batch.eval_micro": 8,
        "seq.max_len": 2048, "seq.pad": "max_len", "eval.enabled": True, "eval.caches": caches,
    }  # fmt: skip
    return plan_of(leaves, **changes)


@pytest.mark.parametrize(
    ("model", "caches", "allocated", "reserved"),
    [
        ("meta-llama/Llama-2-7b-hf", False, 19.35, 23.87),
        ("meta-llama/Llama-2-7b-hf", True, 27.35, 31.93),
        ("mistralai/Mistral-7B-v0.1", False, 20.39, 25.45),
        ("mistralai/Mistral-7B-v0.1", True, 22.39, 26.32),
    ],
)
def test_evaluation_of_larger_batches_is_what_was_measured(
    model: str, *, caches: bool, allocated: float, reserved: float
) -> None:
    """GiB of eight samples after two steps of two, all of 2,048 tokens: transformers 5.23's model with LoRA of rank 64 on
    all linear layers on fake tensors, in bf16 under activation checkpointing, with ``use_cache`` as it says, and every
    request and free replayed by benchmarks/allocator/caching.py."""
    gpu = estimate(evaluating(model, caches=caches), GpuLimits(cublas_workspace=0)).gpu
    assert gpu.allocated_bytes is not None
    assert gpu.reserved_bytes is not None
    assert gpu.peak_phase == "evaluation"
    assert gpu.allocated_bytes / _GIB == pytest.approx(allocated, rel=0.05)
    assert gpu.reserved_bytes / _GIB == pytest.approx(reserved, rel=0.1)


_SCRIPT = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf")
args = TrainingArguments(output_dir="out", eval_strategy="epoch")
Trainer(model=model, args=args, train_dataset=data, eval_dataset=more).train()
"""


@pytest.mark.parametrize(
    ("release", "text", "caches"),
    [
        ("4.57.1", _SCRIPT, True),
        ("5.0.0", _SCRIPT, None),
        ("4.57.1", _SCRIPT + "model.config.use_cache = False\n", None),
        ("4.57.1", _SCRIPT.replace("AutoModelForCausalLM", "AutoModelForMaskedLM"), None),
    ],
)  # fmt: skip
def test_transformers_4_keeps_keys_and_values_in_evaluation(
    release: str, text: str, *, caches: bool | None
) -> None:
    files = {"train.py": text, "requirements.txt": f"transformers=={release}\n"}
    assert run_of(files, "train.py").plan.eval.caches is caches
